//! The fabrics of the cluster, and the jobs that wait for one.

use std::collections::{BTreeMap, BTreeSet};

use trainyard_core::{
    fabric::{FabricSpec, NotAFabric},
    job::SeenFabric,
};

use super::Store;
use crate::{feed::News, key::JobKey, view::FabricView};

/// What is known of fabrics.
#[derive(Debug, Default)]
pub(crate) struct Fabrics {
    known: Known,
    /// Each of them, or why it cannot be used.
    by_name: BTreeMap<Box<str>, Result<FabricSpec, NotAFabric>>,
    /// The jobs to enqueue when something changes here.
    waiting: BTreeSet<JobKey>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Known {
    /// Nothing yet.
    #[default]
    Nothing,
    /// They cannot be watched, and why.
    Unable(String),
    /// All of them.
    All,
}

impl Store {
    /// What there is of the fabric `name`. The job of `key` is named when that changes, unless it is
    /// there: an edit counts from its next attempt.
    pub(crate) fn fabric(&mut self, name: &str, key: &JobKey) -> SeenFabric {
        let fabrics = &mut self.fabrics;
        let seen = match (&fabrics.known, fabrics.by_name.get(name)) {
            (Known::Nothing, _) => SeenFabric::Unknown,
            (Known::Unable(why), _) => SeenFabric::Unable(why.clone()),
            (Known::All, None) => {
                SeenFabric::Unable("this cluster has no fabric of that name".to_owned())
            }
            (Known::All, Some(Err(why))) => SeenFabric::Unable(format!("it is not valid: {why}")),
            (Known::All, Some(Ok(spec))) => SeenFabric::There(Box::new(spec.clone())),
        };
        if !matches!(seen, SeenFabric::There(_)) {
            fabrics.waiting.insert(key.clone());
        }
        seen
    }

    /// Forgets that the job of `key` waits for a fabric.
    pub(crate) fn forget_fabrics(&mut self, key: &JobKey) {
        self.fabrics.waiting.remove(key);
    }

    /// Notes why fabrics cannot be watched; returns the jobs that wait for one.
    pub(crate) fn mark_fabrics_unavailable(&mut self, why: String) -> Vec<JobKey> {
        let known = Known::Unable(why);
        if self.fabrics.known == known {
            return Vec::new();
        }
        self.fabrics.known = known;
        self.fabrics.waiting.iter().cloned().collect()
    }

    /// Applies watch events of the fabrics; returns the jobs that wait for one.
    pub(crate) fn update_fabrics(&mut self, news: News<FabricView>) -> Vec<JobKey> {
        let fabrics = &mut self.fabrics;
        match news {
            News::All(views, _) => {
                fabrics.known = Known::All;
                fabrics.by_name = views.into_iter().map(FabricView::into_entry).collect();
            }
            News::Is(view) => fabrics.by_name.extend([view.into_entry()]),
            News::Gone(view) => {
                fabrics.by_name.remove(view.metadata.name.as_str());
            }
            News::Version(_) => return Vec::new(),
        }
        std::mem::take(&mut fabrics.waiting).into_iter().collect()
    }
}
