//! The port for leaders of gangs: who is let in, and the two directions of a connection.
//!
//! Invariants: a connection that has shown no good token is closed within [`HANDSHAKE`] + [`TOKEN`] + 2 [`KNOWN_WITHIN`] and the time of one review, and
//! whenever room is needed; one that has shown it is never closed to make room: where all have, a new one is closed at once. Nothing that one
//! connection does holds up another.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite, split},
    net::{TcpListener, TcpStream},
    time::{Instant, interval, sleep, sleep_until, timeout},
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};
use trainyard_core::barrier::{Envelope, Limits, Summary};

use super::{
    audience_key,
    frame::{self, FrameError},
    registry::{Arrival, Outbox},
    trust::Trust,
};
use crate::{
    feed::Sight,
    key::JobKey,
    operator::{
        Operator,
        tokens::{Claims, TokenError},
    },
    serve::{Phase, Place, Room, Size, Traffic},
};

/// Under what its connections are counted.
const NAME: &str = "gangs";

/// One connection for each job that runs under supervisors. A summary has some 100 bytes for each group of members and each ended
/// program, so that most are never charged. Frames together take at most 128 + 32 MiB.
const SIZE: Size = Size {
    connections: 4_096,
    bytes: 32 * 1024 * 1024,
    free_bytes: 32 * 1024,
    bytes_a_second: 20_000_000,
};
/// Time of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time from the handshake to the end of the token.
const TOKEN: Duration = Duration::from_secs(5);
/// Summaries of one connection are this far apart, over time. Leaders leave 100 ms between two.
const EVERY: Duration = Duration::from_millis(50);
/// That many may come at once.
const BURST: u32 = 20;
/// How long a connection waits for an operator that has just started to list everything, and for its first pass over the job.
const KNOWN_WITHIN: Duration = Duration::from_secs(3);
/// How often the gang is looked for meanwhile.
const LOOK: Duration = Duration::from_millis(50);
/// How soon a certificate that was renewed is noticed.
const RENEWED_WITHIN: Duration = Duration::from_secs(5);
/// Wait after a connection could not be taken, as when descriptors have run out.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves leaders until the process ends.
pub(crate) async fn serve(listener: TcpListener, tls: TlsAcceptor, operator: Operator) {
    let bounds = Bounds {
        size: SIZE,
        silent_after: Limits::default().silent_after,
    };
    serve_in(bounds, listener, tls, operator).await;
}

/// What a port bears.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    size: Size,
    /// A leader that neither sends nor reads for this long is closed.
    silent_after: Duration,
}

async fn serve_in(bounds: Bounds, listener: TcpListener, tls: TlsAcceptor, operator: Operator) {
    let Bounds { size, silent_after } = bounds;
    let traffic = operator.metrics().traffic();
    let room = Room::new(size, NAME, traffic.clone());
    let mut full = false;
    let mut trust = Trust::new(&operator);
    let mut renewals = interval(RENEWED_WITHIN);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = renewals.tick() => {
                trust.announce(&operator);
                continue;
            }
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "Cannot accept a connection; retrying");
                sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let Some(place) = room.try_enter(peer.ip()) else {
            traffic.refused(NAME, "full");
            if !full {
                let connections = size.connections;
                warn!(
                    connections,
                    "All connections are those of leaders; no other gang is connected until one ends"
                );
            }
            full = true;
            drop(stream);
            tokio::task::yield_now().await;
            continue;
        };
        full = false;
        let connection = Connection {
            operator: operator.clone(),
            traffic: traffic.clone(),
            place,
            silent_after,
        };
        tokio::spawn(connection.run(stream, tls.clone()));
        // A flood of connections is taken one by one: between two of them, all others get on.
        tokio::task::yield_now().await;
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The other side ended it.
    Theirs,
    /// It was closed, counted under this.
    Closed(&'static str),
    /// It was not accepted, counted under this.
    Refused(&'static str),
}

impl From<FrameError> for End {
    fn from(error: FrameError) -> Self {
        error.reason().map_or(Self::Theirs, Self::Closed)
    }
}

struct Connection {
    operator: Operator,
    traffic: Traffic,
    place: Place,
    silent_after: Duration,
}

impl Connection {
    async fn run(self, stream: TcpStream, tls: TlsAcceptor) {
        let end = tokio::select! {
            end = self.secure(stream, tls) => end,
            // The room counts what it closes.
            () = self.evicted() => End::Theirs,
        };
        match end {
            End::Theirs => {}
            End::Closed(reason) => self.traffic.closed(NAME, reason),
            End::Refused(reason) => self.traffic.refused(NAME, reason),
        }
        debug!(?end, "The connection of a leader ended");
    }

    /// Waits until the connection was closed to make room.
    async fn evicted(&self) {
        while self.place.phase().is_some() {
            self.place.changed().await;
        }
    }

    async fn secure(&self, stream: TcpStream, tls: TlsAcceptor) -> End {
        // Orders are small and wait for nobody.
        drop(stream.set_nodelay(true));
        match timeout(HANDSHAKE, tls.accept(stream)).await {
            Ok(Ok(stream)) => match self.talk(stream).await {
                Ok(end) | Err(end) => end,
            },
            Ok(Err(error)) => {
                debug!(%error, "Handshake failed");
                End::Theirs
            }
            Err(_) => End::Closed("silent"),
        }
    }

    async fn talk(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<End, End> {
        let (mut reader, mut writer) = split(stream);
        let token = frame::read(&mut reader, &self.place, frame::TOKEN, frame::MAX_TOKEN);
        let token = timeout(TOKEN, token)
            .await
            .map_err(|_| End::Closed("silent"))??;
        let (key, pod) = self.authenticate(token).await?;
        // It is never closed to make room from now on.
        self.place.set(Phase::Working);
        self.place.release();
        let connected = self.operator.gangs.registry().connect(&key, &pod);
        let mut connected = connected.ok_or(End::Refused("forbidden"))?;
        info!(job = %key, "The leader of the gang is connected");
        // Whether the leader is connected matters for the next failure.
        self.operator.enqueue_job(key.clone());
        let mut leads = self.operator.leads();
        let (link, outbox) = (connected.id, Arc::clone(&connected.outbox));
        let job = connected.job.clone();
        let end = tokio::select! {
            end = self.receive(&mut reader, &key, link, &job) => end,
            end = send(&mut writer, &outbox, self.silent_after) => end,
            () = connected.closed() => End::Closed("replaced"),
            _ = leads.wait_for(|leads| !*leads) => End::Closed("not_leading"),
        };
        if self.operator.gangs.registry().disconnect(&key, link) {
            info!(job = %key, "The leader of the gang is disconnected");
            self.operator.enqueue_job(key);
        }
        Ok(end)
    }

    /// The job and the pod of a token, where the pod leads the gang of the job and the API server says that the token is its own.
    async fn authenticate(&self, token: Vec<u8>) -> Result<(JobKey, String), End> {
        let operator = &self.operator;
        let mut sight = operator.sight();
        let listed = timeout(KNOWN_WITHIN, sight.wait_for(Sight::is_clear));
        if !*operator.leads().borrow() || !matches!(listed.await, Ok(Ok(_))) {
            return Err(End::Refused("not_leading"));
        }
        let no_token = End::Refused("no_token");
        let token = String::from_utf8(token).map_err(|_| no_token)?;
        let token = token.trim();
        let claims = Claims::of(token).ok_or(no_token)?;
        let audience = claims.audience().ok_or(no_token)?;
        let key = audience_key(audience).ok_or(End::Refused("forbidden"))?;
        let pod = claims.pod();
        if !self.leads(&key, pod).await {
            return Err(End::Refused("forbidden"));
        }
        let tokens = &operator.gangs.tokens;
        let checked = tokens.check(&operator.caller, token, &claims, &key.namespace, audience);
        match checked.await {
            // A token that is believed costs nothing to check, but each connection costs the one before it and a pass.
            Ok(()) if !tokens.senders().takes(pod, tokens.now()) => {
                debug!(job = %key, "The leader of the gang connects too often");
                Err(End::Refused("too_often"))
            }
            Ok(()) => Ok((key, pod.to_owned())),
            Err(TokenError::TooMany) => Err(End::Refused("too_often")),
            Err(TokenError::NotReviewed | TokenError::TimedOut) => Err(End::Refused("unavailable")),
            Err(TokenError::Forbidden) => Err(End::Refused("forbidden")),
        }
    }

    /// Whether the pod leads the gang of `key`. An operator that has just started waits a moment for its first pass over the job.
    async fn leads(&self, key: &JobKey, pod: &str) -> bool {
        let operator = &self.operator;
        let found = async {
            loop {
                if operator.gangs.registry().leads(key, pod) {
                    return true;
                }
                if operator.state.store().pod_owner(key, pod).is_none() {
                    return false;
                }
                sleep(LOOK).await;
            }
        };
        timeout(KNOWN_WITHIN, found).await.unwrap_or(false)
    }

    /// Takes summaries until the connection ends.
    async fn receive(
        &self,
        reader: &mut (impl AsyncRead + Unpin),
        key: &JobKey,
        link: u64,
        job: &str,
    ) -> End {
        let mut paid = Instant::now();
        loop {
            let read = frame::read(reader, &self.place, frame::SUMMARY, frame::MESSAGE_BYTES);
            let content = match timeout(self.silent_after, read).await {
                Ok(Ok(content)) => content,
                Ok(Err(error)) => return error.into(),
                Err(_) => return End::Closed("silent"),
            };
            let summary = Envelope::<Summary>::decode(&content);
            drop(content);
            self.place.release();
            let Ok(summary) = summary else {
                return End::Closed("broken");
            };
            if summary.job != job {
                return End::Closed("other_job");
            }
            let arrival = self.operator.gangs.registry().receive(key, link, summary);
            match arrival {
                Arrival::Pass => self.operator.enqueue_job(key.clone()),
                Arrival::Acknowledged => {}
                Arrival::Closed => return End::Closed("replaced"),
            }
            // Whoever sends more is read more slowly.
            let now = Instant::now();
            paid = paid.max(now) + EVERY;
            let allowed = now + EVERY * BURST;
            if paid > allowed {
                sleep_until(now + (paid - allowed)).await;
            }
        }
    }
}

/// Sends what is put into `outbox` until the connection ends.
async fn send(
    writer: &mut (impl AsyncWrite + Unpin),
    outbox: &Outbox,
    silent_after: Duration,
) -> End {
    loop {
        let message = outbox.next().await;
        let content = match message.encode() {
            Ok(content) => content,
            Err(error) => {
                warn!(%error, "Cannot send an order to the leader of a gang");
                return End::Closed("too_large");
            }
        };
        let written = frame::write(writer, frame::ORDER, &content);
        match timeout(silent_after, written).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.into(),
            Err(_) => return End::Closed("slow_reader"),
        }
    }
}

#[cfg(test)]
mod tests;
