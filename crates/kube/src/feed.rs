//! Caching all objects of one type: list once, then watch every change.
//!
//! Written here rather than taken from a library because `decide` must know how new its view is:
//! the version of the list and of every bookmark, not only that of the objects.
//!
//! # Guarantees
//! - Versions only grow while a feed lives. After any doubt everything is listed again: a version that the API
//!   server refuses (410, any other 4xx, 504 for one it has not seen), [`FAILURES`] failures in a row, or a watch
//!   on which nothing came for [`watch::SILENT_AT_MOST`].
//! - Everything has a limit: a page, the pages of a list, the objects in them, a watch, the silence on it, one line of it.
//! - One object that cannot be decoded is reported and left out; the others of its type are not held up.

mod list;
mod pulse;
mod watch;

use std::time::Duration;

use kube::Client;
use tracing::{debug, warn};

use self::watch::Ended;
pub(crate) use self::{
    list::list,
    pulse::{Age, Feeds, Pulse, STALE_AFTER, Scope, Sight},
};
use crate::{backoff::Backoff, view::View};

/// After so many failed watches in a row everything is listed again.
const FAILURES: u32 = 5;
/// A watch that ends before this, and brought nothing, has failed.
const SHORT: Duration = Duration::from_secs(1);

/// What is watched.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Where the API serves it, such as `/api/v1/pods`.
    pub(crate) path: String,
    /// Which of them, by labels.
    pub(crate) labels: Option<String>,
    /// Which of them, by fields.
    pub(crate) fields: Option<String>,
}

/// What a feed reports.
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

/// Watches `source` until it is dropped and reports every change in order.
pub(crate) async fn list_and_watch<T: View>(
    client: Client,
    source: Source,
    emit: impl FnMut(News<T>) + Send,
) {
    list_and_watch_with(client, source, Pulse::default(), emit).await;
}

/// The same; `pulse` gets every sign of life.
pub(crate) async fn list_and_watch_with<T: View>(
    client: Client,
    source: Source,
    pulse: Pulse,
    mut emit: impl FnMut(News<T>) + Send,
) {
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    loop {
        let mut version = match list::list_with(&client, &source, &pulse).await {
            Ok((items, version)) => {
                debug!(path = source.path, count = items.len(), version, "Listed");
                emit(News::All(items, parse(&version)));
                pulse.listed();
                version
            }
            Err(error) => {
                warn!(path = source.path, %error, "Cannot list; retrying");
                tokio::time::sleep(wait(&mut backoff, &error)).await;
                continue;
            }
        };
        let mut failures = 0;
        while failures < FAILURES {
            let ended = watch::watch(&client, &source, &mut version, &pulse, &mut emit).await;
            match ended {
                Ok(Ended::Done { lasted, lines }) if lines > 0 || lasted >= SHORT => {
                    backoff.reset();
                    failures = 0;
                }
                Ok(Ended::Done { .. }) => {
                    failures += 1;
                    tokio::time::sleep(backoff.next()).await;
                }
                Ok(Ended::Silent) => {
                    warn!(path = source.path, "The watch timed out; listing again");
                    break;
                }
                Ok(Ended::Relist { why, lines }) => {
                    debug!(path = source.path, why, "The watch ended; listing again");
                    if lines > 0 {
                        backoff.reset();
                    }
                    tokio::time::sleep(backoff.next()).await;
                    break;
                }
                Err(error) => {
                    failures += 1;
                    debug!(path = source.path, %error, failures, "The watch failed");
                    tokio::time::sleep(wait(&mut backoff, &error)).await;
                }
            }
        }
    }
}

/// How long to wait after `error`: as long as the API server asks for, within limits.
fn wait(backoff: &mut Backoff, error: &kube::Error) -> Duration {
    let own = backoff.next();
    let asked = match error {
        kube::Error::Api(status) => status.details.as_ref().map(|it| it.retry_after_seconds),
        _ => None,
    };
    let asked = Duration::from_secs(u64::from(asked.unwrap_or_default()));
    own.max(asked.min(Duration::from_mins(1)))
}

fn parse(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests;
