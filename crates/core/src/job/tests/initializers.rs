//! Initializers run before the gang, alone, and pay for themselves.

use super::*;
use crate::{
    gang::Gang,
    launch::Cluster,
    spec::{check, holds_ranks, read},
};

const DATASET: Slot = Slot {
    role: Role::DatasetInitializer,
    index: 0,
};
const MODEL: Slot = Slot {
    role: Role::ModelInitializer,
    index: 0,
};
const NODE: Slot = Slot {
    role: Role::Node,
    index: 0,
};

fn tuned() -> Job {
    let text = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec: {runtimeRef: {name: torchtune-llama3.2-1b}}\n";
    let file = read(text.as_bytes()).unwrap();
    check(&file.documents[0]).job.unwrap()
}

#[test]
fn initializers_restart_alone() {
    let mut world = World::new(limit(tuned(), 1));
    world.run_all();
    for failures in 1..=3 {
        world.exit(DATASET, 1);
        world.run_all();
        // Two failures in a row are followed by a pause.
        world.now += 1000;
        world.run_all();
        let record = &world.observed.status.trainyard;
        assert_eq!(record.attempt, 1, "the attempt goes on");
        assert_eq!(record.spent.user, 0, "the budget of the job is not used");
        assert_eq!(record.initializers[&Role::DatasetInitializer], failures);
        let model = "uid-2";
        assert_eq!(world.pod(MODEL).uid, model, "the other is left alone");
    }
    world.exit(DATASET, 0);
    world.exit(MODEL, 0);
    world.run_all();
    assert!(
        world.pods().contains(&"t-node-0-0#1".to_owned()),
        "{:?}",
        world.pods()
    );
    world.exit(NODE, 0);
    world.settle();
    assert_eq!(world.state(), "Succeeded");
}

#[test]
fn initializers_have_a_budget_of_their_own() {
    let mut job = tuned();
    if let Framework::Train(own) = &mut job.framework {
        own.retries.insert(Role::DatasetInitializer, 2);
    }
    let mut world = World::new(job);
    let mut failures = 0;
    while world.state_or_none() != Some("Failed") {
        world.now += 1000;
        world.run_all();
        world.exit(DATASET, 1);
        failures += 1;
        world.settle();
        assert!(failures < 10);
    }
    assert_eq!(failures, 3, "one run and two retries");
    assert!(
        world
            .message()
            .contains("its dataset-initializer failed 3 times"),
        "{}",
        world.message()
    );
}

#[test]
fn a_restart_leaves_a_running_initializer_alone() {
    let mut job = tuned();
    if let Framework::Train(own) = &mut job.framework {
        own.after.clear();
    }
    let mut world = World::new(job);
    world.run_all();
    world.exit(NODE, 1);
    world.now += 1000;
    world.run_all();
    assert_eq!(
        world.pods(),
        [
            "t-dataset-initializer-0-0#1",
            "t-model-initializer-0-0#1",
            "t-node-0-0#2"
        ]
    );
    world.exit(DATASET, 1);
    world.now += 1000;
    world.run_all();
    assert_eq!(world.observed.status.trainyard.attempt, 2);
    assert_eq!(world.observed.status.trainyard.spent.user, 1);
}

#[test]
fn initializers_are_no_members_of_the_gang() {
    let job = tuned();
    let gang = Gang::of(&job, &Cluster::default(), at(0)).unwrap();
    let names: Vec<&str> = gang.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!((names, gang.minimum), (vec!["t-node-0-0"], 1));
    let holding = job.roles.keys().filter(|role| holds_ranks(&job, **role));
    assert_eq!(holding.collect::<Vec<_>>(), [&Role::Node]);
}
