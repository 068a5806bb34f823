//! Trials: preflights that the operator runs for itself, in its own image and namespace.
//!
//! Owns where trials run and how. Which nodes are tried, when, and what follows is decided by `trainyard_core::fleet`.
//!
//! Invariants: one trial at a time. A node is marked only by what a trial of it found, and a trial runs only where nobody
//! but the operator and its administrators can reach its pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tracing::{debug, info, warn};
use trainyard_core::{
    fleet::{Change, Conclusion, NodeOutcome, Settings, Trial},
    launch::preflight,
    probe::{self, Found, Needs, Source, fingerprint},
};

use super::flight;
use crate::{
    key::JobKey,
    operator::Operator,
    plain::sentence,
    preflight_run::{PreflightError, Runner, token},
};

/// Whose preflight a trial is.
const OF: &str = "trial";
impl Operator {
    /// The namespace and the image of trials; the error is why no node is ever tried or marked.
    pub(crate) fn trial_place(&self) -> Result<(String, &str), PreflightError> {
        let image = preflight::image(&self.cluster).map_err(PreflightError::NoImage)?;
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
        if self.trial_place().is_err() {
            return;
        }
        let settings = self.fleet_settings();
        for node in nodes {
            let blamed = self
                .state
                .store()
                .fleet
                .blame(&settings, node, &key.namespace, fit, now);
            let Some(blamed) = blamed else {
                continue;
            };
            self.caller.metrics.trust.node_blamed(blamed.label());
            info!(job = %key, node, result = blamed.label(), "A preflight of a job blames a node");
        }
    }

    /// Runs the trial that is due, if there is one, and applies what follows from it.
    pub(super) async fn try_nodes(&self) {
        let decision = self.state.store().fleet.decide(crate::clock::now());
        let Some(trial) = decision.trial else {
            return;
        };
        let purpose = trial.purpose.label();
        info!(purpose, nodes = ?trial.nodes, "Trial started");
        let found = self.run_trial(&trial).await;
        if let Err(error) = &found {
            warn!(purpose, why = sentence(error), "Trial produced no result");
        }
        let found = found.ok();
        let this = self.clone();
        // What is half written is finished, even if this operator stops.
        let finished = self.flights.tasks.close(async move {
            this.finish_trial(&trial, found).await;
        });
        drop(finished.await);
    }

    async fn finish_trial(&self, trial: &Trial, found: Option<Found>) {
        let purpose = trial.purpose.label();
        let Conclusion {
            changes,
            refused,
            outcomes,
            ..
        } = {
            let settings = self.fleet_settings();
            let fleet = &mut self.state.store().fleet;
            fleet.conclude(&settings, found.as_ref(), crate::clock::now())
        };
        for (node, outcome) in &outcomes {
            self.caller
                .metrics
                .trust
                .node_tried(purpose, outcome.label());
            let why = match outcome {
                NodeOutcome::Unfit(why) => why.as_str(),
                NodeOutcome::Fit | NodeOutcome::NoResult => "",
            };
            info!(node, purpose, outcome = outcome.label(), why, "Trial ended");
        }
        for (node, why) in &refused {
            warn!(node, %why, "Unfit node stays in use");
        }
        for (node, change) in &changes {
            let done = self.change_node(node, change).await;
            if !done && matches!(change, Change::Taint(..)) {
                self.state.store().fleet.taint_failed(node);
            }
        }
    }

    fn fleet_settings(&self) -> Settings {
        let gate = self.gate();
        Settings {
            cap: gate.cap,
            probation_lasts: gate.probation_lasts,
        }
    }

    /// Measures the nodes of a trial together with those beside them.
    async fn run_trial(&self, trial: &Trial) -> Result<Found, PreflightError> {
        let (namespace, image) = self.trial_place()?;
        let devices = {
            let store = self.state.store();
            let snapshot = store.fleet.queue.snapshot();
            let tried = trial.nodes.iter();
            let tried = tried.map(|node| (node.clone(), snapshot.free_accelerators(node)));
            // Those beside it keep their devices for others.
            let others = trial.beside.iter();
            let others = others.map(|node| (node.clone(), BTreeMap::new()));
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
        let say = |words: String| debug!(words, "trial");
        let found = runner.run(pods, &say).await;
        if found.is_err()
            && let Err(error) = runner.remove().await
        {
            warn!(
                error = sentence(&error),
                "Cannot delete the pods of a trial; they end on their own"
            );
        }
        let report = probe::downgrade_unseen_gpus(found?.measured()?);
        let covers = fingerprint(&Needs::default());
        let used = (crate::clock::now(), self.gate().result_lasts);
        Found::of(Source::Operator, &report, &trial.nodes, &covers, used)
            .map_err(PreflightError::Incomplete)
    }
}

/// Where trials run: in the namespace of the operator's own pod. Whoever can create pods there has the operator's rights
/// anyway; in another one, whoever works there could execute commands in a trial.
fn trial_namespace<'a>(
    jobs: Option<&'a str>,
    own: Option<&'a str>,
) -> Result<&'a str, PreflightError> {
    match (jobs, own) {
        (Some(jobs), Some(own)) if jobs != own => Err(PreflightError::NoNamespace {
            own: own.to_owned(),
            jobs: jobs.to_owned(),
        }),
        (jobs, own) => Ok(own.or(jobs).unwrap_or("default")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
