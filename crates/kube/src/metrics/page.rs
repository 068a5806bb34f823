//! One page with every family of the operator: `testdata/metrics.txt`, which rules and dashboards are tried on.
//!
//! Three jobs are on it: `pretrain` trains on 64 accelerators, `tune` is stalled, `eval` waits. Each family has a sample, and each family is
//! one that the guide of the operator lists.

use std::path::{Path, PathBuf};

use trainyard_core::{
    job::{CheckpointRecord, ProgressRecord},
    ledger::{AttemptSpans, OpenSpan, Phase, PhaseMillis},
    progress::{Track, rota},
    spec::Job,
};

use super::*;
use crate::clock;

/// When the jobs reported their last step, and saved.
const REPORTED: i64 = 1_750_000_000;
/// How long the page has been counting.
const COUNTED: Duration = Duration::from_mins(5);

fn key(namespace: &str, name: &str) -> JobKey {
    JobKey {
        kind: Kind::PyTorch,
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn job(workers: u32, gpus: u32) -> Job {
    let value = serde_json::json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": { "name": "j" },
        "spec": { "pytorchReplicaSpecs": { "Worker": { "replicas": workers, "template": { "spec": {
            "priorityClassName": "high",
            "containers": [{ "name": "pytorch", "image": "i", "resources": { "limits": { "nvidia.com/gpu": gpus } } }],
        } } } } },
    });
    let job = trainyard_core::spec::job_from_value(&value).job;
    job.expect("a job")
}

/// A job that queued for ten minutes, trained for an hour, and is in `phase` since a minute ago.
fn status(phase: Phase) -> JobStatus {
    let now = clock::now();
    let mut status = JobStatus::default();
    let millis = PhaseMillis::from([(Phase::Queued, 600_000), (Phase::Training, 3_600_000)]);
    let record = &mut status.trainyard;
    record.attempt = 2;
    record.spent.infrastructure = 1;
    record.ledger.began = Some(now - Duration::from_mins(71));
    record.ledger.attempts = vec![AttemptSpans { attempt: 1, millis }];
    record.ledger.open = Some(OpenSpan {
        attempt: 2,
        phase,
        since: now - Duration::from_mins(1),
    });
    status
}

/// A job that reports steps and saves.
fn reporting(metrics: &Metrics, key: &JobKey, status: &mut JobStatus, loss: f64) {
    let mut track = Track::default();
    track.step = Some(4_200);
    track.last_at = Some(at(REPORTED));
    track.loss = Some((4_200, loss));
    metrics.progress.of(key, &track);
    let progress = serde_json::json!({
        "attempt": 2, "step": 4_200, "totalSteps": 10_000, "lastStepAt": at(REPORTED),
    });
    let progress: ProgressRecord = serde_json::from_value(progress).expect("progress");
    status.trainyard.progress = Some(progress);
    let saved = serde_json::json!({
        "newest": { "step": 4_000, "attempt": 2, "bytes": 1, "savedAt": at(REPORTED - 60) },
    });
    let saved: CheckpointRecord = serde_json::from_value(saved).expect("a checkpoint");
    status.trainyard.checkpoint = Some(saved);
    metrics.progress.checkpoint(key, status);
}

/// Each family gets a sample, and those of jobs as many as there are jobs.
fn fill(metrics: &Metrics) {
    let pretrain = key("team-a", "pretrain");
    let jobs = of(&pretrain);
    for family in [
        &metrics.created,
        &metrics.deleted,
        &metrics.successful,
        &metrics.failed,
        &metrics.restarted,
    ] {
        family.get_or_create(&jobs).inc();
    }
    for (verb, resource, code) in [
        ("create", "pods", 200),
        ("patch", "pytorchjobs", 409),
        ("get", "leases", 0),
    ] {
        metrics.called(verb, resource, code);
    }
    for outcome in ["done", "conflict", "failed"] {
        metrics.passed(outcome, Duration::from_millis(7));
    }
    metrics.refused(cause::API_SERVER);
    metrics.placed(Duration::from_millis(3), 1);
    metrics.preemption_refused();
    metrics.preflight_ended("fit");
    let nodes = [("node-1", Outcome::Pass), ("node-2", Outcome::Fail)];
    metrics.measured(nodes.map(|(node, found)| (node.to_owned(), found)), 1);
    metrics.trust.report_rejected("too_large");
    metrics.trust.node_blamed("queued");
    metrics.trust.node_tried("blamed", "unfit");
    let read = rota::Outcome::Read(rota::Found::default());
    metrics.progress.read(read);
    metrics.progress.pushed("step");
    let paid = Paid { account: "user" };
    metrics.attempts.get_or_create(&paid).inc();
    let spent = Spent {
        phase: "training".to_owned(),
    };
    metrics.phase_seconds.get_or_create(&spent).inc_by(60.0);
    let ratio = metrics.training_ratio.get_or_create(&one(&pretrain));
    ratio.set(0.85);
    metrics.differs(&pretrain, "Pod");
    metrics.panicked();
    let broken = key("team-b", "broken");
    metrics.readable(&broken, false);
    metrics.set_aside(&broken, true);
    metrics.sizes(2, 4, 12, true);
    for feed in ["/api/v1/pods", "/apis/kubeflow.org/v1/pytorchjobs"] {
        metrics.watch_age(feed, Duration::from_secs(12));
        metrics.undecodable(feed);
    }
    let traffic = metrics.traffic();
    traffic.connections("webhook", 3);
    traffic.closed("webhook", "idle");
    traffic.refused("webhook", "busy");
}

fn put(metrics: &Metrics, key: &JobKey, size: (u32, u32), status: &JobStatus) {
    let job = job(size.0, size.1);
    let info = JobInfo::of(key, |_| None, &job);
    metrics.live.put(key, info, &job, status);
}

/// The page, in an order that does not depend on hashes: that of families as it is, samples by their text. Buckets keep theirs.
fn page(text: &str) -> String {
    let mut families: Vec<(bool, Vec<&str>, Vec<&str>)> = Vec::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        let Some(comment) = line.strip_prefix("# ") else {
            let family = families.last_mut().expect("a sample follows its family");
            family.2.push(line);
            continue;
        };
        if comment.starts_with("HELP") {
            families.push((false, Vec::new(), Vec::new()));
        }
        let family = families.last_mut().expect("a family begins with its help");
        family.0 |= comment.ends_with(" histogram");
        family.1.push(line);
    }
    let mut lines = Vec::new();
    for (is_histogram, comments, mut samples) in families {
        if !is_histogram {
            samples.sort_unstable();
        }
        assert!(!samples.is_empty(), "{comments:?} has no sample");
        lines.extend(comments);
        lines.extend(samples);
    }
    lines.push("# EOF\n");
    lines.join("\n")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The families that the guide lists, without `_total`.
fn documented(guide: &str) -> Vec<String> {
    let (_, table) = guide.split_once("\n## Metrics\n").expect("the section");
    let (table, _) = table.split_once("\n## ").expect("another section");
    let mut names = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cell = row.split('|').nth(1).unwrap_or_default();
        let mut first = String::new();
        for name in cell.split('`').skip(1).step_by(2) {
            // `_failed` after `training_operator_jobs_created` has the beginning of that name.
            if name.starts_with('_') {
                let beginning = first.rsplit_once('_').map_or("", |(start, _)| start);
                names.push(format!("{beginning}{name}"));
            } else {
                name.clone_into(&mut first);
                names.push(name.trim_end_matches("_total").to_owned());
            }
        }
    }
    names
}

#[tokio::test(start_paused = true)]
#[expect(
    clippy::disallowed_methods,
    reason = "only this test reads `UPDATE`, which rewrites the stored page"
)]
async fn stored_page_has_every_family() {
    clock::restart();
    let metrics = Metrics::default();
    fill(&metrics);
    let mut training = status(Phase::Training);
    let mut stalled = status(Phase::Stalled);
    reporting(&metrics, &key("team-a", "pretrain"), &mut training, 1.75);
    reporting(&metrics, &key("team-a", "tune"), &mut stalled, f64::NAN);
    put(&metrics, &key("team-a", "pretrain"), (8, 8), &training);
    put(&metrics, &key("team-a", "tune"), (1, 8), &stalled);
    put(
        &metrics,
        &key("team-b", "eval"),
        (2, 4),
        &status(Phase::Queued),
    );
    tokio::time::advance(COUNTED).await;
    let found = page(&metrics.text());

    let stored = root().join("testdata/metrics.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&stored, &found).expect("the page is written");
    }
    let wanted = std::fs::read_to_string(&stored).expect("the page is stored");
    assert_eq!(
        found, wanted,
        "UPDATE=1 rewrites the page; then run `cargo xtask alerts`"
    );

    let guide = std::fs::read_to_string(root().join("docs/guides/operator.md")).expect("the guide");
    let families = found.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        Some(name.to_owned())
    });
    let families: Vec<String> = families.collect();
    let listed = documented(&guide);
    for name in &listed {
        assert!(
            families.contains(name),
            "the guide lists `{name}`, which is not on the page"
        );
    }
    for family in families {
        assert!(
            listed.contains(&family) || guide.contains(&family),
            "the guide does not list `{family}`"
        );
    }
}
