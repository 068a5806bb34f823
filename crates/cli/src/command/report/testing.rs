//! A report for the tests of text and drawing: one run that failed and trains, and one that only the history has.

use jiff::Timestamp;
use trainyard_core::{
    account::Account,
    chronicle::{Chronicle, Fact, Headline, What},
    ledger::Phase,
    view::{
        report::{RunTime, Tally},
        rows::RowState,
    },
};

use super::{Document, mfu};

const MINUTE: i64 = 60_000;

fn chronicle(parts: &[(u32, Phase, i64)], more: Vec<(i64, What)>) -> Chronicle {
    let mut whats = vec![(0, What::Began)];
    let mut from = 0;
    for (attempt, phase, minutes) in parts {
        let to = from + minutes * MINUTE;
        let (attempt, phase) = (*attempt, *phase);
        whats.push((
            from,
            What::Span {
                from,
                to,
                attempt,
                phase,
            },
        ));
        from = to;
    }
    let facts = whats.into_iter().chain(more).zip(0..);
    let facts = facts.map(|((at, what), seq)| Fact {
        version: 1,
        seq,
        at,
        what,
    });
    let facts: Vec<Fact> = facts.collect();
    Chronicle::of_facts(&facts)
}

pub(super) fn document() -> Document {
    let failed = Headline {
        attempt: 1,
        pod: "pretrain-worker-3".to_owned(),
        slot: None,
        account: Some(Account::Infrastructure),
        message: "gpu_lost".to_owned(),
        step: Some(120),
    };
    let trains = chronicle(
        &[
            (1, Phase::Placing, 6),
            (1, Phase::Starting, 4),
            (1, Phase::Training, 120),
            (2, Phase::Restarting, 5),
            (2, Phase::Redoing, 30),
            (2, Phase::Training, 112),
        ],
        vec![(130 * MINUTE, What::Failed(failed))],
    );
    let kept = chronicle(
        &[(1, Phase::Starting, 8), (1, Phase::Training, 2)],
        Vec::new(),
    );
    let at = |minutes: i64| Timestamp::from_millisecond(minutes * MINUTE).unwrap();
    let mut tally = Tally::new(None, at(300));
    for (id, state, chronicle, until) in [
        ("20260101T000000Z.pretrain", RowState::Running, &trains, 277),
        ("20251231T000000Z.eval", RowState::Failed, &kept, 10),
    ] {
        tally.add(&RunTime {
            id,
            job: id.split('.').nth(1).unwrap(),
            state,
            chronicle,
            accelerators: Some(8),
            until: at(until),
        });
    }
    Document {
        report: tally.report(),
        source: "machine",
        from_history: 1,
        mfu: mfu::of(None, 0, None),
        unreadable: Vec::new(),
        notes: Vec::new(),
    }
}
