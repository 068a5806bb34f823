//! Which nodes could be added for a job of a cluster that waits for nodes.

use jiff::Timestamp;
use serde::Serialize;
use trainyard_core::{
    capacity::{self, Answer, Offer},
    explain::Facts,
    gang::{Gang, GangKey, place},
    launch::Cluster,
    reason::Code,
};

use trainyard_kube::look::LookError;

use super::entry;
use crate::{clean, cluster::Site, paint::Paint};

/// Other jobs that wait and are counted, the oldest first.
const MOST_OTHERS: usize = 200;

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
    let unread = refused
        .iter()
        .map(|error| format!("not all is known about nodes that could be added: {error}"));
    let mut growth = Growth {
        message: None,
        answer: None,
        notes: unread.collect(),
    };
    if !objects.is_empty() {
        let missing = missing(&objects, &refused);
        match answer(site, word, (objects, missing), facts.now, &mut growth.notes) {
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

/// What could add nodes and was not read.
fn missing(objects: &[serde_json::Value], refused: &[LookError]) -> Vec<String> {
    let mut missing: Vec<String> = refused.iter().map(ToString::to_string).collect();
    // Requests without a pool mean an autoscaler whose pools are kept elsewhere.
    if objects
        .iter()
        .all(|object| object["kind"] == "ProvisioningRequest")
    {
        missing.push("there are ProvisioningRequests, and no pool of nodes".to_owned());
    }
    missing
}

fn answer(
    site: &Site<'_>,
    word: &str,
    (objects, missing): (Vec<serde_json::Value>, Vec<String>),
    now: Timestamp,
    notes: &mut Vec<String>,
) -> Result<Answer, String> {
    let seen = site
        .find(word)
        .map_err(|_| "the job cannot be read a second time")?;
    let job = seen
        .job
        .as_ref()
        .ok_or("the spec of the job is not valid")?;
    let mut snapshot = site.look.snapshot().map_err(|error| error.to_string())?;
    let mut offer = Offer::of_values(objects, &snapshot, now).map_err(|error| error.to_string())?;
    for why in missing {
        offer.lacks(why);
    }
    notes.extend(offer.notes.iter().cloned());
    let created = seen.created_at.unwrap_or(now);
    let own = Gang::of(job, &Cluster::default(), created).map_err(|error| error.to_string())?;
    let key = own.key.clone();
    let mut gangs = others(site, &key, now, notes);
    gangs.push(own);
    // Seats that single pods of them hold already are asked for again.
    snapshot.pods.retain(|_, pod| {
        let mut waiting = gangs.iter();
        !waiting.any(|gang| pod.gang.as_ref() == Some(&gang.key))
    });
    let placement = place(&snapshot, &gangs, now);
    let mut answers = capacity::answers(&snapshot, &gangs, &placement, &offer);
    answers
        .remove(&key)
        .ok_or_else(|| "the job has no pods".to_owned())
}

/// The other jobs that wait for seats: what is room for them is no room for this one.
fn others(site: &Site<'_>, own: &GangKey, now: Timestamp, notes: &mut Vec<String>) -> Vec<Gang> {
    let jobs = site.look.jobs(None).or_else(|error| {
        notes.push(format!(
            "jobs of other namespaces that wait are not counted: {error}"
        ));
        site.look.jobs(Some(&site.namespace))
    });
    let jobs = match jobs {
        Ok(jobs) => jobs,
        Err(error) => {
            notes.push(format!("other jobs that wait are not counted: {error}"));
            return Vec::new();
        }
    };
    let waiting = jobs.into_iter().filter(|job| {
        let waiting = job.status.trainyard.waiting.as_ref();
        waiting.is_some_and(|own| own.code == Code::WaitingForSeats)
            && !job.has_ended()
            && !job.suspend
    });
    let gangs = waiting.filter_map(|job| {
        let created = job.created_at.unwrap_or(now);
        Gang::of(job.job.as_ref()?, &Cluster::default(), created).ok()
    });
    let gangs = gangs.filter(|gang| gang.key != *own);
    let mut gangs: Vec<Gang> = gangs.collect();
    gangs.sort_by(|a, b| a.created.cmp(&b.created).then_with(|| a.key.cmp(&b.key)));
    if gangs.len() > MOST_OTHERS {
        let more = gangs.len() - MOST_OTHERS;
        notes.push(format!("{more} more jobs that wait are not counted"));
        gangs.truncate(MOST_OTHERS);
    }
    gangs
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
