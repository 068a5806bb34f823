//! What pods write, as it is read from their nodes.
//!
//! Invariant: memory does not grow with the size of a log; at most [`FOLLOWED_MAX`] logs are followed
//! at once, and [`READ_AT_ONCE`] read.

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use futures::AsyncReadExt as _;
use jiff::Timestamp;
use kube::core::{Request, subresource::LogParams};
use tokio::sync::{Notify, Semaphore, mpsc};

use super::{Api, JobSeen, Look, LookError, PATIENCE, PodSeen, pod};
use crate::{
    feed::{self, News, Source},
    view::PodView,
};

/// Bytes handed on at once.
const CHUNK: usize = 32 << 10;
/// Chunks that wait to be written, of all logs together.
const CHUNKS_WAITING: usize = 64;
/// Logs that are followed at once. Each is a connection to a node, through the API server.
const FOLLOWED_MAX: usize = 128;
/// Logs that are read at once.
const READ_AT_ONCE: usize = 16;
/// The last lines of a log that follow the end of its job.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// One log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogOf {
    /// The pod.
    pub pod: String,
    /// Its identity.
    pub uid: String,
    /// Its attempt.
    pub attempt: u32,
    /// The container.
    pub container: String,
}

impl LogOf {
    /// The log of `container` of `pod`.
    pub fn new(pod: &PodSeen, container: &str) -> Self {
        Self {
            pod: pod.facts.name.clone(),
            uid: pod.uid.clone(),
            attempt: pod.facts.attempt,
            container: container.to_owned(),
        }
    }
}

/// A log to read.
#[derive(Clone, Debug)]
pub struct LogAsked {
    /// Whose.
    pub log: LogOf,
    /// That of the container before its last restart.
    pub previous: bool,
}

/// Which lines of a log are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPart {
    /// Only so many, at its end.
    pub tail: Option<u64>,
    /// Only those that were written since then.
    pub since: Option<Timestamp>,
}

impl LogPart {
    fn params(self, log: &LogOf) -> LogParams {
        LogParams {
            container: Some(log.container.clone()),
            tail_lines: self
                .tail
                .map(|lines| i64::try_from(lines).unwrap_or(i64::MAX)),
            // The request carries whole seconds, and `kube` rounds to the nearest one: half a second of lines would be
            // missing. Cut off, it is never later than what was asked for.
            since_time: self
                .since
                .and_then(|since| Timestamp::from_second(since.as_second()).ok()),
            ..LogParams::default()
        }
    }
}

/// A piece of a log.
#[derive(Debug)]
pub enum Chunk<'a> {
    /// Bytes, not necessarily whole lines.
    Bytes(&'a [u8]),
    /// Nothing more comes.
    End,
    /// It cannot be read.
    Lost(&'a LookError),
}

/// How a following ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Logs that were not followed because too many were.
    pub left_out: usize,
}

impl Look {
    /// Reads a part of a log to its end and hands it on; `false` from `take` ends it early.
    pub fn log(
        &self,
        job: &JobSeen,
        log: &LogOf,
        previous: bool,
        part: LogPart,
        take: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), LookError> {
        self.runtime.block_on(async {
            let params = LogParams {
                previous,
                ..part.params(log)
            };
            let reader = self.api.open(&job.key.namespace, log, &params).await?;
            let mut reader = pin!(reader);
            let mut buffer = vec![0; CHUNK];
            loop {
                let bytes = next_bytes(&mut reader, &mut buffer, log).await?;
                if bytes.is_empty() || !take(bytes) {
                    return Ok(());
                }
            }
        })
    }

    /// Reads logs of the pods of `job`, some at once and at most `most` bytes of each, and hands their pieces on, with
    /// the place of the log in the list. It returns what could not be read.
    pub fn logs(
        &self,
        job: &JobSeen,
        asked: &[LogAsked],
        most: u64,
        take: &mut dyn FnMut(usize, &[u8]),
    ) -> Vec<LookError> {
        self.runtime.block_on(async {
            let (pieces, mut arriving) = mpsc::channel::<(usize, Piece)>(CHUNKS_WAITING);
            let turns = Arc::new(Semaphore::new(READ_AT_ONCE));
            let mut readers = tokio::task::JoinSet::new();
            for (place, asked) in asked.iter().cloned().enumerate() {
                let (api, turns) = (self.api.clone(), Arc::clone(&turns));
                let (namespace, pieces) = (job.key.namespace.clone(), pieces.clone());
                readers.spawn(async move {
                    let _turn = turns.acquire().await;
                    let read = api.read_to_end(&namespace, &asked, most, place, &pieces);
                    let last = read.await.map_or_else(Piece::Failed, |()| Piece::End);
                    drop(pieces.send((place, last)).await);
                });
            }
            drop(pieces);
            let mut failures = Vec::new();
            while let Some((place, piece)) = arriving.recv().await {
                match piece {
                    Piece::Bytes(bytes) => take(place, &bytes),
                    Piece::End => {}
                    Piece::Failed(error) => failures.push(error),
                }
            }
            failures
        })
    }

    /// Follows the logs of the pods of `job` that `wanted` names, those to come too, until the job is
    /// over or `take` returns `false`. Of those that are there, only `part` is read of what they wrote before.
    pub fn follow(
        &self,
        job: &JobSeen,
        wanted: &dyn Fn(&PodSeen) -> Vec<String>,
        part: LogPart,
        take: &mut dyn FnMut(&LogOf, Chunk<'_>) -> bool,
    ) -> Result<Followed, LookError> {
        self.runtime
            .block_on(self.api.follow(job, wanted, part, take))
    }
}

/// The next bytes of a log; none at its end.
pub(super) async fn next_bytes<'b>(
    reader: &mut (impl futures::AsyncRead + Unpin),
    buffer: &'b mut [u8],
    log: &LogOf,
) -> Result<&'b [u8], LookError> {
    match tokio::time::timeout(PATIENCE, reader.read(buffer)).await {
        Ok(Ok(count)) => Ok(buffer.get(..count).unwrap_or_default()),
        Ok(Err(error)) => Err(broken(log, &error)),
        Err(_) => Err(late(log)),
    }
}

fn broken(log: &LogOf, error: &dyn std::fmt::Display) -> LookError {
    LookError::Call {
        tried: format!("read the log of pod `{}`", log.pod),
        words: error.to_string(),
        code: 0,
    }
}

fn late(log: &LogOf) -> LookError {
    LookError::Late {
        tried: format!("read the log of pod `{}`", log.pod),
        patience: PATIENCE,
    }
}

/// What a follower of one log sends.
enum Piece {
    Bytes(Vec<u8>),
    End,
    Failed(LookError),
}

impl Api {
    /// Reads one log to its end, or as much of it as `most` allows.
    async fn read_to_end(
        &self,
        namespace: &str,
        asked: &LogAsked,
        most: u64,
        place: usize,
        pieces: &mpsc::Sender<(usize, Piece)>,
    ) -> Result<(), LookError> {
        let log = &asked.log;
        let params = LogParams {
            container: Some(log.container.clone()),
            previous: asked.previous,
            limit_bytes: i64::try_from(most).ok(),
            ..LogParams::default()
        };
        let reader = self.open(namespace, log, &params).await?;
        let mut reader = pin!(reader);
        let mut buffer = vec![0; CHUNK];
        loop {
            let bytes = next_bytes(&mut reader, &mut buffer, log).await?;
            let piece = Piece::Bytes(bytes.to_vec());
            if bytes.is_empty() || pieces.send((place, piece)).await.is_err() {
                return Ok(());
            }
        }
    }

    pub(super) async fn open(
        &self,
        namespace: &str,
        log: &LogOf,
        params: &LogParams,
    ) -> Result<impl futures::AsyncBufRead + use<>, LookError> {
        let tried = format!("read the log of pod `{}`", log.pod);
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let mut request = Request::new(path)
            .logs(&log.pod, params)
            .map_err(|error| self.failed(&tried, kube::Error::BuildRequest(error)))?;
        if let Some(token) = &self.token {
            let headers = request.headers_mut();
            headers.insert(http::header::AUTHORIZATION, token.clone());
        }
        let opened = tokio::time::timeout(PATIENCE, self.client.request_stream(request)).await;
        match opened {
            Ok(reader) => reader.map_err(|error| self.failed(&tried, error)),
            Err(_) => Err(late(log)),
        }
    }

    async fn follow(
        &self,
        job: &JobSeen,
        wanted: &dyn Fn(&PodSeen) -> Vec<String>,
        part: LogPart,
        take: &mut dyn FnMut(&LogOf, Chunk<'_>) -> bool,
    ) -> Result<Followed, LookError> {
        let mut part = part;
        let (pieces, mut arriving) = mpsc::channel::<(LogOf, Piece)>(CHUNKS_WAITING);
        let news = Arc::new(Notify::new());
        let notifier = Arc::clone(&news);
        let source = Source {
            path: format!("/api/v1/namespaces/{}/pods", job.key.namespace),
            labels: Some(pod::labels(job)),
            fields: None,
        };
        // Notified when any pod has changed; the pods are listed then.
        let feed = feed::list_and_watch(self.client.clone(), source, move |_: News<PodView>| {
            notifier.notify_one();
        });
        let feed = tokio::spawn(feed);
        let over = tokio::spawn(self.clone().wait_until_job_ended(job.clone()));
        let mut readers = tokio::task::JoinSet::new();
        let mut open: BTreeSet<LogOf> = BTreeSet::new();
        let mut done: BTreeSet<LogOf> = BTreeSet::new();
        let mut left_out: BTreeSet<LogOf> = BTreeSet::new();
        let mut over = pin!(over);
        let mut ended = false;
        // Whether all pods were listed after the end: what failed to open before, because its
        // container had not started, can be read then.
        let mut swept = false;
        let result = loop {
            tokio::select! {
                biased;
                Some((log, piece)) = arriving.recv() => {
                    let goes_on = match piece {
                        Piece::Bytes(bytes) => take(&log, Chunk::Bytes(&bytes)),
                        Piece::End => {
                            open.remove(&log);
                            done.insert(log.clone());
                            take(&log, Chunk::End)
                        }
                        Piece::Failed(error) => {
                            open.remove(&log);
                            // A container that has not started is tried again with the next watch event
                            // of its pod.
                            if matches!(error.code(), Some(400 | 404)) {
                                true
                            } else {
                                done.insert(log.clone());
                                take(&log, Chunk::Lost(&error))
                            }
                        }
                    };
                    if !goes_on || swept && open.is_empty() {
                        break Ok(());
                    }
                }
                () = news.notified() => {
                    let pods = match self.pods(job).await {
                        Ok(pods) => pods,
                        Err(error) => break Err(error),
                    };
                    for seen in &pods {
                        for container in wanted(seen) {
                            let log = LogOf::new(seen, &container);
                            if open.contains(&log) || done.contains(&log) {
                                continue;
                            }
                            if open.len() >= FOLLOWED_MAX {
                                left_out.insert(log);
                                continue;
                            }
                            left_out.remove(&log);
                            open.insert(log.clone());
                            let reader = self.clone().read(job.clone(), log, part, pieces.clone());
                            readers.spawn(reader);
                        }
                    }
                    // What starts later is printed from its beginning.
                    part.tail = None;
                    swept = ended;
                    if swept && open.is_empty() {
                        break Ok(());
                    }
                }
                _ = &mut over, if !ended => {
                    ended = true;
                    news.notify_one();
                }
                // What pods that stay wrote last has been read by then.
                () = tokio::time::sleep(LAST_WORDS), if ended => break Ok(()),
            }
        };
        feed.abort();
        readers.abort_all();
        result.map(|()| Followed {
            left_out: left_out.len(),
        })
    }

    /// Reads one log until its container ends.
    async fn read(
        self,
        job: JobSeen,
        log: LogOf,
        part: LogPart,
        pieces: mpsc::Sender<(LogOf, Piece)>,
    ) {
        let params = LogParams {
            follow: true,
            ..part.params(&log)
        };
        let last = match self.open(&job.key.namespace, &log, &params).await {
            Ok(reader) => {
                let mut reader = pin!(reader);
                let mut buffer = vec![0; CHUNK];
                while let Ok(count) = reader.read(&mut buffer).await {
                    let bytes = buffer.get(..count).unwrap_or_default().to_vec();
                    let sent = pieces.send((log.clone(), Piece::Bytes(bytes)));
                    if count == 0 || sent.await.is_err() {
                        break;
                    }
                }
                Piece::End
            }
            Err(error) => Piece::Failed(error),
        };
        // Nobody listens once the following is over.
        drop(pieces.send((log, last)).await);
    }

    /// Returns when the job has ended or is gone.
    async fn wait_until_job_ended(self, job: JobSeen) {
        loop {
            match self.again(&job).await {
                Ok(Some(view)) => {
                    let version = view.metadata.resource_version;
                    if JobSeen::new(&view).is_none_or(|job| job.has_ended()) {
                        return;
                    }
                    if self.changed(&job, version).await.is_ok() {
                        continue;
                    }
                }
                Ok(None) => return,
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}
