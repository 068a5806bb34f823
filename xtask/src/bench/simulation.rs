//! How fast the simulation goes through seeds, as the hunt itself reports it.
//!
//! The bound is for two cores that do nothing else. It is judged by processor time, because on a
//! shared machine the wall clock measures the neighbours; the wall clock's rate is printed beside it.

use super::Figure;
use crate::{Failure, report, seed_hunt, step};

/// Seeds of the measured hunt: enough for several seconds, so that start-up does not count.
const SEEDS: &str = "20000";
/// The simulation must reach this many seeds a minute on two cores.
const SEEDS_A_MINUTE: f64 = 100_000.0;
/// A run shorter than this on average exercises too little to be called a run.
const EVENTS_A_RUN: f64 = 200.0;

/// Seeds a minute, and events a run.
pub(super) fn figures() -> Result<Vec<Figure>, Failure> {
    report::progress("simulation");
    let mut wall = None;
    let mut core = None;
    let mut events = None;
    step::stream(&mut seed_hunt::command(&["--seeds", SEEDS]), |line| {
        wall = number_after(line, "seeds/minute").or(wall);
        core = number_after(line, "seeds/core-minute").or(core);
        events = number_after(line, "events/run").or(events);
    })?;
    let (Some(wall), Some(core), Some(events)) = (wall, core, events) else {
        return Err(Failure::CouldNotRun(
            "the seed hunt did not print its rates and its `events/run`".to_owned(),
        ));
    };
    let seeds = core * 2.0;
    Ok(vec![
        Figure {
            name: "simulation, seeds a minute of two cores".to_owned(),
            measured: format!("{seeds:.0} (by the wall clock {wall:.0})"),
            bound: format!("at least {SEEDS_A_MINUTE:.0}"),
            met: seeds >= SEEDS_A_MINUTE,
        },
        Figure {
            name: "simulation, events a run".to_owned(),
            measured: format!("{events:.0}"),
            bound: format!("at least {EVENTS_A_RUN:.0}"),
            met: events >= EVENTS_A_RUN,
        },
    ])
}

/// The number that stands right after `words`; it may hold `,` or `_` between digits.
fn number_after(line: &str, words: &str) -> Option<f64> {
    let (_, after) = line.split_once(words)?;
    let number = after.split_whitespace().next()?;
    number.replace([',', '_'], "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_what_the_hunt_prints() {
        let line = "seeds 20000 events 5,030,000 events/run 251 min 3 wall 9.7 s seeds/minute 123,456 cpu 18.0 s seeds/core-minute 66,667";
        assert_eq!(number_after(line, "events/run"), Some(251.0));
        assert_eq!(number_after(line, "seeds/minute"), Some(123_456.0));
        assert_eq!(number_after(line, "seeds/core-minute"), Some(66_667.0));
        assert_eq!(number_after(line, "seeds/hour"), None);
    }
}
