//! Restarts that someone asks for.

use super::*;

fn ask(world: &mut World, name: &str) {
    world.job.settings.restart = Some(name.to_owned());
}

#[test]
fn each_request_is_one_attempt_without_charge() {
    for scope in [RestartScope::Gang, RestartScope::Pod] {
        let mut job = job(Kind::PyTorch);
        job.settings.restart_scope = Some(scope);
        let mut world = World::new(job);
        world.run_all();
        ask(&mut world, "one");
        let decision = world.pass();
        assert_eq!(decision.status.trainyard.attempt, 2, "{scope:?}");
        assert_eq!(world.state(), "Restarting");
        assert_eq!(
            world.message(),
            "PyTorchJob j is restarting because it was asked to."
        );
        world.run_all();
        assert_eq!(world.conditions(), "Created,Running");
        assert_eq!(
            world.pods(),
            ["j-master-0#2", "j-worker-0#2", "j-worker-1#2"]
        );
        assert_eq!(world.observed.status.trainyard.spent, Spent::default());
        ask(&mut world, "two");
        world.run_all();
        assert_eq!(world.observed.status.trainyard.attempt, 3, "{scope:?}");
        world.job.settings.restart = None;
        world.run_all();
        assert_eq!(world.observed.status.trainyard.attempt, 3, "{scope:?}");
    }
}

#[test]
fn restart_request_in_new_job_is_first_attempt() {
    let mut world = World::new(job(Kind::Jax));
    ask(&mut world, "before it began");
    world.run_all();
    assert_eq!(world.observed.status.trainyard.attempt, 1);
}

#[test]
fn a_request_beside_a_failure_is_paid_and_begun_once() {
    let mut world = World::new(limit(
        policy(job(Kind::PyTorch), RestartPolicy::OnFailure),
        3,
    ));
    world.run_all();
    ask(&mut world, "one");
    world.exit(worker(0), 1);
    world.run_all();
    let record = &world.observed.status.trainyard;
    assert_eq!((record.attempt, record.spent.user), (2, 1));
}

#[test]
fn a_request_ends_the_pause_after_failures() {
    let mut world = World::new(policy(job(Kind::PyTorch), RestartPolicy::OnFailure));
    for _ in 0..2 {
        world.run_all();
        world.exit(worker(0), 1);
        world.settle();
    }
    assert!(world.observed.status.trainyard.retry_at.is_some());
    assert!(world.observed.pods.is_empty());
    ask(&mut world, "now");
    world.run_all();
    assert_eq!(world.observed.status.trainyard.attempt, 4);
    assert_eq!(world.state(), "Running");
}

#[test]
fn restart_request_waits_for_resume() {
    let mut world = World::new(job(Kind::PyTorch));
    world.run_all();
    world.job.run_policy.suspend = true;
    world.settle();
    ask(&mut world, "one");
    world.settle();
    assert!(world.observed.pods.is_empty());
    world.job.run_policy.suspend = false;
    world.run_all();
    assert_eq!(world.observed.status.trainyard.attempt, 2);
    world.exit(MASTER, 0);
    world.settle();
    ask(&mut world, "two");
    world.settle();
    assert_eq!(world.observed.status.trainyard.attempt, 2);
    assert_eq!(world.state(), "Succeeded");
}

/// Found by the simulation: the attempt that was over was still said to wait for its node.
#[test]
fn an_attempt_that_is_over_waits_for_no_silent_node() {
    for scope in [RestartScope::Gang, RestartScope::Pod] {
        let mut job = job(Kind::PyTorch);
        job.settings.restart_scope = Some(scope);
        let mut world = World::new(job);
        world.run_all();
        world.pod(worker(0)).node = Some("n".to_owned());
        let silent = NodeHealth::SilentSince(at(0));
        world.observed.nodes.insert("n".to_owned(), silent);
        world.now = 1;
        assert_eq!(
            world.pass().reasons[0].code(),
            Code::NodeSilent,
            "{scope:?}"
        );
        ask(&mut world, "one");
        assert_eq!(
            world.pass().reasons[0].code(),
            Code::WaitingForOldPods,
            "{scope:?}"
        );
    }
}
