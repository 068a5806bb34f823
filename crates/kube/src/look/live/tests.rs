//! Watching a cluster through an API server that fails.

use std::{collections::BTreeSet, time::Duration};

use trainyard_core::{job::PodPhase, spec::Kind};

use super::{Changed, Live, state::PODS};
use crate::{
    look::Api,
    scripted::{Fault, Server, Verb, job, job_name, options, rule::Rule, running},
};

/// Waits until what is watched is as `wanted`; fails where it never is.
async fn until(live: &Live, what: &str, wanted: impl Fn(&Live) -> bool) {
    let met = tokio::time::timeout(Duration::from_mins(20), async {
        while !wanted(live) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(met.await.is_ok(), "{what}: {:?}", live.health());
}

/// Runs `test` while `live` is kept as the cluster is.
async fn watching(server: &Server, live: &Live, test: impl Future<Output = ()>) {
    let api = Api {
        client: server.client_of("dashboard"),
        server: "https://cluster.test".to_owned(),
        token: None,
    };
    tokio::select! {
        () = api.watch(live) => unreachable!("it watches without end"),
        () = test => {}
    }
}

fn names(live: &Live) -> BTreeSet<String> {
    let jobs = live.jobs();
    jobs.iter().map(|job| job.name().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn jobs_and_pods_are_seen_as_they_change() {
    let server = Server::new();
    server.add_nodes(2);
    let operator = server.operator(options());
    server.add_job(job(Kind::PyTorch, "a", 2));
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    server.with(|world| world.checks_rights = false);
    let live = Live::new(None);
    watching(&server, &live, async {
        until(&live, "the job is seen", |live| names(live).contains("a")).await;
        let runs = |live: &Live| {
            let Some(job) = live.jobs().first().and_then(super::LiveJob::read) else {
                return false;
            };
            let pods = live.pods(&job);
            let run = pods.iter().filter(|pod| pod.phase == PodPhase::Running);
            run.filter(|pod| pod.observed.is_some()).count() == 2
        };
        until(&live, "its pods are seen", runs).await;
        let uid = live.jobs()[0].uid().to_owned();
        assert!(live.changed().jobs.contains(&uid));
        assert_eq!(live.changed(), Changed::default(), "it is taken once");
        server.with(|world| {
            let name = job_name(Kind::PyTorch, "a");
            world.remove(&name, &serde_json::json!({})).unwrap();
        });
        until(&live, "the job is gone", |live| live.jobs().is_empty()).await;
        assert!(live.changed().gone.contains(&uid));
    })
    .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_forbidden_stops_no_other() {
    let server = Server::new();
    server.add_job(job(Kind::PyTorch, "a", 1));
    server.add_job(job(Kind::Jax, "b", 1));
    server.on(Rule::new(Verb::List, "/jaxjobs", Fault::status(403)));
    server.on(Rule::new(Verb::List, "/pods", Fault::status(403)));
    let live = Live::new(Some("n"));
    watching(&server, &live, async {
        until(&live, "all is known", |live| live.health().is_complete()).await;
        assert_eq!(names(&live), BTreeSet::from(["a".to_owned()]));
        let health = live.health();
        let refused: Vec<&str> = health
            .sources
            .iter()
            .filter(|it| it.trouble.as_ref().is_some_and(|it| it.code == Some(403)))
            .map(|it| it.name.as_str())
            .collect();
        assert_eq!(refused, ["jaxjobs", "pods"]);
        let words = &health.sources[PODS].trouble.as_ref().unwrap().words;
        assert!(words.starts_with("cannot list pods"), "{words}");
        assert_eq!(health.unreachable, None);
        // The right is given later.
        server.heal();
        until(&live, "the other kind", |live| names(live).len() == 2).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_withdrawn_hides_the_jobs() {
    let server = Server::new();
    server.add_job(job(Kind::PyTorch, "a", 1));
    let live = Live::new(None);
    watching(&server, &live, async {
        until(&live, "the job is seen", |live| !live.jobs().is_empty()).await;
        for verb in [Verb::List, Verb::Watch] {
            server.on(Rule::new(verb, "/pytorchjobs", Fault::status(403)));
        }
        server.close_watches();
        until(&live, "it is hidden", |live| live.jobs().is_empty()).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_known_stays_while_nothing_answers() {
    let server = Server::new();
    server.add_job(job(Kind::PyTorch, "a", 1));
    let live = Live::new(None);
    watching(&server, &live, async {
        until(&live, "all is known", |live| live.health().is_complete()).await;
        server.on(Rule::new(Verb::List, "", Fault::Cut));
        server.on(Rule::new(Verb::Watch, "", Fault::Cut));
        server.on(Rule::new(Verb::Get, "", Fault::Cut));
        server.close_watches();
        let before = live.health().answered_at;
        until(&live, "it is noticed", |live| {
            live.health().unreachable.is_some()
        })
        .await;
        assert_eq!(names(&live).len(), 1, "the job is still shown");
        assert_eq!(live.health().answered_at, before, "with its age");
        server.heal();
        until(&live, "it is there again", |live| {
            live.health().unreachable.is_none()
        })
        .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_lists_again() {
    let server = Server::new();
    server.add_job(job(Kind::PyTorch, "a", 1));
    let live = Live::new(None);
    watching(&server, &live, async {
        until(&live, "the job is seen", |live| names(live).len() == 1).await;
        let expired = Rule::new(Verb::Watch, "/pytorchjobs", Fault::expired_event());
        server.on(expired.times(1));
        server.close_watches();
        server.add_job(job(Kind::PyTorch, "b", 1));
        until(&live, "the other job", |live| names(live).len() == 2).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn watching_costs_few_calls() {
    let server = Server::new();
    for number in 0..10 {
        server.add_job(job(Kind::PyTorch, &format!("j{number}"), 1));
    }
    let live = Live::new(None);
    watching(&server, &live, async {
        until(&live, "all is known", |live| names(live).len() == 10).await;
        tokio::time::sleep(Duration::from_mins(10)).await;
    })
    .await;
    let calls = server.see(|world| world.calls.len());
    // Ten jobs and ten minutes, at two calls for each.
    assert!(calls <= 200, "{calls}");
}
