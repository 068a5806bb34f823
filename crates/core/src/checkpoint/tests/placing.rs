//! Partners and owners.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn node(name: &str, rack: &str, switch: &str, group: &str) -> PartnerNode {
    PartnerNode {
        name: name.into(),
        domains: vec![rack.into(), switch.into()],
        groups: [group.to_owned()].into(),
    }
}

fn nodes(racks: &[usize]) -> Vec<PartnerNode> {
    let mut nodes = Vec::new();
    for (rack, count) in racks.iter().enumerate() {
        for number in 0..*count {
            let name = format!("n{rack}-{number}");
            let (rack, switch) = (format!("r{rack}"), format!("s{}", number / 2));
            nodes.push(node(
                &name,
                &rack,
                &switch,
                &format!("g{}", nodes.len() % 3),
            ));
        }
    }
    nodes
}

fn of<'a>(nodes: &'a [PartnerNode], name: &str) -> &'a PartnerNode {
    nodes.iter().find(|node| node.name == name).unwrap()
}

fn check(nodes: &[PartnerNode], holders: &BTreeMap<String, String>) {
    let names: BTreeSet<&String> = nodes.iter().map(|node| &node.name).collect();
    assert_eq!(holders.keys().collect::<BTreeSet<_>>(), names);
    assert_eq!(holders.values().collect::<BTreeSet<_>>(), names);
    assert!(holders.iter().all(|(node, holder)| node != holder));
}

#[test]
fn one_node_has_no_partner() {
    assert!(partners(&[], &BTreeMap::new()).is_empty());
    assert!(partners(&nodes(&[1]), &BTreeMap::new()).is_empty());
    let two = partners(&nodes(&[2]), &BTreeMap::new());
    check(&nodes(&[2]), &two);
}

#[test]
fn groups_are_avoided_where_possible() {
    // Each rack has one node of each group; a rotation by whole racks would pair nodes of one group.
    let all: Vec<PartnerNode> = (0..12)
        .map(|number| {
            let (rack, group) = (number / 3, number % 3);
            node(
                &format!("n{number:02}"),
                &format!("r{rack}"),
                "s",
                &format!("g{group}"),
            )
        })
        .collect();
    let holders = partners(&all, &BTreeMap::new());
    check(&all, &holders);
    for (name, holder) in &holders {
        let (one, two) = (of(&all, name), of(&all, holder));
        assert_ne!(one.domains[0], two.domains[0]);
        assert!(one.groups.is_disjoint(&two.groups), "{name} {holder}");
    }
}

#[test]
fn switch_is_left_where_the_rack_cannot_be() {
    let all: Vec<PartnerNode> = (0..8)
        .map(|number| node(&format!("n{number}"), "r", &format!("s{}", number / 4), "g"))
        .collect();
    let holders = partners(&all, &BTreeMap::new());
    check(&all, &holders);
    for (name, holder) in &holders {
        assert_ne!(of(&all, name).domains[1], of(&all, holder).domains[1]);
    }
}

proptest! {
    #[test]
    fn every_node_holds_for_one(racks in prop::collection::vec(0_usize..9, 1..7)) {
        let all = nodes(&racks);
        prop_assume!(all.len() >= 2);
        let holders = partners(&all, &BTreeMap::new());
        check(&all, &holders);
        if racks.iter().all(|count| count * 2 <= all.len()) {
            for (name, holder) in &holders {
                prop_assert_ne!(&of(&all, name).domains[0], &of(&all, holder).domains[0]);
            }
        }
        // The order in which nodes are listed changes nothing.
        let mut turned = all;
        turned.reverse();
        prop_assert_eq!(partners(&turned, &BTreeMap::new()), holders);
    }

    /// One node leaves or comes: the node that lost its holder moves, and at most two others.
    #[test]
    fn repair_moves_few(racks in prop::collection::vec(1_usize..9, 2..7), leaves in any::<prop::sample::Index>()) {
        let all = nodes(&racks);
        prop_assume!(all.len() >= 3);
        let before = partners(&all, &BTreeMap::new());
        let mut left = all.clone();
        left.remove(leaves.index(all.len()));
        let after = partners(&left, &before);
        check(&left, &after);
        let moved = |one: &BTreeMap<String, String>, two: &BTreeMap<String, String>| {
            one.iter().filter(|(name, holder)| two.get(*name).is_some_and(|other| other != *holder)).count()
        };
        prop_assert!(moved(&before, &after) <= 3, "{}", moved(&before, &after));
        prop_assert_eq!(&partners(&left, &after), &after);
        let again = partners(&all, &after);
        check(&all, &again);
        prop_assert!(moved(&after, &again) <= 3, "{}", moved(&after, &again));
    }

    #[test]
    fn any_former_result_is_repaired(former in prop::collection::btree_map("n[0-3]-[0-3]", "n[0-3]-[0-3]", 0..12)) {
        let all = nodes(&[3, 3, 2]);
        check(&all, &partners(&all, &former));
    }
}

#[test]
fn owners_are_balanced() {
    let replicas: Vec<u32> = (0..16).map(|rank| rank * 8).collect();
    let mut owned: BTreeMap<u32, u32> = BTreeMap::new();
    for number in 0..8_000 {
        let name = format!("model.layers.{}.weight.{}", number / 10, number % 10);
        let divided = Region::whole(&[4_096, 1_024]);
        let rank = owner(&name, &divided, &replicas).unwrap();
        assert_eq!(owner(&name, &divided, &replicas), Some(rank));
        *owned.entry(rank).or_default() += 1;
    }
    assert_eq!(owned.len(), 16);
    assert!(
        owned.values().all(|count| (400..600).contains(count)),
        "{owned:?}"
    );
    assert_eq!(owner("w", &Region::whole(&[]), &[]), None);
}
