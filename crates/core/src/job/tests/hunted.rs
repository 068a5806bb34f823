//! Cases that the simulation found, each as short as it can be.

use super::*;
use crate::spec::{Framework, Tf};

#[test]
fn a_success_outside_the_wanted_slots_is_none_inside() {
    let mut world = World::new(with_roles(job(Kind::Paddle), &[(Role::Worker, 4)]));
    world.run_all();
    world.exit(worker(2), 0);
    world.settle();
    world.job = with_roles(world.job, &[(Role::Worker, 1)]);
    world.pass();
    assert_ne!(world.state(), "Succeeded", "worker 0 has not ended");
}

#[test]
fn old_pod_blocks_new_pod_of_same_name() {
    let mut world = World::new(job(Kind::Tf));
    world.run_all();
    let mut going = world.observed.pods.clone();
    world.job.run_policy.suspend = true;
    world.settle();
    world.job.run_policy.suspend = false;
    for pod in &mut going {
        pod.deleted_at = Some(at(0));
    }
    world.observed.pods = going;
    let decision = world.pass();
    let created = |action: &Action| matches!(action, Action::CreatePod { .. });
    assert!(
        !decision.actions.iter().any(created),
        "{:?}",
        decision.actions
    );
    assert_eq!(decision.reasons[0].code(), Code::WaitingForOldPods);
    world.observed.pods.clear();
    world.settle();
    assert_eq!(
        world.pods(),
        ["j-chief-0#2", "j-worker-0#2", "j-worker-1#2"]
    );
}

#[test]
fn a_new_attempt_does_not_wait_for_nodes_of_the_last() {
    let mut world = World::new(with_roles(job(Kind::Jax), &[(Role::Worker, 2)]));
    world.job = policy(world.job, RestartPolicy::OnFailure);
    world.run_all();
    let node = world.pod(worker(0)).node.clone().expect("it has a node");
    world
        .observed
        .nodes
        .insert(node, NodeHealth::SilentSince(at(0)));
    assert_eq!(world.pass().reasons[0].code(), Code::NodeSilent);
    world.exit(worker(1), 1);
    let decision = decide(&world.job, &world.observed, at(1));
    assert_eq!(decision.status.trainyard.attempt, 2);
    assert_eq!(decision.reasons[0].code(), Code::WaitingForOldPods);
}

#[test]
fn exit_after_deletion_is_not_a_failure() {
    // seconds at which the deletion was asked for and the program ended, and who pays
    let cases = [
        ("stopped", 10, Some(12), Account::Platform),
        ("at once", 10, Some(10), Account::Platform),
        ("nobody saw when", 10, None, Account::Platform),
        ("before it", 10, Some(9), Account::User),
    ];
    for (name, deleted, ended, want) in cases {
        let mut world = World::new(policy(job(Kind::PyTorch), RestartPolicy::OnFailure));
        world.run_all();
        world.exit(worker(0), 143);
        let pod = world.pod(worker(0));
        pod.deleted_at = Some(at(deleted));
        pod.exit = pod.exit.map(|exit| Exit {
            at: ended.map(at),
            ..exit
        });
        let spent = world.pass().status.trainyard.spent;
        assert_eq!(spent.of(want), 1, "{name}: {spent:?}");
    }
}

#[test]
fn job_fails_when_no_pod_is_left() {
    let mut tf = with_roles(job(Kind::Tf), &[(Role::Worker, 2)]);
    tf.framework = Framework::Tf(Tf {
        dynamic_worker: true,
        ..Tf::default()
    });
    let mut world = World::new(tf);
    world.run_all();
    world.exit(worker(0), 1);
    world.settle();
    assert_eq!(world.state(), "Running", "worker 1 still trains");
    world.exit(worker(1), 0);
    world.settle();
    assert_eq!(world.state(), "Failed");
    assert_eq!(
        world.message(),
        "TFJob n/j has failed because 1 Worker replica(s) failed."
    );
}

#[test]
fn a_launcher_does_not_wait_for_workers_that_have_ended() {
    let mut world = World::new(job(Kind::MpiV1));
    world.settle();
    world.exit(worker(1), 0);
    world.settle();
    assert_eq!(world.state(), "Failed");
    assert_eq!(
        world.message(),
        "MPIJob j is failed because 1 Worker replica(s) ended before the Launcher started."
    );
}

#[test]
fn a_resized_gang_whose_pods_are_gone_does_not_run() {
    let mut world = World::new(with_roles(job(Kind::Paddle), &[(Role::Worker, 1)]));
    world.run_all();
    assert_eq!(world.state(), "Running");
    world.observed.pods.clear();
    world.job = with_roles(world.job, &[(Role::Worker, 0)]);
    world.pass();
    assert_eq!(world.conditions(), "Created,Restarting");
}

#[test]
fn the_order_of_the_list_says_nothing() {
    let mut world = World::new(policy(job(Kind::PyTorch), RestartPolicy::OnFailure));
    world.run_all();
    world.exit(worker(1), 1);
    let mut reversed = world.observed.clone();
    reversed.pods.reverse();
    assert_eq!(
        decide(&world.job, &world.observed, at(9)),
        decide(&world.job, &reversed, at(9))
    );
}

#[test]
fn a_borne_worker_on_a_dead_node_is_replaced() {
    let mut mpi = job(Kind::MpiV2);
    mpi.settings.restart_scope = Some(RestartScope::Pod);
    mpi.settings.compat = [Compat::DisruptionsFail].into();
    let mut world = World::new(mpi);
    world.run_all();
    let (uid, node) = (world.pod(worker(1)).uid.clone(), "node-1".to_owned());
    world.observed.nodes.insert(node, NodeHealth::Deleted);
    let decision = world.pass();
    let gone = Action::DeletePod {
        slot: worker(1),
        uid,
        removal: Removal::Forced,
    };
    assert!(decision.actions.contains(&gone), "{:?}", decision.actions);
    assert_eq!(decision.status.trainyard.spent.infrastructure, 1);
}
