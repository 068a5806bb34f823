//! The runtimes of `TrainJob`s, and the jobs whose pods are not made from one yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;
use trainyard_core::spec::{Kind, RuntimeName};

use super::Store;
use crate::{feed::News, key::JobKey, view::RuntimeView};

/// What is known of runtimes.
#[derive(Debug, Default)]
pub(crate) struct Runtimes {
    /// Whether `TrainJob`s can be managed on this cluster.
    api: TrainApi,
    of_cluster: Known,
    of_namespaces: Known,
    /// By kind, namespace (empty for the cluster) and name.
    by_name: BTreeMap<(bool, Box<str>, Box<str>), Arc<Value>>,
    /// The jobs to enqueue when something changes here.
    unpinned: BTreeSet<JobKey>,
}

/// Whether the cluster serves `TrainJob`s that the operator can manage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum TrainApi {
    /// Nobody has asked.
    #[default]
    Unknown,
    /// They cannot be managed, and why.
    Unable(String),
    /// They can.
    Served,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Known {
    /// Nothing yet.
    #[default]
    Nothing,
    /// They cannot be watched, and why.
    Unable(String),
    /// All of them.
    All,
}

/// What there is of a runtime.
#[derive(Clone, Debug)]
pub(crate) enum SeenRuntime {
    /// It is not known yet.
    Unknown,
    /// There is none, and why.
    Missing(String),
    /// It is there.
    There(Arc<Value>),
}

impl Store {
    /// Whether `TrainJob`s can be managed.
    pub(crate) fn train_api(&self) -> &TrainApi {
        &self.runtimes.api
    }

    /// Notes whether `TrainJob`s can be managed; whether that has changed, and the jobs that are concerned.
    pub(crate) fn set_train_api(&mut self, api: TrainApi) -> (bool, Vec<JobKey>) {
        if self.runtimes.api == api {
            return (false, Vec::new());
        }
        self.runtimes.api = api;
        let jobs = self.jobs.keys().filter(|key| key.kind == Kind::Train);
        (true, jobs.cloned().collect())
    }

    /// What there is of the runtime that the job of `key` names. The job is named when that changes, until it is pinned.
    pub(crate) fn runtime(&mut self, name: &RuntimeName, key: &JobKey) -> SeenRuntime {
        let runtimes = &mut self.runtimes;
        runtimes.unpinned.insert(key.clone());
        let place = place(name.is_of_cluster(), &key.namespace, &name.name);
        if let Some(runtime) = runtimes.by_name.get(&place) {
            return SeenRuntime::There(Arc::clone(runtime));
        }
        let known = if name.is_of_cluster() {
            &runtimes.of_cluster
        } else {
            &runtimes.of_namespaces
        };
        match known {
            Known::Nothing => SeenRuntime::Unknown,
            Known::Unable(why) => SeenRuntime::Missing(why.clone()),
            Known::All => {
                let (of_cluster, namespace, _) = place;
                let there = runtimes.by_name.keys();
                let there = there.filter(|(kind, of, _)| *kind == of_cluster && *of == namespace);
                SeenRuntime::Missing(name.missing(there.map(|(_, _, name)| &**name)))
            }
        }
    }

    /// The runtimes that a job of `namespace` may name, for those who review one.
    pub(crate) fn runtime_named(&self, name: &RuntimeName, namespace: &str) -> Option<Arc<Value>> {
        let place = place(name.is_of_cluster(), namespace, &name.name);
        self.runtimes.by_name.get(&place).cloned()
    }

    /// A change of a runtime no longer concerns the job of `key`.
    pub(crate) fn forget_runtimes(&mut self, key: &JobKey) {
        self.runtimes.unpinned.remove(key);
    }

    /// Notes why runtimes cannot be watched; whether that is new, and the jobs that are concerned.
    pub(crate) fn mark_runtimes_unavailable(
        &mut self,
        of_cluster: bool,
        why: String,
    ) -> (bool, Vec<JobKey>) {
        let known = Known::Unable(why);
        let place = self.runtimes.known_mut(of_cluster);
        if *place == known {
            return (false, Vec::new());
        }
        *place = known;
        (true, self.runtimes.unpinned.iter().cloned().collect())
    }

    /// Applies watch events of runtimes; returns the jobs that they concern.
    pub(crate) fn update_runtimes(
        &mut self,
        of_cluster: bool,
        news: News<RuntimeView>,
    ) -> Vec<JobKey> {
        let runtimes = &mut self.runtimes;
        let namespace = match news {
            News::All(views, _) => {
                *runtimes.known_mut(of_cluster) = Known::All;
                runtimes.by_name.retain(|(kind, ..), _| *kind != of_cluster);
                let entries = views.into_iter().map(|view| view.into_entry(of_cluster));
                runtimes.by_name.extend(entries);
                None
            }
            News::Is(view) => {
                let (place, runtime) = view.into_entry(of_cluster);
                let namespace = place.1.clone();
                runtimes.by_name.insert(place, runtime);
                Some(namespace)
            }
            News::Gone(view) => {
                let (place, _) = view.into_entry(of_cluster);
                runtimes.by_name.remove(&place);
                Some(place.1)
            }
            News::Version(_) => return Vec::new(),
        };
        let concerned = runtimes.unpinned.iter().filter(|key| match &namespace {
            Some(namespace) => of_cluster || key.namespace == *namespace,
            None => true,
        });
        concerned.cloned().collect()
    }
}

impl Runtimes {
    fn known_mut(&mut self, of_cluster: bool) -> &mut Known {
        if of_cluster {
            &mut self.of_cluster
        } else {
            &mut self.of_namespaces
        }
    }
}

fn place(of_cluster: bool, namespace: &str, name: &str) -> (bool, Box<str>, Box<str>) {
    let namespace = if of_cluster { "" } else { namespace };
    (of_cluster, namespace.into(), name.into())
}

impl RuntimeView {
    fn into_entry(self, of_cluster: bool) -> ((bool, Box<str>, Box<str>), Arc<Value>) {
        let place = place(of_cluster, &self.metadata.namespace, &self.metadata.name);
        (place, Arc::new(self.object))
    }
}
