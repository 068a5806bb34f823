//! Trials: preflights that the operator runs for itself, in its own image and namespace.
//!
//! Owns where and with whom a node is tried, and what is done with nodes that jobs blame. What follows from a trial is
//! `trainyard_core::probe`'s.
//!
//! Invariants: one trial at a time. A node is marked only by what a trial of it found, and a trial runs only where nobody
//! but the operator and its administrators can reach its pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tracing::{debug, info, warn};
use trainyard_core::{
    gang::{Node, Snapshot},
    launch::preflight,
    probe::{self, Consequences, Judgement, Needs, Source, Suspect, fingerprint},
};

use super::{Runner, flight, token};
use crate::{key::JobKey, operator::Operator};

/// Whose preflight a trial is.
const OF: &str = "trial";
/// Nodes that one is measured with.
const BESIDE: usize = 2;

/// What a trial came to.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) judgement: Judgement,
    pub(super) follows: Consequences,
    pub(super) at: Timestamp,
}

impl Operator {
    /// The namespace and the image of trials; the error is why no node is ever tried or marked.
    pub(crate) fn trial_place(&self) -> Result<(String, &str), String> {
        let image = preflight::image(&self.cluster).map_err(|error| error.to_string())?;
        let namespace = trial_namespace(self.jobs_namespace(), self.pod_namespace())?;
        Ok((namespace.to_owned(), image))
    }

    /// A job of `key` blames nodes, beside which the nodes `fit` passed: they are to be tried.
    pub(super) fn suspect(
        &self,
        key: &JobKey,
        nodes: &BTreeSet<String>,
        fit: &BTreeSet<String>,
        now: Timestamp,
    ) {
        // Of 0 % nothing would follow.
        if self.trial_place().is_err() || self.gate().cap.of(100) == 0 {
            return;
        }
        for node in nodes {
            let blamed = self
                .flights
                .suspects()
                .blame(node, &key.namespace, fit, now);
            self.caller.metrics.trust.node_blamed(blamed.label());
            info!(job = %key, node, result = blamed.label(), "Preflight of a job blames a node");
        }
    }

    /// Tries the node that has waited longest of those that jobs blame, if there is one.
    pub(super) async fn try_suspect(&self) {
        let now = crate::clock::now();
        let suspect = self.flights.suspects().take(now);
        let Some(Suspect { node, beside }) = suspect else {
            return;
        };
        let beside = {
            let store = self.state.store();
            let snapshot = store.wait_queue.snapshot();
            // It may be gone by now, or be on probation already.
            let known = snapshot.nodes.get(&node);
            if !known.is_some_and(|known| known.ready && !known.is_on_probation()) {
                return;
            }
            partners(snapshot, &BTreeSet::from([node.clone()]), &beside)
        };
        info!(node, "Trying a node that a job blames");
        let nodes = BTreeSet::from([node.clone()]);
        match self.run_trial(&nodes, &beside).await {
            Ok(tried) => {
                let outcome = if tried.follows.marks.unfit().is_empty() {
                    "fit"
                } else {
                    "unfit"
                };
                self.caller.metrics.trust.node_tried("blamed", outcome);
                info!(node, outcome, "Tried a node that a job blames");
                let this = self.clone();
                let marked = self.flights.tasks.close(async move {
                    this.write_marks(&tried.follows.marks, tried.at).await;
                });
                drop(marked.await);
            }
            Err(why) => {
                self.caller.metrics.trust.node_tried("blamed", "no_result");
                warn!(
                    node,
                    why, "Trial of a node that a job blames produced no result"
                );
            }
        }
    }

    /// Measures `nodes` together with those `beside` them, of which nothing is concluded.
    pub(super) async fn run_trial(
        &self,
        nodes: &BTreeSet<String>,
        beside: &BTreeSet<String>,
    ) -> Result<Tried, String> {
        let (namespace, image) = self.trial_place()?;
        let devices = {
            let store = self.state.store();
            let snapshot = store.wait_queue.snapshot();
            let tried = nodes
                .iter()
                .map(|node| (node.clone(), snapshot.free_accelerators(node)));
            // Those beside it keep their devices for others.
            let others = beside.iter().map(|node| (node.clone(), BTreeMap::new()));
            others.chain(tried).collect::<BTreeMap<_, _>>()
        };
        let count = devices.len();
        let runner = Runner {
            caller: &self.caller,
            namespace: &namespace,
            of: OF,
            owner: "",
            report_bytes: probe::report_most(count),
            sets_up_within: self.gate().sets_up_within,
        };
        let token = token()?;
        let flight = flight(OF, 1, &token, count);
        let mut pods = preflight::of_nodes(&namespace, image, flight, &devices, true);
        self.locate(&mut pods);
        let say = |words: String| debug!(words, "Trial");
        let found = runner.run(pods, &say).await;
        if found.is_err()
            && let Err(error) = runner.remove().await
        {
            warn!(
                error,
                "Cannot delete the pods of a trial; they end at their deadline"
            );
        }
        let report = probe::downgrade_unseen_gpus(found?.measured()?);
        let judgement = probe::judge(&report, nodes)?;
        let at = crate::clock::now();
        let covers = fingerprint(&Needs::default());
        let used = (at, self.gate().result_lasts);
        let follows =
            probe::consequences(Source::Operator, &report, &judgement, nodes, &covers, used);
        Ok(Tried {
            judgement,
            follows,
            at,
        })
    }
}

/// Where trials run: in the namespace of the operator's own pod. Whoever can create pods there has the operator's rights
/// anyway; in another one, whoever works there could execute commands in a trial.
fn trial_namespace<'a>(jobs: Option<&'a str>, own: Option<&'a str>) -> Result<&'a str, String> {
    match (jobs, own) {
        (Some(jobs), Some(own)) if jobs != own => Err(format!(
            "the operator runs in namespace `{own}` and has rights only in `{jobs}`, where trials could be tampered with"
        )),
        (jobs, own) => Ok(own.or(jobs).unwrap_or("default")),
    }
}

/// Nodes to measure paths with: of those that `passed` beside it and those that passed a trial, the first that can be used.
pub(super) fn partners(
    snapshot: &Snapshot,
    tried: &BTreeSet<String>,
    passed: &BTreeSet<String>,
) -> BTreeSet<String> {
    let open = |name: &str, node: &Node| {
        let failed = node
            .preflight
            .as_ref()
            .is_some_and(|record| record.is_failed());
        let closed = node.unschedulable || node.is_quarantined() || node.is_on_probation();
        node.ready && !closed && !failed && !tried.contains(name)
    };
    let named = passed
        .iter()
        .filter_map(|name| Some((name, snapshot.nodes.get(name)?)));
    let with_record = snapshot.nodes.iter().filter(|(_, node)| {
        node.preflight
            .as_ref()
            .is_some_and(|record| record.by == Source::Operator)
    });
    named
        .chain(with_record)
        .filter(|(name, node)| open(name, node))
        .map(|(name, _)| name.clone())
        .take(BESIDE)
        .collect()
}

#[cfg(test)]
mod tests {
    use trainyard_core::probe::{NodeRecord, Outcome};

    use super::*;

    fn node(record: Option<(Outcome, Source)>) -> Node {
        let record = record.map(|(outcome, by)| {
            Box::new(NodeRecord {
                outcome,
                check: String::new(),
                why: String::new(),
                at: Timestamp::UNIX_EPOCH,
                until: Timestamp::UNIX_EPOCH,
                covers: String::new(),
                by,
            })
        });
        Node {
            ready: true,
            preflight: record,
            ..Node::default()
        }
    }

    #[test]
    fn paths_are_measured_with_nodes_that_passed() {
        let own = |outcome| node(Some((outcome, Source::Operator)));
        let cordoned = Node {
            unschedulable: true,
            ..own(Outcome::Pass)
        };
        let cases = [
            ("by the job, and open", "a", node(None), true, true),
            ("by nobody", "a", node(None), false, false),
            ("by a trial", "a", own(Outcome::Warn), false, true),
            ("failed a trial", "a", own(Outcome::Fail), true, false),
            (
                "by an old version",
                "a",
                node(Some((Outcome::Pass, Source::Job))),
                false,
                false,
            ),
            ("cordoned", "a", cordoned, true, false),
            ("tried itself", "n", own(Outcome::Pass), true, false),
        ];
        let tried = BTreeSet::from(["n".to_owned()]);
        for (name, called, node, passed, want) in cases {
            let mut snapshot = Snapshot::default();
            snapshot.nodes.insert(called.to_owned(), node);
            let passed = passed.then(|| called.to_owned()).into_iter().collect();
            let found = partners(&snapshot, &tried, &passed);
            assert_eq!(!found.is_empty(), want, "{name}");
        }
    }

    #[test]
    fn trials_run_where_no_tenant_is() {
        let cases = [
            (
                "the whole cluster",
                None,
                Some("trainyard"),
                Ok("trainyard"),
            ),
            (
                "one namespace, from another",
                Some("team"),
                Some("trainyard"),
                Err(()),
            ),
            (
                "one namespace, from there",
                Some("team"),
                Some("team"),
                Ok("team"),
            ),
            ("not in a pod", Some("team"), None, Ok("team")),
            ("nothing is known", None, None, Ok("default")),
        ];
        for (name, jobs, own, want) in cases {
            assert_eq!(trial_namespace(jobs, own).map_err(drop), want, "{name}");
        }
    }
}
