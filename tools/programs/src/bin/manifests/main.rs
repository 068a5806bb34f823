//! Writes the generated files of `deploy/`, and the page about the rights, below the folder that is named.
//!
//! `cargo xtask gen` runs it; nothing else does. What is written here follows from types and tables:
//! the definitions, the rights with their reasons, the webhooks of the kinds.

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

use serde_json::{Value, json};
use trainyard_core::spec::{Kind, push_yaml, to_yaml};
use trainyard_kube::{
    crd,
    rights::{self, Place, Right},
    webhook,
};

const HEAD: &str = "# Made by `cargo xtask gen` from the tables of crates/kube; do not edit.\n";
const OPERATOR: &str = "trainyard";
const RBAC: &str = "rbac.authorization.k8s.io";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args_os()
        .nth(1)
        .ok_or("name the folder to write below")?;
    let page = ("docs/reference/rights.md".to_owned(), rights_page());
    let manifests = files()
        .into_iter()
        .map(|(path, text)| (format!("deploy/{path}"), text));
    for (path, text) in manifests.chain([page]) {
        let path = Path::new(&folder).join(path);
        fs::create_dir_all(path.parent().ok_or("a file lies in a folder")?)?;
        fs::write(path, text)?;
    }
    Ok(())
}

/// Every file by its path below `deploy/`.
fn files() -> Vec<(String, String)> {
    let definitions = crd::definitions();
    let names: Vec<&String> = definitions.iter().map(|(file, _)| file).collect();
    let list = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": names,
    });
    let mut files = vec![
        (
            "crds/kustomization.yaml".to_owned(),
            documents(&[to_yaml(&list)]),
        ),
        (
            "kustomize/operator/rbac.yaml".to_owned(),
            documents(&own_rights()),
        ),
        (
            "kustomize/base/rbac.yaml".to_owned(),
            documents(&cluster_rights()),
        ),
        (
            "kustomize/base/webhook.yaml".to_owned(),
            documents(&[to_yaml(&defaulter()), to_yaml(&validator())]),
        ),
        (
            "kustomize/namespaced/rbac.yaml".to_owned(),
            documents(&namespaced_rights()),
        ),
        (
            "kustomize/components/kubeflow-roles/roles.yaml".to_owned(),
            documents(&user_roles()),
        ),
        (
            "helm/trainyard/templates/_rights.tpl".to_owned(),
            chart_rights(),
        ),
        (
            "helm/trainyard/templates/user-roles.yaml".to_owned(),
            chart_user_roles(),
        ),
        (
            "argocd/health.yaml".to_owned(),
            documents(&[to_yaml(&health())]),
        ),
    ];
    files.extend(component_rights("launchers", Place::Launchers));
    files.extend(component_rights("network-policies", Place::NetworkPolicies));
    // Only beside webhooks, which need the whole cluster.
    for (component, name) in [
        ("progress-push", "trainyard-pushes"),
        ("gangs", "trainyard-gangs"),
    ] {
        let rights = role("ClusterRole", name, None, &[Place::Pushes]);
        files.push((
            format!("kustomize/components/{component}/rbac.yaml"),
            documents(&rights),
        ));
    }
    let train: Vec<String> = crd::train_definitions()
        .iter()
        .map(|(_, definition)| to_yaml(definition))
        .collect();
    files.push((
        "kustomize/components/trainjobs/crds.yaml".to_owned(),
        documents(&train),
    ));
    files.push((
        "helm/trainyard/templates/trainjob-crds.yaml".to_owned(),
        chart_train_definitions(),
    ));
    let rights = [role(
        "ClusterRole",
        "trainyard-trainjobs",
        None,
        &[Place::TrainJobs, Place::TrainRuntimes],
    )];
    files.push((
        "kustomize/components/trainjobs/rbac.yaml".to_owned(),
        documents(&rights.concat()),
    ));
    let runtimes: Vec<String> = crd::train_runtimes().iter().map(to_yaml).collect();
    files.push(("trainjobs/runtimes.yaml".to_owned(), documents(&runtimes)));
    for (file, definition) in &definitions {
        files.push((format!("crds/{file}"), documents(&[to_yaml(definition)])));
    }
    files
}

/// Every right of the operator for people to read, from the same table as the roles.
fn rights_page() -> String {
    let mut text = "<!-- Made by `cargo xtask gen` from `crates/kube/src/rights.rs`; do not edit. -->\n\n\
                    # Rights of the operator and of the dashboard\n\n\
                    Everything that the ServiceAccount of the operator may do, and why; then the same of the dashboard that is installed \
                    with `dashboard.enabled`. The roles of `deploy/` are made from the same \
                    table. [Security](../security.md) says what follows from it.\n"
        .to_owned();
    let list = |words: &[String]| {
        let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
        quoted.join(", ")
    };
    for (place, _) in Place::ALL {
        let heading = place.heading();
        write!(
            text,
            "\n## {heading}\n\n| resources | verbs | why |\n|---|---|---|\n"
        )
        .expect("writing to a String cannot fail");
        for right in rights::of(place) {
            let rule = right.rule();
            let words = |key: &str| -> Vec<String> {
                let words = rule[key].as_array().into_iter().flatten();
                words.filter_map(Value::as_str).map(str::to_owned).collect()
            };
            let mut resources = list(&words("resources"));
            let groups: Vec<String> = words("apiGroups")
                .into_iter()
                .filter(|group| !group.is_empty())
                .collect();
            if !groups.is_empty() {
                write!(resources, " of {}", list(&groups))
                    .expect("writing to a String cannot fail");
            }
            let names = words("resourceNames");
            if !names.is_empty() {
                write!(resources, ", only {}", list(&names))
                    .expect("writing to a String cannot fail");
            }
            let verbs = words("verbs").join(", ");
            let reason = right.reason;
            writeln!(text, "| {resources} | {verbs} | {reason} |")
                .expect("writing to a String cannot fail");
        }
    }
    text
}

fn documents(texts: &[String]) -> String {
    format!("{HEAD}{}", texts.join("---\n"))
}

/// The rules of some places, each below its reason.
fn rules(places: &[Place]) -> String {
    let mut text = String::new();
    for right in places.iter().flat_map(|place| rights::of(*place)) {
        let reason = right.reason;
        writeln!(text, "# {reason}").expect("writing to a String cannot fail");
        push_yaml(&mut text, &json!([right.rule()]));
    }
    text
}

/// A role with its rules, and the binding that gives it to the operator.
fn role(kind: &str, name: &str, namespace: Option<&str>, places: &[Place]) -> [String; 2] {
    let mut metadata = json!({ "name": name });
    let mut subject = json!({ "kind": "ServiceAccount", "name": OPERATOR });
    // Kustomize puts its own namespace on the subject that has the name of the account.
    subject["namespace"] = json!(crd::NAMESPACE);
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    let head = json!({ "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata });
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": format!("{kind}Binding"),
        "metadata": metadata,
        "roleRef": { "apiGroup": RBAC, "kind": kind, "name": name },
        "subjects": [subject],
    });
    let role = format!("{}rules:\n{}", to_yaml(&head), rules(places));
    [role, to_yaml(&binding)]
}

fn own_rights() -> Vec<String> {
    role("Role", OPERATOR, Some(crd::NAMESPACE), &[Place::Own]).into()
}

fn cluster_rights() -> Vec<String> {
    [
        role("ClusterRole", OPERATOR, None, &[Place::Jobs, Place::Nodes]),
        role(
            "ClusterRole",
            "trainyard-webhooks",
            None,
            &[Place::Webhooks],
        ),
        role("ClusterRole", "trainyard-marks", None, &[Place::Marks]),
        role(
            "Role",
            "trainyard-node-leases",
            Some("kube-node-lease"),
            &[Place::NodeLeases],
        ),
    ]
    .concat()
}

fn namespaced_rights() -> Vec<String> {
    role(
        "Role",
        "trainyard-jobs",
        Some(crd::NAMESPACE),
        &[Place::Jobs],
    )
    .into()
}

/// The rights that a component adds, for the whole cluster or for one namespace.
fn component_rights(name: &str, place: Place) -> [(String, String); 2] {
    let role_name = format!("{OPERATOR}-{name}");
    let file = |folder: &str| format!("kustomize/components/{folder}/rbac.yaml");
    [
        (
            file(name),
            documents(&role("ClusterRole", &role_name, None, &[place])),
        ),
        (
            file(&format!("{name}-namespaced")),
            documents(&role("Role", &role_name, Some(crd::NAMESPACE), &[place])),
        ),
    ]
}

fn user_roles() -> Vec<String> {
    rights::user_roles().iter().map(to_yaml).collect()
}

/// The rules of each place as a named template, for the chart to use where it needs them.
fn chart_rights() -> String {
    let mut text =
        "{{/* Made by `cargo xtask gen` from the tables of crates/kube; do not edit. */}}\n"
            .to_owned();
    let mut define = |name: &str, rules: &str| {
        write!(
            text,
            "{{{{- define \"trainyard.rights.{name}\" -}}}}\n{rules}{{{{- end }}}}\n"
        )
        .expect("writing to a String cannot fail");
    };
    for (place, name) in Place::ALL {
        define(name, &rules(&[place]));
    }
    let reading: Vec<Value> = rights::of(Place::Jobs)
        .filter_map(Right::reading_rule)
        .collect();
    define("shadow", &to_yaml(&json!(reading)));
    text
}

/// The definitions of `TrainJob` and its runtimes, kept when the release goes.
fn chart_train_definitions() -> String {
    let definitions: Vec<String> = crd::train_definitions()
        .into_iter()
        .map(|(_, mut definition)| {
            definition["metadata"]["annotations"] = json!({ "helm.sh/resource-policy": "keep" });
            to_yaml(&definition)
        })
        .collect();
    let definitions = definitions.join("---\n");
    format!(
        "{HEAD}{{{{- if and .Values.trainJobs.enabled .Values.trainJobs.installCRDs }}}}\n{definitions}{{{{- end }}}}\n"
    )
}

fn chart_user_roles() -> String {
    let roles = user_roles().join("---\n");
    format!("{HEAD}{{{{- if .Values.userRoles.create }}}}\n{roles}{{{{- end }}}}\n")
}

/// Every kind is checked when it is written, whatever version it is written in.
fn validator() -> Value {
    let webhook = |kind: Kind| {
        let name = format!("validator.{}.trainyard.dev", crd::singular(kind));
        let rules = json!([asked_about(kind, &["CREATE", "UPDATE"])]);
        admission(&name, &webhook::validate_path(kind), &rules)
    };
    let webhooks: Vec<Value> = kinds().map(webhook).collect();
    configuration("Validating", rights::VALIDATOR, &webhooks)
}

/// Every kind is completed when it is made. Later nobody's words are changed.
fn defaulter() -> Value {
    let rules: Vec<Value> = kinds().map(|kind| asked_about(kind, &["CREATE"])).collect();
    let webhook = admission(rights::DEFAULTER, webhook::DEFAULT_PATH, &json!(rules));
    configuration("Mutating", rights::DEFAULTER, &[webhook])
}

/// The kinds, each once.
fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| *kind != Kind::MpiV2)
}

fn asked_about(kind: Kind, operations: &[&str]) -> Value {
    let versions: Vec<&str> = Kind::ALL
        .into_iter()
        .filter(|other| crd::plural(*other) == crd::plural(kind))
        .map(crd::version)
        .collect();
    json!({
        "apiGroups": [crd::GROUP],
        "apiVersions": versions,
        "operations": operations,
        "resources": [crd::plural(kind)],
    })
}

/// A webhook that nothing waits for: whatever it says the operator finds again when it reads the job.
fn admission(name: &str, path: &str, rules: &Value) -> Value {
    json!({
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": { "service": {
            "name": crd::SERVICE,
            "namespace": crd::NAMESPACE,
            "path": path,
            "port": 443,
        } },
        "failurePolicy": "Ignore",
        "rules": rules,
        "sideEffects": "None",
        "timeoutSeconds": 5,
    })
}

fn configuration(kind: &str, name: &str, webhooks: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{kind}WebhookConfiguration"),
        "metadata": { "name": name },
        "webhooks": webhooks,
    })
}

/// How Argo CD sees that a job is healthy: the same rule for each kind.
fn health() -> Value {
    let script = include_str!("health.lua");
    let mut kinds: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let data: serde_json::Map<String, Value> = kinds
        .into_iter()
        .map(|kind| {
            let key = format!("resource.customizations.health.{}_{kind}", crd::GROUP);
            (key, json!(script))
        })
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "argocd-cm",
            "namespace": "argocd",
            "labels": { "app.kubernetes.io/name": "argocd-cm", "app.kubernetes.io/part-of": "argocd" },
        },
        "data": data,
    })
}
