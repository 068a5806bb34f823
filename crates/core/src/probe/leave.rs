//! Which nodes a gang leaves out where a link is slow and no node is known to be.
//!
//! Invariant: most of a gang stays, unless it is of two: then it is unknown which of them is slow.

use std::collections::BTreeSet;

use super::{links::Names, pairs::Link, search::Conclusion};

impl Names<'_> {
    /// The nodes without which no link that was found slow is used: one end of a pair, the smaller side of an uplink,
    /// all that an undecided one might be, and both of two that do not reach what is expected of the fabric.
    pub(super) fn leave(&self, conclusion: &Conclusion, is_below: bool) -> BTreeSet<String> {
        let all = self.names.len();
        let mut leave: BTreeSet<usize> = conclusion.pairs.iter().map(|pair| pair.1).collect();
        let uplinks = conclusion.slow.iter();
        let uplinks = uplinks.filter(|link| matches!(link, Link::Uplink(_)));
        for link in uplinks.chain(conclusion.undecided.iter().flatten()) {
            let behind = self.topology.behind(*link);
            if behind.len() * 2 <= all {
                leave.extend(behind);
            } else {
                leave.extend((0..all).filter(|node| !behind.contains(node)));
            }
        }
        if all == 2 && is_below {
            leave.extend(0..all);
        }
        if leave.len() * 2 > all && all > 2 {
            return BTreeSet::new();
        }
        let name = |node: usize| self.names.get(node).cloned();
        leave.into_iter().filter_map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::probe::{
        links::Names,
        pairs::{Link, Topology},
        search::Conclusion,
    };

    fn leave(racks: &[&str], is_below: bool, conclusion: &Conclusion) -> Vec<String> {
        let names: Vec<String> = (0..racks.len()).map(|node| format!("n{node}")).collect();
        let domains: Vec<Vec<String>> = racks.iter().map(|rack| vec![(*rack).to_owned()]).collect();
        let called = Names {
            names: &names,
            topology: &Topology::new(&domains),
        };
        called.leave(conclusion, is_below).into_iter().collect()
    }

    /// Name, racks, whether the fabric is below what is expected, what was found, who is left.
    type Case<'a> = (&'a str, &'a [&'a str], bool, Conclusion, &'a [&'a str]);

    #[test]
    fn as_few_nodes_as_it_takes() {
        let slow = |link| Conclusion {
            slow: BTreeSet::from([link]),
            ..Conclusion::default()
        };
        let pair = Conclusion {
            pairs: BTreeSet::from([(0, 2)]),
            ..Conclusion::default()
        };
        let undecided = |nodes: &[usize]| Conclusion {
            undecided: BTreeSet::from([nodes.iter().map(|node| Link::Node(*node)).collect()]),
            ..Conclusion::default()
        };
        let racks = ["a", "a", "a", "b", "b"];
        let cases: [Case<'_>; 9] = [
            ("nothing slow", &racks, false, Conclusion::default(), &[]),
            ("one end of a pair", &racks, false, pair, &["n2"]),
            // Reported as a failed node.
            ("a node", &racks, false, slow(Link::Node(1)), &[]),
            (
                "the smaller rack",
                &racks,
                false,
                slow(Link::Uplink(1)),
                &["n3", "n4"],
            ),
            (
                "the other rack",
                &racks,
                false,
                slow(Link::Uplink(0)),
                &["n3", "n4"],
            ),
            (
                "either of two",
                &racks,
                false,
                undecided(&[0, 4]),
                &["n0", "n4"],
            ),
            ("nearly all", &racks, false, undecided(&[0, 1, 2, 3]), &[]),
            (
                "two below",
                &["a", "a"],
                true,
                Conclusion::default(),
                &["n0", "n1"],
            ),
            (
                "five below: the fabric",
                &racks,
                true,
                Conclusion::default(),
                &[],
            ),
        ];
        for (name, racks, is_below, conclusion, wanted) in cases {
            assert_eq!(leave(racks, is_below, &conclusion), wanted, "{name}");
        }
    }
}
