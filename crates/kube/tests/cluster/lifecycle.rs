//! Suspension, scaling, the end of a job and what is left of it.

use serde_json::json;

use crate::harness::{ends, holds, on_cluster, pytorch};

#[test]
fn suspended_job_resumes_with_edited_spec() {
    on_cluster("suspend", |fixture| async move {
        let operator = fixture.operator().await;
        fixture.put(&pytorch("held", 2, &json!({}))).await;
        fixture.until_running(3, 1).await;
        let suspend = |yes: bool| json!({"spec": {"runPolicy": {"suspend": yes}}});
        fixture.edit("PyTorchJob", "held", suspend(true)).await;
        fixture
            .until_condition("PyTorchJob", "held", "Suspended")
            .await;
        fixture
            .until("no pod is left", || async {
                fixture.pod_map().await.is_empty().then_some(())
            })
            .await;
        let edit = json!({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3,
            "template": {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}}}}});
        fixture.edit("PyTorchJob", "held", edit).await;
        fixture.edit("PyTorchJob", "held", suspend(false)).await;
        fixture
            .until("four pods of the new spec run", || async {
                let pods = fixture.pod_map().await;
                let worker = pods.get("held-worker-2")?;
                let selected = &worker["spec"]["nodeSelector"]["kubernetes.io/os"];
                (pods.len() == 4 && selected == "linux").then_some(())
            })
            .await;
        let status = fixture
            .until_condition("PyTorchJob", "held", "Running")
            .await;
        assert!(!holds(&status, "Suspended"), "{status:#}");
        operator.stop().await;
    });
}

#[test]
fn master_success_ends_job_and_releases_nodes() {
    on_cluster("master", |fixture| async move {
        let operator = fixture.operator().await;
        let mut cleaned = pytorch("led", 2, &json!({}));
        cleaned["spec"]["runPolicy"]["cleanPodPolicy"] = json!("Running");
        fixture.put(&cleaned).await;
        fixture.put(&pytorch("kept", 2, &json!({}))).await;
        fixture.until_running(6, 1).await;
        for name in ["kept", "led"] {
            fixture
                .end_pod(&format!("{name}-master-0"), 0, "Completed")
                .await;
            let status = fixture
                .until_condition("PyTorchJob", name, "Succeeded")
                .await;
            assert!(!holds(&status, "Running"), "{status:#}");
        }
        let pods = fixture
            .until("running workers of one are gone", || async {
                let pods = fixture.pod_map().await;
                let led = pods.keys().filter(|name| name.starts_with("led-"));
                (led.count() == 1).then_some(pods)
            })
            .await;
        assert!(pods.contains_key("led-master-0"), "{pods:#?}");
        // Without a policy they have five minutes.
        let kept = pods.iter().filter(|(name, pod)| {
            name.starts_with("kept-") && pod["metadata"]["deletionTimestamp"].is_null()
        });
        assert_eq!(kept.count(), 3, "{pods:#?}");
        operator.stop().await;
    });
}

#[test]
fn an_ended_job_goes_after_its_time_to_live() {
    on_cluster("ttl", |fixture| async move {
        let operator = fixture.operator().await;
        let mut job = pytorch("brief", 0, &ends(0, "50ms"));
        job["spec"]["runPolicy"] = json!({"ttlSecondsAfterFinished": 1});
        fixture.put(&job).await;
        fixture
            .until("the job is gone", || async {
                fixture
                    .jobs("PyTorchJob")
                    .get_opt("brief")
                    .await
                    .unwrap()
                    .is_none()
                    .then_some(())
            })
            .await;
        operator.stop().await;
    });
}

#[test]
fn a_deadline_is_kept_without_anything_else_happening() {
    on_cluster("deadline", |fixture| async move {
        let operator = fixture.operator().await;
        let mut job = pytorch("late", 1, &json!({}));
        job["spec"]["runPolicy"] = json!({"activeDeadlineSeconds": 2});
        fixture.put(&job).await;
        let status = fixture
            .until_condition("PyTorchJob", "late", "Failed")
            .await;
        assert!(
            status["conditions"].to_string().contains("deadline"),
            "{status:#}"
        );
        operator.stop().await;
    });
}

#[test]
fn an_elastic_job_is_scaled_through_its_scale() {
    on_cluster("scale", |fixture| async move {
        let operator = fixture.operator().await;
        let worker = json!({"replicas": 2, "restartPolicy": "OnFailure", "template": {"spec": {
            "nodeSelector": {"test.trainyard.dev/node": "simulated"},
            "containers": [{"name": "pytorch", "image": "test", "command": ["train"]}]}}});
        let job = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {"name": "wide"},
            "spec": {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4},
                "pytorchReplicaSpecs": {"Worker": worker}}});
        fixture.put(&job).await;
        fixture.until_running(2, 1).await;
        for replicas in [4, 1] {
            let scale = json!({"spec": {"replicas": replicas}});
            fixture
                .jobs("PyTorchJob")
                .patch_scale(
                    "wide",
                    &kube::api::PatchParams::default(),
                    &kube::api::Patch::Merge(&scale),
                )
                .await
                .unwrap();
            fixture.until_running(replicas, 1).await;
        }
        operator.stop().await;
    });
}

#[test]
fn the_cluster_s_autoscaler_scales_an_elastic_job() {
    on_cluster("autoscaler", |fixture| async move {
        let operator = fixture.operator().await;
        let worker = json!({"replicas": 2, "restartPolicy": "OnFailure", "template": {"spec": {
            "nodeSelector": {"test.trainyard.dev/node": "simulated"},
            "containers": [{"name": "pytorch", "image": "test", "command": ["train"]}]}}});
        let metrics = json!([{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 80}}}]);
        let job = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {"name": "wide"},
            "spec": {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4, "metrics": metrics},
                "pytorchReplicaSpecs": {"Worker": worker}}});
        fixture.put(&job).await;
        fixture.until_running(2, 1).await;
        let autoscalers = fixture.api("autoscaling", "v2", "HorizontalPodAutoscaler");
        let made = autoscalers.get("wide").await.unwrap();
        let want = json!({"minReplicas": 1, "maxReplicas": 4, "metrics": metrics,
            "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
                "name": "wide"}});
        assert_eq!(made.data["spec"], want);
        // Nobody measures anything here, but a job below its bounds is scaled without that.
        let raise = json!({"spec": {"elasticPolicy": {"minReplicas": 3}}});
        fixture.edit("PyTorchJob", "wide", raise).await;
        fixture.until_running(3, 1).await;
        let seen = fixture
            .until("the autoscaler has seen the job", || async {
                let seen = autoscalers.get("wide").await.unwrap();
                (seen.data["status"]["currentReplicas"] == 3).then_some(seen)
            })
            .await;
        let conditions = seen.data["status"]["conditions"].to_string();
        assert!(conditions.contains("SucceededGetScale"), "{conditions}");
        operator.stop().await;
    });
}

#[test]
fn a_job_of_another_manager_is_not_touched() {
    on_cluster("managed", |fixture| async move {
        let operator = fixture.operator().await;
        let mut job = pytorch("theirs", 1, &json!({}));
        job["spec"]["runPolicy"] = json!({"managedBy": "kueue.x-k8s.io/multikueue"});
        fixture.put(&job).await;
        fixture.put(&pytorch("ours", 0, &ends(0, "50ms"))).await;
        fixture
            .until_condition("PyTorchJob", "ours", "Succeeded")
            .await;
        assert!(fixture.status("PyTorchJob", "theirs").await.is_null());
        assert!(!fixture.pod_map().await.contains_key("theirs-master-0"));
        operator.stop().await;
    });
}
