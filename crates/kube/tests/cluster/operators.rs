//! Several operators, and none.

use serde_json::json;
use trainyard_kube::{Lease, rights};

use crate::harness::{ends, on_cluster, pytorch};

fn lease(namespace: &str, identity: &str) -> Lease {
    Lease {
        namespace: namespace.to_owned(),
        name: rights::LEASE.to_owned(),
        identity: identity.to_owned(),
    }
}

#[test]
fn orderly_exit_hands_over_the_lease_at_once() {
    on_cluster("hand-over", |fixture| async move {
        let namespace = fixture.namespace.clone();
        let first = fixture
            .operator_with(|options| options.lease = Some(lease(&namespace, "first")))
            .await;
        fixture.put(&pytorch("one", 0, &ends(0, "50ms"))).await;
        fixture
            .until_condition("PyTorchJob", "one", "Succeeded")
            .await;
        let second = fixture
            .operator_with(|options| options.lease = Some(lease(&namespace, "second")))
            .await;
        first.stop().await;
        // It released the lease: nobody waits for it to expire.
        let leases = fixture.api("coordination.k8s.io", "v1", "Lease");
        let left = leases.get(rights::LEASE).await.unwrap();
        assert_ne!(left.data["spec"]["holderIdentity"], "first", "{left:?}");
        fixture.put(&pytorch("two", 0, &ends(0, "50ms"))).await;
        fixture
            .until_condition("PyTorchJob", "two", "Succeeded")
            .await;
        second.stop().await;
    });
}

#[test]
fn two_operators_duplicate_no_pod_and_no_failure() {
    on_cluster("two", |fixture| async move {
        // Without a lease both act all the time, as in the worst of hand-overs.
        let first = fixture.operator().await;
        let second = fixture.operator().await;
        let mut job = pytorch("shared", 7, &json!({}));
        job["spec"]["runPolicy"] = json!({"backoffLimit": 5});
        fixture.put(&job).await;
        for attempt in 1..=3 {
            fixture.until_running(8, attempt).await;
            fixture.end_pod("shared-worker-3", 1, "Error").await;
        }
        fixture.until_running(8, 4).await;
        let status = fixture.status("PyTorchJob", "shared").await;
        assert_eq!(status["trainyard"]["spent"]["user"], 3, "{status:#}");
        assert_eq!(status["trainyard"]["attempt"], 4, "{status:#}");
        first.stop().await;
        second.stop().await;
    });
}
