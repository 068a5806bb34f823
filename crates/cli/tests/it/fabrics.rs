//! Fabrics: what they add to a job, and the attachments they describe.

use crate::{call::Call, golden};

const FABRIC: &str = "\
apiVersion: trainyard.dev/v1alpha1
kind: Fabric
metadata: {name: roce-a}
spec:
  attachments: [networks/roce-a]
  interface: net1
  rdma: {resource: rdma/hca}
  variables: {NCCL_IB_GID_INDEX: \"3\"}
  network:
    plugin: macvlan
    master: ens1
    addresses: {by: whereabouts, range: 10.20.0.0/16}
";

/// A job on `roce-a` whose pods say `interface` themselves, and the fabric.
fn files(interface: &str, command: &str) -> String {
    format!(
        "\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: j, annotations: {{trainyard.dev/fabric: roce-a}}}}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          containers:
            - name: pytorch
              image: example.com/train:1
              command: {command}
              env: [{{name: GLOO_SOCKET_IFNAME, value: {interface}}}]
---
{FABRIC}"
    )
}

#[test]
fn what_is_added_is_shown_and_what_the_job_says_stays() {
    let text = files("eth0", "[train]");
    let render = ["render", "-v", "job.yaml"];
    let with_fabric = Call::new(&render).file("job.yaml", &text).run();
    let (job, _) = text.split_once("---\n").unwrap();
    let without = Call::new(&render).file("job.yaml", job).run();
    golden::check("fabric-render", &[with_fabric, without]);
}

#[test]
fn missing_interface_found_before_start() {
    let lint = |interface: &str| {
        let words = ["lint", "--format", "json", "job.yaml"];
        let outcome = Call::new(&words)
            .file("job.yaml", files(interface, "[train]"))
            .run();
        outcome.stdout
    };
    let wrong = lint("ib0");
    assert!(wrong.contains("\"TY301\""), "{wrong}");
    assert!(wrong.contains("the pod has `eth0`, `net1`"), "{wrong}");
    let right = lint("net1");
    assert!(!right.contains("\"TY301\""), "{right}");
}

#[test]
fn local_fabric_sets_env_and_notes_the_rest() {
    let text = files(
        "lo",
        "[sh, -c, 'echo index=$NCCL_IB_GID_INDEX nccl=$NCCL_SOCKET_IFNAME']",
    );
    let outcome = Call::new(&["run", "job.yaml"])
        .file("job.yaml", &text)
        .run();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(
        outcome.stdout.contains("index=3 nccl=\n"),
        "{}",
        outcome.stdout
    );
    let left_out = "fabric `roce-a`, not on this machine: Master: the network `networks/roce-a`, \
                    `rdma/hca: 1`, variable `GLOO_SOCKET_IFNAME`, variable `NCCL_SOCKET_IFNAME`";
    assert!(outcome.stderr.contains(left_out), "{}", outcome.stderr);
}

#[test]
fn attachments_written_overlaps_reported() {
    let other = FABRIC
        .replace("roce-a", "roce-b")
        .replace("10.20.0.0/16", "10.20.8.0/24")
        .replace("whereabouts", "host-local");
    let bad = FABRIC.replace("plugin: macvlan", "plugin: macvln");
    let call = |words: &[&str]| {
        Call::new(words)
            .file("a.yaml", FABRIC)
            .file("b.yaml", &other)
            .file("bad.yaml", &bad)
            .run()
    };
    golden::check(
        "fabric",
        &[
            call(&["fabric", "a.yaml"]),
            call(&["fabric", "--format", "json", "--namespace", "n", "a.yaml"]),
            call(&["fabric", "a.yaml", "b.yaml"]),
            call(&["fabric", "bad.yaml"]),
        ],
    );
}
