//! A namespace, an operator and the words to watch them with.

mod freeze;
mod jobs;
mod operator;
mod pods;

use std::{
    future::Future,
    sync::{
        Mutex, PoisonError, RwLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use kube::{
    Client,
    api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

pub(crate) use self::{
    freeze::Frozen,
    jobs::{ends, example, holds, pytorch},
    operator::Running,
};

/// Timeout of every wait; the failure shows the last value.
const PATIENCE: Duration = Duration::from_mins(5);
/// Poll interval.
const LOOK: Duration = Duration::from_millis(50);

/// Held by every test; by one that wants the cluster for itself, alone.
static CLUSTER: RwLock<()> = RwLock::new(());

/// Runs `test` with a namespace of its own, if there is a cluster.
pub(crate) fn on_cluster<F: Future<Output = ()>>(
    name: &str,
    test: impl FnOnce(TestNamespace) -> F,
) {
    let _shared = CLUSTER.read().unwrap_or_else(PoisonError::into_inner);
    run(name, test, false);
}

/// Runs `test` while no other runs, and until nothing of it is left.
///
/// The simulated kubelet deletes pods by name. Where it lags behind by seconds, as after two thousand
/// deletions, it deletes the next pod of that name, which no real kubelet does.
pub(crate) fn alone_on_cluster<F: Future<Output = ()>>(
    name: &str,
    test: impl FnOnce(TestNamespace) -> F,
) {
    let _alone = CLUSTER.write().unwrap_or_else(PoisonError::into_inner);
    run(name, test, true);
}

fn run<F: Future<Output = ()>>(name: &str, test: impl FnOnce(TestNamespace) -> F, wait: bool) {
    #[expect(
        clippy::disallowed_methods,
        reason = "how the suite says that there is a cluster"
    )]
    let cluster = std::env::var_os("TRAINYARD_CLUSTER");
    if cluster.is_none() {
        eprintln!("skipped: there is no cluster; `cargo xtask cluster test` brings one");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let own = TestNamespace::new(name).await;
        let namespace = own.namespace.clone();
        let client = own.client.clone();
        let left = own.clone();
        test(own).await;
        // Only a test that passed cleans up: what another leaves shows why.
        let namespaces = api(&client, "", "v1", "Namespace", None);
        namespaces
            .delete(&namespace, &DeleteParams::background())
            .await
            .unwrap();
        if wait {
            left.until("the namespace is gone", || async {
                let namespace = namespaces.get_opt(&namespace).await.unwrap();
                namespace.is_none().then_some(())
            })
            .await;
        }
    });
}

/// Runs `test` as [`on_cluster`] does, if there are real nodes, and alone on them.
pub(crate) fn on_real_nodes<F: Future<Output = ()>>(
    name: &str,
    test: impl FnOnce(TestNamespace) -> F,
) {
    static ALONE: Mutex<()> = Mutex::new(());
    #[expect(
        clippy::disallowed_methods,
        reason = "how the suite says that there are real nodes"
    )]
    let nodes = std::env::var_os("TRAINYARD_REAL_NODES");
    if nodes.is_none() {
        eprintln!("skipped: there are no real nodes; `cargo xtask cluster test` brings two");
        return;
    }
    // A test that failed has printed why.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    on_cluster(name, test);
}

/// One namespace of the cluster.
#[derive(Clone)]
pub(crate) struct TestNamespace {
    /// An administrator.
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl TestNamespace {
    async fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let client = Client::try_default().await.unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{name}-{}-{number}", std::process::id());
        let fixture = Self { client, namespace };
        fixture
            .create(
                "",
                "v1",
                "Namespace",
                &json!({"metadata": {"name": fixture.namespace}}),
            )
            .await;
        // Pods are admitted only once the namespace has its account.
        let accounts = fixture.api("", "v1", "ServiceAccount");
        fixture
            .until("the namespace has its account", || async {
                accounts.get_opt("default").await.unwrap().map(drop)
            })
            .await;
        fixture
    }

    pub(crate) fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        api(&self.client, group, version, kind, Some(&self.namespace))
    }

    /// Objects of no namespace.
    pub(crate) fn whole(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        api(&self.client, group, version, kind, None)
    }

    pub(crate) fn jobs(&self, kind: &str) -> Api<DynamicObject> {
        self.api("kubeflow.org", "v1", kind)
    }

    pub(crate) fn pods(&self) -> Api<DynamicObject> {
        self.api("", "v1", "Pod")
    }

    async fn create(&self, group: &str, version: &str, kind: &str, object: &Value) {
        let within = (kind != "Namespace").then_some(self.namespace.as_str());
        let api = api(&self.client, group, version, kind, within);
        let object = typed(group, version, kind, object);
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    /// Puts a job into the cluster.
    pub(crate) async fn put(&self, job: &Value) {
        let (group, version) = job["apiVersion"].as_str().unwrap().split_once('/').unwrap();
        self.create(group, version, job["kind"].as_str().unwrap(), job)
            .await;
    }

    /// Changes a job as a user would.
    pub(crate) async fn edit(&self, kind: &str, name: &str, change: Value) {
        self.jobs(kind)
            .patch(name, &PatchParams::default(), &Patch::Merge(&change))
            .await
            .unwrap();
    }

    pub(crate) async fn status(&self, kind: &str, name: &str) -> Value {
        let job = self.jobs(kind).get(name).await.unwrap();
        job.data["status"].clone()
    }

    /// Waits until the job's status is as wanted, and returns it.
    pub(crate) async fn until_status(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        self.until_status_within(PATIENCE, kind, name, what, wanted)
            .await
    }

    pub(crate) async fn until_status_within(
        &self,
        patience: Duration,
        kind: &str,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let end = Instant::now() + patience;
        loop {
            let status = self.status(kind, name).await;
            if wanted(&status) {
                return status;
            }
            assert!(
                Instant::now() < end,
                "waited in vain until {what}: {status:#}"
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the condition `condition` of the job holds.
    pub(crate) async fn until_condition(&self, kind: &str, name: &str, condition: &str) -> Value {
        let what = format!("{kind} `{name}` is {condition}");
        self.until_status(kind, name, &what, |status| holds(status, condition))
            .await
    }

    pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        look: impl Fn() -> F,
    ) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look().await {
                return found;
            }
            assert!(Instant::now() < end, "waited in vain until {what}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the job has an event that is `wanted`; they are written a little later than the status.
    pub(crate) async fn until_event(&self, job: &str, wanted: impl Fn(&str, &str) -> bool) {
        self.until("the event is there", || async {
            let events = self.events(job).await;
            let mut events = events.iter();
            let found = events.any(|(reason, message)| wanted(reason, message));
            found.then_some(())
        })
        .await;
    }

    /// The reasons and messages of the events on the job.
    pub(crate) async fn events(&self, job: &str) -> Vec<(String, String)> {
        let params = ListParams::default().fields(&format!("involvedObject.name={job}"));
        let events = self.api("", "v1", "Event").list(&params).await.unwrap();
        let text =
            |event: &DynamicObject, key: &str| event.data[key].as_str().unwrap_or("").to_owned();
        events
            .items
            .iter()
            .map(|event| (text(event, "reason"), text(event, "message")))
            .collect()
    }
}

fn api(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    // The guess of plurals knows no such words.
    if group == "kubeflow.org" {
        resource.plural = format!("{}s", kind.to_lowercase());
    } else if kind == "NetworkAttachmentDefinition" {
        resource.plural = "network-attachment-definitions".into();
    }
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

fn typed(group: &str, version: &str, kind: &str, object: &Value) -> DynamicObject {
    let mut object = object.clone();
    object["apiVersion"] = if group.is_empty() {
        version.into()
    } else {
        format!("{group}/{version}").into()
    };
    object["kind"] = kind.into();
    serde_json::from_value(object).unwrap()
}
