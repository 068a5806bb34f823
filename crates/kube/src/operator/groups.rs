//! Gangs that other schedulers start: their pod groups and the state of these.
//!
//! The operator watches their API from the first job on that needs it, so that a cluster without it costs
//! nothing and blocks no job.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::Deserialize;
use tokio::sync::Notify;
use tracing::{debug, info, warn};
use trainyard_core::{
    job::{Grouping, Refusal},
    launch::{Claim, Claimant, GangScheduler, GroupApi, Plan},
    spec::Job,
};

use super::Operator;
use crate::{
    act::{as_applied, unserved},
    api::CallError,
    feed::{self, Scope, Source},
    key::JobKey,
    metrics::cause,
    store::{GroupEntry, Known},
    view::{GroupView, JobView},
};

/// How often the operator checks for an API that the cluster does not serve.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Requests of jobs to watch an API.
#[derive(Clone, Debug)]
pub(super) struct Asked(Arc<BTreeMap<GroupApi, Notify>>);

impl Default for Asked {
    fn default() -> Self {
        let wishes = GroupApi::ALL.map(|api| (api, Notify::new()));
        Self(Arc::new(wishes.into()))
    }
}

impl Asked {
    fn ask(&self, api: GroupApi) {
        if let Some(wish) = self.0.get(&api) {
            wish.notify_one();
        }
    }

    async fn wait(&self, api: GroupApi) {
        if let Some(wish) = self.0.get(&api) {
            wish.notified().await;
        }
    }
}

/// What a version of an API serves.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Served {
    resources: Vec<crate::view::Named>,
}

impl Operator {
    /// What is there of the group by which another scheduler starts the gang of a job.
    pub(crate) fn grouping(&self, key: &JobKey, view: &JobView, job: &Job) -> Grouping {
        if self.options.shadow || GangScheduler::of(job, &self.cluster).is_none() {
            return Grouping::Unused;
        }
        // A job whose pods cannot be built is refused where they are created.
        let plan = Plan::new(job, &self.cluster).ok();
        let Some(group) = plan.and_then(|plan| plan.group()) else {
            return Grouping::Unused;
        };
        let api = group.api;
        let made = self.state.memory(key).group;
        let mut store = self.state.store();
        if store.groups_known(api) != Known::All {
            store.wait_for_groups(api, key);
            self.asked.ask(api);
            return match store.groups_known(api) {
                Known::Unserved => Grouping::Unable(unserved(api)),
                _ => Grouping::Unknown,
            };
        }
        match store.group(api, key) {
            None => Grouping::Missing,
            Some(there) if *there.owner != *view.metadata.uid => {
                let refusal = taken(key, view, api, there);
                // Nothing else would wake the job when the name is free.
                store.wait_for_groups(api, key);
                self.caller.metrics.refused(cause::NAME_TAKEN);
                Grouping::Taken(refusal)
            }
            Some(there) => Grouping::There {
                current: made.is_some_and(|made| made == as_applied(group, &there.queue)),
                wait: api.wait(&there.phase, &there.queue),
            },
        }
    }

    /// What is not as the administrator expects, although the operator works.
    pub(crate) fn remarks(&self) -> Option<String> {
        let scheduler = GangScheduler::stated(&self.cluster)?;
        let known = self.state.store().groups_known(scheduler.api());
        (known == Known::Unserved).then(|| unserved(scheduler.api()))
    }

    /// Watches the pod groups of `api` from the first job on that needs them.
    pub(super) async fn watch_groups(self, api: GroupApi) {
        let stated = GangScheduler::stated(&self.cluster);
        if stated.is_none_or(|scheduler| scheduler.api() != api) {
            self.asked.wait(api).await;
        }
        loop {
            match self.serves(api).await {
                Ok(true) => break,
                Ok(false) => {
                    if self.state.store().groups_known(api) != Known::Unserved {
                        warn!(sentence = unserved(api), "Gangs cannot be started");
                    }
                    let changed = self.state.store().mark_group_unserved(api);
                    self.queue.enqueue_all(changed);
                }
                Err(error) => debug!(%error, "Cannot list the APIs that the cluster serves"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        info!(
            group = api.group(),
            version = api.version(),
            "Watching pod groups"
        );
        let group = format!("/apis/{}/{}", api.group(), api.version());
        let source = Source {
            path: self.path(&group, api.resource()),
            labels: None,
            fields: None,
        };
        let (state, queue) = (self.state.clone(), Arc::clone(&self.queue));
        let metrics = &self.caller.metrics;
        let pulse = self.feeds.expect(&source.path, Scope::Reported, metrics);
        let client = self.caller.client.clone();
        feed::list_and_watch_with::<GroupView>(client, source, pulse, move |news| {
            let changed = state.store().update_groups(api, news);
            queue.enqueue_all(changed);
        })
        .await;
    }

    /// Whether the cluster serves `api`.
    async fn serves(&self, api: GroupApi) -> Result<bool, CallError> {
        let path = format!("/apis/{}", api.group());
        match self.caller.get::<Served>(&path, api.version()).await {
            Ok(served) => Ok(served
                .resources
                .iter()
                .any(|resource| resource.name == api.resource())),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Why there is no pod group: one of another owner has the job's name.
fn taken(key: &JobKey, view: &JobView, api: GroupApi, there: &GroupEntry) -> Refusal {
    let claimant = Claimant {
        kind: key.kind,
        name: &key.name,
        uid: &view.metadata.uid,
    };
    let claim = Claim::of(claimant, there.controller.as_slice(), there.leaves);
    let tried = format!("create {} `{}`", api.kind(), key.name);
    Refusal {
        taken_by: claim.owner().map(str::to_owned),
        ..Refusal::new(tried, claim.refusal(api.kind()).unwrap_or_default())
    }
}
