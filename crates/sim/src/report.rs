//! The report of a preflight on nodes of which some fail.

use std::collections::BTreeSet;

use trainyard_core::probe::{Check, Layer, NodeReport, Outcome, Owner, Report};

/// The report on `nodes`, of which those in `bad` fail.
pub(crate) fn report(nodes: &BTreeSet<String>, bad: &BTreeSet<String>) -> Report {
    let check = |node: &String| Check {
        name: "link-speed".to_owned(),
        layer: Layer::Network,
        subject: String::new(),
        outcome: if bad.contains(node) {
            Outcome::Fail
        } else {
            Outcome::Pass
        },
        found: "10 Gbit/s".to_owned(),
        needed: "100 Gbit/s".to_owned(),
        cause: String::new(),
        next: String::new(),
        owner: Owner::Network,
    };
    let nodes = nodes.iter().map(|node| {
        let checks = vec![check(node)];
        (node.clone(), NodeReport { checks })
    });
    Report {
        nodes: nodes.collect(),
        ..Report::default()
    }
}
