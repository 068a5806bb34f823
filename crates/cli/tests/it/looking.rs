//! `logs --tail --since --grep`, and `--watch` of `ps`, `status` and `explain`.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use jiff::Timestamp;

use crate::{
    call::Call,
    run::{job, run},
};

fn lines(call: &Call, words: &[&str]) -> Vec<String> {
    let words: Vec<&str> = ["logs", "j"]
        .into_iter()
        .chain(words.iter().copied())
        .collect();
    let outcome = call.again(&words).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    outcome.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn lines_are_chosen() {
    let script = "for i in 1 2 3 4 5 6; do echo step $i loss 0.$i; echo Other $i; done";
    let call = run(&["-q"], &job(2, script));
    assert_eq!(call.run().code, Some(0));
    let one = |words: &[&str]| {
        let words: Vec<&str> = ["--rank", "0"]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        lines(&call, &words)
    };
    assert_eq!(one(&["--tail", "2"]), ["step 6 loss 0.6", "Other 6"]);
    assert_eq!(one(&["--tail", "0"]), [""; 0]);
    assert_eq!(one(&["--tail", "1000"]).len(), 12);
    assert_eq!(
        one(&["--grep", "^step [12] "]),
        ["step 1 loss 0.1", "step 2 loss 0.2"]
    );
    assert_eq!(
        one(&["--grep", "(?i)OTHER", "--tail", "2"]),
        ["Other 5", "Other 6"],
        "the last of those that match"
    );
    assert_eq!(
        lines(&call, &["--tail", "1"]),
        ["[master-0] Other 6", "[worker-0] Other 6"],
        "of each pod"
    );
    assert_eq!(one(&["--tail", "1", "--follow"]), ["Other 6"]);
    for (option, value, want) in [
        ("--grep", "(", "is not a regular expression"),
        ("--since", "yesterday", "is not a time such as `10m`"),
        ("--since", "-5m", "is not a time such as `10m`"),
    ] {
        let option = format!("{option}={value}");
        let refused = call.again(&["logs", "j", &option]).run();
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(want), "{}", refused.stderr);
    }
    let all = ["--cluster", "--tail", "1", "--grep", "x", "--follow"];
    let cluster = call.again(&[&["logs", "j"], &all[..]].concat()).run();
    assert_eq!(cluster.code, Some(2), "{cluster:?}");
    assert!(
        cluster
            .stderr
            .contains("`--tail` with `--grep` and `--follow` works only for runs on this machine"),
        "{cluster:?}"
    );
}

#[test]
fn run_without_output_is_no_error() {
    let call = run(&["-q"], &job(1, "true"));
    assert_eq!(call.run().code, Some(0));
    let outcome = call.again(&["logs", "j"]).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stdout, "");
    assert!(outcome.stderr.contains("wrote anything"), "{outcome:?}");
}

#[test]
fn lines_since_a_time() {
    let call = run(&["-q"], &job(1, "echo old; echo new"));
    assert_eq!(call.run().code, Some(0));
    assert_eq!(lines(&call, &["--since", "10m"]), ["old", "new"]);
    assert_eq!(
        lines(&call, &["--since", "2000-01-01T00:00:00Z"]),
        ["old", "new"]
    );
    let runs = call.folder().join(".trainyard/runs/j");
    let mut runs = std::fs::read_dir(runs).expect("the job has runs");
    let run = runs.find_map(|run| run.ok().map(|run| run.path()).filter(|run| run.is_dir()));
    let log = run
        .expect("it has one")
        .join("attempts/1/j-master-0/pytorch.log.times");
    assert!(log.exists(), "{}", log.display());
    let now = Timestamp::now().as_millisecond();
    let hours_ago = now - 7_200_000;
    std::fs::write(&log, format!("0 {hours_ago}\n4 {now}\n")).expect("it can be written");
    assert_eq!(lines(&call, &["--since", "1h"]), ["new"]);
    assert_eq!(lines(&call, &["--since", "3h"]), ["old", "new"]);
    assert_eq!(lines(&call, &["--since", "3h", "--tail", "1"]), ["new"]);
    std::fs::write(&log, format!("0 {hours_ago}\n")).expect("it can be written");
    assert_eq!(lines(&call, &["--since", "1h"]), [""; 0]);
    std::fs::remove_file(&log).expect("it can be removed");
    let old = call.again(&["logs", "j", "--since", "1h"]).run();
    assert_eq!(old.stdout, "old\nnew\n");
    assert!(
        old.stderr.contains("made by an older version"),
        "{}",
        old.stderr
    );
}

#[test]
fn a_list_that_is_watched() {
    let call = run(&["-q"], &job(1, "true"));
    assert_eq!(call.run().code, Some(0));
    let mut child = call
        .again(&["ps", "--watch"])
        .command()
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh can be started");
    let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut heads = 0;
    for line in stdout.lines() {
        heads += usize::from(line.expect("stdout is UTF-8").starts_with("JOB"));
        if heads == 2 {
            break;
        }
    }
    assert_eq!(heads, 2, "the list comes again");
    // Nobody reads it any more, so it ends.
    let ended = child.wait().expect("it ends");
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn watching_ends_with_the_job() {
    let call = run(&["-q"], &job(1, "false"));
    assert_eq!(call.run().code, Some(1));
    let status = call.again(&["status", "j", "--watch"]).run();
    assert_eq!(status.code, Some(0), "{}", status.stderr);
    let readings = status.stdout.matches("conditions").count();
    assert_eq!(readings, 1, "{}", status.stdout);
    let explained = call.again(&["explain", "j", "--watch"]).run();
    assert_eq!(explained.code, Some(1), "{}", explained.stderr);
    // What cannot be read at first is an error, and nothing to wait for.
    let unknown = call.again(&["status", "k", "--watch"]).run();
    assert_eq!(unknown.code, Some(2), "{}", unknown.stdout);
}
