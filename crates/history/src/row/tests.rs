use trainyard_core::{
    chronicle::{Chronicle, Headline, Swap, Waiting},
    spec::{Role, Slot},
    view::losses::losses,
};

use super::*;
use crate::testing::{HOUR, START, facts, span};

fn booked(attempt: u32, phase: Phase, millis: u64) -> Booked {
    Booked {
        attempt: Some(attempt),
        phase,
        millis,
    }
}

fn fact(at: i64, what: What) -> Fact {
    Fact {
        version: 1,
        seq: 3,
        at,
        what,
    }
}

#[test]
fn facts_become_rows() {
    let slot = Slot::new(Role::Worker, 2);
    let cases = [
        ("began", What::Began, Some(Row::Began)),
        (
            "attempt",
            What::Attempt { attempt: 2 },
            Some(Row::Attempt { n: 2 }),
        ),
        (
            "phase",
            What::Phase {
                attempt: 2,
                phase: Phase::Training,
            },
            Some(Row::Phase {
                attempt: 2,
                phase: "training",
            }),
        ),
        (
            "seat",
            What::Seated {
                attempt: 1,
                slot,
                first_rank: Some(4),
                ranks: 2,
                node: "n".repeat(5_000),
            },
            Some(Row::Seat {
                attempt: 1,
                slot: "Worker 2".to_owned(),
                first_rank: Some(4),
                ranks: 2,
                node: "n".repeat(TEXT_CHARS),
            }),
        ),
        (
            "swap",
            What::Swapped(Swap {
                attempt: 2,
                slot,
                from: "a".to_owned(),
                to: "b".to_owned(),
            }),
            Some(Row::Left {
                attempt: 2,
                node: "a".to_owned(),
                detail: "Worker 2 moved to `b`".to_owned(),
            }),
        ),
        (
            "failed",
            What::Failed(Headline {
                attempt: 1,
                pod: "p".to_owned(),
                slot: None,
                account: None,
                message: "exit code 1".to_owned(),
                step: Some(u64::MAX),
            }),
            Some(Row::Failed {
                n: 1,
                pod: "p".to_owned(),
                slot: None,
                account: None,
                message: "exit code 1".to_owned(),
                // A step that no program reaches is not known.
                step: None,
            }),
        ),
        ("waits for nothing", What::Waiting(Waiting::default()), None),
        ("of another version", What::Other, None),
    ];
    for (name, what, want) in cases {
        assert_eq!(of(&fact(START, what)), Ok(want), "{name}");
    }
}

#[test]
fn what_cannot_be_true_is_refused() {
    let unseen = |from: i64, to: i64, booked| What::Unseen { from, to, booked };
    let year = 365 * DAY;
    let cases = [
        ("before 1970", -1, What::Began),
        ("after 9999", LAST + 1, What::Began),
        (
            "backwards",
            START,
            span(START, START - 1, 1, Phase::Training).1,
        ),
        (
            "longer than ten years",
            START,
            span(START, START + 11 * year, 1, Phase::Training).1,
        ),
        (
            "the whole of time",
            START,
            span(i64::MIN, i64::MAX, 1, Phase::Training).1,
        ),
        (
            "parts are less",
            START,
            unseen(START, START + 10, vec![booked(1, Phase::Saving, 9)]),
        ),
        (
            "parts overflow",
            START,
            unseen(
                START,
                START + 10,
                vec![
                    booked(1, Phase::Saving, u64::MAX),
                    booked(1, Phase::Queued, 11),
                ],
            ),
        ),
        (
            "too many parts",
            START,
            unseen(
                START,
                START + 1_000,
                vec![booked(1, Phase::Saving, 1); 1_000],
            ),
        ),
    ];
    for (name, at, what) in cases {
        assert_eq!(of(&fact(at, what)), Err(Refused), "{name}");
    }
    let mut late = fact(START, What::Began);
    late.seq = u64::MAX;
    assert_eq!(of(&late), Err(Refused));
}

#[test]
fn days_split_at_midnight() {
    let parts = vec![
        booked(1, Phase::Queued, 3_600_000),
        booked(1, Phase::Training, 86_400_000),
    ];
    let from = START + 22 * HOUR;
    let span = Span {
        from,
        to: from + 25 * HOUR,
        parts,
        exact: false,
        is_gap: true,
    };
    let part = |day: &str, phase, hours: i64| DayPart {
        day: day.to_owned(),
        phase,
        ms: hours * HOUR,
    };
    let want = vec![
        part("2026-01-02", Phase::Queued, 1),
        part("2026-01-02", Phase::Training, 1),
        part("2026-01-03", Phase::Training, 23),
    ];
    assert_eq!(days(&span), want);
}

/// The rule of which phases hold accelerators is that of the job page.
#[test]
fn accelerator_time_is_that_of_the_job_page() {
    for phase in Phase::ALL {
        let whats = vec![(START, What::Began), span(START, START + HOUR, 1, phase)];
        let chronicle = Chronicle::of_facts(&facts(whats));
        let now = Timestamp::from_millisecond(START + HOUR).unwrap();
        let page = serde_json::to_value(losses(&chronicle, 8, now)).unwrap();
        let shown = page["phases"][0]["gpuMillis"].as_i64();
        assert_eq!(shown, Some(gpu_ms(phase, HOUR, 8)), "{phase:?}: {page}");
    }
}

#[test]
fn phases_have_names() {
    for of in Phase::ALL {
        assert_eq!(phase(name(of)), of);
    }
    assert_eq!(phase("a phase of another version"), Phase::Other);
}
