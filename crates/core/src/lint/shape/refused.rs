//! Fields of a pod that the API server or the kubelet refuses.

mod fields;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, NodeSelectorRequirement, Toleration};

use super::super::{
    Rule,
    advice::{Advice, Look, WRONG, rule},
    scene::{Pod, Scene},
};
use crate::spec::{Framework, MpiTransport, Place, Role};

/// The rule about such fields.
pub(in crate::lint) static RULES: &[Advice] = &[Advice {
    rule: rule(
        "TY170",
        WRONG,
        "field of a pod that the cluster refuses",
        "The API server takes the job and refuses its pods, or the kubelet cannot start them. It is so for a word that \
         the field does not know, for a toleration with `Exists` and a value, for a port above 65535, for a volume or a \
         mount path that is there twice, for `maxSkew: 0`, for root beside `runAsNonRoot`, for a variable with a value and \
         a source or with a field that it cannot take, for a `subPath` that is no path below the volume, for a mode of files \
         above 0777, for a capability with `CAP_` before its name, for a label of a node with a blank in it.",
    ),
    look: Look::Job(refused),
}];

fn refused(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        of_pod(rule, scene, pod);
        for (container, place) in pod.containers() {
            of_container(rule, scene, pod, container, &place);
        }
    }
}

/// Reports `value` where it is none of `known`; an empty one is the default.
fn word(rule: &Rule, place: &Place<'_>, field: &str, value: &str, known: &[&str]) {
    if value.is_empty() || value.contains('$') || known.contains(&value) {
        return;
    }
    let known: Vec<String> = known.iter().map(|word| format!("`{word}`")).collect();
    place.key(field).report_with(
        rule,
        format!(
            "unknown {field} `{value}`; expected one of {}",
            known.join(", ")
        ),
        "write one of these words, or remove the field",
    );
}

fn of_pod(rule: &Rule, scene: &Scene<'_>, pod: &Pod<'_>) {
    let at = pod.at();
    let policy = pod.spec.dns_policy.as_deref().unwrap_or_default();
    fields::of_selector(rule, pod);
    let policies = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    word(rule, &at, "dnsPolicy", policy, &policies);
    let list = at.key("tolerations");
    for (index, found) in pod.spec.tolerations.iter().flatten().enumerate() {
        toleration(rule, &list.index(index), found);
    }
    let list = at.key("topologySpreadConstraints");
    let constraints = pod.spec.topology_spread_constraints.iter().flatten();
    for (index, found) in constraints.enumerate() {
        let place = list.index(index);
        if found.max_skew < 1 {
            place.key("maxSkew").report_with(
                rule,
                format!("`maxSkew` must be at least 1, found {}", found.max_skew),
                "write `maxSkew: 1`",
            );
        }
        let words = ["DoNotSchedule", "ScheduleAnyway"];
        let found = found.when_unsatisfiable.as_str();
        word(rule, &place, "whenUnsatisfiable", found, &words);
    }
    let list = at.key("volumes");
    let mut names = BTreeSet::new();
    for (index, volume) in pod.spec.volumes.iter().flatten().enumerate() {
        let place = list.index(index);
        if !volume.name.is_empty() && !names.insert(volume.name.as_str()) {
            place.key("name").report_with(
                rule,
                format!("the pod has two volumes `{}`", volume.name),
                "rename one of the two, and the mounts that mean it",
            );
        }
        fields::of_volume(rule, volume, &place);
        let medium = volume
            .empty_dir
            .as_ref()
            .and_then(|it| it.medium.as_deref());
        let medium = medium.unwrap_or_default();
        if !medium.starts_with("HugePages") {
            word(rule, &place.key("emptyDir"), "medium", medium, &["Memory"]);
        }
    }
    let affinity = pod.spec.affinity.as_ref();
    let by_node = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = by_node.and_then(|it| {
        it.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let place = at.key("affinity").key("nodeAffinity");
    let place = place.key("requiredDuringSchedulingIgnoredDuringExecution");
    let terms = required.map(|required| required.node_selector_terms.iter());
    for (index, term) in terms.into_iter().flatten().enumerate() {
        let list = place.key("nodeSelectorTerms").index(index);
        let list = list.key("matchExpressions");
        for (index, found) in term.match_expressions.iter().flatten().enumerate() {
            requirement(rule, &list.index(index), found);
        }
    }
    // The agent, which operators use as a rule, needs no keys.
    let by_ssh = scene.job.settings.mpi_transport == Some(MpiTransport::Ssh);
    if let (Framework::MpiV2(own), true) = (&scene.job.framework, by_ssh) {
        keys_of_ssh(rule, pod, &own.ssh_auth_mount_path);
    }
}

/// The operator mounts its keys at `path`, and two mounts cannot have one path.
fn keys_of_ssh(rule: &Rule, pod: &Pod<'_>, path: &str) {
    for (mount, place, _) in pod.mounts() {
        let is_same = mount.mount_path.trim_end_matches('/') == path.trim_end_matches('/');
        if is_same && matches!(pod.role, Role::Launcher | Role::Worker) {
            place.key("mountPath").report_with(
                rule,
                format!("`{path}` is where the operator mounts the ssh keys of the job"),
                "mount the volume elsewhere, or set `sshAuthMountPath` to another folder",
            );
        }
    }
}

fn toleration(rule: &Rule, place: &Place<'_>, found: &Toleration) {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (operator, effect, value) = (
        text(&found.operator),
        text(&found.effect),
        text(&found.value),
    );
    let operators = ["Equal", "Exists", "Gt", "Lt"];
    let effects = ["NoExecute", "NoSchedule", "PreferNoSchedule"];
    word(rule, place, "operator", &operator, &operators);
    word(rule, place, "effect", &effect, &effects);
    if operator == "Exists" && !value.is_empty() {
        place.key("value").report_with(
            rule,
            format!("a toleration with `Exists` has the value `{value}`, and must have none"),
            "remove `value`, or write `operator: Equal`",
        );
    }
    if text(&found.key).is_empty() && operator != "Exists" {
        place.report_with(
            rule,
            "a toleration without a key needs the operator `Exists`",
            "add `key`, such as `nvidia.com/gpu`, or write `operator: Exists`",
        );
    }
    if found.toleration_seconds.is_some() && effect != "NoExecute" {
        place.key("tolerationSeconds").report_with(
            rule,
            "`tolerationSeconds` needs the effect `NoExecute`",
            "write `effect: NoExecute`, or remove `tolerationSeconds`",
        );
    }
}

fn requirement(rule: &Rule, place: &Place<'_>, found: &NodeSelectorRequirement) {
    let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
    word(rule, place, "operator", &found.operator, &operators);
    let count = found.values.as_ref().map_or(0, Vec::len);
    let (needed, fits) = match found.operator.as_str() {
        "In" | "NotIn" => ("at least one value", count > 0),
        "Exists" | "DoesNotExist" => ("no value", count == 0),
        "Gt" | "Lt" => ("one number", count == 1),
        _ => return,
    };
    if !fits {
        place.key("values").report_with(
            rule,
            format!(
                "`{}` of `{}` needs {needed}, found {count}",
                found.operator, found.key
            ),
            "change `operator` or `values` so that they fit each other",
        );
    }
}

fn of_container(
    rule: &Rule,
    scene: &Scene<'_>,
    pod: &Pod<'_>,
    container: &Container,
    place: &Place<'_>,
) {
    fields::of_container(rule, container, place);
    let policy = container.image_pull_policy.as_deref().unwrap_or_default();
    let policies = ["Always", "IfNotPresent", "Never"];
    word(rule, place, "imagePullPolicy", policy, &policies);
    let list = place.key("volumeMounts");
    let mut paths = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let path = mount.mount_path.as_str();
        if !path.is_empty() && !paths.insert(path) {
            list.index(index).key("mountPath").report_with(
                rule,
                format!("two volumes are mounted at `{path}`"),
                "mount one of the two elsewhere",
            );
        }
    }
    let list = place.key("ports");
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let place = list.index(index);
        // The API server puts the other one in place of 0.
        let stated = port.host_port.filter(|number| *number != 0);
        let host = stated.unwrap_or(port.container_port);
        for (key, number) in [("containerPort", port.container_port), ("hostPort", host)] {
            // 0 is what stands for a number that is not there, or is no number.
            if number != 0
                && !(1..=65_535).contains(&number)
                && (key, host) != ("hostPort", port.container_port)
            {
                place.key(key).report_with(
                    rule,
                    format!("`{key}` must be from 1 to 65535, found {number}"),
                    "write a port that there is",
                );
            }
        }
        if pod.spec.host_network == Some(true) && host != port.container_port {
            place.key("hostPort").report_with(
                rule,
                format!("`hostPort` is {host} and `containerPort` {}, on the host's network they must be the same", port.container_port),
                "remove `hostPort`",
            );
        }
    }
    let resources = container.resources.as_ref();
    let wanted = resources.and_then(|resources| resources.claims.as_ref());
    let list = place.key("resources").key("claims");
    for (index, claim) in wanted.into_iter().flatten().enumerate() {
        let mut stated = pod.spec.resource_claims.iter().flatten();
        if !scene.part && !stated.any(|stated| stated.name == claim.name) {
            list.index(index).report_with(
                rule,
                format!("the pod has no resource claim `{}`", claim.name),
                "add it to `resourceClaims` of the pod",
            );
        }
    }
    let own = container.security_context.as_ref();
    let around = pod.spec.security_context.as_ref();
    let non_root = own
        .and_then(|own| own.run_as_non_root)
        .or_else(|| around?.run_as_non_root);
    let user = own
        .and_then(|own| own.run_as_user)
        .or_else(|| around?.run_as_user);
    if non_root == Some(true) && user == Some(0) {
        place.key("securityContext").report_with(
            rule,
            format!(
                "the container `{}` has `runAsNonRoot` and the user 0, which is root",
                container.name
            ),
            "set `runAsUser` to another user, or remove `runAsNonRoot`",
        );
    }
    if own.is_some_and(|own| {
        own.privileged == Some(true) && own.allow_privilege_escalation == Some(false)
    }) {
        place.key("securityContext").report_with(
            rule,
            "`privileged: true` needs `allowPrivilegeEscalation`, which is `false`",
            "remove `privileged`",
        );
    }
}
