//! A history that was read back, compacted or broken is the same as before, and nothing in it doubles.

use super::*;
use crate::reason::{Code, StoredReason};

fn seen<'a>(status: &'a JobStatus, pods: &'a [ObservedPod]) -> Seen<'a> {
    Seen { status, pods }
}

/// The history as a file gives it.
fn read_back(facts: &[Fact]) -> Chronicle {
    let lines: Vec<String> = facts.iter().map(Fact::line).collect();
    let read: Vec<Fact> = lines
        .iter()
        .map(|line| Fact::read(line.as_bytes()).unwrap())
        .collect();
    Chronicle::of_facts(&read)
}

fn failure(attempt: u32) -> LastFailure {
    LastFailure {
        attempt,
        pod: "j-worker-1".to_owned(),
        account: Account::Infrastructure,
        message: "it failed; ".repeat(200),
        cause: None,
        step: Some(40),
        since_attempt: None,
        verdict: Some(verdict(attempt)),
    }
}

fn headline(attempt: u32, slot: Slot) -> What {
    What::Failed(Headline {
        attempt,
        pod: slot.to_string(),
        slot: Some(slot),
        account: None,
        message: String::new(),
        step: None,
    })
}

/// A job in its second attempt, with something of everything.
fn busy(ledger: &Ledger) -> JobStatus {
    let mut status = status(ledger);
    let record = &mut status.trainyard;
    record.attempt = 2;
    record.spent.infrastructure = 1;
    record.last_failure = Some(failure(1));
    record.waiting = Some(StoredReason {
        code: Code::WaitingForSeats,
        message: "needs 8 nodes".to_owned(),
        params: None,
    });
    record.checkpoint = Some(CheckpointRecord {
        newest: Some(crate::checkpoint::CompleteStep {
            step: 30,
            attempt: 4,
            bytes: 7,
            snapshot_ms: Some(120),
            write_ms: None,
            saved_at: None,
        }),
        earlier_attempts: Some(3),
        ..CheckpointRecord::default()
    });
    let progress = Progress::new(2, 41, ms(900));
    record.progress = Some(ProgressRecord::from(&progress));
    status
}

/// Times with parts of a millisecond, and a phase that took no time.
fn two_attempts() -> Ledger {
    let odd = |millis| ms(millis) + jiff::SignedDuration::from_micros(300);
    let mut ledger = Ledger::default();
    ledger.enter(1, Phase::Placing, odd(0));
    ledger.enter(1, Phase::Starting, odd(0));
    ledger.enter(1, Phase::Training, odd(400));
    ledger.enter(2, Phase::Restarting, odd(700));
    ledger.enter(2, Phase::Training, odd(800));
    ledger
}

#[test]
fn observation_after_reading_back_adds_only_what_is_new() {
    let mut ledger = two_attempts();
    let one = busy(&ledger);
    let mut failed = pod(1, 2, PodPhase::Failed, "b");
    failed.exit = Some(Exit {
        code: 1,
        out_of_memory: false,
        at: None,
    });
    let pods = [pod(0, 2, PodPhase::Running, "a"), failed];
    let mut chronicle = Chronicle::default();
    let facts = chronicle.record(None, &seen(&one, &pods), &Places::new(), ms(1_000));
    let mut again = read_back(&facts);
    assert_eq!(again, chronicle);
    let nothing = again.record(None, &seen(&one, &pods), &Places::new(), ms(2_000));
    assert_eq!(nothing, [], "all of it is known");
    assert_eq!(again, chronicle);
    // The same from the compacted file, which has no numbers.
    let mut compacted = read_back(&chronicle.facts());
    let facts = compacted.record(None, &seen(&one, &pods), &Places::new(), ms(2_000));
    assert!(
        facts
            .iter()
            .all(|fact| matches!(fact.what, What::Point { .. })),
        "{facts:?}"
    );
    // While nobody looked, time passed, one pod moved and the other one is gone.
    ledger.enter(2, Phase::Saving, ms(5_000));
    ledger.end(ms(6_000));
    let two = busy(&ledger);
    let moved = [pod(0, 2, PodPhase::Running, "c")];
    let facts = again.record(None, &seen(&two, &moved), &Places::new(), ms(6_500));
    let names: Vec<&str> = facts
        .iter()
        .map(|fact| match &fact.what {
            What::Span { .. } | What::Unseen { .. } => "time",
            What::Seated { .. } => "seated",
            What::Swapped(_) => "swapped",
            What::Pod {
                state: PodState::Gone,
                ..
            } => "gone",
            What::Ended { .. } => "ended",
            _ => "other",
        })
        .collect();
    let want = ["time", "time", "seated", "swapped", "gone", "ended"];
    assert_eq!(names, want, "{facts:?}");
    assert!(adds_up(&again, &ledger, ms(7_000)), "{again:?}");
    assert_eq!(again.not_observed_millis(), 0, "no stretch was forgotten");
}

#[test]
fn failure_while_nobody_looked_is_counted_once() {
    let status = JobStatus::default();
    let exit = |at| {
        Some(Exit {
            code: 9,
            out_of_memory: false,
            at: Some(ms(at)),
        })
    };
    let mut first = pod(0, 1, PodPhase::Failed, "a");
    first.exit = exit(900);
    let mut second = first.clone();
    second.exit = exit(1_500);
    let mut restarted = pod(0, 1, PodPhase::Running, "a");
    restarted.exit = exit(1_500);
    let failed_again = [PodState::Failed, PodState::Failed].as_slice();
    let runs_again = [PodState::Failed, PodState::Failed, PodState::Running].as_slice();
    for (later, want) in [(second, failed_again), (restarted, runs_again)] {
        let mut chronicle = Chronicle::default();
        let before = [first.clone()];
        let facts = chronicle.record(None, &seen(&status, &before), &Places::new(), ms(1_000));
        let mut again = read_back(&facts);
        let after = [later];
        for now in [2_000, 3_000] {
            again.record(None, &seen(&status, &after), &Places::new(), ms(now));
        }
        let turns = again.lanes[&worker(0)].turns.iter();
        assert_eq!(turns.map(|turn| turn.state).collect::<Vec<_>>(), want);
        assert_eq!(again.failures.len(), 2);
    }
}

#[test]
fn last_failure_of_a_stored_run_is_one_failure() {
    let mut status = JobStatus::default();
    let mut last = failure(2);
    let listed = |attempt: u32, verdict| FirstFailure {
        attempt,
        slot: worker(1),
        pod: "j-worker-1".to_owned(),
        at: ms(i64::from(attempt) * 100),
        message: "exit code 1".to_owned(),
        verdict,
    };
    // Headlines and verdicts: where the last failure is among the listed, and where it is not.
    let cases = [
        (
            vec![listed(1, Some(verdict(1))), listed(2, Some(verdict(2)))],
            (2, 2),
        ),
        (vec![listed(1, Some(verdict(1))), listed(2, None)], (2, 2)),
        (vec![listed(1, Some(verdict(1)))], (2, 2)),
        (Vec::new(), (1, 1)),
    ];
    last.message = "another text".to_owned();
    status.trainyard.last_failure = Some(last);
    for (failures, want) in cases {
        let chronicle =
            Chronicle::of_stored(&seen(&status, &[]), &failures, &Places::new(), ms(900));
        let got = (chronicle.headlines.len(), chronicle.verdicts.len());
        assert_eq!(got, want, "{failures:?}");
        let headline = &chronicle.headlines.back().unwrap().1;
        assert_eq!((headline.attempt, headline.step), (2, Some(40)));
        assert_eq!(headline.account, Some(Account::Infrastructure));
    }
}

#[test]
fn unsound_ledger_adds_facts_only_when_it_changes() {
    let mut ledger = two_attempts();
    ledger.attempts[0].millis.insert(Phase::Stalled, u64::MAX);
    let status = status(&ledger);
    let seen = seen(&status, &[]);
    let mut chronicle = Chronicle::default();
    let facts = chronicle.record(None, &seen, &Places::new(), ms(1_000));
    assert_eq!(facts.len(), 2, "{facts:?}");
    let nothing = chronicle.record(Some(&seen), &seen, &Places::new(), ms(2_000));
    assert_eq!(nothing, []);
    let nothing = read_back(&facts).record(None, &seen, &Places::new(), ms(2_000));
    assert_eq!(nothing, []);
}

#[test]
fn numbers_of_a_broken_file_do_not_overflow() {
    let all = LeftOut {
        turns: u64::MAX,
        slots: u64::MAX,
        attempts: u64::MAX,
        headlines: u64::MAX,
        verdicts: u64::MAX,
        saves: u64::MAX,
        swaps: u64::MAX,
        unknown: u64::MAX,
    };
    let mut chronicle = Chronicle::default();
    chronicle.add(0, &What::LeftOut(all));
    chronicle.add(0, &What::Other);
    chronicle.add(
        0,
        &What::Unseen {
            from: 5,
            to: 6,
            booked: Vec::new(),
        },
    );
    for attempt in 0..=u32::try_from(ATTEMPTS_MAX).unwrap() {
        chronicle.add(0, &What::Attempt { attempt });
    }
    for _ in 0..2 {
        let what = What::Failures {
            slot: None,
            attempt: 1,
            until: 0,
            count: u64::MAX,
        };
        chronicle.add(0, &what);
    }
    assert_eq!(
        (chronicle.left_out, chronicle.failures[0].count),
        (all, u64::MAX)
    );
    // Longer than any time, and a span is open.
    let mut chronicle = Chronicle::default();
    let phase = Phase::Training;
    chronicle.add(i64::MIN, &What::Began);
    for (from, to, attempt) in [(i64::MIN, 0, 1), (0, i64::MAX, 2)] {
        let span = What::Span {
            from,
            to,
            attempt,
            phase,
        };
        chronicle.add(from, &span);
    }
    chronicle.add(0, &What::Phase { attempt: 3, phase });
    assert_eq!(chronicle.totals(ms(0))[&phase], u64::MAX);
}

/// Kubernetes has whole seconds, so many pods fail in the same millisecond.
#[test]
fn failures_of_slots_beyond_the_limit_are_all_counted() {
    let mut chronicle = Chronicle::default();
    let slots = u32::try_from(LANES_MAX).unwrap() + 100;
    for index in 0..slots {
        let (slot, state) = (worker(index), PodState::Failed);
        let fails = What::Pod {
            attempt: 1,
            slot,
            state,
        };
        chronicle.add(5_000, &fails);
        // What fails is reported as the failure of the attempt too, and is the same failure.
        if index == 0 {
            chronicle.add(5_000, &headline(1, slot));
        }
    }
    let count: u64 = chronicle.failures.iter().map(|it| it.count).sum();
    assert_eq!(count, u64::from(slots));
    let again = Chronicle::of_facts(&chronicle.facts());
    assert_eq!(again.failures, chronicle.failures);
}

/// Far more failures than are kept apart, of more slots than have rows, some known only from headlines.
#[test]
fn compacted_history_gives_the_same_history() {
    let mut chronicle = Chronicle::default();
    chronicle.add(0, &What::Began);
    let phases = [Phase::Training, Phase::Saving, Phase::Training];
    for turn in 0..40_000_u32 {
        let at = i64::from(turn);
        chronicle.add(
            at,
            &What::Span {
                from: at,
                to: at + 1,
                attempt: turn / 3,
                phase: phases[turn as usize % 3],
            },
        );
        let slot = worker(turn * 7 % 9_000);
        if turn % 5 == 0 {
            chronicle.add(at, &headline(turn, slot));
            continue;
        }
        for state in [PodState::Running, PodState::Failed] {
            let what = What::Pod {
                attempt: turn,
                slot,
                state,
            };
            chronicle.add(at, &what);
        }
    }
    let counted = |chronicle: &Chronicle| -> u64 {
        let counts = chronicle.failures.iter().map(|it| it.count);
        counts.sum()
    };
    assert_eq!(counted(&chronicle), 40_000);
    let again = read_back(&chronicle.facts());
    assert_eq!(counted(&again), 40_000);
    let next = again.next;
    assert!(again == Chronicle { next, ..chronicle }, "another history");
    let twice = read_back(&again.facts());
    assert!(twice == again, "another history after the second time");
    // What comes after it counts again.
    let mut later = again;
    let what = What::Pod {
        attempt: 50_000,
        slot: worker(0),
        state: PodState::Failed,
    };
    let fact = Fact {
        version: VERSION,
        seq: later.next_seq(),
        at: 50_000,
        what,
    };
    assert!(later.apply(&fact));
    assert_eq!(counted(&later), 40_001);
}

/// What is stored is the name that the status has, whatever the variant is called.
#[test]
fn waiting_has_the_code_of_the_status() {
    let codes = [Code::WaitingForSeats, Code::NodeSilent, Code::Other];
    for code in codes {
        let mut status = JobStatus::default();
        status.trainyard.waiting = Some(StoredReason {
            code,
            message: "x".to_owned(),
            params: None,
        });
        let mut chronicle = Chronicle::default();
        chronicle.record(None, &seen(&status, &[]), &Places::new(), ms(0));
        let stored = serde_json::to_value(&chronicle.waiting.1).unwrap();
        assert_eq!(stored["code"], serde_json::to_value(code).unwrap());
    }
}
