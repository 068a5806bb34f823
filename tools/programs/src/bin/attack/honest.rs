//! Callers that mean no harm: reviews of the API server, probes of the kubelet, jobs of users.

use std::time::{Duration, Instant};

use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::{Plan, wire};

const NAMESPACE: &str = "attack";
const PODS: usize = 4;
/// Longer than the API server waits for a webhook.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN: Duration = Duration::from_millis(50);
/// How often a probe is sent, and how long it waits: as the Deployment of the chart has it.
const PROBE_EVERY: Duration = Duration::from_secs(1);
const PROBE_WAITS: Duration = Duration::from_secs(1);

/// How long honest calls took.
#[derive(Debug, Default)]
pub(crate) struct Times {
    pub(crate) answered: Vec<f64>,
    pub(crate) failed: usize,
}

impl Times {
    fn add(&mut self, took: Option<Duration>) {
        match took {
            Some(took) => self.answered.push(took.as_secs_f64()),
            None => self.failed += 1,
        }
    }

    /// So many of a hundred took no longer. One that failed took as long as anybody waits.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let mut all = self.answered.clone();
        all.extend(vec![PATIENCE.as_secs_f64(); self.failed]);
        all.sort_by(f64::total_cmp);
        let at = (all.len() * percent).div_ceil(100).saturating_sub(1);
        all.get(at).copied().unwrap_or(0.0)
    }
}

/// Sends one review, on a connection of its own; the time until a right answer.
pub(crate) async fn review(
    plan: &Plan,
    secure: &TlsConnector,
    patience: Duration,
) -> Option<Duration> {
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "operation": "CREATE", "namespace": NAMESPACE, "name": "honest",
            "kind": {"group": "kubeflow.org", "version": "v1", "kind": "PyTorchJob"},
            "resource": {"group": "kubeflow.org", "version": "v1", "resource": "pytorchjobs"},
            "userInfo": {"username": "attack"}, "object": job("honest"), "oldObject": null}})
    .to_string();
    let path = "/validate-kubeflow-org-v1-pytorchjob";
    let began = Instant::now();
    let asked = wire::post(plan.webhook, secure, path, body.as_bytes());
    let (status, answer) = timeout(patience, asked).await.ok()??;
    let answer: Value = serde_json::from_slice(&answer).ok()?;
    let right = status == 200 && answer["response"]["allowed"] == true;
    right.then(|| began.elapsed())
}

/// Sends reviews one after the other.
pub(crate) async fn reviews(plan: &Plan, secure: &TlsConnector, end: Instant) -> Times {
    let mut times = Times::default();
    while Instant::now() < end {
        times.add(review(plan, secure, PATIENCE).await);
        tokio::time::sleep(BETWEEN).await;
    }
    times
}

/// Asks whether the operator lives.
pub(crate) async fn probes(plan: &Plan, end: Instant) -> Times {
    let mut times = Times::default();
    while Instant::now() < end {
        let began = Instant::now();
        let status = wire::get(plan.health, "/healthz", PROBE_WAITS).await;
        times.add((status == Some(200)).then(|| began.elapsed()));
        tokio::time::sleep(PROBE_EVERY).await;
    }
    times
}

/// Creates the jobs of the plan, spread over the time of the attack.
pub(crate) async fn create(jobs: Option<&Jobs>, plan: &Plan, end: Instant) -> Times {
    let mut times = Times::default();
    let Some(jobs) = jobs else { return times };
    for number in 0..plan.jobs {
        tokio::time::sleep(plan.duration / (plan.jobs + 1)).await;
        // The last ones may be late, but not forever.
        let patience = end.saturating_duration_since(Instant::now()).max(PATIENCE);
        times.add(jobs.until_pods(&format!("during-{number}"), patience).await);
    }
    times
}

/// Jobs in the cluster that the environment names.
pub(crate) struct Jobs {
    jobs: Api<DynamicObject>,
    pods: Api<DynamicObject>,
}

impl Jobs {
    pub(crate) async fn prepare() -> Self {
        let client = Client::try_default().await.unwrap();
        let resource = |group, kind, plural: &str| {
            let kind = GroupVersionKind::gvk(group, "v1", kind);
            ApiResource::from_gvk_with_plural(&kind, plural)
        };
        let namespaces: Api<DynamicObject> =
            Api::all_with(client.clone(), &resource("", "Namespace", "namespaces"));
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let object = serde_json::from_value(object).unwrap();
        namespaces
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        let within = |of: &ApiResource| Api::namespaced_with(client.clone(), NAMESPACE, of);
        let accounts: Api<DynamicObject> =
            within(&resource("", "ServiceAccount", "serviceaccounts"));
        while accounts.get_opt("default").await.unwrap().is_none() {
            tokio::time::sleep(BETWEEN).await;
        }
        Self {
            jobs: within(&resource("kubeflow.org", "PyTorchJob", "pytorchjobs")),
            pods: within(&resource("", "Pod", "pods")),
        }
    }

    /// Creates a job; the time until all of its pods are there.
    pub(crate) async fn until_pods(&self, name: &str, patience: Duration) -> Option<Duration> {
        let object = serde_json::from_value(job(name)).unwrap();
        let began = Instant::now();
        self.jobs
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        let selector =
            ListParams::default().labels(&format!("training.kubeflow.org/job-name={name}"));
        while began.elapsed() < patience {
            if self.pods.list(&selector).await.unwrap().items.len() == PODS {
                return Some(began.elapsed());
            }
            tokio::time::sleep(BETWEEN).await;
        }
        None
    }
}

fn job(name: &str) -> Value {
    let role = |replicas: usize| {
        json!({"replicas": replicas, "restartPolicy": "OnFailure", "template": {"spec": {
            "containers": [{"name": "pytorch", "image": "attack", "command": ["train"]}]}}})
    };
    json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"pytorchReplicaSpecs": {"Master": role(1), "Worker": role(PODS - 1)}}})
}
