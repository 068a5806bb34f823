//! How often to save, from measured figures; and which tiers a save reaches before a deadline.

use super::select::Tier;

/// What was measured of saves, steps and failures, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// How long training stands still for a save.
    pub stall: f64,
    /// From the end of the snapshot until the commit is durable.
    pub write: f64,
    /// One step.
    pub step: f64,
    /// The mean time between failures of the whole job.
    pub between_failures: f64,
}

/// What decides the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundBy {
    /// The balance of stalls against lost work.
    Failures,
    /// A save is still being written: only one is in flight.
    Write,
    /// A save at every step.
    Step,
}

/// How often to save.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cadence {
    /// Young's interval, in seconds.
    pub young: f64,
    /// Daly's interval of higher order, in seconds.
    pub daly: f64,
    /// The proposed interval, in steps.
    pub steps: u64,
    /// What decides it.
    pub bound_by: BoundBy,
}

/// The interval at which stalls and lost work cost least (Young 1974; Daly 2006, equation 37). `None` for figures that are negative,
/// zero where they cannot be, or not numbers.
pub fn cadence(measured: &Measured) -> Option<Cadence> {
    let Measured {
        stall,
        write,
        step,
        between_failures,
    } = *measured;
    let sane = |value: f64| value.is_finite() && value >= 0.0;
    if !sane(stall) || !sane(write) || !sane(step) || !sane(between_failures) {
        return None;
    }
    if step == 0.0 || between_failures == 0.0 {
        return None;
    }
    let young = young_interval(stall, between_failures);
    let daly = daly_interval(stall, between_failures);
    let seconds = daly.max(write).max(step);
    let bound_by = if daly >= write && daly >= step {
        BoundBy::Failures
    } else if write >= step {
        BoundBy::Write
    } else {
        BoundBy::Step
    };
    // Rounded up where saves would overtake each other, to the nearest otherwise.
    let steps = seconds / step;
    let steps = match bound_by {
        BoundBy::Write => steps.ceil(),
        BoundBy::Failures | BoundBy::Step => steps.round().max((write / step).ceil()),
    };
    Some(Cadence {
        young,
        daly,
        steps: whole(steps),
        bound_by,
    })
}

/// Young's interval in seconds (Young 1974).
pub fn young_interval(stall: f64, between_failures: f64) -> f64 {
    (2.0 * stall * between_failures).sqrt()
}

/// Daly's interval of higher order in seconds (Daly 2006, equation 37).
pub fn daly_interval(stall: f64, between_failures: f64) -> f64 {
    let ratio = stall / (2.0 * between_failures);
    if ratio < 1.0 {
        let young = young_interval(stall, between_failures);
        (young * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - stall).max(0.0)
    } else {
        between_failures
    }
}

/// A count of steps from a quotient of two durations.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to a range that fits"
)]
fn whole(steps: f64) -> u64 {
    steps.clamp(1.0, 1e15) as u64
}

/// What a save to one tier takes, in seconds, as measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierCost {
    /// The tier.
    pub tier: Tier,
    /// Until the commit is durable there.
    pub seconds: f64,
}

/// The share of a deadline that is planned for; the rest is for what was measured on a quieter day.
const USED_SHARE: f64 = 0.8;

/// The tiers to save to before a deadline, in order: the own disk or memory first where there is time for both, then the safest that
/// fits. Empty where none fits: the caller reports the shortest time and what was left.
pub fn tiers_before(deadline: f64, costs: &[TierCost]) -> Vec<Tier> {
    let left = deadline * USED_SHARE;
    let mut sorted: Vec<TierCost> = costs
        .iter()
        .filter(|cost| cost.seconds.is_finite() && cost.seconds >= 0.0)
        .copied()
        .collect();
    sorted.sort_by_key(|cost| cost.tier);
    let Some(first) = sorted.iter().rposition(|cost| cost.seconds <= left) else {
        return Vec::new();
    };
    // A commit nearby comes first: it is there even if the notice was shorter than promised.
    let mut tiers = Vec::new();
    let own = sorted[..first]
        .iter()
        .rev()
        .find(|cost| cost.tier <= Tier::Local);
    if let Some(own) = own.filter(|own| own.seconds + sorted[first].seconds <= left) {
        tiers.push(own.tier);
    }
    tiers.push(sorted[first].tier);
    tiers
}
