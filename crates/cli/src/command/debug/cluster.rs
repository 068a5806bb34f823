//! What is collected of a job on a cluster, with the rights of the user's kubeconfig.
//!
//! Invariant: logs are never in memory all at once. They are read [`AT_ONCE`] at a time, while the archive has room. Of pods there are lists, with an
//! object for each.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;
use trainyard_core::{
    explain::{EventFacts, explain},
    job::PodPhase,
};
use trainyard_kube::look::{JobSeen, LogAsked, LogOf, LookError, PodSeen, Tail, TailAsk};

use super::{Bundle, LEAST_ROOM, LINES, LOG_BYTES, line};
use crate::{
    args::Debug,
    cluster::{RankPods, Site, connect, refused},
    command::{doctor, explain as answers, stacks, status},
    failure::Failure,
    printer::Printer,
    words,
};

/// Pods whose objects are kept; those of a gang differ in little.
const MOST_PODS: usize = 64;
/// Logs that are asked for.
const MOST_LOGS: usize = 1_024;
/// Logs that are in memory at once.
const AT_ONCE: usize = 16;

/// Everything about the job that the arguments name.
pub(super) fn collect(args: &Debug, printer: &mut Printer) -> Result<Bundle, Failure> {
    let site = connect(&args.place)?;
    let word = &args.which.job;
    let job = site.find(word)?;
    let now = Timestamp::now();
    let title = format!(
        "Job `{}` of namespace `{}` ({}), state {}, collected at {now} by trainyard {}.\n",
        job.key.name,
        job.key.namespace,
        job.kind().name(),
        job.state(),
        env!("CARGO_PKG_VERSION")
    );
    let folder = format!("{}-{}", job.key.namespace, job.key.name);
    let object = site.look.object(&job).map_err(refused);
    let known = object.as_ref().unwrap_or(&Value::Null);
    let mut bundle = Bundle::new(folder, title, known, now);
    let pods = match site.look.pods(&job) {
        Ok(pods) => pods,
        Err(error) => {
            let why = refused(error).line();
            bundle.leave_out(&format!("pods, their logs and their stacks: {why}"));
            Vec::new()
        }
    };
    // First, because variables of pods may hold secrets that the job does not.
    bundle.add_pods(&site, &job, &pods);
    match object {
        Ok(object) => {
            let what = "the job as it is stored, without values of variables";
            bundle.json("job.json", what, &object);
        }
        Err(failure) => bundle.leave_out(&format!("job.json: {}", failure.line())),
    }
    let report = site.report(word, &job, &pods, now);
    let text = status::text(&report, now);
    bundle.text("status.txt", "as `trainyard status` prints it", &text);
    let what = "status, conditions, attempts, timeline";
    bundle.json("status.json", what, &status::document(&report));
    match site.look.facts(&job, &site.words(word)) {
        Ok(facts) => {
            let answer = explain(&facts);
            let text = answers::plain_text(&facts, &answer);
            bundle.text("explain.txt", "as `trainyard explain` prints it", &text);
            let document = answers::document_of(&facts, &answer);
            bundle.json("explain.json", "the same", &document);
        }
        Err(error) => bundle.leave_out(&format!("explain.txt: {}", refused(error).line())),
    }
    bundle.add_events(&site, &job, &pods);
    match doctor::report_of_cluster_job(&site, &job, &pods, word, printer) {
        Ok(report) => {
            for why in &report.incomplete {
                bundle.leave_out(&format!("doctor.txt does not take into account: {why}"));
            }
            let what = "the doctor's report over the last attempt";
            bundle.text("doctor.txt", what, &report.text());
        }
        Err(failure) => bundle.leave_out(&format!("doctor.txt: {}", failure.line())),
    }
    bundle.add_stacks(&site, &job, &pods, now);
    bundle.add_kept(&site, &job);
    bundle.add_logs(&site, &job, &pods);
    Ok(bundle)
}

impl Bundle {
    fn add_pods(&mut self, site: &Site<'_>, job: &JobSeen, pods: &[PodSeen]) {
        if pods.is_empty() {
            return;
        }
        let chosen = newest_first(pods);
        let chosen: Vec<PodSeen> = chosen.into_iter().take(MOST_PODS).cloned().collect();
        match site.look.pod_objects(job, &chosen) {
            Ok(objects) => {
                for object in &objects {
                    self.redactor.learn_job(object);
                }
                let what = "the pods as they are stored, without values of variables";
                self.json("pods.json", what, &objects);
            }
            Err(error) => self.leave_out(&format!("pods.json: {}", refused(error).line())),
        }
        if let Some(more) = pods.len().checked_sub(MOST_PODS).filter(|more| *more > 0) {
            let more = words::counted(more as u64, "more pod");
            self.leave_out(&format!(
                "pods.json has {MOST_PODS} pods, and there are {more}"
            ));
        }
    }

    fn add_events(&mut self, site: &Site<'_>, job: &JobSeen, pods: &[PodSeen]) {
        let uids: BTreeSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        let (events, refusal) = site.look.events(job, &uids);
        if let Some(error) = refusal {
            self.leave_out(&format!("some events: {}", refused(error).line()));
        }
        if events.is_empty() {
            return self.leave_out("events.txt: the cluster keeps none of this job any more");
        }
        let what = "events of the job and warnings of its pods, oldest first";
        self.text("events.txt", what, &event_lines(&events));
    }

    fn add_stacks(&mut self, site: &Site<'_>, job: &JobSeen, pods: &[PodSeen], now: Timestamp) {
        if job.has_ended() {
            return self.leave_out("stacks: the job has ended");
        }
        if pods.is_empty() {
            return;
        }
        let read = RankPods::find(site, job)
            .and_then(|pods| stacks::cluster::read(site, &pods, &[], true));
        match read {
            Ok(read) => {
                let name = &job.key.name;
                let text = stacks::text(name, &read, true);
                let what = "what every rank did when this was collected";
                self.text("stacks.txt", what, &text);
                let document = stacks::document(name, None, &read, now);
                self.json("stacks.json", "the same with all threads", &document);
            }
            Err(failure) => self.leave_out(&format!("stacks: {}", failure.line())),
        }
    }

    /// The ends of logs that the operator kept of pods which failed: the pods may be gone.
    fn add_kept(&mut self, site: &Site<'_>, job: &JobSeen) {
        let kept = match site.look.kept(job, None) {
            Ok(kept) => kept,
            Err(error) => {
                return self.leave_out(&format!("logs of failed pods: {}", refused(error).line()));
            }
        };
        if !kept.is_empty() {
            line(
                &mut self.contents,
                format_args!("kept/: what the operator kept of logs of pods that failed"),
            );
        }
        for log in &kept {
            let attempt = format!("attempt-{}", log.attempt);
            let file = format!("{}.log", log.container);
            self.log(&["kept", &attempt, &log.pod, &file], &log.text);
        }
    }

    /// The logs of all pods that are there, those of the last attempt first.
    fn add_logs(&mut self, site: &Site<'_>, job: &JobSeen, pods: &[PodSeen]) {
        let asked = asked(pods);
        if asked.is_empty() {
            if !pods.is_empty() {
                self.leave_out("logs: no pod has started");
            }
            return;
        }
        self.logs_are("the pods that are there, each line with its time");
        let ask = TailAsk {
            lines: LINES as u64,
            bytes: LOG_BYTES,
            since: None,
        };
        let mut rest = asked.as_slice();
        while let Some((now, later)) = rest.split_at_checked(AT_ONCE.min(rest.len()))
            && !now.is_empty()
        {
            if self.archive.room() < LEAST_ROOM {
                let rest = words::counted(rest.len() as u64, "log");
                return self.leave_out(&format!("logs: no room for {rest}"));
            }
            let tails = site.look.tails(&job.key.namespace, now, ask, None);
            for (asked, tail) in now.iter().zip(tails) {
                self.add_log(asked, tail);
            }
            rest = later;
        }
        let all: usize = pods.iter().map(|pod| pod.containers.len()).sum();
        if asked.len() == MOST_LOGS && all > MOST_LOGS {
            self.leave_out(&format!("logs: only {MOST_LOGS} were asked for"));
        }
    }

    fn add_log(&mut self, asked: &LogAsked, tail: Result<Tail, LookError>) {
        let log = &asked.log;
        let attempt = format!("attempt-{}", log.attempt);
        let before = if asked.previous { "-previous" } else { "" };
        let file = format!("{}{before}.log", log.container);
        match tail {
            Ok(tail) => self.log(&["logs", &attempt, &log.pod, &file], &log_text(tail)),
            Err(error) => {
                let why = refused(error).line();
                self.leave_out(&format!("logs/{attempt}/{}/{file}: {why}", log.pod));
            }
        }
    }
}

/// Pods of later attempts first, in each those that failed.
fn newest_first(pods: &[PodSeen]) -> Vec<&PodSeen> {
    let mut pods: Vec<&PodSeen> = pods.iter().collect();
    pods.sort_by_key(|pod| {
        let failed = pod.facts.phase == PodPhase::Failed || pod.facts.restarts > 0;
        (std::cmp::Reverse(pod.facts.attempt), !failed)
    });
    pods
}

/// The logs to read of `pods`.
fn asked(pods: &[PodSeen]) -> Vec<LogAsked> {
    let mut asked = Vec::new();
    for pod in newest_first(pods) {
        if pod.facts.phase == PodPhase::Pending {
            continue;
        }
        for container in &pod.containers {
            let restarted = pod.facts.restarts > 0 && *container == pod.facts.container;
            for previous in restarted.then_some(true).into_iter().chain([false]) {
                asked.push(LogAsked {
                    log: LogOf::new(pod, container),
                    previous,
                });
            }
        }
    }
    asked.truncate(MOST_LOGS);
    asked
}

/// The lines of a log. Of one that was cut, the first line may be a part of one, in which a secret is not recognized.
fn log_text(tail: Tail) -> String {
    let mut text = String::new();
    for one in tail.lines.into_iter().skip(usize::from(tail.is_cut)) {
        let words = String::from_utf8_lossy(&one.text);
        match one.at {
            Some(at) => line(&mut text, format_args!("{at} {words}")),
            None => line(&mut text, format_args!("{words}")),
        }
    }
    text
}

fn event_lines(events: &[EventFacts]) -> String {
    let mut text = String::new();
    for event in events {
        let at = event.at.map_or_else(|| "-".to_owned(), |at| at.to_string());
        let about = if event.pod.is_empty() {
            "job"
        } else {
            &event.pod
        };
        let message = event.message.replace('\n', " ");
        line(
            &mut text,
            format_args!("{at}  {about}  {}  {message}", event.reason),
        );
    }
    text
}
