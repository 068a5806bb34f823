//! Which pod of a preflight leads, and when another one gets a turn.

/// Leaders of one preflight, one after another: a fault that two nodes have is not the leader's.
const LEADERS: usize = 2;

/// How the turn of a leader ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaderEnd {
    /// It reported, or it has no result for a reason that another leader does not change.
    Final,
    /// It did not start, or ended without a report.
    Failed,
    /// It reported that no other pod reached it, although others ran.
    NotReached,
}

/// The node whose pod leads next, where the pods on `nodes` take part and those of `led` have led, in this order. Nothing where
/// the result of the last one counts.
pub fn next_leader<'a>(nodes: &'a [String], led: &[(String, LeaderEnd)]) -> Option<&'a str> {
    let counts = led.last().is_some_and(|(_, end)| *end == LeaderEnd::Final);
    if counts || led.len() >= LEADERS {
        return None;
    }
    let has_led = |node: &str| led.iter().any(|(other, _)| other == node);
    let mut nodes = nodes.iter().map(String::as_str);
    nodes.find(|node| !has_led(node))
}

#[cfg(test)]
mod tests {
    use super::{LeaderEnd::*, *};

    /// A name, the nodes, who led and how that ended, and who leads next.
    type Case = (
        &'static str,
        &'static [&'static str],
        &'static [(&'static str, LeaderEnd)],
        Option<&'static str>,
    );

    #[test]
    fn leader_is_replaced_once() {
        let cases: [Case; 9] = [
            ("the first", &["a", "b"], &[], Some("a")),
            ("no nodes", &[], &[], None),
            ("a result", &["a", "b"], &[("a", Final)], None),
            ("did not start", &["a", "b"], &[("a", Failed)], Some("b")),
            ("not reached", &["a", "b"], &[("a", NotReached)], Some("b")),
            (
                "a second one failed",
                &["a", "b", "c"],
                &[("a", Failed), ("b", NotReached)],
                None,
            ),
            (
                "a second one reported",
                &["a", "b", "c"],
                &[("a", Failed), ("b", Final)],
                None,
            ),
            ("nobody else", &["a"], &[("a", Failed)], None),
            ("nobody to reach it", &["a"], &[("a", NotReached)], None),
        ];
        for (name, nodes, led, want) in cases {
            let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
            let led = led.iter().map(|(node, end)| ((*node).to_owned(), *end));
            let led: Vec<_> = led.collect();
            assert_eq!(next_leader(&nodes, &led), want, "{name}");
        }
    }
}
