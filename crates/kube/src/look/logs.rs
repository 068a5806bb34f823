//! What pods write, as it is read from their nodes.
//!
//! Invariant: memory does not grow with the size of a log; at most [`FOLLOWED_MAX`] logs are followed
//! at once, and [`READ_AT_ONCE`] read.

use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

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
/// One log is read within this time, however slowly it comes.
const READ_WITHIN: Duration = Duration::from_mins(10);
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

/// How much of several logs is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// Bytes of each.
    pub each: u64,
    /// Bytes of all together.
    pub all: u64,
}

/// How the reading of several logs ended.
#[derive(Debug, Default)]
pub struct LogsRead {
    /// Why some could not be read.
    pub failures: Vec<LookError>,
    /// Logs of which only a part was read, because of the bounds.
    pub cut: u64,
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

    /// Reads logs of the pods of `job`, some at once and within `bounds`, and hands their pieces on, with the place of
    /// the log in the list. It returns what could not be read.
    pub fn logs(
        &self,
        job: &JobSeen,
        asked: &[LogAsked],
        bounds: LogBounds,
        take: &mut dyn FnMut(usize, &[u8]),
    ) -> LogsRead {
        self.runtime
            .block_on(self.api.logs(&job.key.namespace, asked, bounds, take))
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

/// Where the reader of one of several logs puts what it reads.
struct LogSink {
    place: usize,
    pieces: mpsc::Sender<(usize, Piece)>,
    /// Bytes of it that are still read.
    left: u64,
    /// Bytes of all logs that are still read.
    left_of_all: Arc<AtomicU64>,
}

impl LogSink {
    /// How many of `count` bytes are taken.
    fn take(&mut self, count: usize) -> usize {
        let most = u64::try_from(count).unwrap_or(u64::MAX).min(self.left);
        let taken = |left: u64| left.checked_sub(most.min(left));
        let before = self
            .left_of_all
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        let most = most.min(before.unwrap_or(0));
        self.left -= most;
        usize::try_from(most).unwrap_or(count)
    }
}

impl Api {
    async fn logs(
        &self,
        namespace: &str,
        asked: &[LogAsked],
        bounds: LogBounds,
        take: &mut dyn FnMut(usize, &[u8]),
    ) -> LogsRead {
        let (pieces, mut arriving) = mpsc::channel::<(usize, Piece)>(CHUNKS_WAITING);
        let turns = Arc::new(Semaphore::new(READ_AT_ONCE));
        let left_of_all = Arc::new(AtomicU64::new(bounds.all));
        let cut = Arc::new(AtomicU64::new(0));
        let mut readers = tokio::task::JoinSet::new();
        for (place, asked) in asked.iter().cloned().enumerate() {
            let (api, turns, cut) = (self.clone(), Arc::clone(&turns), Arc::clone(&cut));
            let (namespace, pieces) = (namespace.to_owned(), pieces.clone());
            let into = LogSink {
                place,
                pieces: pieces.clone(),
                left: bounds.each,
                left_of_all: Arc::clone(&left_of_all),
            };
            readers.spawn(async move {
                let _turn = turns.acquire().await;
                let read = api.read_to_end(&namespace, &asked, into);
                let read = tokio::time::timeout(READ_WITHIN, read).await;
                let last = match read {
                    Ok(Ok(is_whole)) => {
                        cut.fetch_add(u64::from(!is_whole), Ordering::Relaxed);
                        Piece::End
                    }
                    Ok(Err(error)) => Piece::Failed(error),
                    Err(_) => Piece::Failed(LookError::Late {
                        tried: format!("read the log of pod `{}`", asked.log.pod),
                        patience: READ_WITHIN,
                    }),
                };
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
        LogsRead {
            failures,
            cut: cut.load(Ordering::Relaxed),
        }
    }

    /// Reads one log to its end, or as much of it as `into` takes: the API server is asked for no more, and what it sends beyond that is not read.
    /// Whether that was all.
    async fn read_to_end(
        &self,
        namespace: &str,
        asked: &LogAsked,
        mut into: LogSink,
    ) -> Result<bool, LookError> {
        let log = &asked.log;
        if into.left_of_all.load(Ordering::Relaxed) == 0 {
            return Ok(false);
        }
        let params = LogParams {
            container: Some(log.container.clone()),
            previous: asked.previous,
            // One more says whether there is more.
            limit_bytes: i64::try_from(into.left.saturating_add(1)).ok(),
            ..LogParams::default()
        };
        let reader = self.open(namespace, log, &params).await?;
        let mut reader = pin!(reader);
        let mut buffer = vec![0; CHUNK];
        loop {
            let bytes = next_bytes(&mut reader, &mut buffer, log).await?;
            if bytes.is_empty() {
                return Ok(true);
            }
            let taken = into.take(bytes.len());
            let piece = Piece::Bytes(bytes.get(..taken).unwrap_or_default().to_vec());
            if into.pieces.send((into.place, piece)).await.is_err() {
                return Ok(true);
            }
            if taken < bytes.len() {
                return Ok(false);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scripted::Server;

    /// The API server is asked for no more than is read; one that sends more is not believed to have been asked for it.
    #[tokio::test(start_paused = true)]
    async fn logs_are_read_within_bounds() {
        let asked: Vec<LogAsked> = (0..4)
            .map(|number| LogAsked {
                log: LogOf {
                    pod: format!("a-{number}"),
                    uid: String::new(),
                    attempt: 1,
                    container: "c".to_owned(),
                },
                previous: false,
            })
            .collect();
        let cases = [
            ("whole", (1_000, u64::MAX), (400, 0)),
            ("each to its last byte", (100, u64::MAX), (400, 0)),
            ("a part of each", (30, u64::MAX), (120, 4)),
            ("all together", (1_000, 250), (250, 2)),
            ("nothing", (1_000, 0), (0, 4)),
        ];
        for (name, (each, all), want) in cases {
            let server = Server::new();
            server.with(|world| world.checks_rights = false);
            for number in 0..4 {
                let pod = json!({"metadata": {"name": format!("a-{number}")}, "status": {"phase": "Running"}});
                server.add("/api/v1/namespaces/n/pods", pod);
                server.set_log(&format!("a-{number}"), &"x".repeat(100));
            }
            let api = Api {
                client: server.client_of("cli"),
                server: "https://cluster.test".to_owned(),
                token: None,
            };
            let mut bytes = 0;
            let bounds = LogBounds { each, all };
            let mut take = |_: usize, piece: &[u8]| bytes += piece.len();
            let read = api.logs("n", &asked, bounds, &mut take).await;
            assert!(read.failures.is_empty(), "{name}: {:?}", read.failures);
            assert_eq!((bytes, read.cut), want, "{name}");
        }
    }
}
