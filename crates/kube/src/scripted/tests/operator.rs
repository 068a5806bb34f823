//! An operator whose connection dies.

use std::time::Duration;

use tokio::time::Instant;
use trainyard_core::spec::Kind;

use crate::{
    Options,
    feed::STALE_AFTER,
    scripted::{
        Fault, Server, Verb, job, job_name,
        make::{has_condition, lease, lease_name},
        options,
        rule::Rule,
        running, text,
        world::{Call, World},
    },
};

/// Whether a call changes what jobs depend on.
pub(super) fn writes(call: &Call) -> bool {
    let writes = matches!(
        call.verb,
        Verb::Create | Verb::Patch | Verb::Update | Verb::Delete
    );
    writes && !call.path.contains("/leases") && !call.path.ends_with("/events")
}

fn blind(server: &Server, who: &'static str) {
    for verb in [Verb::Watch, Verb::List] {
        server.on(Rule::new(verb, "", Fault::HeadOnly).of(who));
    }
    server.close_watches();
}

fn holder(world: &World) -> String {
    let lease = world.objects.get(&lease_name());
    lease.map_or(String::new(), |lease| {
        text(lease, "/spec/holderIdentity").to_owned()
    })
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_dies_silently_is_noticed() {
    let server = Server::new();
    server.on(Rule::new(Verb::Watch, "", Fault::HeadOnly).times(20));
    let operator = server.operator(options());
    server
        .wait("all watches are open", |world| {
            world
                .calls
                .iter()
                .filter(|call| call.verb == Verb::Watch)
                .count()
                >= 9
        })
        .await;
    let began = Instant::now();
    server.add_job(job(Kind::PyTorch, "a", 2));
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    assert!(began.elapsed() < Duration::from_secs(190));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stale_watches_release_the_lease() {
    let server = Server::new();
    let led = |identity: &'static str| Options {
        lease: Some(lease(identity)),
        ..options()
    };
    let one = server.operator_with(server.client_of("one"), led("one"));
    server
        .wait("`one` leads", |world| holder(world) == "one")
        .await;
    let two = server.operator_with(server.client_of("two"), led("two"));
    server.add_job(job(Kind::PyTorch, "a", 2));
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    blind(&server, "one");
    let began = Instant::now();
    server
        .wait("`two` leads", |world| holder(world) == "two")
        .await;
    let took = began.elapsed();
    assert!(took >= Duration::from_mins(4), "{took:?}");
    assert!(took <= STALE_AFTER + Duration::from_secs(15), "{took:?}");
    server.add_job(job(Kind::Tf, "b", 1));
    server
        .wait("three pods run", |world| running(world) == 3)
        .await;
    let by_one = server.see(|world| {
        let late = |call: &&Call| call.who == "one" && call.at >= began + took;
        world
            .calls
            .iter()
            .filter(late)
            .filter(|call| writes(call))
            .count()
    });
    assert_eq!(by_one, 0, "it writes nothing while it is blind");
    assert!(one.operator.has_listed() && !one.operator.sees());
    // It sees again, and takes part again.
    server.heal();
    blind(&server, "two");
    server
        .wait("`one` leads again", |world| holder(world) == "one")
        .await;
    one.stop().await;
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_only_operator_does_not_act_on_what_is_stale() {
    let server = Server::new();
    let operator = server.operator(options());
    server.add_job(job(Kind::PyTorch, "a", 2));
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    blind(&server, "operator");
    tokio::time::sleep(STALE_AFTER + Duration::from_secs(10)).await;
    assert!(!operator.operator.sees());
    assert!(
        !operator.operator.caller.fence.holds(),
        "nothing is written"
    );
    let before = server.see(|world| world.calls.iter().filter(|call| writes(call)).count());
    let pods: Vec<_> = server.see(|world| {
        let names = world.objects.keys();
        names
            .filter(|name| name.0 == "/api/v1/pods")
            .cloned()
            .collect()
    });
    server.with(|world| world.end_pod(&pods[0], 0));
    tokio::time::sleep(Duration::from_mins(10)).await;
    let after = server.see(|world| world.calls.iter().filter(|call| writes(call)).count());
    assert_eq!(before, after);
    server.with(|world| world.end_pod(&pods[1], 0));
    server.heal();
    let name = job_name(Kind::PyTorch, "a");
    server
        .wait("the job succeeds", |world| {
            has_condition(world, &name, "Succeeded")
        })
        .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_listed_stops_no_other() {
    let server = Server::new();
    server.on(Rule::new(Verb::List, "/tfjobs", Fault::status(500)));
    let operator = server.operator(options());
    server.add_job(job(Kind::PyTorch, "a", 1));
    server.add_job(job(Kind::Tf, "b", 1));
    server
        .wait("one pod runs", |world| running(world) == 1)
        .await;
    assert!(!operator.operator.has_listed());
    server.heal();
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_is_killed_anywhere_goes_on() {
    // After each number of calls the operator is killed, and another takes over.
    for calls in (10..44).step_by(2) {
        let server = Server::new();
        let first = server.operator(options());
        server.add_job(job(Kind::PyTorch, "a", 2));
        server
            .wait("so many calls", |world| {
                world.calls.len() >= calls || running(world) == 2
            })
            .await;
        first.kill();
        let second = server.operator(options());
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
        assert_eq!(made, 2, "killed after {calls} calls");
        second.stop().await;
    }
}
