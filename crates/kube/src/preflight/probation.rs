//! Nodes that come back: each whose time is over is looked at again, and stays away until it passes.
//!
//! Owns when nodes on probation are tried, and the pods of preflights that nobody removed.
//!
//! Invariants: one trial at a time; only the leader makes any. A node comes back only by passing, or because a person
//! takes its taint away.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use kube::core::params::DeleteParams;
use tracing::{debug, info, warn};
use trainyard_core::{
    gang::Snapshot,
    launch::preflight,
    probe::{self, Judgement, NodeRecord, Report, fingerprint},
};

use super::{Runner, flight, token};
use crate::{
    act::object_path,
    feed::{self, Source},
    operator::Operator,
    view::Bare,
};

/// How often nodes on probation are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A trial that told nothing is made again after this.
const AGAIN: Duration = Duration::from_mins(5);
/// Nodes that are tried at once.
const AT_ONCE: usize = 16;
/// How many looks lie between two at pods that nobody removed.
const SWEEP_EVERY: u32 = 30;
/// The pods of a preflight that are older than this have ended long ago.
const STALE: Duration = Duration::from_mins(15);
/// Whose preflight a trial is.
const OF: &str = "probation";

impl Operator {
    /// Lets nodes come back from probation, for ever.
    pub(crate) async fn watch_over_nodes(self) {
        let mut leads = self.leads();
        let mut looks = 0_u32;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if leads.wait_for(|leads| *leads).await.is_err() {
                return;
            }
            if self.readiness().is_err() {
                continue;
            }
            let now = crate::clock::now();
            let due = due(self.state.store().line.snapshot(), now);
            if !due.is_empty() {
                self.try_again(due).await;
            }
            if looks.is_multiple_of(SWEEP_EVERY) {
                self.sweep(now).await;
            }
            looks = looks.wrapping_add(1);
        }
    }

    /// Looks at nodes whose probation is over.
    async fn try_again(&self, due: BTreeSet<String>) {
        let Ok(image) = preflight::image(&self.cluster) else {
            return;
        };
        let nodes = {
            let store = self.state.store();
            let snapshot = store.line.snapshot();
            let partner = partner(snapshot);
            let all = due.iter().chain(&partner);
            let devices = |node: &String| (node.clone(), snapshot.free_accelerators(node));
            all.map(devices).collect::<BTreeMap<_, _>>()
        };
        info!(nodes = due.len(), "nodes on probation are tried again");
        let namespace = self.own_namespace();
        let runner = Runner {
            caller: &self.caller,
            namespace: &namespace,
            of: OF,
            sets_up_within: self.gate().sets_up_within,
        };
        let found = match token() {
            Ok(token) => {
                let mut pods =
                    preflight::of_nodes(&namespace, image, flight(OF, 1, &token), &nodes);
                self.locate(&mut pods);
                let say = |words: String| debug!(words, "trial");
                runner.run(pods, &say).await.and_then(|found| {
                    let report = found.measured()?;
                    let judgement = probe::judge(&report, &due)?;
                    Ok((report, judgement))
                })
            }
            Err(why) => Err(why),
        };
        match found {
            Ok((report, judgement)) => self.release(&due, &report, &judgement).await,
            Err(why) => {
                warn!(
                    nodes = due.len(),
                    why, "a trial of nodes on probation told nothing"
                );
                let until = later(crate::clock::now(), AGAIN.min(self.gate().probation_lasts));
                for node in &due {
                    self.extend_probation(node, until).await;
                }
                drop(runner.remove().await);
            }
        }
    }

    async fn release(&self, due: &BTreeSet<String>, report: &Report, judgement: &Judgement) {
        let (now, gate) = (crate::clock::now(), self.gate());
        let covers = fingerprint(&probe::Needs::default());
        let record = |node: &String| {
            let record = NodeRecord::of(report, judgement, node, &covers, now, gate.result_lasts)?;
            Some((node.clone(), record))
        };
        let records: Vec<_> = due.iter().filter_map(record).collect();
        self.write_records(&records).await;
        for node in due {
            if judgement.fit.contains(node) {
                self.end_probation(node).await;
            } else {
                let fault = judgement.unfit.get(node);
                let why = fault.map_or("all fail alike", |fault| fault.why.as_str());
                info!(node, why, "a node stays on probation");
                self.extend_probation(node, later(now, gate.probation_lasts))
                    .await;
            }
        }
    }

    /// Removes pods of preflights that whoever made them did not.
    async fn sweep(&self, now: Timestamp) {
        let source = Source {
            path: self.path("/api/v1", "pods"),
            labels: Some(preflight::ROUND.to_owned()),
            fields: None,
        };
        let Ok((pods, _)) = feed::list::<Bare>(&self.caller.client, &source).await else {
            return;
        };
        for pod in pods {
            let meta = &pod.metadata;
            let made = meta.creation_timestamp.unwrap_or(now);
            if later(made, STALE) <= now {
                let path = object_path(&meta.namespace, "pods");
                let params = DeleteParams::default();
                let gone = self.caller.delete(&path, &meta.name, &params).await;
                debug!(
                    pod = meta.name,
                    ok = gone.is_ok(),
                    "removed what a preflight left"
                );
            }
        }
    }
}

fn later(from: Timestamp, after: Duration) -> Timestamp {
    from.checked_add(after).unwrap_or(Timestamp::MAX)
}

/// The nodes whose probation is over.
fn due(snapshot: &Snapshot, now: Timestamp) -> BTreeSet<String> {
    let nodes = snapshot.nodes.iter();
    let due = nodes.filter(|(_, node)| node.ready && node.may_come_back(now));
    due.take(AT_ONCE).map(|(name, _)| name.clone()).collect()
}

/// A node that is well, to measure paths with.
fn partner(snapshot: &Snapshot) -> Option<String> {
    let well = snapshot.nodes.iter().find(|(_, node)| {
        let passed = node
            .preflight
            .as_ref()
            .is_some_and(|record| !record.is_failed());
        let open = !node.unschedulable && !node.is_quarantined() && !node.is_on_probation();
        node.ready && open && passed
    });
    well.map(|(name, _)| name.clone())
}

#[cfg(test)]
mod tests {
    use trainyard_core::{
        gang::{Node, Taint, TaintEffect},
        probe::{Outcome, PROBATION},
    };

    use super::*;

    fn node(until: Option<i64>, tainted: bool) -> Node {
        let taint = Taint {
            key: PROBATION.to_owned(),
            value: "link-speed".to_owned(),
            effect: TaintEffect::NoSchedule,
        };
        Node {
            ready: true,
            taints: tainted.then_some(taint).into_iter().collect(),
            probation_until: until.map(|second| Timestamp::from_second(second).unwrap()),
            ..Node::default()
        }
    }

    #[test]
    fn whose_time_is_over() {
        let mut snapshot = Snapshot::default();
        let dead = Node {
            ready: false,
            ..node(Some(5), true)
        };
        for (name, node) in [
            ("over", node(Some(10), true)),
            ("not yet", node(Some(11), true)),
            ("nobody knows", node(None, true)),
            ("taken away by a person", node(Some(5), false)),
            ("dead", dead),
        ] {
            snapshot.nodes.insert(name.to_owned(), node);
        }
        let due = due(&snapshot, Timestamp::from_second(10).unwrap());
        assert_eq!(
            due.into_iter().collect::<Vec<_>>(),
            ["nobody knows", "over"]
        );
    }

    #[test]
    fn paths_are_measured_with_a_node_that_passed() {
        let mut snapshot = Snapshot::default();
        let passed = |outcome, tainted| Node {
            preflight: Some(Box::new(NodeRecord {
                outcome,
                check: String::new(),
                why: String::new(),
                at: Timestamp::UNIX_EPOCH,
                until: Timestamp::UNIX_EPOCH,
                covers: String::new(),
            })),
            ..node(None, tainted)
        };
        snapshot.nodes.insert("a".to_owned(), node(None, false));
        snapshot
            .nodes
            .insert("b".to_owned(), passed(Outcome::Pass, true));
        snapshot
            .nodes
            .insert("c".to_owned(), passed(Outcome::Fail, false));
        assert_eq!(partner(&snapshot), None);
        snapshot
            .nodes
            .insert("d".to_owned(), passed(Outcome::Warn, false));
        assert_eq!(partner(&snapshot).as_deref(), Some("d"));
    }
}
