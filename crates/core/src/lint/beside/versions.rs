//! API versions that Kubernetes has removed, and kinds in a group that never had them.

use super::super::{
    Rule,
    advice::{Advice, Look, WRONG, rule},
    companions::{Companion, Companions},
};
use super::text;

/// The rule.
pub(in crate::lint) static RULES: &[Advice] = &[Advice {
    rule: rule(
        "TY919",
        WRONG,
        "API version that the cluster does not have",
        "Kubernetes removes a version some time after the next one is stable: the beta of CronJob and PodDisruptionBudget ended \
         with 1.25, that of HorizontalPodAutoscaler with 1.26. The cluster then knows no such object, and `kubectl apply` fails with \
         `no matches for kind`. It is the same for a kind in a group that never had it, such as a Job of `v1`.",
    ),
    look: Look::Companion(gone),
}];

/// Kinds of Kubernetes with the version to write.
const KINDS: [(&str, &str); 33] = [
    ("ClusterRole", "rbac.authorization.k8s.io/v1"),
    ("ClusterRoleBinding", "rbac.authorization.k8s.io/v1"),
    ("ConfigMap", "v1"),
    ("CronJob", "batch/v1"),
    ("CustomResourceDefinition", "apiextensions.k8s.io/v1"),
    ("DaemonSet", "apps/v1"),
    ("Deployment", "apps/v1"),
    ("HorizontalPodAutoscaler", "autoscaling/v2"),
    ("Ingress", "networking.k8s.io/v1"),
    ("Job", "batch/v1"),
    ("Lease", "coordination.k8s.io/v1"),
    ("LimitRange", "v1"),
    (
        "MutatingWebhookConfiguration",
        "admissionregistration.k8s.io/v1",
    ),
    ("Namespace", "v1"),
    ("NetworkPolicy", "networking.k8s.io/v1"),
    ("PersistentVolume", "v1"),
    ("PersistentVolumeClaim", "v1"),
    ("Pod", "v1"),
    ("PodDisruptionBudget", "policy/v1"),
    ("PriorityClass", "scheduling.k8s.io/v1"),
    ("ReplicaSet", "apps/v1"),
    ("ReplicationController", "v1"),
    ("ResourceQuota", "v1"),
    ("Role", "rbac.authorization.k8s.io/v1"),
    ("RoleBinding", "rbac.authorization.k8s.io/v1"),
    ("RuntimeClass", "node.k8s.io/v1"),
    ("Secret", "v1"),
    ("Service", "v1"),
    ("ServiceAccount", "v1"),
    ("StatefulSet", "apps/v1"),
    ("StorageClass", "storage.k8s.io/v1"),
    (
        "ValidatingWebhookConfiguration",
        "admissionregistration.k8s.io/v1",
    ),
    ("VolumeAttachment", "storage.k8s.io/v1"),
];

/// Groups that are those of Kubernetes itself; the one without a name is in it.
const GROUPS: [&str; 14] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "coordination.k8s.io",
    "extensions",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// The version to write where a cluster does not know `kind` in `version`.
fn known_instead(kind: &str, version: &str) -> Option<&'static str> {
    let (group, _) = version.split_once('/').unwrap_or(("", version));
    let (_, right) = KINDS.iter().find(|(known, _)| *known == kind)?;
    let also = match kind {
        "HorizontalPodAutoscaler" => version == "autoscaling/v1",
        // A list of a class, or one of admission, is another object.
        _ => false,
    };
    (GROUPS.contains(&group) && version != *right && !also).then_some(right)
}

fn gone(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let Some(version) = text(companion.tree, &["apiVersion"]) else {
        return;
    };
    if let Some(right) = known_instead(companion.kind, version) {
        companion.place.key("apiVersion").report_with(
            rule,
            format!(
                "no cluster of today knows a {} of `{version}`",
                companion.kind
            ),
            format!("write `apiVersion: {right}`"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_are_gone_are_told_from_those_of_others() {
        for (kind, version, want) in [
            ("CronJob", "batch/v1beta1", Some("batch/v1")),
            ("Job", "v1", Some("batch/v1")),
            ("Deployment", "extensions/v1beta1", Some("apps/v1")),
            ("Job", "batch/v1", None),
            ("Job", "batch.volcano.sh/v1alpha1", None),
            ("Service", "serving.knative.dev/v1", None),
            ("HorizontalPodAutoscaler", "autoscaling/v1", None),
            (
                "HorizontalPodAutoscaler",
                "autoscaling/v2beta2",
                Some("autoscaling/v2"),
            ),
            ("Queue", "scheduling.k8s.io/v1", None),
        ] {
            assert_eq!(known_instead(kind, version), want, "{kind} {version}");
        }
    }
}
