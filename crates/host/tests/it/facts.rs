//! What a run records of itself.

use std::{collections::BTreeSet, os::unix::fs::MetadataExt as _};

use jiff::Timestamp;
use nix::sys::signal::Signal;
use trainyard_core::chronicle::{Chronicle, Outcome, PodState, What, adds_up};
use trainyard_host::store::{RunFolder, Store};

use crate::harness::{Harness, sh, until};

fn stored(harness: &Harness) -> RunFolder {
    let store = Store::open(harness.path().join(".trainyard")).unwrap();
    store.latest("j").unwrap()
}

#[test]
fn facts_of_a_run_add_up_to_its_ledger() {
    let script = "for step in 1 2 3; do echo step $step loss 0.$step; done; \
        [ $ATTEMPT = 2 ] && exit 0; [ $$(hostname) = j-worker-0 ] || exec sleep 100; \
        echo 'Traceback (most recent call last):'; echo '  File \"t.py\", line 7, in main'; \
        echo \"KeyError: 'rate'\"; exit 1";
    let script = script.replace("$$(", "$(");
    let harness = Harness::new(2, sh(&script));
    let ended = harness.run();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen.last());
    let folder = stored(&harness);
    let (facts, read) = folder.facts().unwrap().unwrap();
    assert_eq!((read.unread, read.left_out), (0, 0));
    let sequence: Vec<u64> = facts.iter().map(|fact| fact.seq).collect();
    assert!(sequence.is_sorted_by(|one, other| one < other));
    let chronicle = Chronicle::of_facts(&facts);
    let report = folder.report().unwrap().unwrap();
    let ledger = &report.status.trainyard.ledger;
    assert!(adds_up(&chronicle, ledger, report.ended_at));
    let sums = chronicle.totals(report.ended_at).values().sum::<u64>();
    assert_eq!(sums, report.ledger.values().sum::<u64>());
    assert_eq!(
        chronicle.ended.map(|(_, how)| how),
        Some(Outcome::Succeeded)
    );
    let attempts: Vec<u32> = chronicle.attempts.iter().map(|(_, it)| *it).collect();
    assert_eq!(attempts, [1, 2]);
    let failed = chronicle.headlines.iter().map(|(_, it)| it.pod.as_str());
    assert_eq!(failed.collect::<Vec<_>>(), ["j-worker-0"]);
    let (_, verdict) = chronicle.verdicts.back().unwrap();
    assert!(!verdict.evidence.is_empty(), "{verdict:?}");
    assert!(verdict.refuted_by.is_some());
    assert_eq!(chronicle.lanes.len(), 2);
    let lane = chronicle.lanes.values().next().unwrap();
    assert_eq!((lane.first_rank, lane.ranks), (Some(0), 1));
    assert!(lane.turns.iter().any(|it| it.state == PodState::Failed));
    let names: BTreeSet<&str> = facts
        .iter()
        .filter_map(|fact| match &fact.what {
            What::Point { name, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    assert!(
        names.contains("loss") && names.contains("step"),
        "{names:?}"
    );
    let mode = std::fs::metadata(folder.path.join("facts.jsonl")).unwrap();
    assert_eq!(mode.mode() & 0o777, 0o600);
}

#[test]
fn facts_of_a_killed_engine_are_read() {
    let harness = Harness::new(1, sh("echo step 1 loss 0.5; exec sleep 1000"));
    let mut run = harness.start();
    run.wait_for("a running pod", |line| !line["running"].is_null());
    let folder = stored(&harness);
    until("the first facts", || {
        let read = folder.facts().unwrap();
        let facts = read.map(|(facts, _)| facts).unwrap_or_default();
        let mut facts = facts.iter();
        facts.any(|fact| matches!(&fact.what, What::Point { name, .. } if name == "loss"))
    });
    run.signal(Signal::SIGKILL);
    drop(run.finish());
    let (facts, read) = folder.facts().unwrap().unwrap();
    assert_eq!(read.unread, 0);
    // What was flushed is a prefix of what was decided: it never has more time than the ledger.
    let status = folder.status().unwrap();
    let now = Timestamp::now();
    let chronicle = Chronicle::of_facts(&facts);
    assert_eq!(
        chronicle.began,
        status.trainyard.ledger.began.map(Timestamp::as_millisecond)
    );
    let sums: u64 = chronicle.totals(now).values().sum();
    let booked: u64 = status.trainyard.ledger.totals(now).values().sum();
    assert!(sums <= booked, "{sums} {booked}");
    assert_eq!(chronicle.ended, None);
}
