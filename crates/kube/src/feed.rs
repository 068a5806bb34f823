//! Following all objects of one type: list once, then hear of every change.
//!
//! Written here rather than taken from a library because `decide` must know how new its view is:
//! the version of the list and of every bookmark, not only that of the objects.
//!
//! Invariant: versions only grow while a feed lives; after any doubt the whole list is told anew.

use std::{pin::pin, time::Duration};

use futures::TryStreamExt as _;
use kube::{
    Client,
    core::{
        Request, WatchEvent,
        params::{ListParams, WatchParams},
    },
};
use serde::Deserialize;
use tracing::{debug, warn};

use crate::{backoff::Backoff, view::View};

/// Objects asked for at once.
const PAGE: u32 = 500;
/// A watch ends after this long and is begun again, so that a dead connection is noticed.
const WATCH_SECONDS: u32 = 290;

/// What is followed.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Where the API serves it, such as `/api/v1/pods`.
    pub(crate) path: String,
    /// Which of them, by labels.
    pub(crate) labels: Option<String>,
    /// Which of them, by fields.
    pub(crate) fields: Option<String>,
}

/// What a feed tells.
#[derive(Debug)]
pub(crate) enum News<T> {
    /// All there are, at this version.
    All(Vec<T>, u64),
    /// One is there, or is different.
    Is(T),
    /// One is gone.
    Gone(T),
    /// Nothing else has changed up to this version.
    Version(u64),
}

/// A page of a list.
#[derive(Deserialize)]
struct Page<T> {
    metadata: PageMeta,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    more: String,
}

/// Why a watch ended.
enum Ended {
    /// It may go on from the last version.
    Resume,
    /// The last version is too old.
    Relist,
}

/// Follows `source` for ever and tells every change in order.
pub(crate) async fn follow<T: View>(
    client: Client,
    source: Source,
    mut tell: impl FnMut(News<T>) + Send,
) {
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    loop {
        let version = match list(&client, &source).await {
            Ok((items, version)) => {
                debug!(path = source.path, count = items.len(), version, "listed");
                backoff.reset();
                tell(News::All(items, parse(&version)));
                version
            }
            Err(error) => {
                warn!(path = source.path, %error, "cannot list; trying again");
                tokio::time::sleep(backoff.next()).await;
                continue;
            }
        };
        let mut version = version;
        loop {
            match watch(&client, &source, &mut version, &mut tell).await {
                Ok(Ended::Resume) => backoff.reset(),
                Ok(Ended::Relist) => break,
                Err(error) => {
                    debug!(path = source.path, %error, "watch ended; going on");
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        }
    }
}

fn parse(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

/// Every object, as of one version.
pub(crate) async fn list<T: View>(
    client: &Client,
    source: &Source,
) -> Result<(Vec<T>, String), kube::Error> {
    let request = Request::new(&source.path);
    let mut params = ListParams {
        label_selector: source.labels.clone(),
        field_selector: source.fields.clone(),
        limit: Some(PAGE),
        ..ListParams::default()
    };
    let mut items = Vec::new();
    loop {
        let page = request.list(&params).map_err(kube::Error::BuildRequest)?;
        let page: Page<T> = client.request(page).await?;
        items.extend(page.items);
        if page.metadata.more.is_empty() {
            return Ok((items, page.metadata.resource_version));
        }
        params.continue_token = Some(page.metadata.more);
    }
}

async fn watch<T: View>(
    client: &Client,
    source: &Source,
    version: &mut String,
    tell: &mut (impl FnMut(News<T>) + Send),
) -> Result<Ended, kube::Error> {
    let params = WatchParams {
        label_selector: source.labels.clone(),
        field_selector: source.fields.clone(),
        timeout: Some(WATCH_SECONDS),
        bookmarks: true,
        ..WatchParams::default()
    };
    let request = Request::new(&source.path)
        .watch(&params, version)
        .map_err(kube::Error::BuildRequest)?;
    let mut events = pin!(client.request_events::<T>(request).await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(item) | WatchEvent::Modified(item) => {
                *version = item.meta().resource_version.to_string();
                tell(News::Is(item));
            }
            WatchEvent::Deleted(item) => {
                *version = item.meta().resource_version.to_string();
                tell(News::Gone(item));
            }
            WatchEvent::Bookmark(bookmark) => {
                *version = bookmark.metadata.resource_version;
                tell(News::Version(parse(version)));
            }
            WatchEvent::Error(status) if status.code == 410 => return Ok(Ended::Relist),
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
    }
    Ok(Ended::Resume)
}
