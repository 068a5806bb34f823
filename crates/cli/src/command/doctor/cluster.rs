//! `trainyard doctor --job NAME --cluster`: what the pods of a job wrote, through the API server.
//!
//! Owns which logs are read. What lines mean is `trainyard_core::diagnose`'s.
//!
//! Invariant: memory does not grow with the size of a log: each is read in pieces, within [`Bounds`].

use std::sync::Arc;

use trainyard_core::{
    diagnose::{Doctor as Reader, Known, Rules, SourceId},
    job::{LastFailure, PodPhase},
    spec::Slot,
};
use trainyard_host::Ranks;
use trainyard_kube::look::{JobSeen, LogAsked, LogBounds, LogOf, LookError, PodSeen};

use crate::{
    args::Doctor,
    cluster::{Site, connect, refused, slot_of_pod},
    failure::Failure,
    printer::Printer,
    words,
};

/// How much of the logs of a job is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Logs.
    logs: usize,
    bytes: LogBounds,
}

impl Bounds {
    /// For a report that the user waits for. Kubelets rotate logs at 10 MiB by default.
    const REPORT: Self = Self {
        logs: 100_000,
        bytes: LogBounds {
            each: 256 << 20,
            all: u64::MAX,
        },
    };
    /// For a report that is one part of many: as much of each log as a kubelet keeps, and of a large job not all.
    pub(crate) const PART: Self = Self {
        logs: 1_024,
        bytes: LogBounds {
            each: 10 << 20,
            all: 1 << 30,
        },
    };
}

/// What was read of a job.
pub(crate) struct Read {
    pub(crate) doctor: Reader,
    /// What could not be read.
    pub(crate) failures: Vec<Failure>,
    /// What was not read because there is too much.
    pub(crate) left_out: Vec<String>,
    /// How many logs there are.
    pub(crate) count: usize,
}

/// Reads the logs of one attempt of the job that is named.
pub(crate) fn read(
    args: &Doctor,
    name: &str,
    rules: &Arc<Rules>,
    printer: &mut Printer,
) -> Result<Read, Failure> {
    let site = connect(&args.place)?;
    let job = site.find(name)?;
    let pods = site.look.pods(&job).map_err(refused)?;
    let which = (name, args.attempt);
    read_job(&site, &job, &pods, which, (rules, Bounds::REPORT), printer)
}

/// Reads the logs of the `pods` of `job` in an attempt, or in the last one; `word` is what the user called the job.
pub(crate) fn read_job(
    site: &Site<'_>,
    job: &JobSeen,
    pods: &[PodSeen],
    (word, attempt): (&str, Option<u32>),
    (rules, bounds): (&Arc<Rules>, Bounds),
    printer: &mut Printer,
) -> Result<Read, Failure> {
    let wanted = attempt;
    let attempts = pods.iter().map(|pod| pod.facts.attempt);
    let attempt = wanted.or(attempts.max());
    let of_attempt = |pod: &&PodSeen| Some(pod.facts.attempt) == attempt;
    let pods: Vec<&PodSeen> = pods.iter().filter(of_attempt).collect();
    let mut doctor = Reader::new(Arc::clone(rules));
    let mut asked: Vec<LogAsked> = Vec::new();
    let mut sources: Vec<SourceId> = Vec::new();
    for known in pods
        .iter()
        .filter_map(|pod| pod.facts.known_end(rank_in(job, pod.slot)))
    {
        doctor.add_known_end(known);
    }
    let mut phases = pods.iter().map(|pod| pod.facts.phase);
    if !pods.is_empty() && phases.all(|phase| phase == PodPhase::Succeeded) {
        doctor.set_succeeded();
    }
    let started = pods
        .iter()
        .filter(|pod| pod.facts.phase != PodPhase::Pending);
    for pod in started {
        let rank = rank_in(job, pod.slot);
        for container in &pod.containers {
            // What a container wrote before its restart comes before what it writes.
            let restarted = pod.facts.restarts > 0 && *container == pod.facts.container;
            let previous = restarted.then_some(true).into_iter();
            for previous in previous.chain([false]) {
                let log = LogOf::new(pod, container);
                let before = if previous { " (previous)" } else { "" };
                let name = format!("{}/{container}{before}", log.pod);
                let source = doctor.source(&name);
                doctor.set_rank_and_node(source, rank, pod.facts.node.as_deref());
                sources.push(source);
                asked.push(LogAsked { log, previous });
            }
        }
    }
    if pods.is_empty() {
        let kept = site.look.kept(job, wanted).map_err(refused)?;
        if let Some(first) = kept.first() {
            printer.summary(&format!(
                "no pod of attempt {} is left; the verdict is based on the log tails that were kept of {}",
                first.attempt,
                words::counted(kept.len() as u64, "pod")
            ));
            let last = job.status.trainyard.last_failure.as_ref();
            let last = last.filter(|last| last.attempt == first.attempt);
            if let Some(known) = last.and_then(LastFailure::known_end) {
                let rank = rank_in(job, slot_of_pod(job, &known.pod));
                doctor.add_known_end(Known { rank, ..known });
            }
            for log in &kept {
                let source = doctor.source(&format!("{}/{}", log.pod, log.container));
                doctor.set_rank_and_node(source, rank_in(job, slot_of_pod(job, &log.pod)), None);
                doctor.bytes(source, log.text.as_bytes());
            }
            return Ok(Read {
                doctor,
                failures: Vec::new(),
                left_out: Vec::new(),
                count: kept.len(),
            });
        }
    }
    if asked.is_empty() {
        return Err(no_logs(site, job, word, attempt, pods.is_empty()));
    }
    let mut left_out = Vec::new();
    if let Some(more) = asked
        .len()
        .checked_sub(bounds.logs)
        .filter(|more| *more > 0)
    {
        asked.truncate(bounds.logs);
        let more = words::counted(more as u64, "more log");
        left_out.push(format!("{more}: {} are the maximum", bounds.logs));
    }
    printer.note(&format!(
        "reading {} of {}",
        words::counted(asked.len() as u64, "log"),
        words::counted(pods.len() as u64, "pod")
    ));
    let read = site
        .look
        .logs(job, &asked, bounds.bytes, &mut |place, bytes| {
            if let Some(source) = sources.get(place) {
                doctor.bytes(*source, bytes);
            }
        });
    if read.cut > 0 {
        let LogBounds { each, all } = bounds.bytes;
        let of_all = if all == u64::MAX {
            String::new()
        } else {
            format!(" and of all {} MiB", all >> 20)
        };
        left_out.push(format!(
            "the rest of {}: of each {} MiB are read{of_all}",
            words::counted(read.cut, "log"),
            each >> 20
        ));
    }
    let failures = read.failures.into_iter();
    let failures = failures.filter(|error| !is_absent(error));
    Ok(Read {
        doctor,
        failures: failures.map(refused).collect(),
        left_out,
        count: asked.len(),
    })
}

/// The rank of the pod in `slot`, where it is only one.
fn rank_in(job: &JobSeen, slot: Option<Slot>) -> Option<u32> {
    let (job, slot) = (job.job.as_ref()?, slot?);
    Ranks::of(job).only_of_pod(&job.replicas(), slot)
}

/// Whether the container has not started, or what it wrote before is not kept.
fn is_absent(error: &LookError) -> bool {
    matches!(error.code(), Some(400 | 404))
}

/// Why there is nothing to read.
fn no_logs(
    site: &Site<'_>,
    job: &JobSeen,
    word: &str,
    attempt: Option<u32>,
    no_pods: bool,
) -> Failure {
    let name = &job.key.name;
    let explain = format!("`{}` shows why", site.command("explain", word));
    match attempt {
        Some(attempt) if no_pods => Failure::new(format!(
            "no pod of attempt {attempt} of job `{name}` is left"
        ))
        .hint("find the logs in the cluster's log storage, and pass the files"),
        None => Failure::new(format!("job `{name}` has no pods")).hint(explain),
        Some(_) => Failure::new(format!("no pod of job `{name}` has started")).hint(explain),
    }
}
