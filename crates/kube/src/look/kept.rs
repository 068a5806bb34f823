//! What the operator has kept of failures whose pods may be gone.

use super::{Api, JobSeen, Look, LookError};
use crate::keep::{self, KeptView};

/// The end of the log of a pod that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLog {
    /// The attempt.
    pub attempt: u32,
    /// The pod.
    pub pod: String,
    /// Its container.
    pub container: String,
    /// Its last lines, and those around the one that says why it failed.
    pub text: String,
    /// Whether it is what failed first in its attempt.
    pub first: bool,
}

impl Look {
    /// What is kept of `attempt`, or of the last attempt of which anything is: what failed first, then the others.
    pub fn kept(&self, job: &JobSeen, attempt: Option<u32>) -> Result<Vec<KeptLog>, LookError> {
        self.runtime.block_on(self.api.kept(job, attempt))
    }
}

impl Api {
    async fn kept(&self, job: &JobSeen, attempt: Option<u32>) -> Result<Vec<KeptLog>, LookError> {
        let path = format!("/api/v1/namespaces/{}/configmaps", job.key.namespace);
        let name = keep::name_of(&job.key.name, &job.uid);
        let kept: KeptView = match self
            .get("read the kept logs of failures", &path, &name)
            .await
        {
            Ok(kept) => kept,
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let Some(attempt) = attempt.or_else(|| kept.attempts().last().copied()) else {
            return Ok(Vec::new());
        };
        let log = |pod: &str, container: &str, text: &str, first| KeptLog {
            attempt,
            pod: pod.to_owned(),
            container: container.to_owned(),
            text: text.to_owned(),
            first,
        };
        let first = kept.of(attempt).map(|(whose, text)| {
            let (pod, container) = whose.split_once('/').unwrap_or((whose, ""));
            log(pod, container, text, true)
        });
        let trains = job.kind().container();
        let others = kept.others(attempt);
        let others = others.map(|(pod, text)| log(pod, trains, text, false));
        Ok(first.into_iter().chain(others).collect())
    }
}
