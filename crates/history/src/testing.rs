//! Facts and stores for tests.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use trainyard_core::{
    account::Account,
    chronicle::{Fact, Headline, Outcome, What},
    ledger::Phase,
    spec::{Role, Slot},
};

use crate::{Options, Reader, Run, Store};

/// 2026-01-02T00:00:00Z.
pub(crate) const START: i64 = 1_767_312_000_000;
pub(crate) const HOUR: i64 = 3_600_000;

/// A folder with a store in it.
pub(crate) struct Place {
    _folder: TempDir,
    pub(crate) path: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data").join("history.db");
        Self {
            _folder: folder,
            path,
        }
    }

    pub(crate) fn open(&self) -> Store {
        open(&self.path)
    }

    pub(crate) fn reader(&self) -> Reader {
        Reader::open(&self.path).unwrap()
    }
}

pub(crate) fn open(path: &Path) -> Store {
    Store::open(path, &options()).unwrap()
}

pub(crate) fn options() -> Options {
    Options {
        holder: "a test".to_owned(),
        pages_max: None,
    }
}

pub(crate) fn run(uid: &str) -> Run {
    Run {
        uid: uid.to_owned(),
        source: "/runs".to_owned(),
        cluster: String::new(),
        namespace: "default".to_owned(),
        name: "mnist".to_owned(),
        kind: "PyTorchJob".to_owned(),
        team: "vision".to_owned(),
        ranks: 8,
        accelerators: Some(4),
        created: START,
    }
}

/// Facts with ascending numbers.
pub(crate) fn facts(whats: Vec<(i64, What)>) -> Vec<Fact> {
    let numbered = whats.into_iter().zip(0..);
    numbered
        .map(|((at, what), seq)| Fact {
            version: 1,
            seq,
            at,
            what,
        })
        .collect()
}

pub(crate) fn span(from: i64, to: i64, attempt: u32, phase: Phase) -> (i64, What) {
    let what = What::Span {
        from,
        to,
        attempt,
        phase,
    };
    (to, what)
}

/// A run of two attempts over midnight: the first fails on `node-a`.
pub(crate) fn two_attempts() -> Vec<Fact> {
    let slot = Slot::new(Role::Worker, 1);
    let at = |hours: i64| START + hours * HOUR;
    let seat = |hours, attempt, node: &str| {
        let what = What::Seated {
            attempt,
            slot,
            first_rank: Some(1),
            ranks: 1,
            node: node.to_owned(),
        };
        (at(hours), what)
    };
    let failed = Headline {
        attempt: 1,
        pod: "mnist-worker-1".to_owned(),
        slot: Some(slot),
        account: Some(Account::Infrastructure),
        message: "exit code 1".to_owned(),
        step: Some(120),
    };
    facts(vec![
        (at(0), What::Began),
        (at(0), What::Attempt { attempt: 1 }),
        seat(0, 1, "node-a"),
        span(at(0), at(1), 1, Phase::Queued),
        span(at(1), at(2), 1, Phase::Starting),
        span(at(2), at(20), 1, Phase::Training),
        (at(20), What::Failed(failed)),
        (at(20), What::Attempt { attempt: 2 }),
        seat(20, 2, "node-b"),
        span(at(20), at(21), 2, Phase::Restarting),
        span(at(21), at(30), 2, Phase::Training),
        (
            at(30),
            What::Ended {
                outcome: Outcome::Succeeded,
            },
        ),
    ])
}
