//! Jobs that are suspended, timed, or another's.

use super::*;

#[test]
fn suspend_and_resume() {
    let mut world = World::new(job(Kind::PyTorch));
    world.run_all();
    world.now = 50;
    world.job.run_policy.suspend = true;
    world.settle();
    assert_eq!(world.conditions(), "Created,Running(False),Suspended");
    assert_eq!(world.observed.status.start_time, Some(at(0)));
    assert_eq!(world.pods().len(), 0);
    assert_eq!(
        world.observed.status.replica_statuses[&Role::Worker].active,
        0
    );
    world.now = 90;
    world.job.run_policy.suspend = false;
    world.settle();
    assert_eq!(
        world.conditions(),
        "Created,Running(False),Suspended(False)"
    );
    assert_eq!(world.observed.status.start_time, Some(at(90)));
    world.run_all();
    assert_eq!(world.conditions(), "Created,Suspended(False),Running");
    assert_eq!(world.pods()[0], "j-master-0#2");
    let count = |reason: &str| world.events.iter().filter(|event| *event == reason).count();
    assert_eq!(
        (count("PyTorchJobSuspended"), count("PyTorchJobResumed")),
        (1, 1)
    );
    let totals = world.observed.status.trainyard.ledger.totals(at(90));
    assert_eq!(totals[&Phase::Suspended], 40_000);
}

#[test]
fn suspended_from_the_start() {
    let mut job = job(Kind::Jax);
    job.run_policy.suspend = true;
    let mut world = World::new(job);
    world.settle();
    assert_eq!(world.conditions(), "Created,Suspended");
    assert_eq!(world.observed.status.start_time, None);
}

#[test]
fn a_deadline_is_timed() {
    let mut job = job(Kind::Jax);
    job.run_policy.active_deadline_seconds = Some(30);
    let mut world = World::new(job);
    let decision = world.run_all();
    assert_eq!(decision.wake_at, Some(at(30)));
    world.now = 30;
    world.settle();
    assert_eq!(
        world.message(),
        "Job j has failed because it was active longer than specified deadline"
    );
}

#[test]
fn a_ttl_is_timed() {
    let mut job = job(Kind::Jax);
    job.run_policy.ttl_seconds_after_finished = Some(10);
    let mut world = World::new(job);
    world.run_all();
    world.exit(worker(0), 1);
    let decision = world.settle();
    assert_eq!(decision.wake_at, Some(at(10)));
    world.now = 10;
    world.pass();
    assert!(world.deleted);
}

#[test]
fn unset_policy_keeps_pods_for_five_minutes() {
    let mut world = World::new(job(Kind::PyTorch));
    world.run_all();
    world.now = 10;
    world.exit(MASTER, 0);
    let decision = world.settle();
    assert_eq!(world.state(), "Succeeded");
    assert_eq!(world.observed.status.completion_time, Some(at(10)));
    assert_eq!(world.pods().len(), 3, "every pod is kept, as upstream does");
    assert_eq!(decision.wake_at, Some(at(310)));
    assert_eq!(decision.reasons[0].code(), Code::CleaningUp);
    assert!(
        decision.reasons[0].to_string().contains("2 pods still run"),
        "{:?}",
        decision.reasons
    );
    // Upstream counts whoever runs on as succeeded, and the ledger is closed.
    let workers = &world.observed.status.replica_statuses[&Role::Worker];
    assert_eq!((workers.active, workers.succeeded), (0, 2));
    world.now = 100;
    world.exit(worker(0), 0);
    world.now = 309;
    world.settle();
    assert_eq!(world.pods().len(), 3);
    world.now = 310;
    let decision = world.settle();
    assert_eq!(world.pods(), ["j-master-0#1", "j-worker-0#1"], "logs stay");
    assert_eq!(decision.wake_at, None);
    assert_eq!(decision.reasons[0].code(), Code::Ended);
    assert_eq!(
        world.observed.status.trainyard.ledger.totals(at(310)),
        world.observed.status.trainyard.ledger.totals(at(10)),
    );
}

#[test]
fn nothing_is_timed_once_every_pod_has_finished() {
    let mut world = World::new(job(Kind::PyTorch));
    world.run_all();
    for slot in [worker(0), worker(1), MASTER] {
        world.exit(slot, 0);
    }
    let decision = world.settle();
    assert_eq!((world.state(), world.pods().len()), ("Succeeded", 3));
    assert_eq!(decision.wake_at, None);
    assert_eq!(decision.reasons[0].code(), Code::Ended);
}

#[test]
fn clean_pod_policy_rules_running_pods_after_success() {
    use CleanPodPolicy::{All, None as Keep, Running};
    // The policy, what exists at the end of the job, and what an hour later.
    let cases = [
        (None, 3, 1),
        (Some(Keep), 3, 3),
        (Some(Running), 1, 1),
        (Some(All), 0, 0),
    ];
    for (policy, at_end, later) in cases {
        let mut job = job(Kind::PyTorch);
        job.run_policy.clean_pod_policy = policy;
        let mut world = World::new(job);
        world.run_all();
        world.exit(MASTER, 0);
        world.settle();
        assert_eq!(world.pods().len(), at_end, "{policy:?} at the end");
        world.now = 3600;
        world.settle();
        assert_eq!(world.pods().len(), later, "{policy:?} an hour later");
    }
}

#[test]
fn pods_held_back_go_at_success() {
    let mut world = World::new(job(Kind::PyTorch));
    world.run_all();
    let held = world.pod(worker(1));
    held.gated = true;
    held.phase = PodPhase::Pending;
    held.node = None;
    world.exit(MASTER, 0);
    world.settle();
    assert_eq!(world.pods(), ["j-master-0#1", "j-worker-0#1"]);
}

#[test]
fn another_manager_is_left_alone() {
    let mut job = job(Kind::Jax);
    job.run_policy.managed_by = Some("kueue.x-k8s.io/multikueue".into());
    let mut world = World::new(job);
    let decision = world.settle();
    assert_eq!(decision.status, JobStatus::default());
    assert_eq!(decision.reasons[0].code(), Code::ManagedElsewhere);
    world.job.run_policy.managed_by = Some("kubeflow.org/training-operator".into());
    world.settle();
    assert_eq!(world.pods().len(), 2);
}
