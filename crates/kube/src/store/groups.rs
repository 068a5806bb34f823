//! The pod groups of gangs that other schedulers start, and their state.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use trainyard_core::launch::GroupApi;

use super::Store;
use crate::{feed::News, key::JobKey, view::GroupView};

/// The groups of one API.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    known: Known,
    /// Each of them, by namespace and name.
    by_name: BTreeMap<(Box<str>, Box<str>), GroupEntry>,
    /// The jobs that wait until the groups are known.
    waiting: BTreeSet<JobKey>,
    version: u64,
}

/// What is known of an API's groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing yet.
    #[default]
    Nothing,
    /// That the cluster does not serve them.
    Unserved,
    /// All of them.
    All,
}

/// One group.
#[derive(Clone, Debug)]
pub(crate) struct GroupEntry {
    pub(crate) uid: Box<str>,
    /// The uid of its controlling owner.
    pub(crate) owner: Box<str>,
    pub(crate) controller: Option<OwnerReference>,
    /// Whether it is being deleted.
    pub(crate) leaves: bool,
    pub(crate) queue: Box<str>,
    pub(crate) phase: Box<str>,
    version: u64,
}

impl Store {
    /// What is known of the groups of `api`.
    pub(crate) fn groups_known(&self, api: GroupApi) -> Known {
        self.groups
            .get(&api)
            .map(|groups| groups.known)
            .unwrap_or_default()
    }

    /// The group of that API that has the name of the job of `key`.
    pub(crate) fn group(&self, api: GroupApi, key: &JobKey) -> Option<&GroupEntry> {
        let groups = &self.groups.get(&api)?.by_name;
        groups.get(&(key.namespace.clone(), key.name.clone()))
    }

    /// Has the job of `key` named when more is known of the groups of `api`.
    pub(crate) fn wait_for_groups(&mut self, api: GroupApi, key: &JobKey) {
        let groups = self.groups.entry(api).or_default();
        groups.waiting.insert(key.clone());
    }

    /// Forgets that the job of `key` waits.
    pub(crate) fn forget_groups(&mut self, key: &JobKey) {
        for groups in self.groups.values_mut() {
            groups.waiting.remove(key);
        }
    }

    /// Notes that the cluster does not serve `api`; returns the jobs that did not know.
    pub(crate) fn mark_group_unserved(&mut self, api: GroupApi) -> Vec<JobKey> {
        let groups = self.groups.entry(api).or_default();
        if groups.known == Known::Unserved {
            return Vec::new();
        }
        groups.known = Known::Unserved;
        groups.waiting.iter().cloned().collect()
    }

    /// Applies watch events of the groups of `api`; returns the jobs for which something has changed.
    pub(crate) fn update_groups(&mut self, api: GroupApi, news: News<GroupView>) -> Vec<JobKey> {
        let groups = self.groups.entry(api).or_default();
        match news {
            News::All(views, version) => {
                groups.known = Known::All;
                groups.by_name.clear();
                groups.version = groups.version.max(version);
                let mut changed = std::mem::take(&mut groups.waiting);
                for view in views {
                    changed.extend(groups.put(&view));
                }
                changed.into_iter().collect()
            }
            News::Is(view) => {
                groups.version = groups.version.max(view.metadata.resource_version);
                let owned = groups.put(&view);
                groups.concerned(&view, owned)
            }
            News::Gone(view) => {
                groups.version = groups.version.max(view.metadata.resource_version);
                groups.by_name.remove(&place(&view));
                groups.concerned(&view, JobKey::of_owned(&view.metadata))
            }
            News::Version(_) => Vec::new(),
        }
    }

    /// Takes a group in that this operator has just written, unless the feed is further.
    pub(crate) fn remember_group(&mut self, api: GroupApi, view: &GroupView) {
        let groups = self.groups.entry(api).or_default();
        if view.metadata.resource_version > groups.version {
            groups.put(view);
        }
    }
}

impl Groups {
    /// The jobs for which a watch event of a group changes something: the one that owns it, and those that wait for its name.
    fn concerned(&self, view: &GroupView, owned: Option<JobKey>) -> Vec<JobKey> {
        let meta = &view.metadata;
        let mut keys: BTreeSet<JobKey> = owned.into_iter().collect();
        let waits = |key: &&JobKey| *key.namespace == *meta.namespace && *key.name == *meta.name;
        keys.extend(self.waiting.iter().filter(waits).cloned());
        keys.into_iter().collect()
    }

    fn put(&mut self, view: &GroupView) -> Option<JobKey> {
        let entry = GroupEntry {
            uid: view.metadata.uid.as_str().into(),
            owner: view.metadata.owner().into(),
            controller: controller(view),
            leaves: view.metadata.deletion_timestamp.is_some(),
            queue: view.spec.queue.as_str().into(),
            phase: view.status.phase.as_str().into(),
            version: view.metadata.resource_version,
        };
        match self.by_name.get_mut(&place(view)) {
            Some(known) if known.version > entry.version => {}
            Some(known) => *known = entry,
            None => {
                self.by_name.insert(place(view), entry);
            }
        }
        JobKey::of_owned(&view.metadata)
    }
}

fn controller(view: &GroupView) -> Option<OwnerReference> {
    let mut owners = view.metadata.owner_references.iter();
    owners.find(|owner| owner.controller == Some(true)).cloned()
}

fn place(view: &GroupView) -> (Box<str>, Box<str>) {
    let meta = &view.metadata;
    (meta.namespace.as_str().into(), meta.name.as_str().into())
}
