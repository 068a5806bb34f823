//! Preflights in a cluster: small pods on the nodes of a gang, before it starts.
//!
//! Owns the preflights that are under way and what became of the last one of each job. What pods they are is
//! `trainyard_core::launch::preflight`'s, what a report means `trainyard_core::probe`'s, when one is wanted and what
//! follows `trainyard_core::job`'s.
//!
//! Invariants: no pass waits for a preflight. One ends after [`crate::preflight_run::LIMIT`] at the latest, and its pods at their deadline.
//! What a job's pods report is used for that job alone: it is remembered here and written to no node. An operator that is
//! restarted measures again. Nodes are marked by [`trial`]s only.

mod marks;
mod probation;
mod tasks;
#[cfg(test)]
mod tests;
mod trial;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use tokio::task::AbortHandle;
use tracing::{debug, info, warn};
use trainyard_core::{
    fabric::Fabric,
    job::{JobStatus, PreflightRun, Preflights, Seating, SeenPreflight},
    launch::preflight::{self, Flight},
    probe::{self, Cap, Found, NodeRecord, Source},
    spec::{Job, Preflight, Slot},
};

use self::tasks::Tasks;
use super::Operator;
use crate::{
    key::JobKey,
    plain::sentence,
    preflight_run::{PreflightError, Runner, SETS_UP, token},
};

/// What is decided about preflights for the whole cluster.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// For how long a result speaks for its node.
    pub result_lasts: Duration,
    /// For how long a node that failed is kept from everybody, at least.
    pub probation_lasts: Duration,
    /// How many nodes automation may take.
    pub cap: Cap,
    /// A pod of a preflight that has a node and still no network or volume after this long will not get them.
    pub sets_up_within: Duration,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            result_lasts: Duration::from_hours(1),
            probation_lasts: Duration::from_hours(1),
            cap: Cap::default(),
            sets_up_within: SETS_UP,
        }
    }
}

/// Nodes of one job of which it is remembered what its preflights found.
const REMEMBERED: usize = 4_096;

/// The preflights of all jobs.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    jobs: Mutex<BTreeMap<JobKey, Followed>>,
    own: Mutex<BTreeMap<JobKey, Own>>,
    pub(crate) tasks: Tasks,
}

/// What the preflights of a job found on its nodes. Nobody else uses it.
#[derive(Debug)]
struct Own {
    /// The job's own identity: another of the same name has found nothing.
    uid: String,
    records: BTreeMap<String, NodeRecord>,
}

/// The last preflight of a job.
#[derive(Debug)]
struct Followed {
    /// The job's own identity: another of the same name has none.
    uid: String,
    round: u32,
    /// Nothing where it could not even be begun.
    task: Option<AbortHandle>,
    ended: Option<Result<Found, PreflightError>>,
}

impl Followed {
    fn abort(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Flights {
    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobKey, Followed>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what is under way for a job that is gone; its pods go with it.
    pub(crate) fn forget(&self, key: &JobKey) {
        if let Some(followed) = self.jobs().remove(key) {
            followed.abort();
        }
        self.own().remove(key);
    }

    fn own(&self) -> MutexGuard<'_, BTreeMap<JobKey, Own>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what a preflight of a job found, for its later attempts.
    fn remember(
        &self,
        key: &JobKey,
        uid: &str,
        found: BTreeMap<String, NodeRecord>,
        now: Timestamp,
    ) {
        let mut own = self.own();
        let known = own.entry(key.clone()).or_insert_with(|| Own {
            uid: uid.to_owned(),
            records: BTreeMap::new(),
        });
        if known.uid != uid {
            uid.clone_into(&mut known.uid);
            known.records.clear();
        }
        known.records.retain(|_, record| record.is_fresh(now));
        known.records.extend(found);
        while known.records.len() > REMEMBERED {
            known.records.pop_first();
        }
    }

    /// What a job that needs what `covers` names remembers of a node.
    fn remembered(&self, key: &JobKey, uid: &str, covers: &str, node: &str) -> Option<NodeRecord> {
        let own = self.own();
        let known = own.get(key).filter(|known| known.uid == uid)?;
        let record = known.records.get(node);
        record.filter(|record| record.covers == covers).cloned()
    }

    fn run(&self, key: &JobKey, uid: &str, status: &JobStatus) -> PreflightRun {
        let jobs = self.jobs();
        match jobs.get(key).filter(|followed| followed.uid == uid) {
            Some(Followed { round, ended, .. }) => match ended {
                None => PreflightRun::Runs(*round),
                Some(found) => {
                    let judged = found.as_ref().map(|found| found.judgement.clone());
                    PreflightRun::Ended(*round, judged.map_err(|error| sentence(error)))
                }
            },
            None => match &status.trainyard.preflight {
                Some(state) if state.since.is_some() => PreflightRun::Left(state.round),
                _ => PreflightRun::Idle,
            },
        }
    }
}

/// One preflight of a job.
#[derive(Debug)]
struct Begun {
    key: JobKey,
    uid: String,
    round: u32,
    nodes: BTreeSet<String>,
    covers: String,
    pods: Vec<preflight::PreflightPod>,
}

impl Operator {
    /// What is known of the preflights of a job, as it is launched.
    pub(crate) fn seen_preflight(
        &self,
        key: &JobKey,
        uid: &str,
        job: &Job,
        status: &JobStatus,
        seating: &Seating,
    ) -> SeenPreflight {
        if job.settings.preflight != Preflight::Required || self.shadow.is_some() {
            return SeenPreflight::Unused;
        }
        if *seating == Seating::Open {
            let why = if self.places() {
                "another scheduler assigns nodes to its pods"
            } else {
                "this operator assigns no nodes"
            };
            return SeenPreflight::Unable(why.to_owned());
        }
        if let Err(error) = preflight::image(&self.cluster) {
            return SeenPreflight::Unable(error.to_string());
        }
        let mut records = BTreeMap::new();
        if let Seating::Given(seats) = seating {
            let covers = preflight::covers(job, settled(status).as_ref());
            let now = crate::clock::now();
            let store = self.state.store();
            let nodes = &store.fleet.queue.snapshot().nodes;
            for node in seats.values() {
                let own = self.flights.remembered(key, uid, &covers, node);
                let on_node = nodes.get(node).and_then(|node| node.preflight.as_deref());
                let on_node =
                    on_node.filter(|record| record.is_for(&covers) && record.is_fresh(now));
                // What the operator itself found wrong outweighs what the job's pods say.
                let known = match on_node {
                    Some(record) if record.is_failed() || own.is_none() => Some(record.clone()),
                    _ => own,
                };
                records.extend(known.map(|record| (node.clone(), record)));
            }
        }
        SeenPreflight::Here(Box::new(Preflights {
            run: self.flights.run(key, uid, status),
            records,
        }))
    }

    /// Begins preflight `round` of a job, unless it runs.
    pub(crate) fn start_preflight(
        &self,
        key: &JobKey,
        uid: &str,
        job: &Job,
        status: &JobStatus,
        round: u32,
        seats: &BTreeMap<String, Slot>,
    ) {
        let mut jobs = self.flights.jobs();
        if let Some(known) = jobs.get(key) {
            if known.uid == uid && known.round == round {
                return;
            }
            known.abort();
        }
        let fabric = settled(status);
        let made = token().and_then(|token| {
            let flight = flight(uid, round, &token, seats.len());
            preflight::of_job(job, fabric.as_ref(), &self.cluster, flight, seats)
                .map_err(PreflightError::Build)
        });
        let pods = match made {
            Ok(pods) => pods,
            Err(error) => {
                warn!(job = %key, why = sentence(&error), "Cannot build the pods of a preflight");
                self.caller.metrics.preflight_ended("no_result");
                let followed = Followed {
                    uid: uid.to_owned(),
                    round,
                    task: None,
                    ended: Some(Err(error)),
                };
                jobs.insert(key.clone(), followed);
                drop(jobs);
                self.enqueue_job(key.clone());
                return;
            }
        };
        info!(job = %key, round, nodes = seats.len(), "Preflight started");
        let begun = Begun {
            key: key.clone(),
            uid: uid.to_owned(),
            round,
            nodes: seats.keys().cloned().collect(),
            covers: preflight::covers(job, fabric.as_ref()),
            pods,
        };
        let task = self
            .flights
            .tasks
            .measure(self.clone().run_preflight(begun));
        let followed = Followed {
            uid: uid.to_owned(),
            round,
            task: Some(task),
            ended: None,
        };
        jobs.insert(key.clone(), followed);
    }

    async fn run_preflight(self, begun: Begun) {
        let Begun {
            key,
            uid,
            round,
            nodes,
            covers,
            mut pods,
        } = begun;
        self.locate(&mut pods);
        let runner = self.runner(&key, &uid, nodes.len());
        let say = |words: String| debug!(job = %key, round, words, "Preflight");
        let lasts = self.gate().result_lasts;
        let found = runner.run(pods, &say).await.and_then(|found| {
            let used = (crate::clock::now(), lasts);
            Found::of(Source::Job, &found.measured()?, &nodes, &covers, used)
                .map_err(PreflightError::Incomplete)
        });
        let outcome = match &found {
            Ok(found) if found.judgement.all_failed.is_some() => "all_failed",
            Ok(found) if !found.judgement.unfit.is_empty() => "unfit",
            Ok(_) => "fit",
            Err(_) => "no_result",
        };
        let why = found
            .as_ref()
            .err()
            .map(|error| sentence(error))
            .unwrap_or_default();
        info!(job = %key, round, outcome, why, "Preflight ended");
        self.caller.metrics.preflight_ended(outcome);
        if let Some(followed) = self.flights.jobs().get_mut(&key)
            && followed.uid == uid
            && followed.round == round
        {
            followed.ended = Some(found);
        }
        self.enqueue_job(key);
    }

    /// Says of each pod in which domains its node is, as placement sees them.
    fn locate(&self, pods: &mut [preflight::PreflightPod]) {
        let store = self.state.store();
        let snapshot = store.fleet.queue.snapshot();
        for one in pods {
            one.domains = snapshot.domains(&one.node);
        }
    }

    /// Keeps what preflight `round` of a job found for that job, has the nodes tried that it blames, and removes what is
    /// left of it, in a task of its own.
    pub(crate) fn end_preflight(&self, key: &JobKey, uid: &str, round: u32) {
        let known = {
            let mut jobs = self.flights.jobs();
            let same = |known: &Followed| known.uid == uid && known.round == round;
            match jobs.get(key) {
                // Another one has begun meanwhile, and has cleared away what was before it.
                Some(known) if !same(known) => return,
                _ => jobs.remove(key),
            }
        };
        let found = known.and_then(|known| {
            known.abort();
            known.ended?.ok()
        });
        if let Some(Found { judgement, follows }) = found {
            let now = crate::clock::now();
            self.suspect(key, &follows.suspects, &judgement.fit, now);
            self.flights.remember(key, uid, follows.own, now);
        }
        let (this, key, uid) = (self.clone(), key.clone(), uid.to_owned());
        drop(self.flights.tasks.close(async move {
            let runner = this.runner(&key, &uid, 0);
            if let Err(error) = runner.remove().await {
                let error = sentence(&error);
                warn!(job = %key, round, error, "Cannot delete the pods of a preflight; they end at their deadline");
            }
        }));
    }

    /// What runs the pods of a preflight of the job `uid`.
    fn runner<'a>(&'a self, key: &'a JobKey, uid: &'a str, nodes: usize) -> Runner<'a> {
        Runner {
            caller: &self.caller,
            namespace: &key.namespace,
            of: uid,
            owner: uid,
            report_bytes: probe::report_most(nodes),
            sets_up_within: self.gate().sets_up_within,
        }
    }
}

/// The fabric that the attempt is on.
fn settled(status: &JobStatus) -> Option<Fabric> {
    status.trainyard.fabric.as_ref()?.fabric()
}

fn flight<'a>(of: &'a str, round: u32, token: &'a str, nodes: usize) -> Flight<'a> {
    Flight {
        of,
        round,
        token,
        report_bytes: probe::report_most(nodes),
    }
}
