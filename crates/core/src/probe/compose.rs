//! One report from all that is known of machines. The only place where checks of several sources meet.

use std::collections::BTreeMap;

use super::{Check, Needs, NodeReport, Reading, compare::compare, examine};

/// What is known of each machine: what was read of it, how it compares to the others, and what was `measured`.
pub fn compose(
    readings: &BTreeMap<String, Reading>,
    needs: &Needs,
    measured: impl IntoIterator<Item = (String, Vec<Check>)>,
) -> BTreeMap<String, NodeReport> {
    let mut nodes: BTreeMap<String, NodeReport> = BTreeMap::new();
    let examined = readings
        .iter()
        .map(|(name, reading)| (name.clone(), examine(reading, needs)));
    let all = examined.chain(compare(readings, needs)).chain(measured);
    for (name, checks) in all {
        nodes.entry(name).or_default().checks.extend(checks);
    }
    for node in nodes.values_mut() {
        // Sorted by layer, and in the order of the catalogue within each.
        node.checks.sort_by_key(|check| check.layer);
    }
    nodes
}
