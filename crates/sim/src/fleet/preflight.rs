//! Preflights of jobs: what they report depends on the nodes, or on whoever wrote the job.
//!
//! What follows from a report is decided by `probe::judge` and `probe::consequences`, as in the operator of the cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use trainyard_core::{
    gang::GangKey,
    job::{PreflightRun, Preflights, Seating, SeenPreflight},
    probe::{Blamed, Found, NodeRecord, Source},
    spec::{Preflight, Slot},
};

use super::{World, coverage::Mark, jobs::StoredJob, operator::Operator, world::Happening};
use crate::report::report;

/// How long a result counts.
const LASTS: Duration = Duration::from_mins(20);
/// What all preflights cover.
const COVERS: &str = "";

/// The preflights of all jobs, as one operator remembers them.
#[derive(Debug, Default)]
pub(super) struct Flights {
    jobs: BTreeMap<GangKey, Flight>,
    /// What the preflights of a job found on its nodes, by job and its incarnation.
    own: BTreeMap<GangKey, (String, BTreeMap<String, NodeRecord>)>,
    begun: u64,
}

/// The last preflight of a job.
#[derive(Debug)]
struct Flight {
    uid: String,
    number: u64,
    round: u32,
    nodes: BTreeSet<String>,
    ended: Option<Result<Found, String>>,
}

impl Flights {
    pub(super) fn forget(&mut self, key: &GangKey) {
        self.jobs.remove(key);
        self.own.remove(key);
    }
}

impl Operator {
    /// What is known of the preflights of a job.
    pub(super) fn seen_preflight(
        &self,
        key: &GangKey,
        view: &StoredJob,
        seating: &Seating,
        now: Timestamp,
    ) -> SeenPreflight {
        if view.job.settings.preflight != Preflight::Required {
            return SeenPreflight::Unused;
        }
        let flight = self.flights.jobs.get(key);
        let run = match flight.filter(|flight| flight.uid == view.uid) {
            Some(flight) => match &flight.ended {
                None => PreflightRun::Runs(flight.round),
                Some(found) => {
                    let judged = found.as_ref().map(|found| found.judgement.clone());
                    PreflightRun::Ended(flight.round, judged.map_err(Clone::clone))
                }
            },
            None => match &view.status.trainyard.preflight {
                Some(state) if state.since.is_some() => PreflightRun::Left(state.round),
                _ => PreflightRun::Idle,
            },
        };
        let mut records = BTreeMap::new();
        if let Seating::Given(seats) = seating {
            let own = self.flights.own.get(key);
            let own = own.filter(|(uid, _)| *uid == view.uid);
            let nodes = &self.fleet.queue.snapshot().nodes;
            for node in seats.values() {
                let own = own.and_then(|(_, own)| own.get(node)).cloned();
                let on_node = nodes.get(node).and_then(|node| node.preflight.as_deref());
                let on_node = on_node.filter(|record| record.is_fresh(now));
                let known = match on_node {
                    Some(record) if record.is_failed() || own.is_none() => Some(record.clone()),
                    _ => own,
                };
                records.extend(known.map(|record| (node.clone(), record)));
            }
        }
        SeenPreflight::Here(Box::new(Preflights { run, records }))
    }
}

impl World {
    pub(super) fn start_preflight(
        &mut self,
        number: usize,
        key: &GangKey,
        view: &StoredJob,
        round: u32,
        seats: &BTreeMap<String, Slot>,
    ) {
        let flights = &mut self.operators[number].flights;
        let known = flights.jobs.get(key);
        if known.is_some_and(|known| known.uid == view.uid && known.round == round) {
            return;
        }
        flights.begun += 1;
        let begun = flights.begun;
        let flight = Flight {
            uid: view.uid.clone(),
            number: begun,
            round,
            nodes: seats.keys().cloned().collect(),
            ended: None,
        };
        flights.jobs.insert(key.clone(), flight);
        let never_ends = !self.is_calm && self.dice.chance(5);
        let delay = self.dice.within(500..=40_000);
        if !never_ends {
            self.after(delay, Happening::PreflightEnds(number, key.clone(), begun));
        }
    }

    /// The pods of a preflight have reported, or their report is lost.
    pub(super) fn preflight_ends(&mut self, number: usize, key: &GangKey, begun: u64) {
        let now = self.timestamp();
        let is_lost = !self.is_calm && self.dice.chance(10);
        let is_forged = !self.is_calm && self.dice.chance(10);
        let operator = &self.operators[number];
        if !operator.alive || self.leader != Some(number) {
            return;
        }
        let flight = operator.flights.jobs.get(key);
        let Some(flight) = flight.filter(|flight| flight.number == begun) else {
            return;
        };
        let nodes = flight.nodes.clone();
        let mut bad: BTreeSet<String> = nodes
            .iter()
            .filter(|node| self.is_bad(node))
            .cloned()
            .collect();
        if is_forged && let Some(fit) = nodes.iter().find(|node| !bad.contains(*node)) {
            bad.insert(fit.clone());
            self.coverage.mark(Mark::Forged);
        }
        let report = report(&nodes, &bad);
        let found = if is_lost {
            Err("the log of the leader cannot be read".to_owned())
        } else {
            Found::of(Source::Job, &report, &nodes, COVERS, (now, LASTS))
                .map_err(|error| error.to_string())
        };
        self.coverage.mark(match &found {
            Err(_) => Mark::PreflightNoResult,
            Ok(_) if bad.is_empty() => Mark::PreflightPassed,
            Ok(_) => Mark::PreflightFailed,
        });
        if let Some(flight) = self.operators[number].flights.jobs.get_mut(key) {
            flight.ended = Some(found);
        }
        self.want_pass(number, key, 4);
    }

    /// Keeps what a preflight found, and has the nodes that it blames tried.
    pub(super) fn end_preflight(&mut self, number: usize, key: &GangKey, round: u32) {
        let now = self.timestamp();
        let settings = self.settings;
        let operator = &mut self.operators[number];
        let uid = operator.view.jobs.get(key).map(|job| job.uid.clone());
        let known = operator.flights.jobs.get(key);
        if known.is_some_and(|known| Some(&known.uid) != uid.as_ref() || known.round != round) {
            return;
        }
        let flight = operator.flights.jobs.remove(key);
        let found = flight.and_then(|flight| flight.ended?.ok().map(|found| (flight.uid, found)));
        let Some((uid, Found { judgement, follows })) = found else {
            return;
        };
        let mut queued = false;
        for node in &follows.suspects {
            let fit = &judgement.fit;
            let blamed = operator
                .fleet
                .blame(&settings, node, &key.namespace, fit, now);
            if blamed == Some(Blamed::Queued) {
                operator.facts.blamed.insert(node.clone());
                self.coverage.mark(Mark::Blamed);
                queued = true;
            }
        }
        let own = &mut operator.flights.own;
        let own = own.entry(key.clone()).or_default();
        if own.0 != uid {
            *own = (uid, BTreeMap::new());
        }
        own.1.retain(|_, record| record.is_fresh(now));
        own.1.extend(follows.own);
        if queued {
            self.want_decide(number, 10);
        }
    }

    /// Whether the link of a node fails, or it cannot be measured at all.
    pub(super) fn is_bad(&self, node: &str) -> bool {
        self.nodes.get(node).is_none_or(|node| node.is_bad)
    }
}
