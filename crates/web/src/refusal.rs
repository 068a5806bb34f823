//! Answers that are no documents: why not, and what to do next, in one form.

use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::json;
use trainyard_serve::Reply;

use crate::{Problem, ProblemCode};

/// The type of every document.
pub(crate) const JSON: &str = "application/json; charset=utf-8";
/// What nobody may store.
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Why a request has no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: String,
    /// A header field that belongs to the status.
    pub(crate) field: Option<Box<(HeaderName, HeaderValue)>>,
    /// After how many seconds to retry.
    pub(crate) retry_after: Option<u32>,
}

impl Refusal {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            hint: hint.into(),
            field: None,
            retry_after: None,
        }
    }

    /// Too much at once.
    pub(crate) fn busy(status: StatusCode, message: impl Into<String>) -> Self {
        let mut refusal = Self::new(status, "busy", message, "retry in a second");
        refusal.retry_after = Some(1);
        refusal
    }

    /// A defect of this program.
    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the answer failed because of a defect of this program",
            "look for the panic on the standard error of `trainyard dashboard`, and report it",
        )
    }

    /// What the server below refuses by itself.
    pub(crate) fn of_server(status: StatusCode, message: String) -> Self {
        let (code, hint) = match status {
            StatusCode::SERVICE_UNAVAILABLE => ("busy", "retry in a second"),
            StatusCode::REQUEST_TIMEOUT => {
                ("busy", "send the whole request at once, or retry later")
            }
            StatusCode::URI_TOO_LONG | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                ("badRequest", "send a shorter query and fewer header fields")
            }
            _ => ("badRequest", "send a request of HTTP/1.1 without a body"),
        };
        Self::new(status, code, message, hint)
    }

    pub(crate) fn reply(self) -> Reply {
        let document = json!({
            "version": 1,
            "error": {"code": self.code, "message": self.message, "hint": self.hint},
        });
        let mut reply = Reply::json(self.status, &document).with(header::CACHE_CONTROL, NO_STORE);
        reply.content_type = JSON;
        reply.headers.extend(self.field.map(|field| *field));
        reply.retry_after = self.retry_after;
        reply
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        let (status, code) = match problem.code {
            ProblemCode::NotFound => (StatusCode::NOT_FOUND, "notFound"),
            ProblemCode::BadRequest => (StatusCode::BAD_REQUEST, "badRequest"),
            ProblemCode::NotHere => (StatusCode::NOT_FOUND, "notHere"),
            ProblemCode::Unreadable => (StatusCode::INTERNAL_SERVER_ERROR, "unreadable"),
            ProblemCode::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            ProblemCode::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
        };
        let mut refusal = Self::new(status, code, problem.message, problem.hint);
        if problem.code == ProblemCode::Busy {
            refusal.retry_after = Some(1);
        }
        if problem.code == ProblemCode::Unauthorized {
            let scheme = HeaderValue::from_static("Bearer");
            refusal.field = Some(Box::new((header::WWW_AUTHENTICATE, scheme)));
        }
        refusal
    }
}
