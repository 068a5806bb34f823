//! Listening, and one connection from its start to its end.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Method, StatusCode, header, request::Parts};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::{timeout, timeout_at},
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::{
    body::{self, Intake, Refused},
    headers::Headers,
    message::{Head, Reply, Request},
    room::{Phase, Place, Room, Size},
    stream::{Content, Flow, Stream},
    traffic::Traffic,
    watched::{Malformed, Watched},
};

/// Wait after a connection could not be taken, as when descriptors have run out.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Bytes that are buffered of each connection, which bounds the head of a request.
const BUFFER: usize = 32 * 1024;

/// What a server lets its clients take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections and bytes at once.
    pub size: Size,
    /// Time from the start of a connection to the end of its first request's head, the handshake included.
    pub first: Duration,
    /// Time from an answer to the end of the next request's head. The API server keeps connections for 90 s; one that is closed
    /// just when it sends a request costs it a retry.
    pub idle: Duration,
    /// Time of a body.
    pub body: Duration,
    /// Time of a request from its head to its answer; the API server waits at most 30 s.
    pub request: Duration,
    /// Time in which the client reads the answer; of a stream, the longest time in which it takes nothing of what is sent.
    pub answer: Duration,
}

/// What all replies of a server have in common, also those that it makes by itself.
#[derive(Clone, Default)]
pub struct ReplyRules {
    /// Header fields of every reply.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Makes the reply to a request that the server refuses by itself, from its status and a sentence. Where there is none, it
    /// is the sentence as text, and the HTTP library answers what it cannot parse.
    pub refusal: Option<Refusal>,
}

impl fmt::Debug for ReplyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ReplyRules");
        debug
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

impl ReplyRules {
    fn refuse(&self, status: StatusCode, sentence: String) -> Reply {
        let reply = match &self.refusal {
            Some(refusal) => refusal(status, sentence),
            None => Reply::text(status, sentence),
        };
        reply.closing()
    }

    /// The bytes of the whole reply to a request that could not be parsed.
    fn malformed(&self, status: StatusCode) -> Vec<u8> {
        let sentence = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                format!(
                    "the head of the request has more than {BUFFER} bytes or 100 fields, the maximum"
                )
            }
            StatusCode::URI_TOO_LONG => "the URL of the request is too long".to_owned(),
            _ => "the request cannot be parsed as HTTP/1.1".to_owned(),
        };
        let (parts, body) = self.respond(self.refuse(status, sentence)).into_parts();
        let mut bytes =
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len()).into_bytes();
        for (name, value) in &parts.headers {
            let field = [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"];
            bytes.extend(field.concat());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend(body);
        bytes
    }

    fn respond(&self, reply: Reply) -> hyper::Response<Vec<u8>> {
        let mut response = hyper::Response::new(reply.body);
        *response.status_mut() = reply.status;
        let headers = response.headers_mut();
        if !reply.content_type.is_empty() {
            let value = HeaderValue::from_static(reply.content_type);
            headers.insert(header::CONTENT_TYPE, value);
        }
        for (name, value) in self.headers.iter().cloned().chain(reply.headers) {
            headers.insert(name, value);
        }
        if let Some(seconds) = reply.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if reply.last {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// How a server answers a request that was read.
pub type Answer = Arc<dyn Fn(Request) -> BoxFuture<'static, Reply> + Send + Sync>;
/// What a server reads of a request after its head; else what it answers at once.
pub type Admit = Arc<dyn Fn(&Head) -> Result<Intake, Reply> + Send + Sync>;
/// How a server words what it refuses by itself.
pub type Refusal = Arc<dyn Fn(StatusCode, String) -> Reply + Send + Sync>;
/// How the next connection is secured.
pub type Secure = Arc<dyn Fn() -> TlsAcceptor + Send + Sync>;

/// One server.
#[derive(Clone)]
pub struct Server {
    /// Under what it is counted.
    pub name: &'static str,
    /// What it lets its clients take.
    pub bounds: Bounds,
    /// How connections are secured; plain ones, where there is nothing.
    pub tls: Option<Secure>,
    /// What is read of a request.
    pub admit: Admit,
    /// What is answered.
    pub answer: Answer,
    /// What all replies have in common.
    pub rules: ReplyRules,
    /// Where it is counted.
    pub traffic: Traffic,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Server");
        debug.field("name", &self.name).finish_non_exhaustive()
    }
}

/// Serves `listener` until the process ends.
pub async fn serve(listener: TcpListener, server: Server) {
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
    // Parts of a stream are small, and each is wanted at once.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "Cannot send small parts at once");
    }
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
            Phase::Answering | Phase::Stalled => (bounds.answer, "slow_reader"),
            // These end by themselves.
            Phase::Asking | Phase::Working | Phase::Streaming => {
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
        malformed: malformed(&server),
        own: None,
    };
    let service = service_fn(move |request| {
        let (place, server) = (Arc::clone(&place), Arc::clone(&server));
        async move {
            place.set(Phase::Asking);
            let limit = server.bounds.request;
            let of_head = request.method() == Method::HEAD;
            let answered = timeout(limit, one(request, verified, &place, &server)).await;
            let mut reply = answered.unwrap_or_else(|_| {
                server.traffic.refused(server.name, "too_long");
                let sentence = format!("not done within {limit:?}");
                server.rules.refuse(StatusCode::REQUEST_TIMEOUT, sentence)
            });
            // Nothing of a stream would be read.
            reply.stream = reply.stream.filter(|_| !of_head);
            Ok::<_, std::convert::Infallible>(respond(reply, &place, &server))
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

/// How requests that cannot be parsed are answered, where it is not the library that answers.
fn malformed(server: &Arc<Server>) -> Option<Malformed> {
    server.rules.refusal.as_ref()?;
    let server = Arc::clone(server);
    Some(Arc::new(move |status| {
        server.traffic.refused(server.name, "malformed");
        server.rules.malformed(status)
    }))
}

fn refuse(server: &Server, refused: Refused) -> Reply {
    server.traffic.refused(server.name, refused.reason());
    let (status, sentence) = refused.reply();
    server.rules.refuse(status, sentence)
}

async fn one(
    request: hyper::Request<Incoming>,
    verified: bool,
    place: &Arc<Place>,
    server: &Server,
) -> Reply {
    let (parts, body) = request.into_parts();
    let head = head(parts, verified);
    let intake = match (server.admit)(&head) {
        Ok(intake) => intake,
        Err(reply) => return reply.closing(),
    };
    match body::read(body, intake, server.bounds.body, place).await {
        Ok(body) => {
            let request = Request {
                method: head.method,
                path: head.path,
                query: head.query,
                authorization: head.authorization,
                headers: head.headers,
                body: body.bytes,
                values: body.values,
                place: Arc::clone(place),
            };
            (server.answer)(request).await
        }
        Err(refused) => refuse(server, refused),
    }
}

fn head(mut parts: Parts, verified: bool) -> Head {
    // Of two nobody knows which one a proxy in front has checked.
    let all = parts.headers.get_all(header::AUTHORIZATION).iter().count();
    let found = parts.headers.remove(header::AUTHORIZATION);
    let mut authorization = found.filter(|_| all == 1);
    if let Some(value) = &mut authorization {
        value.set_sensitive(true);
    }
    let headers = Headers::new(parts.headers);
    let named = headers.one(&header::HOST);
    let authority = parts.uri.authority().map(http::uri::Authority::as_str);
    let host = match (authority, named) {
        (Some(authority), Ok(Some(named))) => (authority == named).then_some(authority),
        (Some(authority), Ok(None)) => Some(authority),
        (None, Ok(named)) => named,
        (_, Err(_)) => None,
    };
    Head {
        host: host.map(str::to_owned),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().map(str::to_owned),
        method: parts.method,
        verified,
        authorization,
        headers,
    }
}

/// The answer is charged in place of the body of the request, which is gone; a stream with all that it may hold.
fn respond(mut reply: Reply, place: &Arc<Place>, server: &Server) -> hyper::Response<Content> {
    place.release();
    let streamed = reply.stream.as_ref().map_or(0, Stream::most_bytes);
    if place
        .hold(reply.body.len().saturating_add(streamed))
        .is_err()
    {
        reply = refuse(server, Refused::NoRoom(place.limit()));
    }
    let stream = reply.stream.take();
    place.set(match stream {
        Some(_) => Phase::Streaming,
        None => Phase::Answering,
    });
    server.rules.respond(reply).map(|body| match stream {
        Some(stream) => Content::Stream(Flow::new(stream, Arc::clone(place))),
        None => Content::Whole(Full::new(body.into())),
    })
}
