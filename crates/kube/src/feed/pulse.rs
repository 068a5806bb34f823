//! How old what is known of the cluster is.
//!
//! Owns the age of every feed, and what follows from it: whether everything was listed, whether the operator is
//! blind, and for which kinds of jobs it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::{sync::watch, time::Instant};
use tracing::{info, warn};
use trainyard_core::spec::Kind;

use super::Source;
use crate::metrics::Metrics;

/// A feed without a sign of life for this long is stale: a silent watch is noticed after three minutes, and the list
/// after it has one.
pub(crate) const STALE_AFTER: Duration = Duration::from_mins(5);

/// Who depends on a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every job: while it is stale the operator does not act, and does not lead.
    Everything,
    /// Jobs of these kinds: while it is stale they wait, and no other does.
    Kinds(Vec<Kind>),
    /// Jobs of these kinds: until it is listed, and while it is stale, they wait, and no other does.
    Optional(Vec<Kind>),
    /// Some jobs, which find out themselves; its age is reported.
    Reported,
}

impl Scope {
    /// Whether jobs of other kinds wait until it is listed.
    fn holds_others(&self) -> bool {
        matches!(self, Self::Everything | Self::Kinds(_))
    }
}

/// What the operator may go by now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sight {
    /// Everything was listed once.
    pub(crate) listed: bool,
    /// Something that every job depends on is stale.
    pub(crate) blind: bool,
    /// The kinds whose feeds are stale.
    pub(crate) kinds: BTreeSet<Kind>,
}

impl Sight {
    /// Whether jobs may be processed at all.
    pub(crate) fn is_clear(&self) -> bool {
        self.listed && !self.blind
    }
}

/// All feeds of an operator.
#[derive(Debug)]
pub(crate) struct Feeds {
    states: Mutex<BTreeMap<String, State>>,
    sight: watch::Sender<Sight>,
}

#[derive(Debug)]
struct State {
    scope: Scope,
    listed: bool,
    last: Instant,
    stale: bool,
}

/// The age of one feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Age {
    pub(crate) feed: String,
    /// Time since its last sign of life.
    pub(crate) silent: Duration,
    pub(crate) listed: bool,
    pub(crate) stale: bool,
    /// Whether every job depends on it.
    pub(crate) shared: bool,
}

impl Default for Feeds {
    fn default() -> Self {
        Self {
            states: Mutex::default(),
            sight: watch::Sender::new(Sight::default()),
        }
    }
}

impl Feeds {
    /// A feed begins; nothing is processed before it has listed once, unless it is only reported.
    pub(crate) fn expect(
        self: &Arc<Self>,
        name: &str,
        scope: Scope,
        metrics: &Arc<Metrics>,
    ) -> Pulse {
        let state = State {
            scope,
            listed: false,
            last: Instant::now(),
            stale: false,
        };
        self.lock().insert(name.to_owned(), state);
        self.review();
        Pulse(Some(Arc::new(One {
            name: name.to_owned(),
            feeds: Arc::clone(self),
            metrics: Arc::clone(metrics),
        })))
    }

    /// Where changes of the sight are seen.
    pub(crate) fn sight(&self) -> watch::Receiver<Sight> {
        self.sight.subscribe()
    }

    /// The feeds that jobs wait for and that have not listed yet.
    pub(crate) fn unlisted(&self) -> Vec<String> {
        let states = self.lock();
        let missing = states
            .iter()
            .filter(|(_, state)| !state.listed && state.scope.holds_others());
        missing.map(|(name, _)| name.clone()).collect()
    }

    /// The age of every feed.
    pub(crate) fn ages(&self) -> Vec<Age> {
        let now = Instant::now();
        let states = self.lock();
        let ages = states.iter().map(|(name, state)| {
            let age = now.saturating_duration_since(state.last);
            Age {
                feed: name.clone(),
                silent: age,
                listed: state.listed,
                stale: age >= STALE_AFTER,
                shared: state.scope == Scope::Everything,
            }
        });
        ages.collect()
    }

    /// Finds out what is stale now, and says so where that has changed.
    pub(crate) fn review(&self) {
        let now = Instant::now();
        let mut sight = Sight {
            listed: true,
            ..Sight::default()
        };
        for (name, state) in self.lock().iter_mut() {
            let age = now.saturating_duration_since(state.last);
            let stale = age >= STALE_AFTER;
            if stale && !state.stale {
                let seconds = age.as_secs();
                warn!(feed = name, seconds, "The watch is stale");
            } else if !stale && state.stale {
                info!(feed = name, "The watch is fresh again");
            }
            state.stale = stale;
            match &state.scope {
                Scope::Reported => continue,
                Scope::Optional(kinds) => {
                    if stale || !state.listed {
                        sight.kinds.extend(kinds);
                    }
                    continue;
                }
                Scope::Everything => sight.blind |= stale,
                Scope::Kinds(kinds) if stale => sight.kinds.extend(kinds),
                Scope::Kinds(_) => {}
            }
            // Where one kind cannot be listed, jobs of the others do not wait for it without end.
            let left_out = stale && state.scope != Scope::Everything;
            sight.listed &= state.listed || left_out;
        }
        self.sight.send_if_modified(|known| {
            let changed = *known != sight;
            *known = sight;
            changed
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where one feed reports that it lives; nowhere by default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse(Option<Arc<One>>);

#[derive(Debug)]
struct One {
    name: String,
    feeds: Arc<Feeds>,
    metrics: Arc<Metrics>,
}

impl Pulse {
    /// Something came.
    pub(super) fn sign(&self) {
        if let Some(one) = &self.0 {
            let changed = {
                let mut states = one.feeds.lock();
                let Some(state) = states.get_mut(&one.name) else {
                    return;
                };
                state.last = Instant::now();
                state.stale
            };
            if changed {
                one.feeds.review();
            }
        }
    }

    /// All of it was listed.
    pub(super) fn listed(&self) {
        if let Some(one) = &self.0 {
            if let Some(state) = one.feeds.lock().get_mut(&one.name) {
                state.last = Instant::now();
                state.listed = true;
            }
            one.feeds.review();
        }
    }

    /// An object cannot be decoded, and is left out.
    pub(super) fn undecodable(&self, source: &Source, object: &Value, error: &serde_json::Error) {
        let text = |key: &str| {
            let text = object.pointer(&format!("/metadata/{key}"));
            let text = text.and_then(Value::as_str).unwrap_or("?");
            text.chars().take(253).collect::<String>()
        };
        warn!(
            path = source.path,
            namespace = text("namespace"),
            name = text("name"),
            %error,
            "Cannot decode an object; it is ignored"
        );
        if let Some(one) = &self.0 {
            one.metrics.undecodable(&one.name);
        }
    }
}
