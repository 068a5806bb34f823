//! Operators that lose their lease.

use std::time::Duration;

use tokio::time::Instant;
use trainyard_core::spec::Kind;

use super::operator::writes;
use crate::{
    Options,
    scripted::{
        Fault, Server, Verb, job, job_name,
        make::{has_condition, lease, lease_name},
        options,
        rule::Rule,
        running, text,
    },
};

fn led() -> Options {
    Options {
        lease: Some(lease("one")),
        ..options()
    }
}

#[tokio::test(start_paused = true)]
async fn deposed_leader_stops_and_comes_back() {
    for calls in 12..45 {
        let server = Server::new();
        server.on(Rule::new(None, "", Fault::depose("other"))
            .skip(calls)
            .times(1));
        let operator = server.operator(led());
        server.add_job(job(Kind::PyTorch, "a", 2));
        let name = job_name(Kind::PyTorch, "a");
        server
            .wait("it runs", |world| has_condition(world, &name, "Running"))
            .await;
        let made = server.see(|world| {
            let made = world.changes.iter();
            let made = made.filter(|change| change.before.is_none());
            made.filter(|change| change.name.0 == "/api/v1/pods")
                .count()
        });
        assert_eq!(made, 2, "deposed at call {calls}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_after_the_lease_is_lost() {
    let server = Server::new();
    let operator = server.operator(led());
    server.add_job(job(Kind::PyTorch, "a", 2));
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    // The lease cannot be reached; everything else can.
    let lost = Instant::now();
    server.on(Rule::new(None, "/leases", Fault::Silent));
    tokio::time::sleep(Duration::from_secs(11)).await;
    server.add_job(job(Kind::PyTorch, "b", 2));
    tokio::time::sleep(Duration::from_mins(5)).await;
    let late = server.see(|world| {
        let late = world
            .calls
            .iter()
            .filter(|call| call.at > lost + Duration::from_secs(11));
        late.filter(|call| writes(call)).count()
    });
    assert_eq!(late, 0);
    assert!(!*operator.operator.leads().borrow());
    server.heal();
    server
        .wait("four pods run", |world| running(world) == 4)
        .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_survives_single_failures() {
    let faults = [
        Fault::status(409),
        Fault::status(429),
        Fault::status(500),
        Fault::status(504),
        Fault::Cut,
        Fault::Lost,
        Fault::Garbage("no JSON".to_owned()),
    ];
    for fault in faults {
        let server = Server::new();
        server.on(Rule::new(Verb::Create, "/leases", fault.clone()).times(1));
        server.on(Rule::new(Verb::Update, "/leases", fault.clone())
            .skip(1)
            .times(1));
        let operator = server.operator(led());
        server
            .wait("the lease is renewed five times", |world| {
                world.asked(Verb::Update, "/leases").count() > 5
            })
            .await;
        assert!(*operator.operator.leads().borrow(), "{fault:?}");
        operator.stop().await;
        let holder = server.see(|world| {
            let lease = world.objects.get(&lease_name());
            lease.map(|lease| text(lease, "/spec/holderIdentity").to_owned())
        });
        assert_eq!(holder.as_deref(), Some(""), "released: {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_operators_never_lead_at_once() {
    let server = Server::new();
    let led = |identity: &'static str| Options {
        lease: Some(lease(identity)),
        ..options()
    };
    let one = server.operator_with(server.client_of("one"), led("one"));
    let two = server.operator_with(server.client_of("two"), led("two"));
    server.on(Rule::new(None, "/leases", Fault::Silent)
        .of("one")
        .skip(8)
        .times(8));
    server.on(Rule::new(None, "/leases", Fault::status(500))
        .of("two")
        .skip(30)
        .times(20));
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let both = one.operator.caller.fence.holds() && two.operator.caller.fence.holds();
        assert!(!both);
    }
    one.stop().await;
    two.stop().await;
}
