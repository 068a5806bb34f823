//! Where the API serves what.

use trainyard_core::{launch::Object, spec::Kind};

use crate::{crd, key::JobKey};

/// Where the API serves `resource` of `namespace`.
pub(crate) fn object_path(namespace: &str, resource: &str) -> String {
    let group = match resource {
        "pods"
        | "services"
        | "configmaps"
        | "secrets"
        | "serviceaccounts"
        | "persistentvolumeclaims" => "/api/v1",
        "jobs" => "/apis/batch/v1",
        "horizontalpodautoscalers" => "/apis/autoscaling/v2",
        "networkpolicies" => "/apis/networking.k8s.io/v1",
        _ => "/apis/rbac.authorization.k8s.io/v1",
    };
    format!("{group}/namespaces/{namespace}/{resource}")
}

/// Where the API serves the jobs of the kind and namespace of `key`.
pub(crate) fn job_path(key: &JobKey) -> String {
    format!(
        "/apis/{}/{}/namespaces/{}/{}",
        key.kind.group(),
        crd::version(stored_as(key.kind)),
        key.namespace,
        crd::plural(key.kind)
    )
}

/// The kind as which jobs of `kind` are stored, and therefore read and written without conversion.
pub(crate) fn stored_as(kind: Kind) -> Kind {
    if kind.is_mpi() {
        crd::MPI_STORAGE
    } else {
        kind
    }
}

/// The name of an object's type in paths.
pub(crate) fn resource(object: &Object) -> &'static str {
    match object {
        Object::Pod(_) => "pods",
        Object::Job(_) => "jobs",
        Object::Service(_) => "services",
        Object::ConfigMap(_) => "configmaps",
        Object::Secret(_) => "secrets",
        Object::Claim(_) => "persistentvolumeclaims",
        Object::ServiceAccount(_) => "serviceaccounts",
        Object::Role(_) => "roles",
        Object::RoleBinding(_) => "rolebindings",
        Object::Autoscaler(_) => "horizontalpodautoscalers",
        Object::NetworkPolicy(_) => "networkpolicies",
        Object::Group(group) => group.api.resource(),
    }
}
