//! Each failure path of a feed, on the scripted API server.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};
use trainyard_core::spec::Kind;

use super::{Feeds, News, STALE_AFTER, Scope, Source, list, list_and_watch_with};
use crate::{
    metrics::Metrics,
    scripted::{Fault, Server, Verb, rule::Rule},
    view::Bare,
};

const PATH: &str = "/api/v1/configmaps";

fn source() -> Source {
    Source {
        path: PATH.to_owned(),
        labels: None,
        fields: None,
    }
}

fn add(server: &Server, name: &str) {
    let object = json!({"metadata": {"name": name}});
    server.add("/api/v1/namespaces/n/configmaps", object);
}

/// A feed that runs, and the names that it has reported.
struct Running {
    server: Server,
    names: watch::Receiver<BTreeSet<String>>,
    feeds: Arc<Feeds>,
    metrics: Arc<Metrics>,
}

impl Running {
    fn start(server: &Server, scope: Scope) -> Self {
        let (sender, names) = watch::channel(BTreeSet::new());
        let (feeds, metrics) = (Arc::<Feeds>::default(), Arc::<Metrics>::default());
        let pulse = feeds.expect(PATH, scope, &metrics);
        let feed = list_and_watch_with::<Bare>(server.client(), source(), pulse, move |news| {
            sender.send_modify(|names: &mut BTreeSet<String>| match news {
                News::All(items, _) => {
                    *names = items.into_iter().map(|item| item.metadata.name).collect();
                }
                News::Is(item) => drop(names.insert(item.metadata.name)),
                News::Gone(item) => drop(names.remove(&item.metadata.name)),
                News::Version(_) => {}
            });
        });
        tokio::spawn(feed);
        Self {
            server: server.clone(),
            names,
            feeds,
            metrics,
        }
    }

    async fn sees(&mut self, name: &str) {
        let seen = self.names.wait_for(|names| names.contains(name));
        let seen = tokio::time::timeout(Duration::from_mins(30), seen).await;
        assert!(matches!(seen, Ok(Ok(_))), "never saw `{name}`");
    }

    fn asked(&self, verb: Verb) -> usize {
        self.server.see(|world| world.asked(verb, PATH).count())
    }
}

#[tokio::test(start_paused = true)]
async fn a_feed_outlives_every_failure() {
    let watch = |fault: Fault, times: u64| Rule::new(Verb::Watch, PATH, fault).times(times);
    let list = |fault: Fault, times: u64| Rule::new(Verb::List, PATH, fault).times(times);
    let garbage = || Fault::Garbage("<html>\n".to_owned());
    // What fails, the lists that it takes, and within how many seconds the next object is seen.
    let cases = [
        ("nothing", watch(Fault::Cut, 0), 1, 1),
        ("410 as a status", watch(Fault::status(410), 1), 2, 2),
        ("410 as an event", watch(Fault::expired_event(), 1), 2, 2),
        ("400", watch(Fault::status(400), 1), 2, 2),
        ("403", watch(Fault::status(403), 1), 2, 2),
        (
            "504 for a version",
            watch(Fault::version_too_large(), 1),
            2,
            2,
        ),
        ("504 otherwise", watch(Fault::status(500), 1), 1, 2),
        ("429", watch(Fault::retry_after(7), 1), 1, 9),
        ("500 four times", watch(Fault::status(500), 4), 1, 15),
        ("500 five times", watch(Fault::status(500), 5), 2, 30),
        ("cut", watch(Fault::Cut, 2), 1, 5),
        ("no JSON, five times", watch(garbage(), 5), 2, 30),
        ("no head", watch(Fault::Silent, 1), 2, 70),
        ("a head and then nothing", watch(Fault::HeadOnly, 1), 2, 190),
        ("a list is 500", list(Fault::status(500), 2), 3, 5),
        ("a list is 429", list(Fault::retry_after(20), 1), 2, 30),
        ("a list is silent", list(Fault::Silent, 1), 2, 70),
        ("a list is half there", list(Fault::Unfinished, 1), 2, 70),
        ("a list is torn", list(Fault::Torn, 1), 2, 5),
        ("a list is not JSON", list(garbage(), 1), 2, 5),
        ("a list has no end", list(Fault::Endless, 2_000), 2_001, 5),
    ];
    for (name, rule, lists, seconds) in cases {
        let server = Server::new();
        add(&server, "a");
        server.on(rule);
        let began = Instant::now();
        let mut feed = Running::start(&server, Scope::Everything);
        feed.sees("a").await;
        add(&server, "b");
        feed.sees("b").await;
        let took = began.elapsed();
        assert_eq!(feed.asked(Verb::List), lists, "{name}");
        assert!(took <= Duration::from_secs(seconds), "{name}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_watch_backs_off() {
    let server = Server::new();
    server.on(Rule::new(Verb::Watch, PATH, Fault::status(400)));
    let _feed = Running::start(&server, Scope::Everything);
    tokio::time::sleep(Duration::from_mins(10)).await;
    let lists = server.see(|world| world.asked(Verb::List, PATH).count());
    assert!((10..60).contains(&lists), "{lists} lists in ten minutes");
    server.heal();
    server.on(Rule::new(Verb::Watch, PATH, Fault::Garbage(String::new())));
    let before = server.see(|world| world.calls.len());
    tokio::time::sleep(Duration::from_mins(10)).await;
    let calls = server.see(|world| world.calls.len()) - before;
    assert!(calls < 100, "{calls} calls for watches that end at once");
}

#[tokio::test(start_paused = true)]
async fn endless_watch_is_ended_and_resumed() {
    let server = Server::new();
    add(&server, "a");
    let mut feed = Running::start(&server, Scope::Everything);
    feed.sees("a").await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(feed.asked(Verb::List), 1, "bookmarks are signs of life");
    let watches = feed.asked(Verb::Watch);
    assert!((12..14).contains(&watches), "{watches} watches in an hour");
    let ages = feed.feeds.ages();
    assert!(ages[0].silent <= Duration::from_secs(61), "{ages:?}");
    server.close_watches();
    add(&server, "b");
    feed.sees("b").await;
    assert_eq!(feed.asked(Verb::List), 1);
}

#[tokio::test(start_paused = true)]
async fn one_object_that_cannot_be_decoded_blocks_no_other() {
    let server = Server::new();
    add(&server, "a");
    add(&server, "gone");
    let bad = json!({"metadata": {"name": "bad", "namespace": "n", "labels": 5}});
    server.on(Rule::new(Verb::List, PATH, Fault::Items(vec![bad, json!(7)])).times(1));
    let event = |kind: &str, object: Value| json!({"type": kind, "object": object}).to_string();
    let worse = json!({"metadata": {"name": "worse", "labels": 5, "resourceVersion": "102"}});
    let gone = json!({"metadata": {"name": "gone", "namespace": "n", "annotations": 5,
        "resourceVersion": "102"}});
    let lines = vec![event("MODIFIED", worse), event("DELETED", gone)];
    server.on(Rule::new(Verb::Watch, PATH, Fault::Lines(lines)).times(1));
    let mut feed = Running::start(&server, Scope::Everything);
    feed.sees("a").await;
    add(&server, "b");
    feed.sees("b").await;
    let names: Vec<String> = feed.names.borrow().iter().cloned().collect();
    assert_eq!(names, ["a", "b"], "one that is gone is known by its name");
    assert_eq!(feed.asked(Verb::List), 1, "nothing is listed again for it");
    let text = feed.metrics.text();
    let line = format!("trainyard_undecodable_objects_total{{feed=\"{PATH}\"}} 4");
    assert!(text.contains(&line), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_list_outside_of_a_feed_is_bounded_too() {
    let server = Server::new();
    server.on(Rule::new(Verb::List, PATH, Fault::HeadOnly).times(1));
    let (client, source) = (server.client(), source());
    let began = Instant::now();
    let late = list::<Bare>(&client, &source).await;
    assert!(late.is_err_and(|error| error.to_string().contains("within 60 s")));
    assert!(began.elapsed() <= Duration::from_secs(61));
    server.on(Rule::new(Verb::List, PATH, Fault::Endless));
    let endless = list::<Bare>(&client, &source).await;
    assert!(endless.is_err_and(|error| error.to_string().contains("did not end")));
}

#[tokio::test(start_paused = true)]
async fn a_feed_without_a_sign_of_life_is_stale() {
    let cases = [
        (Scope::Everything, true, false),
        (Scope::Kinds(vec![Kind::Tf]), false, true),
        (Scope::Optional(vec![Kind::Tf]), false, true),
        (Scope::Reported, false, false),
    ];
    for (scope, blind, kind) in cases {
        let server = Server::new();
        add(&server, "a");
        let mut feed = Running::start(&server, scope.clone());
        feed.sees("a").await;
        let sight = feed.feeds.sight();
        assert!(sight.borrow().is_clear());
        for verb in [Verb::Watch, Verb::List] {
            server.on(Rule::new(verb, PATH, Fault::HeadOnly));
        }
        server.close_watches();
        tokio::time::sleep(Duration::from_secs(295)).await;
        feed.feeds.review();
        assert!(sight.borrow().is_clear(), "{scope:?}: not yet");
        tokio::time::sleep(Duration::from_secs(10)).await;
        feed.feeds.review();
        assert_eq!(sight.borrow().blind, blind, "{scope:?}");
        assert_eq!(sight.borrow().kinds.contains(&Kind::Tf), kind, "{scope:?}");
        assert!(feed.feeds.ages()[0].stale);
        server.heal();
        add(&server, "b");
        feed.sees("b").await;
        assert!(sight.borrow().is_clear() && sight.borrow().kinds.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn optional_kind_holds_up_its_own_jobs_only() {
    let server = Server::new();
    server.on(Rule::new(Verb::List, PATH, Fault::status(500)));
    let mut feed = Running::start(&server, Scope::Optional(vec![Kind::Tf]));
    let sight = feed.feeds.sight();
    assert!(sight.borrow().is_clear() && feed.feeds.unlisted().is_empty());
    assert!(sight.borrow().kinds.contains(&Kind::Tf));
    server.heal();
    add(&server, "a");
    feed.sees("a").await;
    assert!(sight.borrow().kinds.is_empty());
}

#[tokio::test(start_paused = true)]
async fn unlistable_kind_blocks_others_for_minutes_only() {
    let server = Server::new();
    server.on(Rule::new(Verb::List, PATH, Fault::status(500)));
    let feed = Running::start(&server, Scope::Kinds(vec![Kind::Tf]));
    assert!(!feed.feeds.sight().borrow().is_clear());
    assert_eq!(feed.feeds.unlisted(), [PATH]);
    tokio::time::sleep(STALE_AFTER + Duration::from_secs(1)).await;
    feed.feeds.review();
    assert!(feed.feeds.sight().borrow().is_clear());
    assert!(feed.feeds.sight().borrow().kinds.contains(&Kind::Tf));
}
