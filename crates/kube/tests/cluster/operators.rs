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
fn the_next_operator_takes_over_at_once_where_the_first_ends_in_order() {
    on_cluster("hand-over", |yard| async move {
        let namespace = yard.namespace.clone();
        let first = yard
            .operator_with(|options| options.lease = Some(lease(&namespace, "first")))
            .await;
        yard.put(&pytorch("one", 0, &ends(0, "50ms"))).await;
        yard.until_condition("PyTorchJob", "one", "Succeeded").await;
        let second = yard
            .operator_with(|options| options.lease = Some(lease(&namespace, "second")))
            .await;
        first.stop().await;
        // It gave the lease back: nobody waits for it to run out.
        let leases = yard.api("coordination.k8s.io", "v1", "Lease");
        let left = leases.get(rights::LEASE).await.unwrap();
        assert_ne!(left.data["spec"]["holderIdentity"], "first", "{left:?}");
        yard.put(&pytorch("two", 0, &ends(0, "50ms"))).await;
        yard.until_condition("PyTorchJob", "two", "Succeeded").await;
        second.stop().await;
    });
}

#[test]
fn two_operators_at_once_make_no_pod_twice_and_count_no_failure_twice() {
    on_cluster("two", |yard| async move {
        // Without a lease both act all the time, as in the worst of hand-overs.
        let first = yard.operator().await;
        let second = yard.operator().await;
        let mut job = pytorch("shared", 7, &json!({}));
        job["spec"]["runPolicy"] = json!({"backoffLimit": 5});
        yard.put(&job).await;
        for attempt in 1..=3 {
            yard.until_running(8, attempt).await;
            yard.end_pod("shared-worker-3", 1, "Error").await;
        }
        yard.until_running(8, 4).await;
        let status = yard.status("PyTorchJob", "shared").await;
        assert_eq!(status["trainyard"]["spent"]["user"], 3, "{status:#}");
        assert_eq!(status["trainyard"]["attempt"], 4, "{status:#}");
        first.stop().await;
        second.stop().await;
    });
}
