//! Nodes that die under a gang.

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::harness::{TestNamespace, on_cluster, pytorch};

/// Makes a simulated node that only the pods of this test may use.
pub(crate) async fn node(fixture: &TestNamespace, name: &str) -> Api<DynamicObject> {
    let nodes: Api<DynamicObject> = {
        let gvk = kube::core::GroupVersionKind::gvk("", "v1", "Node");
        let resource = kube::core::ApiResource::from_gvk(&gvk);
        Api::all_with(fixture.client.clone(), &resource)
    };
    let size = json!({"cpu": "96", "memory": "1Ti", "pods": "110",
        "ephemeral-storage": "1Ti", "nvidia.com/gpu": "8"});
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name,
            "annotations": {"kwok.x-k8s.io/node": "simulated"},
            "labels": {"test.trainyard.dev/for": fixture.namespace, "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": "test.trainyard.dev/for", "value": fixture.namespace, "effect": "NoSchedule"}]},
        "status": {"allocatable": size, "capacity": size}});
    let node: DynamicObject = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    fixture
        .until("the node is ready", || async {
            let node = nodes.get(name).await.unwrap();
            let conditions = node.data["status"]["conditions"].as_array()?.clone();
            let ready = |one: &serde_json::Value| one["type"] == "Ready" && one["status"] == "True";
            conditions.iter().any(ready).then_some(())
        })
        .await;
    nodes
}

/// A gang that stays on the nodes of this test.
fn gang(fixture: &TestNamespace, name: &str) -> serde_json::Value {
    let mut job = pytorch(name, 3, &json!({}));
    job["metadata"]["annotations"] = json!({"trainyard.dev/lost-after": "2s"});
    for role in ["Master", "Worker"] {
        let pod = &mut job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"];
        pod["nodeSelector"] = json!({"test.trainyard.dev/for": fixture.namespace});
        pod["tolerations"] = json!([{"key": "test.trainyard.dev/for", "operator": "Exists"}]);
        pod["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}]);
    }
    job
}

#[test]
fn deleted_node_costs_one_infrastructure_attempt() {
    on_cluster("node-gone", |fixture| async move {
        let operator = fixture.operator().await;
        let (a, b) = (
            format!("{}-a", fixture.namespace),
            format!("{}-b", fixture.namespace),
        );
        let nodes = node(&fixture, &a).await;
        fixture.put(&gang(&fixture, "moved")).await;
        fixture.until_running(4, 1).await;
        node(&fixture, &b).await;
        nodes.delete(&a, &DeleteParams::default()).await.unwrap();
        fixture.until_running(4, 2).await;
        let status = fixture.status("PyTorchJob", "moved").await;
        assert_eq!(
            status["trainyard"]["spent"]["infrastructure"], 1,
            "{status:#}"
        );
        assert_eq!(status["trainyard"]["spent"]["user"], 0, "{status:#}");
        for pod in fixture.pod_map().await.values() {
            assert_eq!(pod["spec"]["nodeName"], b.as_str());
        }
        nodes.delete(&b, &DeleteParams::default()).await.unwrap();
        operator.stop().await;
    });
}

#[test]
fn silent_node_is_replaced_without_pod_deletion() {
    on_cluster("node-off", |fixture| async move {
        let operator = fixture.operator().await;
        let (a, b) = (
            format!("{}-a", fixture.namespace),
            format!("{}-b", fixture.namespace),
        );
        let nodes = node(&fixture, &a).await;
        fixture.put(&gang(&fixture, "stuck")).await;
        fixture.until_running(4, 1).await;
        node(&fixture, &b).await;
        // Or the scheduler could use it again before it sees that the node is dead.
        let cordon = json!({"spec": {"unschedulable": true}});
        nodes
            .patch(&a, &PatchParams::default(), &Patch::Merge(&cordon))
            .await
            .unwrap();
        // Nobody speaks for the node any more, and the cluster's own controller says so.
        let quiet = json!({"metadata": {"annotations": {"kwok.x-k8s.io/node": null}}});
        nodes
            .patch(&a, &PatchParams::default(), &Patch::Merge(&quiet))
            .await
            .unwrap();
        let then = (jiff::Timestamp::now() - jiff::SignedDuration::from_secs(60)).to_string();
        let silent = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown",
            "reason": "NodeStatusUnknown", "lastHeartbeatTime": then, "lastTransitionTime": then}]}});
        nodes
            .patch_status(&a, &PatchParams::default(), &Patch::Merge(&silent))
            .await
            .unwrap();
        fixture
            .until("the second attempt is decided", || async {
                let status = fixture.status("PyTorchJob", "stuck").await;
                (status["trainyard"]["attempt"] == 2).then_some(())
            })
            .await;
        fixture.until_running(4, 2).await;
        let status = fixture.status("PyTorchJob", "stuck").await;
        assert_eq!(
            status["trainyard"]["spent"]["infrastructure"], 1,
            "{status:#}"
        );
        for name in [&a, &b] {
            nodes.delete(name, &DeleteParams::default()).await.unwrap();
        }
        operator.stop().await;
    });
}
