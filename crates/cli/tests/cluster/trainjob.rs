//! A `TrainJob` on a real API server: its definitions, its runtime, its two nodes, its end.

use std::fs;

use serde_json::{Value, json};

use crate::{
    namespace::{TestNamespace, on_cluster},
    operator::May,
};

/// Our definitions, from where they are installed from.
const DEFINITIONS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../deploy/kustomize/components/trainjobs/crds.yaml"
);

/// A runtime whose pods run on simulated nodes for a second and end well.
fn runtime() -> Value {
    json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": {"name": "simulated"},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [{
            "name": "node",
            "template": {
                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                "spec": {"template": {
                    "metadata": {"annotations": {
                        "test.trainyard.dev/exit-code": "0",
                        "test.trainyard.dev/exit-after": "1s",
                    }},
                    "spec": {
                        "nodeSelector": {"test.trainyard.dev/node": "simulated"},
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [{"name": "node", "image": "example.com/train:1"}],
                    },
                }},
            },
        }]}}},
    })
}

fn job(name: &str) -> Value {
    json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "simulated", "kind": "TrainingRuntime"}, "trainer": {"numNodes": 2}},
    })
}

/// Installs the definitions, and waits until they are served.
fn install(fixture: &TestNamespace) {
    let text = fs::read_to_string(DEFINITIONS).unwrap();
    let file = fixture.new_file("crds.yaml");
    fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    fixture.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &file]);
    let wait = [
        "wait",
        "--for=condition=Established",
        "--timeout=300s",
        "-f",
    ];
    fixture.kubectl(&[&wait[..], &[file.as_str()]].concat());
}

fn trainjob(fixture: &TestNamespace, name: &str) -> Value {
    let text = fixture.kubectl(&["get", "trainjob", name, "--output=json"]);
    serde_json::from_str(&text).unwrap()
}

#[test]
fn trainjob_waits_runs_and_completes() {
    on_cluster("trainjob", |fixture| {
        install(fixture);
        let operator = fixture.operator_with(May::Act, &["--no-leader-elect", "--trainjobs"]);
        fixture.put(&job("t"));
        fixture.wait("it waits for its runtime", || {
            let job = trainjob(fixture, "t");
            let waiting = job.pointer("/status/trainyard/waiting/message")?.as_str()?;
            waiting
                .contains("TrainingRuntime `simulated`")
                .then_some(())
        });
        fixture.put(&runtime());
        let job = fixture.wait("it is complete", || {
            let job = trainjob(fixture, "t");
            let condition = job.pointer("/status/conditions/0")?;
            (condition["type"] == "Complete").then(|| job.clone())
        });
        assert_eq!(job["status"]["conditions"][0]["reason"], "AllJobsCompleted");
        let counts = &job["status"]["jobsStatus"][0];
        assert_eq!(
            (&counts["name"], &counts["succeeded"]),
            (&json!("node"), &json!(1))
        );
        // Its pods are found as those of a JobSet, and as ours.
        let selector = "--selector=jobset.sigs.k8s.io/jobset-name=t,jobset.sigs.k8s.io/replicatedjob-name=node";
        let pods = fixture.kubectl(&["get", "pods", selector, "--output=name"]);
        assert_eq!(pods.lines().count(), 2, "{pods}");
        let shown = fixture.trainyard(&["ps"]);
        assert!(shown.stdout.contains("TrainJob"), "{shown:?}");
        let runtime = fixture.kubectl(&["get", "configmap", "t-runtime-snapshot", "--output=json"]);
        assert!(runtime.contains("simulated"), "{runtime}");
        fixture.kubectl(&["delete", "trainjob", "t", "--timeout=300s"]);
        operator.stop();
    });
}
