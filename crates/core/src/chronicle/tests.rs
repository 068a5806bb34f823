mod replay;
mod sums;

use super::*;
use crate::{
    diagnose::{Confidence, Depth, Retry, VerdictSummary},
    job::{Account, CheckpointRecord, JobStatus, LastFailure, ProgressRecord},
    ledger::Phase,
    pod::{Exit, ObservedPod, PodPhase, Wait},
    progress::{Figure, Progress},
    spec::Role,
};

fn ms(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
}

fn status(ledger: &Ledger) -> JobStatus {
    let mut status = JobStatus::default();
    status.trainyard.ledger = ledger.clone();
    status
}

fn worker(index: u32) -> Slot {
    Slot::new(Role::Worker, index)
}

fn pod(index: u32, attempt: u32, phase: PodPhase, node: &str) -> ObservedPod {
    ObservedPod {
        node: Some(node.to_owned()),
        ..ObservedPod::at(worker(index), attempt, phase)
    }
}

#[test]
fn a_deleted_pod_has_not_failed() {
    let mut ledger = Ledger::default();
    ledger.enter(1, Phase::Training, ms(0));
    let status = status(&ledger);
    // Code, when it ended, when it was deleted, and whether that is a failure.
    let cases = [
        (1, Some(3_000), None, true),
        (1, Some(3_000), Some(9_000), true),
        (143, Some(9_000), Some(3_000), false),
        (1, Some(9_000), Some(3_000), false),
        // In the same second, as times of a cluster have it.
        (1, Some(3_000), Some(3_000), true),
        (143, Some(3_000), Some(3_000), false),
        (137, Some(3_000), Some(3_900), true),
        (1, Some(3_900), Some(3_000), false),
        (143, None, Some(3_000), false),
        (1, None, Some(3_000), true),
    ];
    for (code, ended, deleted, is_failure) in cases {
        let running = [pod(0, 1, PodPhase::Running, "a")];
        let mut over = running.clone();
        over[0].phase = PodPhase::Failed;
        over[0].deleted_at = deleted.map(ms);
        over[0].exit = Some(Exit {
            code,
            out_of_memory: false,
            at: ended.map(ms),
        });
        over[0].ends = 1;
        let seen = |pods| Seen {
            status: &status,
            pods,
        };
        let mut chronicle = Chronicle::default();
        chronicle.record(None, &seen(&running), &Places::new(), ms(1_000));
        let places = Places::new();
        chronicle.record(Some(&seen(&running)), &seen(&over), &places, ms(10_000));
        let found = chronicle.failures.len();
        assert_eq!(
            found,
            usize::from(is_failure),
            "{code} {ended:?} {deleted:?}"
        );
    }
}

#[test]
fn a_pod_that_was_deleted_is_gone_once() {
    let mut ledger = Ledger::default();
    ledger.enter(1, Phase::Training, ms(0));
    let status = status(&ledger);
    let running = [pod(0, 1, PodPhase::Running, "a")];
    let mut ended = running.clone();
    ended[0].phase = PodPhase::Failed;
    ended[0].deleted_at = Some(ms(3_000));
    ended[0].exit = Some(Exit {
        code: 143,
        out_of_memory: false,
        at: Some(ms(4_000)),
    });
    let mut chronicle = Chronicle::default();
    let mut before = None;
    for (pods, at) in [(&running[..], 1_000), (&ended, 5_000), (&[], 6_000)] {
        let after = Seen {
            status: &status,
            pods,
        };
        chronicle.record(before.as_ref(), &after, &Places::new(), ms(at));
        before = Some(after);
    }
    let turns = &chronicle.lanes[&worker(0)].turns;
    let seen: Vec<PodState> = turns.iter().map(|turn| turn.state).collect();
    assert_eq!(seen, [PodState::Running, PodState::Gone]);
}

#[test]
fn pods_become_turns_seats_and_swaps() {
    let mut ledger = Ledger::default();
    ledger.enter(1, Phase::Training, ms(0));
    let one = status(&ledger);
    ledger.enter(2, Phase::Restarting, ms(5_000));
    let two = status(&ledger);
    let places = Places::from([(worker(0), (Some(0), 8)), (worker(1), (Some(8), 8))]);
    let running = [
        pod(0, 1, PodPhase::Running, "a"),
        pod(1, 1, PodPhase::Running, "b"),
    ];
    let mut failed = running.clone();
    failed[1].phase = PodPhase::Failed;
    failed[1].exit = Some(Exit {
        code: 1,
        out_of_memory: false,
        at: Some(ms(3_000)),
    });
    let mut replaced = [
        pod(0, 2, PodPhase::Running, "a"),
        pod(1, 2, PodPhase::Pending, "c"),
    ];
    replaced[1].wait = Some(Wait::Pull);
    let mut chronicle = Chronicle::default();
    let mut before: Option<Seen<'_>> = None;
    let views = [
        (&one, &running[..], 1_000),
        (&one, &failed[..], 4_000),
        (&two, &replaced[..], 6_000),
        (&two, &replaced[..], 7_000),
        (&two, &replaced[..1], 8_000),
    ];
    let mut counts = Vec::new();
    for (status, pods, at) in views {
        let after = Seen { status, pods };
        counts.push(
            chronicle
                .record(before.as_ref(), &after, &places, ms(at))
                .len(),
        );
        before = Some(after);
    }
    assert_eq!(counts[3], 0, "nothing is new");
    let lane = &chronicle.lanes[&worker(1)];
    assert_eq!((lane.first_rank, lane.ranks), (Some(8), 8));
    let turns: Vec<(i64, u32, PodState)> = lane
        .turns
        .iter()
        .map(|it| (it.at, it.attempt, it.state))
        .collect();
    let at = |millis| ms(millis).as_millisecond();
    let want = [
        (at(1_000), 1, PodState::Running),
        (at(3_000), 1, PodState::Failed),
        (at(6_000), 2, PodState::Pulling),
        (at(8_000), 2, PodState::Gone),
    ];
    assert_eq!(turns, want);
    assert_eq!(lane.node_at(at(5_000)), Some("b"));
    assert_eq!(lane.node_at(at(6_000)), Some("c"));
    let failure = Failure::one(Some(worker(1)), 1, at(3_000));
    assert_eq!(chronicle.failures, [failure]);
    let swap = Swap {
        attempt: 2,
        slot: worker(1),
        from: "b".to_owned(),
        to: "c".to_owned(),
    };
    assert_eq!(chronicle.swaps, [(at(6_000), swap)]);
    let again = Chronicle::of_facts(&chronicle.facts());
    assert_eq!(
        again,
        Chronicle {
            turns: chronicle.turns,
            next: again.next,
            ..chronicle
        }
    );
}

#[test]
fn failure_between_two_observations_is_kept() {
    let status = JobStatus::default();
    let running = [pod(0, 1, PodPhase::Running, "a")];
    let mut again = running.clone();
    again[0].ends = 1;
    again[0].exit = Some(Exit {
        code: 9,
        out_of_memory: false,
        at: Some(ms(1_500)),
    });
    let mut chronicle = Chronicle::default();
    let first = Seen {
        status: &status,
        pods: &running,
    };
    let second = Seen {
        status: &status,
        pods: &again,
    };
    chronicle.record(None, &first, &Places::new(), ms(1_000));
    chronicle.record(Some(&first), &second, &Places::new(), ms(2_000));
    let turns: Vec<PodState> = chronicle.lanes[&worker(0)]
        .turns
        .iter()
        .map(|turn| turn.state)
        .collect();
    assert_eq!(
        turns,
        [PodState::Running, PodState::Failed, PodState::Running]
    );
    assert_eq!(chronicle.failures.len(), 1);
}

fn verdict(attempt: u32) -> VerdictSummary {
    VerdictSummary {
        attempt,
        label: "gpu_fallen_off_bus".to_owned(),
        sentence: "a GPU stopped responding".to_owned(),
        ranks: vec![517],
        nodes: vec!["gpu-064".to_owned()],
        account: Account::Infrastructure,
        retry: Retry::Helps,
        confidence: Confidence::High,
        depth: Depth::Cause,
        place: None,
        exception: None,
        signature: None,
        next: "replace it".to_owned(),
    }
}

#[test]
fn status_becomes_saves_verdicts_and_points() {
    let mut status = JobStatus::default();
    let record = &mut status.trainyard;
    record.attempt = 2;
    record.spent.infrastructure = 1;
    record.last_failure = Some(LastFailure {
        attempt: 1,
        pod: "j-worker-64".to_owned(),
        account: Account::Infrastructure,
        message: "x".repeat(5_000),
        cause: None,
        step: Some(40),
        since_attempt: None,
        verdict: Some(verdict(1)),
    });
    record.checkpoint = Some(CheckpointRecord {
        newest: Some(crate::checkpoint::CompleteStep {
            step: 30,
            attempt: 4,
            bytes: 7,
            snapshot_ms: Some(120),
            write_ms: None,
            saved_at: Some(ms(500)),
        }),
        earlier_attempts: Some(3),
        ..CheckpointRecord::default()
    });
    record.progress = Some(ProgressRecord {
        loss: Some(Figure(f64::NAN)),
        ..ProgressRecord::from(&Progress::new(2, 41, ms(900)))
    });
    let seen = Seen {
        status: &status,
        pods: &[],
    };
    let mut chronicle = Chronicle::default();
    let facts = chronicle.record(None, &seen, &Places::new(), ms(1_000));
    let names: Vec<&str> = facts
        .iter()
        .filter_map(|fact| match &fact.what {
            What::Point { name, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["step", "loss"], "a loss that is NaN is a report");
    assert_eq!(
        chronicle.record(Some(&seen), &seen, &Places::new(), ms(2_000)),
        []
    );
    let (at, save) = chronicle.saves[0];
    assert_eq!(
        (at, save.attempt, save.stall_millis),
        (ms(500).as_millisecond(), Some(1), Some(120))
    );
    assert_eq!(chronicle.verdicts[0].1.summary, verdict(1));
    let headline = &chronicle.headlines[0].1;
    assert_eq!(
        (headline.message.chars().count(), headline.step),
        (TEXT_CHARS, Some(40))
    );
    assert_eq!(chronicle.spent.infrastructure, 1);
    let again = Chronicle::of_facts(&chronicle.facts());
    assert_eq!(
        again,
        Chronicle {
            next: again.next,
            points_until: None,
            ..chronicle
        }
    );
}

#[test]
fn another_history_replaces_the_one_that_was_seen() {
    let mut one = Ledger::default();
    one.enter(1, Phase::Training, ms(0));
    one.enter(1, Phase::Saving, ms(9_000));
    let mut other = Ledger::default();
    other.enter(1, Phase::Starting, ms(0));
    other.enter(1, Phase::Training, ms(4_000));
    let mut chronicle = Chronicle::default();
    let (one, two) = (status(&one), status(&other));
    let one = Seen {
        status: &one,
        pods: &[],
    };
    let two = Seen {
        status: &two,
        pods: &[],
    };
    chronicle.record(None, &one, &Places::new(), ms(9_500));
    chronicle.record(Some(&one), &two, &Places::new(), ms(9_900));
    assert!(adds_up(&chronicle, &other, ms(9_900)), "{chronicle:?}");
    assert_eq!(chronicle.stretches.len(), 1);
}

#[test]
fn facts_of_other_versions_are_read() {
    let cases = [
        (
            r#"{"v":9,"seq":0,"at":5,"fact":"teleported","to":[1,2]}"#,
            Some(What::Other),
        ),
        (
            r#"{"v":2,"seq":1,"at":5,"fact":"phase","attempt":1,"phase":"dreaming","more":{}}"#,
            Some(What::Phase {
                attempt: 1,
                phase: Phase::Other,
            }),
        ),
        (
            r#"{"v":1,"seq":2,"at":5,"fact":"pod","attempt":1,"slot":{"role":"Worker","index":3},"state":"frozen"}"#,
            Some(What::Pod {
                attempt: 1,
                slot: worker(3),
                state: PodState::Other,
            }),
        ),
        (r#"{"v":1,"seq":3,"at":5,"fact":"pod"#, None),
        (r#"{"v":1,"seq":3,"at":5}"#, None),
        ("", None),
    ];
    for (line, want) in cases {
        let read = Fact::read(line.as_bytes());
        assert_eq!(read.ok().map(|fact| fact.what), want, "{line}");
    }
    let long = vec![b' '; LINE_MAX + 1];
    let error = Fact::read(&long).unwrap_err().to_string();
    assert_eq!(error, "the line has 65537 bytes; a fact has at most 65536");
    let mut chronicle = Chronicle::default();
    chronicle.add(5, &What::Other);
    assert_eq!(chronicle.left_out.unknown, 1);
}

#[test]
fn stored_form_is_stable() {
    let span = What::from(Stretch {
        from: 1,
        to: 9,
        content: Content::Phase {
            attempt: 2,
            phase: Phase::Training,
        },
    });
    let booked = vec![Booked {
        attempt: None,
        phase: Phase::Saving,
        millis: 8,
    }];
    let unseen = What::from(Stretch {
        from: 1,
        to: 9,
        content: Content::NotObserved(booked),
    });
    let cases = [
        (
            What::Compacted { until: 9 },
            r#"{"v":1,"seq":7,"at":1,"fact":"compacted","until":9}"#,
        ),
        (
            span,
            r#"{"v":1,"seq":7,"at":1,"fact":"span","from":1,"to":9,"attempt":2,"phase":"training"}"#,
        ),
        (
            unseen,
            r#"{"v":1,"seq":7,"at":1,"fact":"unseen","from":1,"to":9,"booked":[[null,"saving",8]]}"#,
        ),
    ];
    for (what, want) in cases {
        let fact = Fact {
            version: VERSION,
            seq: 7,
            at: 1,
            what,
        };
        assert_eq!(fact.line(), want);
    }
}

#[test]
fn spans_that_overlap_or_lie_are_left_out() {
    let mut chronicle = Chronicle::default();
    let span = |from, to| What::Span {
        from,
        to,
        attempt: 1,
        phase: Phase::Training,
    };
    chronicle.add(10, &What::Began);
    chronicle.add(10, &span(10, 20));
    for wrong in [
        span(15, 30),
        span(25, 30),
        span(20, 5),
        What::Merged {
            from: 20,
            to: 30,
            booked: vec![
                (Some(1), Phase::Training, u64::MAX).into(),
                (Some(1), Phase::Saving, 11).into(),
            ],
        },
        What::Unseen {
            from: 20,
            to: 30,
            booked: Vec::new(),
        },
    ] {
        chronicle.add(20, &wrong);
    }
    assert_eq!(
        (chronicle.stretches.len(), chronicle.left_out.unknown),
        (1, 5)
    );
}

#[test]
fn failure_after_a_file_that_was_cut_is_counted() {
    let mut chronicle = Chronicle::default();
    chronicle.apply(&Fact {
        version: VERSION,
        seq: 0,
        at: 0,
        // Seven more facts were to follow, and are lost.
        what: What::Compacted { until: 8 },
    });
    let status = status(&Ledger::default());
    let pods = [pod(0, 1, PodPhase::Failed, "a")];
    let seen = Seen {
        status: &status,
        pods: &pods,
    };
    chronicle.record(None, &seen, &Places::new(), ms(0));
    let counts: Vec<u64> = chronicle.failures.iter().map(|it| it.count).collect();
    assert_eq!(counts, [1]);
}

#[test]
fn restart_does_not_count_failures_beyond_the_limit() {
    let mut chronicle = Chronicle::default();
    let limit = u32::try_from(LANES_MAX).unwrap();
    for index in 0..limit {
        chronicle.lanes.insert(worker(index), Lane::default());
    }
    let status = status(&Ledger::default());
    let pods = [limit, limit + 1, limit + 2].map(|index| {
        let mut failed = pod(index, 1, PodPhase::Failed, "a");
        failed.exit = Some(Exit {
            code: 1,
            out_of_memory: false,
            at: Some(ms(i64::from(index / (limit + 2)))),
        });
        failed
    });
    let seen = Seen {
        status: &status,
        pods: &pods,
    };
    let counts = |chronicle: &Chronicle| -> Vec<u64> {
        let failures = chronicle.failures.iter();
        failures.map(|failure| failure.count).collect()
    };
    // Two at the same moment, one later.
    chronicle.record(None, &seen, &Places::new(), ms(5));
    assert_eq!(counts(&chronicle), [2, 1]);
    for restart in 6..9 {
        chronicle.record(None, &seen, &Places::new(), ms(restart));
        assert_eq!(counts(&chronicle), [2, 1]);
    }
}

/// Far more of everything than is kept.
#[test]
fn history_is_bounded() {
    let mut chronicle = Chronicle::default();
    chronicle.add(0, &What::Began);
    let phases = [Phase::Training, Phase::Saving];
    for turn in 0..40_000_i64 {
        let attempt = u32::try_from(turn).unwrap();
        let phase = phases[usize::from(turn % 2 == 0)];
        chronicle.add(
            turn,
            &What::Span {
                from: turn,
                to: turn + 1,
                attempt,
                phase,
            },
        );
        chronicle.add(turn, &What::Attempt { attempt });
        let slot = worker(attempt % 9_000);
        chronicle.add(
            turn,
            &What::Pod {
                attempt,
                slot,
                state: PodState::Running,
            },
        );
        chronicle.add(
            turn,
            &What::Pod {
                attempt,
                slot,
                state: PodState::Failed,
            },
        );
    }
    assert!(chronicle.stretches.len() <= STRETCHES_MAX);
    assert_eq!(chronicle.totals(ms(0)).values().sum::<u64>(), 40_000);
    assert_eq!(
        (chronicle.attempts.len(), chronicle.left_out.attempts),
        (ATTEMPTS_MAX, 40_000 - 4_096)
    );
    assert_eq!(chronicle.lanes.len(), LANES_MAX);
    assert!(chronicle.left_out.slots > 0);
    assert!(chronicle.failures.len() <= FAILURES_MAX);
    let failures: u64 = chronicle.failures.iter().map(|it| it.count).sum();
    assert_eq!(failures, 40_000, "no failure is dropped");
}

#[test]
fn oldest_changes_of_pods_are_dropped_first() {
    let mut lanes: BTreeMap<Slot, Lane> = BTreeMap::new();
    for index in 0..10 {
        let lane = lanes.entry(worker(index)).or_default();
        for turn in 0..20_u32 {
            let state = [PodState::Running, PodState::Gone][usize::from(turn % 2 == 0)];
            lane.turn(i64::from(turn * 10 + index), 1, state);
        }
    }
    let dropped = lane::compact(&mut lanes, 50);
    let kept: usize = lanes.values().map(Lane::turns_kept).sum();
    assert_eq!((kept, dropped), (50, 150));
    assert!(
        lanes
            .values()
            .all(|lane| lane.turns.first().is_some_and(|turn| turn.at >= 150))
    );
    assert_eq!(
        lane::compact(&mut lanes, 1),
        40,
        "the last change of each lane stays"
    );
}
