use super::*;
use crate::{
    job::{ObservedPod, PodPhase, Progress, Wait},
    spec::{Role, Slot},
};

const HANG: Duration = Duration::from_mins(10);

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
        exit: None,
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
            attempt: 1,
            step,
            at: at(seconds),
            saving,
        })
    };
    let cases = [
        (
            "all run, no reports",
            false,
            vec![running(), running()],
            None,
            None,
            Phase::Training,
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
            "silent",
            false,
            vec![running()],
            step(7, -600, false),
            None,
            Phase::Hanging,
        ),
        (
            "silence counts while saving",
            false,
            vec![running()],
            step(7, -601, true),
            None,
            Phase::Hanging,
        ),
    ];
    for (name, restarted, pods, progress, best, want) in cases {
        let mut scene = Scene::new(restarted, u32::MAX);
        for pod in &pods {
            scene.pod(pod);
        }
        let (phase, _) = scene.phase(progress.as_ref(), best, HANG, at(0));
        assert_eq!(phase, want, "{name}");
    }
}

#[test]
fn an_elastic_job_trains_with_enough_pods() {
    let mut scene = Scene::new(true, 1);
    scene.pod(&pod(PodPhase::Running, None));
    scene.missing();
    assert_eq!(scene.phase(None, None, HANG, at(0)).0, Phase::Training);
    let mut scene = Scene::new(true, 2);
    scene.pod(&pod(PodPhase::Running, None));
    scene.missing();
    assert_eq!(scene.phase(None, None, HANG, at(0)).0, Phase::Restarting);
}

#[test]
fn hanging_is_announced() {
    let mut scene = Scene::new(false, u32::MAX);
    scene.pod(&pod(PodPhase::Running, None));
    let progress = Progress {
        attempt: 1,
        step: 1,
        at: at(0),
        saving: false,
    };
    let (phase, turns_at) = scene.phase(Some(&progress), None, Duration::from_mins(1), at(10));
    assert_eq!((phase, turns_at), (Phase::Training, Some(at(60))));
}
