//! Every second went somewhere.

use jiff::SignedDuration;
use trainyard_core::{job::JobStatus, ledger::SPANS_KEPT};

use super::{Verdict, ensure};
use crate::world::World;

const ADDS_UP: &str = "the ledger adds up";
const TRAINS: &str = "nothing trains before its first step";

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
    let spans: u64 = new.spans(now).iter().map(|span| span.millis).sum();
    let wall = u64::try_from(new.wall(now).as_millis());
    ensure!(
        ADDS_UP,
        wall == Ok(spans) && new.timeline.0.len() <= SPANS_KEPT,
        "{} spans in order of time last {spans} ms of {wall:?} ms",
        new.timeline.0.len()
    );
    // Of the open span, a phase that began before it was noticed may take a part; what is closed stays.
    let closed = old.open.map_or(now, |open| open.since);
    let totals = new.totals(now);
    for (phase, millis) in old.totals(closed) {
        let kept = totals.get(&phase).copied().unwrap_or(0);
        ensure!(
            ADDS_UP,
            kept >= millis,
            "{phase:?} had {millis} ms and has {kept} ms"
        );
    }
    trains_after_steps(after, world)
}

/// No time trains in an attempt that reported no step.
fn trains_after_steps(status: &JobStatus, world: &World) -> Verdict {
    let record = &status.trainyard;
    let open = record.ledger.open.filter(|open| open.phase.follows_step());
    if let Some(open) = open {
        let reported = world.progress().map(|progress| progress.attempt);
        ensure!(
            TRAINS,
            reported >= Some(open.attempt),
            "attempt {} is {:?}, and the last that reported a step is {reported:?}",
            open.attempt,
            open.phase
        );
    }
    Ok(())
}
