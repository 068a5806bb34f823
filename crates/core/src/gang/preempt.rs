//! Which gangs have to end so that one of higher priority can start, where it was asked for.
//!
//! The price of a gang is the work that is lost with it: the time since its last checkpoint, times its
//! accelerators. The cheapest are taken first, and nobody whose seats are not needed.
//!
//! Invariant: a victim has a lower priority than whom it ends for, and what it frees is promised to that one, so no
//! two gangs can end each other in turn.

use jiff::Timestamp;

use super::{
    Eviction, Gang, GangKey, Placer,
    amounts::Amounts,
    ask::Ask,
    seat::{Room, Seats, seat},
    yard::Yard,
};

/// Victims that are thought about; the cheapest ones.
const TRIED: usize = 256;

/// Who has to end, and where the gang will be then.
pub(super) struct Preemption<'a> {
    /// Those to end; empty where enough are leaving already.
    pub(super) victims: Vec<(&'a Gang, Eviction)>,
    pub(super) seats: Seats,
}

impl<'a> Placer<'a> {
    /// Finds victims for a gang that was refused.
    pub(super) fn preempt(&mut self, ask: &Ask<'a>) -> Option<Preemption<'a>> {
        if !ask.gang.preempts {
            return None;
        }
        let gone: Vec<&GangKey> = self
            .gangs
            .iter()
            .filter(|gang| gang.leaving || self.placement.victims.contains_key(&gang.key))
            .map(|gang| &gang.key)
            .collect();
        let mut trial = Trial {
            yard: &self.yard,
            ask,
            gone,
            amounts: Amounts::default(),
        };
        if let Some(seats) = trial.seat(&[]) {
            return Some(Preemption {
                victims: Vec::new(),
                seats,
            });
        }
        let mut candidates: Vec<(i64, &'a Gang)> = self
            .gangs
            .iter()
            .filter(|gang| {
                gang.priority < ask.gang.priority
                    && !gang.held.is_empty()
                    && !trial.gone.contains(&&gang.key)
            })
            .map(|gang| (price(gang, self.now), gang))
            .collect();
        candidates.sort_by(|(a, one), (b, other)| {
            let youngest = || other.created.cmp(&one.created);
            a.cmp(b)
                .then_with(youngest)
                .then_with(|| one.key.cmp(&other.key))
        });
        candidates.truncate(TRIED);
        let gangs: Vec<&'a Gang> = candidates.iter().map(|(_, gang)| *gang).collect();
        let victims = trial.fewest(&gangs)?;
        let seats = trial.seat(&victims)?;
        let victims = victims
            .into_iter()
            .map(|gang| (gang, eviction(gang, ask.gang, self.now)))
            .collect();
        Some(Preemption { victims, seats })
    }
}

/// The cluster without some gangs.
struct Trial<'y, 'a> {
    yard: &'y Yard<'a>,
    ask: &'y Ask<'a>,
    /// Gangs that are ending anyway.
    gone: Vec<&'a GangKey>,
    amounts: Amounts,
}

impl<'a> Trial<'_, 'a> {
    /// The seats of the gang if `victims` had ended too.
    fn seat(&mut self, victims: &[&'a Gang]) -> Option<Seats> {
        self.amounts.clone_from(&self.yard.usable);
        let mut room = Room {
            yard: self.yard,
            amounts: &mut self.amounts,
        };
        for lodger in &self.yard.lodgers {
            let ends =
                |key| self.gone.contains(&key) || victims.iter().any(|gang| gang.key == *key);
            if lodger.leaving || lodger.gang.is_some_and(ends) {
                let need = self.yard.need(lodger.requests);
                room.give_back(lodger.node, &need);
            }
        }
        seat(&mut room, self.ask)
    }

    /// The cheapest of `candidates`, which come in the order of their price, that are enough: as few of the
    /// first as will do, and of those nobody who could stay.
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
    latest.unwrap_or(("it was made", gang.created))
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
            "ends for `{}`, whose priority {} is above {}; the {minutes} min since {since} are lost on {gpus} \
             GPUs",
            beneficiary.key, beneficiary.priority, gang.priority
        ),
    }
}
