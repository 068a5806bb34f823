//! How nodes, links, pairs and rates are called in checks.

use super::{
    amounts,
    pairs::{Link, Pair, Topology},
};

/// The names of what was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    /// The names of nodes, by number.
    pub(super) names: &'a [String],
    /// Where they are.
    pub(super) topology: &'a Topology,
}

impl Names<'_> {
    /// Links, one after the other.
    pub(super) fn list<'l>(&self, links: impl Iterator<Item = &'l Link>) -> String {
        let name = |link: &Link| match link {
            Link::Node(node) => self.name(*node).to_owned(),
            Link::Uplink(domain) => format!("the uplink of {}", self.topology.domain(*domain)),
        };
        links.map(name).collect::<Vec<_>>().join(", ")
    }

    /// Two nodes.
    pub(super) fn pair(&self, (a, b): Pair) -> String {
        format!("{} - {}", self.name(a), self.name(b))
    }

    fn name(&self, node: usize) -> &str {
        self.names.get(node).map_or("?", String::as_str)
    }
}

/// Bits in a second, as people read them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive, and far from the bound"
)]
pub(super) fn bits(rate: f64) -> String {
    amounts::rate((rate / 1e6).round().max(0.0) as u64)
}
