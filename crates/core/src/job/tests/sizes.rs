//! Jobs whose pods come and go: elastic ones, other sizes, other scopes.

use k8s_openapi::api::autoscaling::v2::MetricSpec;

use super::*;
use crate::spec::{Framework, PyTorch};

#[test]
fn elastic_job_replaces_one_pod_and_is_degraded() {
    let workers = with_roles(job(Kind::PyTorch), &[(Role::Worker, 3)]);
    let mut world = World::new(elastic(policy(workers, RestartPolicy::OnFailure), 1, 4));
    world.run_all();
    world.pod(worker(2)).phase = PodPhase::Failed;
    world.settle();
    assert_eq!(
        world.pods(),
        ["j-worker-0#1", "j-worker-1#1", "j-worker-2#1"]
    );
    assert_eq!(world.conditions(), "Created,Degraded,Running");
    let degraded = &world.observed.status.conditions[1];
    assert_eq!(
        degraded.message,
        "2 of 3 workers run; at least 1 are needed to train"
    );
    world.run_all();
    assert_eq!(world.conditions(), "Created,Degraded(False),Running");
    world.exit(worker(1), 0);
    world.settle();
    assert_eq!(
        world.state(),
        "Succeeded",
        "the first worker's success is the job's"
    );
}

#[test]
fn the_autoscaler_follows_the_spec() {
    let workers = with_roles(job(Kind::PyTorch), &[(Role::Worker, 3)]);
    let plain = elastic(policy(workers, RestartPolicy::OnFailure), 1, 4);
    let mut measured = plain.clone();
    if let Framework::PyTorch(PyTorch { elastic, .. }) = &mut measured.framework {
        elastic.as_mut().unwrap().metrics = vec![MetricSpec::default()];
    }
    let mut suspended = measured.clone();
    suspended.run_policy.suspend = true;
    let (apply, delete) = (Action::ApplyAutoscaler, Action::DeleteAutoscaler);
    for (what, job, there, want) in [
        ("wanted", &measured, Autoscaler::Missing, Some(&apply)),
        ("edited", &measured, Autoscaler::Outdated, Some(&apply)),
        ("as it should be", &measured, Autoscaler::Current, None),
        ("never wanted", &plain, Autoscaler::Missing, None),
        (
            "wanted no more",
            &plain,
            Autoscaler::Outdated,
            Some(&delete),
        ),
        ("suspended", &suspended, Autoscaler::Current, Some(&delete)),
        (
            "edited and suspended",
            &suspended,
            Autoscaler::Outdated,
            Some(&delete),
        ),
    ] {
        let mut world = World::new(job.clone());
        world.run_all();
        world.observed.autoscaler = there;
        let decision = world.pass();
        let done: Vec<&Action> = decision
            .actions
            .iter()
            .filter(|action| [&apply, &delete].contains(action))
            .collect();
        assert_eq!(done, want.into_iter().collect::<Vec<_>>(), "{what}");
    }
}

#[test]
fn restarts_in_place_count_against_the_limit() {
    let workers = with_roles(job(Kind::PyTorch), &[(Role::Worker, 2)]);
    let mut world = World::new(limit(
        elastic(policy(workers, RestartPolicy::OnFailure), 1, 4),
        3,
    ));
    world.run_all();
    world.pod(worker(0)).restarts = 2;
    world.settle();
    assert_eq!(
        (world.state(), world.observed.status.trainyard.spent.user),
        ("Running", 2)
    );
    // The pod goes and its counter with it; what it cost stays.
    world.observed.pods.retain(|pod| pod.slot != worker(0));
    world.run_all();
    assert_eq!(world.observed.status.trainyard.spent.user, 2);
    world.pod(worker(1)).restarts = 1;
    world.settle();
    assert_eq!(world.state(), "Failed");
}

#[test]
fn another_size_of_a_collective_job_is_another_gang() {
    let mut world = World::new(job(Kind::Jax));
    world.run_all();
    world.job.roles.get_mut(&Role::Worker).unwrap().replicas = 3;
    world.run_all();
    assert_eq!(
        world.pods(),
        ["j-worker-0#2", "j-worker-1#2", "j-worker-2#2"]
    );
    assert_eq!(
        world.observed.status.trainyard.spent,
        Spent::default(),
        "an edit costs nothing"
    );
}

#[test]
fn mpi_workers_come_and_go_without_a_restart() {
    let mut world = World::new(job(Kind::MpiV1));
    world.run_all();
    assert_eq!(
        world.pods(),
        ["j-launcher#1", "j-worker-0#1", "j-worker-1#1"]
    );
    world.job.roles.get_mut(&Role::Worker).unwrap().replicas = 3;
    world.run_all();
    assert_eq!(world.pods().len(), 4);
    world.job.roles.get_mut(&Role::Worker).unwrap().replicas = 1;
    world.run_all();
    assert_eq!(world.pods(), ["j-launcher#1", "j-worker-0#1"]);
    let shared = world.observed.shared.as_ref().unwrap();
    assert_eq!(shared.running_workers.to_string(), "0");
    world.exit(LAUNCHER, 0);
    world.settle();
    assert_eq!(world.state(), "Succeeded");
}

#[test]
fn the_mpi_launcher_waits_for_its_workers() {
    let mut world = World::new(job(Kind::MpiV1));
    let decision = world.settle();
    assert_eq!(world.pods(), ["j-worker-0#1", "j-worker-1#1"]);
    assert_eq!(
        decision.reasons[0].to_string(),
        "the launcher waits for its workers: 0 of 2 run"
    );
    let mut early = job(Kind::MpiV1);
    early.settings.compat.insert(Compat::LauncherEarly);
    let mut world = World::new(early);
    world.settle();
    assert_eq!(world.pods().len(), 3);
}

#[test]
fn pod_scope_brings_the_old_restart_back() {
    let mut job = policy(job(Kind::PyTorch), RestartPolicy::ExitCode);
    job.settings.restart_scope = Some(RestartScope::Pod);
    let mut world = World::new(job);
    world.run_all();
    let master = world.pod(MASTER).uid.clone();
    world.exit(worker(0), 137);
    world.run_all();
    assert_eq!(world.pod(MASTER).uid, master, "the others are left alone");
    assert_eq!(world.observed.status.trainyard.spent.user, 1);
    assert_eq!(world.state(), "Running");
}

#[test]
fn nothing_to_run_is_not_success() {
    let mut world = World::new(with_roles(job(Kind::Jax), &[(Role::Worker, 0)]));
    let decision = world.settle();
    assert_eq!(decision.reasons[0].code(), Code::NothingToRun);
    assert_eq!(world.state(), "Created");
}
