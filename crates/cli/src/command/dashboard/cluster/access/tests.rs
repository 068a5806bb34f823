use std::{
    sync::{
        Barrier,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    thread,
};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// An API server: `TOKEN-NAME` is the token of a user, who may see namespaces of his name.
#[derive(Default)]
struct Server {
    tokens: AtomicUsize,
    rights: AtomicUsize,
    is_down: Mutex<bool>,
    revoked: Mutex<BTreeSet<String>>,
    /// Reviews of tokens wait here for each other.
    barrier: Option<Barrier>,
}

impl Server {
    fn fails(&self) -> Option<LookError> {
        lock(&self.is_down).then(|| LookError::Late {
            tried: "review".to_owned(),
            patience: Duration::from_secs(5),
        })
    }

    fn calls(&self) -> (usize, usize) {
        let count = |it: &AtomicUsize| it.load(Ordering::Relaxed);
        (count(&self.tokens), count(&self.rights))
    }
}

impl Reviewer for Server {
    fn user_of(&self, token: &str) -> Result<Option<User>, LookError> {
        self.tokens.fetch_add(1, Ordering::Relaxed);
        if let Some(barrier) = &self.barrier {
            barrier.wait();
        }
        if let Some(error) = self.fails() {
            return Err(error);
        }
        let name = token.strip_prefix("TOKEN-");
        let name = name.filter(|name| !lock(&self.revoked).contains(*name));
        Ok(name.map(|name| User {
            name: name.to_owned(),
            ..User::default()
        }))
    }

    fn may_see(&self, user: &User, what: &[Sees]) -> Vec<Result<bool, LookError>> {
        self.rights.fetch_add(what.len(), Ordering::Relaxed);
        let may = |what: &Sees| match what {
            Sees::Jobs(_, Some(namespace)) | Sees::Logs(namespace) => *namespace == user.name,
            Sees::Jobs(_, None) | Sees::Nodes => user.name == "admin",
        };
        let one = |what: &Sees| self.fails().map_or(Ok(may(what)), Err);
        what.iter().map(one).collect()
    }
}

fn token(name: &str) -> Credential {
    Credential::parse(&format!("TOKEN-{name}")).unwrap()
}

fn identify(access: &Access, server: &Server, name: &str, second: i64) -> Result<Visitor, Problem> {
    access.identify(server, &token(name), || at(second))
}

fn pairs(namespaces: &[&str]) -> Places {
    let pairs = namespaces
        .iter()
        .map(|it| (Kind::PyTorch, (*it).to_owned()));
    Places::All(pairs.collect())
}

#[test]
fn a_token_is_believed_for_less_than_a_minute() {
    let (access, server) = (Access::default(), Server::default());
    let first = identify(&access, &server, "a", 0).unwrap();
    assert_eq!(first.lasts, Duration::from_mins(1));
    let second = identify(&access, &server, "a", 44).unwrap();
    assert_eq!(
        (second.identity, second.lasts.as_secs()),
        (first.identity, 16)
    );
    assert_eq!(server.calls().0, 1, "it is reviewed once");
    identify(&access, &server, "a", 45).unwrap();
    assert_eq!(server.calls().0, 2);
    lock(&server.revoked).insert("a".to_owned());
    identify(&access, &server, "a", 89).unwrap();
    let refused = identify(&access, &server, "a", 90).unwrap_err();
    assert_eq!(refused.code, ProblemCode::Unauthorized);
    assert!(!format!("{refused:?}{access:?}").contains("TOKEN-"));
}

#[test]
fn a_refused_token_is_not_asked_for_again_at_once() {
    let (access, server) = (Access::default(), Server::default());
    let bad = Credential::parse("nobodys").unwrap();
    for second in [0, 1, 4] {
        let refused = access.identify(&server, &bad, || at(second)).unwrap_err();
        assert_eq!(refused.code, ProblemCode::Unauthorized);
    }
    assert_eq!(server.calls().0, 1);
    access.identify(&server, &bad, || at(6)).unwrap_err();
    assert_eq!(server.calls().0, 2);
}

#[test]
fn a_review_that_fails_lets_nobody_in() {
    let (access, server) = (Access::default(), Server::default());
    let visitor = identify(&access, &server, "a", 0).unwrap();
    *lock(&server.is_down) = true;
    let refused = identify(&access, &server, "b", 0).unwrap_err();
    assert_eq!(refused.code, ProblemCode::Busy);
    assert!(refused.message.contains("nothing is shown"), "{refused:?}");
    let sight = access.sight(&server, &visitor.identity, &pairs(&["a"]), at(1));
    assert!(
        sight.is_blind() && !sight.sees("PyTorchJob", "a"),
        "{sight:?}"
    );
    *lock(&server.is_down) = false;
    let sight = access.sight(&server, &visitor.identity, &pairs(&["a"]), at(4));
    assert!(sight.sees("PyTorchJob", "a"), "it is tried again");
}

#[test]
fn rights_are_asked_for_once_and_end() {
    let (access, server) = (Access::default(), Server::default());
    let own = identify(&access, &server, "a", 0).unwrap().identity;
    let all = identify(&access, &server, "admin", 0).unwrap().identity;
    let places = pairs(&["a", "b"]);
    let sight = access.sight(&server, &own, &places, at(0));
    assert!(sight.sees("PyTorchJob", "a") && !sight.sees("PyTorchJob", "b"));
    assert!(!sight.sees("JAXJob", "a") && !sight.nodes && !sight.sees_all());
    // Nodes, six kinds in all namespaces, and two namespaces.
    assert_eq!(server.calls().1, 9);
    access.sight(&server, &own, &places, at(4));
    assert_eq!(server.calls().1, 9);
    access.sight(&server, &own, &places, at(6));
    assert_eq!(server.calls().1, 17, "what was denied is asked for again");
    access.sight(&server, &own, &places, at(21));
    assert_eq!(server.calls().1, 26, "and what was allowed, later");
    let sight = access.sight(&server, &all, &places, at(0));
    assert!(sight.sees_all() && sight.nodes && sight.sees("JAXJob", "x"));
    assert_eq!(server.calls().1, 33, "who sees all is not asked about each");
    // The same calls for a namespace with jobs and for one without.
    let before = server.calls().1;
    access.sight(&server, &own, &Places::Namespace("x".to_owned()), at(40));
    let one = server.calls().1 - before;
    access.sight(&server, &own, &Places::Namespace("b".to_owned()), at(50));
    assert_eq!(server.calls().1 - before, 2 * one);
}

#[test]
fn somebody_unknown_sees_nothing() {
    let (access, server) = (Access::default(), Server::default());
    let sight = access.sight(&server, &"nobody".into(), &pairs(&["a"]), at(0));
    assert!(sight.is_blind() && server.calls() == (0, 0));
}

#[test]
fn other_groups_are_somebody_else() {
    let user = |group: &str| User {
        name: "a".to_owned(),
        groups: vec![group.to_owned()],
        ..User::default()
    };
    assert_ne!(identity_of(&user("x")), identity_of(&user("y")));
    assert_eq!(identity_of(&user("x")), identity_of(&user("x")));
}

#[test]
fn requests_with_one_token_are_one_review() {
    let server = Server {
        barrier: Some(Barrier::new(2)),
        ..Server::default()
    };
    let (access, now) = (Access::default(), AtomicI64::new(0));
    thread::scope(|scope| {
        let ask = || access.identify(&server, &token("a"), || at(now.load(Ordering::Relaxed)));
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        // The one review goes on once this thread is there, too.
        if let Some(barrier) = &server.barrier {
            barrier.wait();
        }
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    });
    assert_eq!(server.calls().0, 1);
    assert!(lock(&access.asking).is_empty(), "nothing is left of it");
}

#[test]
fn ten_thousand_identities_stay_within_bounds() {
    let (access, server) = (Access::default(), Server::default());
    for number in 0..KEPT_MAX + 500 {
        let name = format!("u{number}");
        let visitor = identify(&access, &server, &name, 0).unwrap();
        access.sight(&server, &visitor.identity, &pairs(&["a", "b"]), at(0));
    }
    let most = 2 * KEPT_MAX + 1;
    assert!(lock(&access.tokens).len() <= most && lock(&access.users).len() <= most);
    assert!(lock(&access.rights).len() <= most);
    assert!(lock(&access.good).len() <= most);
    assert!(lock(&access.asking).is_empty());
    // Who was dropped is reviewed again, and sees the same.
    let visitor = identify(&access, &server, "u0", 0).unwrap();
    let sight = access.sight(&server, &visitor.identity, &pairs(&["u0", "b"]), at(0));
    assert!(sight.sees("PyTorchJob", "u0") && !sight.sees("PyTorchJob", "b"));
}

#[test]
fn tokens_of_nobody_are_reviewed_at_a_rate() {
    let (access, server) = (Access::default(), Server::default());
    identify(&access, &server, "a", 0).unwrap();
    let bad = |number: usize| Credential::parse(&format!("bad-{number}")).unwrap();
    let begin = server.calls().0;
    // A thousand in each of ten seconds.
    for second in 0..10 {
        for number in 0..1_000 {
            let token = bad(usize::try_from(second).unwrap() * 1_000 + number);
            access.identify(&server, &token, || at(second)).unwrap_err();
        }
    }
    let reviewed = server.calls().0 - begin;
    assert!((100..=300).contains(&reviewed), "{reviewed} reviews");
    assert!(lock(&access.refused).len() <= 2 * REFUSED_MAX + 1);
    assert!(lock(&access.asking).is_empty());
    let refused = access
        .identify(&server, &bad(99_999), || at(9))
        .unwrap_err();
    assert_eq!(refused.code, ProblemCode::Busy);
    // Whoever was let in before is reviewed again, and a new user as soon as there is a place.
    identify(&access, &server, "a", 9).unwrap();
    for number in 0..200 {
        drop(access.identify(&server, &bad(50_000 + number), || at(50)));
    }
    identify(&access, &server, "a", 50).unwrap();
    identify(&access, &server, "new", 51).unwrap();
}

#[test]
fn reviews_that_fail_are_made_at_a_rate() {
    let (access, server) = (Access::default(), Server::default());
    identify(&access, &server, "a", 0).unwrap();
    let begin = server.calls().0;
    *lock(&server.is_down) = true;
    for number in 0..1_000 {
        let token = Credential::parse(&format!("bad-{number}")).unwrap();
        access.identify(&server, &token, || at(0)).unwrap_err();
    }
    assert_eq!(server.calls().0 - begin, 100);
    *lock(&server.is_down) = false;
    identify(&access, &server, "a", 45).unwrap();
    identify(&access, &server, "new", 45).unwrap();
}

/// Time servers set clocks back, and whoever may set the clock of a node does.
#[test]
fn a_clock_that_is_set_back_believes_nobody_longer() {
    const HOUR: i64 = 3_600;
    let (access, server) = (Access::default(), Server::default());
    let first = identify(&access, &server, "a", HOUR).unwrap().identity;
    let sight = access.sight(&server, &first, &pairs(&["a"]), at(HOUR));
    assert!(sight.sees("PyTorchJob", "a"));
    for number in 0..2 * REFUSALS_BURST {
        let bad = Credential::parse(&format!("nobodys-{number}")).unwrap();
        access.identify(&server, &bad, || at(HOUR)).unwrap_err();
    }
    lock(&server.revoked).insert("a".to_owned());
    let refused = identify(&access, &server, "b", 1).unwrap_err();
    assert_eq!(refused.code, ProblemCode::Busy, "of the flood");
    identify(&access, &server, "b", 2).unwrap();
    let refused = identify(&access, &server, "a", 2).unwrap_err();
    assert_eq!(refused.code, ProblemCode::Unauthorized);
    let sight = access.sight(&server, &first, &pairs(&["a"]), at(2));
    assert!(!sight.sees("PyTorchJob", "a"), "nobody knows him any more");
}
