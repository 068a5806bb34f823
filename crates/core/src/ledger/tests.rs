use super::*;
use crate::{
    job::{ObservedPod, PodPhase, Progress, Wait},
    spec::{Role, Slot},
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

#[test]
fn spans_add_up_to_the_wall_time() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.wall(at(5)), Duration::ZERO);
    ledger.enter(1, Phase::Creating, at(0));
    ledger.enter(1, Phase::Training, at(10));
    ledger.enter(1, Phase::Training, at(20));
    ledger.enter(2, Phase::Restarting, at(100));
    // The clock steps back: no time, but nothing is lost either.
    ledger.enter(2, Phase::Training, at(90));
    ledger.end(at(200));
    ledger.enter(3, Phase::Training, at(300));
    let totals = ledger.totals(at(400));
    assert_eq!(
        totals,
        PhaseMillis::from([
            (Phase::Creating, 10_000),
            (Phase::Training, 190_000),
            (Phase::Restarting, 0)
        ])
    );
    assert_eq!(ledger.wall(at(400)), Duration::from_secs(200));
    assert_eq!(ledger.ettr(at(400)), Some(0.95));
    assert_eq!(ledger.attempts.len(), 2);
    let spans = ledger.spans(at(400));
    assert_eq!(spans.iter().map(|span| span.millis).sum::<u64>(), 200_000);
}

#[test]
fn old_attempts_are_folded_and_still_counted() {
    let mut ledger = Ledger::default();
    for attempt in 0..50 {
        ledger.enter(attempt, Phase::Training, at(i64::from(attempt) * 10));
    }
    ledger.end(at(500));
    assert_eq!(ledger.attempts.len(), ATTEMPTS_KEPT);
    assert_eq!(
        ledger.totals(at(500)),
        PhaseMillis::from([(Phase::Training, 500_000)])
    );
}

#[test]
fn suspension_is_not_held_against_the_job() {
    let mut ledger = Ledger::default();
    ledger.enter(1, Phase::Training, at(0));
    ledger.enter(1, Phase::Suspended, at(30));
    assert_eq!(ledger.ettr(at(90)), Some(1.0));
    assert_eq!(Ledger::default().ettr(at(0)), None);
    let mut silent = Ledger::default();
    silent.enter(1, Phase::Starting, at(0));
    assert_eq!(silent.ettr(at(90)), None, "unknown without a step");
    silent.enter(1, Phase::Training, at(90));
    assert_eq!(silent.ettr(at(90)), Some(0.0));
}

fn pod(phase: PodPhase, wait: Option<Wait>) -> ObservedPod {
    ObservedPod {
        uid: "u".into(),
        slot: Slot::new(Role::Worker, 0),
        attempt: 1,
        phase,
        ready: true,
        deleted_at: None,
        grace_seconds: 30,
        node: Some("n".into()),
        restarts: 0,
        ends: 0,
        exit: None,
        start_error: None,
        wait,
        disruption: None,
        gated: false,
    }
}

#[test]
fn the_phase_is_that_of_the_slowest_pod() {
    let running = || pod(PodPhase::Running, None);
    let pending = |wait| pod(PodPhase::Pending, wait);
    let step = |step, seconds, saving| {
        Some(Progress {
            saving,
            read_at: at(0),
            ..Progress::new(1, step, at(seconds))
        })
    };
    let fast = |step, seconds| {
        let rhythm = Some(Duration::from_millis(100));
        let reported: Option<Progress> = step;
        reported.map(|reported| Progress {
            rhythm,
            at: at(seconds),
            ..reported
        })
    };
    let cases = [
        (
            "all run, no reports",
            false,
            vec![running(), running()],
            None,
            None,
            Phase::Starting,
        ),
        (
            "one pulls",
            false,
            vec![running(), pending(Some(Wait::Pull))],
            None,
            None,
            Phase::Pulling,
        ),
        (
            "a gate is earlier than a pull",
            false,
            vec![pending(Some(Wait::Gate)), pending(Some(Wait::Pull))],
            None,
            None,
            Phase::Queued,
        ),
        (
            "seats",
            false,
            vec![pending(Some(Wait::Seat("no GPU".into())))],
            None,
            None,
            Phase::Placing,
        ),
        (
            "creating",
            false,
            vec![pending(Some(Wait::Create))],
            None,
            None,
            Phase::Creating,
        ),
        (
            "creating again",
            true,
            vec![pending(Some(Wait::Create))],
            None,
            None,
            Phase::Restarting,
        ),
        (
            "seats again",
            true,
            vec![pending(Some(Wait::Seat("x".into())))],
            None,
            None,
            Phase::Placing,
        ),
        (
            "reports",
            false,
            vec![running()],
            step(7, 0, false),
            None,
            Phase::Training,
        ),
        (
            "saves",
            false,
            vec![running()],
            step(7, 0, true),
            None,
            Phase::Saving,
        ),
        (
            "repeats",
            true,
            vec![running()],
            step(7, 0, false),
            Some(9),
            Phase::Redoing,
        ),
        (
            "is past it",
            true,
            vec![running()],
            step(10, 0, false),
            Some(9),
            Phase::Training,
        ),
        (
            "not yet again",
            true,
            vec![running()],
            None,
            Some(9),
            Phase::Starting,
        ),
        (
            "silent for as long as it may compile",
            false,
            vec![running()],
            step(1, -599, false),
            None,
            Phase::Training,
        ),
        (
            "silent before its rhythm is known",
            false,
            vec![running()],
            step(7, -600, false),
            None,
            Phase::Stalled,
        ),
        (
            "silent for less than 30 s",
            false,
            vec![running()],
            fast(step(7, 0, false), -29),
            None,
            Phase::Training,
        ),
        (
            "silent past its rhythm",
            false,
            vec![running()],
            fast(step(7, 0, false), -30),
            None,
            Phase::Stalled,
        ),
        (
            "silent while it saves",
            false,
            vec![running()],
            fast(step(7, 0, true), -599),
            None,
            Phase::Saving,
        ),
        (
            "saves for too long",
            false,
            vec![running()],
            fast(step(7, 0, true), -600),
            None,
            Phase::Stalled,
        ),
        (
            "evaluates",
            false,
            vec![running()],
            fast(step(7, 0, false), -599).map(|reported| Progress {
                evaluating: true,
                ..reported
            }),
            None,
            Phase::Training,
        ),
        (
            "was not read since",
            false,
            vec![running()],
            fast(step(7, 0, false), -300).map(|reported| Progress {
                read_at: at(-280),
                ..reported
            }),
            None,
            Phase::Training,
        ),
    ];
    for (name, restarted, pods, progress, best, want) in cases {
        let mut scene = Scene::new(restarted, u32::MAX);
        for pod in &pods {
            scene.pod(pod);
        }
        let turn = scene.phase(progress.as_ref(), None, best, None);
        assert_eq!(turn.phase, want, "{name}");
    }
}

#[test]
fn an_elastic_job_trains_with_enough_pods() {
    let progress = Progress::new(1, 1, at(0));
    for (enough, want) in [(1, Phase::Training), (2, Phase::Restarting)] {
        let mut scene = Scene::new(true, enough);
        scene.pod(&pod(PodPhase::Running, None));
        scene.missing();
        let turn = scene.phase(Some(&progress), None, None, None);
        assert_eq!(turn.phase, want);
    }
}

#[test]
fn a_stall_is_announced_and_takes_its_time_back() {
    let mut scene = Scene::new(false, u32::MAX);
    scene.pod(&pod(PodPhase::Running, None));
    let minute = Some(Duration::from_mins(1));
    let mut progress = Progress::new(1, 1, at(0));
    let turn = scene.phase(Some(&progress), None, None, minute);
    assert_eq!((turn.phase, turn.turns_at), (Phase::Training, Some(at(60))));
    progress.read_at = at(60);
    for (open, since) in [
        (Phase::Training, Some(at(0))),
        (Phase::Redoing, Some(at(0))),
        (Phase::Saving, None),
    ] {
        let turn = scene.phase(Some(&progress), Some(open), None, minute);
        assert_eq!((turn.phase, turn.since), (Phase::Stalled, since));
    }
    (progress.at, progress.step) = (at(70), 2);
    let turn = scene.phase(Some(&progress), Some(Phase::Stalled), None, minute);
    assert_eq!((turn.phase, turn.since), (Phase::Training, Some(at(70))));
}

#[test]
fn patience_follows_the_rhythm() {
    let rhythm = |millis| Progress {
        rhythm: Some(Duration::from_millis(millis)),
        ..Progress::new(1, 1, at(0))
    };
    let saving = |reported| Progress {
        saving: true,
        ..reported
    };
    let cases = [
        ("unknown", Progress::new(1, 1, at(0)), None, 600),
        ("fast", rhythm(100), None, 30),
        ("slow", rhythm(9_000), None, 90),
        ("saving", saving(rhythm(100)), None, 600),
        ("saving, slow", saving(rhythm(90_000)), None, 900),
        ("stated", rhythm(100), Some(5), 5),
        ("stated, saving", saving(rhythm(100)), Some(5), 5),
    ];
    for (name, reported, set, want) in cases {
        let patience = patience(&reported, set.map(Duration::from_secs));
        assert_eq!(patience.as_secs(), want, "{name}");
    }
}

#[test]
fn stored_hanging_is_stalled() {
    let stored = r#"{"began":"2027-01-15T08:00:00Z","attempts":[{"attempt":1,"millis":{"hanging":5,"stalled":2}}],
        "open":{"attempt":1,"phase":"hanging","since":"2027-01-15T08:00:00.007Z"}}"#;
    let ledger: Ledger = serde_json::from_str(stored).unwrap();
    assert_eq!(
        ledger.totals(at(1)),
        PhaseMillis::from([(Phase::Stalled, 1_000)])
    );
    assert_eq!(ledger.open.unwrap().phase, Phase::Stalled);
    // Its order in time was not kept.
    let spans: Vec<(Phase, u64)> = ledger
        .spans(at(1))
        .iter()
        .map(|span| (span.phase, span.millis))
        .collect();
    assert_eq!(spans, [(Phase::Other, 7), (Phase::Stalled, 993)]);
}
