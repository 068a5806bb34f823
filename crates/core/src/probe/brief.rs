//! A report that fits into a given size.
//!
//! The report of a thousand nodes has megabytes, nearly all of them about what is well. What fails is kept for as long as
//! anything is.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Outcome, Report};

/// Longest text of a check in a report that is cut.
const SHORT: usize = 32;
/// Checks between nodes in a report that is cut.
const SHARED: usize = 64;

impl Report {
    /// The report with no more than is needed to judge it, where all of it has more than `most` bytes as JSON.
    ///
    /// What cannot be made to fit is as small as it gets.
    #[must_use]
    pub fn within(mut self, most: usize) -> Self {
        for step in [Self::keep_failures, Self::keep_first_failures] {
            if self.bytes() <= most {
                return self;
            }
            step(&mut self);
        }
        self
    }

    fn bytes(&self) -> usize {
        serde_json::to_string(self).map_or(usize::MAX, |text| text.len())
    }

    /// Keeps what fails or warns, and what passes where another node fails it: a node is blamed only by comparison.
    fn keep_failures(&mut self) {
        let failed: BTreeSet<String> = self
            .nodes
            .values()
            .flat_map(|node| &node.checks)
            .filter(|check| check.outcome == Outcome::Fail)
            .map(|check| check.name.clone())
            .collect();
        for node in self.nodes.values_mut() {
            let first = node.checks.first().cloned();
            node.checks.retain(|check| match check.outcome {
                Outcome::Fail | Outcome::Warn => true,
                Outcome::Pass => failed.contains(&check.name),
                Outcome::NotApplicable => false,
            });
            // A node without any check was not examined.
            if node.checks.is_empty() {
                node.checks.extend(first);
            }
            for check in &mut node.checks {
                if check.outcome < Outcome::Warn {
                    shorten(check, 0);
                }
            }
        }
    }

    /// Keeps the first failure of each node, of what passes no more than comparing needs, and short texts.
    fn keep_first_failures(&mut self) {
        // A node that fails is compared with one other: two that pass are always enough.
        let mut passes: BTreeMap<String, usize> = BTreeMap::new();
        for node in self.nodes.values_mut() {
            let checks = std::mem::take(&mut node.checks);
            let worst = checks.iter().map(|check| check.outcome).max();
            let mut kept: Vec<Check> = Vec::new();
            for mut check in checks {
                shorten(&mut check, SHORT);
                let first = kept.iter().all(|one| Some(one.outcome) != worst);
                let wanted = match check.outcome {
                    Outcome::Pass => {
                        let count = passes.entry(check.name.clone()).or_default();
                        *count += 1;
                        *count <= 2 || worst == Some(Outcome::Pass) && first
                    }
                    outcome => first && Some(outcome) == worst,
                };
                if wanted {
                    kept.push(check);
                }
            }
            node.checks = kept;
        }
        self.shared.truncate(SHARED);
        self.shared
            .iter_mut()
            .for_each(|check| shorten(check, SHORT));
    }
}

fn shorten(check: &mut Check, most: usize) {
    check.cause.clear();
    check.next.clear();
    for text in [&mut check.subject, &mut check.found, &mut check.needed] {
        *text = text.chars().take(most).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Layer, NodeReport, Owner, REPORT_MOST, judge, report_most};

    fn check(name: &str, outcome: Outcome) -> Check {
        Check {
            name: name.to_owned(),
            layer: Layer::Path,
            subject: "net1".to_owned(),
            outcome,
            found: "12.5 Gb/s, of 25 Gb/s that its peers reach".to_owned(),
            needed: "at least 0.7 of the median of its peers".to_owned(),
            cause: "c".repeat(200),
            next: "n".repeat(200),
            owner: Owner::Network,
        }
    }

    fn report(nodes: usize, bad: usize) -> Report {
        let node = |index: usize| {
            let mut checks: Vec<Check> = (0..25)
                .map(|number| check(&format!("check-{number}"), Outcome::Pass))
                .collect();
            checks[3].outcome = Outcome::NotApplicable;
            if index < bad {
                checks[index % 8].outcome = Outcome::Fail;
                checks[9].outcome = Outcome::Warn;
            }
            (
                format!("gpu-node-{index:05}.example"),
                NodeReport { checks },
            )
        };
        Report {
            nodes: (0..nodes).map(node).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn large_gangs_fit_and_are_judged_the_same() {
        let cases = [
            ("small", 4, 1),
            ("one of many", 1_024, 1),
            ("half of many", 1_024, 512),
            ("all of many", 1_024, 1_024),
            ("one of very many", 5_000, 1),
        ];
        for (name, nodes, bad) in cases {
            let whole = report(nodes, bad);
            let most = report_most(nodes);
            let brief = whole.clone().within(most);
            let bytes = brief.bytes();
            assert!(bytes <= most, "{name}: {bytes} bytes");
            let all: BTreeSet<String> = whole.nodes.keys().cloned().collect();
            let (before, after) = (judge(&whole, &all), judge(&brief, &all));
            let (before, after) = (before.unwrap(), after.unwrap());
            assert_eq!(before.fit, after.fit, "{name}");
            let blamed = |judged: &crate::probe::Judgement| {
                let unfit = judged.unfit.iter();
                unfit
                    .map(|(node, fault)| (node.clone(), fault.blamed))
                    .collect::<Vec<_>>()
            };
            assert_eq!(blamed(&before), blamed(&after), "{name}");
            assert_eq!(
                before.all_failed.is_some(),
                after.all_failed.is_some(),
                "{name}"
            );
        }
        let small = report(4, 1);
        assert_eq!(small.clone().within(REPORT_MOST), small, "all of it fits");
    }
}
