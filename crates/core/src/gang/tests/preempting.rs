//! Which gangs are evicted, and for which gang.

use super::{super::testing::*, *};

/// A gang that runs on these nodes, with its last checkpoint at `safe_at`.
fn running(snapshot: &mut Snapshot, name: &str, hosts: &[&str], safe_at: i64) -> Gang {
    let mut own = gang(name, hosts.len(), 8);
    own.safe_at = Some(time(safe_at));
    for (pod, host) in own.pods.iter().zip(hosts) {
        own.held.insert(pod.name.clone(), (*host).to_owned());
        snapshot.pods.insert(
            PodKey {
                namespace: own.key.namespace.clone(),
                name: pod.name.clone(),
            },
            Resident {
                node: (*host).to_owned(),
                gang: Some(own.key.clone()),
                requests: own.shapes[0].requests.clone(),
                ..Resident::default()
            },
        );
    }
    own
}

fn urgent(pods: usize) -> Gang {
    let mut own = gang("urgent", pods, 8).priority(10);
    own.preempts = true;
    own
}

fn victims(placement: &Placement) -> Vec<&str> {
    placement
        .victims
        .keys()
        .map(|key| key.name.as_str())
        .collect()
}

#[test]
fn only_cheapest_gangs_are_evicted() {
    let mut snapshot = cluster(1, 1, 4);
    let late = running(&mut snapshot, "late", &["b0r0h0"], 100);
    let fresh = running(&mut snapshot, "fresh", &["b0r0h1"], 990);
    let pair = running(&mut snapshot, "pair", &["b0r0h2", "b0r0h3"], 950);
    let gangs = [late, fresh, pair, urgent(1)];
    let placement = place(&snapshot, &gangs, time(1_000));
    assert_eq!(victims(&placement), ["fresh"]);
    let eviction = &placement.victims[&key("fresh")];
    assert_eq!(eviction.price_seconds, 80);
    assert_eq!(
        eviction.message,
        "evicted for `team/urgent`: priority 10 is above 0; the 0 min since its last checkpoint are lost \
         on 8 GPUs"
    );
    assert_eq!(placement.reservations[&key("urgent")][0].node, "b0r0h1");
    assert!(
        why(&placement, "urgent").ends_with("waiting for `fresh` (lower priority) to end"),
        "{}",
        why(&placement, "urgent")
    );
    // Two nodes: the pair alone is enough once it is taken, so the cheaper one stays.
    let gangs = [gangs[0].clone(), gangs[2].clone(), urgent(2)];
    let mut without = snapshot.clone();
    without.nodes.get_mut("b0r0h1").unwrap().unschedulable = true;
    let placement = place(&without, &gangs, time(1_000));
    assert_eq!(victims(&placement), ["pair"]);
}

#[test]
fn preemption_needs_request_and_higher_priority() {
    let mut snapshot = cluster(1, 1, 1);
    let low = running(&mut snapshot, "low", &["b0r0h0"], 0);
    let mut polite = urgent(1);
    polite.preempts = false;
    let equal = urgent(1).priority(0);
    let large = urgent(2);
    for other in [polite, equal, large] {
        let placement = place(&snapshot, &[low.clone(), other], time(1_000));
        assert_eq!(victims(&placement), [""; 0]);
    }
}

#[test]
fn while_a_victim_leaves_no_other_is_chosen() {
    let mut snapshot = cluster(1, 1, 2);
    let mut first = running(&mut snapshot, "first", &["b0r0h0"], 0);
    let second = running(&mut snapshot, "second", &["b0r0h1"], 999);
    first.leaving = true;
    let placement = place(&snapshot, &[first, second, urgent(1)], time(1_000));
    assert_eq!(victims(&placement), [""; 0]);
    assert_eq!(placement.reservations[&key("urgent")][0].node, "b0r0h0");
    assert!(why(&placement, "urgent").ends_with("waiting for gangs that are already terminating"));
}

#[test]
fn preemption_scope_limits_victims() {
    let mut snapshot = cluster(1, 1, 2);
    let mut other = running(&mut snapshot, "other", &["b0r0h0"], 990);
    other.key.namespace = "elsewhere".to_owned();
    for (key, mut pod) in std::mem::take(&mut snapshot.pods) {
        pod.gang = Some(other.key.clone());
        let namespace = other.key.namespace.clone();
        snapshot.pods.insert(PodKey { namespace, ..key }, pod);
    }
    let own = running(&mut snapshot, "own", &["b0r0h1"], 100);
    let off = "preemption is off (`--preemption`)";
    let across = "preemption across namespaces is off (`--preemption`)";
    let cases: &[(PreemptionScope, usize, &[&str], &str)] = &[
        (PreemptionScope::Off, 1, &[], off),
        (
            PreemptionScope::Namespace,
            1,
            &["own"],
            "`own` (lower priority) to end",
        ),
        (PreemptionScope::Namespace, 2, &[], across),
        (
            PreemptionScope::Cluster,
            1,
            &["other"],
            "`other` (lower priority) to end",
        ),
        (
            PreemptionScope::Cluster,
            2,
            &["other", "own"],
            "(lower priority) to end",
        ),
    ];
    for (scope, pods, want, sentence) in cases {
        snapshot.preemption = *scope;
        let gangs = [other.clone(), own.clone(), urgent(*pods)];
        let placement = place(&snapshot, &gangs, time(1_000));
        assert_eq!(victims(&placement), *want, "{scope} {pods}");
        let why = why(&placement, "urgent");
        assert!(why.ends_with(sentence), "{scope} {pods}: {why}");
        let is_out = placement.out_of_scope.contains(&key("urgent"));
        assert_eq!(is_out, want.is_empty(), "{scope} {pods}");
    }
    // Where nothing would help, the scope is not what is in the way.
    snapshot.preemption = PreemptionScope::Namespace;
    let placement = place(&snapshot, &[other, own, urgent(3)], time(1_000));
    assert!(
        placement.out_of_scope.is_empty(),
        "{}",
        why(&placement, "urgent")
    );
}

#[test]
fn claim_decides_order_and_reservation() {
    let mut snapshot = cluster(1, 1, 2);
    occupy(&mut snapshot, "b0r0h0", "holder", 8);
    let older = gang("older", 2, 8).created(1);
    let mut unadmitted = gang("boaster", 2, 8).created(2).priority(1_000_000);
    unadmitted.claim = 0;
    unadmitted.admitted = false;
    let placement = place(&snapshot, &[older.clone(), unadmitted.clone()], time(10));
    let reserved: Vec<&str> = placement
        .reservations
        .keys()
        .map(|key| key.name.as_str())
        .collect();
    assert_eq!(reserved, ["older"]);
    let admitted = unadmitted.priority(1_000_000);
    let placement = place(&snapshot, &[older, admitted], time(10));
    assert!(placement.reservations.contains_key(&key("boaster")));
}
