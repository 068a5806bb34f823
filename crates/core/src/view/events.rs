//! What happened to a job, as sentences, the newest first.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use crate::{
    chronicle::{Chronicle, Content, Failure, Outcome},
    job::time_words,
    ledger::Phase,
    spec::Slot,
};

/// Events of a page.
pub const PAGE: usize = 200;
/// Longest sentence, in characters.
pub const SENTENCE_CHARS: usize = 600;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When, in Unix milliseconds.
    pub at: i64,
    /// What it is about.
    pub kind: Kind,
    /// The first rank of the pod, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The pod, as role and index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// What happened.
    pub sentence: String,
    /// The attempt, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// The job began.
    Began,
    /// An attempt began.
    Attempt,
    /// Training began to stand still.
    Stalled,
    /// The job was suspended.
    Suspended,
    /// A checkpoint is complete.
    Saved,
    /// A pod is on another node.
    Swapped,
    /// What the job waits for.
    Waiting,
    /// A pod failed.
    PodFailed,
    /// An attempt failed.
    Failed,
    /// What was concluded about a failure.
    Verdict,
    /// The job ended.
    Ended,
}

/// Everything that happened, the newest first.
pub fn events(chronicle: &Chronicle) -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |at: i64, kind: Kind, attempt: Option<u32>, sentence: String| {
        events.push(Event {
            at,
            kind,
            rank: None,
            slot: None,
            sentence: sentence.chars().take(SENTENCE_CHARS).collect(),
            attempt,
        });
    };
    if let Some(began) = chronicle.began {
        add(began, Kind::Began, None, "the run began".to_owned());
    }
    for (at, attempt) in &chronicle.attempts {
        let sentence = format!("attempt {attempt} began");
        add(*at, Kind::Attempt, Some(*attempt), sentence);
    }
    phases(chronicle, &mut add);
    for (at, save) in &chronicle.saves {
        let stall = save.stall_millis.map(Duration::from_millis);
        let stall = stall.map(|stall| format!("; training stood still for {}", time_words(stall)));
        let stall = stall.unwrap_or_default();
        let sentence = format!("the checkpoint of step {} is complete{stall}", save.step);
        add(*at, Kind::Saved, save.attempt, sentence);
    }
    for (at, failed) in &chronicle.headlines {
        let (attempt, pod, message) = (failed.attempt, &failed.pod, &failed.message);
        let step = failed.step.map(|step| format!(" after step {step}"));
        let step = step.unwrap_or_default();
        let sentence = format!("attempt {attempt} failed{step}: pod `{pod}`: {message}");
        add(*at, Kind::Failed, Some(attempt), sentence);
    }
    for (at, verdict) in &chronicle.verdicts {
        let attempt = Some(verdict.summary.attempt);
        add(*at, Kind::Verdict, attempt, verdict.summary.headline());
    }
    if chronicle.waiting.1.code.is_some() {
        let (at, waiting) = &chronicle.waiting;
        add(*at, Kind::Waiting, None, waiting.message.clone());
    }
    if let Some((at, outcome)) = chronicle.ended {
        let how = match outcome {
            Outcome::Succeeded => "the job succeeded",
            Outcome::Failed => "the job failed",
            Outcome::Unknown => "the job ended",
        };
        add(at, Kind::Ended, None, how.to_owned());
    }
    let ranks: BTreeMap<Slot, Option<u32>> = chronicle
        .lanes
        .iter()
        .map(|(slot, lane)| (*slot, lane.first_rank))
        .collect();
    let of_slot = |slot: Slot, event: Event| Event {
        rank: ranks.get(&slot).copied().flatten(),
        slot: Some(slot.to_string()),
        ..event
    };
    for (at, swap) in &chronicle.swaps {
        let event = Event {
            at: *at,
            kind: Kind::Swapped,
            rank: None,
            slot: None,
            sentence: format!(
                "{} moved from node `{}` to `{}`",
                swap.slot, swap.from, swap.to
            ),
            attempt: Some(swap.attempt),
        };
        events.push(of_slot(swap.slot, event));
    }
    for failure in &chronicle.failures {
        if let Some(slot) = failure.slot {
            events.push(of_slot(slot, pod_failed(slot, failure)));
        }
    }
    events.sort_by_key(|event| std::cmp::Reverse((event.at, event.kind)));
    events
}

fn pod_failed(slot: Slot, failure: &Failure) -> Event {
    let sentence = match failure.count {
        0 | 1 => format!("pod {slot} failed"),
        count => format!("pod {slot} failed {count} times"),
    };
    Event {
        at: failure.at,
        kind: Kind::PodFailed,
        rank: None,
        slot: None,
        sentence,
        attempt: Some(failure.attempt),
    }
}

/// Stalls and suspensions, as far as their order is known.
fn phases(chronicle: &Chronicle, add: &mut impl FnMut(i64, Kind, Option<u32>, String)) {
    for stretch in &chronicle.stretches {
        let Content::Phase { attempt, phase } = stretch.content else {
            continue;
        };
        let (kind, what) = match phase {
            Phase::Stalled => (Kind::Stalled, "reported no step"),
            Phase::Suspended => (Kind::Suspended, "was suspended"),
            _ => continue,
        };
        let lasts = time_words(Duration::from_millis(stretch.millis()));
        let sentence = format!("the job {what} for {lasts}");
        add(stretch.from, kind, Some(attempt), sentence);
    }
    let open = chronicle.open.filter(|open| open.phase == Phase::Stalled);
    if let Some(open) = open {
        let sentence = "the job reports no step".to_owned();
        let at = open.since.as_millisecond();
        add(at, Kind::Stalled, Some(open.attempt), sentence);
    }
}

/// The page behind `cursor`, and the cursor of the next one. `None` where `cursor` is not one.
pub fn page(events: Vec<Event>, cursor: Option<&str>) -> Option<(Vec<Event>, Option<String>)> {
    let (before, given) = match cursor {
        None => (i64::MAX, 0),
        Some(cursor) => {
            let (at, given) = cursor.rsplit_once('.')?;
            (at.parse().ok()?, given.parse::<usize>().ok()?)
        }
    };
    let mut rest = events.into_iter().skip_while(|event| event.at > before);
    let mut same = given;
    let mut page: Vec<Event> = Vec::new();
    // As many of the time of the cursor were given as it says.
    let mut next = loop {
        match rest.next() {
            Some(event) if event.at == before && same > 0 => same -= 1,
            next => break next,
        }
    };
    while let Some(event) = next {
        if page.len() == PAGE {
            let last = page.last().map_or(0, |last| last.at);
            let of_last = page.iter().filter(|event| event.at == last).count();
            let earlier = if last == before { given } else { 0 };
            return Some((page, Some(format!("{last}.{}", of_last + earlier))));
        }
        page.push(event);
        next = rest.next();
    }
    Some((page, None))
}
