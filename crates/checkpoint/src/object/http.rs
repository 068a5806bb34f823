//! The connections to an object store: hyper and rustls, as the client of a cluster has them.
//!
//! Every answer is read whole before it is handed on, so a body that breaks off is an answer that did not come. What failed in
//! a way that can pass (a server that is busy, a connection that broke, no answer in time) is sent again with the same bytes, and
//! with a bound. Every request of ours may be carried out twice: a conditional one then answers that the name is taken, and
//! whoever published reads back what it has.

use std::{
    error::Error,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector as Tcp},
    rt::{TokioExecutor, TokioTimer},
};
use object_store::{
    ClientConfigKey, ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpResponseBody, HttpService,
    },
};
use rustls::ClientConfig;
use tokio::time::{Instant, sleep, timeout};

use super::failure::{Trouble, code};
use crate::token::Random;

/// Most bytes of an answer: a range of a file, or a page of a listing.
const MAX_ANSWER: usize = 64 << 20;

/// Connections that are kept for the next request.
const IDLE_CONNECTIONS: usize = 16;

/// The query of a request that exchanges the token of a service account for credentials.
const WEB_IDENTITY: &str = "Action=AssumeRoleWithWebIdentity";

/// How long requests may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How often a request is sent at most.
    pub tries: u32,
    /// How long a connection may take to be made.
    pub connect: Duration,
    /// How long one try may take, from the first byte out to the last byte in.
    pub each: Duration,
    /// No try begins later than this after the first one.
    pub all: Duration,
    /// The first pause between two tries; doubled up to `longest_pause`.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            tries: 8,
            connect: Duration::from_secs(5),
            each: Duration::from_mins(1),
            all: Duration::from_mins(3),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(5),
        }
    }
}

impl Patience {
    /// The longest that a request can take with all its tries, and some time for the way there.
    pub(super) fn longest(&self) -> Duration {
        self.all + self.each + self.longest_pause + Duration::from_secs(10)
    }
}

/// Makes connections for the client of S3.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    client: Client<HttpsConnector<Tcp>, Full<Bytes>>,
    patience: Patience,
    /// Pauses of many ranks must not fall together.
    seed: Arc<AtomicU64>,
    /// Servers beside the addresses of clouds that give credentials, as the settings name them.
    metadata: Arc<[Server]>,
}

/// A host in lower case, and its port.
pub(super) type Server = (String, u16);

/// The server of an address. Names do not differ by case, and a port that is not written is that of the scheme.
pub(super) fn server(uri: &http::Uri) -> Option<Server> {
    let scheme_port = if uri.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    let host = uri.host()?.to_ascii_lowercase();
    Some((host, uri.port_u16().unwrap_or(scheme_port)))
}

impl Connections {
    pub(super) fn new(
        tls: ClientConfig,
        patience: Patience,
        seed: u64,
        metadata: Vec<Server>,
    ) -> Self {
        let mut tcp = Tcp::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(patience.connect));
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(20))
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(https);
        Self {
            client,
            patience,
            seed: Arc::new(AtomicU64::new(seed)),
            metadata: metadata.into(),
        }
    }

    /// What sends requests; plain HTTP only where it is allowed.
    pub(super) fn service(&self, may_be_plain: bool) -> HttpClient {
        HttpClient::new(Service {
            connections: self.clone(),
            may_be_plain,
        })
    }

    /// A pause of half to all of the time.
    fn jitter(&self, pause: Duration) -> Duration {
        let number = Random::new(self.seed.fetch_add(1, Ordering::Relaxed)).below(512);
        pause / 2 + pause / 2 * u32::try_from(number).unwrap_or(0) / 512
    }

    async fn send(&self, request: http::Request<Full<Bytes>>) -> Result<Answer, Trouble> {
        let answer = self.client.request(request).await.map_err(|error| {
            let why = cause(&error);
            if error.is_connect() {
                Trouble::Connect(why)
            } else {
                Trouble::Broken(why)
            }
        })?;
        let (parts, mut body) = answer.into_parts();
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Trouble::Broken(cause(&error)))?;
            if let Some(data) = frame.data_ref() {
                if bytes.len() + data.len() > MAX_ANSWER {
                    return Err(Trouble::Long(MAX_ANSWER));
                }
                bytes.extend_from_slice(data);
            }
        }
        Ok((parts, bytes.freeze()))
    }
}

impl HttpConnector for Connections {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp);
        Ok(self.service(plain.as_deref() == Some("true")))
    }
}

type Answer = (http::response::Parts, Bytes);

#[derive(Debug)]
struct Service {
    connections: Connections,
    may_be_plain: bool,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let failed = |trouble| HttpError::new(HttpErrorKind::Unknown, trouble);
        let uri = request.uri();
        let is_metadata = is_metadata(uri, &self.connections.metadata);
        let is_identity = uri
            .query()
            .is_some_and(|query| query.contains(WEB_IDENTITY));
        if request.uri().scheme_str() != Some("https") && !self.may_be_plain && !is_metadata {
            return Err(failed(Trouble::Plain));
        }
        let mut patience = self.connections.patience;
        if is_metadata {
            patience.tries = patience.tries.min(2);
            patience.each = patience.each.min(Duration::from_secs(2));
        }
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let is_conditional = parts.headers.contains_key(header::IF_NONE_MATCH);
        let start = Instant::now();
        let mut pause = patience.first_pause;
        let mut tries = 1;
        loop {
            let request = http::Request::from_parts(parts.clone(), Full::new(body.clone()));
            let answer = match timeout(patience.each, self.connections.send(request)).await {
                Ok(answer) => answer,
                Err(_) => Err(Trouble::Slow(patience.each)),
            };
            let may_pass = match &answer {
                Ok((answer, body)) => {
                    is_passing(&parts.method, answer.status, is_conditional, body)
                }
                Err(Trouble::Long(_)) => false,
                Err(_) => true,
            };
            let is_last = tries >= patience.tries || start.elapsed() >= patience.all;
            if !may_pass || is_last {
                let answer = answer.and_then(|answer| handed_on(&parts.method, answer));
                return answer.map_err(|trouble| match trouble {
                    // Its 404 means that there is no role. An object that is missing is something else.
                    _ if is_metadata => failed(Trouble::NoCredentials),
                    Trouble::Answer(status, code) if is_identity => {
                        failed(Trouble::Credentials(status, code))
                    }
                    trouble => failed(trouble),
                });
            }
            sleep(self.connections.jitter(pause)).await;
            pause = (pause * 2).min(patience.longest_pause);
            tries += 1;
        }
    }
}

/// Whether a server gives credentials: one that the settings name, or the address at which clouds give them to their machines and
/// containers.
pub(super) fn is_metadata(uri: &http::Uri, named: &[Server]) -> bool {
    let Some(server) = server(uri) else {
        return false;
    };
    let address = server.0.parse::<Ipv4Addr>();
    address.is_ok_and(|address| address.is_link_local()) || named.contains(&server)
}

/// Whether the same request may succeed later.
fn is_passing(method: &Method, status: StatusCode, is_conditional: bool, body: &[u8]) -> bool {
    match status.as_u16() {
        408 | 429 | 500 | 502 | 503 | 504 => true,
        // Two conditional writes of one name at the same time.
        409 => is_conditional,
        // The end of an upload can begin its answer before it knows.
        200 => *method == Method::POST && code(body).is_some(),
        _ => false,
    }
}

/// The answer for the client of S3. Of an error only its status and its code are left: the rest can name keys and signatures.
fn handed_on(method: &Method, (parts, body): Answer) -> Result<HttpResponse, Trouble> {
    let code = code(&body);
    let is_late = *method == Method::POST && code.is_some() && parts.status.is_success();
    if is_late {
        return Err(Trouble::Answer(StatusCode::INTERNAL_SERVER_ERROR, code));
    }
    if !parts.status.is_success() {
        return Err(Trouble::Answer(parts.status, code));
    }
    Ok(HttpResponse::from_parts(
        parts,
        HttpResponseBody::from(body),
    ))
}

/// The last cause, which is that of the system.
fn cause(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    for _ in 0..32 {
        match last.source() {
            Some(cause) => last = cause,
            None => break,
        }
    }
    last.to_string().chars().take(200).collect()
}
