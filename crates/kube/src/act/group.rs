//! The pod group of a gang, for another scheduler.
//!
//! Pod groups are watched, so finding the owner of a group needs no call: a group of somebody else never gets here, and every
//! change carries the uid of this job's own.

use kube::core::params::DeleteParams;
use serde_json::{Value, json};
use tracing::info;
use trainyard_core::{
    job::Refusal,
    launch::{GangScheduler, Group, GroupApi, Object, removed_fields},
};

use super::{Actor, Trouble, this, trouble};
use crate::{store::GroupEntry, view::GroupView};

impl Actor<'_> {
    /// Creates the group of the gang, or brings it up to date.
    pub(super) async fn apply_group(&self, group: Group) -> Result<(), Trouble> {
        let api = group.api;
        let there = self.own_group(api);
        let value = as_applied(group, there.as_ref().map_or("", |there| &there.queue));
        let name = self.job.name.as_str();
        let tried = format!("apply {} `{name}`", api.kind());
        let path = group_path(&self.key.namespace, api);
        let made = match &there {
            None => self.caller.create::<GroupView>(&path, &value).await,
            Some(there) => {
                self.remove_fields(&path, there, &value).await?;
                let mut value = value.clone();
                if let Some(metadata) = value.get_mut("metadata") {
                    metadata["uid"] = json!(there.uid);
                }
                self.caller.apply::<GroupView>(&path, name, &value).await
            }
        };
        match made {
            Ok(made) => {
                self.state.store().remember_group(api, &made);
                self.state
                    .remember(self.key, |memory| memory.group = Some(value));
                Ok(())
            }
            Err(error) if error.is_not_found() && there.is_none() => {
                Err(Trouble::Refused(Refusal::new(tried, unserved(api))))
            }
            // What cannot be changed is created again, once it is gone.
            Err(error) if error.is_refusal() && is_native(api) && there.is_some() => {
                info!(job = %self.key, %error, kind = api.kind(), "Replacing the pod group");
                self.delete_group().await
            }
            // Taken by one that the feed has not shown yet; the next pass knows whose it is.
            Err(error) => Err(trouble(tried, error)),
        }
    }

    /// Removes the fields that this operator set before and does not set any more. Applying alone would leave those that
    /// were there when the object was created.
    async fn remove_fields(
        &self,
        path: &str,
        there: &GroupEntry,
        value: &Value,
    ) -> Result<(), Trouble> {
        let Some(before) = self.state.memory(self.key).group else {
            return Ok(());
        };
        let gone = removed_fields(&before, value);
        if gone.is_empty() {
            return Ok(());
        }
        let mut operations =
            vec![json!({"op": "test", "path": "/metadata/uid", "value": there.uid})];
        let removals = gone
            .iter()
            .map(|path| json!({"op": "remove", "path": path}));
        operations.extend(removals);
        let name = self.job.name.as_str();
        let operations = Value::Array(operations);
        match self.caller.json_patch(path, name, &operations).await {
            // Somebody has removed one already: the others are left where they are.
            Err(error) if error.is_refusal() => Ok(()),
            removed => removed.map_err(Trouble::Broken),
        }
    }

    /// Deletes the group of the gang.
    pub(super) async fn delete_group(&self) -> Result<(), Trouble> {
        let Some(api) = GangScheduler::of(self.job, self.cluster).map(|scheduler| scheduler.api())
        else {
            return Ok(());
        };
        let Some(there) = self.own_group(api) else {
            return Ok(());
        };
        let params = DeleteParams {
            preconditions: Some(this(&there.uid)),
            ..DeleteParams::default()
        };
        let name = self.job.name.as_str();
        let path = group_path(&self.key.namespace, api);
        self.caller
            .delete(&path, name, &params)
            .await
            .map(drop)
            .map_err(|error| trouble(format!("delete {} `{name}`", api.kind()), error))
    }

    /// The group of that name, where it is this job's.
    fn own_group(&self, api: GroupApi) -> Option<GroupEntry> {
        let there = self.state.store().group(api, self.key).cloned();
        there.filter(|there| *there.owner == *self.uid)
    }
}

fn is_native(api: GroupApi) -> bool {
    matches!(api, GroupApi::Native(_))
}

/// Where `api` serves the groups of `namespace`.
fn group_path(namespace: &str, api: GroupApi) -> String {
    format!(
        "/apis/{}/{}/namespaces/{namespace}/{}",
        api.group(),
        api.version(),
        api.resource()
    )
}

/// The group as it is applied. Whoever moved it to another queue has the last word.
pub(crate) fn as_applied(mut group: Group, queue: &str) -> Value {
    if !queue.is_empty() && group.spec.get("queue").is_some() {
        group.spec["queue"] = queue.into();
    }
    Object::Group(Box::new(group)).to_value()
}

/// One sentence for an API that is not there.
pub(crate) fn unserved(api: GroupApi) -> String {
    format!(
        "this cluster does not serve `{}` of `{}/{}`, which its scheduler needs for gangs: install its \
         CRDs, or leave gangs to others with `trainyard.dev/gang`",
        api.resource(),
        api.group(),
        api.version()
    )
}
