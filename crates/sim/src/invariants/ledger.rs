//! Every second went somewhere.

use jiff::SignedDuration;
use trainyard_core::job::JobStatus;

use super::{Verdict, ensure};
use crate::world::World;

const ADDS_UP: &str = "the ledger adds up";

/// The phases sum to the wall time since the job was first seen, now and later, and what was
/// booked stays booked.
pub(super) fn adds_up(before: &JobStatus, after: &JobStatus, world: &World) -> Verdict {
    let now = world.timestamp();
    let (old, new) = (&before.trainyard.ledger, &after.trainyard.ledger);
    if let Some(began) = old.began {
        ensure!(
            ADDS_UP,
            new.began == Some(began),
            "it began at {began} and at {:?}",
            new.began
        );
    } else if let Some(began) = new.began {
        ensure!(
            ADDS_UP,
            began == now,
            "it begins at {began}, first seen at {now}"
        );
    }
    if let Some(ended) = old.ended {
        ensure!(
            ADDS_UP,
            new.ended == Some(ended),
            "it ended at {ended} and at {:?}",
            new.ended
        );
    }
    for later in [now, now + SignedDuration::from_mins(7)] {
        let booked: u64 = new.totals(later).values().sum();
        let until = new.ended.unwrap_or(later);
        let wall = new
            .began
            .map_or(0, |began| until.as_millisecond() - began.as_millisecond());
        ensure!(
            ADDS_UP,
            i64::try_from(booked) == Ok(wall),
            "{booked} ms are booked of {wall} ms"
        );
    }
    let totals = new.totals(now);
    for (phase, millis) in old.totals(now) {
        let kept = totals.get(&phase).copied().unwrap_or(0);
        ensure!(
            ADDS_UP,
            kept >= millis,
            "{phase:?} had {millis} ms and has {kept} ms"
        );
    }
    Ok(())
}
