//! Which nodes could be added for a job of a cluster that waits for nodes.

use jiff::Timestamp;
use serde::Serialize;
use trainyard_core::{
    capacity::{self, Answer, Offer},
    explain::Facts,
    gang::Gang,
    launch::Cluster,
    reason::Code,
};

use super::entry;
use crate::{clean, cluster::Site, paint::Paint};

/// What could be added for a job.
#[derive(Debug, Serialize)]
pub(super) struct Growth {
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(flatten)]
    answer: Option<Answer>,
    /// What is not known, and what the autoscaler reports.
    notes: Vec<String>,
}

/// The answer for the job called `word`; none where it waits for something else, or where the cluster has no autoscaler that is known.
pub(super) fn of(site: &Site<'_>, word: &str, facts: &Facts) -> Option<Growth> {
    let waiting = facts.status.trainyard.waiting.as_ref()?;
    if waiting.code != Code::WaitingForSeats {
        return None;
    }
    let (objects, refused) = site.look.capacity();
    if objects.is_empty() && refused.is_empty() {
        return None;
    }
    // Requests without a pool mean an autoscaler whose pools are kept elsewhere.
    let is_whole = refused.is_empty()
        && objects
            .iter()
            .any(|object| object["kind"] != "ProvisioningRequest");
    let unread = refused
        .iter()
        .map(|error| format!("not all is known about nodes that could be added: {error}"));
    let mut growth = Growth {
        message: None,
        answer: None,
        notes: unread.collect(),
    };
    if !objects.is_empty() {
        match answer(site, word, objects, facts.now, &mut growth.notes) {
            Ok(Answer::NeverFits(_) | Answer::FitsWhenOthersEnd { .. }) if !is_whole => {
                growth.notes.push(
                    "whether a scale-up helps is not known: what was read adds no nodes that fit, and not all could be read"
                        .to_owned(),
                );
            }
            Ok(answer) => {
                growth.message = Some(answer.message());
                growth.answer = Some(answer);
            }
            Err(why) => growth
                .notes
                .push(format!("whether a scale-up helps is not known: {why}")),
        }
    }
    Some(growth)
}

fn answer(
    site: &Site<'_>,
    word: &str,
    objects: Vec<serde_json::Value>,
    now: Timestamp,
    notes: &mut Vec<String>,
) -> Result<Answer, String> {
    let seen = site
        .find(word)
        .map_err(|_| "the job cannot be read a second time")?;
    let job = seen.job.ok_or("the spec of the job is not valid")?;
    let mut snapshot = site.look.snapshot().map_err(|error| error.to_string())?;
    let offer = Offer::of_values(objects, &snapshot, now).map_err(|error| error.to_string())?;
    notes.extend(offer.notes.iter().cloned());
    let created = seen.created_at.unwrap_or(now);
    let gang = Gang::of(&job, &Cluster::default(), created).map_err(|error| error.to_string())?;
    // Seats that single pods of it hold already are asked for again.
    snapshot
        .pods
        .retain(|_, pod| pod.gang.as_ref() != Some(&gang.key));
    Ok(capacity::answer(&snapshot, &gang, &offer, now))
}

impl Growth {
    /// The answer as lines beside a heading.
    pub(super) fn lines(&self, width: Option<usize>, paint: Paint) -> String {
        let all = self.message.iter().chain(&self.notes);
        let lines = all.enumerate().map(|(at, text)| {
            let heading = if at == 0 { "scale-up" } else { "" };
            entry(heading, &clean::text(text), width, paint)
        });
        lines.collect()
    }
}
