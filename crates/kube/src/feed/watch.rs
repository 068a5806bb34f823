//! Watches: every change after a version, line by line.

use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use kube::{
    Client,
    core::{Request, WatchEvent, params::WatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::{News, Pulse, Source, parse};
use crate::view::View;

/// The API server is asked to end a watch after this long.
const ASKED_SECONDS: u32 = 290;
/// It is ended here after this long, whatever the API server does.
const LASTS_AT_MOST: Duration = Duration::from_secs(310);
/// The head of the answer comes within this time.
const BEGINS_WITHIN: Duration = Duration::from_mins(1);
/// A watch on which no byte comes for this long is dead. Bookmarks come about every minute.
pub(crate) const SILENT_AT_MOST: Duration = Duration::from_mins(3);
/// Bytes of one line at most; the API server stores objects of a tenth of it.
const LINE: usize = 32 << 20;

/// Why a watch ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// It may continue from the last version.
    Done { lasted: Duration, lines: usize },
    /// Nothing came for too long.
    Silent,
    /// The last version cannot be used.
    Relist { why: String, lines: usize },
}

/// What one line says.
enum Line<T> {
    Event(WatchEvent<T>),
    /// An object that cannot be decoded, of this version.
    Undecodable(String),
}

/// Watches `source` from `version` on.
pub(super) async fn watch<T: View>(
    client: &Client,
    source: &Source,
    version: &mut String,
    pulse: &Pulse,
    emit: &mut (impl FnMut(News<T>) + Send),
) -> Result<Ended, kube::Error> {
    let params = WatchParams {
        label_selector: source.labels.clone(),
        field_selector: source.fields.clone(),
        timeout: Some(ASKED_SECONDS),
        bookmarks: true,
        ..WatchParams::default()
    };
    let request = Request::new(&source.path)
        .watch(&params, version)
        .map_err(kube::Error::BuildRequest)?;
    let began = Instant::now();
    let reader = match timeout(BEGINS_WITHIN, client.request_stream(request)).await {
        Ok(Ok(reader)) => reader,
        Ok(Err(error)) => return refused(error, 0),
        Err(_) => return Ok(Ended::Silent),
    };
    let mut reader = std::pin::pin!(reader);
    let mut lines = 0;
    loop {
        let rest = LASTS_AT_MOST.saturating_sub(began.elapsed());
        let next = timeout(rest, line(&mut reader)).await;
        let text = match next {
            Ok(Ok(Some(text))) => text,
            Ok(Ok(None)) | Err(_) => {
                let lasted = began.elapsed();
                return Ok(Ended::Done { lasted, lines });
            }
            Ok(Err(None)) => return Ok(Ended::Silent),
            Ok(Err(Some(error))) => return Err(kube::Error::ReadEvents(error)),
        };
        if text.is_empty() {
            continue;
        }
        let event = match read::<T>(&text, source, pulse).map_err(kube::Error::SerdeError)? {
            Line::Event(event) => event,
            Line::Undecodable(at) => {
                if !at.is_empty() {
                    *version = at;
                }
                lines += 1;
                pulse.sign();
                continue;
            }
        };
        match event {
            WatchEvent::Added(item) | WatchEvent::Modified(item) => {
                *version = item.meta().resource_version.to_string();
                emit(News::Is(item));
            }
            WatchEvent::Deleted(item) => {
                *version = item.meta().resource_version.to_string();
                emit(News::Gone(item));
            }
            WatchEvent::Bookmark(bookmark) => {
                *version = bookmark.metadata.resource_version;
                emit(News::Version(parse(version)));
            }
            WatchEvent::Error(status) => return refused(kube::Error::Api(status), lines),
        }
        lines += 1;
        pulse.sign();
    }
}

/// Whether a refusal means that the version cannot be used.
fn refused(error: kube::Error, lines: usize) -> Result<Ended, kube::Error> {
    let kube::Error::Api(status) = &error else {
        return Err(error);
    };
    let too_large = status.reason == "ResourceVersionTooLarge"
        || status.message.contains("Too large resource version");
    let client_error = (400..500).contains(&status.code) && status.code != 429;
    if client_error || status.code == 504 && too_large {
        let why = format!("{} {}", status.code, status.message);
        return Ok(Ended::Relist { why, lines });
    }
    Err(error)
}

/// The next line, nothing at the end; the error is nothing where no byte came for too long.
async fn line(
    reader: &mut (impl AsyncBufRead + Unpin),
) -> Result<Option<Vec<u8>>, Option<std::io::Error>> {
    let mut line = Vec::new();
    loop {
        let bytes = timeout(SILENT_AT_MOST, reader.fill_buf()).await;
        let bytes = bytes.map_err(|_| None)?.map_err(Some)?;
        if bytes.is_empty() {
            // What is left of a line at the end says nothing.
            return Ok(None);
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        line.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        reader.consume_unpin(taken);
        if end.is_some() {
            line.pop();
            return Ok(Some(line));
        }
        if line.len() > LINE {
            let why = format!("a line of a watch is longer than {LINE} bytes");
            return Err(Some(std::io::Error::other(why)));
        }
    }
}

/// The event of a line; an error for a line that is not an event.
fn read<T: DeserializeOwned>(
    text: &[u8],
    source: &Source,
    pulse: &Pulse,
) -> Result<Line<T>, serde_json::Error> {
    let error = match serde_json::from_slice(text) {
        Ok(event) => return Ok(Line::Event(event)),
        Err(error) => error,
    };
    let mut event: Value = serde_json::from_slice(text)?;
    let object = event.get_mut("object").map(Value::take).unwrap_or_default();
    if !object.is_object() || event.get("type").is_some_and(|kind| kind == "ERROR") {
        return Err(error);
    }
    pulse.undecodable(source, &object, &error);
    if event.get("type").is_some_and(|kind| kind == "DELETED")
        && let Ok(gone) = T::deserialize(skeleton(&object))
    {
        return Ok(Line::Event(WatchEvent::Deleted(gone)));
    }
    let version = object.pointer("/metadata/resourceVersion");
    let version = version.and_then(Value::as_str).unwrap_or_default();
    Ok(Line::Undecodable(version.to_owned()))
}

/// What names an object, where the rest cannot be decoded.
fn skeleton(object: &Value) -> Value {
    let field = |key: &str| object.get(key).filter(|value| value.is_string());
    let metadata = object.get("metadata").and_then(Value::as_object);
    let strings = |value: &Value| value.is_string();
    let named = metadata.into_iter().flatten().filter(|(key, value)| {
        let named = matches!(
            key.as_str(),
            "name" | "namespace" | "uid" | "resourceVersion"
        );
        let labels = key.as_str() == "labels"
            && value
                .as_object()
                .is_some_and(|labels| labels.values().all(strings));
        named && value.is_string() || labels
    });
    let metadata: serde_json::Map<String, Value> = named
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    json!({"apiVersion": field("apiVersion"), "kind": field("kind"), "metadata": metadata})
}
