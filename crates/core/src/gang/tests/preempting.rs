//! Who has to end, and for whom.

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
fn the_cheapest_end_and_nobody_else() {
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
        "ends for `team/urgent`, whose priority 10 is above 0; the 0 min since its last checkpoint are lost \
         on 8 GPUs"
    );
    assert_eq!(placement.reservations[&key("urgent")][0].node, "b0r0h1");
    assert!(
        why(&placement, "urgent").ends_with("waits for `fresh` to end, of lower priority"),
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
fn nobody_ends_for_a_gang_that_did_not_ask_or_is_no_higher() {
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
    assert!(why(&placement, "urgent").ends_with("waits for gangs that are ending already"));
}
