//! An API server for tests, in this process: it stores objects, answers as the API does, and does wrong what
//! the test says. No cluster, no root, no other program.
//!
//! # Use
//! ```text
//! #[tokio::test(start_paused = true)]                 // minutes of waiting pass in no time
//! async fn pods_are_made() {
//!     let server = Server::new();
//!     server.add_nodes(2);                              // make.rs: nodes, jobs of each kind
//!     server.on(Rule::new(Verb::Create, "/pods", Fault::status(500)).times(1));   // rule.rs: what goes wrong
//!     let operator = server.operator(Options { placement: false, ..options() });
//!     server.add_job(job(Kind::PyTorch, "a", 2));
//!     server.wait("two pods run", |world| running(world) == 2).await;   // bounded; prints the calls if it fails
//!     server.with(|world| world.end_pod(&pod("a-worker-0"), 1));        // kubelet.rs: the kubelet is steered
//!     operator.stop().await;
//! }
//! ```
//! From the first operator on, every call needs a right of `rights::OPERATOR`, as on a cluster. `server.client()` is a client in this process, which works with a paused clock; `server.listen()` gives one over
//! TCP on 127.0.0.1. `world.calls` holds every request, `world.changes` every change of an object.

mod answer;
pub(crate) mod kubelet;
pub(crate) mod make;
mod patch;
pub(crate) mod path;
mod priority;
mod rights;
pub(crate) mod rule;
mod selector;
#[cfg(test)]
mod tests;
mod watch;
pub(crate) mod world;

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle};

use self::{
    answer::Body,
    path::Place,
    rule::Rule,
    world::{Name, World},
};
use crate::{Operator, Options, clock};

pub(crate) use self::{
    make::{job, job_name, options, pod_name, running},
    rule::Fault,
    world::{Verb, text},
};

/// A condition is waited for this long.
const PATIENCE: Duration = Duration::from_mins(20);
/// The same where the clock is real.
const REAL_PATIENCE: Duration = Duration::from_mins(2);

/// The API server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    shared: Arc<Shared>,
}

/// What all its connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    world: Mutex<World>,
    /// Counts requests and changes, for tests that wait.
    changed: tokio::sync::watch::Sender<u64>,
    /// Counts changes of objects, for watches.
    stored: tokio::sync::watch::Sender<u64>,
    closings: AtomicU64,
}

impl Shared {
    fn read<T>(&self, read: impl FnOnce(&World) -> T) -> T {
        read(&self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        let before = world.version;
        let changed = change(&mut world);
        let stored = world.version != before;
        drop(world);
        if stored {
            self.stored.send_modify(|count| *count += 1);
        }
        self.changed.send_modify(|count| *count += 1);
        changed
    }

    fn closings(&self) -> u64 {
        self.closings.load(Ordering::Relaxed)
    }
}

impl Server {
    /// An API server without objects.
    pub(crate) fn new() -> Self {
        clock::restart();
        let shared = Shared {
            world: Mutex::default(),
            changed: tokio::sync::watch::Sender::new(0),
            stored: tokio::sync::watch::Sender::new(0),
            closings: AtomicU64::new(0),
        };
        shared.change(|world| world.version = 100);
        Self {
            shared: Arc::new(shared),
        }
    }

    /// A client that reaches it without a socket.
    pub(crate) fn client(&self) -> Client {
        self.client_of("operator")
    }

    /// The same, called `who` in what is recorded and in rules.
    pub(crate) fn client_of(&self, who: &'static str) -> Client {
        let shared = Arc::clone(&self.shared);
        Client::new(Connection { shared, who }, "default")
    }

    /// Serves it on 127.0.0.1 as well, and gives the client of that address, as the operator makes its own.
    pub(crate) async fn listen(&self) -> Client {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                let service = hyper::service::service_fn(move |request: Request<_>| {
                    let shared = Arc::clone(&shared);
                    async move {
                        let (parts, body): (_, hyper::body::Incoming) = request.into_parts();
                        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                        answer::answer(shared, "tcp", Request::from_parts(parts, body)).await
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(socket), service);
                tokio::spawn(connection);
            }
        });
        let mut config = Config::new(format!("http://{address}").parse().unwrap());
        crate::process::bound(&mut config);
        Client::try_from(config).unwrap()
    }

    /// Adds something that goes wrong.
    pub(crate) fn on(&self, rule: Rule) {
        self.with(|world| world.rules.push(rule));
    }

    /// Everything goes well from now on.
    pub(crate) fn heal(&self) {
        self.with(|world| world.rules.clear());
    }

    /// Changes the world; schedulers and kubelets continue from there.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        self.shared.change(|world| {
            let changed = change(world);
            world.settle();
            changed
        })
    }

    /// Reads the world.
    pub(crate) fn see<T>(&self, read: impl FnOnce(&World) -> T) -> T {
        self.shared.read(read)
    }

    /// Creates an object at `path`, which is that of its list.
    pub(crate) fn add(&self, path: &str, object: Value) -> Value {
        let place = Place::of(path).unwrap();
        self.with(|world| world.create(&place, object)).unwrap()
    }

    /// Ends every watch that is open, in order.
    pub(crate) fn close_watches(&self) {
        self.shared.closings.fetch_add(1, Ordering::Relaxed);
        self.shared.stored.send_modify(|count| *count += 1);
    }

    /// Forgets the changes so far: a watch from before now is too old.
    pub(crate) fn compact(&self) {
        self.with(|world| world.forgotten = world.version);
    }

    /// Waits until the world is as `condition` says; fails with what was asked for if it never is.
    pub(crate) async fn wait(&self, what: &str, condition: impl Fn(&World) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        let patience = if clock_is_paused() {
            PATIENCE
        } else {
            REAL_PATIENCE
        };
        let met = tokio::time::timeout(patience, async {
            loop {
                changed.borrow_and_update();
                if self.see(&condition) {
                    return;
                }
                changed.changed().await.unwrap();
            }
        });
        let met = met.await.is_ok();
        assert!(met, "it never came to this: {what}\n{}", self.see(describe));
    }

    /// Starts the real operator.
    pub(crate) fn operator(&self, options: Options) -> Running {
        self.operator_with(self.client(), options)
    }

    /// The same, with a client of the test's choice.
    pub(crate) fn operator_with(&self, client: Client, options: Options) -> Running {
        self.run(Operator::new(client, options))
    }

    /// Runs an operator that the test has made.
    pub(crate) fn run(&self, operator: Operator) -> Running {
        self.with(|world| world.checks_rights = true);
        let (stop, stopped) = oneshot::channel::<()>();
        let runs = operator.clone().run(stopped.map(|_| ()));
        Running {
            _server: self.clone(),
            operator,
            stop,
            task: tokio::spawn(runs),
        }
    }
}

/// An operator that runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// It lives as long as its operators.
    _server: Server,
    pub(crate) operator: Operator,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// Ends it in order.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap();
    }

    /// Ends it at once, as if the process was killed.
    pub(crate) fn kill(self) {
        self.task.abort();
    }
}

/// The way to the server, in this process.
#[derive(Clone)]
struct Connection {
    shared: Arc<Shared>,
    who: &'static str,
}

impl tower_service::Service<Request<kube::client::Body>> for Connection {
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let (shared, who) = (Arc::clone(&self.shared), self.who);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
            answer::answer(shared, who, Request::from_parts(parts, body)).await
        }
        .boxed()
    }
}

/// Gives every Lease of the operators to `other`.
pub(crate) fn depose(world: &mut World, other: &str) {
    let leases: Vec<Name> = world
        .objects
        .keys()
        .filter(|(resource, namespace, _)| {
            resource.ends_with("/leases") && namespace != "kube-node-lease"
        })
        .cloned()
        .collect();
    let now = clock::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    for name in leases {
        world.change(&name, |lease| {
            lease["spec"]["holderIdentity"] = other.into();
            lease["spec"]["renewTime"] = now.as_str().into();
            lease["spec"]["leaseDurationSeconds"] = 15.into();
        });
    }
}

/// Whether the clock of the runtime stands still while something runs.
fn clock_is_paused() -> bool {
    let before = tokio::time::Instant::now();
    let real = std::time::Instant::now();
    while real.elapsed() < Duration::from_micros(10) {}
    tokio::time::Instant::now() == before
}

/// The end of what was asked for, and all objects.
fn describe(world: &World) -> String {
    let mut lines = vec!["the last requests:".to_owned()];
    let calls = world.calls.len().saturating_sub(40);
    for call in &world.calls[calls..] {
        let body = match &call.body {
            Value::Null => String::new(),
            body => body.to_string().chars().take(160).collect(),
        };
        lines.push(format!("  {:?} {} {body}", call.verb, call.path));
    }
    lines.push("the objects:".to_owned());
    for ((resource, namespace, name), object) in &world.objects {
        let status = object.get("status").cloned().unwrap_or(json!({}));
        let status: String = status.to_string().chars().take(400).collect();
        lines.push(format!("  {resource} {namespace}/{name} {status}"));
    }
    lines.join("\n")
}
