//! The watches of a cluster, and what is done where they cannot be had.
//!
//! Each resource is asked for with a list of one object first: that answer says in words why it cannot be had, which a feed, which retries by itself, does
//! not. Then the feed of the operator lists and watches it. While nothing comes on any watch the API server is asked for its version, so that one that
//! does not answer is noticed in less than a minute.

use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use kube::core::{Request, params::ListParams};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{
    Live,
    state::{PODS, State, source_name},
};
use crate::{
    backoff::Backoff,
    clock,
    feed::{self, News, Source},
    key::{JOB_LABEL, OPERATOR_LABEL},
    look::{Api, LookError, Page, RESOURCES, path},
    view::{JobView, PodView, View},
};

/// A resource that cannot be had is asked for again after this long, and later less often.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// After so long without an answer the API server is asked for its version…
const QUIET: Duration = Duration::from_secs(30);
/// …which it gives within this time.
const VERSION_WITHIN: Duration = Duration::from_secs(10);
/// A watch on which nothing came for this long is doubted: bookmarks come about every minute.
const DOUBTED: Duration = Duration::from_secs(90);

/// One resource in the versions in which it may be served.
struct Wanted {
    index: usize,
    paths: Vec<String>,
    labels: Option<String>,
}

impl Wanted {
    fn all(namespace: Option<&str>) -> (Vec<Self>, Self) {
        let jobs = RESOURCES.iter().enumerate().map(|(index, kinds)| Self {
            index,
            paths: kinds.iter().map(|kind| path(*kind, namespace)).collect(),
            labels: None,
        });
        let pods = match namespace {
            Some(namespace) => format!("/api/v1/namespaces/{namespace}/pods"),
            None => "/api/v1/pods".to_owned(),
        };
        let pods = Self {
            index: PODS,
            paths: vec![pods],
            labels: Some(format!("{JOB_LABEL},{OPERATOR_LABEL}")),
        };
        (jobs.collect(), pods)
    }
}

impl Api {
    /// Keeps `live` as the cluster is, for as long as it is polled.
    pub(super) async fn watch(&self, live: &Live) {
        let (jobs, pods) = Wanted::all(live.namespace());
        let jobs = jobs.iter().map(|wanted| {
            let take = |state: &mut State, news: News<JobView>| {
                state.job_news(wanted.index, news, clock::now());
            };
            self.watch_one(live, wanted, take)
        });
        let take = |state: &mut State, news: News<PodView>| state.pod_news(news, clock::now());
        tokio::join!(
            join_all(jobs),
            self.watch_one(live, &pods, take),
            self.ask_when_quiet(live),
        );
    }

    /// Lists and watches one resource, without end.
    async fn watch_one<T: View>(
        &self,
        live: &Live,
        wanted: &Wanted,
        take: impl Fn(&mut State, News<T>) + Send + Sync,
    ) {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        loop {
            let error = match self.served(wanted).await {
                Ok(path) => {
                    backoff.reset();
                    let source = Source {
                        path: path.clone(),
                        labels: wanted.labels.clone(),
                        fields: None,
                    };
                    let feed = feed::list_and_watch(self.client.clone(), source, |news| {
                        live.change(|state| take(state, news));
                    });
                    tokio::select! {
                        () = feed => continue,
                        error = self.doubt(live, wanted, &path) => error,
                    }
                }
                Err(error) => error,
            };
            live.change(|state| state.failed(Some(wanted.index), &error, clock::now()));
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// The path under which the cluster serves a resource that may be listed.
    async fn served(&self, wanted: &Wanted) -> Result<String, LookError> {
        let mut refused = None;
        for path in &wanted.paths {
            match self.probe(wanted, path).await {
                Ok(()) => return Ok(path.clone()),
                Err(error) if error.is_not_found() => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(refused.unwrap_or(LookError::NoKinds))
    }

    /// Lists one object.
    async fn probe(&self, wanted: &Wanted, path: &str) -> Result<(), LookError> {
        let params = ListParams {
            label_selector: wanted.labels.clone(),
            limit: Some(1),
            ..ListParams::default()
        };
        let tried = format!("list {}", source_name(wanted.index));
        let page: Page<IgnoredAny> = self.ask(&tried, Request::new(path).list(&params)).await?;
        drop(page);
        Ok(())
    }

    /// Returns why a resource may not be watched any longer.
    async fn doubt(&self, live: &Live, wanted: &Wanted, path: &str) -> LookError {
        let mut asked_at = clock::now();
        loop {
            tokio::time::sleep(QUIET).await;
            let heard_at = live.state().heard_at(Some(wanted.index));
            let quiet = since(heard_at.max(Some(asked_at)), clock::now());
            if quiet < DOUBTED {
                continue;
            }
            asked_at = clock::now();
            match self.probe(wanted, path).await {
                Ok(()) => live.change(|state| state.answered(clock::now())),
                Err(error) if matches!(error.code(), Some(401 | 403 | 404)) => return error,
                // The feed retries, and what is known stays.
                Err(error) => live.change(|state| state.failed(None, &error, clock::now())),
            }
        }
    }

    /// Asks for a sign of life where there is none.
    async fn ask_when_quiet(&self, live: &Live) {
        loop {
            tokio::time::sleep(QUIET / 2).await;
            let heard_at = live.state().heard_at(None);
            if since(heard_at, clock::now()) < QUIET {
                continue;
            }
            let request = http::Request::get("/version").body(Vec::new());
            let Ok(request) = request else { return };
            let tried = "ask the API server for its version";
            let asked = self.ask::<Value>(tried, Ok(request));
            let asked = tokio::time::timeout(VERSION_WITHIN, asked).await;
            let asked = asked.unwrap_or_else(|_| {
                Err(LookError::Late {
                    tried: tried.to_owned(),
                    patience: VERSION_WITHIN,
                })
            });
            let now = clock::now();
            match asked {
                Ok(_) => live.change(|state| state.answered(now)),
                Err(error) => live.change(|state| state.failed(None, &error, now)),
            }
        }
    }
}

/// How long ago something was; without end where it never was.
fn since(at: Option<Timestamp>, now: Timestamp) -> Duration {
    at.map_or(Duration::MAX, |at| {
        Duration::try_from(now.duration_since(at)).unwrap_or_default()
    })
}
