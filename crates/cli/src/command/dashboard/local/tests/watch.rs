use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::Write as _,
};

use serde_json::json;
use trainyard_core::ledger::Phase;

use super::{at, facts_of, status};
use crate::command::dashboard::local::{Change, Watcher, testing::Folder, watch::Part};

fn parts(changes: &[Change]) -> BTreeSet<Part> {
    changes
        .iter()
        .flat_map(|change| change.parts.clone())
        .collect()
}

#[test]
fn dashboard_watcher_notices_what_changed() {
    let mut folder = Folder::new();
    let done = folder.run("done", "20261118T000000Z", at(0));
    let ends = status(1, &[(Phase::Training, 0)], Some(10));
    done.report("succeeded", &ends, at(10), &json!([]));
    let run = folder.run("j", "20261118T000000Z", at(0));
    let starts = status(1, &[(Phase::Starting, 0)], None);
    run.status(&starts);
    let first = facts_of(&[(&starts, 0)]);
    run.facts(&first);
    let log = run.log(1, "j-worker-0", b"one\n");
    folder.live(&run);
    let mut watcher = Watcher::open(folder.root()).unwrap();
    assert_eq!(watcher.poll(at(0)), [], "what is there is no change");
    assert_eq!(watcher.poll(at(0)), []);

    let mut grown = OpenOptions::new().append(true).open(&log).unwrap();
    grown.write_all(b"two\n").unwrap();
    let changes = watcher.poll(at(0));
    assert_eq!(parts(&changes), BTreeSet::from([Part::Logs]));
    assert_eq!(
        (changes[0].logs[0].pod.as_str(), changes[0].logs[0].size),
        ("j-worker-0", 8)
    );
    assert_eq!(watcher.poll(at(0)), []);

    let trains = status(1, &[(Phase::Starting, 0), (Phase::Training, 1_000)], None);
    let all = facts_of(&[(&starts, 0), (&trains, 1_000)]);
    let mut file = OpenOptions::new()
        .append(true)
        .open(run.path.join("facts.jsonl"))
        .unwrap();
    for fact in &all[first.len()..] {
        file.write_all((fact.line() + "\n").as_bytes()).unwrap();
    }
    let changes = watcher.poll(at(0));
    assert_eq!(parts(&changes), BTreeSet::from([Part::Strip]));
    assert_eq!(changes[0].run, run.name());
    assert_eq!(changes[0].facts, all[first.len()..]);

    run.status(&trains);
    assert!(parts(&watcher.poll(at(0))).contains(&Part::Status));

    // A new run of a job that is over, and one that is removed.
    let second = folder.run("done", "20261119T000000Z", at(0));
    let changes = watcher.poll(at(0));
    assert_eq!(changes.len(), 1);
    assert_eq!(
        (changes[0].run.as_str(), changes[0].gone),
        (second.name().as_str(), false)
    );
    fs::remove_dir_all(&second.path).unwrap();
    let changes = watcher.poll(at(0));
    assert_eq!(
        (changes[0].run.as_str(), changes[0].gone),
        (second.name().as_str(), true)
    );

    // Its engine dies without a word.
    folder.kill();
    assert!(parts(&watcher.poll(at(0))).contains(&Part::Status));
    assert_eq!(watcher.poll(at(0)), []);
}

#[test]
fn dashboard_watcher_notices_a_run_between_two_looks() {
    let mut folder = Folder::new();
    let mut watcher = Watcher::open(folder.root()).unwrap();

    // One is over before there was any look.
    let ends = status(1, &[(Phase::Training, 0)], Some(10));
    let early = folder.run("early", "20261118T000000Z", at(0));
    folder.live(&early);
    early.report("succeeded", &ends, at(10), &json!([]));
    folder.kill();
    let changes = watcher.poll(at(0));
    assert_eq!(parts(&changes), BTreeSet::from([Part::Status]));
    assert_eq!(changes[0].run, early.name());
    assert_eq!(watcher.poll(at(0)), []);

    // A look finds its folder before its engine has said in the lock which run it is; at the next look it is over.
    let run = folder.run("j", "20261118T000000Z", at(0));
    let lock = folder.root().join("runs/j/run.lock");
    fs::write(&lock, "").unwrap();
    assert!(parts(&watcher.poll(at(0))).contains(&Part::Status));
    folder.live(&run);
    run.report("succeeded", &ends, at(10), &json!([]));
    folder.kill();
    let changes = watcher.poll(at(0));
    assert_eq!(parts(&changes), BTreeSet::from([Part::Status]));
    assert_eq!(changes[0].run, run.name());
    assert_eq!(watcher.poll(at(0)), []);
}

#[test]
fn dashboard_watcher_looks_at_every_log_in_turn() {
    let mut folder = Folder::new();
    let run = folder.run("j", "20261118T000000Z", at(0));
    let logs: Vec<_> = (0..1_100)
        .map(|pod| run.log(1, &format!("j-worker-{pod:04}"), b"one\n"))
        .collect();
    folder.live(&run);
    let mut watcher = Watcher::open(folder.root()).unwrap();
    watcher.poll(at(0));
    fs::write(&logs[1_099], b"one\ntwo\n").unwrap();
    let changes: Vec<Change> = (0..2).flat_map(|_| watcher.poll(at(0))).collect();
    let grown = changes.iter().flat_map(|change| &change.logs);
    let found: Vec<u64> = grown
        .filter(|log| log.pod == "j-worker-1099")
        .map(|log| log.size)
        .collect();
    assert_eq!(found, [8]);
}
