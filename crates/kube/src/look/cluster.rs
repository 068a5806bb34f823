//! The cluster as placement sees it.

use k8s_openapi::api::core::v1::{Node, Pod};
use trainyard_core::gang::Snapshot;

use super::{Api, Look, LookError};

impl Look {
    /// The nodes and what runs on them, with the topology that their labels show.
    pub fn snapshot(&self) -> Result<Snapshot, LookError> {
        self.runtime.block_on(self.api.snapshot())
    }
}

impl Api {
    async fn snapshot(&self) -> Result<Snapshot, LookError> {
        let nodes = self.list::<Node>("list nodes", "/api/v1/nodes", None, None);
        let nodes = nodes.await?;
        // What has ended holds nothing.
        let running = "status.phase!=Succeeded,status.phase!=Failed".to_owned();
        let pods = self.list::<Pod>("list pods", "/api/v1/pods", None, Some(running));
        Ok(Snapshot::of(&nodes, &pods.await?))
    }
}
