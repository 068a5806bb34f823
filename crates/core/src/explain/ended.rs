//! Finished jobs: how they ended, and what failed first.

use super::{Answer, Cause, CutOff, EventFacts, Facts, FailedPod, PodFacts, Standing};
use crate::{
    account::Account,
    diagnose::VerdictSummary,
    job::{self, ConditionType, EventReason, FailedBy, LastFailure, ProgressRecord},
    pod::{Disruption, Exit, PodPhase, exit},
};

/// The answer for a finished job.
pub(super) fn ended(facts: &Facts) -> Option<Answer> {
    if let Some(cut_off) = facts.cut_off {
        return Some(was_cut_off(cut_off));
    }
    if let Some(succeeded) = facts.condition(ConditionType::Succeeded) {
        let progress = facts.status.trainyard.attempt_progress();
        let complaint = progress.and_then(ProgressRecord::complaint);
        let logs = facts.ours("logs");
        let answer = Answer {
            standing: Standing::Succeeded,
            cause: Cause::Succeeded,
            sentence: format!(
                "it succeeded in attempt {}{}",
                facts.status.trainyard.attempt.max(1),
                complaint
                    .as_ref()
                    .map_or_else(String::new, |complaint| format!(", but {complaint}"))
            ),
            evidence: Vec::new(),
            next: match complaint {
                None => format!("nothing; {logs} prints its log"),
                Some(_) => format!(
                    "check what it saved since that step before you use it; {logs} prints its log"
                ),
            },
        };
        return Some(answer.because("condition Succeeded", succeeded.message.clone()));
    }
    let failed = facts.condition(ConditionType::Failed)?;
    let first = last_failure(facts);
    let verdict = verdict(facts).filter(|verdict| {
        let attempt = first.as_ref().map(|first| first.attempt);
        attempt.is_none_or(|attempt| attempt == verdict.attempt)
    });
    let exhausted = exhausted_budget(facts);
    let spent = exhausted
        .as_deref()
        .map_or(String::new(), |words| format!("; {words}"));
    let (cause, sentence, next) = if facts.status.trainyard.failed_by
        == Some(FailedBy::DeadlineExceeded)
    {
        (
            Cause::DeadlineExceeded,
            "it failed because it was active for longer than `activeDeadlineSeconds`".to_owned(),
            again(facts, "raise `spec.runPolicy.activeDeadlineSeconds`"),
        )
    } else if let Some(first) = &first {
        let sentence = format!(
            "it failed: container `{}` of pod `{}` {}{}{spent}",
            first.container,
            first.pod,
            how(first),
            verdict.map_or_else(String::new, |verdict| format!(": {}", verdict.sentence)),
        );
        let (cause, next) = next(facts, first);
        let next = verdict.map_or(next, |verdict| again(facts, &verdict.next));
        (cause, sentence, next)
    } else if let Some(kept) = &facts.status.trainyard.last_failure {
        let concluded =
            verdict.map_or_else(String::new, |verdict| format!(": {}", verdict.sentence));
        let sentence = format!(
            "it failed: pod `{}`: {}{concluded}{spent}",
            kept.pod, kept.message
        );
        let (cause, what) = of_account(kept);
        let what = verdict.map_or(what, |verdict| verdict.next.as_str());
        (cause, sentence, again(facts, what))
    } else if let Some(words) = exhausted {
        (
            Cause::PodsTaken,
            format!("it failed: {words}"),
            again(facts, "check the events for what removed its pods"),
        )
    } else {
        (
            Cause::Failed,
            "it failed, and no pod is left to show why".to_owned(),
            again(
                facts,
                "look for the logs of its pods in the log store of the cluster",
            ),
        )
    };
    let mut answer = Answer {
        standing: Standing::Failed,
        cause,
        sentence,
        evidence: Vec::new(),
        next,
    };
    if let Some(verdict) = verdict {
        answer = answer.because_concluded(verdict);
    }
    if let Some(first) = &first {
        if let Some(line) = &first.last_line {
            answer = answer.because(format!("last line of pod `{}`", first.pod), line.clone());
        }
        if let Some(at) = first.exit.and_then(|exit| exit.at) {
            let says = format!("{} at {at}, in attempt {}", how(first), first.attempt);
            answer = answer.because(format!("pod `{}`", first.pod), says);
        }
    }
    answer = answer.because("condition Failed", failed.message.clone());
    // The same failure is reported once, with its attempts.
    let kept = facts.status.trainyard.last_failure.as_ref();
    let same = kept.and_then(|kept| Some((kept.since_attempt?, kept.attempt)));
    if let Some((since, attempt)) = same {
        let says = format!("attempts {since} to {attempt} ended with this same failure");
        return Some(answer.because("attempts", says));
    }
    for event in restart_events(facts).take(3) {
        answer = answer.because_of(event);
    }
    Some(answer)
}

fn was_cut_off(cut_off: CutOff) -> Answer {
    let (cause, sentence) = match cut_off {
        CutOff::Stopped => (Cause::Stopped, "it was stopped before it finished"),
        CutOff::Interrupted => (
            Cause::Interrupted,
            "the process that ran it was killed, and every process of the job with it",
        ),
    };
    Answer {
        standing: Standing::Stopped,
        cause,
        sentence: sentence.to_owned(),
        evidence: Vec::new(),
        next:
            "`trainyard run` the file again; a program that saves checkpoints continues from the last"
                .to_owned(),
    }
}

/// What the doctor concluded about the last failure.
pub(super) fn verdict(facts: &Facts) -> Option<&VerdictSummary> {
    let kept = facts.status.trainyard.last_failure.as_ref()?;
    kept.verdict.as_ref()
}

/// What failed first in the last attempt that had a failure.
pub(super) fn last_failure(facts: &Facts) -> Option<FailedPod> {
    if let Some(kept) = facts.failures.last() {
        return Some(kept.clone());
    }
    let kept = facts.status.trainyard.last_failure.as_ref();
    let failed = facts.pods.iter().filter(|pod| {
        let ended_badly = pod.exit.is_some_and(|exit| exit.code != 0);
        pod.phase == PodPhase::Failed || pod.restarts > 0 && ended_badly
    });
    let failed = failed.filter(|pod| match kept {
        // What the lifecycle found to be first is first.
        Some(kept) => pod.name == kept.pod && pod.attempt == kept.attempt,
        None => true,
    });
    // What came from outside explains the crashes around it, as the lifecycle has it.
    let first = failed.min_by_key(|pod| {
        let at = pod.exit.and_then(|exit| exit.at);
        (
            std::cmp::Reverse(pod.attempt),
            pod.disruption.is_none(),
            at.is_none(),
            at,
            pod.name.clone(),
        )
    })?;
    Some(of_pod(first))
}

fn of_pod(pod: &PodFacts) -> FailedPod {
    FailedPod {
        attempt: pod.attempt,
        pod: pod.name.clone(),
        container: pod.container.clone(),
        exit: pod.exit,
        disruption: pod.disruption,
        last_line: None,
    }
}

/// The cause of a failure whose pod is gone, and what to do.
fn of_account(kept: &LastFailure) -> (Cause, &'static str) {
    match kept.account {
        Account::User if kept.cause.is_some_and(job::Cause::is_out_of_memory) => (
            Cause::OutOfMemory,
            "give the pods a larger `resources.limits.memory`, or use less",
        ),
        Account::User => (
            Cause::ContainerFailed,
            "find the cause in the log store of the cluster and fix it",
        ),
        Account::Platform | Account::Infrastructure | Account::Preemption => (
            Cause::PodsTaken,
            "check the events for what removed its pods",
        ),
    }
}

/// How the container of a pod ended, as the end of a sentence.
pub(super) fn how(failed: &FailedPod) -> String {
    match (failed.disruption, failed.exit) {
        (Some(disruption), _) => match disruption {
            Disruption::Preempted => "was preempted by a pod of higher priority",
            Disruption::Evicted => "was evicted",
            Disruption::NodePressure => {
                "was terminated because its node ran short of memory or disk"
            }
            Disruption::NodeShutdown => "was terminated because its node shut down",
            Disruption::NodeGone => "was lost with its node",
        }
        .to_owned(),
        (None, Some(exit)) if exit.out_of_memory => exit::words(exit.code, true),
        (None, Some(exit)) => format!("ended with {}", exit::words(exit.code, false)),
        (None, None) => "failed without an exit code".to_owned(),
    }
}

/// The operator's events about restarts, newest first.
pub(super) fn restart_events(facts: &Facts) -> impl Iterator<Item = &EventFacts> {
    let events = facts.events.iter().rev();
    events.filter(|event| event.pod.is_empty() && EventReason::Restarting.is(&event.reason))
}

/// The account whose failure budget is used up, in words.
fn exhausted_budget(facts: &Facts) -> Option<String> {
    let spent = facts.status.trainyard.spent;
    let account = Account::ALL.into_iter().find(|account| {
        let limit = facts.limits.get(account);
        limit.is_some_and(|limit| spent.of(*account) >= *limit)
    })?;
    let paid = spent.of(account);
    Some(match account {
        Account::User if paid == 1 => "`backoffLimit` allows no further attempt".to_owned(),
        Account::User => format!("all {paid} attempts that `backoffLimit` allows are used"),
        account => format!("its {} budget of {paid} failures is spent", account.name()),
    })
}

/// What to do, and how to start again after that: a finished job never restarts.
fn again(facts: &Facts, what: &str) -> String {
    if facts.here() {
        return format!("{what}, then `trainyard run` the file again");
    }
    format!(
        "{what}; a finished job never restarts, so then run {} and apply its file again",
        facts.ours("delete")
    )
}

fn next(facts: &Facts, failed: &FailedPod) -> (Cause, String) {
    let logs = facts.ours("logs --first-failure");
    let Some(exit) = failed.exit.filter(|_| failed.disruption.is_none()) else {
        let what = "check the node of the pod and the events";
        return (Cause::PodsTaken, again(facts, what));
    };
    match exit {
        Exit {
            out_of_memory: true,
            ..
        } => {
            let mut pods = facts.pods.iter();
            let limit = pods
                .find(|pod| pod.name == failed.pod)
                .and_then(|pod| pod.memory_limit.as_deref());
            let what = match limit {
                Some(limit) => {
                    format!("raise `resources.limits.memory` above {limit}, or use less")
                }
                None => "give the pod a larger `resources.limits.memory`, or use less".to_owned(),
            };
            (Cause::OutOfMemory, again(facts, &what))
        }
        Exit {
            code: 126 | 127, ..
        } => {
            let what = "correct `command` or the image: the program is not there";
            (Cause::ContainerFailed, again(facts, what))
        }
        _ => {
            let what = format!("find the cause in {logs} and fix it");
            (Cause::ContainerFailed, again(facts, &what))
        }
    }
}
