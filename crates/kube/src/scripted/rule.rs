//! What goes wrong, and when.

use std::{fmt, sync::Arc};

use serde_json::{Value, json};

use super::world::{Call, Refused, Verb, World};

/// What goes wrong with one request.
#[derive(Clone)]
pub(crate) enum Fault {
    /// It is refused with a status.
    Refuse(Refused),
    /// The connection ends before anything is done.
    Cut,
    /// It is done, and the connection ends before the answer.
    Lost,
    /// No answer comes.
    Silent,
    /// The head of the answer comes, and nothing after it.
    HeadOnly,
    /// Half of the body comes, and nothing after it.
    Unfinished,
    /// Half of the body comes, and the connection ends.
    Torn,
    /// Each page of the list names another one after it.
    Endless,
    /// The list holds these items as well.
    Items(Vec<Value>),
    /// The watch begins with these lines, whatever they hold, and continues as any other.
    Lines(Vec<String>),
    /// A body that is not JSON.
    Garbage(String),
    /// Something happens just before; then it is answered as any other.
    Hook(Arc<dyn Fn(&mut World) + Send + Sync>),
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refuse(refused) => write!(f, "{} {}", refused.code, refused.reason),
            Self::Cut => f.write_str("cut"),
            Self::Lost => f.write_str("lost"),
            Self::Silent => f.write_str("silent"),
            Self::HeadOnly => f.write_str("head only"),
            Self::Unfinished => f.write_str("unfinished"),
            Self::Torn => f.write_str("torn"),
            Self::Endless => f.write_str("endless"),
            Self::Items(items) => write!(f, "{} more items", items.len()),
            Self::Lines(lines) => write!(f, "lines {lines:?}"),
            Self::Garbage(_) => f.write_str("garbage"),
            Self::Hook(_) => f.write_str("hook"),
        }
    }
}

impl Fault {
    /// A status with the reason that the API gives with that code.
    pub(crate) fn status(code: u16) -> Self {
        let (reason, message) = match code {
            400 => ("BadRequest", "the request is not understood"),
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "forbidden: exceeded quota"),
            404 => ("NotFound", "not found"),
            409 => ("Conflict", "the object has been modified"),
            410 => ("Expired", "too old resource version"),
            413 => ("RequestEntityTooLarge", "the request is too large"),
            422 => ("Invalid", "the object is invalid"),
            429 => (
                "TooManyRequests",
                "the server has received too many requests",
            ),
            504 => ("Timeout", "Timeout: Too large resource version"),
            _ => ("InternalError", "an error on the server"),
        };
        Self::Refuse(Refused::new(code, reason, message))
    }

    /// 429, with the seconds to wait.
    pub(crate) fn retry_after(seconds: u32) -> Self {
        match Self::status(429) {
            Self::Refuse(refused) => Self::Refuse(Refused {
                retry_after: Some(seconds),
                ..refused
            }),
            other => other,
        }
    }

    /// 504, as an API server answers that has not seen that version yet.
    pub(crate) fn version_too_large() -> Self {
        let message = "Too large resource version: 9, current: 1";
        Self::Refuse(Refused::new(504, "ResourceVersionTooLarge", message))
    }

    /// 410 as an event of a watch that was answered with 200.
    pub(crate) fn expired_event() -> Self {
        let refused = Refused::new(410, "Expired", "too old resource version: 1 (2)");
        let event = json!({"type": "ERROR", "object": refused.status()});
        Self::Lines(vec![event.to_string()])
    }

    /// Another operator takes every Lease just before.
    pub(crate) fn depose(other: &'static str) -> Self {
        Self::Hook(Arc::new(move |world| super::depose(world, other)))
    }
}

/// When something goes wrong.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// Whose requests; everybody's where there is none.
    pub(crate) who: Option<&'static str>,
    /// Any where there is none.
    pub(crate) verb: Option<Verb>,
    /// What the path holds.
    pub(crate) path: String,
    /// Requests that are spared first.
    pub(crate) skip: u64,
    /// Requests that it meets then.
    pub(crate) times: u64,
    pub(crate) fault: Fault,
}

impl Rule {
    /// Every request of `verb` on a path that holds `path`.
    pub(crate) fn new(verb: impl Into<Option<Verb>>, path: &str, fault: Fault) -> Self {
        Self {
            who: None,
            verb: verb.into(),
            path: path.to_owned(),
            skip: 0,
            times: u64::MAX,
            fault,
        }
    }

    /// Only the requests of the client of that name.
    pub(crate) fn of(mut self, who: &'static str) -> Self {
        self.who = Some(who);
        self
    }

    /// Only so many requests.
    pub(crate) fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Not the first ones.
    pub(crate) fn skip(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// Whether this request is met; it is counted.
    pub(crate) fn meets(&mut self, call: &Call) -> bool {
        let meant = self.verb.is_none_or(|verb| verb == call.verb)
            && self.who.is_none_or(|who| who == call.who)
            && call.path.contains(&self.path);
        if !meant || self.times == 0 {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.times -= 1;
        true
    }
}
