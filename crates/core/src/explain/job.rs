//! What the job itself and its status show.

use super::{Answer, Cause, Facts, Operator, PodFacts, Standing, UNTOUCHED, ended, pods_of, seats};
use crate::{
    job::{ConditionType, ProgressRecord, time_words},
    reason::{Code, Reason},
};

pub(super) fn being_deleted(facts: &Facts) -> Option<Answer> {
    facts.job.deleted_at?;
    let left = facts.pods.len();
    let (sentence, next) = match (left, facts.job.finalizers.as_slice()) {
        (0, []) => (
            "it is being deleted".to_owned(),
            "wait a moment; the API server is about to remove it".to_owned(),
        ),
        (0, finalizers) => (
            format!(
                "it is being deleted and waits for `{}`",
                finalizers.join("`, `")
            ),
            format!(
                "the controller that set the finalizer must remove it; {} shows it",
                facts.kubectl(&format!("get {} -o yaml", facts.job.resource))
            ),
        ),
        (left, _) => (
            format!("it is being deleted; {} still terminating", pods_of(left)),
            format!(
                "wait for their grace period; {} shows pods that remain",
                facts.kubectl("get pods")
            ),
        ),
    };
    Some(Answer::waits(Cause::BeingDeleted, sentence, next))
}

pub(super) fn managed_elsewhere(facts: &Facts) -> Option<Answer> {
    let manager = facts.job.manager.as_deref()?;
    Some(
        Answer::waits(
            Cause::ManagedElsewhere,
            format!("another controller, `{manager}`, manages it; trainyard ignores it"),
            format!(
                "check it with `{manager}`; `managedBy` is immutable, so create a new job without it \
                     to use trainyard"
            ),
        )
        .because("spec.runPolicy.managedBy", manager),
    )
}

pub(super) fn invalid(facts: &Facts) -> Option<Answer> {
    let first = facts.errors.first()?;
    let place = if first.path.is_empty() {
        String::new()
    } else {
        format!(" (at `{}`)", first.path)
    };
    let more = match facts.errors.len() {
        1 => String::new(),
        count => format!(", and {} more", count - 1),
    };
    let next = match &first.hint {
        Some(hint) => format!("{hint}; then apply the file again"),
        None => format!(
            "`trainyard lint --explain {}` explains it; correct the file and apply it again",
            first.code
        ),
    };
    let mut answer = Answer::waits(
        Cause::InvalidSpec,
        format!("its spec cannot be run: {}{place}{more}", first.message),
        next,
    );
    for finding in &facts.errors {
        let from = format!("{} {}", finding.code, finding.path);
        answer = answer.because(from.trim_end(), finding.message.clone());
    }
    Some(answer)
}

pub(super) fn unreadable(facts: &Facts) -> Option<Answer> {
    let why = facts.unreadable.as_ref()?;
    let edit = format!("edit {} --subresource=status", facts.job.resource);
    Some(
        Answer::waits(
            Cause::StatusUnreadable,
            format!(
                "its status cannot be read at `{}`, so the operator leaves the job and the status as they are",
                why.field
            ),
            format!(
                "correct the field with {}, or delete the job and create it again",
                facts.kubectl(&edit)
            ),
        )
        .because(why.field.clone(), why.problem.clone()),
    )
}

/// The operator set it aside because it crashed or panicked on it.
pub(super) fn set_aside(facts: &Facts) -> Option<Answer> {
    let waiting = facts.status.trainyard.waiting.as_ref()?;
    if waiting.code != Code::SetAside {
        return None;
    }
    let next = "change the job's spec or annotations, or upgrade the operator; then it is processed again. Report the panic with \
                the operator's log";
    let answer = Answer::waits(Cause::SetAside, waiting.message.clone(), next.to_owned());
    Some(answer.because("status.trainyard.waiting", waiting.message.clone()))
}

/// No operator has processed the job, or none has since it was changed.
pub(super) fn no_operator(facts: &Facts) -> Option<Answer> {
    let untouched = facts.status.conditions.is_empty();
    let suspended = facts.condition(ConditionType::Suspended).is_some();
    let asked = facts.job.restart.is_some() && facts.job.restart != facts.status.trainyard.restart;
    let behind = suspended != facts.job.suspend || asked;
    let waited = facts.since(facts.job.created_at) >= UNTOUCHED;
    let (sentence, from, says) = match &facts.operator {
        Operator::Silent { holder, since, .. } if untouched || behind => (
            "no operator manages this job: the lease of the last one has expired".to_owned(),
            "lease",
            format!("held by `{holder}`, last renewed at {since}"),
        ),
        Operator::NoLease if untouched && waited => (
            "no operator manages this job: its status is empty and there is no operator lease"
                .to_owned(),
            "lease",
            "not found".to_owned(),
        ),
        Operator::Alive { holder, .. } if untouched && waited => (
            "the running operator has not processed this job; it may manage other namespaces or \
             kinds only"
                .to_owned(),
            "lease",
            format!("held by `{holder}`"),
        ),
        Operator::Unknown if untouched && waited => (
            "no operator has processed this job: its status is empty".to_owned(),
            "status",
            "no condition is set".to_owned(),
        ),
        _ => return None,
    };
    let namespace = match &facts.operator {
        Operator::Silent { namespace, .. } | Operator::Alive { namespace, .. } => namespace,
        _ => "trainyard-system",
    };
    let next = format!(
        "check the operator: `kubectl -n {namespace} get pods` and `kubectl -n {namespace} logs deploy/trainyard`"
    );
    Some(Answer::waits(Cause::NoOperator, sentence, next).because(from, says))
}

pub(super) fn suspended(facts: &Facts) -> Option<Answer> {
    if !facts.job.suspend {
        return None;
    }
    let left = match facts.pods.len() {
        0 => String::new(),
        left => format!("; {} still terminating", pods_of(left)),
    };
    let mut answer = match &facts.job.queue {
        None => Answer::waits(
            Cause::Suspended,
            format!("it is suspended by `runPolicy.suspend`{left}"),
            format!("{} resumes it", facts.ours("resume")),
        ),
        Some(queue) => Answer::waits(
            Cause::Suspended,
            format!("it is suspended until Kueue admits it from queue `{queue}`{left}"),
            format!(
                "{} shows its position, {} Kueue's messages about it",
                facts.kubectl("get workloads.kueue.x-k8s.io"),
                facts.kubectl("describe workloads.kueue.x-k8s.io")
            ),
        )
        .because("label kueue.x-k8s.io/queue-name", format!("`{queue}`")),
    };
    if let Some(condition) = facts.condition(ConditionType::Suspended) {
        answer = answer.because("condition Suspended", condition.message.clone());
    }
    Some(answer)
}

pub(super) fn backoff(facts: &Facts) -> Option<Answer> {
    let record = &facts.status.trainyard;
    let retry_at = record.retry_at.filter(|at| *at > facts.now)?;
    let attempt = record.attempt;
    // As the decider distinguishes them.
    let says = match (record.gang.failed_starts().times, record.quick_failures) {
        (0, failures) => format!(
            "it failed {failures} times in a row soon after it started; attempt {attempt} starts at {retry_at}"
        ),
        (times, _) => format!(
            "its gang did not start and released its nodes {times} times; attempt {attempt} starts at {retry_at}"
        ),
    };
    let mut answer = Answer::waits(
        Cause::Backoff,
        says,
        format!(
            "{} shows what failed; {} starts the attempt now",
            facts.ours("logs --first-failure"),
            facts.ours("restart")
        ),
    );
    if let Some(failed) = ended::last_failure(facts) {
        answer = answer.because(format!("pod `{}`", failed.pod), ended::how(&failed));
    } else if let Some(kept) = &record.last_failure {
        answer = answer.because(format!("pod `{}`", kept.pod), kept.message.clone());
    }
    if let Some(verdict) = ended::verdict(facts) {
        answer = answer.because_concluded(verdict);
    }
    for event in ended::restart_events(facts).take(2) {
        answer = answer.because_of(event);
    }
    Some(answer)
}

/// Pods of earlier attempts hold the names of the next ones.
pub(super) fn old_pods(facts: &Facts) -> Option<Answer> {
    let record = &facts.status.trainyard;
    if record.barrier.is_some() {
        // Pods of the attempt before are kept.
        return None;
    }
    let attempt = record.attempt;
    let old: Vec<&PodFacts> = facts
        .pods
        .iter()
        .filter(|pod| pod.attempt < attempt)
        .collect();
    let first = *old.first()?;
    let overdue = first
        .deleted_at
        .is_some_and(|at| facts.since(Some(at)).as_secs() > u64::from(first.grace_seconds) + 30);
    let held = match first.finalizers.as_slice() {
        [] => String::new(),
        finalizers => format!(", held by `{}`", finalizers.join("`, `")),
    };
    let next = if overdue {
        format!(
            "{} shows what holds it; its node may be gone",
            facts.kubectl(&format!("describe pod {}", first.name))
        )
    } else {
        format!("wait: a pod has {} s to terminate", first.grace_seconds)
    };
    let mut answer = Answer::waits(
        Cause::OldPods,
        format!(
            "attempt {attempt} is waiting for {} of earlier attempts to terminate (first: `{}`{held})",
            pods_of(old.len()),
            first.name
        ),
        next,
    );
    if let Some(at) = first.deleted_at {
        answer = answer.because(
            format!("pod `{}`", first.name),
            format!("deletion requested at {at}"),
        );
    }
    Some(answer)
}

/// What only the status shows.
pub(super) fn by_status(facts: &Facts) -> Option<Answer> {
    let waiting = facts.status.trainyard.waiting.as_ref()?;
    let message = &waiting.message;
    let (cause, next) = match waiting.code {
        Code::NothingToRun => (
            Cause::NothingToRun,
            "set `replicas` of the role to 1 or more".to_owned(),
        ),
        Code::WaitingForWorkers => (
            Cause::WaitingForWorkers,
            format!("{} shows the workers", facts.ours("status")),
        ),
        Code::NodeSilent => (
            Cause::NodeSilent,
            "nothing: the operator replaces the pod if the node stays unresponsive; `kubectl get nodes` shows it"
                .to_owned(),
        ),
        Code::WaitingForSeats => {
            let words = match &waiting.params {
                Some(Reason::Unscheduled { scheduler, .. }) => scheduler,
                _ => message,
            };
            (Cause::Unschedulable, seats::next(facts, words))
        }
        Code::WaitingForFabric => (
            Cause::FabricMissing,
            "`kubectl get fabrics` lists the fabrics; name one of them in `trainyard.dev/fabric`, or have this one created"
                .to_owned(),
        ),
        Code::WaitingForRuntime => (
            Cause::RuntimeMissing,
            "`kubectl get clustertrainingruntimes,trainingruntimes` lists the runtimes; create this one, and the job starts"
                .to_owned(),
        ),
        Code::WaitingForPreflight => (
            Cause::Preflight,
            format!(
                "`trainyard preflight --cluster --job FILE` shows every check; {} retries now",
                facts.ours("restart")
            ),
        ),
        Code::RestartingInPlace => (
            Cause::Starting,
            format!("wait: a program has 35 s to stop; {} shows what failed", facts.ours("status")),
        ),
        Code::HeldOnFailure => (
            Cause::Held,
            format!(
                "look at it with {} and {}; remove `trainyard.dev/hold-on-failure` to continue at once",
                facts.ours("stacks"),
                facts.ours("exec")
            ),
        ),
        Code::WaitingForPods => (
            Cause::Starting,
            format!("wait a moment; {} follows it", facts.ours("status")),
        ),
        _ => return None,
    };
    Some(Answer::waits(cause, message.clone(), next).because("status.trainyard.waiting", message))
}

/// Nothing keeps it from running.
pub(super) fn runs(facts: &Facts) -> Answer {
    let record = &facts.status.trainyard;
    let running = facts.condition(ConditionType::Running);
    let stall = record.stall(facts.now);
    let complaint = record
        .attempt_progress()
        .and_then(ProgressRecord::complaint);
    let attempt = match record.attempt {
        0 | 1 => String::new(),
        attempt => format!(", in attempt {attempt}"),
    };
    let degraded = facts.condition(ConditionType::Degraded);
    let (cause, sentence, next) = match (running, stall, complaint, degraded) {
        (None, ..) => (
            Cause::Starting,
            "the operator has seen it and is about to start it".to_owned(),
            format!("wait a moment; {} follows it", facts.ours("status")),
        ),
        (Some(_), Some(stall), ..) => (
            Cause::Hanging,
            format!("it runs{attempt}, but is stalled: {stall}"),
            format!(
                "{} shows the last lines of every rank; {} starts a new attempt",
                facts.ours("logs"),
                facts.ours("restart")
            ),
        ),
        (Some(_), None, Some(complaint), _) => (
            Cause::NotFinite,
            format!("it runs{attempt}, but {complaint}"),
            format!(
                "stop it, and restart from a checkpoint before that step with a lower learning rate or clipped \
                 gradients; {} shows the steps around it",
                facts.ours("logs")
            ),
        ),
        (Some(_), None, None, Some(degraded)) => (
            Cause::Degraded,
            format!(
                "it runs{attempt} with fewer workers than it wants: {}",
                degraded.message
            ),
            format!("{} shows which are missing", facts.ours("status")),
        ),
        (Some(running), None, None, None) => (
            Cause::Running,
            match record.attempt_progress() {
                Some(progress) => format!(
                    "it runs{attempt}; nothing holds it up: step {} was reported {} ago",
                    progress.step,
                    time_words(facts.since(Some(progress.last_step_at)))
                ),
                None => format!(
                    "it runs{attempt}, and no step was reported in the last {}, so it is not known whether it trains",
                    time_words(facts.since(Some(running.last_transition_time)))
                ),
            },
            format!("{} follows its log", facts.ours("logs --follow")),
        ),
    };
    let standing = if running.is_some() {
        Standing::Runs
    } else {
        Standing::Waits
    };
    let mut answer = Answer {
        standing,
        cause,
        sentence,
        evidence: Vec::new(),
        next,
    };
    if let Some(running) = running {
        let since = running.last_transition_time;
        answer = answer.because(
            "condition Running",
            format!("{} Since {since}.", running.message),
        );
    }
    for event in ended::restart_events(facts).take(2) {
        answer = answer.because_of(event);
    }
    answer
}
