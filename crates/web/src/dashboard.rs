//! The dashboard as one server: who may ask is checked on the head of a request, before anything of it is read.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    time::{Instant, timeout},
};
use trainyard_serve::{
    Bounds, Head, Headers, Intake, Phase, Reply, ReplyRules, Request, Secure, Server, Size, Traffic,
};

use crate::{
    Hub,
    access::{Access, Asker, Credential, Reviewed, Sight, Visitor},
    answer::{Answers, Ask, LIMITS},
    assets::Assets,
    auth::{self, Area, Caller, Codes, Needs, Site, TokenError},
    base::{BasePath, BasePathError, Place},
    hub::{NoStream, StreamAsk},
    refusal::{JSON, NO_STORE, Refusal},
    routes::{self, Route, bad_request},
};

/// Under what the server is counted.
pub const NAME: &str = "dashboard";
/// A browser opens six connections to a page. What holds bytes are documents, and streams with what waits for their readers.
const BOUNDS: Bounds = Bounds {
    size: Size {
        connections: 256,
        bytes: 64 * 1024 * 1024,
        free_bytes: 64 * 1024,
        bytes_a_second: 100_000_000,
    },
    first: Duration::from_secs(10),
    idle: Duration::from_mins(1),
    body: Duration::from_secs(5),
    // Questions have a shorter limit of their own, with an answer of its own.
    request: Duration::from_secs(45),
    answer: Duration::from_secs(30),
};
/// A question has no body.
const NO_BODY: Intake = Intake {
    bytes: 0,
    values: None,
};
/// A login is one short object.
const LOGIN_BODY: Intake = Intake {
    bytes: 1024,
    values: None,
};
/// How often it is looked at what those who read changes may learn of…
const SIGHT_EVERY: Duration = Duration::from_secs(10);
/// …which is nothing where that is not found out within this time.
const SIGHT_WITHIN: Duration = Duration::from_secs(15);
/// The identity of whoever has the token of this server.
const TOKEN_OWNER: &str = "token";
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
/// What the page may load and do: its own files, and nothing of any other origin.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'";

/// How connections are secured.
#[derive(Clone)]
pub struct Tls(pub Secure);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// How a dashboard is reached.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What the header `Host` may be, with its port; see [`crate::local_hosts`].
    pub hosts: Vec<String>,
    /// Whether it may be anything in place of these: where nothing that a browser sends by itself opens the data.
    pub any_host: bool,
    /// How connections are secured; plain ones, where there is nothing.
    pub tls: Option<Tls>,
    /// The path below which everything is served, for a proxy that does not take it away; empty for none.
    pub base_path: String,
    /// A folder with the files of the page in place of those of the program, read for every request.
    pub assets: Option<PathBuf>,
}

/// The dashboard, ready to be served.
#[derive(Clone, Debug)]
pub struct Dashboard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    answers: Answers,
    hub: Arc<Hub>,
    access: Access,
    codes: Mutex<Codes>,
    began: Instant,
    /// The names under which it may be reached; any, where there is nothing.
    hosts: Option<Vec<String>>,
    tls: Option<Tls>,
    base: BasePath,
    assets: Assets,
    traffic: Traffic,
}

impl Dashboard {
    /// A dashboard whose documents come from `ask` and whose changes come from `hub`.
    pub fn new(
        ask: Ask,
        hub: Arc<Hub>,
        access: impl Into<Access>,
        options: Options,
    ) -> Result<Self, BasePathError> {
        Ok(Self(Arc::new(Inner {
            answers: Answers::new(ask, LIMITS),
            hub,
            access: access.into(),
            codes: Mutex::default(),
            began: Instant::now(),
            hosts: (!options.any_host).then_some(options.hosts),
            tls: options.tls,
            base: BasePath::parse(&options.base_path)?,
            assets: Assets::new(options.assets),
            traffic: Traffic::default(),
        })))
    }

    /// A code that a page exchanges for the token, once and within 60 s: the arguments of a browser are visible to all users of
    /// the machine.
    pub fn one_time_code(&self) -> Result<String, TokenError> {
        let mut codes = self.0.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.issue(self.0.now())
    }

    /// What is counted of its connections and requests, under [`NAME`].
    pub fn traffic(&self) -> Traffic {
        self.0.traffic.clone()
    }

    fn server(&self) -> Server {
        let (admits, answers) = (Arc::clone(&self.0), Arc::clone(&self.0));
        Server {
            name: NAME,
            bounds: BOUNDS,
            tls: self.0.tls.clone().map(|Tls(secure)| secure),
            admit: Arc::new(move |head| admits.admit(head).map_err(Refusal::reply)),
            answer: Arc::new(move |request| {
                let inner = Arc::clone(&answers);
                Box::pin(async move { inner.answer(request).await })
            }),
            rules: ReplyRules {
                headers: security_headers(),
                refusal: Some(Arc::new(|status, sentence| {
                    Refusal::of_server(status, sentence).reply()
                })),
            },
            traffic: self.0.traffic.clone(),
        }
    }
}

/// Serves the dashboard until the future is dropped; [`Hub::close`] before that lets pages know.
pub async fn serve(listener: TcpListener, dashboard: Dashboard) {
    let hub = Arc::clone(&dashboard.0.hub);
    let inner = Arc::clone(&dashboard.0);
    tokio::select! {
        () = trainyard_serve::serve(listener, dashboard.server()) => {}
        () = hub.run() => {}
        () = inner.keep_sights() => {}
    }
}

fn security_headers() -> Vec<(HeaderName, HeaderValue)> {
    let fields = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    fields
        .map(|(name, value)| (name, HeaderValue::from_static(value)))
        .into()
}

impl Inner {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The path below `api/`, where it is there.
    fn api<'a>(&self, path: &'a str) -> Option<&'a str> {
        match self.base.place(path) {
            Place::Below("api") => Some(""),
            Place::Below(rest) => rest.strip_prefix("api/"),
            Place::Base | Place::Outside => None,
        }
    }

    fn admit(&self, head: &Head) -> Result<Intake, Refusal> {
        let area = match self.api(&head.path) {
            Some(routes::LOGIN) => Area::Login,
            Some(_) => Area::Api,
            None => Area::Page,
        };
        let site = match head.headers.one(&SEC_FETCH_SITE) {
            Ok(None) => Site::NotSent,
            Ok(Some(site)) => Site::Sent(site),
            Err(_) => Site::Unreadable,
        };
        let needs = match &self.access {
            Access::Token(token) => Needs::Token(token),
            Access::Anyone => Needs::Nothing,
            Access::Reviewed(reviewed) => {
                let authorization = head.authorization.as_ref();
                Needs::Credential(credential(reviewed, authorization, &head.headers).is_some())
            }
        };
        let caller = Caller {
            area,
            method: &head.method,
            host: head.host.as_deref(),
            site,
            authorization: head.authorization.as_ref().map(HeaderValue::as_bytes),
        };
        auth::check(&caller, self.hosts.as_deref(), needs).inspect_err(|refusal| {
            let reason = match refusal.status {
                StatusCode::MISDIRECTED_REQUEST => "wrong_host",
                StatusCode::METHOD_NOT_ALLOWED => "wrong_method",
                StatusCode::FORBIDDEN => "cross_site",
                _ => "no_token",
            };
            self.traffic.refused(NAME, reason);
        })?;
        Ok(if area == Area::Login {
            LOGIN_BODY
        } else {
            NO_BODY
        })
    }

    /// Answers a request that was admitted.
    async fn answer(&self, request: Request) -> Reply {
        if let Some(path) = self.api(&request.path) {
            let route = match routes::parse(path, request.query.as_deref()) {
                Ok(route) => route,
                Err(problem) => return Refusal::from(problem).reply(),
            };
            if route == Route::Login {
                return self.login(&request);
            }
            let (asker, visitor) = match self.asker(&request).await {
                Ok(asker) => asker,
                Err(refusal) => return refusal.reply(),
            };
            return match route {
                Route::Ask(question) => {
                    // Only who has a good token comes this far; its connection is not closed to make room.
                    request.place.set(Phase::Working);
                    self.answers.reply(question, asker, &request.headers).await
                }
                Route::Stream(ask) => self.stream(ask, &request.method, visitor).await,
                Route::Login => self.login(&request),
            };
        }
        let (headers, query) = (&request.headers, request.query.as_deref());
        match self.base.place(&request.path) {
            Place::Base => self.base.redirect(headers.hint(&X_FORWARDED_PREFIX)),
            Place::Below(path) => self.assets.reply(path, query, headers).await,
            Place::Outside => Refusal::new(
                StatusCode::NOT_FOUND,
                "notFound",
                "the path of the request is not below the base path of this server",
                "open the page below the path of `--base-path`",
            )
            .reply(),
        }
    }

    /// Who asks, and for how long that is believed.
    async fn asker(&self, request: &Request) -> Result<(Asker, Option<Visitor>), Refusal> {
        let Access::Reviewed(reviewed) = &self.access else {
            return Ok((Asker::Owner, None));
        };
        let authorization = request.authorization.as_ref();
        let Some(credential) = credential(reviewed, authorization, &request.headers) else {
            return Err(Refusal::internal());
        };
        let visitor = (reviewed.identify)(credential.clone()).await;
        let visitor = visitor.map_err(|problem| {
            self.traffic.refused(NAME, "not_identified");
            Refusal::from(problem)
        })?;
        let identity = Arc::clone(&visitor.identity);
        let asker = Asker::Visitor {
            identity,
            credential,
        };
        Ok((asker, Some(visitor)))
    }

    /// Looks again and again at what those who read changes may learn of.
    async fn keep_sights(&self) {
        let Access::Reviewed(reviewed) = &self.access else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(SIGHT_EVERY).await;
            let visitors = self.hub.visitors();
            let sights = visitors.iter().map(|identity| async move {
                let asked = timeout(SIGHT_WITHIN, (reviewed.sight_of)(Arc::clone(identity)));
                let sight: Sight = asked.await.unwrap_or_default();
                self.hub.set_sight(identity, &sight);
            });
            join_all(sights).await;
        }
    }

    async fn stream(&self, ask: StreamAsk, method: &Method, visitor: Option<Visitor>) -> Reply {
        const TYPE: &str = "text/event-stream";
        let reply = if *method == Method::HEAD {
            Reply::new(StatusCode::OK, TYPE, Vec::new())
        } else {
            let subscribed = match (&self.access, visitor) {
                (Access::Reviewed(reviewed), Some(visitor)) => {
                    let until = Instant::now() + visitor.lasts;
                    let sight = (reviewed.sight_of)(Arc::clone(&visitor.identity)).await;
                    self.hub
                        .subscribe_limited(&visitor.identity, ask, sight, until)
                }
                _ => self.hub.subscribe(TOKEN_OWNER, ask),
            };
            match subscribed {
                Ok(stream) => Reply::stream(TYPE, stream),
                Err(NoStream::TooMany(most)) => {
                    let message = format!("{most} streams of changes are open, the maximum");
                    return Refusal::busy(StatusCode::TOO_MANY_REQUESTS, message).reply();
                }
                Err(NoStream::Closed) => {
                    let message = "the stream of changes has ended, because the server stops";
                    return Refusal::busy(StatusCode::SERVICE_UNAVAILABLE, message).reply();
                }
            }
        };
        let cache = HeaderValue::from_static("no-store, no-transform");
        reply.with(header::CACHE_CONTROL, cache).with(
            HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        )
    }

    /// Exchanges a one-time code for the token.
    fn login(&self, request: &Request) -> Reply {
        let Access::Token(token) = &self.access else {
            let message = "this server has no codes that can be exchanged for a token";
            let hint = "send a token of the cluster with each request";
            return Refusal::new(StatusCode::NOT_FOUND, "notHere", message, hint).reply();
        };
        // A form of another page cannot send this type without asking first.
        let json = request.headers.hint(&header::CONTENT_TYPE);
        let json = json.and_then(|found| found.split(';').next());
        let body = json.filter(|found| found.trim().eq_ignore_ascii_case("application/json"));
        let body = body.and_then(|_| serde_json::from_slice::<Value>(&request.body).ok());
        let Some(code) = body.as_ref().and_then(|body| body.get("code")?.as_str()) else {
            let message =
                "the body of the login is not `{\"code\": …}` of the type `application/json`";
            let hint = "send the code of the URL that `trainyard dashboard --open` opened";
            return Refusal::from(bad_request(message, hint)).reply();
        };
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        if !codes.redeem(code, self.now()) {
            self.traffic.refused(NAME, "wrong_code");
            let message = format!(
                "the code is unknown, was used before, or is older than {} s",
                auth::CODE_LASTS / 1000
            );
            let hint = "open the URL that `trainyard dashboard` printed, with its token";
            let status = StatusCode::UNAUTHORIZED;
            return Refusal::new(status, "unauthorized", message, hint).reply();
        }
        let document = json!({"version": 1, "token": token.expose()});
        let mut reply =
            Reply::json(StatusCode::OK, &document).with(header::CACHE_CONTROL, NO_STORE);
        reply.content_type = JSON;
        reply
    }
}

/// The token that a request carries: in the header of a proxy that is trusted, where it is there, else in its own.
fn credential(
    reviewed: &Reviewed,
    authorization: Option<&HeaderValue>,
    headers: &Headers,
) -> Option<Credential> {
    if let Some(name) = &reviewed.header {
        match headers.one(name) {
            Ok(Some(value)) => {
                let value = HeaderValue::from_str(value).ok()?;
                return Credential::of(&value, true);
            }
            // Two of them are one of somebody else.
            Err(_) => return None,
            Ok(None) => {}
        }
    }
    Credential::of(authorization?, false)
}
