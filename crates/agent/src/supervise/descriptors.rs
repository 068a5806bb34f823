//! How many descriptors this process may open.
//!
//! A leader has one for each member, and many containers start with a limit of 1,024 that may be raised. The program keeps the limit that the
//! container started with: some close or select over every number below it.

use std::io;

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit, setrlimit},
};

/// The limit that the container started with, where it was raised.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    /// Soft limit at the start, the raised one, and the hard one.
    raised: Option<(u64, u64, u64)>,
}

impl Descriptors {
    /// Raises the limit to `wanted`, as far as it may be raised.
    pub(crate) fn raise(wanted: u64) -> Self {
        let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
            return Self::default();
        };
        let raised = wanted.min(hard);
        if raised <= soft || setrlimit(Resource::RLIMIT_NOFILE, raised, hard).is_err() {
            return Self::default();
        }
        Self {
            raised: Some((soft, raised, hard)),
        }
    }

    /// Runs `start` under the limit of the container. Where more descriptors than that are open and `start` needs another one, it runs
    /// again under the raised limit: a program that starts with another limit is better than one that does not.
    pub(crate) fn with_own_limit<T>(
        &self,
        mut start: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let Some((soft, raised, hard)) = self.raised else {
            return start();
        };
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
        let started = start();
        setrlimit(Resource::RLIMIT_NOFILE, raised, hard)?;
        match started {
            Err(error) if error.raw_os_error() == Some(Errno::EMFILE as i32) => start(),
            started => started,
        }
    }
}
