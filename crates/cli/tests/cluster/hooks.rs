//! What makes the API server call the webhooks of a test's operator.
//!
//! The configurations are those of `deploy/`, for the Service of the test's namespace. There is one of
//! each in a cluster, so tests with webhooks run one after another; jobs of other namespaces are
//! checked by nobody meanwhile.

use std::{
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use trainyard_core::spec;
use trainyard_kube::{crd, rights};

use crate::{job, namespace::TestNamespace, operator::Operator, template};

static ONLY: Mutex<()> = Mutex::new(());

/// Where the API server reaches programs of its own machine.
pub(crate) const MACHINE: &str = "10.89.0.1";

/// The configurations, which are the test's for as long as this value lives.
pub(crate) struct Hooks<'a> {
    fixture: &'a TestNamespace,
    _only: MutexGuard<'static, ()>,
}

/// Waits for the configurations, and removes those that another test left: an installation that takes them over would keep
/// their selector, and ask about jobs of that test's namespace only.
pub(crate) fn alone(fixture: &TestNamespace) -> MutexGuard<'static, ()> {
    // A test that failed has said why.
    let only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
    remove(fixture);
    only
}

impl<'a> Hooks<'a> {
    /// Configures the webhooks for the namespace of `test`, in which nobody answers yet. Nothing is
    /// written without an answer, however long that takes here.
    pub(crate) fn new(fixture: &'a TestNamespace) -> Self {
        Self::with(fixture, |webhook| {
            webhook["failurePolicy"] = json!("Fail");
            webhook["timeoutSeconds"] = json!(30);
        })
    }

    /// Configures the webhooks as `deploy/` does: what they are not asked about in time is written.
    pub(crate) fn as_deployed(fixture: &'a TestNamespace) -> Self {
        Self::with(fixture, |_| {})
    }

    fn with(fixture: &'a TestNamespace, change: impl Fn(&mut Value)) -> Self {
        let only = alone(fixture);
        for mut admission in deployed("kustomize/base/webhook.yaml") {
            for webhook in admission["webhooks"].as_array_mut().unwrap() {
                webhook["clientConfig"]["service"]["namespace"] = json!(fixture.namespace);
                webhook["namespaceSelector"] =
                    json!({"matchLabels": {"kubernetes.io/metadata.name": fixture.namespace}});
                change(webhook);
            }
            fixture.apply(&admission);
        }
        let mut definition = deployed("crds/kubeflow.org_mpijobs.yaml").remove(0);
        definition["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["namespace"] =
            json!(fixture.namespace);
        fixture.apply(&definition);
        fixture.apply(&json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": crd::SERVICE, "namespace": fixture.namespace},
            "spec": {"ports": [{"name": "webhook", "port": 443}]}}));
        Self {
            fixture,
            _only: only,
        }
    }

    /// Makes the port of `operator` an endpoint of the Service, as a replica that is ready is.
    pub(crate) fn lead_to(&self, replica: &str, operator: &Operator) {
        let port = operator.port("webhooks").unwrap();
        self.fixture.apply(
            &json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": replica, "namespace": self.fixture.namespace,
                "labels": {"kubernetes.io/service-name": crd::SERVICE}},
            "addressType": "IPv4", "endpoints": [{"addresses": [MACHINE]}],
            "ports": [{"name": "webhook", "port": port}]}),
        );
    }

    /// Removes a replica from the endpoints, as the control plane does with one that is not ready.
    pub(crate) fn lead_no_more_to(&self, replica: &str) {
        let words = ["delete", "endpointslice", replica, "--ignore-not-found"];
        self.fixture.kubectl(&words);
    }

    /// Waits until the API server has seen a change, and asks.
    pub(crate) fn until_asked(&self) {
        until_asked(self.fixture);
    }
}

/// Waits until the API server asks about jobs of the namespace of `test`.
pub(crate) fn until_asked(fixture: &TestNamespace) {
    let mut wrong = job("probe");
    template(&mut wrong)["spec"]["containers"][0]["name"] = json!("other");
    fixture.wait("a wrong job is refused by our webhook", || {
        let answer = fixture.try_put(&wrong, &["--dry-run=server"]);
        answer.stderr.contains("denied the request").then_some(())
    });
}

/// Removes the configurations of admission.
pub(crate) fn remove(fixture: &TestNamespace) {
    for object in [
        format!("validatingwebhookconfiguration/{}", rights::VALIDATOR),
        format!("mutatingwebhookconfiguration/{}", rights::DEFAULTER),
    ] {
        fixture.kubectl(&["delete", &object, "--ignore-not-found"]);
    }
}

/// The objects of a file of `deploy/`.
pub(crate) fn deployed(file: &str) -> Vec<Value> {
    let path = format!("{}/../../deploy/{file}", env!("CARGO_MANIFEST_DIR"));
    objects(&fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}")))
}

/// The objects of a text in YAML.
pub(crate) fn objects(text: &[u8]) -> Vec<Value> {
    let file = spec::read(text).unwrap_or_else(|error| panic!("{error:?}"));
    let documents = file.documents.iter();
    documents.map(|document| document.tree.to_json()).collect()
}
