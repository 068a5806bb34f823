//! What is told of a job: its status as stored, its reasons, its time.

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
    world.observed.refusals = vec![Refusal {
        tried: "create pod `j-worker-0`".into(),
        message: "exceeded quota: gpus, requested 8, used 56, limited 60".into(),
    }];
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

#[test]
fn time_is_booked_by_phase() {
    let mut world = World::new(policy(job(Kind::Jax), RestartPolicy::OnFailure));
    world.settle();
    world.now = 10;
    world.run_all();
    world.now = 70;
    world.exit(worker(0), 1);
    world.settle();
    world.now = 75;
    world.run_all();
    world.now = 135;
    world.exit(worker(0), 0);
    world.exit(worker(1), 0);
    world.settle();
    let ledger = &world.observed.status.trainyard.ledger;
    let totals = ledger.totals(at(1000));
    assert_eq!(totals[&Phase::Training], 120_000);
    assert_eq!(totals[&Phase::Restarting], 5_000);
    assert_eq!(totals[&Phase::Creating], 10_000);
    assert_eq!(ledger.wall(at(1000)), Duration::from_secs(135));
}
