//! Why a cluster could not be read.

use std::{io, time::Duration};

use thiserror::Error;
use trainyard_core::fabric::NotAFabric;

use crate::{ProcessError, api::Answer, plain};

/// Why something could not be found out, or changed.
#[derive(Debug, Error)]
pub enum LookError {
    /// There is no way to the cluster.
    #[error(transparent)]
    Connect(ProcessError),
    /// The runtime could not be started.
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    /// The cluster serves none of the kinds.
    #[error("the cluster serves no kind of training job")]
    NoKinds,
    /// No answer in time.
    #[error("cannot {tried}: the API server did not answer within {} s", patience.as_secs())]
    Late {
        /// What was tried.
        tried: String,
        /// How long was waited.
        patience: Duration,
    },
    /// Something that was waited for did not come in time.
    #[error("{what} after {} s", patience.as_secs())]
    TooLong {
        /// What is still so.
        what: String,
        /// How long was waited.
        patience: Duration,
    },
    /// A list has no end that can be waited for.
    #[error("cannot {tried}: there are more than {most}, the maximum")]
    TooMany {
        /// What was tried.
        tried: String,
        /// How many are read at most.
        most: usize,
    },
    /// There is no connection to the API server.
    #[error("cannot {tried}: the API server `{server}` is not reachable: {why}")]
    Unreachable {
        /// What was tried.
        tried: String,
        /// Its address.
        server: String,
        /// Why not.
        why: String,
    },
    /// The API server said no, or could not be asked.
    #[error("cannot {tried}: {words}")]
    Call {
        /// What was tried.
        tried: String,
        /// What the API server said.
        words: String,
        /// Its HTTP status; 0 where it could not be asked.
        code: u16,
    },
    /// A fabric of the cluster is not valid.
    #[error("cannot use the fabric `{name}`")]
    BadFabric {
        /// Its name.
        name: String,
        /// What is wrong with it.
        source: NotAFabric,
    },
}

impl LookError {
    pub(super) fn call(tried: &str, server: &str, error: kube::Error) -> Self {
        if matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_)) {
            return Self::Unreachable {
                tried: tried.to_owned(),
                server: server.to_owned(),
                why: plain::reason(&error),
            };
        }
        let code = match &error {
            kube::Error::Api(status) => status.code,
            _ => 0,
        };
        Self::Call {
            tried: tried.to_owned(),
            words: Answer(error).to_string(),
            code,
        }
    }

    /// The HTTP status of the API server's no.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Call { code, .. } if *code > 0 => Some(*code),
            _ => None,
        }
    }

    /// Whether there is no such object.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether the caller lacks the right.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }
}
