//! Histories in few words, for the tests of this module.

use jiff::Timestamp;

use crate::{
    account::Account,
    chronicle::{Chronicle, Fact, Headline, VERSION, What},
    diagnose::{Confidence, Depth, Retry, VerdictSummary},
    ledger::Phase,
    spec::{Role, Slot},
};

pub(super) fn worker(index: u32) -> Slot {
    Slot::new(Role::Worker, index)
}

pub(super) fn time(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

/// The history of these facts, in this order.
pub(super) fn chronicle(whats: impl IntoIterator<Item = (i64, What)>) -> Chronicle {
    let facts: Vec<Fact> = (0..)
        .zip(whats)
        .map(|(seq, (at, what))| Fact {
            version: VERSION,
            seq,
            at,
            what,
        })
        .collect();
    Chronicle::of_facts(&facts)
}

pub(super) fn span(from: i64, to: i64, attempt: u32, phase: Phase) -> (i64, What) {
    let what = What::Span {
        from,
        to,
        attempt,
        phase,
    };
    (from, what)
}

/// The first attempt failed.
pub(super) fn failed(at: i64) -> (i64, What) {
    let headline = Headline {
        attempt: 1,
        pod: "p".to_owned(),
        slot: None,
        account: None,
        message: String::new(),
        step: None,
    };
    (at, What::Failed(headline))
}

/// A slot has its node, with ranks in the order of slots.
pub(super) fn seated(at: i64, attempt: u32, index: u32, ranks: u32, node: &str) -> (i64, What) {
    let what = What::Seated {
        attempt,
        slot: worker(index),
        first_rank: Some(index * ranks),
        ranks,
        node: node.to_owned(),
    };
    (at, what)
}

/// A verdict on rank 3, on one node.
pub(super) fn verdict(attempt: u32, label: &str, place: Option<&str>) -> VerdictSummary {
    VerdictSummary {
        attempt,
        label: label.to_owned(),
        sentence: "a rank ran out of memory".to_owned(),
        ranks: vec![3],
        nodes: vec!["n-1".to_owned()],
        account: Account::User,
        retry: Retry::DoesNotHelp,
        confidence: Confidence::High,
        depth: Depth::Cause,
        place: place.map(str::to_owned),
        exception: None,
        signature: None,
        next: "use a smaller batch".to_owned(),
    }
}
