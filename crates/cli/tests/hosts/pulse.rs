//! Whether this machine had its processors while something was measured: how long a thread that wanted one had to wait, and how
//! much of them a host of virtual machines took.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How often the thread wants a processor.
const EVERY: Duration = Duration::from_millis(2);

/// What the machine did without while it was watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lack {
    /// The longest time that a thread waited for a processor.
    pub(crate) wait: Duration,
    /// The part of the processors that was stolen: used by another machine of the same host.
    pub(crate) stolen: f64,
}

/// A thread that wants a processor again and again.
pub(crate) struct Pulse {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
    before: Option<(u64, u64)>,
}

impl Pulse {
    pub(crate) fn start() -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stops);
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !seen.load(Ordering::Relaxed) {
                let before = Instant::now();
                std::thread::sleep(EVERY);
                longest = longest.max(before.elapsed().saturating_sub(EVERY));
            }
            longest
        });
        Self {
            stops,
            thread,
            before: stolen(),
        }
    }

    pub(crate) fn stop(self) -> Lack {
        self.stops.store(true, Ordering::Relaxed);
        let wait = self.thread.join().unwrap();
        let share = |(before, all_before): (u64, u64), (after, all_after): (u64, u64)| {
            let all = all_after.saturating_sub(all_before).max(1);
            f64::from(u32::try_from(after.saturating_sub(before)).unwrap())
                / f64::from(u32::try_from(all).unwrap())
        };
        let stolen = self.before.zip(stolen());
        Lack {
            wait,
            stolen: stolen.map_or(0.0, |(before, after)| share(before, after)),
        }
    }
}

/// The time that was stolen of all processors, and all of their time, in ticks.
fn stolen() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().next()?;
    let ticks: Vec<u64> = line
        .split_ascii_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|word| word.parse().ok())
        .collect();
    Some((*ticks.get(7)?, ticks.iter().sum()))
}
