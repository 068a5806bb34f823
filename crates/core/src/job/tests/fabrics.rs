//! The fabric of a job: waited for, settled once for an attempt, and reported.

use super::*;
use crate::fabric::FabricSpec;

fn spec(interface: &str) -> Box<FabricSpec> {
    Box::new(FabricSpec {
        interface: Some(interface.to_owned()),
        ..FabricSpec::default()
    })
}

fn on_fabric() -> World {
    let mut job = job(Kind::PyTorch);
    job.settings.fabric = Some("roce-a".to_owned());
    World::new(job)
}

fn pods(world: &World) -> usize {
    world.observed.pods.len()
}

fn in_use(world: &World) -> Option<String> {
    let fabric = world.observed.status.trainyard.fabric.as_ref()?;
    fabric.spec.as_ref()?.interface.clone()
}

#[test]
fn a_job_waits_for_its_fabric_and_says_so_once() {
    let mut world = on_fabric();
    world.observed.fabric = SeenFabric::Unknown;
    assert_eq!(world.pass().reasons[0].code(), Code::WaitingForFabric);
    assert_eq!(world.events, Vec::<String>::new());

    world.observed.fabric =
        SeenFabric::Unable("this cluster has no fabric of that name".to_owned());
    for _ in 0..3 {
        let decision = world.pass();
        assert_eq!(decision.reasons[0].code(), Code::WaitingForFabric);
        assert_eq!(
            decision.reasons[0].to_string(),
            "the job waits for the fabric `roce-a`: this cluster has no fabric of that name"
        );
        assert_eq!(pods(&world), 0);
    }
    assert_eq!(world.events, ["PyTorchJobWaitingForFabric"]);

    world.observed.fabric = SeenFabric::There(spec("net1"));
    world.pass();
    assert_eq!(pods(&world), 3);
    assert_eq!(in_use(&world).as_deref(), Some("net1"));
    world.pass();
    let added = world
        .events
        .iter()
        .filter(|event| event.ends_with("FabricAdded"));
    assert_eq!(added.count(), 1);
}

#[test]
fn an_edit_counts_from_the_next_attempt() {
    let mut world = on_fabric();
    world.observed.fabric = SeenFabric::There(spec("net1"));
    world.pass();
    world.run_all();
    world.observed.fabric = SeenFabric::There(spec("net2"));
    world.pass();
    assert_eq!(in_use(&world).as_deref(), Some("net1"), "in the attempt");

    world.exit(worker(0), 137);
    world.settle();
    world.now += 3_600;
    world.settle();
    assert_eq!(world.observed.status.trainyard.attempt, 2);
    assert_eq!(in_use(&world).as_deref(), Some("net2"), "in the next one");
}

#[test]
fn deleted_fabric_blocks_next_attempt() {
    let mut world = on_fabric();
    world.observed.fabric = SeenFabric::There(spec("net1"));
    world.pass();
    world.run_all();
    world.observed.fabric = SeenFabric::Unable("it is gone".to_owned());
    let decision = world.pass();
    assert_eq!(decision.reasons[0].code(), Code::Training);

    world.exit(worker(0), 137);
    world.settle();
    world.now += 3_600;
    world.settle();
    assert_eq!(world.observed.status.trainyard.attempt, 2);
    assert_eq!(pods(&world), 0);
    assert_eq!(world.pass().reasons[0].code(), Code::WaitingForFabric);
}

#[test]
fn fabric_added_in_attempt_waits_for_next() {
    let mut world = World::new(job(Kind::PyTorch));
    world.pass();
    world.run_all();
    world.job.settings.fabric = Some("roce-a".to_owned());
    world.observed.fabric = SeenFabric::There(spec("net1"));
    world.pass();
    assert_eq!(in_use(&world), None);
    assert_eq!(pods(&world), 3);
}

#[test]
fn unused_fabrics_do_not_delay_a_job() {
    let mut world = on_fabric();
    world.pass();
    assert_eq!(pods(&world), 3);
    assert_eq!(world.observed.status.trainyard.fabric, None);
}
