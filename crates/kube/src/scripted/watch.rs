//! Watches: the changes after a version, as they come.

use std::{io, sync::Arc, time::Duration};

use futures::stream;
use http::Response;
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Shared,
    answer::{Body, Meant, refusal, streamed},
    world::{Call, Change, Refused},
};

/// How often a bookmark comes, as from an API server.
const BOOKMARKS: Duration = Duration::from_mins(1);

/// An open watch.
struct Open {
    shared: Arc<Shared>,
    meant: Meant,
    path: String,
    changed: tokio::sync::watch::Receiver<u64>,
    /// The next change, as a place in the list of all.
    next: usize,
    /// Which closing of all watches ends this one.
    closing: u64,
    bookmarks: bool,
    bookmark_at: Instant,
    ends_at: Instant,
    /// What is sent first.
    first: Vec<String>,
    ended: bool,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.change(|world| {
            if let Some(count) = world.watching.get_mut(&self.path) {
                *count -= 1;
            }
        });
    }
}

/// Opens a watch.
pub(crate) fn open(
    shared: Arc<Shared>,
    meant: Meant,
    call: &Call,
    first: Vec<String>,
) -> Response<Body> {
    let from = call.query.get("resourceVersion");
    let from: u64 = from.and_then(|text| text.parse().ok()).unwrap_or(0);
    let (version, forgotten) = shared.read(|world| (world.version, world.forgotten));
    if from > version {
        let message = format!("Too large resource version: {from}, current: {version}");
        return refusal(&Refused::new(504, "ResourceVersionTooLarge", message));
    }
    let seconds = call.query.get("timeoutSeconds");
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(1_800);
    let now = Instant::now();
    let changed = shared.stored.subscribe();
    let (next, closing) = shared.change(|world| {
        *world.watching.entry(call.path.clone()).or_default() += 1;
        let next = world
            .changes
            .partition_point(|change| change.version <= from);
        (next, shared.closings())
    });
    let mut open = Open {
        shared,
        meant,
        path: call.path.clone(),
        changed,
        next,
        closing,
        bookmarks: call.query.contains_key("allowWatchBookmarks"),
        bookmark_at: now + BOOKMARKS,
        ends_at: now + Duration::from_secs(seconds),
        first,
        ended: false,
    };
    if from < forgotten {
        let status = Refused::new(410, "Expired", format!("too old resource version: {from}"));
        let event = json!({"type": "ERROR", "object": status.status()});
        open.first.push(event.to_string());
        open.ends_at = now;
    }
    streamed(stream::unfold(open, |mut open| async {
        let lines = open.more().await?;
        let mut text = lines.join("\n");
        text.push('\n');
        let frame: Result<_, io::Error> = Ok(Frame::data(Bytes::from(text)));
        Some((frame, open))
    }))
}

impl Open {
    /// The next lines; nothing at the end.
    async fn more(&mut self) -> Option<Vec<String>> {
        if self.ended {
            return None;
        }
        if !self.first.is_empty() {
            self.ended = self.ends_at <= Instant::now();
            return Some(std::mem::take(&mut self.first));
        }
        loop {
            self.changed.borrow_and_update();
            let (lines, version) = self.shared.read(|world| {
                let new = world.changes.get(self.next..).unwrap_or_default();
                let lines = new.iter().filter_map(|change| self.event(change));
                (lines.collect::<Vec<_>>(), world.version)
            });
            self.next = self.shared.read(|world| world.changes.len());
            if !lines.is_empty() {
                return Some(lines);
            }
            if self.shared.closings() != self.closing {
                return None;
            }
            let until = self.ends_at.min(self.bookmark_at);
            tokio::select! {
                biased;
                changed = self.changed.changed() => changed.ok()?,
                () = tokio::time::sleep_until(until) => {
                    let ends = until == self.ends_at;
                    self.ended = ends;
                    self.bookmark_at = until + BOOKMARKS;
                    if self.bookmarks {
                        let bookmark = json!({"type": "BOOKMARK", "object": {"kind": "Bookmark",
                            "apiVersion": "v1", "metadata": {"resourceVersion": version.to_string()}}});
                        return Some(vec![bookmark.to_string()]);
                    }
                    if ends {
                        return None;
                    }
                }
            }
        }
    }

    /// The line of the watch for a change, if this watch selects it.
    fn event(&self, change: &Change) -> Option<String> {
        let means = |object: &Option<Arc<Value>>| {
            object
                .as_ref()
                .filter(|it| self.meant.means(&change.name, it))
                .cloned()
        };
        let (kind, object) = match (means(&change.before), means(&change.after)) {
            (None, None) => return None,
            (None, Some(after)) => ("ADDED", Value::clone(&after)),
            (Some(_), Some(after)) => ("MODIFIED", Value::clone(&after)),
            (Some(before), None) => {
                let mut gone = Value::clone(change.after.as_ref().unwrap_or(&before));
                gone["metadata"]["resourceVersion"] = change.version.to_string().into();
                ("DELETED", gone)
            }
        };
        Some(json!({"type": kind, "object": object}).to_string())
    }
}
