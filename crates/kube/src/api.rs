//! Calls to the API server: bounded in number and time, counted, and fenced.
//!
//! Invariant: an operator whose lease has expired, or whose watches are stale, writes nothing.

use std::{fmt, sync::Arc, time::Duration};

use futures::AsyncReadExt as _;
use kube::{
    Client,
    core::{
        Request,
        params::{DeleteParams, GetParams, Patch, PatchParams, PostParams},
        subresource::LogParams,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;
use tokio::sync::Semaphore;
use tracing::{Instrument as _, field::Empty, info_span};

use crate::{
    kubeconfig,
    lease::Fence,
    log_turns::{self, Turns},
    metrics::Metrics,
    plain, trace,
};

/// The name under which fields are applied.
pub(crate) const FIELD_MANAGER: &str = "trainyard";
/// One call takes at most this long.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verb {
    /// Read it.
    Get,
    /// Make it.
    Create,
    /// Change it.
    Patch,
    /// Write it again.
    Update,
    /// Remove it.
    Delete,
}

impl Verb {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// Why a call came to nothing.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    /// Another operator is the leader now, or what this one sees is stale.
    #[error("this operator may not write: it does not lead, or its watches are stale")]
    Deposed,
    /// No answer in time.
    #[error("the API server did not answer within {} s", PATIENCE.as_secs())]
    Late,
    /// The API server could not be asked, or said no.
    #[error("{0}")]
    Kube(Answer),
}

/// What the API server said, in its own words and without ours around them.
#[derive(Debug)]
pub(crate) struct Answer(pub(crate) kube::Error);

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            kube::Error::Api(status) if !status.message.is_empty() => f.write_str(&status.message),
            kube::Error::Api(status) => write!(f, "it returned HTTP status {}", status.code),
            error @ (kube::Error::Service(_) | kube::Error::HyperError(_)) => {
                write!(f, "cannot reach the API server: {}", plain::reason(error))
            }
            error @ kube::Error::ReadEvents(_) => {
                let why = plain::reason(error);
                write!(f, "the connection to the API server broke: {why}")
            }
            kube::Error::SerdeError(error) => {
                write!(f, "cannot read the answer of the API server: {error}")
            }
            error @ kube::Error::Auth(_) => f.write_str(&kubeconfig::unusable(error)),
            error => f.write_str(&plain::reason(error)),
        }
    }
}

impl CallError {
    /// The status code of the answer, where there was one.
    pub(crate) fn code(&self) -> Option<u16> {
        self.status().map(|(code, _)| code)
    }

    /// How long the API server asks to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let Self::Kube(Answer(kube::Error::Api(status))) = self else {
            return None;
        };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    fn status(&self) -> Option<(u16, &str)> {
        match self {
            Self::Kube(Answer(kube::Error::Api(status))) => Some((status.code, &status.reason)),
            _ => None,
        }
    }

    /// Whether there is no such object.
    pub(crate) fn is_not_found(&self) -> bool {
        self.status().is_some_and(|(code, _)| code == 404)
    }

    /// Whether an object of that name is there already.
    pub(crate) fn is_taken(&self) -> bool {
        self.status()
            .is_some_and(|(code, reason)| code == 409 && reason == "AlreadyExists")
    }

    /// Whether the object is another, or another version, than the one meant.
    pub(crate) fn is_conflict(&self) -> bool {
        self.status()
            .is_some_and(|(code, reason)| code == 409 && reason != "AlreadyExists")
    }

    /// Whether the API server understood and refused, so that an immediate retry is useless. A webhook
    /// that does not respond is reported as a server error, and refuses as long as it is down.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Kube(Answer(kube::Error::Api(status))) => {
                matches!(status.code, 400 | 403 | 413 | 422)
                    || status.code == 500 && status.message.contains("failed calling webhook")
            }
            _ => false,
        }
    }
}

/// The way to the API server.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) client: Client,
    pub(crate) fence: Fence,
    pub(crate) metrics: Arc<Metrics>,
    turns: Arc<Semaphore>,
    /// A log comes from the pod's node, which may be dead: those who wait for one take no turn from other calls.
    log_turns: Arc<Semaphore>,
    /// Those of reports of preflights, which may take longest.
    pub(crate) report_turns: Arc<Turns>,
}

impl Caller {
    /// At most `at_once` calls are under way at any time.
    pub(crate) fn new(client: Client, fence: Fence, metrics: Arc<Metrics>, at_once: usize) -> Self {
        Self {
            client,
            fence,
            metrics,
            turns: Arc::new(Semaphore::new(at_once)),
            log_turns: Arc::new(Semaphore::new(log_turns::AT_ONCE)),
            report_turns: Arc::new(Turns::of_reports()),
        }
    }

    /// The same way, for what every replica may do, whoever leads.
    pub(crate) fn unfenced(&self) -> Self {
        Self {
            fence: Fence::open(),
            ..self.clone()
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
    ) -> Result<T, CallError> {
        let request = Request::new(path).get(name, &GetParams::default());
        self.call(Verb::Get, path, request).await
    }

    pub(crate) async fn create<T: DeserializeOwned>(
        &self,
        path: &str,
        object: &impl Serialize,
    ) -> Result<T, CallError> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let body = serde_json::to_vec(object).expect("objects have string keys");
        self.call(Verb::Create, path, Request::new(path).create(&params, body))
            .await
    }

    /// Brings the fields of `object` to be, whoever set them before.
    pub(crate) async fn apply<T: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        object: &serde_json::Value,
    ) -> Result<T, CallError> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let request = Request::new(path).patch(name, &params, &Patch::Apply(object));
        self.call(Verb::Patch, path, request).await
    }

    /// Changes an object by what `change` states, lists by the keys of their items.
    pub(crate) async fn merge<T: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        change: &serde_json::Value,
    ) -> Result<T, CallError> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let request = Request::new(path).patch(name, &params, &Patch::Strategic(change));
        self.call(Verb::Patch, path, request).await
    }

    /// Replaces an object, which must be of the version that `object` states.
    pub(crate) async fn replace<T: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        object: &impl Serialize,
    ) -> Result<T, CallError> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let body = serde_json::to_vec(object).expect("objects have string keys");
        let request = Request::new(path).replace(name, &params, body);
        self.call(Verb::Update, path, request).await
    }

    /// Changes an object by `operations`, all of them or none.
    pub(crate) async fn json_patch(
        &self,
        path: &str,
        name: &str,
        operations: &serde_json::Value,
    ) -> Result<(), CallError> {
        self.json_patched::<serde::de::IgnoredAny>(path, name, operations)
            .await
            .map(drop)
    }

    /// The same; what it is like then.
    pub(crate) async fn json_patched<T: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        operations: &serde_json::Value,
    ) -> Result<T, CallError> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let request = Request::new(path).patch(name, &params, &Patch::Merge(operations));
        let request = request.map(as_json_patch);
        self.call(Verb::Patch, path, request).await
    }

    /// Changes the status of an object by `operations`, all of them or none.
    pub(crate) async fn patch_status(
        &self,
        path: &str,
        name: &str,
        operations: &serde_json::Value,
    ) -> Result<(), CallError> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let request = Request::new(path)
            .patch_subresource("status", name, &params, &Patch::Merge(operations))
            .map(as_json_patch);
        self.call::<serde::de::IgnoredAny>(Verb::Patch, path, request)
            .await
            .map(drop)
    }

    /// Replaces the status of version `version` of an object.
    pub(crate) async fn replace_status<T: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        version: u64,
        status: &impl Serialize,
    ) -> Result<T, CallError> {
        let operations = serde_json::json!([
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version.to_string()},
            {"op": "add", "path": "/status", "value": status},
        ]);
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let request = Request::new(path)
            .patch_subresource("status", name, &params, &Patch::Merge(&operations))
            .map(as_json_patch);
        self.call(Verb::Patch, path, request).await
    }

    /// Removes an object; whether it was there. One that is gone, or that is another by now, is as good as removed.
    pub(crate) async fn delete(
        &self,
        path: &str,
        name: &str,
        params: &DeleteParams,
    ) -> Result<bool, CallError> {
        let request = Request::new(path).delete(name, params);
        match self
            .call::<serde::de::IgnoredAny>(Verb::Delete, path, request)
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// At most `most` bytes of the log of a pod.
    pub(crate) async fn log(
        &self,
        path: &str,
        name: &str,
        params: &LogParams,
        most: usize,
    ) -> Result<Vec<u8>, CallError> {
        let request = Request::new(path).logs(name, params);
        let request =
            request.map_err(|error| CallError::Kube(Answer(kube::Error::BuildRequest(error))))?;
        let _turn = self.log_turns.acquire().await;
        let span = info_span!(
            target: trace::TARGET, "call", verb = Verb::Get.name(), resource = "pods/log", code = Empty,
        );
        let read = async {
            let reader = self.client.request_stream(request).await;
            let reader = reader.map_err(|error| CallError::Kube(Answer(error)))?;
            let mut bytes = Vec::new();
            let mut reader = std::pin::pin!(reader.take(most as u64));
            let read = reader.read_to_end(&mut bytes).await;
            read.map(|_| bytes).map_err(|_| CallError::Late)
        };
        let answer = tokio::time::timeout(PATIENCE, read.instrument(span.clone())).await;
        let answer = answer.unwrap_or(Err(CallError::Late));
        let code = match &answer {
            Ok(_) => 200,
            Err(error) => error.status().map_or(0, |(code, _)| code),
        };
        span.record("code", code);
        self.metrics.called(Verb::Get.name(), "pods/log", code);
        answer
    }

    async fn call<T: DeserializeOwned>(
        &self,
        verb: Verb,
        path: &str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, CallError> {
        let request =
            request.map_err(|error| CallError::Kube(Answer(kube::Error::BuildRequest(error))))?;
        let _turn = self.turns.acquire().await;
        if verb != Verb::Get && !self.fence.holds() {
            return Err(CallError::Deposed);
        }
        let span = info_span!(
            target: trace::TARGET, "call", verb = verb.name(), resource = resource(path), code = Empty,
        );
        let asked = self.client.request::<T>(request).instrument(span.clone());
        let answer = tokio::time::timeout(PATIENCE, asked).await;
        let (answer, code) = match answer {
            Err(_) => (Err(CallError::Late), 0),
            Ok(Ok(answer)) => (Ok(answer), 200),
            Ok(Err(error)) => {
                let error = CallError::Kube(Answer(error));
                let code = error.status().map_or(0, |(code, _)| code);
                (Err(error), code)
            }
        };
        span.record("code", code);
        self.metrics.called(verb.name(), resource(path), code);
        answer
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

/// A request whose body is a list of operations. The client writes any body; only the content type
/// says what it is.
fn as_json_patch(mut request: http::Request<Vec<u8>>) -> http::Request<Vec<u8>> {
    request.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json-patch+json"),
    );
    request
}

/// The last word of a path: the resource.
fn resource(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16, reason: &str) -> CallError {
        let status = serde_json::json!({"status": "Failure", "code": code, "reason": reason,
            "message": "pods \"j-worker-0\" is forbidden: exceeded quota"});
        let status = serde_json::from_value(status).unwrap();
        CallError::Kube(Answer(kube::Error::Api(Box::new(status))))
    }

    #[test]
    fn what_an_answer_means() {
        let cases = [
            (error(404, "NotFound"), [true, false, false, false]),
            (error(409, "AlreadyExists"), [false, true, false, false]),
            (error(409, "Conflict"), [false, false, true, false]),
            (error(403, "Forbidden"), [false, false, false, true]),
            (error(422, "Invalid"), [false, false, false, true]),
            (error(500, "InternalError"), [false; 4]),
            (error(429, "TooManyRequests"), [false; 4]),
            (CallError::Late, [false; 4]),
        ];
        for (error, want) in cases {
            let found = [
                error.is_not_found(),
                error.is_taken(),
                error.is_conflict(),
                error.is_refusal(),
            ];
            assert_eq!(found, want, "{error}");
        }
        let webhook = serde_json::json!({"status": "Failure", "code": 500,
            "message": "Internal error occurred: failed calling webhook \"a.example\": refused"});
        let webhook = serde_json::from_value(webhook).unwrap();
        assert!(CallError::Kube(Answer(kube::Error::Api(Box::new(webhook)))).is_refusal());
        let words = error(403, "Forbidden").to_string();
        assert_eq!(words, "pods \"j-worker-0\" is forbidden: exceeded quota");
    }
}
