//! What is new between two observations of a job, as facts.

use std::{borrow::Cow, collections::BTreeMap};

use jiff::Timestamp;

use super::{
    At,
    account::closed_since,
    fact::{Headline, KeptVerdict, Outcome, PodState, Save, Swap, Waiting, What, short},
    known::{Known, KnownPod, as_read_back, newest},
};
use crate::{
    diagnose::VerdictSummary,
    job::{ConditionStatus, ConditionType, JobStatus, LastFailure},
    ledger::Ledger,
    pod::{ObservedPod, PodPhase, Wait},
    progress::Figure,
    reason::{Code, StoredReason},
    spec::Slot,
};

/// Exit codes after the signals with which a deleted pod is ended.
const TERMINATED: i32 = 128 + 15;
const KILLED: i32 = 128 + 9;

/// A job as it was observed.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its status.
    pub status: &'a JobStatus,
    /// Its pods, of whatever attempt. Empty where nobody looks at pods.
    pub pods: &'a [ObservedPod],
}

/// The first rank of each slot and how many it holds.
pub type Places = BTreeMap<Slot, (Option<u32>, u32)>;

/// The pod that failed first in an attempt, as a stored run has it.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstFailure {
    /// The attempt.
    pub attempt: u32,
    /// Where.
    pub slot: Slot,
    /// Its name.
    pub pod: String,
    /// When.
    pub at: Timestamp,
    /// Why.
    pub message: String,
    /// What was concluded from what all ranks had written by then.
    pub verdict: Option<VerdictSummary>,
}

/// The facts of first failures. `last` is the failure that the status has: it knows more of one of them.
pub(super) fn of_failures(failures: &[FirstFailure], last: Option<&LastFailure>) -> Vec<At<What>> {
    let mut news = Vec::new();
    for failure in failures {
        let at = failure.at.as_millisecond();
        let last = last.filter(|last| last.attempt == failure.attempt);
        let account = failure.verdict.as_ref().map(|verdict| verdict.account);
        let headline = Headline {
            attempt: failure.attempt,
            pod: short(&failure.pod),
            slot: Some(failure.slot),
            account: account.or(last.map(|last| last.account)),
            message: short(&failure.message),
            step: last.and_then(|last| last.step),
        };
        news.push((at, What::Failed(headline)));
        if let Some(verdict) = &failure.verdict {
            let kept = KeptVerdict::from(verdict.clone());
            news.push((at, What::Verdict(Box::new(kept))));
        }
    }
    news
}

/// What is new in `after`.
pub(super) fn news(
    known: &Known<'_>,
    after: &Seen<'_>,
    places: &Places,
    now: Timestamp,
) -> Vec<At<What>> {
    let new = after.status;
    let now = now.as_millisecond();
    let mut news = Vec::new();
    let attempt = new.trainyard.attempt;
    if attempt != known.attempt {
        news.push((now, What::Attempt { attempt }));
    }
    failure(known, new, now, &mut news);
    numbers(known, new, now, &mut news);
    pods(&known.pods, after.pods, places, now, &mut news);
    news.sort_by_key(|(at, _)| *at);
    // The chain of time is in order by itself; its first fact may go back to when the job began.
    let mut all = ledger(known, &new.trainyard.ledger);
    let is_other = matches!(all.first(), Some((_, What::Began)));
    all.extend(news);
    if let Some(ended) = new.trainyard.ledger.ended
        && (is_other || known.ledger.ended.is_none())
    {
        let outcome = outcome(new);
        all.push((ended.as_millisecond(), What::Ended { outcome }));
    }
    all
}

/// The time that was closed, and where it goes now.
fn ledger(known: &Known<'_>, new: &Ledger) -> Vec<At<What>> {
    let old = known.ledger.as_ref();
    let new = if known.is_read_back {
        Cow::Owned(as_read_back(new))
    } else {
        Cow::Borrowed(new)
    };
    let new = new.as_ref();
    let Some(began) = new.began.filter(|_| old != new) else {
        return Vec::new();
    };
    let continued = closed_since(old, new);
    let is_new = old.began.is_none() || continued.is_none();
    // Where it is another history than the one that was seen, what the status says counts.
    let stretches = continued.or_else(|| closed_since(&Ledger::default(), new));
    let stretches = stretches.unwrap_or_default();
    let nothing = old.attempts.is_empty() && old.earlier.is_empty() && stretches.is_empty();
    if is_new && known.is_read_back && nothing && (old.began, old.open) == (Some(began), new.open) {
        // Its sums are not sound, and were not when it was recorded.
        return Vec::new();
    }
    let mut news = Vec::new();
    if is_new {
        news.push((began.as_millisecond(), What::Began));
    }
    news.extend(
        stretches
            .into_iter()
            .map(|stretch| (stretch.from, What::from(stretch))),
    );
    if let Some(open) = new.open.filter(|open| is_new || old.open != Some(*open)) {
        let (attempt, phase) = (open.attempt, open.phase);
        news.push((open.since.as_millisecond(), What::Phase { attempt, phase }));
    }
    news
}

fn failure(known: &Known<'_>, new: &JobStatus, now: i64, news: &mut Vec<At<What>>) {
    let new = &new.trainyard;
    if let Some(failure) = &new.last_failure {
        if !known.failure.as_ref().is_some_and(|it| it.is(failure)) {
            let headline = Headline {
                attempt: failure.attempt,
                pod: short(&failure.pod),
                slot: None,
                account: Some(failure.account),
                message: short(&failure.message),
                step: failure.step,
            };
            news.push((now, What::Failed(headline)));
        }
        if let Some(verdict) = failure
            .verdict
            .as_ref()
            .filter(|verdict| known.verdict != Some(*verdict))
        {
            let kept = KeptVerdict::from(verdict.clone());
            news.push((now, What::Verdict(Box::new(kept))));
        }
    }
    if new.spent != known.spent {
        news.push((now, What::Spent(new.spent)));
    }
    let waiting = waiting(new.waiting.as_ref());
    if waiting != known.waiting {
        news.push((now, What::Waiting(waiting)));
    }
}

/// What a job waits for, as it is stored.
pub(super) fn waiting(reason: Option<&StoredReason>) -> Waiting {
    reason.map_or_else(Waiting::default, |reason| Waiting {
        code: code_name(reason.code),
        message: short(&reason.message),
    })
}

/// The name of a code as the status has it.
fn code_name(code: Code) -> Option<String> {
    let name = serde_json::to_value(code).ok()?;
    name.as_str().map(str::to_owned)
}

fn numbers(known: &Known<'_>, new: &JobStatus, now: i64, news: &mut Vec<At<What>>) {
    if let Some(newest) = newest(new) {
        let record = new.trainyard.checkpoint.as_ref();
        let earlier = record.and_then(|record| record.earlier_attempts);
        let save = Save {
            step: newest.step,
            attempt: earlier.and_then(|earlier| newest.attempt.checked_sub(earlier)),
            bytes: newest.bytes,
            stall_millis: newest.snapshot_ms,
            write_millis: newest.write_ms,
        };
        if !known.save.as_ref().is_some_and(|it| it.is(newest, &save)) {
            let at = newest.saved_at;
            let at = at.map_or(now, |at| at.as_millisecond().min(now));
            news.push((at, What::Saved(save)));
        }
    }
    let Some(progress) = &new.trainyard.progress else {
        return;
    };
    if known.points.has(progress) {
        return;
    }
    let at = progress.last_step_at.as_millisecond();
    #[expect(
        clippy::cast_precision_loss,
        reason = "steps beyond 2^53 are drawn at the same pixel"
    )]
    let step = Figure(progress.step as f64);
    let points = [
        ("step", Some(step)),
        ("loss", progress.loss),
        ("stepSeconds", progress.step_seconds),
    ];
    for (name, value) in points {
        if let Some(value) = value {
            let name = name.to_owned();
            news.push((at, What::Point { name, value }));
        }
    }
}

fn pods(
    old: &BTreeMap<Slot, KnownPod<'_>>,
    new: &[ObservedPod],
    places: &Places,
    now: i64,
    news: &mut Vec<At<What>>,
) {
    let new = by_slot(new);
    for (slot, pod) in &new {
        let before = old.get(slot);
        let same = before.filter(|before| before.is(pod));
        let ended = pod.exit.and_then(|exit| exit.at);
        let ended = ended.map_or(now, |at| at.as_millisecond().min(now));
        let (slot, attempt) = (*slot, pod.attempt);
        if let Some(node) = &pod.node
            && !same.is_some_and(|same| same.sits_on(attempt, node))
        {
            let (first_rank, ranks) = places.get(&slot).copied().unwrap_or((None, 0));
            let seated = What::Seated {
                attempt,
                slot,
                first_rank,
                ranks,
                node: short(node),
            };
            news.push((now, seated));
            if let Some(from) = before.and_then(KnownPod::node).filter(|from| from != node) {
                let (from, to) = (short(from), short(node));
                news.push((
                    now,
                    What::Swapped(Swap {
                        attempt,
                        slot,
                        from,
                        to,
                    }),
                ));
            }
        }
        let state = state(pod);
        let turn = |at, state| {
            (
                at,
                What::Pod {
                    attempt,
                    slot,
                    state,
                },
            )
        };
        // It ended and was started again in its pod between two observations.
        let failed_between = same.is_some_and(|same| same.ended_since(pod))
            && !matches!(state, PodState::Failed | PodState::Gone)
            && pod.exit.is_some_and(|exit| exit.code != 0);
        if failed_between {
            news.push(turn(ended, PodState::Failed));
        }
        let is_same = same.is_some_and(|same| same.state == state && !same.failed_again(pod));
        if failed_between || !is_same {
            let is_end = matches!(
                state,
                PodState::Failed | PodState::Gone | PodState::Succeeded
            );
            news.push(turn(if is_end { ended } else { now }, state));
        }
    }
    for (slot, pod) in old {
        if !new.contains_key(slot) && pod.state != PodState::Gone {
            let gone = What::Pod {
                attempt: pod.attempt,
                slot: *slot,
                state: PodState::Gone,
            };
            news.push((now, gone));
        }
    }
}

/// The pod of each slot that counts: of the newest attempt, and rather one that is not being deleted.
pub(super) fn by_slot(pods: &[ObservedPod]) -> BTreeMap<Slot, &ObservedPod> {
    let mut found: BTreeMap<Slot, &ObservedPod> = BTreeMap::new();
    let weight = |pod: &ObservedPod| (pod.attempt, pod.deleted_at.is_none());
    for pod in pods {
        let known = found.entry(pod.slot).or_insert(pod);
        if weight(pod) > weight(known) {
            *known = pod;
        }
    }
    found
}

pub(super) fn state(pod: &ObservedPod) -> PodState {
    match pod.phase {
        PodPhase::Running => PodState::Running,
        PodPhase::Succeeded => PodState::Succeeded,
        PodPhase::Failed if ended_by_deletion(pod) => PodState::Gone,
        PodPhase::Failed => PodState::Failed,
        PodPhase::Unknown => PodState::Lost,
        PodPhase::Pending => match &pod.wait {
            _ if pod.gated => PodState::Waiting,
            Some(Wait::Gate | Wait::Seat(_)) => PodState::Waiting,
            Some(Wait::Pull | Wait::PullFailed(_)) => PodState::Pulling,
            Some(Wait::Create) | None => PodState::Creating,
        },
    }
}

/// Whether a pod ended because it was deleted, as all pods of a gang that restarts are: that is no failure of its own. Where both times are the same,
/// as those of a cluster are within a second, only the signals of a deletion count.
fn ended_by_deletion(pod: &ObservedPod) -> bool {
    let (Some(deleted), Some(exit)) = (pod.deleted_at, pod.exit) else {
        return false;
    };
    let by_signal = matches!(exit.code, TERMINATED | KILLED);
    match exit.at {
        Some(at) => at > deleted || (at == deleted && by_signal),
        None => by_signal,
    }
}

fn outcome(status: &JobStatus) -> Outcome {
    let holds = |wanted: ConditionType| {
        let mut conditions = status.conditions.iter();
        conditions.any(|it| it.kind == wanted && it.status == ConditionStatus::True)
    };
    if holds(ConditionType::Succeeded) {
        Outcome::Succeeded
    } else if holds(ConditionType::Failed) {
        Outcome::Failed
    } else {
        Outcome::Unknown
    }
}
