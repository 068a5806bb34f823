//! What is reported of a job: its status as stored, its reasons, its time.

use super::*;

#[test]
fn quick_failures_wait_longer_each_time() {
    let mut world = World::new(policy(job(Kind::Jax), RestartPolicy::OnFailure));
    let mut pauses = Vec::new();
    for _ in 0..8 {
        world.run_all();
        world.exit(worker(0), 1);
        world.pass();
        let retry_at = world.observed.status.trainyard.retry_at;
        pauses.push(retry_at.map_or(0, |retry| retry.as_second() - at(world.now).as_second()));
        world.now += pauses.last().unwrap();
    }
    assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 300, 300]);
    // An attempt that ran for a while is forgiven.
    world.run_all();
    world.now += 3600;
    world.exit(worker(0), 1);
    world.pass();
    assert_eq!(world.observed.status.trainyard.retry_at, None);
}

#[test]
fn success_and_failure_in_one_pass_is_one_of_them() {
    let mut world = World::new(job(Kind::Tf));
    world.run_all();
    world.exit(CHIEF, 0);
    world.exit(worker(0), 1);
    world.settle();
    assert_eq!(world.conditions(), "Created,Running(False),Succeeded");
}

#[test]
fn refusals_reach_the_status() {
    let mut world = World::new(job(Kind::Jax));
    world.observed.refusals = vec![Refusal::new(
        "create pod `j-worker-0`",
        "exceeded quota: gpus, requested 8, used 56, limited 60",
    )];
    let decision = world.pass();
    let waiting = decision.status.trainyard.waiting.expect("a reason");
    assert_eq!(waiting.code, Code::Refused);
    assert_eq!(
        waiting.message,
        "cannot create pod `j-worker-0`: exceeded quota: gpus, requested 8, used 56, limited 60"
    );
}

#[test]
fn the_status_survives_being_stored() {
    let mut world = World::new(policy(job(Kind::PyTorch), RestartPolicy::OnFailure));
    world.run_all();
    world.exit(worker(0), 1);
    world.run_all();
    let status = &world.observed.status;
    let stored = serde_json::to_string(status).unwrap();
    assert_eq!(&serde_json::from_str::<JobStatus>(&stored).unwrap(), status);
    let json: serde_json::Value = serde_json::from_str(&stored).unwrap();
    assert_eq!(json["conditions"][1]["type"], "Running");
    assert_eq!(json["replicaStatuses"]["Worker"]["active"], 2);
    assert_eq!(json["trainyard"]["attempt"], 2);
}

/// The program of the current attempt reports `step` now.
fn report_step(world: &mut World, step: u64) {
    let attempt = world.observed.status.trainyard.attempt;
    let now = at(world.now);
    let seen = world
        .observed
        .progress
        .filter(|seen| seen.attempt == attempt);
    world.observed.progress = Some(Progress {
        step,
        at: now,
        read_at: now,
        ..seen.unwrap_or_else(|| Progress::new(attempt, step, now))
    });
}

/// The output was read until now, and there was nothing in it.
fn read_nothing(world: &mut World) {
    if let Some(seen) = &mut world.observed.progress {
        seen.read_at = at(world.now);
    }
}

#[test]
fn time_is_booked_by_phase() {
    let mut world = World::new(policy(job(Kind::Jax), RestartPolicy::OnFailure));
    world.settle();
    world.now = 10;
    world.run_all();
    world.now = 30;
    report_step(&mut world, 1);
    world.now = 70;
    world.exit(worker(0), 1);
    world.settle();
    world.now = 75;
    world.run_all();
    world.now = 90;
    report_step(&mut world, 1);
    world.settle();
    world.now = 100;
    report_step(&mut world, 2);
    world.settle();
    world.now = 135;
    world.exit(worker(0), 0);
    world.exit(worker(1), 0);
    world.settle();
    let ledger = &world.observed.status.trainyard.ledger;
    let totals = ledger.totals(at(1000));
    assert_eq!(
        totals,
        [
            (Phase::Creating, 10_000),
            (Phase::Starting, 20_000 + 15_000),
            (Phase::Training, 40_000 + 35_000),
            (Phase::Restarting, 5_000),
            (Phase::Redoing, 10_000),
        ]
        .into()
    );
    assert_eq!(ledger.wall(at(1000)), Duration::from_secs(135));
    let spans: Vec<(u32, Phase, u64)> = ledger
        .spans(at(1000))
        .into_iter()
        .map(|span| (span.attempt, span.phase, span.millis / 1000))
        .collect();
    let want = [
        (1, Phase::Creating, 10),
        (1, Phase::Starting, 20),
        (1, Phase::Training, 40),
        (2, Phase::Restarting, 5),
        (2, Phase::Starting, 15),
        (2, Phase::Redoing, 10),
        (2, Phase::Training, 35),
    ];
    assert_eq!(spans, want, "in order of time");
}

#[test]
fn without_step_nothing_trains() {
    for code in [0, 1] {
        let mut world = World::new(policy(job(Kind::Jax), RestartPolicy::Never));
        world.run_all();
        world.now = 60;
        world.exit(worker(0), code);
        world.exit(worker(1), code);
        world.settle();
        let ledger = &world.observed.status.trainyard.ledger;
        assert_eq!(ledger.totals(at(60)).get(&Phase::Training), None);
        assert_eq!(ledger.ettr(at(60)), None, "unknown");
        assert!(!ledger.has_steps());
    }
}

#[test]
fn training_that_an_earlier_version_assumed_ends() {
    let mut world = World::new(job(Kind::Jax));
    world.run_all();
    let ledger = &mut world.observed.status.trainyard.ledger;
    ledger.enter(1, Phase::Training, at(0));
    world.now = 60;
    world.settle();
    let ledger = &world.observed.status.trainyard.ledger;
    assert_eq!(ledger.open.unwrap().phase, Phase::Starting);
}

#[test]
fn steps_of_a_short_job_are_booked() {
    // No pass happens between the first step and the end.
    let mut world = World::new(job(Kind::Jax));
    world.run_all();
    world.now = 6;
    report_step(&mut world, 1);
    world.now = 8;
    world.exit(worker(0), 0);
    world.exit(worker(1), 0);
    world.settle();
    let ledger = &world.observed.status.trainyard.ledger;
    assert_eq!(ledger.totals(at(8))[&Phase::Training], 2_000);
    assert_eq!(ledger.ettr(at(8)), Some(0.25));
}

#[test]
fn steps_of_unseen_run_are_booked() {
    let mut world = World::new(job(Kind::Jax));
    world.settle();
    let ledger = &world.observed.status.trainyard.ledger;
    assert!(ledger.open.is_some_and(|open| open.phase < Phase::Starting));
    world.now = 6;
    report_step(&mut world, 1);
    world.now = 8;
    world.exit(worker(0), 0);
    world.exit(worker(1), 0);
    world.settle();
    let ledger = &world.observed.status.trainyard.ledger;
    assert_eq!(ledger.totals(at(8))[&Phase::Training], 2_000);
    assert_eq!(ledger.ettr(at(8)), Some(0.25));
}

#[test]
fn recreated_pod_does_not_train() {
    let mut world = World::new(policy(job(Kind::Tf), RestartPolicy::OnFailure));
    world.run_all();
    world.now = 10;
    report_step(&mut world, 1);
    world.pass();
    world.now = 20;
    let pod = world.pod(worker(0));
    pod.phase = PodPhase::Failed;
    pod.disruption = Some(Disruption::Evicted);
    world.settle();
    let open = |world: &World| world.observed.status.trainyard.ledger.open;
    let made = open(&world).expect("time is spent");
    assert!(made.phase < Phase::Starting, "{made:?}");
    world.now = 60;
    world.pass();
    assert_eq!(open(&world), Some(made), "a second look changes nothing");
}

#[test]
fn silence_past_the_rhythm_is_stalled() {
    let mut world = World::new(job(Kind::Jax));
    world.run_all();
    for now in 1..=10 {
        world.now = now;
        report_step(&mut world, now.unsigned_abs());
        world.observed.progress.as_mut().unwrap().rhythm = Some(Duration::from_millis(100));
        world.settle();
    }
    world.now = 39;
    read_nothing(&mut world);
    let decision = world.settle();
    assert_eq!(decision.wake_at, Some(at(40)), "30 s after the last step");
    let record = |world: &World| world.observed.status.trainyard.clone();
    assert_eq!(record(&world).stall(at(39)), None);
    // The time is over since the output was last read, and no event would show it.
    world.now = 41;
    let decision = world.settle();
    assert_eq!(decision.wake_at, Some(at(46)), "it is looked at again");
    world.now = 55;
    read_nothing(&mut world);
    let decision = world.settle();
    assert!(
        decision.actions.is_empty(),
        "it is shown, and nothing is done"
    );
    let stalled = record(&world);
    assert_eq!(stalled.stall(at(55)).as_deref(), Some("no step for 45 s"));
    let totals = stalled.ledger.totals(at(55));
    assert_eq!(totals[&Phase::Training], 9_000);
    assert_eq!(totals[&Phase::Stalled], 45_000, "since the last step");
    // The adapter restarts and has read no output yet: what was known stays.
    let progress = world.observed.progress.take();
    world.now = 57;
    world.settle();
    assert_eq!(record(&world).ledger.open.unwrap().phase, Phase::Stalled);
    world.observed.progress = progress;
    world.now = 60;
    report_step(&mut world, 11);
    world.settle();
    assert_eq!(record(&world).ledger.open.unwrap().phase, Phase::Training);
    assert_eq!(record(&world).ledger.wall(at(60)), Duration::from_mins(1));
}

#[test]
fn progress_is_recorded_rarely() {
    let mut world = World::new(job(Kind::Jax));
    world.run_all();
    let step = |world: &World| {
        let record = world.observed.status.trainyard.progress.as_ref();
        record.map(|record| record.step)
    };
    let mut recorded = Vec::new();
    for now in 1..=13 {
        world.now = now;
        report_step(&mut world, now.unsigned_abs());
        world.settle();
        recorded.push(step(&world).unwrap());
    }
    assert_eq!(recorded, [1, 1, 1, 1, 1, 6, 6, 6, 6, 6, 11, 11, 11]);
    let before = world.observed.status.clone();
    let decision = world.pass();
    assert_eq!(
        decision.wake_at,
        Some(at(16)),
        "so that it is not late for long"
    );
    assert_eq!(world.observed.status, before);
    // That NaN began is written at once.
    let seen = world.observed.progress.as_mut().unwrap();
    seen.loss = Some(Figure(f64::NAN));
    seen.nan_since = Some(13);
    let decision = world.pass();
    assert!(may_wait(&before, &decision));
    assert_eq!(step(&world), Some(13));
    let before = world.observed.status.clone();
    assert_eq!(world.pass().status, before, "NaN is written once");
    // So is how far it was at its end.
    world.now = 14;
    report_step(&mut world, 14);
    world.exit(worker(0), 0);
    world.exit(worker(1), 0);
    world.settle();
    assert_eq!(step(&world), Some(14));
}
