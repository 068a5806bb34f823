//! Jobs as they are at the moment of a scrape: a job that trains for 30 days is counted from its first second.
//!
//! Invariants:
//! - At most [`JOBS_MAX`] jobs have families of their own, the ones with the most accelerators, until [`KEPT_FOR`] after their end, whoever
//!   processed them; how many are left out is a metric.
//! - Counters of one job are those of its status, so another leader continues them. Counters over all jobs begin at zero with this leader and
//!   never go back: what a job had spent before is not in them, and what a job that is gone has spent stays. A job whose number of
//!   accelerators changes keeps what it has spent with the number before.
//! - No counter goes back while this operator leads: where the ledger moves time from one phase to another, as it does for a stall that is
//!   noticed late, the first one stands still until it has caught up.
//! - Sums of jobs that are gone are kept for at most [`NAMESPACES_MAX`] namespaces; those of further ones are added up without their names.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet},
    metrics::MetricType,
    registry::Registry,
};
use trainyard_core::{
    job::{ConditionStatus, ConditionType, JobStatus, Spent},
    ledger::{Ledger, Phase, PhaseMillis},
    spec::Job,
    view::{State, rows},
};

use super::progress::{NamedJob, named};
use crate::{clock, key::JobKey};

/// Jobs with families of their own.
const JOBS_MAX: usize = 2_000;
/// How long an ended job keeps them, so that the last scrape is not missed.
const KEPT_FOR: SignedDuration = SignedDuration::from_mins(15);
/// Namespaces whose jobs are gone, with sums of their own.
const NAMESPACES_MAX: usize = 1_000;
/// Longest value of a label that no API server has checked, in characters: that of a name.
const LABEL_CHARS: usize = 253;
/// The label that names the team of a job.
const TEAM: &str = "trainyard.dev/team";

/// The jobs.
#[derive(Clone, Default)]
pub(crate) struct Live(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    jobs: BTreeMap<JobKey, Entry>,
    /// Accelerator seconds of jobs that are gone, by namespace. The empty one has those of namespaces beyond [`NAMESPACES_MAX`].
    gone: BTreeMap<Box<str>, BTreeMap<Phase, f64>>,
}

struct Entry {
    ledger: Ledger,
    /// When it ended.
    ended: Option<Timestamp>,
    /// The most that was reported of each phase.
    most: PhaseMillis,
    /// Accelerator seconds of each phase since this leader first saw it.
    used: BTreeMap<Phase, f64>,
    accelerators: u32,
    attempt: u32,
    spent: Spent,
    goal: Option<u64>,
    info: JobInfo,
}

/// What does not change of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobInfo {
    team: String,
    queue: String,
    priority: String,
}

impl JobInfo {
    /// From its labels and its first template.
    pub(crate) fn of(key: &JobKey, labels: impl Fn(&str) -> Option<String>, job: &Job) -> Self {
        let templates = job.roles.values();
        let mut specs = templates.filter_map(|role| role.template.spec.as_ref());
        Self {
            team: labels(TEAM).unwrap_or_else(|| key.namespace.to_string()),
            queue: labels(crate::key::KUEUE_QUEUE).unwrap_or_default(),
            priority: specs
                .find_map(|spec| spec.priority_class_name.as_deref())
                .map(|name| name.chars().take(LABEL_CHARS).collect())
                .unwrap_or_default(),
        }
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InPhase {
    kind: &'static str,
    job_namespace: String,
    job_name: String,
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Charged {
    kind: &'static str,
    job_namespace: String,
    job_name: String,
    account: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Windowed {
    kind: &'static str,
    job_namespace: String,
    job_name: String,
    window: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Described {
    kind: &'static str,
    job_namespace: String,
    job_name: String,
    team: String,
    queue: String,
    priority: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InNamespace {
    job_namespace: String,
    phase: &'static str,
}

impl Live {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    /// What a pass has decided about a job.
    pub(crate) fn put(&self, key: &JobKey, info: JobInfo, job: &Job, status: &JobStatus) {
        let record = &status.trainyard;
        let (now, accelerators) = (clock::now(), rows::accelerators(job));
        let mut table = self.table();
        let (most, used) = match table.jobs.remove(key) {
            Some(mut known) if known.ledger.began == record.ledger.began => {
                if known.accelerators != accelerators {
                    known.advance(now);
                }
                (known.most, known.used)
            }
            known => {
                // A job that was deleted and created again begins at zero, as one that nobody has seen; what the one before it has spent stays.
                if let Some(known) = known {
                    table.retire(key, known, now);
                }
                (record.ledger.totals(now), BTreeMap::new())
            }
        };
        let progress = record.progress.as_ref();
        let entry = Entry {
            most,
            used,
            ended: ended(status),
            ledger: record.ledger.clone(),
            accelerators,
            attempt: record.attempt,
            spent: record.spent,
            goal: progress.and_then(|progress| progress.total_steps),
            info,
        };
        table.jobs.insert(key.clone(), entry);
    }

    /// A job is gone.
    pub(super) fn forget(&self, key: &JobKey) {
        let mut table = self.table();
        if let Some(entry) = table.jobs.remove(key) {
            table.retire(key, entry, clock::now());
        }
    }

    /// Another operator reports the jobs from now on.
    pub(super) fn forget_all(&self) {
        *self.table() = Table::default();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Takes over what the ledger has at `now`.
    fn advance(&mut self, now: Timestamp) {
        for (phase, millis) in self.ledger.totals(now) {
            let most = self.most.entry(phase).or_default();
            let more = Duration::from_millis(millis.saturating_sub(*most));
            if !more.is_zero() {
                *most = millis;
                *self.used.entry(phase).or_default() +=
                    more.as_secs_f64() * f64::from(self.accelerators);
            }
        }
    }

    fn is_shown(&self, now: Timestamp) -> bool {
        self.ended
            .is_none_or(|ended| now.duration_since(ended) < KEPT_FOR)
    }
}

/// When a job ended. The ledger does not say it of one that another operator processed.
fn ended(status: &JobStatus) -> Option<Timestamp> {
    let is_end =
        |kind: ConditionType| matches!(kind, ConditionType::Succeeded | ConditionType::Failed);
    let mut conditions = status.conditions.iter();
    let last = conditions.find(|it| is_end(it.kind) && it.status == ConditionStatus::True);
    (status.trainyard.ledger.ended).or_else(|| last.map(|last| last.last_transition_time))
}

impl Table {
    /// Keeps what a job that is gone has spent.
    fn retire(&mut self, key: &JobKey, mut entry: Entry, now: Timestamp) {
        entry.advance(now);
        entry.used.retain(|_, seconds| *seconds > 0.0);
        if entry.used.is_empty() {
            return;
        }
        let has_room = self.gone.len() < NAMESPACES_MAX || self.gone.contains_key(&*key.namespace);
        let namespace = if has_room { &*key.namespace } else { "" };
        let sums = self.gone.entry(namespace.into()).or_default();
        for (phase, seconds) in entry.used {
            *sums.entry(phase).or_default() += seconds;
        }
    }

    /// The jobs with families of their own, by name, and how many have none.
    fn shown(&self, now: Timestamp) -> (Vec<(NamedJob, &Entry)>, usize) {
        let mut all: Vec<(&JobKey, &Entry)> = self.jobs.iter().collect();
        all.retain(|(_, entry)| entry.is_shown(now));
        let left_out = all.len().saturating_sub(JOBS_MAX);
        if left_out > 0 {
            all.sort_by_key(|(key, entry)| (std::cmp::Reverse(entry.accelerators), *key));
            all.truncate(JOBS_MAX);
            all.sort_by_key(|(key, _)| *key);
        }
        let named = all.into_iter().map(|(key, entry)| (named(key), entry));
        (named.collect(), left_out)
    }

    /// Accelerator seconds of all jobs, by namespace and phase.
    fn accelerator_seconds(&self) -> BTreeMap<(&str, Phase), f64> {
        let gone = self
            .gone
            .iter()
            .map(|(namespace, used)| (&**namespace, used));
        let jobs = self.jobs.iter();
        let jobs = jobs.map(|(key, entry)| (&*key.namespace, &entry.used));
        let mut sums = BTreeMap::new();
        for (namespace, used) in gone.chain(jobs) {
            for (phase, seconds) in used.iter().filter(|(_, seconds)| **seconds > 0.0) {
                *sums.entry((namespace, *phase)).or_default() += seconds;
            }
        }
        sums
    }
}

impl Collector for Live {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = clock::now();
        let mut table = self.table();
        table.jobs.values_mut().for_each(|entry| entry.advance(now));
        let (jobs, left_out) = table.shown(now);
        gauges(
            &mut encoder,
            "job_info",
            "Team, queue and priority class of a job; always 1",
            jobs.iter().map(|(job, entry)| {
                let NamedJob {
                    kind,
                    job_namespace,
                    job_name,
                } = job.clone();
                let JobInfo {
                    team,
                    queue,
                    priority,
                } = entry.info.clone();
                (
                    Described {
                        kind,
                        job_namespace,
                        job_name,
                        team,
                        queue,
                        priority,
                    },
                    1.0,
                )
            }),
        )?;
        gauges(
            &mut encoder,
            "job_phase",
            "1 for the phase that a job is in; nothing once it has ended",
            jobs.iter().filter_map(|(job, entry)| {
                let open = entry.ledger.open?;
                Some((in_phase(job, open.phase), 1.0))
            }),
        )?;
        counters(
            &mut encoder,
            "job_phase_seconds",
            "Time of a job by phase, the current one included",
            jobs.iter().flat_map(|(job, entry)| {
                entry.most.iter().map(|(&phase, &millis)| {
                    let seconds = Duration::from_millis(millis).as_secs_f64();
                    (in_phase(job, phase), seconds)
                })
            }),
        )?;
        gauges(
            &mut encoder,
            "job_accelerators",
            "Accelerators that all pods of a job ask for",
            jobs.iter()
                .map(|(job, entry)| (job.clone(), f64::from(entry.accelerators))),
        )?;
        gauges(
            &mut encoder,
            "job_attempt",
            "The attempt of a job",
            jobs.iter()
                .map(|(job, entry)| (job.clone(), f64::from(entry.attempt))),
        )?;
        #[expect(
            clippy::cast_precision_loss,
            reason = "Prometheus knows no other numbers than doubles"
        )]
        gauges(
            &mut encoder,
            "job_steps_goal",
            "The step at which the training program of a job will be done, where it reports that",
            jobs.iter()
                .filter_map(|(job, entry)| Some((job.clone(), entry.goal? as f64))),
        )?;
        counters(
            &mut encoder,
            "job_restarts",
            "Failures of a job by the account of the failure budget that they use",
            jobs.iter().flat_map(|(job, entry)| {
                let spent = entry.spent;
                let counts = [
                    ("user", spent.user),
                    ("platform", spent.platform),
                    ("infrastructure", spent.infrastructure),
                    ("preemption", spent.preemption),
                ];
                counts.map(|(account, count)| {
                    let NamedJob {
                        kind,
                        job_namespace,
                        job_name,
                    } = job.clone();
                    (
                        Charged {
                            kind,
                            job_namespace,
                            job_name,
                            account,
                        },
                        f64::from(count),
                    )
                })
            }),
        )?;
        gauges(
            &mut encoder,
            "job_trained_ratio",
            "Share of the wall time of a job that trained (ETTR); nothing before its first step",
            jobs.iter().filter_map(|(job, entry)| {
                let ratio = entry.ledger.ettr(now)?;
                let NamedJob {
                    kind,
                    job_namespace,
                    job_name,
                } = job.clone();
                Some((
                    Windowed {
                        kind,
                        job_namespace,
                        job_name,
                        window: "all",
                    },
                    ratio,
                ))
            }),
        )?;
        counters(
            &mut encoder,
            "gpu_seconds",
            "Accelerator time of all jobs by phase, since this leader began",
            table
                .accelerator_seconds()
                .into_iter()
                .map(|((namespace, phase), seconds)| {
                    let place = InNamespace {
                        job_namespace: namespace.to_owned(),
                        phase: State::from(phase).name(),
                    };
                    (place, seconds)
                }),
        )?;
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 jobs")]
        let left_out = left_out as f64;
        let mut family = encoder.encode_descriptor(
            "metrics_jobs_left_out",
            "Jobs without metrics of their own: only the largest ones have them",
            None,
            MetricType::Gauge,
        )?;
        family.encode_gauge(&left_out)
    }
}

fn in_phase(job: &NamedJob, phase: Phase) -> InPhase {
    let NamedJob {
        kind,
        job_namespace,
        job_name,
    } = job.clone();
    InPhase {
        kind,
        job_namespace,
        job_name,
        phase: State::from(phase).name(),
    }
}

/// One family of gauges; a family without samples is left out.
fn gauges<S: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl Iterator<Item = (S, f64)>,
) -> fmt::Result {
    let mut samples = samples.peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        family.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

/// One family of counters; a family without samples is left out.
fn counters<S: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl Iterator<Item = (S, f64)>,
) -> fmt::Result {
    let mut samples = samples.peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in samples {
        let mut sample = family.encode_family(&labels)?;
        sample.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
    }
    Ok(())
}
