//! Kueue itself, as a process that manages the jobs of one namespace.
//!
//! It is installed by the manifests of its makers: kinds in both versions with conversion, defaults and
//! checks of jobs and queues. Only what would reach beyond the test is left out: jobs of other
//! namespaces, other kinds of jobs, the pod that it would run in. The kinds stay in the cluster.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    hooks::{MACHINE, objects},
    namespace::TestNamespace,
};

/// The Service in front of its webhooks, as its manifests name it.
const SERVICE: &str = "kueue-webhook-service";
/// The Secret that it keeps its certificate in.
const SECRET: &str = "kueue-webhook-server-cert";
/// What its webhooks are asked about here.
const GROUPS: [&str; 2] = ["kubeflow.org", "kueue.x-k8s.io"];
/// What it takes on, by its own names.
const FRAMEWORKS: [&str; 6] = [
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
];

/// Kueue, for as long as this value lives.
pub(crate) struct Kueue {
    /// Its own namespace: it refuses to manage the jobs there.
    system: TestNamespace,
    child: Child,
    log: PathBuf,
}

impl Drop for Kueue {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Kueue {
    /// Installs it for the namespace of `test`, and starts it. It serves once queues can be made.
    pub(crate) fn start(fixture: &TestNamespace) -> Self {
        let system = fixture.beside("system");
        let port = free_port();
        install(fixture, &system, port);
        let certificates = fixture.new_file("certificates");
        fs::create_dir(&certificates).unwrap();
        let config = fixture.new_file("kueue.json");
        fs::write(
            &config,
            configuration(fixture, &system, port, &certificates).to_string(),
        )
        .unwrap();
        let log = fixture.new_file("kueue.log");
        let child = Command::new("kueue")
            .arg(format!("--config={}", config.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("cannot start `kueue`: {error}; `cargo xtask cluster kinds` builds it")
            });
        let mut kueue = Self { system, child, log };
        fixture.wait("Kueue has made its certificate", || {
            kueue.must_run();
            hand_over(&kueue.system, &certificates)
        });
        kueue
    }

    /// Ends it, and its part in what the API server takes. Nothing of it may be left by then.
    pub(crate) fn uninstall(self) {
        for kind in ["mutating", "validating"] {
            let name = format!("kueue-{kind}-webhook-configuration");
            self.system
                .kubectl(&["delete", &format!("{kind}webhookconfiguration"), &name]);
        }
        self.system.clear();
    }

    /// Fails with the last that it said if it has ended.
    pub(crate) fn must_run(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            let log = fs::read_to_string(&self.log).unwrap();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines.len().saturating_sub(20);
            panic!("Kueue ended with {status}:\n{}", lines[last..].join("\n"));
        }
    }
}

/// A port that nobody listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Puts its certificate where it looks for it, as a kubelet would, once there is one.
fn hand_over(system: &TestNamespace, folder: &Path) -> Option<()> {
    let part = |name: &str| {
        let field = format!(
            "go-template={{{{with .data}}}}{{{{index . \"{name}\" | base64decode}}}}{{{{end}}}}"
        );
        system.kubectl(&["get", "secret", SECRET, "--output", &field])
    };
    let (key, certificate) = (part("tls.key"), part("tls.crt"));
    if key.is_empty() || certificate.is_empty() {
        return None;
    }
    fs::write(folder.join("tls.key"), key).unwrap();
    // It waits for this file, and must not find half of it.
    let unfinished = folder.join("unfinished");
    fs::write(&unfinished, certificate).unwrap();
    fs::rename(unfinished, folder.join("tls.crt")).unwrap();
    Some(())
}

fn configuration(
    fixture: &TestNamespace,
    system: &TestNamespace,
    port: u16,
    certificates: &Path,
) -> Value {
    json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "namespace": system.namespace,
        "webhook": {"port": port, "certDir": certificates},
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": false},
        "managedJobsNamespaceSelector": only(fixture),
        "integrations": {"frameworks": FRAMEWORKS},
        // Its own API server, which would want a port of its own.
        "featureGates": {"VisibilityOnDemand": false},
    })
}

/// The namespace of the test, and no other.
fn only(fixture: &TestNamespace) -> Value {
    json!({"matchLabels": {"kubernetes.io/metadata.name": fixture.namespace}})
}

fn install(fixture: &TestNamespace, system: &TestNamespace, port: u16) {
    #[expect(
        clippy::disallowed_methods,
        reason = "where the cluster keeps its state"
    )]
    let state = std::env::var("TRAINYARD_CLUSTER").unwrap();
    let manifests = fixture.kubectl(&["kustomize", &format!("{state}/kinds/kueue/default")]);
    let mut items = vec![
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": system.namespace},
            "spec": {"ports": [{"name": "webhook", "port": 443}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "kueue", "namespace": system.namespace,
                "labels": {"kubernetes.io/service-name": SERVICE}},
            "addressType": "IPv4", "endpoints": [{"addresses": [MACHINE]}],
            "ports": [{"name": "webhook", "port": port}]}),
    ];
    let all = objects(manifests.as_bytes());
    let all = all.into_iter();
    items.extend(all.filter_map(|object| led_here(fixture, system, object)));
    fixture.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}));
}

/// The object as this test needs it, if it does.
fn led_here(fixture: &TestNamespace, system: &TestNamespace, mut object: Value) -> Option<Value> {
    let namespace = json!(system.namespace);
    match object["kind"].as_str().unwrap() {
        "Secret" => object["metadata"]["namespace"] = namespace,
        "CustomResourceDefinition" => {
            let service = object.pointer_mut("/spec/conversion/webhook/clientConfig/service");
            if let Some(service) = service {
                service["namespace"] = namespace;
            }
        }
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            let webhooks = object["webhooks"].as_array_mut().unwrap();
            webhooks.retain(|webhook| {
                let group = &webhook["rules"][0]["apiGroups"][0];
                GROUPS.iter().any(|one| group == one)
            });
            for webhook in webhooks {
                webhook["clientConfig"]["service"]["namespace"] = namespace.clone();
                webhook["namespaceSelector"] = only(fixture);
            }
        }
        _ => return None,
    }
    Some(object)
}
