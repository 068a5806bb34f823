//! Many pods at once.

use serde_json::json;

use crate::harness::{alone_on_cluster, pytorch};

#[test]
fn two_thousand_pods_at_once_are_made_and_run() {
    alone_on_cluster("many", |fixture| async move {
        let operator = fixture.operator().await;
        for number in 0..20 {
            fixture
                .put(&pytorch(&format!("wide-{number}"), 99, &json!({})))
                .await;
        }
        for number in 0..20 {
            let name = format!("wide-{number}");
            fixture
                .until_status("PyTorchJob", &name, "all its pods run", |status| {
                    status["replicaStatuses"]["Worker"]["active"] == 99
                })
                .await;
        }
        let metrics = operator.operator.metrics().text();
        // A log is read from the kubelet of its node, by one simulated process for all nodes here: how soon that answers on a busy machine says nothing of
        // the operator, which reads it again.
        let is_failed = |line: &&str| {
            line.starts_with("trainyard_api_calls")
                && line.contains("code=\"0\"")
                && !line.contains("resource=\"pods/log\"")
        };
        let failed: Vec<&str> = metrics.lines().filter(is_failed).collect();
        assert!(failed.is_empty(), "calls without an answer: {failed:?}");
        operator.stop().await;
    });
}
