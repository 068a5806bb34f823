//! What a cluster has that jobs may need, for [`trainyard_core::lint`].
//!
//! Objects that the caller may not read are left out and reported as such.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolumeClaim},
    scheduling::v1::PriorityClass,
    storage::v1::StorageClass,
};
use kube::core::ObjectMeta;
use serde::Deserialize;
use trainyard_core::{gang, lint::ClusterFacts};

use super::{Api, Look, LookError};

/// What is read of a network attachment: it is somebody else's kind.
#[derive(Deserialize)]
struct Named {
    metadata: ObjectMeta,
}

impl Look {
    /// What the cluster has, with the claims and networks of `namespaces`, and what could not be read of it.
    /// Objects that name no namespace go to `namespace`.
    pub fn lint_facts(
        &self,
        namespace: &str,
        namespaces: &BTreeSet<String>,
    ) -> Result<(ClusterFacts, Vec<LookError>), LookError> {
        self.runtime
            .block_on(self.api.lint_facts(namespace, namespaces))
    }
}

impl Api {
    async fn lint_facts(
        &self,
        namespace: &str,
        namespaces: &BTreeSet<String>,
    ) -> Result<(ClusterFacts, Vec<LookError>), LookError> {
        let mut facts = ClusterFacts {
            namespace: namespace.to_owned(),
            ..ClusterFacts::default()
        };
        let mut unread = Vec::new();
        let nodes = self.list::<Node>("list nodes", "/api/v1/nodes", None, None);
        facts.nodes = allowed(nodes.await, &mut unread)?.map(|nodes| {
            let named = |node: &Node| {
                let name = node.metadata.name.clone().unwrap_or_default();
                (name, gang::Node::of(node))
            };
            nodes.iter().map(named).collect()
        });
        let path = "/apis/storage.k8s.io/v1/storageclasses";
        let classes = self.list::<StorageClass>("list storage classes", path, None, None);
        facts.storage_classes = allowed(classes.await, &mut unread)?
            .map(|classes| names(classes.into_iter().map(|class| class.metadata)));
        let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
        let classes = self.list::<PriorityClass>("list priority classes", path, None, None);
        facts.priority_classes = allowed(classes.await, &mut unread)?
            .map(|classes| names(classes.into_iter().map(|class| class.metadata)));
        for namespace in namespaces {
            let tried = format!("list the volume claims of namespace `{namespace}`");
            let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
            let claims = self.list::<PersistentVolumeClaim>(&tried, &path, None, None);
            if let Some(claims) = allowed(claims.await, &mut unread)? {
                let claims: BTreeMap<String, Vec<String>> = claims.into_iter().map(modes).collect();
                facts.claims.insert(namespace.clone(), claims);
            }
            let tried = format!("list the network attachments of namespace `{namespace}`");
            let path = format!(
                "/apis/k8s.cni.cncf.io/v1/namespaces/{namespace}/network-attachment-definitions"
            );
            let found = match self.list::<Named>(&tried, &path, None, None).await {
                // A cluster without the kind has none of it.
                Err(error) if error.is_not_found() => Ok(Vec::new()),
                found => found,
            };
            if let Some(found) = allowed(found, &mut unread)? {
                let found = names(found.into_iter().map(|object| object.metadata));
                facts.attachments.insert(namespace.clone(), found);
            }
        }
        Ok((facts, unread))
    }
}

/// The answer; nothing if the caller may not read it.
fn allowed<T>(
    answer: Result<T, LookError>,
    unread: &mut Vec<LookError>,
) -> Result<Option<T>, LookError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error @ LookError::Call { code: 403, .. }) => {
            unread.push(error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn names(objects: impl Iterator<Item = ObjectMeta>) -> BTreeSet<String> {
    objects.filter_map(|metadata| metadata.name).collect()
}

fn modes(claim: PersistentVolumeClaim) -> (String, Vec<String>) {
    let modes = claim.spec.and_then(|spec| spec.access_modes);
    let name = claim.metadata.name.unwrap_or_default();
    (name, modes.unwrap_or_default())
}
