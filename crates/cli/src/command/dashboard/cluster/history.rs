//! The history of one job of a cluster: what its status and its pods show of the time before it was looked at, and every change since.
//!
//! Pure. What is not known is not drawn: a pod has the states whose times the cluster keeps, and the attempts of which no time is left have no begin.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use trainyard_core::{
    chronicle::{
        Chronicle, Content, Fact, FirstFailure, Places, PodState, Seen, Stretch, VERSION, What,
        adds_up,
    },
    job::{JobStatus, LastFailure, ObservedPod, PodPhase},
    view::pyramid::Pyramid,
};
use trainyard_host::Ranks;
use trainyard_kube::look::{JobSeen, LivePod};

use crate::cluster::slot_of_pod;

/// Names of numbers that are kept.
const NAMES_MAX: usize = 16;

/// The history of one job.
#[derive(Debug, Default)]
pub(super) struct History {
    seen: Option<(JobStatus, Vec<ObservedPod>)>,
    chronicle: Arc<Chronicle>,
    pub(super) series: BTreeMap<String, Pyramid>,
}

impl History {
    /// Adds what is new in `job` and its pods, and returns it.
    pub(super) fn observe(&mut self, job: &JobSeen, pods: &[LivePod], now: Timestamp) -> Vec<Fact> {
        let observed: Vec<ObservedPod> = pods.iter().filter_map(|it| it.observed.clone()).collect();
        let places = places(job);
        let after = Seen {
            status: &job.status,
            pods: &observed,
        };
        let until = known_until(job, now);
        let mut facts = Vec::new();
        let known = match &self.seen {
            Some((status, pods)) if *status == job.status && *pods == observed => return facts,
            Some((status, pods)) => {
                let chronicle = Arc::make_mut(&mut self.chronicle);
                let before = Seen { status, pods };
                facts = chronicle.record(Some(&before), &after, &places, now);
                adds_up(chronicle, &job.status.trainyard.ledger, until)
            }
            None => false,
        };
        if !known {
            self.chronicle = Arc::new(begun(job, pods, &places, now));
        }
        if self.seen.is_none() {
            self.add_last_step(job);
        }
        for fact in &facts {
            if let What::Point { name, value } = &fact.what {
                self.add_point(name, fact.at, value.0);
            }
        }
        self.seen = Some((job.status.clone(), observed));
        facts
    }

    /// The history so far.
    pub(super) fn chronicle(&self) -> Arc<Chronicle> {
        Arc::clone(&self.chronicle)
    }

    /// The numbers that were reported last, before anything was observed.
    fn add_last_step(&mut self, job: &JobSeen) {
        let Some(progress) = &job.status.trainyard.progress else {
            return;
        };
        let at = progress.last_step_at.as_millisecond();
        #[expect(
            clippy::cast_precision_loss,
            reason = "steps beyond 2^53 are drawn at the same pixel"
        )]
        self.add_point("step", at, progress.step as f64);
        let numbers = [
            ("loss", progress.loss),
            ("stepSeconds", progress.step_seconds),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                self.add_point(name, at, value.0);
            }
        }
    }

    fn add_point(&mut self, name: &str, at: i64, value: f64) {
        if self.series.len() < NAMES_MAX || self.series.contains_key(name) {
            let series = self.series.entry(name.to_owned()).or_default();
            series.push(at, value);
        }
    }
}

/// Until when something is known of a job.
pub(crate) fn known_until(job: &JobSeen, now: Timestamp) -> Timestamp {
    let ended = job.status.trainyard.ledger.ended;
    let ended = ended.or(job.status.completion_time);
    ended.filter(|_| job.has_ended()).unwrap_or(now)
}

/// The first rank of each slot and how many it holds.
fn places(job: &JobSeen) -> Places {
    let places = job.job.as_ref().map(|spec| {
        let replicas = spec.replicas();
        Ranks::of(spec).places(&replicas)
    });
    places.unwrap_or_default()
}

/// What the status alone shows.
pub(crate) fn of_status(job: &JobSeen, now: Timestamp) -> Chronicle {
    let until = known_until(job, now);
    let places = places(job);
    let status = &job.status;
    let seen = Seen { status, pods: &[] };
    // First without its failure, whose time only the order of attempts shows.
    let mut bare = status.clone();
    bare.trainyard.last_failure = None;
    let bare = Seen {
        status: &bare,
        pods: &[],
    };
    let mut chronicle = Chronicle::of_stored(&bare, &[], &places, until);
    let last = status.trainyard.last_failure.as_ref();
    let failure = last.and_then(|last| {
        let at = failed_at(&chronicle, last.attempt)?;
        first_failure(job, last, at)
    });
    if let Some(failure) = failure {
        chronicle = Chronicle::of_stored(&seen, &[failure], &places, until);
    }
    // When an attempt began is known where its time is; the time of the first look is no begin.
    let stretches = &chronicle.stretches;
    let open = chronicle.open;
    let begin = |attempt: u32| {
        let closed = stretches.iter().find(|it| attempt_of(it) == Some(attempt));
        let open = open.filter(|open| open.attempt == attempt);
        let open = open.map(|open| open.since.as_millisecond());
        closed.map(|it| it.from).or(open)
    };
    chronicle.attempts = chronicle
        .attempts
        .iter()
        .filter_map(|(_, attempt)| Some((begin(*attempt)?, *attempt)))
        .collect();
    chronicle
}

/// The attempt of a time, where it is all of one.
fn attempt_of(stretch: &Stretch) -> Option<u32> {
    match &stretch.content {
        Content::Phase { attempt, .. } => Some(*attempt),
        Content::Merged(_) | Content::NotObserved(_) => None,
    }
}

/// When an attempt failed: when the time of the next one begins, or when the job ended.
pub(super) fn failed_at(chronicle: &Chronicle, attempt: u32) -> Option<Timestamp> {
    let later = |of: Option<u32>| of.is_some_and(|of| of > attempt);
    let next = chronicle.stretches.iter().find(|it| later(attempt_of(it)));
    let next = next.map(|it| it.from);
    let open = chronicle.open.filter(|open| later(Some(open.attempt)));
    let open = open.map(|open| open.since.as_millisecond());
    let ended = chronicle.ended.map(|(at, _)| at);
    Timestamp::from_millisecond(next.or(open).or(ended)?).ok()
}

fn first_failure(job: &JobSeen, last: &LastFailure, at: Timestamp) -> Option<FirstFailure> {
    Some(FirstFailure {
        attempt: last.attempt,
        slot: slot_of_pod(job, &last.pod)?,
        pod: last.pod.clone(),
        at,
        message: last.message.clone(),
        verdict: last.verdict.clone(),
    })
}

/// What the status and the pods show at the first look.
fn begun(job: &JobSeen, pods: &[LivePod], places: &Places, now: Timestamp) -> Chronicle {
    let mut chronicle = of_status(job, now);
    for (at, what) in pod_times(pods, places) {
        let seq = chronicle.next_seq();
        chronicle.apply(&Fact {
            version: VERSION,
            seq,
            at,
            what,
        });
    }
    let observed: Vec<ObservedPod> = pods.iter().filter_map(|it| it.observed.clone()).collect();
    let mut plain = chronicle.clone();
    let after = Seen {
        status: &job.status,
        pods: &observed,
    };
    plain.record(None, &after, places, now);
    // Of this only what it says about pods is new; the rest is in the history, with better times.
    chronicle.lanes = plain.lanes;
    chronicle.swaps = plain.swaps;
    chronicle.failures = plain.failures;
    chronicle
}

/// What the cluster keeps of the times of pods, in order.
fn pod_times(pods: &[LivePod], places: &Places) -> Vec<(i64, What)> {
    let mut times = Vec::new();
    for pod in pods {
        let (Some(slot), attempt) = (pod.slot, pod.attempt) else {
            continue;
        };
        let mut turn = |at: Option<Timestamp>, state: PodState| {
            let what = What::Pod {
                attempt,
                slot,
                state,
            };
            times.extend(at.map(|at| (at.as_millisecond(), what)));
        };
        turn(pod.created_at, PodState::Waiting);
        turn(pod.scheduled_at, PodState::Creating);
        // Containers that were started again have lost the time of their first start.
        let runs = pod.phase == PodPhase::Running;
        turn(pod.ready_at.filter(|_| runs), PodState::Running);
        if let (Some(at), Some(node)) = (pod.scheduled_at, &pod.node) {
            let (first_rank, ranks) = places.get(&slot).copied().unwrap_or((None, 0));
            let seated = What::Seated {
                attempt,
                slot,
                first_rank,
                ranks,
                node: node.clone(),
            };
            times.push((at.as_millisecond(), seated));
        }
    }
    times.sort_by_key(|(at, _)| *at);
    times
}
