//! A namespace, an operator and the words to watch them with.

use std::{
    collections::BTreeMap,
    future::Future,
    process::Command,
    sync::{
        Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use kube::{
    Client, Config,
    api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    config::AuthInfo,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle};
use trainyard_core::spec::read;
use trainyard_kube::{Operator, Options, rights};

/// Every wait ends after this, with what was seen last.
const PATIENCE: Duration = Duration::from_mins(2);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Held by every test; by one that wants the cluster for itself, alone.
static CLUSTER: RwLock<()> = RwLock::new(());

/// Runs `test` with a namespace of its own, if there is a cluster.
pub(crate) fn on_cluster<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Yard) -> F) {
    let _shared = CLUSTER.read().unwrap_or_else(PoisonError::into_inner);
    run(name, test, false);
}

/// Runs `test` while no other runs, and until nothing of it is left.
///
/// The simulated kubelet deletes pods by name. Where it lags behind by seconds, as after two thousand
/// deletions, it deletes the next pod of that name, which no real kubelet does.
pub(crate) fn alone_on_cluster<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Yard) -> F) {
    let _alone = CLUSTER.write().unwrap_or_else(PoisonError::into_inner);
    run(name, test, true);
}

fn run<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Yard) -> F, wait: bool) {
    #[expect(
        clippy::disallowed_methods,
        reason = "how the suite says that there is a cluster"
    )]
    let cluster = std::env::var_os("TRAINYARD_CLUSTER");
    if cluster.is_none() {
        eprintln!("skipped: there is no cluster; `cargo xtask test --only cluster` brings one");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let yard = Yard::new(name).await;
        let namespace = yard.namespace.clone();
        let client = yard.client.clone();
        let left = yard.clone();
        test(yard).await;
        // Only a test that went well clears up: what is left of another tells why.
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
pub(crate) fn on_real_nodes<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Yard) -> F) {
    static ALONE: Mutex<()> = Mutex::new(());
    #[expect(
        clippy::disallowed_methods,
        reason = "how the suite says that there are real nodes"
    )]
    let nodes = std::env::var_os("TRAINYARD_REAL_NODES");
    if nodes.is_none() {
        eprintln!("skipped: there are no real nodes; `cargo xtask test --only cluster` brings two");
        return;
    }
    // A test that failed has told why.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    on_cluster(name, test);
}

/// A program of the cluster that is frozen while this value lives.
pub(crate) struct Frozen(String);

impl Frozen {
    pub(crate) fn new(piece: &str) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "where the cluster keeps its state"
        )]
        let state = std::env::var("TRAINYARD_CLUSTER").unwrap();
        let pid = std::fs::read_to_string(format!("{state}/pids/{piece}")).unwrap();
        let pid = pid.split_whitespace().next().unwrap().to_owned();
        signal("STOP", &pid);
        Self(pid)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal("CONT", &self.0);
    }
}

fn signal(name: &str, pid: &str) {
    let status = Command::new("kill")
        .args(["-s", name, pid])
        .status()
        .unwrap();
    assert!(status.success(), "kill -s {name} {pid}: {status}");
}

/// The job of an example.
pub(crate) fn example(file: &str) -> Value {
    let path = format!("{}/../../examples/{file}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    let file = read(&bytes).unwrap();
    let mut documents = file.documents.iter();
    let document = documents.find(|document| document.job_kind().is_some());
    document.unwrap().tree.to_json()
}

/// One namespace of the cluster.
#[derive(Clone)]
pub(crate) struct Yard {
    /// An administrator.
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

/// An operator that runs until it is stopped, or killed by being dropped.
pub(crate) struct Running {
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) operator: Operator,
}

impl Running {
    /// Ends it without a chance to finish anything.
    pub(crate) async fn kill(self) {
        self.task.abort();
        drop(self.task.await);
    }

    /// Asks it to end in order.
    pub(crate) async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            stop.send(()).unwrap();
        }
        self.task.await.unwrap();
    }
}

impl Yard {
    async fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let client = Client::try_default().await.unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{name}-{}-{number}", std::process::id());
        let yard = Self { client, namespace };
        yard.create(
            "",
            "v1",
            "Namespace",
            &json!({"metadata": {"name": yard.namespace}}),
        )
        .await;
        // Pods are admitted only once the namespace has its account.
        let accounts = yard.api("", "v1", "ServiceAccount");
        yard.until("the namespace has its account", || async {
            accounts.get_opt("default").await.unwrap().map(drop)
        })
        .await;
        yard
    }

    /// An operator of this namespace that acts under the rights in `deploy/`.
    pub(crate) async fn operator(&self) -> Running {
        self.operator_with(|_| {}).await
    }

    pub(crate) async fn operator_with(&self, change: impl FnOnce(&mut Options)) -> Running {
        let mut options = Options {
            namespace: Some(self.namespace.clone()),
            ..Options::default()
        };
        change(&mut options);
        let client = self.limited_client().await;
        self.give_own_rights().await;
        let operator = Operator::new(client, options);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn({
            let operator = operator.clone();
            async move {
                operator
                    .run(async {
                        drop(stopped.await);
                    })
                    .await;
            }
        });
        let running = Running {
            task,
            stop: Some(stop),
            operator,
        };
        self.until("the operator is ready", || async {
            running.operator.readiness().ok()
        })
        .await;
        running
    }

    /// A client with the operator's rights and no others.
    async fn limited_client(&self) -> Client {
        static TOKEN: OnceLock<String> = OnceLock::new();
        let token = if let Some(token) = TOKEN.get() {
            token.clone()
        } else {
            let token = self.make_account().await;
            TOKEN.get_or_init(|| token).clone()
        };
        let mut config = Config::infer().await.unwrap();
        config.auth_info = AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        };
        Client::try_from(config).unwrap()
    }

    /// Makes this namespace the operator's own.
    async fn give_own_rights(&self) {
        let rbac = "rbac.authorization.k8s.io";
        let rules: Vec<Value> = rights::of(rights::Place::Own)
            .map(rights::Right::rule)
            .collect();
        let role = json!({"metadata": {"name": "operator"}, "rules": rules});
        let binding = json!({
            "metadata": {"name": "operator"},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "operator"},
            "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": "trainyard-rights"}],
        });
        for (kind, object) in [("Role", role), ("RoleBinding", binding)] {
            let object = typed(rbac, "v1", kind, &object);
            let made = self
                .api(rbac, "v1", kind)
                .create(&PostParams::default(), &object)
                .await;
            assert!(
                made.is_ok()
                    || matches!(&made, Err(kube::Error::Api(status)) if status.code == 409),
                "{made:?}"
            );
        }
    }

    /// Makes an account that has what `rights` names, and nothing else; returns its token.
    async fn make_account(&self) -> String {
        let namespace = "trainyard-rights";
        let put = |group: &'static str,
                   version: &'static str,
                   kind: &'static str,
                   within: bool,
                   object: Value| async move {
            let api = api(
                &self.client,
                group,
                version,
                kind,
                within.then_some(namespace),
            );
            let object: DynamicObject = typed(group, version, kind, &object);
            match api.create(&PostParams::default(), &object).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("{error}"),
            }
        };
        let rbac = "rbac.authorization.k8s.io";
        put(
            "",
            "v1",
            "Namespace",
            false,
            json!({"metadata": {"name": namespace}}),
        )
        .await;
        put(
            "",
            "v1",
            "ServiceAccount",
            true,
            json!({"metadata": {"name": "operator"}}),
        )
        .await;
        let mut rules = Vec::new();
        for (place, _) in rights::Place::ALL {
            // Those of its own namespace are given there.
            if place != rights::Place::Own {
                rules.extend(rights::of(place).map(rights::Right::rule));
            }
        }
        // Test runs must not meet the rules of another build.
        let name = format!("trainyard-{}", std::process::id());
        put(
            rbac,
            "v1",
            "ClusterRole",
            false,
            json!({"metadata": {"name": name}, "rules": rules}),
        )
        .await;
        put(
            rbac,
            "v1",
            "ClusterRoleBinding",
            false,
            json!({
                "metadata": {"name": name},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}],
            }),
        )
        .await;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/operator/token");
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600}});
        let request = http::Request::post(path)
            .body(body.to_string().into_bytes())
            .unwrap();
        let answer: Value = self.client.request(request).await.unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    pub(crate) fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        api(&self.client, group, version, kind, Some(&self.namespace))
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

    /// The pods of the namespace, by name.
    pub(crate) async fn pod_map(&self) -> BTreeMap<String, Value> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        pods.items
            .into_iter()
            .map(|pod| {
                let name = pod.metadata.name.clone().unwrap();
                (name, serde_json::to_value(pod).unwrap())
            })
            .collect()
    }

    /// Waits until `count` pods of `attempt` run, and no others are left.
    pub(crate) async fn until_running(&self, count: usize, attempt: u32) {
        let what = format!("{count} pods of attempt {attempt} run");
        let attempt = attempt.to_string();
        self.until(&what, || async {
            let pods = self.pod_map().await;
            let running = pods.values().filter(|pod| {
                pod["status"]["phase"] == "Running"
                    && pod["metadata"]["labels"]["trainyard.dev/attempt"] == attempt.as_str()
                    && pod["metadata"]["deletionTimestamp"].is_null()
            });
            (running.count() == count && pods.len() == count).then_some(())
        })
        .await;
    }

    /// Ends a pod's container as if its program had.
    pub(crate) async fn end_pod(&self, name: &str, code: i32, reason: &str) {
        let pod = self.pods().get(name).await.unwrap();
        let statuses: Vec<Value> = pod.data["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|container| {
                json!({
                    "name": container["name"], "image": "x", "imageID": "", "ready": false,
                    "restartCount": 0, "started": false,
                    "state": {"terminated": {"exitCode": code, "reason": reason,
                        "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}},
                })
            })
            .collect();
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        // Only this pod: the next one of its name has done nothing.
        let status = json!({"metadata": {"uid": pod.metadata.uid}, "status": {
            "phase": phase,
            "containerStatuses": statuses,
            "conditions": [{"type": "Ready", "status": "False"}],
        }});
        // The simulated kubelet may be about to write its own word; the last one counts.
        let mut held = 0;
        while held < 3 {
            let pods = self.pods();
            let now = pods.get_opt(name).await.unwrap();
            if now.is_none_or(|now| now.metadata.uid != pod.metadata.uid) {
                return;
            }
            let patched = pods
                .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
                .await;
            match patched {
                Ok(after) if after.data["status"]["phase"] == phase => held += 1,
                Ok(_) => held = 0,
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The reasons of the events on the job, in order of time.
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

/// Whether `condition` is True in `status`.
pub(crate) fn holds(status: &Value, condition: &str) -> bool {
    let conditions = status["conditions"].as_array();
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|one| one["type"] == condition && one["status"] == "True")
    })
}

/// A `PyTorchJob` of `workers` workers and a master. `annotations` go to each pod.
pub(crate) fn pytorch(name: &str, workers: u32, annotations: &Value) -> Value {
    let role = |replicas: u32| {
        json!({
            "replicas": replicas,
            "restartPolicy": "OnFailure",
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "nodeSelector": {"test.trainyard.dev/node": "simulated"},
                    "containers": [{"name": "pytorch", "image": "test", "command": ["train"]}],
                },
            },
        })
    };
    let mut roles = json!({"Master": role(1)});
    if workers > 0 {
        roles["Worker"] = role(workers);
    }
    json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": roles},
    })
}

/// Pods that end with `code` after `after`.
pub(crate) fn ends(code: u32, after: &str) -> Value {
    json!({"test.trainyard.dev/exit-code": code.to_string(), "test.trainyard.dev/exit-after": after})
}
