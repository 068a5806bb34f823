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
fn another_manager_is_left_alone() {
    let mut job = job(Kind::Jax);
    job.run_policy.managed_by = Some("kueue.x-k8s.io/multikueue".into());
    let mut world = World::new(job);
    let decision = world.settle();
    assert_eq!(decision.status, JobStatus::default());
    assert_eq!(decision.reasons[0].code, Code::ManagedElsewhere);
    world.job.run_policy.managed_by = Some("kubeflow.org/training-operator".into());
    world.settle();
    assert_eq!(world.pods().len(), 2);
}
