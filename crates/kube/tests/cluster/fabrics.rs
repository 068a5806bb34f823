//! Jobs on fabrics: what waits, what is added, and a second network that gradients really travel on.

use kube::api::{DeleteParams, LogParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use trainyard_core::fabric::{self, NETWORKS};

use crate::harness::{TestNamespace, on_cluster, on_real_nodes, pytorch};

const VERSION: &str = "v1alpha1";
const GROUP: &str = "trainyard.dev";
/// Multus says here what it attached.
const ATTACHED: &str = "k8s.v1.cni.cncf.io/network-status";

/// A fabric of the namespace's name: fabrics are shared by all tests.
async fn put_fabric(fixture: &TestNamespace, spec: Value) -> Value {
    let fabric = json!({
        "apiVersion": fabric::API_VERSION,
        "kind": fabric::KIND,
        "metadata": {"name": fixture.namespace},
        "spec": spec,
    });
    let fabrics = fixture.whole(GROUP, VERSION, fabric::KIND);
    let object = serde_json::from_value(fabric.clone()).unwrap();
    fabrics
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    fabric
}

pub(crate) async fn remove_fabric(fixture: &TestNamespace) {
    fixture
        .whole(GROUP, VERSION, fabric::KIND)
        .delete(&fixture.namespace, &DeleteParams::default())
        .await
        .unwrap();
}

pub(crate) fn on_fabric(fixture: &TestNamespace, mut job: Value) -> Value {
    job["metadata"]["annotations"]["trainyard.dev/fabric"] = json!(fixture.namespace);
    job
}

fn variable(pod: &Value, name: &str) -> Value {
    let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    let found = env.iter().find(|variable| variable["name"] == name);
    found
        .map(|variable| variable["value"].clone())
        .unwrap_or_default()
}

#[test]
fn job_waits_for_fabric_and_keeps_it() {
    on_cluster("fabric", |fixture| async move {
        let operator = fixture.operator().await;
        fixture
            .put(&on_fabric(&fixture, pytorch("j", 1, &json!({}))))
            .await;
        let waits = |status: &Value| status["trainyard"]["waiting"]["code"] == "WaitingForFabric";
        fixture
            .until_status("PyTorchJob", "j", "it waits for its fabric", |status| {
                let words = status["trainyard"]["waiting"]["message"].as_str();
                waits(status) && words.is_some_and(|words| words.contains("no fabric of that name"))
            })
            .await;
        assert!(fixture.pod_map().await.is_empty());

        put_fabric(
            &fixture,
            json!({"variables": {"NCCL_IB_GID_INDEX": "3"}, "shm": "1Gi"}),
        )
        .await;
        fixture.until_running(2, 1).await;
        let pods = fixture.pod_map().await;
        for (name, pod) in &pods {
            assert_eq!(variable(pod, "NCCL_IB_GID_INDEX"), "3", "{name}: {pod:#}");
            let mounts = &pod["spec"]["containers"][0]["volumeMounts"];
            let at_shm = |mount: &Value| mount["mountPath"] == "/dev/shm";
            assert!(mounts.as_array().unwrap().iter().any(at_shm), "{mounts:#}");
        }
        for reason in ["PyTorchJobWaitingForFabric", "PyTorchJobFabricAdded"] {
            fixture.until_event("j", |known, _| known == reason).await;
            let events = fixture.events("j").await;
            let found = events.iter().filter(|(known, _)| known == reason);
            assert_eq!(found.count(), 1, "{reason}: {events:#?}");
        }

        // An edit counts from the next attempt.
        let fabrics = fixture.whole(GROUP, VERSION, fabric::KIND);
        let edit = json!({"spec": {"variables": {"NCCL_IB_GID_INDEX": "1"}}});
        fabrics
            .patch(
                &fixture.namespace,
                &PatchParams::default(),
                &Patch::Merge(&edit),
            )
            .await
            .unwrap();
        fixture
            .edit(
                "PyTorchJob",
                "j",
                json!({"metadata": {"annotations": {"trainyard.dev/restart": "once"}}}),
            )
            .await;
        fixture.until_running(2, 2).await;
        for (name, pod) in fixture.pod_map().await {
            assert_eq!(variable(&pod, "NCCL_IB_GID_INDEX"), "1", "{name}: {pod:#}");
        }
        remove_fabric(&fixture).await;
        operator.stop().await;
    });
}

/// Four pods that train, each with its counters before and after.
fn trains(fixture: &TestNamespace) -> Value {
    // Larger than by default, so that nothing else on the network comes near.
    let script = "cat /proc/net/dev; trainyard smoke-trainer --epochs=1 --hidden=256 || exit 1; \
                  cat /proc/net/dev";
    let mut job = pytorch("j", 3, &json!({}));
    job["spec"]["runPolicy"]["cleanPodPolicy"] = json!("None");
    job["spec"]["runPolicy"]["backoffLimit"] = json!(0);
    for role in ["Master", "Worker"] {
        let pod = &mut job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"];
        pod["nodeSelector"] = json!({"test.trainyard.dev/node": "real"});
        pod["containers"][0]["image"] = json!("trainyard.test/job:test");
        pod["containers"][0]["imagePullPolicy"] = json!("Never");
        pod["containers"][0]["command"] = json!(["bash", "-c", script]);
    }
    on_fabric(fixture, job)
}

async fn log(fixture: &TestNamespace, pod: &str) -> String {
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
        kube::Api::namespaced(fixture.client.clone(), &fixture.namespace);
    let log = pods.logs(pod, &LogParams::default()).await;
    log.unwrap_or_default()
}

/// Bytes that `interface` sent between the two looks at its counters in `log`.
fn sent(log: &str, interface: &str) -> u64 {
    let looks: Vec<u64> = log
        .lines()
        .filter_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'))
        .map(|counters| counters.split_whitespace().nth(8).unwrap().parse().unwrap())
        .collect();
    assert_eq!(looks.len(), 2, "{interface}: {log}");
    looks[1] - looks[0]
}

/// A fabric of macvlan on the parent that the suite made, and the attachment that is generated from it. Each test
/// has a `range` of its own: pods of the one before may still be on the network.
pub(crate) async fn put_macvlan(fixture: &TestNamespace, range: &str) {
    let spec = json!({
        "attachments": [fixture.namespace],
        "interface": "net1",
        "expects": {"transport": "socket"},
        "network": {
            "plugin": "macvlan",
            "master": "fabric0",
            "addresses": {"by": "host-local", "range": range},
        },
    });
    let fabric = fabric::read_value(&put_fabric(fixture, spec).await).unwrap();
    let attachment = fabric::attachment(&fabric).unwrap();
    let attachments = fixture.api("k8s.cni.cncf.io", "v1", fabric::ATTACHMENT_KIND);
    let object = serde_json::from_value(attachment).unwrap();
    attachments
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
}

#[test]
fn gradients_use_the_fabric_interface() {
    on_real_nodes("macvlan", |fixture| async move {
        let operator = fixture.operator().await;
        put_macvlan(&fixture, "10.77.1.0/24").await;
        fixture.put(&trains(&fixture)).await;
        fixture
            .until_condition("PyTorchJob", "j", "Succeeded")
            .await;
        // The master's end is the job's; the others read their counters a moment later.
        let pods = fixture
            .until("all pods have ended", || async {
                let pods = fixture.pod_map().await;
                let ended = |pod: &Value| pod["status"]["phase"] == "Succeeded";
                (pods.len() == 4 && pods.values().all(ended)).then_some(pods)
            })
            .await;
        let output = log(&fixture, "j-master-0").await;
        let last = output.lines().rfind(|line| line.starts_with("step "));
        let steps: u64 = last
            .and_then(|line| line.split(['/', ' ']).nth(2)?.parse().ok())
            .unwrap_or_else(|| panic!("the master prints no step: {output}"));
        // A ring of n ranks sends 2 (n - 1) / n times the gradients in each of its steps.
        let (parameters, ranks) = (256 * (64 + 1 + 10) + 10, 4);
        let in_a_step = parameters * 4 * 2 * (ranks - 1) / ranks;
        for (name, pod) in &pods {
            assert_eq!(
                pod["metadata"]["annotations"][NETWORKS],
                format!("{}@net1", fixture.namespace)
            );
            let annotation = pod["metadata"]["annotations"][ATTACHED].as_str().unwrap();
            let attached: Vec<Value> = serde_json::from_str(annotation).unwrap();
            let second = attached.iter().find(|one| one["interface"] == "net1");
            let address = second.unwrap()["ips"][0].as_str().unwrap().to_owned();
            assert!(address.starts_with("10.77.1."), "{annotation}");

            let log = log(&fixture, name).await;
            let (fabric, first) = (sent(&log, "net1"), sent(&log, "eth0"));
            let gradients = in_a_step * steps;
            assert!(fabric >= gradients, "{name}: {fabric} of {gradients} bytes");
            assert!(first < gradients / 10, "{name}: {first} bytes by eth0");
        }
        remove_fabric(&fixture).await;
        operator.stop().await;
    });
}

#[test]
fn missing_interface_is_reported() {
    on_real_nodes("wrong-interface", |fixture| async move {
        let operator = fixture.operator().await;
        put_macvlan(&fixture, "10.77.2.0/24").await;
        let mut job = trains(&fixture);
        for role in ["Master", "Worker"] {
            let pod = &mut job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"];
            pod["containers"][0]["env"] = json!([{"name": "GLOO_SOCKET_IFNAME", "value": "ib0"}]);
        }
        fixture.put(&job).await;
        let status = fixture
            .until_status(
                "PyTorchJob",
                "j",
                "the doctor names the interface",
                |status| {
                    let verdict = &status["trainyard"]["lastFailure"]["verdict"];
                    verdict["label"] == "no_interface_found"
                },
            )
            .await;
        let sentence = &status["trainyard"]["lastFailure"]["verdict"]["sentence"];
        assert!(sentence.as_str().unwrap().contains("ib0"), "{status:#}");
        fixture
            .until_event("j", |reason, message| {
                reason == "PyTorchJobFabricDisagrees"
                    && message.contains("`GLOO_SOCKET_IFNAME` is `ib0`, the fabric has `net1`")
            })
            .await;
        remove_fabric(&fixture).await;
        operator.stop().await;
    });
}
