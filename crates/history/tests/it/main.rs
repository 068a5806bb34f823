//! A writer that is killed again and again.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rusqlite::Connection;

/// How often it is killed.
const KILLS: usize = 20;

/// `target/debug/examples/history_writer`, which cargo builds with the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a program has a file");
    let target = test
        .parent()
        .and_then(Path::parent)
        .expect("tests are two folders deep");
    target.join("examples").join("history_writer")
}

fn start(path: &Path) -> Child {
    let mut command = Command::new(program());
    command.arg(path).stdout(Stdio::piped());
    command
        .spawn()
        .expect("cargo builds the example with the tests")
}

/// Everything that a writer said is written is there after it was killed, the file is whole, and the next writer continues.
#[test]
fn a_killed_writer_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    let mut said: BTreeMap<String, i64> = BTreeMap::new();
    let mut ended: Vec<String> = Vec::new();
    for kill in 0..KILLS {
        let mut child = start(&path);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // A different number of batches each time, and what is in the pipe when it dies counts, too.
        let mut left = 3 + (kill * 7) % 23;
        for line in lines {
            let line = line.unwrap();
            let (run, what) = line.split_once(' ').unwrap();
            if what == "end" {
                ended.push(run.to_owned());
            } else {
                said.insert(run.to_owned(), what.parse().unwrap());
            }
            left = left.saturating_sub(1);
            if left == 0 {
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success(), "it was killed");
        let connection = Connection::open(&path).unwrap();
        let text = |sql: &str| {
            connection
                .query_row(sql, [], |row| row.get::<_, String>(0))
                .unwrap()
        };
        assert_eq!(text("PRAGMA integrity_check"), "ok", "kill {kill}");
        let number = |sql: &str, run: &str| -> i64 {
            connection.query_row(sql, [run], |row| row.get(0)).unwrap()
        };
        for (run, last) in &said {
            let next = number("SELECT next_seq FROM run WHERE uid = ?1", run);
            assert!(
                next > *last,
                "kill {kill}: {run} has {next}, and {last} was written"
            );
            // Each span is a millisecond: rows and sums are those of the facts before the next one.
            let spans = "SELECT COUNT(*) FROM span JOIN run ON run.id = span.run WHERE uid = ?1";
            assert_eq!(number(spans, run), next - 1, "kill {kill}: {run}");
            let sums =
                "SELECT SUM(ms) FROM run_day JOIN run ON run.id = run_day.run WHERE uid = ?1";
            assert_eq!(number(sums, run), next - 1, "kill {kill}: {run}");
        }
        for run in &ended {
            let ended = "SELECT COUNT(*) FROM run WHERE uid = ?1 AND complete = 1 AND outcome = 'succeeded'";
            assert_eq!(number(ended, run), 1, "kill {kill}: {run}");
        }
        let sums = "SELECT (SELECT SUM(ms) FROM run_day) - (SELECT SUM(ms) FROM phase_day) + ?1";
        assert_eq!(number(sums, "0"), 0, "kill {kill}");
    }
    assert!(ended.len() > 3, "runs ended meanwhile: {}", ended.len());
}
