//! The operator: feeds fill the store, the queue gives turns, passes act.
//!
//! ```text
//! feeds ─▶ store ─▶ queue ─▶ pass (many at once, one per job) ─▶ API server ─▶ feeds
//! ```
//!
//! Several operators may run: all of them follow the cluster, the one that holds the lease acts.

pub(crate) mod consult;
mod fabrics;
pub(crate) mod gangs;
mod groups;
mod keep;
mod leading;
mod listen;
mod lost;
mod options;
mod pass;
mod preflight;
mod progress;
pub(crate) mod push;
mod read;
pub(crate) mod runtimes;
mod seats;
mod shadow;
mod tokens;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::Client;
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::Instant,
};
use tracing::{debug, info, warn};
use trainyard_core::{
    launch::{Cluster, GroupApi},
    spec::Kind,
};

use self::{
    consult::Consultation, gangs::Gangs, listen::Listening, preflight::Flights, progress::Reports,
    push::Pushes, shadow::Shadow,
};
pub use self::{
    options::{Lease, Options, ProgressSource},
    preflight::Gate,
};
use crate::{
    api::Caller,
    clock, crd,
    event::Events,
    feed::{self, Age, Feeds, News, Scope, Sight, Source},
    key::{JobKey, OPERATOR_LABEL},
    lease::{Election, Fence},
    metrics::Metrics,
    node::LEASES_EVERY,
    path::stored_as,
    poison::Poison,
    queue::{Outcome, Queue},
    state::State,
    view::{Bare, BatchView, JobView, LeaseView, NodeView, PodView},
};

/// How often sizes are measured, and the ages of watches.
const SIZES_EVERY: Duration = Duration::from_secs(5);
/// A job of a kind whose watch is stale is requeued after this.
const HELD: Duration = Duration::from_secs(5);

/// An operator that stops waits so long for what is being written to nodes and for pods that are being removed.
const MARKS_WITHIN: Duration = Duration::from_secs(5);

/// An operator that stops waits so long for the events that are left to write.
const EVENTS_WITHIN: Duration = Duration::from_secs(2);

/// An operator.
#[derive(Clone, Debug)]
pub struct Operator {
    pub(crate) caller: Caller,
    state: State,
    pub(crate) cluster: Arc<Cluster>,
    /// What is remembered where another operator acts.
    shadow: Option<Arc<Shadow>>,
    /// The logs of what failed.
    consultation: Arc<Consultation>,
    /// The logs of what runs.
    listening: Arc<Listening>,
    /// How far jobs are.
    reports: Arc<Reports>,
    /// Who sends how far jobs are.
    pub(crate) pushes: Arc<Pushes>,
    /// The gangs that restart in place.
    pub(crate) gangs: Arc<Gangs>,
    /// The preflights that are under way.
    flights: Arc<Flights>,
    /// The jobs that crashed or panicked it.
    poison: Arc<Poison>,
    /// What is reported on jobs.
    events: Arc<Events>,
    queue: Arc<Queue>,
    options: Arc<Options>,
    feeds: Arc<Feeds>,
    /// The wait queue has changed.
    wait_queue_changed: Arc<Notify>,
    /// Which schedulers of others jobs need.
    asked: groups::Asked,
    /// A job names a fabric.
    fabrics_asked: Arc<Notify>,
    leads: watch::Receiver<bool>,
    leading: Arc<watch::Sender<bool>>,
    ends: Arc<AtomicBool>,
}

/// Which objects of a type are watched.
#[derive(Debug, Default)]
struct Selector {
    labels: Option<String>,
    fields: Option<String>,
}

impl From<Option<String>> for Selector {
    fn from(labels: Option<String>) -> Self {
        Self {
            labels,
            fields: None,
        }
    }
}

/// What the process before this one left; nothing where there is no folder that can be written.
fn open_state(folder: Option<&Path>) -> Poison {
    let Some(folder) = folder else {
        return Poison::default();
    };
    Poison::open(folder).unwrap_or_else(|error| {
        warn!(folder = %folder.display(), %error, "Cannot use the state folder; crashes are not traced to jobs");
        Poison::default()
    })
}

impl Operator {
    /// An operator that has not begun.
    pub fn new(client: Client, options: Options) -> Self {
        let fence = if options.lease.is_some() || options.shadow {
            Fence::closed()
        } else {
            Fence::open()
        };
        let feeds: Arc<Feeds> = Arc::default();
        let fence = fence.seeing(feeds.sight());
        // In shadow there is no lease to wait for, and nothing to do with one.
        let (leading, leads) = watch::channel(options.lease.is_none());
        let state = State::following(options.namespace.as_deref());
        state.store().fleet.queue.set_preemption(options.preemption);
        Self {
            caller: Caller::new(client, fence, Arc::new(Metrics::default()), options.calls),
            state,
            cluster: Arc::new(options.cluster.clone()),
            shadow: options.shadow.then(Arc::default),
            consultation: Arc::default(),
            listening: Arc::default(),
            reports: Arc::default(),
            pushes: Arc::default(),
            gangs: Arc::default(),
            flights: Arc::default(),
            poison: Arc::new(open_state(options.state_dir.as_deref())),
            events: Arc::default(),
            queue: Arc::new(Queue::default()),
            options: Arc::new(options),
            feeds,
            wait_queue_changed: Arc::default(),
            asked: groups::Asked::default(),
            fabrics_asked: Arc::default(),
            leads,
            leading: Arc::new(leading),
            ends: Arc::new(AtomicBool::new(false)),
        }
    }

    /// What it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.caller.metrics
    }

    /// Whether it has listed the whole cluster once.
    pub fn has_listed(&self) -> bool {
        self.unlisted().is_empty()
    }

    /// What it has not seen the whole of yet.
    pub(crate) fn unlisted(&self) -> Vec<String> {
        self.feeds.unlisted()
    }

    /// How long ago each watch had its last sign of life.
    pub(crate) fn ages(&self) -> Vec<Age> {
        self.feeds.ages()
    }

    /// Whether it has listed everything, and nothing that every job depends on is stale.
    pub(crate) fn sees(&self) -> bool {
        self.feeds.sight().borrow().is_clear()
    }

    /// What is decided about preflights.
    pub(crate) fn gate(&self) -> Gate {
        self.options.gate
    }

    /// The only namespace whose jobs it manages, where it is one.
    pub(crate) fn jobs_namespace(&self) -> Option<&str> {
        self.options.namespace.as_deref()
    }

    /// The namespace of its own pod, where that is known.
    pub(crate) fn pod_namespace(&self) -> Option<&str> {
        self.options.own_namespace.as_deref()
    }

    /// Whether this operator acts.
    pub(crate) fn leads(&self) -> watch::Receiver<bool> {
        self.leads.clone()
    }

    /// Whether logs are read for the progress of jobs. In shadow that is the other operator's.
    pub(crate) fn reads_progress(&self) -> bool {
        self.options.progress == ProgressSource::Logs && !self.options.shadow
    }

    /// Whether the progress of jobs is known from anywhere.
    pub(crate) fn knows_progress(&self) -> bool {
        self.reads_progress() || self.pushes.are_taken() && !self.options.shadow
    }

    /// Whether it sees everything.
    pub(crate) fn sight(&self) -> watch::Receiver<Sight> {
        self.feeds.sight()
    }

    /// Enqueues a job for a pass.
    pub(crate) fn enqueue_job(&self, key: JobKey) {
        self.queue.enqueue(key);
    }

    /// Runs until `stop` is ready, then ends in an orderly way: passes under way are finished, and the
    /// lease is released.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut tasks = tokio::task::JoinSet::new();
        self.start_feeds(&mut tasks);
        if let Some(lease) = &self.options.lease {
            let election = election(lease);
            let (client, fence) = (self.caller.client.clone(), self.caller.fence.clone());
            let (leading, ends) = (Arc::clone(&self.leading), Arc::clone(&self.ends));
            let sender = leading.as_ref().clone();
            tasks.spawn(election.run_election(client, fence, sender, ends));
        }
        let this = self.clone();
        tasks.spawn(async move { this.measure().await });
        let this = self.clone();
        tasks.spawn(async move { this.events.write_all(&this.caller).await });
        tasks.spawn(self.clone().enqueue_all_on_taking_over());
        if self.reads_progress() {
            tasks.spawn(self.clone().read_progress());
        }
        if self.places() {
            let this = self.clone();
            tasks.spawn(async move { this.process_wait_queue().await });
            tasks.spawn(self.clone().run_node_trials());
        }
        if !self.options.shadow {
            for api in GroupApi::ALL {
                tasks.spawn(self.clone().watch_groups(api));
            }
            tasks.spawn(self.clone().watch_fabrics());
            if self.options.kinds.contains(&Kind::Train) {
                tasks.spawn(self.clone().watch_train_jobs());
            }
        }
        let turns = Arc::new(Semaphore::new(self.options.workers));
        let mut stop = std::pin::pin!(stop);
        let lost = tokio::select! {
            () = &mut stop => None,
            () = self.process_jobs(&turns) => None,
            panic = lost::panic_in(&mut tasks) => Some(panic),
        };
        info!("Stopping");
        self.ends.store(true, Ordering::Relaxed);
        // Passes under way finish; each call of theirs is bounded in time.
        let all = u32::try_from(self.options.workers).unwrap_or(u32::MAX);
        let finished = tokio::time::timeout(Duration::from_secs(20), turns.acquire_many(all)).await;
        if finished.is_err() {
            warn!("Passes are still running; exiting without waiting for them");
        }
        if !self.flights.tasks.finish(MARKS_WITHIN).await {
            warn!("Preflights are still being cleaned up; exiting without waiting for them");
        }
        tasks.abort_all();
        let flushed = tokio::time::timeout(EVENTS_WITHIN, self.events.flush(&self.caller)).await;
        if flushed.is_err() {
            warn!("Events are still being written; exiting without waiting for them");
        }
        if let Some(lease) = &self.options.lease {
            let election = election(lease);
            let given = election.release(&self.caller.client);
            if let Ok(Err(error)) = tokio::time::timeout(Duration::from_secs(5), given).await {
                warn!(%error, "Cannot release the lease");
            }
        }
        if let Some(panic) = lost {
            // The process ends with it, and is started again.
            std::panic::resume_unwind(panic);
        }
    }

    /// Takes the next job and processes it; never returns.
    async fn process_jobs(&self, turns: &Arc<Semaphore>) {
        let mut leads = self.leads.clone();
        let mut sight = self.feeds.sight();
        self.gangs.certificate_known().await;
        loop {
            // No job is processed before this operator leads and has listed everything, nor while what it
            // sees is stale.
            if leads.wait_for(|leads| *leads).await.is_err()
                || sight.wait_for(Sight::is_clear).await.is_err()
            {
                return;
            }
            let Ok(turn) = Arc::clone(turns).acquire_owned().await else {
                return;
            };
            let key = self.queue.next().await;
            let sees = sight.borrow_and_update().clone();
            if !*leads.borrow_and_update() || !sees.is_clear() {
                self.queue.done(&key, Outcome::Done(None));
                self.queue.enqueue(key);
                continue;
            }
            if sees.kinds.contains(&key.kind) {
                let again = Some(Instant::now() + HELD);
                self.queue.done(&key, Outcome::Done(again));
                continue;
            }
            let this = self.clone();
            tokio::spawn(async move {
                // A pass that panics is distinguished from one that ends, and harms no other job.
                let pass = tokio::spawn({
                    let (this, key) = (this.clone(), key.clone());
                    async move { this.pass(&key).await }
                });
                let outcome = pass.await.unwrap_or_else(|error| {
                    this.pass_panicked(&key, error);
                    Outcome::Failed
                });
                this.queue.done(&key, outcome);
                drop(turn);
            });
        }
    }

    fn start_feeds(&self, tasks: &mut tokio::task::JoinSet<()>) {
        let kinds = self.options.kinds.iter().copied();
        // A cluster need not have this kind: its watch begins once it is known to be there.
        let kinds = kinds.filter(|kind| *kind != Kind::Train);
        let mut stored: Vec<Kind> = kinds.map(stored_as).collect();
        stored.sort_unstable();
        stored.dedup();
        for kind in stored {
            let path = self.path(
                &format!("/apis/{}/{}", kind.group(), crd::version(kind)),
                &crd::plural(kind),
            );
            let kinds: Vec<Kind> = self
                .options
                .kinds
                .iter()
                .copied()
                .filter(|other| stored_as(*other) == kind)
                .collect();
            let scope = Scope::Kinds(kinds.clone());
            self.feed::<JobView>(tasks, path, None, scope, move |state, news| {
                state.store().update_jobs(news, &kinds)
            });
        }
        let ours = Some(OPERATOR_LABEL.to_owned());
        let pods = self.path("/api/v1", "pods");
        let all = Scope::Everything;
        self.feed::<PodView>(tasks, pods, ours.clone(), all.clone(), |state, news| {
            state.store().update_pods(news)
        });
        let services = self.path("/api/v1", "services");
        self.feed::<Bare>(tasks, services, ours, all.clone(), |state, news| {
            state.store().update_services(news)
        });
        if self.options.kinds.contains(&Kind::MpiV2) {
            let launchers = self.path("/apis/batch/v1", "jobs");
            // Those of another operator carry no attempt.
            let ours = (!self.options.shadow)
                .then(|| trainyard_core::spec::annotation::ATTEMPT.to_owned());
            let scope = Scope::Kinds(vec![Kind::MpiV2]);
            self.feed::<BatchView>(tasks, launchers, ours, scope, |state, news| {
                state.store().update_launchers(news)
            });
        }
        if self.options.nodes {
            let nodes = "/api/v1/nodes".to_owned();
            self.feed::<NodeView>(tasks, nodes, None, all, |state, news| {
                state.store().update_nodes(news)
            });
            let this = self.clone();
            tasks.spawn(async move { this.read_leases().await });
        }
        if self.places() {
            self.start_room_feeds(tasks);
        }
    }

    pub(crate) fn path(&self, group: &str, resource: &str) -> String {
        match &self.options.namespace {
            Some(namespace) => format!("{group}/namespaces/{namespace}/{resource}"),
            None => format!("{group}/{resource}"),
        }
    }

    fn feed<T: crate::view::View + std::fmt::Debug>(
        &self,
        tasks: &mut tokio::task::JoinSet<()>,
        path: String,
        labels: impl Into<Selector>,
        scope: Scope,
        update: impl Fn(&State, News<T>) -> Vec<JobKey> + Send + 'static,
    ) {
        let (state, queue) = (self.state.clone(), Arc::clone(&self.queue));
        let wait_queue_changed = Arc::clone(&self.wait_queue_changed);
        let Selector { labels, fields } = labels.into();
        // Our pods and those of others are two watches of one path.
        let name = match &fields {
            None => path.clone(),
            Some(_) => format!("{path} (of others)"),
        };
        let pulse = self.feeds.expect(&name, scope, &self.caller.metrics);
        let source = Source {
            path,
            labels,
            fields,
        };
        let client = self.caller.client.clone();
        tasks.spawn(feed::list_and_watch_with(
            client,
            source,
            pulse,
            move |news| {
                let changed = update(&state, news);
                queue.enqueue_all(changed);
                if state.store().fleet.queue.take_placement_due() {
                    wait_queue_changed.notify_one();
                }
            },
        ));
    }

    /// Reads the leases of nodes periodically.
    async fn read_leases(&self) {
        let source = Source {
            path: "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases".to_owned(),
            labels: None,
            fields: None,
        };
        loop {
            tokio::time::sleep(LEASES_EVERY).await;
            if !self.state.store().needs_leases() {
                continue;
            }
            match feed::list::<LeaseView>(&self.caller.client, &source).await {
                Ok((leases, _)) => {
                    let mut store = self.state.store();
                    let changed = store.update_leases(&leases, Instant::now(), clock::now());
                    drop(store);
                    self.queue.enqueue_all(changed);
                }
                Err(error) => debug!(%error, "Cannot read the leases of nodes"),
            }
        }
    }

    async fn measure(&self) {
        loop {
            self.feeds.review();
            for age in self.feeds.ages() {
                self.caller.metrics.watch_age(&age.feed, age.silent);
            }
            let now = clock::now();
            let (jobs, pods) = {
                let store = self.state.store();
                let nodes = &store.fleet.queue.snapshot().nodes;
                let measured = nodes.iter().filter_map(|(name, node)| {
                    let record = node
                        .preflight
                        .as_ref()
                        .filter(|record| record.is_fresh(now))?;
                    Some((name.clone(), record.outcome))
                });
                let on_probation = nodes.values().filter(|node| node.is_on_probation());
                self.caller.metrics.measured(measured, on_probation.count());
                (store.job_count(), store.pod_count())
            };
            let leads = *self.leads.borrow();
            self.caller
                .metrics
                .sizes(self.queue.waiting(), jobs, pods, leads);
            if !leads {
                self.forget_what_leaders_know();
            }
            tokio::time::sleep(SIZES_EVERY).await;
        }
    }
}

fn election(lease: &Lease) -> Election {
    Election {
        namespace: lease.namespace.clone(),
        name: lease.name.clone(),
        identity: lease.identity.clone(),
    }
}
