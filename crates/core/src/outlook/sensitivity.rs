//! Which change improves ETTR most.
//!
//! Every change runs with the same random numbers as the world itself, so that chance does not
//! affect the difference.

use serde::Serialize;

use super::{summary::simulate, world::World};

/// A change and its effect.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Effect {
    /// What is changed.
    pub change: &'static str,
    /// Percentage points of ETTR that it gains; negative where it loses.
    pub points: f64,
}

/// The effect of each change, the most helpful first.
pub fn sensitivity(world: &World, seed: u64, runs: u32) -> Vec<Effect> {
    type Change = (&'static str, fn(&mut World));
    let changes: [Change; 8] = [
        ("halving the time to restart", |world| {
            let seconds = &mut world.path_seconds;
            seconds.requeue /= 2.0;
            seconds.replace /= 2.0;
            seconds.standby /= 2.0;
            seconds.in_place /= 2.0;
        }),
        ("halving the time to start", |world| {
            world.start_seconds /= 2.0;
        }),
        ("halving the time to detect failures", |world| {
            world.notice.seconds /= 2.0;
            world.notice.silent_seconds /= 2.0;
        }),
        ("checkpointing twice as often", |world| {
            world.checkpoints.every /= 2.0;
        }),
        ("checkpointing half as often", |world| {
            world.checkpoints.every *= 2.0;
        }),
        ("one more standby", |world| {
            world.spares.standbys += 1;
        }),
        ("halving hardware failures", |world| {
            world.failures.hardware /= 2.0;
        }),
        ("halving software failures", |world| {
            world.failures.software /= 2.0;
        }),
    ];
    let now = simulate(world, seed, runs).ettr.mean;
    let mut effects: Vec<Effect> = changes
        .into_iter()
        .map(|(change, apply)| {
            let mut other = world.clone();
            apply(&mut other);
            Effect {
                change,
                points: 100.0 * (simulate(&other, seed, runs).ettr.mean - now),
            }
        })
        .collect();
    effects.sort_by(|one, other| other.points.total_cmp(&one.points));
    effects
}
