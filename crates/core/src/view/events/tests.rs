use super::*;
use crate::{
    chronicle::{PodState, Save, Swap, What},
    view::testing::{chronicle, failed, seated, span, worker},
};

fn history() -> Chronicle {
    chronicle([
        (0, What::Began),
        (0, What::Attempt { attempt: 1 }),
        seated(10, 1, 1, 8, "a"),
        span(0, 1_000, 1, Phase::Training),
        span(1_000, 61_000, 1, Phase::Stalled),
        (
            500,
            What::Saved(Save {
                step: 40,
                attempt: Some(1),
                bytes: 10,
                stall_millis: Some(2_000),
                write_millis: None,
            }),
        ),
        (
            61_000,
            What::Pod {
                attempt: 1,
                slot: worker(1),
                state: PodState::Failed,
            },
        ),
        failed(61_000),
        (
            62_000,
            What::Swapped(Swap {
                attempt: 2,
                slot: worker(1),
                from: "a".to_owned(),
                to: "b".to_owned(),
            }),
        ),
        (
            63_000,
            What::Ended {
                outcome: Outcome::Failed,
            },
        ),
    ])
}

#[test]
fn events_are_sentences_newest_first() {
    let events = events(&history());
    let sentences: Vec<&str> = events.iter().map(|event| event.sentence.as_str()).collect();
    let want = [
        "the job failed",
        "Worker 1 moved from node `a` to `b`",
        "attempt 1 failed: pod `p`: ",
        "pod Worker 1 failed",
        "the job reported no step for 60 s",
        "the checkpoint of step 40 is complete; training stood still for 2.0 s",
        "attempt 1 began",
        "the run began",
    ];
    assert_eq!(sentences.len(), want.len(), "{sentences:#?}");
    for (got, want) in sentences.iter().zip(want) {
        assert_eq!(*got, want);
    }
    let pod = &events[3];
    assert_eq!((pod.rank, pod.slot.as_deref()), (Some(8), Some("Worker 1")));
}

#[test]
fn pages_hold_every_event_once() {
    let event = |at: i64, number: usize| Event {
        at,
        kind: Kind::Saved,
        rank: None,
        slot: None,
        sentence: number.to_string(),
        attempt: None,
    };
    // Times that many events share, so that pages end within one.
    for together in [1, 7, 150, 1_000] {
        let all: Vec<Event> = (0..1_001)
            .map(|number| event(-i64::try_from(number / together).unwrap(), number))
            .collect();
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let (page, next) = page(all.clone(), cursor.as_deref()).unwrap();
            assert!(page.len() <= PAGE);
            seen.extend(page);
            match next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, all, "{together} together");
    }
    assert_eq!(page(Vec::new(), Some("x")), None);
}
