//! What holds of every watch, as a check of its trace; and that the check notices a watch that breaks it.

use std::time::Duration;

use super::{
    super::{Ask, LOOKS_MOST, Outlook, Settings},
    DAY, DELAY, defaults, hangs, millis, secs,
    world::{Fault, Trace, watch},
};

/// Whether a watch with `settings` may have given `trace`; `silent_since` is when a hang began.
pub(super) fn check(
    settings: Settings,
    trace: &Trace,
    silent_since: Option<Duration>,
) -> Result<(), String> {
    for (at, finding) in &trace.findings {
        if finding.cause.is_hang() && finding.silent_for < settings.hang_floor {
            return Err(format!("{at:?}: floor ignored: {finding:?}"));
        }
    }
    let mut asked: Option<Duration> = None;
    let mut asks = 0_u32;
    for (at, outlook) in &trace.looks {
        if outlook.wake_at.is_some_and(|wake| wake <= *at) {
            return Err(format!("{at:?}: no later wake: {outlook:?}"));
        }
        if !outlook.ask.contains(&Ask::Usage) {
            continue;
        }
        if asked.is_some_and(|asked| at.saturating_sub(asked) < millis(400)) {
            return Err(format!("{at:?}: evidence too often"));
        }
        asked = Some(*at);
        let silent = silent_since.is_some_and(|since| since <= *at);
        asks += u32::from(silent);
    }
    if asks > LOOKS_MOST {
        return Err(format!("evidence without end: {asks}"));
    }
    Ok(())
}

/// Whether a rank that never stands still was found at the ceiling.
fn check_ceiling(settings: Settings, trace: &Trace, begin: Duration) -> Result<(), String> {
    let limit = begin + settings.hang_after + secs(61);
    match trace.act() {
        Some((at, _)) if *at <= limit => Ok(()),
        found => Err(format!("patience without a ceiling: {found:?}")),
    }
}

#[test]
fn bounds_hold() {
    let begin = secs(12);
    for fault in [
        Fault::Sleeps(1),
        Fault::Stopped(1),
        Fault::Busy(1),
        Fault::AllWait,
        Fault::Unseen,
    ] {
        let trace = watch(defaults(), &hangs(fault), DAY, DELAY);
        check(defaults(), &trace, Some(begin)).unwrap();
        check_ceiling(defaults(), &trace, begin).unwrap();
    }
    // Evidence that changes nothing is not gathered all day.
    let trace = watch(defaults(), &hangs(Fault::AllCompute), DAY, DELAY);
    check(defaults(), &trace, Some(begin)).unwrap();
    let last = trace.looks.last().unwrap();
    assert!(last.0 < secs(12 * 3_600), "{last:?}");
    let asks = trace.looks.iter().filter(|(_, look)| !look.ask.is_empty());
    let early = asks.filter(|(at, _)| *at < secs(612));
    assert!(early.count() <= 70);
}

#[test]
fn broken_bounds_are_noticed() {
    let begin = secs(12);
    let endless = Settings {
        hang_after: DAY * 2,
        ..defaults()
    };
    let trace = watch(endless, &hangs(Fault::Busy(1)), DAY, DELAY);
    assert!(check_ceiling(defaults(), &trace, begin).is_err());
    let hasty = Settings {
        hang_floor: millis(1),
        ..defaults()
    };
    let trace = watch(hasty, &hangs(Fault::Sleeps(1)), DAY, DELAY);
    assert!(check(hasty, &trace, Some(begin)).is_ok());
    assert!(check(defaults(), &trace, Some(begin)).is_err());
    let look = |at: Duration| {
        let outlook = Outlook {
            findings: Vec::new(),
            ask: vec![Ask::Usage, Ask::Stacks],
            wake_at: Some(at + secs(60)),
        };
        (at, outlook)
    };
    let every = |time: Duration, count: u32| Trace {
        looks: (0..count).map(|index| look(begin + time * index)).collect(),
        findings: Vec::new(),
    };
    assert!(check(defaults(), &every(millis(400), LOOKS_MOST), Some(begin)).is_ok());
    assert!(check(defaults(), &every(millis(400), LOOKS_MOST + 1), Some(begin)).is_err());
    assert!(check(defaults(), &every(millis(399), 2), Some(begin)).is_err());
    let mut stuck = every(secs(60), 2);
    stuck.looks[1].1.wake_at = Some(stuck.looks[1].0);
    assert!(check(defaults(), &stuck, Some(begin)).is_err());
}
