//! Progress that training programs send, by the protocol of Kubeflow Trainer: `POST` of a JSON body with the pod's own token.
//!
//! Owns who may send and what is answered. What a body means is `trainyard_core::progress::push`'s, how pods get the address is
//! `trainyard_core::launch::push`'s, and what follows is the same as for a line that was read.
//!
//! # Flow
//!
//! ```text
//! head ─▶ path, token, leader ─▶ body ─▶ whose token ─▶ pod of that job? ─▶ rate ─▶ attempt ─▶ `progress`
//! ```
//!
//! # Guarantees
//!
//! - The API server says which pod a token is of, and that it is meant for the address of this one job. An update changes nothing but
//!   the progress of the job that this pod belongs to.
//! - Only the leader takes updates. A replica that stands by answers 503 and closes the connection, so that the next one may reach the
//!   leader: all replicas are behind one Service, and no client has to know which one leads.
//! - No token is kept, logged or put into an answer.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::FutureExt as _;
use http::{HeaderValue, Method, StatusCode};
use serde_json::json;
use tracing::info;
use trainyard_core::{
    job::{Decision, Event, EventKind},
    launch::push::{self as launched, Push},
    progress::push::{self, UPDATES_A_SECOND, Update},
    spec::{Job, Kind, ProgressBy, count::Values},
};

use super::tokens::{Claims, TokenError, Tokens};
use crate::{
    certificate::Certificate,
    crd,
    key::JobKey,
    operator::Operator,
    serve::{Admit, Answer, Bounds, Head, Intake, Reply, Request, Size, Traffic, counted},
    view::JobView,
};

/// Under what its connections are counted.
pub(crate) const NAME: &str = "progress";

/// A client sends a few hundred bytes every 5 s. Bodies and answers together take at most 40 MiB.
pub(crate) const BOUNDS: Bounds = Bounds {
    size: Size {
        connections: 512,
        bytes: 8 * 1024 * 1024,
        free_bytes: push::BYTES,
        bytes_a_second: 20_000_000,
    },
    first: Duration::from_secs(5),
    idle: Duration::from_secs(30),
    body: Duration::from_secs(5),
    request: Duration::from_secs(15),
    answer: Duration::from_secs(5),
};
/// 256 metrics are some 2,000 values.
const INTAKE: Intake = Intake {
    bytes: push::BYTES,
    values: Some(|| counted(Values::InAll(8_000))),
};
/// After how many seconds a client should send again: as long as clients wait between two updates.
const RETRY_AFTER: u32 = 5;
/// The longest name of a job or namespace that is repeated in an answer.
const CHARS: usize = 64;

/// Who sends progress, and where to.
#[derive(Debug, Default)]
pub(crate) struct Pushes {
    tokens: Tokens,
    served: OnceLock<Served>,
}

#[derive(Debug)]
struct Served {
    certificate: Arc<Certificate>,
    /// Scheme, host and port, as pods reach it.
    server: String,
}

impl Pushes {
    /// Updates are taken from now on, with this certificate, at the operator's Service in `namespace`.
    pub(crate) fn begin(&self, certificate: Arc<Certificate>, namespace: &str) {
        let server = format!(
            "https://{}.{namespace}.svc:{}",
            crd::SERVICE,
            launched::PORT
        );
        let begun = Served {
            certificate,
            server,
        };
        self.tokens.begin();
        drop(self.served.set(begun));
    }

    /// Whether updates are taken.
    pub(crate) fn are_taken(&self) -> bool {
        self.served.get().is_some()
    }

    /// Where pods send their progress; else why nowhere.
    fn target(&self) -> Result<Push, &'static str> {
        let served = self.served.get().ok_or(
            "this operator accepts no progress updates: start it with `--progress-bind` (chart: `progressPush: true`)",
        )?;
        let authority = served.certificate.authority().ok_or(
            "the CA of the operator's certificate is unknown: there is no certificate yet, or its folder has no `ca.crt`",
        )?;
        Ok(Push {
            server: served.server.clone(),
            authority,
        })
    }
}

/// Why an update is not taken.
#[derive(Debug)]
struct Refused {
    /// Under what it is counted.
    result: &'static str,
    status: StatusCode,
    /// As the API server calls it.
    reason: &'static str,
    sentence: String,
    retry_after: Option<u32>,
}

impl Refused {
    fn new(
        result: &'static str,
        status: StatusCode,
        reason: &'static str,
        sentence: impl Into<String>,
    ) -> Self {
        Self {
            result,
            status,
            reason,
            sentence: sentence.into(),
            retry_after: None,
        }
    }

    fn later(
        result: &'static str,
        status: StatusCode,
        reason: &'static str,
        sentence: impl Into<String>,
    ) -> Self {
        Self {
            retry_after: Some(RETRY_AFTER),
            ..Self::new(result, status, reason, sentence)
        }
    }

    fn no_token() -> Self {
        let sentence = "no token of a pod: send `Authorization: Bearer TOKEN` with the content of the file that \
                        `KUBEFLOW_TRAINER_SERVER_TOKEN` names";
        let status = StatusCode::UNAUTHORIZED;
        Self::new("no_token", status, "Unauthorized", sentence)
    }

    fn forbidden(namespace: &str, name: &str) -> Self {
        let short = |text: &str| text.chars().take(CHARS).collect::<String>();
        let (namespace, name) = (short(namespace), short(name));
        let sentence = format!(
            "the token does not belong to a pod of job `{namespace}/{name}`, or is not meant for its progress"
        );
        Self::new("forbidden", StatusCode::FORBIDDEN, "Forbidden", sentence)
    }

    /// Why a token was not taken.
    fn by_token(error: TokenError, namespace: &str, name: &str) -> Self {
        let (result, status, reason) = match error {
            TokenError::Forbidden => return Self::forbidden(namespace, name),
            TokenError::TooMany => {
                let status = StatusCode::TOO_MANY_REQUESTS;
                ("too_often", status, "TooManyRequests")
            }
            TokenError::NotReviewed | TokenError::TimedOut => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                ("unavailable", status, "ServiceUnavailable")
            }
        };
        Self::later(result, status, reason, error.to_string())
    }

    /// The answer, in the form of the API server.
    fn reply(self) -> Reply {
        let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.sentence, "reason": self.reason, "code": self.status.as_u16()});
        let mut reply = Reply::json(self.status, &body);
        reply.retry_after = self.retry_after;
        reply
    }
}

/// Which requests are read, and how much of them.
pub(crate) fn admits(operator: Operator, traffic: Traffic) -> Admit {
    Arc::new(move |head| operator.admit_push(head, &traffic))
}

/// Answers updates.
pub(crate) fn updates(operator: Operator) -> Answer {
    Arc::new(move |request| {
        let operator = operator.clone();
        async move { operator.answer_push(request).await }.boxed()
    })
}

impl Operator {
    /// Whether an update is read; else what is answered, and the connection is closed.
    pub(crate) fn admit_push(&self, head: &Head, traffic: &Traffic) -> Result<Intake, Reply> {
        if launched::job_at(&head.path).is_none() {
            traffic.refused(NAME, "not_found");
            return Err(Reply::not_found(&head.path));
        }
        if head.method != Method::POST {
            traffic.refused(NAME, "wrong_method");
            return Err(Reply::wrong_method(&Method::POST));
        }
        let refused = if bearer(head.authorization.as_ref()).is_none() {
            Refused::no_token()
        } else if !*self.leads().borrow() || !self.sees() {
            Refused::later(
                "not_leading",
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailable",
                "this replica of the operator does not lead, or has not listed the jobs yet; retry on a new connection, \
                 which may reach the leader",
            )
        } else {
            return Ok(INTAKE);
        };
        self.caller.metrics.progress.pushed(refused.result);
        Err(refused.reply())
    }

    /// Answers an update whose head was admitted.
    pub(crate) async fn answer_push(&self, request: Request) -> Reply {
        let Request {
            path,
            authorization,
            body,
            ..
        } = request;
        let (result, reply) = match self.take_push(&path, authorization.as_ref(), &body).await {
            Ok((result, update)) => (result, Reply::json(StatusCode::OK, &update)),
            Err(refused) => (refused.result, refused.reply()),
        };
        self.caller.metrics.progress.pushed(result);
        reply
    }

    async fn take_push(
        &self,
        path: &str,
        authorization: Option<&HeaderValue>,
        body: &[u8],
    ) -> Result<(&'static str, Update), Refused> {
        let token = bearer(authorization).ok_or_else(Refused::no_token)?;
        let (namespace, name) = launched::job_at(path).ok_or_else(Refused::no_token)?;
        let claims = Claims::of(token).ok_or_else(Refused::no_token)?;
        let forbidden = || Refused::forbidden(namespace, name);
        let pod = claims.pod();
        let (key, owner) = self.job_of(namespace, name, pod).ok_or_else(forbidden)?;
        let audience = launched::audience(namespace, name);
        let tokens = &self.pushes.tokens;
        tokens
            .check(&self.caller, token, &claims, namespace, &audience)
            .await
            .map_err(|error| Refused::by_token(error, namespace, name))?;
        if !tokens.senders().takes(pod, tokens.now()) {
            return Err(Refused::later(
                "too_often",
                StatusCode::TOO_MANY_REQUESTS,
                "TooManyRequests",
                format!("a pod may send {UPDATES_A_SECOND} update a second; send one every 5 s"),
            ));
        }
        let update = push::update(body).map_err(|error| {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            Refused::new("invalid", status, "Invalid", error.to_string())
        })?;
        let Some(status) = &update.trainer_status else {
            return Ok(("empty", update));
        };
        let is_step = self.take_sent(&key, (pod, &owner), &status.reading()).await;
        match is_step {
            Some(true) => Ok(("step", update)),
            Some(false) => Ok(("no_step", update)),
            None => Err(Refused::later(
                "other_attempt",
                StatusCode::CONFLICT,
                "Conflict",
                "the pod does not belong to the running attempt, or the operator has not seen it running yet",
            )),
        }
    }

    /// The job of that name, of whatever kind, which the pod belongs to, and who owns the pod.
    fn job_of(&self, namespace: &str, name: &str, pod: &str) -> Option<(JobKey, String)> {
        let store = self.state.store();
        Kind::READ.into_iter().find_map(|kind| {
            let key = JobKey {
                kind,
                namespace: namespace.into(),
                name: name.into(),
            };
            let owner = store.pod_owner(&key, pod)?;
            Some((key, owner))
        })
    }

    /// Where the pods of a job send their progress. A job that asks for it and cannot have it gets an event that says why, once for each attempt.
    pub(crate) fn push_of(
        &self,
        key: &JobKey,
        view: &JobView,
        job: &Job,
        decision: &Decision,
    ) -> Option<Push> {
        let attempt = decision.status.trainyard.attempt;
        if job.settings.progress != ProgressBy::Push || attempt == 0 {
            return None;
        }
        let why = match self.pushes.target() {
            Ok(push) => return Some(push),
            Err(why) => why,
        };
        if self.state.memory(key).unsent_attempt != attempt {
            self.state
                .remember(key, |memory| memory.unsent_attempt = attempt);
            let message = format!(
                "`trainyard.dev/progress: push` has no effect in attempt {attempt}: {why}; progress is read from logs"
            );
            info!(job = %key, sentence = message, "Event");
            let event = Event {
                kind: EventKind::Warning,
                reason: "ProgressPushOff".to_owned(),
                message,
            };
            self.emit_event(key, &view.metadata.uid, attempt, &event);
        }
        None
    }
}

/// The token of an `Authorization` header.
fn bearer(authorization: Option<&HeaderValue>) -> Option<&str> {
    let mut words = authorization?.to_str().ok()?.split_ascii_whitespace();
    let scheme = words.next()?;
    let token = words.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && words.next().is_none()).then_some(token)
}
