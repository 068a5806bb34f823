//! Waiting on conditions, with a bound.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{Failure, report};

/// Short beside anything that is waited for, long beside the cost of a look.
const PAUSE: Duration = Duration::from_millis(50);

/// Looks until `condition` holds or cannot hold any more; `what` names it where time runs out.
pub(super) fn until(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let began = Instant::now();
    while !condition()? {
        if began.elapsed() > limit {
            return Err(Failure::CouldNotRun(format!(
                "waited {} for {what}, in vain",
                report::seconds(limit)
            )));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}
