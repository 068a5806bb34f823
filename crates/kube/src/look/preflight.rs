//! A preflight that a person runs: the caller creates, watches and deletes its pods.

use std::sync::Arc;

use serde_json::Value;
use trainyard_core::{
    fabric::{self, FabricSpec},
    launch::preflight::PreflightPod,
};

use super::{Look, LookError};
use crate::{
    api::Caller,
    crd,
    lease::Fence,
    metrics::Metrics,
    plain::sentence,
    preflight_run::{PreflightFound, Runner, SETS_UP, token},
};

/// Calls under way at once.
const CALLS: usize = 16;
/// Bytes of a report that a person reads: every check of a thousand nodes.
pub const PREFLIGHT_REPORT_BYTES: usize = 16 << 20;

/// Why a preflight has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreflightStopped {
    /// Somebody asked for its end; its pods are removed.
    Interrupted,
    /// It produced no result, and why.
    NoResult(String),
}

impl Look {
    /// Runs a preflight of `pods`, all of which are of the one named `of`; `say` gets its progress.
    ///
    /// Its pods are gone when this returns, also where it is interrupted.
    pub fn preflight(
        &self,
        namespace: &str,
        of: &str,
        pods: Vec<PreflightPod>,
        say: &(dyn Fn(String) + Send + Sync),
    ) -> Result<PreflightFound, PreflightStopped> {
        self.runtime.block_on(async {
            let metrics = Arc::new(Metrics::default());
            let client = self.api.client.clone();
            let caller = Caller::new(client, Fence::open(), metrics, CALLS);
            let owner = pods
                .first()
                .and_then(|one| one.pod.metadata.owner_references.as_ref()?.first())
                .map(|owner| owner.uid.clone())
                .unwrap_or_default();
            let runner = Runner {
                caller: &caller,
                namespace,
                of,
                owner: &owner,
                report_bytes: PREFLIGHT_REPORT_BYTES,
                sets_up_within: SETS_UP,
            };
            let found = tokio::select! {
                found = runner.run(pods, say) => found.map_err(|error| PreflightStopped::NoResult(sentence(&error))),
                () = asked_to_end() => Err(PreflightStopped::Interrupted),
            };
            if found.is_err()
                && let Err(error) = runner.remove().await
            {
                say(format!(
                    "cannot delete the pods (they end at their deadline): {}",
                    sentence(&error)
                ));
            }
            found
        })
    }

    /// What the cluster has of the fabric `name`.
    pub fn fabric(&self, name: &str) -> Result<FabricSpec, LookError> {
        let (group, version) = crd::fabric_group_and_version();
        let path = format!("/apis/{group}/{version}/{}", crd::FABRICS);
        let tried = format!("read the fabric `{name}`");
        let object = self.api.get::<Value>(&tried, &path, name);
        let object = self.runtime.block_on(object)?;
        let read = fabric::read_value(&object).map_err(|source| LookError::BadFabric {
            name: name.to_owned(),
            source,
        })?;
        Ok(read.spec)
    }
}

/// The secret that the pods of one preflight share.
pub fn preflight_token() -> Result<String, LookError> {
    token().map_err(|_| LookError::Runtime(std::io::ErrorKind::Unsupported.into()))
}

/// Waits for SIGINT or SIGTERM.
async fn asked_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}
