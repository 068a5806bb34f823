//! Input that is wrong or too much, and the sentence for it.

use serde_json::{Value, json};

use super::{GPU, ask, capacity, gang, now, offer, pool, shape, with};
use crate::{
    capacity::{Answer, MAX_SHAPES, NotAnOffer, Offer},
    gang::Snapshot,
};

fn error(value: Value) -> String {
    let read = Offer::of_values([value], &Snapshot::default(), now());
    read.unwrap_err().to_string()
}

#[test]
fn each_mistake_gets_a_sentence() {
    let of_shape =
        |more: Value| capacity(json!([pool("a", vec![with(shape("p5", 8, 1.0), more)])]));
    let of_pool = |more: Value| capacity(json!([with(pool("a", vec![shape("p5", 8, 1.0)]), more)]));
    let at = "pool `a`, shape `p5`: ";
    let price = "expected a number from 0 to 1000000; leave it out where it is not known";
    let cases: Vec<(Value, String)> = vec![
        (of_shape(json!({"pricePerHour": -1})), format!("{at}`pricePerHour` is `-1`; {price}")),
        (of_shape(json!({"pricePerHour": null})), format!("{at}`pricePerHour` is empty or not a number; {price}")),
        (of_shape(json!({"pricePerHour": "cheap"})), format!("{at}`pricePerHour` is `cheap`; {price}")),
        (of_shape(json!({"pricePerHour": 2_000_000})), format!("{at}`pricePerHour` is `2000000`; {price}")),
        (of_shape(json!({"readyAfter": 6})), format!("{at}`readyAfter` is `6`; expected a time such as `90s`, `10m` or `2h`")),
        (of_shape(json!({"readyAfter": "6 fortnights"})), format!("{at}`readyAfter` is `6 fortnights`; expected a time such as `90s`, `10m` or `2h`")),
        (of_shape(json!({"atMost": {"nodes": -1}})), format!("{at}`nodes` of `atMost` is `-1`; expected a quantity such as `8`, `500m` or `64Gi`")),
        (of_shape(json!({"atMost": {"cpu": 1}})), format!("{at}`atMost` of a shape counts `nodes` only; move `cpu` to the pool")),
        (of_shape(json!({"allocatable": {"cpu": "8 cores"}})), format!("{at}`cpu` of `allocatable` is `8 cores`; expected a quantity such as `8`, `500m` or `64Gi`")),
        (of_shape(json!({"allocatable": {"memory": "99999999999Ei"}})), format!("{at}`memory` of `allocatable` is `99999999999Ei`; expected a quantity such as `8`, `500m` or `64Gi`")),
        (of_shape(json!({"allocatable": {GPU: 18_446_744_073_709_551_615_u64}})), format!("{at}`nvidia.com/gpu` of `allocatable` is `18446744073709551615`; expected a quantity such as `8`, `500m` or `64Gi`")),
        (of_shape(json!({"allocatable": {}})), format!("{at}has no `allocatable`; copy it from such a node: `kubectl get node NODE -o yaml`")),
        (of_shape(json!({"daemons": {"cpu": 97}})), format!("{at}`daemons` take more `cpu` than `allocatable` has")),
        (of_shape(json!({"prize": 1})), "pool `a`, shapes[0]: unknown field `prize`; expected one of `name`, `allocatable`, `daemons`, `labels`, `taints`, `zones`, `atMost`, `pricePerHour`, `readyAfter`".to_owned()),
        (of_pool(json!({"weight": -1})), "pool `a`: `weight` is `-1`; expected a whole number from 0 to 1000000".to_owned()),
        (of_pool(json!({"taints": [{"key": "k", "effect": "Never"}]})), "pool `a`, taints[0]: `effect` is `Never`; expected `NoSchedule`, `PreferNoSchedule` or `NoExecute`".to_owned()),
        (of_pool(json!({"labels": ["a"]})), "pool `a`: `labels` is a list; expected a map of at most 256 texts".to_owned()),
        (of_pool(json!({"name": ""})), "pools[0]: `name` is ``; expected a text of at most 316 characters".to_owned()),
        (capacity(json!([{"name": "a"}, {"name": "a"}])), "Capacity: pools[0] and pools[1] are both called `a`".to_owned()),
        (capacity(json!([7])), "pools[0]: `7` is not a map".to_owned()),
        (json!({"kind": "Deployment", "apiVersion": "apps/v1"}), NotAnOffer::Nothing.to_string()),
        (json!({"kind": "NodePool", "apiVersion": "karpenter.sh/v1"}), "NodePool: has no `metadata.name`".to_owned()),
        (json!({"kind": "NodePool", "apiVersion": "karpenter.sh/v1", "metadata": {"name": "a"}, "spec": {"limits": {"cpu": "many"}}}),
            "NodePool `a`: `cpu` of `spec.limits` is not a quantity such as `8` or `64Gi`".to_owned()),
    ];
    for (value, want) in cases {
        assert_eq!(error(value), want);
    }
}

#[test]
fn more_than_is_read_is_refused() {
    let shapes = |count: usize| (0..count).map(|at| shape(&format!("s{at}"), 8, 1.0));
    let many = capacity(json!([pool("a", shapes(MAX_SHAPES + 1).collect())]));
    assert_eq!(error(many), "it has more than 5000 shapes of nodes");
    let pools: Vec<Value> = (0..1_001)
        .map(|at| json!({"name": format!("p{at}")}))
        .collect();
    assert_eq!(error(capacity(json!(pools))), "it has more than 1000 pools");
}

#[test]
fn a_list_of_lists_ends() {
    let mut value = json!({"kind": "List", "items": [capacity(json!([]))]});
    for _ in 0..40 {
        value = json!({"kind": "List", "items": [value]});
    }
    assert_eq!(error(value), NotAnOffer::Nothing.to_string());
}

#[test]
fn huge_numbers_do_not_overflow() {
    let huge = i64::MAX;
    let shapes = vec![with(
        shape("p5", 8, 1_000_000.0),
        json!({"allocatable": {"cpu": 1_000_000, "memory": huge, GPU: huge, "pods": huge}}),
    )];
    let pools = json!([with(
        pool("a", shapes),
        json!({"atMost": {GPU: huge, "nodes": huge}})
    )]);
    let mut job = gang("j", 1, 1);
    job.shapes[0].requests.set(GPU, huge);
    let answer = ask(&Snapshot::default(), &job, &offer(pools.clone()));
    assert!(
        matches!(answer, Answer::FitsAfterScaleUp { .. }),
        "{}",
        answer.message()
    );
    let mut second = job.pods[0].clone();
    second.name = "j-worker-1".to_owned();
    job.pods.push(second);
    job.minimum = 2;
    let answer = ask(&Snapshot::default(), &job, &offer(pools));
    assert!(
        matches!(answer, Answer::NeverFits(_)),
        "{}",
        answer.message()
    );
}

#[test]
fn many_shapes_are_decided_soon() {
    // No shape is enough, all are looked at, and no change is searched without an end.
    let shapes: Vec<Value> = (0..2_000)
        .map(|at| shape(&format!("s{at}"), at % 8, 1.0))
        .collect();
    let pools = json!([with(pool("a", shapes), json!({"zones": ["a", "b", "c"]}))]);
    let job = gang("j", 64, 8).wishing("required=zone");
    let answer = ask(&Snapshot::default(), &job, &offer(pools));
    assert!(
        matches!(answer, Answer::NeverFits(_)),
        "{}",
        answer.message()
    );
}

/// The time that a debug build may take on a busy machine is not tested; that the work has an end is.
#[test]
fn many_zones_and_shapes_are_bounded() {
    let zones: Vec<String> = (0..64).map(|at| format!("z{at}")).collect();
    let shapes: Vec<Value> = (0..MAX_SHAPES)
        .map(|at| shape(&format!("s{at}"), 1 + i64::try_from(at % 8).unwrap(), 1.0))
        .collect();
    let pools = json!([with(pool("a", shapes), json!({"zones": zones}))]);
    let job = gang("j", 64, 8).wishing("required=zone");
    let answer = ask(&Snapshot::default(), &job, &offer(pools));
    assert!(
        matches!(answer, Answer::FitsAfterScaleUp { .. }),
        "{}",
        answer.message()
    );
}

#[test]
fn pairs_of_pools_and_types_are_bounded() {
    let types: Vec<Value> = (0..MAX_SHAPES)
        .map(|at| shape(&format!("s{at}"), 8, 1.0))
        .collect();
    let types =
        json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "Capacity", "instanceTypes": types});
    let pools = (0..1_000).map(|at| {
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": format!("p{at}")},
            "spec": {"template": {"spec": {"requirements": [{"key": "lane", "operator": "DoesNotExist"}]}}}})
    });
    let values: Vec<Value> = std::iter::once(types).chain(pools).collect();
    let read = Offer::of_values(values, &Snapshot::default(), now());
    assert_eq!(
        read.unwrap_err().to_string(),
        "it has more than 5000 shapes of nodes"
    );
}

#[test]
fn many_requests_are_counted() {
    let requests = (0..10_000).map(|at| {
        json!({"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
            "metadata": {"name": format!("r{at}"), "namespace": "team"}})
    });
    let read = Offer::of_values(requests, &Snapshot::default(), now()).unwrap();
    assert_eq!(read.notes.len(), 9);
    assert_eq!(
        read.notes[8],
        "9992 more ProvisioningRequests are not listed"
    );
}
