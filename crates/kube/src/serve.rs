//! HTTP servers of the operator: plain for metrics and health, TLS for webhooks.
//!
//! Owns listening and the bounds of every connection and request. What is answered is its callers'.
//!
//! Invariants:
//! - Nothing that a client does takes more than its bounds: connections, bytes and parsed values at once; the time until its first
//!   request, of a body, of an answer that it reads.
//! - Nobody waits for a client that is silent: a new connection is always let in, see [`room`].

mod bind;
mod body;
mod room;
#[cfg(test)]
mod tests;
mod traffic;
mod watched;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::{timeout, timeout_at},
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

pub use self::bind::{Bind, BindError};
pub(crate) use self::{
    body::Intake,
    room::{Phase, Place, Room, Size},
    traffic::Traffic,
};
use self::{body::Refused, watched::Watched};

/// Wait after a connection could not be taken, as when descriptors have run out.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Bytes that are buffered of each connection, which bounds the head of a request.
const BUFFER: usize = 32 * 1024;

/// What a server lets its clients take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Connections and bytes at once.
    pub(crate) size: Size,
    /// Time from the start of a connection to the end of its first request's head, the handshake included.
    pub(crate) first: Duration,
    /// Time from an answer to the end of the next request's head. The API server keeps connections for 90 s; one that is closed
    /// just when it sends a request costs it a retry.
    pub(crate) idle: Duration,
    /// Time of a body.
    pub(crate) body: Duration,
    /// Time of a request from its head to its answer; the API server waits at most 30 s.
    pub(crate) request: Duration,
    /// Time in which the client reads the answer.
    pub(crate) answer: Duration,
}

/// The head of a request.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The client has shown a certificate that the server trusts.
    pub(crate) verified: bool,
    /// The header of that name, which no log shows.
    pub(crate) authorization: Option<HeaderValue>,
}

/// A request, read to its end.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) body: Vec<u8>,
    /// What of the body is parsed at once.
    pub(crate) values: usize,
    /// The connection it came by.
    pub(crate) place: Arc<Place>,
}

/// What is answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
    /// Whether the connection ends with it.
    pub(crate) last: bool,
    /// After how many seconds the client should retry.
    pub(crate) retry_after: Option<u32>,
}

impl Reply {
    /// A sentence.
    pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.push('\n');
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: text.into_bytes(),
            last: false,
            retry_after: None,
        }
    }

    /// JSON.
    pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Self {
        Self {
            status,
            content_type: "application/json",
            body: serde_json::to_vec(body).expect("objects have string keys"),
            last: false,
            retry_after: None,
        }
    }

    /// The same, and the connection is closed behind it.
    pub(crate) fn closing(mut self) -> Self {
        self.last = true;
        self
    }

    pub(crate) fn not_found(path: &str) -> Self {
        Self::text(StatusCode::NOT_FOUND, format!("unknown path `{path}`"))
    }

    pub(crate) fn wrong_method(needed: &Method) -> Self {
        Self::text(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("only `{needed}` is allowed here"),
        )
    }
}

/// How a server answers a request that was read.
pub(crate) type Answer = Arc<dyn Fn(Request) -> BoxFuture<'static, Reply> + Send + Sync>;
/// What a server reads of a request after its head; else what it answers at once.
pub(crate) type Admit = Arc<dyn Fn(&Head) -> Result<Intake, Reply> + Send + Sync>;
/// How the next connection is secured.
pub(crate) type Secure = Arc<dyn Fn() -> TlsAcceptor + Send + Sync>;

/// One server.
#[derive(Clone)]
pub(crate) struct Server {
    /// Under what it is counted.
    pub(crate) name: &'static str,
    pub(crate) bounds: Bounds,
    pub(crate) tls: Option<Secure>,
    pub(crate) admit: Admit,
    pub(crate) answer: Answer,
    pub(crate) traffic: Traffic,
}

/// Serves `listener` until the process ends.
pub(crate) async fn serve(listener: TcpListener, server: Server) {
    let room = Room::new(server.bounds.size, server.name, server.traffic.clone());
    let server = Arc::new(server);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "Cannot accept a connection; retrying");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let place = Arc::new(room.enter(peer.ip()).await);
        tokio::spawn(connection(stream, place, Arc::clone(&server)));
        // A flood of connections is taken one by one: between two of them, all others get on.
        tokio::task::yield_now().await;
    }
}

async fn connection(stream: TcpStream, place: Arc<Place>, server: Arc<Server>) {
    let talking = secured(stream, Arc::clone(&place), Arc::clone(&server));
    let closed = tokio::select! {
        () = talking => return,
        closed = watch(&place, &server.bounds) => closed,
    };
    if let Some(reason) = closed {
        server.traffic.closed(server.name, reason);
    }
    debug!(
        server = server.name,
        reason = closed.unwrap_or("room"),
        "Closed a connection"
    );
}

/// Waits until the connection must be closed, and says why; nothing where it was closed for another.
async fn watch(place: &Place, bounds: &Bounds) -> Option<&'static str> {
    loop {
        let (phase, since) = place.phase()?;
        let (limit, reason) = match phase {
            Phase::New => (bounds.first, "silent"),
            Phase::Idle => (bounds.idle, "idle"),
            Phase::Answering => (bounds.answer, "slow_reader"),
            // These end by themselves.
            Phase::Asking | Phase::Working => {
                place.changed().await;
                continue;
            }
        };
        let changed = timeout_at(since + limit, place.changed()).await;
        if changed.is_err() && place.phase() == Some((phase, since)) {
            return Some(reason);
        }
    }
}

async fn secured(stream: TcpStream, place: Arc<Place>, server: Arc<Server>) {
    let Some(tls) = &server.tls else {
        return talk(stream, false, place, server).await;
    };
    match tls().accept(stream).await {
        Ok(stream) => {
            let verified = stream.get_ref().1.peer_certificates().is_some();
            talk(stream, verified, place, server).await;
        }
        Err(error) => debug!(%error, "Handshake failed"),
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    verified: bool,
    place: Arc<Place>,
    server: Arc<Server>,
) {
    let stream = Watched {
        stream,
        place: Arc::clone(&place),
    };
    let service = service_fn(move |request| {
        let (place, server) = (Arc::clone(&place), Arc::clone(&server));
        async move {
            place.set(Phase::Asking);
            let limit = server.bounds.request;
            let answered = timeout(limit, one(request, verified, &place, &server)).await;
            let reply = answered.unwrap_or_else(|_| {
                server.traffic.refused(server.name, "too_long");
                let status = StatusCode::REQUEST_TIMEOUT;
                Reply::text(status, format!("not done within {limit:?}")).closing()
            });
            // The answer is charged in place of the body, which is gone.
            place.release();
            let reply = match place.hold(reply.body.len()) {
                Ok(()) => reply,
                Err(_) => refuse(&server, Refused::NoRoom(place.limit())),
            };
            place.set(Phase::Answering);
            Ok::<_, std::convert::Infallible>(respond(reply))
        }
    });
    let ended = hyper::server::conn::http1::Builder::new()
        // The head of a request is bounded by `watch`.
        .header_read_timeout(None)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = ended {
        debug!(%error, "Connection ended early");
    }
}

fn refuse(server: &Server, refused: Refused) -> Reply {
    server.traffic.refused(server.name, refused.reason());
    refused.reply()
}

async fn one(
    request: hyper::Request<Incoming>,
    verified: bool,
    place: &Arc<Place>,
    server: &Server,
) -> Reply {
    let (mut parts, body) = request.into_parts();
    let mut authorization = parts.headers.remove(header::AUTHORIZATION);
    if let Some(value) = &mut authorization {
        value.set_sensitive(true);
    }
    let head = Head {
        authorization,
        path: parts.uri.path().to_owned(),
        method: parts.method,
        verified,
    };
    let intake = match (server.admit)(&head) {
        Ok(intake) => intake,
        Err(reply) => return reply.closing(),
    };
    match body::read(body, intake, server.bounds.body, place).await {
        Ok(body) => {
            let request = Request {
                path: head.path,
                authorization: head.authorization,
                body: body.bytes,
                values: body.values,
                place: Arc::clone(place),
            };
            (server.answer)(request).await
        }
        Err(refused) => refuse(server, refused),
    }
}

fn respond(reply: Reply) -> hyper::Response<Full<Bytes>> {
    let mut response = hyper::Response::new(Full::new(reply.body.into()));
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(reply.content_type),
    );
    if let Some(seconds) = reply.retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if reply.last {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
