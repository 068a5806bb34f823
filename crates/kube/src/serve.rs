//! HTTP servers of the operator: plain for metrics and health, TLS for webhooks.
//!
//! Owns listening and the bounds of every connection and request. What is answered is its callers'.
//!
//! Invariant: nothing a client does takes more than its bounds: connections at once, the time of a
//! handshake, of the head and of the whole request, the size of the body.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

#[cfg(test)]
mod tests;

/// A handshake takes at most this long.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A connection waits this long for the head of its next request. The API server keeps connections
/// for 90 s; one that is closed under its hands costs it a try.
const HEAD: Duration = Duration::from_secs(100);
/// Reading a request and answering it take at most this long; the API server waits at most 30 s.
const REQUEST: Duration = Duration::from_secs(30);
/// Wait after a connection could not be taken, as when descriptors have run out.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Where a server listens, as users write it: `:8080`, `127.0.0.1:8080`, and `0` or nothing for not
/// at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// Not at all.
    #[default]
    Off,
    /// On a port, of one address or of all.
    At {
        /// The address; all of this machine where there is none.
        host: Option<IpAddr>,
        /// The port; 0 is any free one.
        port: u16,
    },
}

/// A text that names no place to listen.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a port such as `:8080`, an address such as `127.0.0.1:8080`, or `0` for none is needed")]
pub struct BindError;

impl FromStr for Bind {
    type Err = BindError;

    fn from_str(text: &str) -> Result<Self, BindError> {
        if matches!(text, "" | "0") {
            return Ok(Self::Off);
        }
        if let Some(port) = text.strip_prefix(':') {
            let port = port.parse().map_err(|_| BindError)?;
            return Ok(Self::At { host: None, port });
        }
        let address: SocketAddr = text.parse().map_err(|_| BindError)?;
        Ok(Self::At {
            host: Some(address.ip()),
            port: address.port(),
        })
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Off => f.write_str("0"),
            Self::At { host: None, port } => write!(f, ":{port}"),
            Self::At {
                host: Some(host),
                port,
            } => SocketAddr::new(host, port).fmt(f),
        }
    }
}

impl Bind {
    /// Listens; nothing where it is off.
    pub(crate) async fn listen(self) -> io::Result<Option<TcpListener>> {
        let Self::At { host, port } = self else {
            return Ok(None);
        };
        let listener = match host {
            Some(host) => TcpListener::bind((host, port)).await?,
            // One socket for both families, where the machine has both.
            None => match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
                Ok(listener) => listener,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
                Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?,
            },
        };
        Ok(Some(listener))
    }
}

/// What a server lets its clients take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Connections at once; others wait.
    pub(crate) connections: usize,
    /// Bytes of a body.
    pub(crate) body: usize,
}

/// A request, read to its end.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
}

/// What is answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
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
        }
    }

    pub(crate) fn not_found(path: &str) -> Self {
        Self::text(StatusCode::NOT_FOUND, format!("nothing is at `{path}`"))
    }

    pub(crate) fn wrong_method(needed: &Method) -> Self {
        Self::text(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("only `{needed}` is answered here"),
        )
    }
}

/// How a server answers.
pub(crate) type Answer = Arc<dyn Fn(Request) -> BoxFuture<'static, Reply> + Send + Sync>;

/// Serves `listener` for ever.
pub(crate) async fn serve(
    listener: TcpListener,
    bounds: Bounds,
    tls: Option<TlsAcceptor>,
    answer: Answer,
) {
    let turns = Arc::new(Semaphore::new(bounds.connections));
    loop {
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "cannot take a connection; trying again");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let (tls, answer) = (tls.clone(), Arc::clone(&answer));
        tokio::spawn(async move {
            let _turn = turn;
            connection(stream, bounds, tls, answer).await;
        });
    }
}

async fn connection(stream: TcpStream, bounds: Bounds, tls: Option<TlsAcceptor>, answer: Answer) {
    let Some(tls) = tls else {
        return talk(stream, bounds, answer).await;
    };
    match timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => talk(stream, bounds, answer).await,
        Ok(Err(error)) => debug!(%error, "handshake failed"),
        Err(_) => debug!("handshake took too long"),
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    bounds: Bounds,
    answer: Answer,
) {
    let service = service_fn(move |request| {
        let answer = Arc::clone(&answer);
        async move {
            let reply = match timeout(REQUEST, one(request, bounds, answer)).await {
                Ok(reply) => reply,
                Err(_) => Reply::text(
                    StatusCode::REQUEST_TIMEOUT,
                    format!("not done within {} s", REQUEST.as_secs()),
                ),
            };
            Ok::<_, std::convert::Infallible>(respond(reply))
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        debug!(%error, "connection ended early");
    }
}

async fn one(request: hyper::Request<Incoming>, bounds: Bounds, answer: Answer) -> Reply {
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, bounds.body).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return Reply::text(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body has more than {} bytes", bounds.body),
            );
        }
        Err(error) => return Reply::text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    answer(Request {
        method: head.method,
        path: head.uri.path().to_owned(),
        body,
    })
    .await
}

fn respond(reply: Reply) -> hyper::Response<Full<Bytes>> {
    let mut response = hyper::Response::new(Full::new(reply.body.into()));
    *response.status_mut() = reply.status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static(reply.content_type),
    );
    response
}
