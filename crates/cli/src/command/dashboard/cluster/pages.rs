//! Events of a job, and the pages about the whole cluster: nodes, the queue, failures.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_core::{
    gang::survey,
    view::{
        VERSION,
        failures::{Judged, causes},
        rows::RowState,
    },
};
use trainyard_web::{Document, Problem, ProblemCode};

use super::{
    super::shared::Unread,
    Cluster, document,
    health::{notes, refused, unread},
    index::Brief,
    lock, of_run, problem,
    reader::Reader,
    run::{Moment, RunSlot, is_fresh},
};
use crate::{clean, cluster::slot_of_pod};

/// Events of a page.
const EVENTS_PAGE: usize = 200;
/// Rows of the queue.
const QUEUE_MAX: usize = 1_000;
/// Longest sentence of an event, in characters.
const SENTENCE_CHARS: usize = 600;

/// The document of nodes and when it was read.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    read: Option<(Timestamp, Arc<Vec<u8>>)>,
}

impl Cluster {
    /// What happened to a job as its status and its pods show it, and what the API server keeps of its events; the newest first.
    pub(super) fn events(
        &self,
        slot: &RunSlot,
        moment: &Moment,
        cursor: Option<&str>,
        now: Timestamp,
    ) -> Result<Document, Problem> {
        let own = trainyard_core::view::events::events(&moment.chronicle);
        let mut all: Vec<(i64, Value)> = own
            .iter()
            .filter_map(|event| Some((event.at, serde_json::to_value(event).ok()?)))
            .collect();
        let read = self.read_events(slot, moment, now);
        for event in read.events.iter() {
            let Some(at) = event.at.map(Timestamp::as_millisecond) else {
                continue;
            };
            let message = clean::text(&event.message);
            let mut sentence = format!("{}: {message}", clean::text(&event.reason));
            if !event.pod.is_empty() {
                sentence = format!("pod `{}`: {sentence}", event.pod);
            }
            let sentence: String = sentence.chars().take(SENTENCE_CHARS).collect();
            let mut shown = json!({ "at": at, "kind": "cluster", "sentence": sentence });
            let of_slot = slot_of_pod(&moment.job, &event.pod).filter(|_| !event.pod.is_empty());
            if let (Some(slot), Some(shown)) = (of_slot, shown.as_object_mut()) {
                shown.insert("slot".to_owned(), json!(slot.to_string()));
            }
            all.push((at, shown));
        }
        // Stable: what happened at the same time stays in its order.
        all.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let (page, next) = events_page(&all, cursor)?;
        let mut answer = json!({ "version": VERSION, "events": page });
        if let Some(answer) = answer.as_object_mut() {
            if let Some(next) = next {
                answer.insert("cursor".to_owned(), json!(next));
            }
            if let Some(why) = read.why_not {
                answer.insert("notes".to_owned(), json!([why]));
            }
        }
        of_run(&slot.uid, answer)
    }

    /// The document of `trainyard nodes`.
    pub(super) fn nodes(&self, reader: &Reader<'_>, now: Timestamp) -> Result<Document, Problem> {
        reader.check_nodes()?;
        // Whoever asks meanwhile waits for this answer: it is a list of all pods of the cluster.
        let mut nodes = lock(&self.nodes);
        if let Some((at, json)) = &nodes.read
            && is_fresh(*at, now)
        {
            return Ok(Document::json(json.to_vec()));
        }
        let snapshot = match self.look.snapshot() {
            Ok(snapshot) => snapshot,
            Err(error) => {
                let is_refused = error.code().is_some();
                let refused = refused(error);
                // What was read stays while nothing answers; a right that was withdrawn hides it.
                if !is_refused && let Some((_, json)) = &nodes.read {
                    return Ok(Document::json(json.to_vec()));
                }
                nodes.read = None;
                return Err(refused);
            }
        };
        let answer = document(&json!({
            "version": VERSION,
            "levels": snapshot.topology.levels,
            "cluster": survey(&snapshot),
            "warnings": snapshot.warnings,
            "asOf": now,
        }))?;
        nodes.read = Some((now, Arc::new(answer.json.clone())));
        Ok(answer)
    }

    /// The jobs that wait, the oldest first, with the reasons that their statuses have.
    pub(super) fn queue(&self, reader: &Reader<'_>, now: Timestamp) -> Result<Document, Problem> {
        let health = self.known()?;
        let (rows, left_out) = queue_rows(&reader.visible(self.briefs(now)));
        let mut unread = unread(&health, reader.sees_all(), now);
        unread.extend(reader.note().map(|why| Unread {
            run: "your rights".to_owned(),
            why,
        }));
        document(&json!({
            "version": VERSION,
            "rows": rows,
            "rowsLeftOut": left_out,
            "unreadable": unread,
            "asOf": reader.as_of(&health),
        }))
    }

    /// The last verdict on each job, by cause.
    pub(super) fn failures(
        &self,
        window_millis: u64,
        reader: &Reader<'_>,
        now: Timestamp,
    ) -> Result<Document, Problem> {
        let health = self.known()?;
        let since = now.as_millisecond().saturating_sub_unsigned(window_millis);
        let judged: Vec<Judged> = reader
            .visible(self.briefs(now))
            .iter()
            .filter_map(|brief| brief.judged.clone())
            .filter(|it| it.at.as_millisecond() >= since)
            .collect();
        let mut all = notes(&health, reader.sees_all(), now);
        all.extend(reader.note());
        all.push(
            "the status of a job keeps the verdict on its last failure: earlier ones are not counted"
                .to_owned(),
        );
        document(&json!({ "version": VERSION, "rows": causes(&judged), "notes": all }))
    }
}

/// The events behind `cursor`, and the cursor of the next ones: how many were given and the time of the last.
fn events_page(
    all: &[(i64, Value)],
    cursor: Option<&str>,
) -> Result<(Vec<Value>, Option<String>), Problem> {
    let wrong = || {
        problem(
            ProblemCode::BadRequest,
            "the cursor is not one of this list",
            "ask for the first page, without a cursor",
        )
    };
    let begin = match cursor {
        None => 0,
        Some(cursor) => {
            let (at, given) = cursor.rsplit_once('.').ok_or_else(wrong)?;
            let at: i64 = at.parse().map_err(|_| wrong())?;
            let given: usize = given.parse().map_err(|_| wrong())?;
            // What is new is in front of what was given.
            let newer = all.partition_point(|(of, _)| *of > at);
            newer.saturating_add(given)
        }
    };
    let shown = all.iter().skip(begin).take(EVENTS_PAGE);
    let page: Vec<Value> = shown.map(|(_, event)| event.clone()).collect();
    let next = begin.saturating_add(page.len());
    let last = next.checked_sub(1).and_then(|last| all.get(last));
    let more = last.filter(|_| next < all.len());
    let cursor = more.map(|(at, _)| {
        let newer = all.partition_point(|(of, _)| of > at);
        format!("{at}.{}", next - newer)
    });
    Ok((page, cursor))
}

/// A job that waits.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueRow {
    id: String,
    job: String,
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    pods: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    accelerators: Option<u32>,
    /// Why it waits; nothing where no operator has said.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// The queue of Kueue that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
}

/// The jobs that wait, and how many there was no room for.
fn queue_rows(briefs: &[Arc<Brief>]) -> (Vec<QueueRow>, usize) {
    let waits = |it: &&Arc<Brief>| it.row.live && it.row.state == RowState::Waiting;
    let mut waiting: Vec<&Arc<Brief>> = briefs.iter().filter(waits).collect();
    waiting.sort_by_key(|it| (it.created_at.is_none(), it.created_at, it.row.id.clone()));
    let left_out = waiting.len().saturating_sub(QUEUE_MAX);
    let rows = waiting.into_iter().take(QUEUE_MAX).map(|it| QueueRow {
        id: it.row.id.clone(),
        job: it.row.job.clone(),
        namespace: it.row.namespace.clone(),
        created_at: it.created_at,
        pods: it.pods,
        accelerators: it.row.accelerators,
        reason: it.row.line.clone(),
        code: it.code.clone(),
        queue: it.queue.clone(),
    });
    (rows.collect(), left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_events_join_without_gaps() {
        let at = |number: i64| 1_000 - number / 3;
        let all: Vec<(i64, Value)> = (0..450).map(|it| (at(it), json!(it))).collect();
        let (mut got, mut cursor) = (Vec::new(), None);
        for _ in 0..3 {
            let (page, next) = events_page(&all, cursor.as_deref()).unwrap();
            got.extend(page);
            cursor = next;
        }
        assert_eq!(cursor, None);
        let want: Vec<Value> = all.iter().map(|(_, event)| event.clone()).collect();
        assert_eq!(got, want);
        // What happens meanwhile moves no page.
        let (_, next) = events_page(&all, None).unwrap();
        let mut more = vec![(2_000, json!("new"))];
        more.extend(all);
        let (page, _) = events_page(&more, next.as_deref()).unwrap();
        assert_eq!(page.first(), Some(&json!(200)));
        for wrong in ["", "x", "1", "1.x", "x.1"] {
            assert!(events_page(&more, Some(wrong)).is_err(), "{wrong}");
        }
    }
}
