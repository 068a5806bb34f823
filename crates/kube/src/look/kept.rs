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
            .get::<KeptView>("read the kept logs of failures", &path, &name)
            .await
        {
            Ok(kept) if kept.is_of(&job.uid) => kept,
            // Somebody else made it under that name: the operator writes nothing into it.
            Ok(_) => return Ok(Vec::new()),
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trainyard_core::spec::Kind;

    use super::*;
    use crate::scripted::{Server, job};

    #[tokio::test(start_paused = true)]
    async fn logs_that_others_wrote_are_none_that_were_kept() {
        for (owner, want) in [("the job", 1), ("another", 0), ("nobody", 0)] {
            let server = Server::new();
            server.with(|world| world.checks_rights = false);
            server.add_job(job(Kind::PyTorch, "a", 2));
            let api = Api {
                client: server.client_of("cli"),
                server: "https://cluster.test".to_owned(),
                token: None,
            };
            let seen = api.called("n", "a", None).await.unwrap().remove(0);
            let own = seen.uid.as_str();
            let uid = if owner == "the job" { own } else { "u" };
            let mut owners = vec![
                json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "a", "uid": uid}),
            ];
            owners.retain(|_| owner != "nobody");
            let map = json!({
                "metadata": {"name": keep::name_of("a", &seen.uid), "ownerReferences": owners},
                "data": {"attempt-1.pod": "a-worker-0/pytorch", "attempt-1.log": "text"},
            });
            server.add("/api/v1/namespaces/n/configmaps", map);
            let kept = api.kept(&seen, None).await.unwrap();
            assert_eq!(kept.len(), want, "{owner}");
        }
    }
}
