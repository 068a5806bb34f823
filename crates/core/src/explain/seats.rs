//! The scheduler's message: why no node takes a pod.
//!
//! It writes `0/30 nodes are available: 20 Insufficient nvidia.com/gpu, 10 node(s) had untolerated
//! taint(s). preemption: …`; what most nodes lack decides the next step.

use super::{Answer, Cause, Facts, PodFacts, UNTOUCHED};
use crate::pod::Wait;

/// What `count` nodes lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lack<'a> {
    pub(super) count: u32,
    pub(super) words: &'a str,
}

/// What the nodes lack, most nodes first.
pub(super) fn lacks(message: &str) -> Vec<Lack<'_>> {
    let message = message
        .split_once(" nodes are available: ")
        .map_or("", |(_, rest)| rest);
    let message = message.split("preemption: ").next().unwrap_or_default();
    let mut lacks: Vec<Lack<'_>> = message
        .split(", ")
        .filter_map(|part| {
            let (count, words) = part.trim().split_once(' ')?;
            let count = count.parse().ok()?;
            // Remarks of plugins follow the last reason, after a full stop.
            let words = words.split(". ").next().unwrap_or_default();
            let words = words.trim_end_matches('.');
            Some(Lack { count, words })
        })
        .collect();
    lacks.sort_by(|a, b| b.count.cmp(&a.count).then(a.words.cmp(b.words)));
    lacks
}

/// The pods that wait for a node.
pub(super) fn waiting(facts: &Facts, pods: &[&PodFacts]) -> Option<Answer> {
    let seatless: Vec<(&PodFacts, &str)> = pods
        .iter()
        .filter_map(|pod| match &pod.wait {
            Some(Wait::Seat(words)) => Some((*pod, words.as_str())),
            _ => None,
        })
        .collect();
    let (first, words) = *seatless
        .iter()
        .find(|(_, words)| !words.is_empty())
        .or(seatless.first())?;
    let count = format!("{} of {} pods", seatless.len(), facts.job.wanted.max(1));
    if words.is_empty() {
        if facts.since(first.created_at) < UNTOUCHED {
            return None;
        }
        let scheduler = if first.scheduler.is_empty() {
            "default-scheduler"
        } else {
            &first.scheduler
        };
        let answer = Answer::waits(
            Cause::NoScheduler,
            format!("{count} wait for scheduler `{scheduler}`, which has not processed them"),
            format!(
                "check that a scheduler with that name runs, or remove `schedulerName: {scheduler}`"
            ),
        );
        return Some(answer.because(
            format!("pod `{}`", first.name),
            "no message from a scheduler",
        ));
    }
    let lacks = lacks(words);
    let why = match lacks.first() {
        Some(lack) => format!("most nodes report `{}`", lack.words),
        None => words.to_owned(),
    };
    let answer = Answer::waits(
        Cause::Unschedulable,
        format!("{count} have no node: {why}"),
        next(facts, words),
    );
    let answer = answer.because(format!("scheduler, of pod `{}`", first.name), words);
    Some(answer)
}

/// What to do about the scheduler's message.
pub(super) fn next(facts: &Facts, message: &str) -> String {
    let lacks = lacks(message);
    let Some(lack) = lacks.first() else {
        return format!(
            "{} shows the scheduler's message",
            facts.kubectl("get events")
        );
    };
    let words = lack.words;
    if let Some(resource) = words.strip_prefix("Insufficient ") {
        return format!(
            "wait until `{resource}` is free, request less of it, or add nodes; `kubectl describe \
             nodes` shows what uses it"
        );
    }
    if words.contains("untolerated taint") {
        return "add a toleration for the taint to the template, or remove the taint: `kubectl get \
                nodes -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints`"
            .to_owned();
    }
    if words.contains("affinity/selector") || words.contains("node affinity") {
        return "correct `nodeSelector` or `nodeAffinity` of the template: `kubectl get nodes \
                --show-labels` lists the labels of the nodes"
            .to_owned();
    }
    if words.contains("unschedulable") {
        return "the nodes are cordoned: `kubectl uncordon NODE` once they may be used".to_owned();
    }
    if words.contains("Too many pods") {
        return "wait for pods on the nodes to terminate, or add nodes".to_owned();
    }
    if words.contains("persistentvolumeclaim") || words.contains("PersistentVolumeClaim") {
        return format!("{} shows the claim", facts.kubectl("get pvc"));
    }
    format!(
        "{} shows the scheduler's message",
        facts.kubectl("get events")
    )
}
