//! The changes that people make to a job: suspend, resume, restart, delete.
//!
//! Invariant: a change is made to the very object that was read, or refused: each carries its
//! identity.

use std::{pin::pin, time::Duration};

use futures::TryStreamExt as _;
use kube::core::{
    Request, WatchEvent,
    params::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy, WatchParams},
};
use serde_json::{Value, json};
use trainyard_core::spec::{Kind, annotation};

use super::{Api, JobSeen, Look, LookError, path};
use crate::view::{Bare, JobView};

/// The name under which fields are changed.
const FIELD_MANAGER: &str = "trainyard-cli";
/// One watch lasts at most this long.
const WATCH_SECONDS: u32 = 60;

impl Look {
    /// Lets the job have no pods, or have them again.
    pub fn suspend(&self, job: &JobSeen, suspend: bool) -> Result<(), LookError> {
        let word = if suspend { "suspend" } else { "resume" };
        let change = match job.kind() {
            Kind::Train => json!({"spec": {"suspend": suspend}}),
            _ => json!({"spec": {"runPolicy": {"suspend": suspend}}}),
        };
        self.runtime.block_on(self.api.change(job, word, change))
    }

    /// Asks for one new attempt of the whole gang, under `name`.
    pub fn restart(&self, job: &JobSeen, name: &str) -> Result<(), LookError> {
        let change = json!({"metadata": {"annotations": {annotation::RESTART: name}}});
        self.runtime
            .block_on(self.api.change(job, "restart", change))
    }

    /// Deletes the job; its object goes after its pods.
    pub fn delete(&self, job: &JobSeen) -> Result<(), LookError> {
        self.runtime.block_on(self.api.delete(job))
    }

    /// Waits until the job and its pods are gone.
    pub fn wait_until_gone(&self, job: &JobSeen, patience: Duration) -> Result<(), LookError> {
        self.runtime.block_on(async {
            let gone = tokio::time::timeout(patience, self.api.gone(job)).await;
            gone.unwrap_or_else(|_| {
                Err(LookError::TooLong {
                    what: format!("job `{}` still exists", job.key.name),
                    patience,
                })
            })
        })
    }
}

impl JobSeen {
    /// Where the API serves it, in the version in which it was read.
    pub(super) fn path(&self) -> String {
        let kind = Kind::find(&self.api_version, self.kind().name()).unwrap_or(self.kind());
        path(kind, Some(&self.key.namespace))
    }
}

impl Api {
    async fn change(&self, job: &JobSeen, word: &str, mut change: Value) -> Result<(), LookError> {
        // The API server refuses a change to another object than the one that was read.
        change["metadata"]["uid"] = job.uid.as_str().into();
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let request =
            Request::new(job.path()).patch(&job.key.name, &params, &Patch::Merge(&change));
        let tried = format!("{word} `{}`", job.key.name);
        self.ask::<serde::de::IgnoredAny>(&tried, request).await?;
        Ok(())
    }

    async fn delete(&self, job: &JobSeen) -> Result<(), LookError> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            preconditions: Some(Preconditions {
                uid: Some(job.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let request = Request::new(job.path()).delete(&job.key.name, &params);
        let tried = format!("delete `{}`", job.key.name);
        match self.ask::<serde::de::IgnoredAny>(&tried, request).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    async fn gone(&self, job: &JobSeen) -> Result<(), LookError> {
        while let Some(now) = self.again(job).await? {
            self.changed(job, now.metadata.resource_version).await?;
        }
        Ok(())
    }

    /// The job as it is now; nothing where it is gone.
    pub(super) async fn again(&self, job: &JobSeen) -> Result<Option<JobView>, LookError> {
        let tried = format!("get `{}`", job.key.name);
        match self
            .get::<JobView>(&tried, &job.path(), &job.key.name)
            .await
        {
            Ok(view) if view.metadata.uid == job.uid => Ok(Some(view)),
            Ok(_) => Ok(None),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns when the job has changed since `version`, and at the latest after [`WATCH_SECONDS`].
    pub(super) async fn changed(&self, job: &JobSeen, version: u64) -> Result<(), LookError> {
        let tried = format!("watch `{}`", job.key.name);
        let params = WatchParams {
            field_selector: Some(format!("metadata.name={}", job.key.name)),
            timeout: Some(WATCH_SECONDS),
            ..WatchParams::default()
        };
        let request = Request::new(job.path())
            .watch(&params, &version.to_string())
            .map_err(|error| self.failed(&tried, kube::Error::BuildRequest(error)))?;
        let events = self.client.request_events::<Bare>(request).await;
        let mut events = pin!(events.map_err(|error| self.failed(&tried, error))?);
        while let Some(event) = events
            .try_next()
            .await
            .map_err(|error| self.failed(&tried, error))?
        {
            if !matches!(event, WatchEvent::Bookmark(_)) {
                return Ok(());
            }
        }
        Ok(())
    }
}
