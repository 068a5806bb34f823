//! What `deploy/` renders is what an API server takes, under the restricted pod standard.

use std::{fs, path::Path};

use serde_json::{Value, json};
use trainyard_kube::rights::{self, Place};

use crate::{
    hooks::objects,
    namespace::{TestNamespace, on_cluster},
};

/// The folder of the manifests.
const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
/// The Kubernetes version of a chart that is rendered without a server.
const KUBERNETES: &str = "--kube-version=1.35.0";

/// Asks the API server whether it would take `all`, and whether pods of their Deployment may run where
/// the restricted standard is enforced.
fn must_be_taken(fixture: &TestNamespace, what: &str, all: &[Value]) {
    // Kinds of the Prometheus operator are not installed here. Of the definitions, which are large and
    // installed as they are, only that with the conversion differs from one form to another.
    let known: Vec<&Value> = all
        .iter()
        .filter(|object| match object["kind"].as_str().unwrap() {
            "ServiceMonitor" | "Namespace" => false,
            "CustomResourceDefinition" => object["metadata"]["name"] == "mpijobs.kubeflow.org",
            _ => true,
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": known});
    let taken = fixture.try_apply(&list, &["--dry-run=server"]);
    assert_eq!(taken.code, Some(0), "{what}: {taken:?}");
    assert!(!taken.stderr.contains("Warning"), "{what}: {taken:?}");
    let deployment = only(what, all, "Deployment");
    let template = &deployment["spec"]["template"];
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"],
        "spec": template["spec"]});
    pod["metadata"]["name"] = json!("as-deployed");
    // The account is not there while nothing is installed.
    pod["spec"]["serviceAccountName"] = json!("default");
    let taken = fixture.try_put(&pod, &["--dry-run=server"]);
    assert_eq!(taken.code, Some(0), "{what}: {taken:?}");
    let service = only(what, all, "Service");
    for key in ["app.kubernetes.io/name", "app.kubernetes.io/component"] {
        assert_eq!(
            service["spec"]["selector"][key], template["metadata"]["labels"][key],
            "{what}: {service:#}"
        );
    }
    for monitor in all
        .iter()
        .filter(|object| object["kind"] == "ServiceMonitor")
    {
        let wanted = monitor["spec"]["selector"]["matchLabels"]
            .as_object()
            .unwrap();
        for (key, value) in wanted {
            assert_eq!(&service["metadata"]["labels"][key], value, "{what}");
        }
        let port = &monitor["spec"]["endpoints"][0]["port"];
        let ports = service["spec"]["ports"].as_array().unwrap();
        assert!(ports.iter().any(|one| one["name"] == *port), "{what}");
    }
}

/// The one object of a kind.
fn only<'a>(what: &str, all: &'a [Value], kind: &str) -> &'a Value {
    let mut found = all.iter().filter(|object| object["kind"] == kind);
    let object = found
        .next()
        .unwrap_or_else(|| panic!("{what} has no {kind}"));
    assert!(found.next().is_none(), "{what} has several {kind}s");
    object
}

fn arguments(all: &[Value]) -> Vec<String> {
    let deployment = only("the manifest", all, "Deployment");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let words = container["args"].as_array().unwrap();
    words
        .iter()
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}

/// Makes the namespace one that enforces the restricted standard.
fn restrict(fixture: &TestNamespace) {
    for mode in ["enforce", "warn"] {
        let label = format!("pod-security.kubernetes.io/{mode}=restricted");
        fixture.kubectl(&["label", "namespace", &fixture.namespace, &label]);
    }
}

#[test]
fn every_form_of_the_chart_is_taken() {
    on_cluster("chart", |fixture| {
        restrict(fixture);
        let chart = format!("{DEPLOY}/helm/trainyard");
        let here = format!("namespace={}", fixture.namespace);
        let authority = format!("webhook.caBundle={}", authority(fixture));
        let cases: &[(&str, &[&str], &[&str])] = &[
            (
                "as it is",
                &[],
                &["--webhook-bind=:9443", "--agent-image=trainyard:0.1.0"],
            ),
            ("one namespace", &[&here], &["--namespace="]),
            ("in shadow", &["shadow=true"], &["--shadow"]),
            (
                "a certificate of somebody else",
                &["webhook.existingSecret=own", &authority],
                &["--webhook-cert-dir="],
            ),
            (
                "clients with certificates",
                &["webhook.clientCAConfigMap=clients"],
                &["--webhook-client-ca=/etc/trainyard/clients/ca.crt"],
            ),
            (
                "everything else",
                &[
                    "metrics.serviceMonitor.enabled=true",
                    "userRoles.create=true",
                    "kinds={PyTorchJob,MPIJob}",
                    "workers=8",
                    "image.repository=registry.example.com/test",
                    "image.tag=v9",
                    "priorityClassName=system-cluster-critical",
                    "mpi.launcherRights=true",
                    "networkPolicy.jobs=ports",
                    "networkPolicy.collectorPorts={4317,4318}",
                    "webhook.failurePolicy=Fail",
                ],
                &[
                    "--kinds=PyTorchJob,MPIJob",
                    "--workers=8",
                    "--agent-image=registry.example.com/test:v9",
                    "--mpi-launcher-rights",
                    "--network-policy=ports",
                ],
            ),
        ];
        for (what, values, words) in cases {
            let mut call = vec!["template", "trainyard", &chart, KUBERNETES];
            for value in *values {
                call.extend(["--set", value]);
            }
            let all = objects(fixture.helm(&call).as_bytes());
            must_be_taken(fixture, what, &all);
            let arguments = arguments(&all);
            for word in *words {
                let given = arguments.iter().any(|argument| argument.starts_with(word));
                assert!(given, "{what}: {word} is not in {arguments:?}");
            }
            for kind in ["Validating", "Mutating"] {
                let kind = format!("{kind}WebhookConfiguration");
                let webhooks = all.iter().any(|object| object["kind"] == kind.as_str());
                assert_eq!(webhooks, *what != "in shadow", "{what}: {kind}");
            }
            if *what == "in shadow" {
                reads_only(&all);
            }
            let executes = all.iter().any(may_execute);
            assert_eq!(
                executes,
                *what == "everything else",
                "{what}: rights to execute in pods"
            );
        }
    });
}

/// Some authority in base64: that of the cluster, which is in every namespace.
fn authority(fixture: &TestNamespace) -> String {
    let name = "kube-root-ca.crt";
    let text = fixture.wait("the namespace has the authority", || {
        let found = fixture.kubectl(&[
            "get",
            "configmap",
            name,
            "--ignore-not-found",
            "-o",
            "jsonpath={.data.ca\\.crt}",
        ]);
        (!found.is_empty()).then_some(found)
    });
    fixture.kubectl(&[
        "create",
        "secret",
        "generic",
        "authority",
        "--dry-run=client",
        &format!("--from-literal=ca={text}"),
        "-o",
        "jsonpath={.data.ca}",
    ])
}

/// Fails where a role lets its holder change anything of jobs.
fn reads_only(all: &[Value]) {
    let roles = all
        .iter()
        .filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role");
    for role in roles {
        for rule in role["rules"].as_array().unwrap() {
            let verbs = rule["verbs"].as_array().unwrap();
            let reads = verbs
                .iter()
                .all(|verb| ["get", "list", "watch"].iter().any(|reads| verb == reads));
            // Its own namespace has the rules of every operator.
            assert!(
                reads || role["metadata"]["name"] == "trainyard" && role["kind"] == "Role",
                "{rule}"
            );
        }
    }
}

/// Whether a role gives the right to execute in pods.
fn may_execute(object: &Value) -> bool {
    let rules = object["rules"].as_array();
    let resources = |rule: &Value| rule["resources"].as_array().cloned().unwrap_or_default();
    rules
        .into_iter()
        .flatten()
        .any(|rule| resources(rule).contains(&json!("pods/exec")))
}

#[test]
fn every_kustomization_is_taken() {
    on_cluster("kustomize", |fixture| {
        restrict(fixture);
        let folder = Path::new(DEPLOY).canonicalize().unwrap();
        let overlay = fixture.new_file("overlay");
        fs::create_dir(&overlay).unwrap();
        // Folders are named from where the file lies.
        let depth = overlay.canonicalize().unwrap().components().count() - 1;
        let up = "../".repeat(depth);
        let to = |name: &str| format!("{up}.{}/kustomize/{name}", folder.display());
        let cases = [
            ("base", "base", vec![]),
            ("namespaced", "namespaced", vec![]),
            (
                "base with components",
                "base",
                vec![
                    "kubeflow-roles",
                    "prometheus",
                    "launchers",
                    "network-policies",
                    "progress-push",
                    "gangs",
                    "trainjobs",
                ],
            ),
            (
                "namespaced with components",
                "namespaced",
                vec![
                    "kubeflow-roles",
                    "prometheus",
                    "launchers-namespaced",
                    "network-policies-namespaced",
                ],
            ),
        ];
        for (what, base, components) in cases {
            let components: Vec<String> = components
                .iter()
                .map(|name| to(&format!("components/{name}")))
                .collect();
            let kustomization = json!({
                "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
                "namespace": fixture.namespace,
                "resources": [to(base)], "components": components,
            });
            fs::write(
                overlay.join("kustomization.yaml"),
                kustomization.to_string(),
            )
            .unwrap();
            let text = fixture.kubectl(&["kustomize", &overlay.display().to_string()]);
            let all = objects(text.as_bytes());
            must_be_taken(fixture, what, &all);
            let arguments = arguments(&all);
            assert!(
                arguments
                    .iter()
                    .any(|word| word == "--agent-image=trainyard:0.1.0"),
                "{arguments:?}"
            );
            let with = what.ends_with("components");
            for word in ["--mpi-launcher-rights", "--network-policy=ports"] {
                let given = arguments.iter().any(|argument| argument == word);
                assert_eq!(given, with, "{what}: {word} in {arguments:?}");
            }
            let executes = all.iter().any(may_execute);
            assert_eq!(executes, with, "{what}: rights to execute in pods");
            let deployment = only(what, &all, "Deployment");
            let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
            assert_eq!(image, "trainyard:0.1.0", "{what}");
        }
    });
}

#[test]
fn the_dashboard_of_the_chart_is_taken() {
    on_cluster("chart-dashboard", |fixture| {
        restrict(fixture);
        let chart = format!("{DEPLOY}/helm/trainyard");
        let token = [
            Place::Dashboard,
            Place::DashboardNodes,
            Place::DashboardReviews,
        ];
        let forward = [
            Place::Dashboard,
            Place::DashboardNodes,
            Place::DashboardLogs,
        ];
        for (auth, places) in [("token", token), ("port-forward", forward)] {
            let auth_value = format!("dashboard.auth={auth}");
            let call = [
                "template",
                "trainyard",
                &chart,
                KUBERNETES,
                "--set=dashboard.enabled=true",
                "--set=dashboard.tlsSecret=own",
                "--set",
                &auth_value,
            ];
            let mut all = objects(fixture.helm(&call).as_bytes());
            all.retain(|object| {
                let name = object["metadata"]["name"].as_str().unwrap();
                name.starts_with("trainyard-dashboard")
            });
            let is_served = auth == "token";
            let services = all.iter().filter(|object| object["kind"] == "Service");
            assert_eq!(services.count(), usize::from(is_served), "{auth}");
            if is_served {
                must_be_taken(fixture, auth, &all);
            }
            let wants = if is_served {
                "--bind=0.0.0.0:8265"
            } else {
                "--bind=127.0.0.1:8265"
            };
            let given = arguments(&all);
            assert!(given.iter().any(|word| word == wants), "{auth}: {given:?}");
            // Exactly the rights of the table, and no others.
            let roles = all.iter().filter(|object| {
                ["Role", "ClusterRole"]
                    .iter()
                    .any(|it| object["kind"] == *it)
            });
            let mut found: Vec<String> = roles
                .flat_map(|role| role["rules"].as_array().unwrap())
                .map(Value::to_string)
                .collect();
            let wanted = places.into_iter().flat_map(rights::of);
            let mut wanted: Vec<String> = wanted.map(|right| right.rule().to_string()).collect();
            found.sort();
            wanted.sort();
            assert_eq!(found, wanted, "{auth}");
            let bindings = all
                .iter()
                .filter(|object| object["kind"].as_str().unwrap().ends_with("Binding"));
            for binding in bindings {
                let subject = &binding["subjects"][0]["name"];
                assert_eq!(subject, "trainyard-dashboard", "{auth}: {binding:#}");
            }
        }
    });
}
