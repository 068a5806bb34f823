//! Requests as they are handed on, and replies.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde::Serialize;

use crate::{headers::Headers, room::Place, stream::Stream};

/// The head of a request.
#[derive(Debug, Default)]
pub struct Head {
    /// Its method.
    pub method: Method,
    /// Its path, as it was sent.
    pub path: String,
    /// What follows the `?`, as it was sent.
    pub query: Option<String>,
    /// Which server the client means: that of the URL, else the header `Host`. Nothing where there is none, or more than one.
    pub host: Option<String>,
    /// The client has shown a certificate that the server trusts.
    pub verified: bool,
    /// The header of that name, which no log shows.
    pub authorization: Option<HeaderValue>,
    /// All other header fields.
    pub headers: Headers,
}

/// A request, read to its end.
#[derive(Debug)]
pub struct Request {
    /// Its method.
    pub method: Method,
    /// Its path, as it was sent.
    pub path: String,
    /// What follows the `?`, as it was sent.
    pub query: Option<String>,
    /// The header of that name, which no log shows.
    pub authorization: Option<HeaderValue>,
    /// All other header fields.
    pub headers: Headers,
    /// Its body.
    pub body: Vec<u8>,
    /// What of the body is parsed at once.
    pub values: usize,
    /// The connection it came by.
    pub place: Arc<Place>,
}

/// What is answered.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// The type of its body; without one where it is empty.
    pub content_type: &'static str,
    /// Its body.
    pub body: Vec<u8>,
    /// What is sent in place of the body, for as long as it lasts.
    pub stream: Option<Stream>,
    /// Further header fields; they replace those that every reply of the server has.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether the connection ends with it.
    pub last: bool,
    /// After how many seconds the client should retry.
    pub retry_after: Option<u32>,
}

impl Reply {
    /// A body of some type.
    pub fn new(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Self {
        Self {
            status,
            content_type,
            body,
            stream: None,
            headers: Vec::new(),
            last: false,
            retry_after: None,
        }
    }

    /// A sentence.
    pub fn text(status: StatusCode, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.push('\n');
        Self::new(status, "text/plain; charset=utf-8", text.into_bytes())
    }

    /// JSON.
    pub fn json(status: StatusCode, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("objects have string keys");
        Self::new(status, "application/json", body)
    }

    /// A stream, which lasts until its writer ends it or its reader leaves.
    pub fn stream(content_type: &'static str, stream: Stream) -> Self {
        let mut reply = Self::new(StatusCode::OK, content_type, Vec::new());
        reply.stream = Some(stream);
        reply
    }

    /// The same, with a further header field.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The same, and the connection is closed behind it.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.last = true;
        self
    }

    /// A path that nobody answers.
    pub fn not_found(path: &str) -> Self {
        Self::text(StatusCode::NOT_FOUND, format!("unknown path `{path}`"))
    }

    /// A method that is not answered at this path.
    pub fn wrong_method(needed: &Method) -> Self {
        Self::text(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("only `{needed}` is allowed here"),
        )
    }
}
