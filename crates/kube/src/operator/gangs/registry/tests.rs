use trainyard_core::{
    barrier::{Command, Fence, Order, Roster, Stage},
    spec::Kind,
};

use super::*;

const JOB: &str = "job-uid";

fn key() -> JobKey {
    JobKey {
        kind: Kind::PyTorch,
        namespace: "n".into(),
        name: "a".into(),
    }
}

fn seen(registry: &mut Registry, leader: &str) -> Seen {
    registry.see(&key(), JOB, Some(leader), Limits::default())
}

fn summary(attempt: u32) -> Envelope<Summary> {
    Envelope {
        job: JOB.to_owned(),
        message: Summary {
            fence: Some(Fence::new(attempt, Stage::Go)),
            ..Summary::default()
        },
    }
}

fn order(attempt: u32) -> Envelope<OperatorMessage> {
    Envelope {
        job: JOB.to_owned(),
        message: OperatorMessage::Order(Order {
            command: Command::Go { attempt },
            roster: Roster::default(),
        }),
    }
}

fn ack() -> Envelope<OperatorMessage> {
    Envelope {
        job: JOB.to_owned(),
        message: OperatorMessage::Ack,
    }
}

fn keep(registry: &mut Registry, seen: Seen, send: Option<Envelope<OperatorMessage>>) {
    let decided = Decided {
        coordinator: seen.coordinator,
        send,
        in_barrier: false,
    };
    registry.keep(&key(), JOB, decided);
}

fn waiting(outbox: &Outbox) -> Option<Envelope<OperatorMessage>> {
    outbox.take()
}

#[test]
fn only_the_leading_pod_connects() {
    let mut registry = Registry::default();
    assert!(registry.connect(&key(), "p").is_none(), "no such gang");
    assert!(!seen(&mut registry, "p").leader_connected);
    assert!(registry.leads(&key(), "p") && !registry.leads(&key(), "q"));
    assert!(registry.connect(&key(), "q").is_none());
    let link = registry.connect(&key(), "p").unwrap();
    assert_eq!(link.job, JOB);
    assert!(seen(&mut registry, "p").leader_connected);
    // Another pod leads.
    assert!(!seen(&mut registry, "q").leader_connected);
    assert!(link.closed.has_changed().is_err(), "it is closed");
    let arrival = registry.receive(&key(), link.id, summary(1));
    assert_eq!(arrival, Arrival::Closed);
    assert!(!registry.disconnect(&key(), link.id));
}

#[test]
fn a_second_connection_replaces_the_first() {
    let mut registry = Registry::default();
    seen(&mut registry, "p");
    let first = registry.connect(&key(), "p").unwrap();
    let second = registry.connect(&key(), "p").unwrap();
    assert!(first.closed.has_changed().is_err());
    assert!(second.closed.has_changed().is_ok());
    assert!(!registry.disconnect(&key(), first.id), "late");
    assert_eq!(
        registry.receive(&key(), first.id, summary(1)),
        Arrival::Closed
    );
    assert_eq!(
        registry.receive(&key(), second.id, summary(1)),
        Arrival::Pass
    );
    assert!(registry.disconnect(&key(), second.id));
}

#[test]
fn what_came_during_a_pass_is_seen_by_the_next() {
    let mut registry = Registry::default();
    seen(&mut registry, "p");
    let link = registry.connect(&key(), "p").unwrap();
    registry.receive(&key(), link.id, summary(1));
    let before = seen(&mut registry, "p");
    registry.receive(&key(), link.id, summary(2));
    keep(&mut registry, before, Some(ack()));
    let pending = registry.gangs[&key()].summary.as_ref().unwrap();
    assert_eq!(*pending.1, summary(2));
    let after = seen(&mut registry, "p");
    keep(&mut registry, after, None);
    assert!(registry.gangs[&key()].summary.is_none());
    // A pass whose status was not written keeps nothing.
    registry.receive(&key(), link.id, summary(3));
    drop(seen(&mut registry, "p"));
    assert!(registry.gangs[&key()].summary.is_some());
}

#[test]
fn unchanged_summaries_need_no_pass() {
    let mut registry = Registry::default();
    seen(&mut registry, "p");
    let link = registry.connect(&key(), "p").unwrap();
    let pass = |registry: &mut Registry, send| {
        let seen = seen(registry, "p");
        keep(registry, seen, send);
    };
    let receive = |registry: &mut Registry| registry.receive(&key(), link.id, summary(1));
    assert_eq!(receive(&mut registry), Arrival::Pass);
    pass(&mut registry, Some(order(1)));
    assert_eq!(waiting(&link.outbox), Some(order(1)));
    assert_eq!(
        receive(&mut registry),
        Arrival::Pass,
        "it had no acknowledgement"
    );
    pass(&mut registry, Some(ack()));
    assert_eq!(waiting(&link.outbox), Some(ack()));
    assert_eq!(receive(&mut registry), Arrival::Acknowledged);
    assert_eq!(waiting(&link.outbox), Some(ack()));
    pass(&mut registry, None);
    assert_eq!(receive(&mut registry), Arrival::Acknowledged);
    pass(&mut registry, Some(order(2)));
    assert_eq!(
        receive(&mut registry),
        Arrival::Pass,
        "there was another order"
    );
    pass(&mut registry, Some(ack()));
    let other = registry.receive(&key(), link.id, summary(2));
    assert_eq!(other, Arrival::Pass);
}

#[test]
fn every_summary_of_a_barrier_gets_a_pass() {
    let mut registry = Registry::default();
    seen(&mut registry, "p");
    let link = registry.connect(&key(), "p").unwrap();
    for in_barrier in [true, false] {
        registry.receive(&key(), link.id, summary(1));
        let coordinator = seen(&mut registry, "p").coordinator;
        let decided = Decided {
            coordinator,
            send: Some(ack()),
            in_barrier,
        };
        registry.keep(&key(), JOB, decided);
        assert_eq!(registry.is_in_barrier(&key()), in_barrier);
        let want = if in_barrier {
            Arrival::Pass
        } else {
            Arrival::Acknowledged
        };
        let arrival = registry.receive(&key(), link.id, summary(1));
        assert_eq!(arrival, want, "{in_barrier}");
    }
}

#[test]
fn an_order_is_never_replaced_by_an_acknowledgement() {
    let outbox = Outbox::default();
    outbox.put(ack());
    outbox.put(order(1));
    outbox.put(ack());
    assert_eq!(waiting(&outbox), Some(order(1)));
    outbox.put(order(1));
    outbox.put(order(2));
    assert_eq!(waiting(&outbox), Some(order(2)));
    assert_eq!(waiting(&outbox), None);
}

#[test]
fn an_order_without_a_connection_is_sent_to_the_next() {
    let mut registry = Registry::default();
    let before = seen(&mut registry, "p");
    keep(&mut registry, before, Some(order(1)));
    assert!(registry.gangs[&key()].gone.is_some());
    let link = registry.connect(&key(), "p").unwrap();
    registry.receive(&key(), link.id, summary(1));
    let after = seen(&mut registry, "p");
    keep(&mut registry, after, Some(order(1)));
    assert!(registry.gangs[&key()].gone.is_none());
    assert_eq!(waiting(&link.outbox), Some(order(1)));
}

#[test]
fn a_job_made_again_is_another() {
    let mut registry = Registry::default();
    let before = seen(&mut registry, "p");
    let link = registry.connect(&key(), "p").unwrap();
    registry.see(&key(), "other-uid", Some("p"), Limits::default());
    assert!(link.closed.has_changed().is_err());
    keep(&mut registry, before, Some(ack()));
    assert_eq!(registry.gangs[&key()].job, "other-uid");
    let link = registry.connect(&key(), "p").unwrap();
    registry.forget(&key());
    assert!(link.closed.has_changed().is_err() && registry.gangs.is_empty());
    let arrival = registry.receive(&key(), link.id, summary(1));
    assert_eq!((arrival, registry.gangs.len()), (Arrival::Closed, 0));
}
