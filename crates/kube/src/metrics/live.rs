//! Jobs as they are at the moment of a scrape: a job that trains for 30 days is counted from its first second.
//!
//! Invariants:
//! - At most [`JOBS_MAX`] jobs have families of their own, the ones with the most accelerators, until [`KEPT_FOR`] after their end; how many
//!   are left out is a metric.
//! - Counters of one job are those of its status, so another leader continues them. Counters over all jobs begin at zero with this leader and
//!   never go back: what a job had spent before is not in them, and what a job that is gone has spent stays.
//! - No counter goes back while this operator leads: where the ledger moves time from one phase to another, as it does for a stall that is
//!   noticed late, the first one stands still until it has caught up.

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
    job::{JobStatus, Spent},
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
/// The label that names the team of a job.
const TEAM: &str = "trainyard.dev/team";

/// The jobs.
#[derive(Clone, Default)]
pub(crate) struct Live(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    jobs: BTreeMap<JobKey, Entry>,
    /// Accelerator seconds of jobs that are gone, by namespace and phase.
    gone: BTreeMap<(Box<str>, Phase), f64>,
}

struct Entry {
    ledger: Ledger,
    /// What its ledger had when this leader first saw it.
    before: PhaseMillis,
    /// The most that was reported of each phase.
    most: PhaseMillis,
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
                .find_map(|spec| spec.priority_class_name.clone())
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
        let mut table = self.table();
        let known = table.jobs.remove(key);
        // A job that was deleted and created again begins at zero, as one that nobody has seen.
        let same = known.filter(|known| known.ledger.began == record.ledger.began);
        let (before, most) = if let Some(known) = same {
            (known.before, known.most)
        } else {
            let totals = record.ledger.totals(clock::now());
            (totals.clone(), totals)
        };
        let progress = record.progress.as_ref();
        let entry = Entry {
            before,
            most,
            ledger: record.ledger.clone(),
            accelerators: rows::accelerators(job),
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
        let Some(mut entry) = table.jobs.remove(key) else {
            return;
        };
        entry.advance(clock::now());
        for (phase, seconds) in entry.accelerator_seconds() {
            let place = (key.namespace.clone(), phase);
            *table.gone.entry(place).or_default() += seconds;
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
            *most = millis.max(*most);
        }
    }

    /// Accelerator seconds since this leader first saw the job.
    fn accelerator_seconds(&self) -> BTreeMap<Phase, f64> {
        let more = self.most.iter().map(|(&phase, &millis)| {
            let before = self.before.get(&phase).copied().unwrap_or(0);
            let seconds = Duration::from_millis(millis.saturating_sub(before)).as_secs_f64();
            (phase, seconds * f64::from(self.accelerators))
        });
        more.filter(|(_, seconds)| *seconds > 0.0).collect()
    }

    fn is_shown(&self, now: Timestamp) -> bool {
        let ended = self.ledger.ended;
        ended.is_none_or(|ended| now.duration_since(ended) < KEPT_FOR)
    }
}

impl Table {
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
    fn accelerator_seconds(&self) -> BTreeMap<(Box<str>, Phase), f64> {
        let mut sums = self.gone.clone();
        for (key, entry) in &self.jobs {
            for (phase, seconds) in entry.accelerator_seconds() {
                *sums.entry((key.namespace.clone(), phase)).or_default() += seconds;
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
                        job_namespace: namespace.to_string(),
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

#[cfg(test)]
mod tests {
    use trainyard_core::{ledger::AttemptSpans, spec::Kind};

    use super::*;

    fn key(name: &str) -> JobKey {
        JobKey {
            kind: Kind::PyTorch,
            namespace: "team-a".into(),
            name: name.into(),
        }
    }

    fn job(gpus: u32) -> Job {
        let text = format!(
            r#"{{"apiVersion":"kubeflow.org/v1","kind":"PyTorchJob","metadata":{{"name":"j"}},
                "spec":{{"pytorchReplicaSpecs":{{"Worker":{{"replicas":2,"template":{{"spec":{{"priorityClassName":"high",
                "containers":[{{"name":"pytorch","image":"i","resources":{{"limits":{{"nvidia.com/gpu":{gpus}}}}}}}]}}}}}}}}}}}}"#
        );
        let value = serde_json::from_str(&text).expect("JSON");
        trainyard_core::spec::job_from_value(&value)
            .job
            .expect("a job")
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    /// A job that has trained for so many seconds and is closed.
    fn trained(seconds: u64, began: i64) -> JobStatus {
        let mut status = JobStatus::default();
        let millis = PhaseMillis::from([(Phase::Training, seconds * 1_000)]);
        status.trainyard.attempt = 1;
        status.trainyard.ledger.began = Some(at(began));
        status.trainyard.ledger.attempts = vec![AttemptSpans { attempt: 1, millis }];
        status
    }

    fn put(live: &Live, name: &str, gpus: u32, status: &JobStatus) {
        let (key, job) = (key(name), job(gpus));
        let info = JobInfo::of(&key, |_| None, &job);
        live.put(&key, info, &job, status);
    }

    fn text(live: &Live) -> String {
        let mut registry = Registry::with_prefix("trainyard");
        live.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        text
    }

    fn value(live: &Live, start: &str) -> Option<f64> {
        let text = text(live);
        let found = text.lines().find(|line| line.starts_with(start))?;
        found.rsplit(' ').next()?.parse().ok()
    }

    const SUM: &str = "trainyard_gpu_seconds_total{job_namespace=\"team-a\",phase=\"training\"}";

    #[tokio::test]
    async fn sums_begin_at_zero_and_never_go_back() {
        let live = Live::default();
        put(&live, "a", 4, &trained(1_000, 1));
        assert_eq!(value(&live, SUM), None);
        put(&live, "a", 4, &trained(1_010, 1));
        assert_eq!(value(&live, SUM), Some(80.0));
        // A stall is noticed late: the ledger moves time away from training.
        put(&live, "a", 4, &trained(1_005, 1));
        assert_eq!(value(&live, SUM), Some(80.0));
        live.forget(&key("a"));
        assert_eq!(value(&live, SUM), Some(80.0));
        // The same name again is another job.
        put(&live, "a", 4, &trained(7, 2));
        put(&live, "a", 4, &trained(8, 2));
        assert_eq!(value(&live, SUM), Some(88.0));
    }

    #[tokio::test]
    async fn a_job_has_its_own_families() {
        let live = Live::default();
        put(&live, "a", 4, &trained(90, 1));
        let text = text(&live);
        let labels = "kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"a\"";
        for line in [
            format!("trainyard_job_phase_seconds_total{{{labels},phase=\"training\"}} 90.0"),
            format!("trainyard_job_accelerators{{{labels}}} 8.0"),
            format!("trainyard_job_restarts_total{{{labels},account=\"user\"}} 0.0"),
            format!(
                "trainyard_job_info{{{labels},team=\"team-a\",queue=\"\",priority=\"high\"}} 1.0"
            ),
            "trainyard_metrics_jobs_left_out 0.0".to_owned(),
        ] {
            assert!(
                text.lines().any(|it| it == line),
                "{line} is not in\n{text}"
            );
        }
        live.forget(&key("a"));
        assert_eq!(value(&live, "trainyard_job_accelerators"), None);
    }

    #[tokio::test]
    async fn the_largest_jobs_are_shown() {
        let live = Live::default();
        for number in 0..=JOBS_MAX {
            let gpus = u32::from(number != 7);
            put(&live, &format!("job-{number}"), gpus, &trained(1, 1));
        }
        assert_eq!(value(&live, "trainyard_metrics_jobs_left_out"), Some(1.0));
        let text = text(&live);
        assert!(
            !text.contains("job_name=\"job-7\""),
            "the smallest is left out"
        );
        assert!(text.contains("job_name=\"job-8\""));
    }

    #[tokio::test]
    async fn an_ended_job_is_shown_for_a_while() {
        let live = Live::default();
        let mut status = trained(5, 1);
        status.trainyard.ledger.ended = Some(clock::now());
        put(&live, "a", 1, &status);
        assert!(value(&live, "trainyard_job_attempt").is_some());
        status.trainyard.ledger.ended = Some(clock::now() - KEPT_FOR);
        put(&live, "a", 1, &status);
        assert_eq!(value(&live, "trainyard_job_attempt"), None);
    }
}
