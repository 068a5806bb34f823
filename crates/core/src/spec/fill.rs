//! What a job means where it says nothing, written into the object itself.
//!
//! Owns the choice of what is written. The values are those of the checked [`super::Job`], so that nothing
//! changes its meaning by being written out.
//!
//! Invariant: the object with what is filled in is the same job, and has the same findings. What follows
//! from other fields is left out, because it would not follow them any more once it is written: the
//! bounds of an elastic job from its workers, `nprocPerNode` from the older field of the same meaning. So
//! are ports, which would be items of a list that the user owns.

use serde_json::{Value, json};

use super::{Framework, Role, RoleSpec, job_from_value};

/// One field that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
    /// Its place, as a JSON pointer.
    pub pointer: String,
    /// Its value.
    pub value: Value,
}

/// The fields that `object` leaves out and the operator gives a default. None where the object is not a
/// valid job.
pub fn fill(object: &Value) -> Vec<Filled> {
    let mut named = object.clone();
    let Some(metadata) = named.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Vec::new();
    };
    // The API server makes the name after it has asked.
    if !metadata.contains_key("name") && metadata.contains_key("generateName") {
        metadata.insert("name".to_owned(), json!("generated"));
    }
    let Some(job) = job_from_value(&named).job else {
        return Vec::new();
    };
    let mut filled = Vec::new();
    let mut absent = |pointer: String, value: Value| {
        if object.pointer(&pointer).is_none_or(Value::is_null) {
            filled.push(Filled { pointer, value });
        }
    };
    let map = format!("/spec/{}", job.kind.replica_map());
    let written = object.pointer(&map).and_then(Value::as_object);
    for (key, role) in written.into_iter().flatten() {
        // A role may be written in another case.
        let is_meant = |(role, _): &(&Role, &RoleSpec)| role.name().eq_ignore_ascii_case(key);
        let meant = job.roles.iter().find(is_meant).filter(|_| role.is_object());
        if let Some((_, spec)) = meant {
            let place = format!("{map}/{key}");
            absent(format!("{place}/replicas"), json!(spec.replicas));
            absent(format!("{place}/restartPolicy"), json!(spec.restart_policy));
        }
    }
    let slots = match &job.framework {
        Framework::MpiV1(own) => Some(own.slots_per_worker),
        Framework::MpiV2(own) => Some(own.slots_per_worker),
        _ => None,
    };
    if let Some(slots) = slots {
        absent("/spec/slotsPerWorker".to_owned(), json!(slots));
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        finding::Finding,
        lint::{self, Profile},
        spec::read,
    };

    fn pod(container: &str) -> Value {
        json!({"spec": {"containers": [{"name": container, "image": "i"}]}})
    }

    fn job(kind: &str, metadata: &Value, spec: &Value) -> Value {
        let (version, kind) = kind.split_once(' ').unwrap();
        json!({"apiVersion": format!("kubeflow.org/{version}"), "kind": kind,
            "metadata": metadata, "spec": spec})
    }

    fn written(mut object: Value, filled: &[Filled]) -> Value {
        for field in filled {
            let (place, key) = field.pointer.rsplit_once('/').unwrap();
            object.pointer_mut(place).unwrap()[key] = field.value.clone();
        }
        object
    }

    #[test]
    fn what_is_written() {
        let name = &json!({"name": "j"});
        let torch = |worker: Value| json!({"pytorchReplicaSpecs": {"Worker": worker}});
        let cases = [
            (
                "nothing said",
                job(
                    "v1 PyTorchJob",
                    name,
                    &torch(json!({"template": pod("pytorch")})),
                ),
                json!({"/spec/pytorchReplicaSpecs/Worker/replicas": 1,
                    "/spec/pytorchReplicaSpecs/Worker/restartPolicy": "OnFailure"}),
            ),
            (
                "all said",
                job(
                    "v1 PyTorchJob",
                    name,
                    &torch(json!({"replicas": 3,
                    "restartPolicy": "Never", "template": pod("pytorch")})),
                ),
                json!({}),
            ),
            (
                "said to be nothing",
                job(
                    "v1 PyTorchJob",
                    name,
                    &torch(json!({"replicas": null,
                    "restartPolicy": "Never", "template": pod("pytorch")})),
                ),
                json!({"/spec/pytorchReplicaSpecs/Worker/replicas": 1}),
            ),
            (
                "a name that is still to come",
                job(
                    "v1 PyTorchJob",
                    &json!({"generateName": "j-"}),
                    &torch(json!({
                    "replicas": 3, "template": pod("pytorch")})),
                ),
                json!({"/spec/pytorchReplicaSpecs/Worker/restartPolicy": "OnFailure"}),
            ),
            (
                "a role in another case",
                job(
                    "v1 JAXJob",
                    name,
                    &json!({"jaxReplicaSpecs": {"worker": {
                    "template": pod("jax")}}}),
                ),
                json!({"/spec/jaxReplicaSpecs/worker/replicas": 1,
                    "/spec/jaxReplicaSpecs/worker/restartPolicy": "Never"}),
            ),
            (
                "an older form of MPI",
                job(
                    "v1 MPIJob",
                    name,
                    &json!({"mpiReplicaSpecs": {
                    "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": pod("mpi")},
                    "Worker": {"restartPolicy": "Never", "template": pod("mpi")}}}),
                ),
                json!({"/spec/mpiReplicaSpecs/Worker/replicas": 0, "/spec/slotsPerWorker": 1}),
            ),
            (
                "a job that is not valid",
                job(
                    "v1 PyTorchJob",
                    name,
                    &torch(json!({"template": pod("trainer")})),
                ),
                json!({}),
            ),
            (
                "no name at all",
                job(
                    "v1 PyTorchJob",
                    &json!({}),
                    &torch(json!({"template": pod("pytorch")})),
                ),
                json!({}),
            ),
        ];
        for (name, object, want) in cases {
            let filled = fill(&object);
            let found: serde_json::Map<String, Value> = filled
                .iter()
                .map(|field| (field.pointer.clone(), field.value.clone()))
                .collect();
            assert_eq!(Value::Object(found), want, "{name}");
            let object = written(object, &filled);
            assert_eq!(fill(&object), [], "{name}: once is enough");
        }
    }

    /// Every manifest of every rule: what is written changes no job and no finding.
    #[test]
    fn what_is_written_changes_nothing() {
        let mut changed = 0;
        for lint::examples::Example {
            file: name, text, ..
        } in lint::examples::all()
        {
            let file = read(text.as_bytes()).unwrap();
            for document in file.documents.iter().filter(|it| it.job_kind().is_some()) {
                let object = document.tree.to_json();
                let filled = fill(&object);
                changed += usize::from(!filled.is_empty());
                let full = written(object.clone(), &filled);
                assert_eq!(
                    job_from_value(&object).job,
                    job_from_value(&full).job,
                    "{name}"
                );
                let lines = |object: &Value| -> Vec<String> {
                    let found = lint::review_object(object, Some(Profile::Production));
                    let line = |found: &Finding| format!("{} {}", found.code, found.message);
                    found.iter().map(line).collect()
                };
                assert_eq!(lines(&object), lines(&full), "{name}");
            }
        }
        assert!(changed > 10, "{changed}");
    }
}
