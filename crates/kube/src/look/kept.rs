//! What the operator has kept of failures whose pods may be gone.

use super::{Api, JobSeen, Look, LookError};
use crate::keep::{self, KeptView};

/// The end of the log of the pod that failed first in an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLog {
    /// The attempt.
    pub attempt: u32,
    /// The pod.
    pub pod: String,
    /// Its container.
    pub container: String,
    /// Its last lines, and those around the one that tells why it failed.
    pub text: String,
}

impl Look {
    /// What is kept of the first failure of `attempt`, or of the last attempt of which anything is.
    pub fn kept(&self, job: &JobSeen, attempt: Option<u32>) -> Result<Option<KeptLog>, LookError> {
        self.runtime.block_on(self.api.kept(job, attempt))
    }
}

impl Api {
    async fn kept(
        &self,
        job: &JobSeen,
        attempt: Option<u32>,
    ) -> Result<Option<KeptLog>, LookError> {
        let path = format!("/api/v1/namespaces/{}/configmaps", job.key.namespace);
        let name = keep::name_of(&job.key.name, &job.uid);
        let kept: KeptView = match self
            .get("read what is kept of failures", &path, &name)
            .await
        {
            Ok(kept) => kept,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(attempt) = attempt.or_else(|| kept.attempts().last().copied()) else {
            return Ok(None);
        };
        Ok(kept.of(attempt).map(|(whose, text)| {
            let (pod, container) = whose.split_once('/').unwrap_or((whose, ""));
            KeptLog {
                attempt,
                pod: pod.to_owned(),
                container: container.to_owned(),
                text: text.to_owned(),
            }
        }))
    }
}
