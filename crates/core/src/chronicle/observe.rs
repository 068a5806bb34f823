//! What is new between two observations of a job, as facts.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    At,
    account::closed_since,
    fact::{Headline, KeptVerdict, Outcome, PodState, Save, Swap, Waiting, What, short},
};
use crate::{
    diagnose::VerdictSummary,
    job::{ConditionStatus, ConditionType, JobStatus},
    ledger::Ledger,
    pod::{ObservedPod, PodPhase, Wait},
    progress::Figure,
    spec::Slot,
};

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

/// The facts of first failures.
pub(super) fn of_failures(failures: &[FirstFailure]) -> Vec<At<What>> {
    let mut news = Vec::new();
    for failure in failures {
        let at = failure.at.as_millisecond();
        let headline = Headline {
            attempt: failure.attempt,
            pod: short(&failure.pod),
            slot: Some(failure.slot),
            account: failure.verdict.as_ref().map(|verdict| verdict.account),
            message: short(&failure.message),
            step: None,
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
    before: Option<&Seen<'_>>,
    after: &Seen<'_>,
    places: &Places,
    now: Timestamp,
) -> Vec<At<What>> {
    let nothing = JobStatus::default();
    let old = before.map_or(&nothing, |seen| seen.status);
    let new = after.status;
    let now = now.as_millisecond();
    let mut news = Vec::new();
    let attempt = new.trainyard.attempt;
    if attempt != old.trainyard.attempt {
        news.push((now, What::Attempt { attempt }));
    }
    failure(old, new, now, &mut news);
    numbers(old, new, now, &mut news);
    pods(
        before.map_or(&[], |seen| seen.pods),
        after.pods,
        places,
        now,
        &mut news,
    );
    news.sort_by_key(|(at, _)| *at);
    // The chain of time is in order by itself; its first fact may go back to when the job began.
    let mut all = ledger(&old.trainyard.ledger, &new.trainyard.ledger);
    all.extend(news);
    if new.trainyard.ledger.ended.is_some() && old.trainyard.ledger.ended.is_none() {
        let at = new
            .trainyard
            .ledger
            .ended
            .map_or(now, Timestamp::as_millisecond);
        all.push((
            at,
            What::Ended {
                outcome: outcome(new),
            },
        ));
    }
    all
}

/// The time that was closed, and where it goes now.
fn ledger(old: &Ledger, new: &Ledger) -> Vec<At<What>> {
    let Some(began) = new.began else {
        return Vec::new();
    };
    let began = (began.as_millisecond(), What::Began);
    let mut news = Vec::new();
    let continued = closed_since(old, new);
    if old.began.is_none() || continued.is_none() {
        news.push(began);
    }
    // Where it is another history than the one that was seen, what the status says counts.
    let stretches = continued.or_else(|| closed_since(&Ledger::default(), new));
    let stretches = stretches.unwrap_or_default();
    let is_new = !news.is_empty();
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

fn failure(old: &JobStatus, new: &JobStatus, now: i64, news: &mut Vec<At<What>>) {
    let (old, new) = (&old.trainyard, &new.trainyard);
    if let Some(failure) = &new.last_failure {
        let known = old.last_failure.as_ref();
        let same = |known: &crate::job::LastFailure| {
            known.attempt == failure.attempt
                && known.pod == failure.pod
                && known.message == failure.message
        };
        if !known.is_some_and(same) {
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
        let before = known.and_then(|known| known.verdict.as_ref());
        if let Some(verdict) = failure
            .verdict
            .as_ref()
            .filter(|verdict| before != Some(*verdict))
        {
            let kept = KeptVerdict::from(verdict.clone());
            news.push((now, What::Verdict(Box::new(kept))));
        }
    }
    if new.spent != old.spent {
        news.push((now, What::Spent(new.spent)));
    }
    let reason = |it: &Option<crate::reason::StoredReason>| {
        it.as_ref().map_or_else(Waiting::default, |reason| Waiting {
            code: Some(format!("{:?}", reason.code)),
            message: short(&reason.message),
        })
    };
    let waiting = reason(&new.waiting);
    if waiting != reason(&old.waiting) {
        news.push((now, What::Waiting(waiting)));
    }
}

fn numbers(old: &JobStatus, new: &JobStatus, now: i64, news: &mut Vec<At<What>>) {
    let newest = |status: &JobStatus| status.trainyard.checkpoint.as_ref()?.newest.clone();
    if let Some(save) = newest(new) {
        let known = newest(old)
            .is_some_and(|known| (known.step, known.attempt) == (save.step, save.attempt));
        let earlier = new
            .trainyard
            .checkpoint
            .as_ref()
            .and_then(|it| it.earlier_attempts);
        if !known {
            let at = save.saved_at.map_or(now, |at| at.as_millisecond().min(now));
            let save = Save {
                step: save.step,
                attempt: earlier.and_then(|earlier| save.attempt.checked_sub(earlier)),
                bytes: save.bytes,
                stall_millis: save.snapshot_ms,
                write_millis: save.write_ms,
            };
            news.push((at, What::Saved(save)));
        }
    }
    let Some(progress) = &new.trainyard.progress else {
        return;
    };
    if old.trainyard.progress.as_ref() == Some(progress) {
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
        ("step_seconds", progress.step_seconds),
    ];
    for (name, value) in points {
        if let Some(value) = value {
            let name = name.to_owned();
            news.push((at, What::Point { name, value }));
        }
    }
}

fn pods(
    old: &[ObservedPod],
    new: &[ObservedPod],
    places: &Places,
    now: i64,
    news: &mut Vec<At<What>>,
) {
    let (old, new) = (by_slot(old), by_slot(new));
    for (slot, pod) in &new {
        let before = old.get(slot);
        let same = before.filter(|before| before.uid == pod.uid && before.attempt == pod.attempt);
        let ended = pod.exit.and_then(|exit| exit.at);
        let ended = ended.map_or(now, |at| at.as_millisecond().min(now));
        let (slot, attempt) = (*slot, pod.attempt);
        if let Some(node) = &pod.node
            && same.and_then(|same| same.node.as_ref()) != Some(node)
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
            if let Some(from) = before
                .and_then(|before| before.node.as_ref())
                .filter(|from| *from != node)
            {
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
        let failed_between = same.is_some_and(|same| pod.ends > same.ends)
            && state != PodState::Failed
            && pod.exit.is_some_and(|exit| exit.code != 0);
        if failed_between {
            news.push(turn(ended, PodState::Failed));
        }
        if failed_between || same.is_none_or(|same| self::state(same) != state) {
            let is_end = matches!(state, PodState::Failed | PodState::Succeeded);
            news.push(turn(if is_end { ended } else { now }, state));
        }
    }
    for (slot, pod) in &old {
        if !new.contains_key(slot) {
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
fn by_slot(pods: &[ObservedPod]) -> BTreeMap<Slot, &ObservedPod> {
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

fn state(pod: &ObservedPod) -> PodState {
    match pod.phase {
        PodPhase::Running => PodState::Running,
        PodPhase::Succeeded => PodState::Succeeded,
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
