//! Lines of the log of one pod of a cluster.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_core::{
    job::PodPhase,
    spec::Slot,
    view::{VERSION, read_line},
};
use trainyard_host::Ranks;
use trainyard_kube::look::{JobSeen, KeptLog, LivePod, LogAsked, LogOf};
use trainyard_web::{Document, LogsAsk, Problem, ProblemCode};

use super::{
    super::shared::ShownLine,
    Cluster,
    buffer::{Buffer, Line, Place},
    health::refused,
    lock, of_run, problem,
    reader::Reader,
    run::{Moment, RunSlot},
};
use crate::cluster::slot_of_pod;

/// Logs that are listed.
const PODS_MAX: usize = 4_096;
/// Most lines of an answer.
const LINES_MAX: usize = 2_000;
/// Bytes of a line that are shown.
const LINE_BYTES: usize = 16 << 10;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Logs<'a> {
    version: u32,
    attempt: u32,
    pod: &'a str,
    container: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    lines: Vec<ShownLine>,
    first: u64,
    last: u64,
    size: u64,
    at_end: bool,
    pods: Vec<PodLog>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hits: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// A log that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodLog {
    pub(super) pod: String,
    pub(super) container: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ranks: Option<u32>,
    pub(super) attempt: u32,
    /// Bytes that were read of it: how many there are the API server does not say.
    pub(super) size: u64,
    #[serde(skip)]
    pub(super) uid: String,
    #[serde(skip)]
    pub(super) slot: Option<Slot>,
    /// Whether its pod has ended.
    #[serde(skip)]
    pub(super) has_ended: bool,
    #[serde(skip)]
    pub(super) trains: bool,
}

impl PodLog {
    /// How the API server is asked for it.
    pub(super) fn asked(&self) -> LogAsked {
        LogAsked {
            log: LogOf {
                pod: self.pod.clone(),
                uid: self.uid.clone(),
                attempt: self.attempt,
                container: self.container.clone(),
            },
            previous: false,
        }
    }
}

impl Cluster {
    pub(super) fn logs(
        &self,
        (slot, moment): (&RunSlot, &Moment),
        ask: &LogsAsk,
        reader: &Reader<'_>,
        now: Timestamp,
    ) -> Result<Document, Problem> {
        let attempt = ask.attempt.or_else(|| newest(&moment.pods));
        let of_attempt = attempt.map(|attempt| logs_of(moment, attempt));
        let logs = of_attempt.unwrap_or_default();
        if logs.is_empty() {
            return self.kept_logs(slot, moment, attempt, ask);
        }
        let failed = first_failure(moment, attempt.unwrap_or_default());
        let log = choose(moment, &logs, failed, ask)?;
        let buffer = self.buffers.of(&log.uid, &log.container);
        // Whoever asks for the same meanwhile waits for this answer.
        let mut buffer = lock(&buffer);
        let mut note = None;
        if let Some(tail) = buffer.ask(now) {
            let asked = [log.asked()];
            let read = self
                .look
                .tails(&moment.job.key.namespace, &asked, tail, reader.token);
            match read.into_iter().next() {
                Some(Ok(tail)) => buffer.add(tail, now, log.has_ended),
                Some(Err(error)) if buffer.lines.is_empty() => return Err(refused(error)),
                // What was read stays.
                Some(Err(error)) => note = Some(refused(error).message),
                None => {}
            }
        }
        if buffer.is_cut {
            let words = "only the end of the log is here: the API server serves no part of a log by its place; `trainyard logs` prints all that is kept";
            note.get_or_insert_with(|| words.to_owned());
        }
        let answer = answer(log, &logs, &buffer, ask, note);
        of_run(&slot.uid, answer)
    }

    /// What the operator has kept of an attempt whose pods are gone.
    fn kept_logs(
        &self,
        slot: &RunSlot,
        moment: &Moment,
        attempt: Option<u32>,
        ask: &LogsAsk,
    ) -> Result<Document, Problem> {
        let kept = self.look.kept(&moment.job, attempt).map_err(refused)?;
        let logs: Vec<PodLog> = kept
            .iter()
            .map(|it| pod_log_kept(&moment.job, it))
            .collect();
        let Some(first) = logs.first() else {
            let what = attempt.map_or_else(
                || "no pod of this job has written anything".to_owned(),
                |attempt| format!("no pod of attempt {attempt} is left, and nothing was kept of what they wrote"),
            );
            return Err(problem(
                ProblemCode::NotFound,
                what,
                "look in the cluster's log storage; the operator keeps only the log tails of attempts that failed",
            ));
        };
        let log = choose(moment, &logs, Some(first.pod.as_str()), ask)?;
        let found = kept
            .iter()
            .find(|it| it.pod == log.pod && it.container == log.container);
        let buffer = found.map_or_else(Buffer::default, |it| Buffer::of_text(&it.text));
        let note = "the pod was deleted; this is the end of its log, which the operator kept";
        let answer = answer(log, &logs, &buffer, ask, Some(note.to_owned()));
        of_run(&slot.uid, answer)
    }
}

fn answer<'a>(
    log: &'a PodLog,
    logs: &[PodLog],
    buffer: &Buffer,
    ask: &LogsAsk,
    note: Option<String>,
) -> Logs<'a> {
    let size = buffer.end;
    let place = match (ask.offset, ask.line) {
        (Some(offset), _) => offset.min(size),
        (None, Some(line)) => buffer.place_of(line),
        (None, None) => size,
    };
    let place = if ask.backwards {
        Place::Before(place)
    } else {
        Place::From(place)
    };
    let most = usize::try_from(ask.lines).unwrap_or(LINES_MAX);
    let search = ask.search.as_deref().filter(|text| !text.is_empty());
    let (lines, hits) = buffer.window(place, most.clamp(1, LINES_MAX), search);
    let (Place::From(asked) | Place::Before(asked)) = place;
    let first = lines.first().map_or(asked, |line| line.offset);
    let last = lines.last().map_or(asked, |line| line.end());
    let only = log.first_rank.filter(|_| log.ranks == Some(1));
    let mut scratch = Vec::new();
    let hits = search.map(|_| {
        if buffer.is_cut {
            json!({ "atLeast": hits })
        } else {
            json!(hits)
        }
    });
    let pods = logs.iter().take(PODS_MAX).map(|it| PodLog {
        size: if it == log { size } else { it.size },
        ..it.clone()
    });
    Logs {
        version: VERSION,
        attempt: log.attempt,
        pod: &log.pod,
        container: &log.container,
        rank: only,
        lines: lines
            .into_iter()
            .map(|line| shown(line, only, &mut scratch))
            .collect(),
        first,
        last,
        size,
        at_end: last >= size,
        pods: pods.collect(),
        hits,
        note,
    }
}

fn shown(line: &Line, only: Option<u32>, scratch: &mut Vec<u8>) -> ShownLine {
    let read = read_line(&line.text, scratch);
    let cut = line.text.len() > LINE_BYTES;
    let text = line.text.get(..LINE_BYTES).unwrap_or(&line.text);
    ShownLine {
        offset: line.offset,
        at: line.at.or(read.at),
        rank: read.rank.or(only),
        text: String::from_utf8_lossy(text).into_owned(),
        severity: read.severity,
        cut,
    }
}

/// The newest attempt that has pods.
pub(super) fn newest(pods: &[LivePod]) -> Option<u32> {
    pods.iter().map(|pod| pod.attempt).max()
}

/// The logs of the pods of an attempt that have started, in the order of pods.
pub(super) fn logs_of(moment: &Moment, attempt: u32) -> Vec<PodLog> {
    let of_attempt = |pod: &&LivePod| pod.attempt == attempt && pod.phase != PodPhase::Pending;
    let pods = moment.pods.iter().filter(of_attempt);
    let logs = pods.flat_map(|pod| {
        let ranks = ranks(&moment.job, pod.slot);
        // The one that trains first: it is what people look for.
        let others = pod.containers.iter().filter(|name| **name != pod.trains);
        let containers = [&pod.trains].into_iter().chain(others);
        containers.map(move |container| PodLog {
            pod: pod.name.clone(),
            container: container.clone(),
            first_rank: ranks.map(|(first, _)| first),
            ranks: ranks.map(|(_, count)| count),
            attempt,
            size: 0,
            uid: pod.uid.clone(),
            slot: pod.slot,
            has_ended: matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed),
            trains: *container == pod.trains,
        })
    });
    logs.collect()
}

fn pod_log_kept(job: &JobSeen, kept: &KeptLog) -> PodLog {
    let slot = slot_of_pod(job, &kept.pod);
    let ranks = ranks(job, slot);
    PodLog {
        pod: kept.pod.clone(),
        container: kept.container.clone(),
        first_rank: ranks.map(|(first, _)| first),
        ranks: ranks.map(|(_, count)| count),
        attempt: kept.attempt,
        size: u64::try_from(kept.text.len()).unwrap_or(0),
        uid: String::new(),
        slot,
        has_ended: true,
        trains: kept.container == job.kind().container(),
    }
}

/// The first rank of a pod and how many it holds.
fn ranks(job: &JobSeen, slot: Option<Slot>) -> Option<(u32, u32)> {
    let spec = job.job.as_ref()?;
    let held = Ranks::of(spec).of_pod(&spec.replicas(), slot?)?;
    Some((*held.start(), held.end() - held.start() + 1))
}

/// The pod of an attempt that failed before the others.
pub(super) fn first_failure(moment: &Moment, attempt: u32) -> Option<&str> {
    let failed = moment.pods.iter().filter_map(|pod| {
        let exit = pod.observed.as_ref()?.exit?;
        (pod.attempt == attempt && exit.code != 0).then_some((exit.at, pod))
    });
    let first = failed.min_by_key(|(at, pod)| (at.is_none(), *at, pod.slot));
    first.map(|(_, pod)| pod.name.as_str())
}

/// The log that is asked for: that of the first failure, else the first one, where nothing is.
fn choose<'a>(
    moment: &Moment,
    logs: &'a [PodLog],
    failed: Option<&str>,
    ask: &LogsAsk,
) -> Result<&'a PodLog, Problem> {
    let spec = moment.job.job.as_ref();
    let of_rank = ask.rank.and_then(|rank| {
        let spec = spec?;
        Ranks::of(spec).pod_of(&spec.replicas(), rank)
    });
    let first = logs.first().map(|log| log.pod.as_str());
    // A pod may also be named without its job, such as `worker-3`.
    let job = format!("{}-", moment.job.key.name);
    let is_pod = |log: &&PodLog| match (&ask.pod, ask.rank) {
        (Some(pod), _) => log.pod == *pod || log.pod.strip_prefix(&job) == Some(pod.as_str()),
        (None, Some(_)) => of_rank.is_some() && log.slot == of_rank,
        (None, None) => Some(log.pod.as_str()) == failed.or(first),
    };
    let of_pod = || logs.iter().filter(is_pod);
    let found = match &ask.container {
        Some(container) => of_pod().find(|log| log.container == *container),
        None => of_pod().find(|log| log.trains).or_else(|| of_pod().next()),
    };
    found.ok_or_else(|| {
        let what = match (&ask.pod, ask.rank, &ask.container) {
            (Some(pod), _, _) => format!("pod `{pod}`"),
            (None, Some(rank), _) => format!("rank {rank}"),
            (_, _, Some(container)) => format!("container `{container}`"),
            _ => "this pod".to_owned(),
        };
        let attempt = logs.first().map_or(0, |log| log.attempt);
        problem(
            ProblemCode::NotFound,
            format!("attempt {attempt} has no log of {what}"),
            "choose one of the pods that the list of logs has",
        )
    })
}
