//! Which gangs to evict so that one of higher priority can start, where its job asks for preemption.
//!
//! The price of a gang is the work that is lost with it: the time since its last checkpoint, times its
//! accelerators. The cheapest are evicted first, and only gangs whose seats are needed.
//!
//! Invariant: a victim has a lower priority than the pods of the gang it is evicted for were admitted with, and what
//! it frees is promised to that gang, so no two gangs can evict each other in turn.

use jiff::Timestamp;

use super::{
    Eviction, Gang, GangKey, Placer, PreemptionScope,
    amounts::Amounts,
    ask::Ask,
    node_table::NodeTable,
    seat::{Room, Seats, seat},
};
use crate::mutant::{self, Mutant};

/// Most victims that are considered; the cheapest ones.
const TRIED: usize = 256;

/// The gangs to evict, and where the preempting gang will be then.
pub(super) struct Preemption<'a> {
    /// Gangs to evict; empty where enough are terminating already.
    pub(super) victims: Vec<(&'a Gang, Eviction)>,
    pub(super) seats: Seats,
}

/// Why a gang that asks for preemption may not evict others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barred {
    /// The administrator switched it off.
    Off,
    /// Victims of its own namespace would not be enough, and others are out of reach.
    OtherNamespaces,
    /// `preemptionPolicy: Never`.
    Policy,
    /// Not all its pods exist.
    Unadmitted,
}

impl Barred {
    /// Whether the administrator's setting (`--preemption`) prevents it.
    pub(super) fn is_scope(self) -> bool {
        matches!(self, Self::Off | Self::OtherNamespaces)
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Off => "preemption is off (`--preemption`)",
            Self::OtherNamespaces => "preemption across namespaces is off (`--preemption`)",
            Self::Policy => {
                "its priority class does not allow preemption (`preemptionPolicy: Never`)"
            }
            Self::Unadmitted => "preemption is possible once all its pods exist",
        }
    }
}

impl<'a> Placer<'a> {
    /// Finds victims for a gang that was refused; the error is what prevents preemption, where the gang asks for it.
    pub(super) fn preempt(&mut self, ask: &Ask<'a>) -> Result<Preemption<'a>, Option<Barred>> {
        if !ask.gang.preempts {
            return Err(None);
        }
        if self.scope == PreemptionScope::Off {
            return Err(Some(Barred::Off));
        }
        if ask.gang.never_preempts {
            return Err(Some(Barred::Policy));
        }
        if !ask.gang.admitted && !mutant::is(Mutant::EvictsForUnadmitted) {
            return Err(Some(Barred::Unadmitted));
        }
        let gone: Vec<&GangKey> = self
            .gangs
            .iter()
            .filter(|gang| gang.leaving || self.placement.victims.contains_key(&gang.key))
            .map(|gang| &gang.key)
            .collect();
        let mut trial = Trial {
            table: &self.table,
            ask,
            gone,
            amounts: Amounts::default(),
        };
        if let Some(seats) = trial.seat(&[]) {
            return Ok(Preemption {
                victims: Vec::new(),
                seats,
            });
        }
        let (lower, out_of_reach) = candidates(self.gangs, ask.gang, &trial.gone, self.scope);
        let gangs = cheapest(lower, self.now);
        let Some(victims) = trial.fewest(&gangs) else {
            let mut all = gangs;
            all.extend(cheapest(out_of_reach.clone(), self.now));
            let would_do = !out_of_reach.is_empty() && trial.seat(&all).is_some();
            return Err(would_do.then_some(Barred::OtherNamespaces));
        };
        let seats = trial.seat(&victims).ok_or(None)?;
        let victims = victims
            .into_iter()
            .map(|gang| (gang, eviction(gang, ask.gang, self.now)))
            .collect();
        Ok(Preemption { victims, seats })
    }
}

/// The gangs of lower priority that hold seats: those that may be evicted for `gang`, and those out of its reach.
fn candidates<'a>(
    gangs: &'a [Gang],
    gang: &Gang,
    gone: &[&GangKey],
    scope: PreemptionScope,
) -> (Vec<&'a Gang>, Vec<&'a Gang>) {
    let is_lower = |other: &Gang| {
        other.priority < gang.claim || mutant::is(Mutant::EvictsEquals) && other.key != gang.key
    };
    let lower = gangs
        .iter()
        .filter(|other| is_lower(other) && !other.held.is_empty() && !gone.contains(&&other.key));
    let in_reach = |other: &&Gang| {
        scope == PreemptionScope::Cluster
            || other.key.namespace == gang.key.namespace
            || mutant::is(Mutant::EvictsAnywhere)
    };
    lower.partition(in_reach)
}

/// The gangs that lose the least work when evicted now, cheapest first.
fn cheapest(gangs: Vec<&Gang>, now: Timestamp) -> Vec<&Gang> {
    let mut priced: Vec<(i64, &Gang)> = gangs
        .into_iter()
        .map(|gang| (price(gang, now), gang))
        .collect();
    priced.sort_by(|(a, one), (b, other)| {
        let youngest = || other.created.cmp(&one.created);
        a.cmp(b)
            .then_with(youngest)
            .then_with(|| one.key.cmp(&other.key))
    });
    priced.truncate(TRIED);
    priced.into_iter().map(|(_, gang)| gang).collect()
}

/// The cluster without some gangs.
struct Trial<'y, 'a> {
    table: &'y NodeTable<'a>,
    ask: &'y Ask<'a>,
    /// Gangs that are ending anyway.
    gone: Vec<&'a GangKey>,
    amounts: Amounts,
}

impl<'a> Trial<'_, 'a> {
    /// The seats of the gang if `victims` had ended too.
    fn seat(&mut self, victims: &[&'a Gang]) -> Option<Seats> {
        self.amounts.clone_from(&self.table.usable);
        let mut room = Room {
            table: self.table,
            amounts: &mut self.amounts,
        };
        for placed in &self.table.placed_pods {
            let ends =
                |key| self.gone.contains(&key) || victims.iter().any(|gang| gang.key == *key);
            if placed.leaving || placed.gang.is_some_and(ends) {
                let need = self.table.need(placed.requests);
                room.release(placed.node, &need);
            }
        }
        seat(&mut room, self.ask)
    }

    /// The cheapest of `candidates` (sorted by price) that are enough: as few of the
    /// first as possible, and of those only gangs that must go.
    fn fewest(&mut self, candidates: &[&'a Gang]) -> Option<Vec<&'a Gang>> {
        self.seat(candidates)?;
        let (mut low, mut high) = (1, candidates.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.seat(&candidates[..middle]).is_some() {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let mut victims = candidates[..high].to_vec();
        for at in (0..victims.len()).rev() {
            let spared = victims.remove(at);
            if self.seat(&victims).is_none() {
                victims.insert(at, spared);
            }
        }
        Some(victims)
    }
}

/// Accelerator seconds that are lost if `gang` ends now. A pod without accelerators counts as one.
fn price(gang: &Gang, now: Timestamp) -> i64 {
    let since = unsafe_since(gang).1;
    let seconds = now.duration_since(since).as_secs().max(0);
    seconds.saturating_mul(gang.accelerators(gang.pods.len()).max(1))
}

/// What the work that would be lost began with, and when. What was done before an attempt began was either saved or
/// is lost already.
fn unsafe_since(gang: &Gang) -> (&'static str, Timestamp) {
    let runs_since = gang.runs_since.map(|at| ("it began to run", at));
    let safe_at = gang.safe_at.map(|at| ("its last checkpoint", at));
    let latest = runs_since
        .into_iter()
        .chain(safe_at)
        .max_by_key(|(_, at)| *at);
    latest.unwrap_or(("it was created", gang.created))
}

fn eviction(gang: &Gang, beneficiary: &Gang, now: Timestamp) -> Eviction {
    let price_seconds = price(gang, now);
    let since = unsafe_since(gang).0;
    let gpus = gang.accelerators(gang.pods.len()).max(1);
    let minutes = price_seconds / gpus / 60;
    Eviction {
        beneficiary: beneficiary.key.to_string(),
        price_seconds,
        message: format!(
            "evicted for `{}`: priority {} is above {}; the {minutes} min since {since} are lost on {gpus} \
             GPUs",
            beneficiary.key, beneficiary.claim, gang.priority
        ),
    }
}
