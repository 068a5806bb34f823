//! `trainyard preflight --cluster`: pods on real nodes measure, report, and are deleted.

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    namespace::{PROGRAM, TestNamespace, on_real_nodes},
    on_nodes,
};

const IMAGE: &str = "trainyard.test/trainyard:test";

fn pods(fixture: &TestNamespace) -> usize {
    let listed = fixture.kubectl(&["get", "pods", "--output=json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    listed["items"].as_array().unwrap().len()
}

/// What a check of a node came to.
fn outcome<'a>(report: &'a Value, node: &str, check: &str) -> Option<&'a str> {
    let checks = report["nodes"][node]["checks"].as_array()?;
    let found = checks.iter().find(|one| one["name"] == check)?;
    found["outcome"].as_str()
}

#[test]
fn nodes_are_looked_at_and_nothing_is_left() {
    on_real_nodes("preflight", |fixture| {
        let found = fixture.trainyard(&[
            "preflight",
            "--nodes",
            "node-a,node-b",
            "--image",
            IMAGE,
            "--format",
            "json",
        ]);
        assert_eq!(found.code, Some(0), "{found:?}");
        let report = found.json();
        for node in ["node-a", "node-b"] {
            assert_eq!(outcome(&report, node, "joined"), Some("pass"), "{report:#}");
            assert_eq!(
                outcome(&report, node, "cpu-count"),
                Some("pass"),
                "{report:#}"
            );
        }
        assert!(found.stderr.contains("to lead 2 pods"), "{found:?}");
        assert_eq!(pods(fixture), 0, "all pods are removed");

        // For a job: the image of the job, with what it has; and an interface that no node has.
        let mut job = on_nodes("lost", "true");
        let worker = &mut job["spec"]["pytorchReplicaSpecs"]["Worker"];
        worker["replicas"] = json!(1);
        worker["template"]["spec"]["containers"][0]["env"] =
            json!([{"name": "NCCL_SOCKET_IFNAME", "value": "=ib0"}]);
        let file = fixture.new_file("job.json");
        fs::write(&file, job.to_string()).unwrap();
        let file = file.to_str().unwrap();
        let words = [
            "preflight",
            "--job",
            file,
            "--nodes",
            "node-b",
            "--image",
            IMAGE,
        ];
        let found = fixture.trainyard(&words);
        assert_eq!(found.code, Some(1), "{found:?}");
        assert!(
            found.stdout.contains("interface") && found.stdout.contains("ib0"),
            "{found:?}"
        );
        assert_eq!(pods(fixture), 0, "all pods are removed");

        let found = fixture.trainyard(&["preflight", "--nodes", "node-z"]);
        assert_eq!(found.code, Some(2), "{found:?}");
        assert!(
            found.stderr.contains("the cluster has no node `node-z`"),
            "{found:?}"
        );
    });
}

#[test]
fn one_that_is_interrupted_clears_up() {
    on_real_nodes("interrupted", |fixture| {
        let mut program = Command::new(PROGRAM)
            .args([
                "preflight",
                "--cluster",
                "-n",
                &fixture.namespace,
                "--nodes",
                "node-a",
            ])
            // It waits for an image that nobody has.
            .args(["--image", "trainyard.test/nothing:test"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        fixture.wait("its pod is there", || (pods(fixture) == 1).then_some(()));
        let id = program.id().to_string();
        let asked = Command::new("kill").args(["-INT", &id]).status().unwrap();
        assert!(asked.success());
        let ended = fixture.wait("it ends", || program.try_wait().unwrap());
        assert_eq!(ended.code(), Some(2));
        fixture.wait("its pod is gone", || (pods(fixture) == 0).then_some(()));
    });
}
