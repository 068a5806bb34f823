//! Statuses as released versions stored them, in `testdata/status/v*/`, and as a future one may, in
//! `testdata/status/future/`. `testdata/status/v0.1-early/` has statuses without the parameters of reasons. Every version must read
//! and write them back unchanged.
//!
//! `UPDATE=1` writes those of the present minor version from simulated jobs. Those of a release are never changed.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at what it cannot read"
)]

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde_json::Value;
use trainyard_core::{
    job::{
        ConditionStatus, ConditionType, Decision, JobStatus, Observed, decide, has_ended,
        read_status,
    },
    reason::Code,
    spec::{Job, Kind},
};
use trainyard_sim::{RunOptions, run};

/// The minor version whose statuses are written.
const PRESENT: &str = "v0.1";

type Case = (&'static str, fn(&JobStatus) -> bool);

fn holds(status: &JobStatus, kind: ConditionType) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|it| it.kind == kind && it.status == ConditionStatus::True)
}

fn last(status: &JobStatus) -> Option<ConditionType> {
    status.conditions.last().map(|condition| condition.kind)
}

fn waits(status: &JobStatus, code: Code) -> bool {
    let waiting = status.trainyard.waiting.as_ref();
    waiting.is_some_and(|reason| reason.code == code)
}

/// Stored once for each kind.
const OF_EACH_KIND: &[Case] = &[
    ("running", |status| {
        last(status) == Some(ConditionType::Running) && !has_ended(status)
    }),
    ("restarting", |status| {
        last(status) == Some(ConditionType::Restarting)
    }),
    ("succeeded", |status| {
        holds(status, ConditionType::Succeeded)
    }),
    ("failed", |status| holds(status, ConditionType::Failed)),
];

/// Stored once, of a job that has not ended.
const ONCE: &[Case] = &[
    ("created", |status| {
        last(status) == Some(ConditionType::Created)
    }),
    ("suspended", |status| {
        holds(status, ConditionType::Suspended)
    }),
    ("degraded", |status| holds(status, ConditionType::Degraded)),
    ("transport-verified", |status| {
        holds(status, ConditionType::TransportVerified)
    }),
    ("verdict", |status| {
        let failure = status.trainyard.last_failure.as_ref();
        failure.is_some_and(|failure| failure.verdict.is_some())
    }),
    ("preempted", |status| status.trainyard.spent.preemption > 0),
    ("node-lost", |status| {
        status.trainyard.spent.infrastructure > 0
    }),
    ("evicted", |status| status.trainyard.spent.platform > 0),
    ("waiting-for-seats", |status| {
        waits(status, Code::WaitingForSeats)
    }),
    ("waiting-to-retry", |status| {
        status.trainyard.retry_at.is_some() && waits(status, Code::WaitingToRetry)
    }),
    ("waiting-for-old-pods", |status| {
        waits(status, Code::WaitingForOldPods)
    }),
    ("waiting-for-preflight", |status| {
        waits(status, Code::WaitingForPreflight)
    }),
    ("preflight-passed", |status| {
        let preflight = status.trainyard.preflight.as_ref();
        preflight.is_some_and(|preflight| !preflight.passed.is_empty())
    }),
    ("refused", |status| waits(status, Code::Refused)),
    ("dismissed", |status| !status.trainyard.dismissed.is_empty()),
    ("long-ledger", |status| {
        !status.trainyard.ledger.earlier.is_empty()
    }),
];

thread_local! {
    static FOUND: RefCell<BTreeMap<String, Value>> = const { RefCell::new(BTreeMap::new()) };
}

fn cases(kind: Kind, status: &JobStatus) -> impl Iterator<Item = String> {
    let each = OF_EACH_KIND.iter().filter(|(_, is)| is(status));
    let each = each.map(move |(name, _)| format!("{}-{name}", word(kind)));
    let runs = !has_ended(status);
    let once = ONCE.iter().filter(move |(_, is)| runs && is(status));
    each.chain(once.map(|(name, _)| (*name).to_owned()))
}

fn word(kind: Kind) -> String {
    format!("{kind:?}").to_lowercase()
}

fn collecting(job: &Job, observed: &Observed, now: Timestamp) -> Decision {
    let decision = decide(job, observed, now);
    FOUND.with_borrow_mut(|found| {
        for case in cases(job.kind, &decision.status) {
            let stored = || serde_json::to_value(&decision.status).unwrap();
            found.entry(case).or_insert_with(stored);
        }
    });
    decision
}

fn wanted() -> Vec<String> {
    let kinds = Kind::ALL.into_iter();
    let each = kinds.flat_map(|kind| {
        let names = OF_EACH_KIND.iter();
        names.map(move |(name, _)| format!("{}-{name}", word(kind)))
    });
    let once = ONCE.iter().map(|(name, _)| (*name).to_owned());
    each.chain(once).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/status")
}

/// Every stored status by folder and name.
fn stored() -> BTreeMap<(String, String), Value> {
    let mut all = BTreeMap::new();
    for version in fs::read_dir(folder()).unwrap() {
        let version = version.unwrap();
        for file in fs::read_dir(version.path()).unwrap() {
            let file = file.unwrap();
            let text = fs::read_to_string(file.path()).unwrap();
            let name = file.file_name().to_string_lossy().replace(".json", "");
            let version = version.file_name().to_string_lossy().into_owned();
            let value =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            all.insert((version, name), value);
        }
    }
    all
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test that writes its own files is asked to by a variable"
)]
fn stored_statuses_round_trip() {
    if std::env::var_os("UPDATE").is_some() {
        write_present();
    }
    let all = stored();
    for ((version, name), value) in &all {
        let status = read_status(value).unwrap_or_else(|error| panic!("{version}/{name}: {error}"));
        assert_eq!(
            serde_json::to_value(&status).unwrap(),
            *value,
            "{version}/{name}"
        );
        let understood = status.kept.is_empty();
        assert_eq!(understood, version != "future", "{version}/{name}");
        let ended = name.contains("succeeded") || name.contains("failed");
        assert_eq!(has_ended(&status), ended, "{version}/{name}");
    }
    let present: Vec<&String> = all
        .keys()
        .filter(|(version, _)| version == PRESENT)
        .map(|(_, name)| name)
        .collect();
    let mut wanted = wanted();
    wanted.sort();
    assert_eq!(present, wanted.iter().collect::<Vec<_>>());
}

/// Runs seeds until every case was met, and writes the first status of each.
fn write_present() {
    let wanted = wanted();
    let missing = || {
        FOUND.with_borrow(|found| {
            let missing = wanted.iter().filter(|case| !found.contains_key(*case));
            missing.cloned().collect::<Vec<_>>()
        })
    };
    for seed in 0..5_000 {
        if missing().is_empty() {
            break;
        }
        run(seed, collecting, &RunOptions::default());
    }
    assert_eq!(missing(), [""; 0], "never met");
    let folder = folder().join(PRESENT);
    fs::create_dir_all(&folder).unwrap();
    FOUND.with_borrow(|found| {
        for case in &wanted {
            let text = serde_json::to_string_pretty(&found[case]).unwrap() + "\n";
            fs::write(folder.join(format!("{case}.json")), text).unwrap();
        }
    });
}
