//! Every kind, from its example to Succeeded.

use serde_json::{Value, json};

use crate::harness::{ends, example, holds, on_cluster};

/// Simulated pods have no program: they end well after a while.
fn with_ends(mut job: Value) -> Value {
    let spec = job["spec"].as_object_mut().unwrap();
    let roles = spec
        .iter_mut()
        .find(|(key, _)| key.ends_with("ReplicaSpecs"))
        .unwrap()
        .1;
    for role in roles.as_object_mut().unwrap().values_mut() {
        // What the simulated nodes do not have is not asked for.
        role["template"]["metadata"]["annotations"] = ends(0, "1s");
        let pod = role["template"]["spec"].as_object_mut().unwrap();
        pod.insert(
            "nodeSelector".to_owned(),
            json!({"test.trainyard.dev/node": "simulated"}),
        );
        pod.remove("tolerations");
        pod.remove("serviceAccountName");
        pod.remove("volumes");
        for container in pod["containers"].as_array_mut().unwrap() {
            let container = container.as_object_mut().unwrap();
            container.remove("resources");
            container.remove("volumeMounts");
        }
    }
    job
}

fn succeeds(name: &'static str, file: &'static str) {
    on_cluster(name, |fixture| async move {
        // The launcher of an `MPIJob` v1 starts its ranks by `kubectl` where there is no agent.
        let rights = |options: &mut trainyard_kube::Options| options.cluster.launcher_rights = true;
        let operator = fixture.operator_with(rights).await;
        let mut job = with_ends(example(file));
        let name = job["metadata"]["name"].as_str().unwrap().to_owned();
        job["metadata"].as_object_mut().unwrap().remove("namespace");
        let kind = job["kind"].as_str().unwrap().to_owned();
        fixture.put(&job).await;
        let status = fixture.until_condition(&kind, &name, "Succeeded").await;
        assert!(!status["completionTime"].is_null(), "{status:#}");
        assert!(holds(&status, "Created"), "{status:#}");
        assert_eq!(status["trainyard"]["attempt"], 1, "{status:#}");
        operator.stop().await;
    });
}

#[test]
fn pytorch_job() {
    succeeds("pytorch", "pytorchjob.yaml");
}

#[test]
fn elastic_pytorch_job() {
    succeeds("elastic", "pytorchjob-elastic.yaml");
}

#[test]
fn tf_job() {
    succeeds("tf", "tfjob.yaml");
}

#[test]
fn xgboost_job() {
    succeeds("xgboost", "xgboostjob.yaml");
}

#[test]
fn paddle_job() {
    succeeds("paddle", "paddlejob.yaml");
}

#[test]
fn jax_job() {
    succeeds("jax", "jaxjob.yaml");
}

#[test]
fn mpi_job_of_v1() {
    succeeds("mpi-v1", "mpijob-v1.yaml");
}
