//! What users of the old operator reported: restarts that are lost, doubled or never end.

use serde_json::json;

use crate::harness::{ends, holds, on_cluster, pytorch};

#[test]
fn one_killed_pod_of_64_costs_one_attempt() {
    on_cluster("gang", |fixture| async move {
        let operator = fixture.operator().await;
        fixture.put(&pytorch("big", 63, &json!({}))).await;
        fixture.until_running(64, 1).await;
        fixture.end_pod("big-worker-17", 137, "Error").await;
        fixture.until_running(64, 2).await;
        let status = fixture
            .until_condition("PyTorchJob", "big", "Running")
            .await;
        assert_eq!(status["trainyard"]["attempt"], 2, "{status:#}");
        assert_eq!(status["trainyard"]["spent"]["user"], 1, "{status:#}");
        operator.stop().await;
    });
}

#[test]
fn failing_job_is_retried_up_to_its_limit() {
    on_cluster("limit", |fixture| async move {
        let operator = fixture.operator().await;
        let mut job = pytorch("loop", 1, &ends(1, "50ms"));
        job["spec"]["runPolicy"] = json!({"backoffLimit": 3});
        fixture.put(&job).await;
        let status = fixture
            .until_condition("PyTorchJob", "loop", "Failed")
            .await;
        assert_eq!(status["trainyard"]["spent"]["user"], 3, "{status:#}");
        assert_eq!(status["trainyard"]["attempt"], 3, "{status:#}");
        assert!(!status["completionTime"].is_null(), "{status:#}");
        operator.stop().await;
    });
}

#[test]
fn failed_job_does_not_recreate_children() {
    on_cluster("terminal", |fixture| async move {
        let operator = fixture.operator().await;
        let mut job = pytorch("done", 1, &ends(1, "50ms"));
        job["spec"]["runPolicy"] = json!({"backoffLimit": 1, "cleanPodPolicy": "None"});
        fixture.put(&job).await;
        let failed = fixture
            .until_condition("PyTorchJob", "done", "Failed")
            .await;
        for name in fixture.pod_map().await.keys() {
            fixture
                .pods()
                .delete(name, &kube::api::DeleteParams::default())
                .await
                .unwrap();
        }
        fixture
            .until("the pods are gone", || async {
                fixture.pod_map().await.is_empty().then_some(())
            })
            .await;
        // Whatever the operator makes of the deletions, it has made when it has looked once more.
        fixture
            .edit(
                "PyTorchJob",
                "done",
                json!({"metadata": {"labels": {"look": "again"}}}),
            )
            .await;
        operator.stop().await;
        assert!(fixture.pod_map().await.is_empty());
        let after = fixture.status("PyTorchJob", "done").await;
        assert_eq!(after["conditions"], failed["conditions"]);
        assert_eq!(after["completionTime"], failed["completionTime"]);
    });
}

#[test]
fn restart_between_attempts_keeps_counts() {
    on_cluster("killed", |fixture| async move {
        let operator = fixture.operator().await;
        let mut job = pytorch("counted", 3, &json!({}));
        job["spec"]["runPolicy"] = json!({"backoffLimit": 3});
        fixture.put(&job).await;
        fixture.until_running(4, 1).await;
        fixture.end_pod("counted-worker-1", 1, "Error").await;
        fixture
            .until_status(
                "PyTorchJob",
                "counted",
                "the second attempt is decided",
                |status| status["trainyard"]["attempt"] == 2,
            )
            .await;
        operator.kill().await;
        let operator = fixture.operator().await;
        fixture.until_running(4, 2).await;
        let status = fixture.status("PyTorchJob", "counted").await;
        assert_eq!(status["trainyard"]["spent"]["user"], 1, "{status:#}");
        assert_eq!(status["trainyard"]["attempt"], 2, "{status:#}");
        operator.stop().await;
    });
}

#[test]
fn a_pod_that_ran_out_of_memory_says_so() {
    on_cluster("memory", |fixture| async move {
        let operator = fixture.operator().await;
        let mut job = pytorch("oom", 1, &json!({}));
        job["spec"]["runPolicy"] = json!({"backoffLimit": 1});
        fixture.put(&job).await;
        fixture.until_running(2, 1).await;
        fixture.end_pod("oom-worker-0", 137, "OOMKilled").await;
        let status = fixture.until_condition("PyTorchJob", "oom", "Failed").await;
        let failure = &status["trainyard"]["lastFailure"];
        assert_eq!(failure["pod"], "oom-worker-0", "{status:#}");
        assert_eq!(
            failure["message"], "it ran out of memory (exit code 137)",
            "{status:#}"
        );
        operator.stop().await;
    });
}

#[test]
fn a_poison_job_is_marked_and_harms_no_other() {
    on_cluster("poison", |fixture| async move {
        let operator = fixture.operator().await;
        let mut wrong = pytorch("wrong", 1, &json!({}));
        wrong["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["name"] =
            json!("trainer");
        wrong["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["name"] =
            json!("trainer");
        fixture.put(&wrong).await;
        let long = "a".repeat(70);
        fixture.put(&pytorch(&long, 1, &json!({}))).await;
        fixture.put(&pytorch("good", 1, &ends(0, "200ms"))).await;
        fixture
            .until_condition("PyTorchJob", "good", "Succeeded")
            .await;
        for (name, words) in [("wrong", "pytorch"), (long.as_str(), "63")] {
            let status = fixture
                .until_status("PyTorchJob", name, "it is marked", |status| {
                    !status["trainyard"]["waiting"].is_null()
                })
                .await;
            let message = status["trainyard"]["waiting"]["message"].as_str().unwrap();
            assert!(message.contains(words), "{message}");
            assert!(!holds(&status, "Running"));
            fixture
                .until_event(name, |reason, _| reason == "PyTorchJobFailedValidation")
                .await;
        }
        operator.stop().await;
    });
}

#[test]
fn quota_is_waited_for_and_reported() {
    on_cluster("quota", |fixture| async move {
        let operator = fixture.operator().await;
        let quotas = fixture.api("", "v1", "ResourceQuota");
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}});
        let quota = serde_json::from_value(quota).unwrap();
        quotas
            .create(&kube::api::PostParams::default(), &quota)
            .await
            .unwrap();
        fixture
            .until("the quota is counted", || async {
                let quota = quotas.get("few").await.unwrap();
                (!quota.data["status"]["hard"].is_null()).then_some(())
            })
            .await;
        fixture.put(&pytorch("tight", 1, &json!({}))).await;
        let status = fixture
            .until_status("PyTorchJob", "tight", "the quota is named", |status| {
                let waiting = &status["trainyard"]["waiting"]["message"];
                waiting
                    .as_str()
                    .is_some_and(|words| words.contains("exceeded quota"))
            })
            .await;
        assert_eq!(status["trainyard"]["spent"]["user"], 0, "{status:#}");
        quotas
            .delete("few", &kube::api::DeleteParams::default())
            .await
            .unwrap();
        // The pod that was made before the quota said no was taken back: half of a gang is none.
        fixture.until_running(2, 2).await;
        operator.stop().await;
    });
}
