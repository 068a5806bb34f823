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
        let failed: Vec<&str> = metrics
            .lines()
            .filter(|line| line.starts_with("trainyard_api_calls") && line.contains("code=\"0\""))
            .collect();
        assert!(failed.is_empty(), "calls without an answer: {failed:?}");
        operator.stop().await;
    });
}
