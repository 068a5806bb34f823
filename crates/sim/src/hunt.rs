//! Many seeds on all cores.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    Decide, TraceLevel,
    coverage::Coverage,
    run::{RunOptions, run},
    violation::Violation,
};

/// What to hunt.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// The seeds to run.
    pub seeds: Range<u64>,
    /// Threads to run them on.
    pub threads: usize,
    /// Every seed that is a multiple of this is run twice and compared; 0 for none.
    pub twice_every: u64,
    /// Run all seeds even after one broke an invariant.
    pub keep_going: bool,
}

/// A seed that broke an invariant.
#[derive(Clone, Debug)]
pub struct Found {
    /// The seed.
    pub seed: u64,
    /// The life of the run in which it broke.
    pub life: u64,
    /// What broke.
    pub violation: Violation,
}

/// What a hunt has seen.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds that were run.
    pub seeds: u64,
    /// Events of all of them.
    pub events: u64,
    /// The fewest events of one.
    pub min_events: u64,
    /// How long it took.
    pub wall: Duration,
    /// What was met.
    pub coverage: Coverage,
    /// For each invariant that broke: how many seeds broke it, and the smallest of those run.
    pub broken: BTreeMap<&'static str, (u64, Found)>,
}

impl Summary {
    /// The smallest seed that broke an invariant, among those run.
    pub fn found(&self) -> Option<&Found> {
        self.broken
            .values()
            .map(|(_, found)| found)
            .min_by_key(|found| found.seed)
    }

    fn note(&mut self, count: u64, found: Found) {
        let (broken, smallest) = self
            .broken
            .entry(found.violation.invariant)
            .or_insert_with(|| (0, found.clone()));
        *broken += count;
        if found.seed < smallest.seed {
            *smallest = found;
        }
    }
}

/// Runs seeds until all are done or one breaks an invariant. `progress` is called once a second
/// with the seeds run so far.
pub fn hunt(plan: &Hunt, decide: Decide, progress: impl Fn(u64) + Sync) -> Summary {
    let began = Instant::now();
    let next = AtomicU64::new(plan.seeds.start);
    let done = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let total = Mutex::new(Summary {
        min_events: u64::MAX,
        ..Summary::default()
    });
    thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.threads.max(1))
            .map(|_| {
                scope.spawn(|| {
                    let mine = work(plan, decide, &next, &done, &stop);
                    let mut total = total.lock().expect("no worker panics while it adds");
                    merge(&mut total, mine);
                })
            })
            .collect();
        let mut reported_at = Instant::now();
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::sleep(Duration::from_millis(20));
            if reported_at.elapsed() >= Duration::from_secs(1) {
                reported_at = Instant::now();
                progress(done.load(Ordering::Relaxed));
            }
        }
    });
    let mut summary = total.into_inner().expect("all workers are done");
    summary.wall = began.elapsed();
    summary
}

fn work(
    plan: &Hunt,
    decide: Decide,
    next: &AtomicU64,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Summary {
    let mut mine = Summary {
        min_events: u64::MAX,
        ..Summary::default()
    };
    while !stop.load(Ordering::Relaxed) {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= plan.seeds.end {
            break;
        }
        let outcome = run(seed, decide, &RunOptions::default());
        done.fetch_add(1, Ordering::Relaxed);
        mine.seeds += 1;
        mine.events += outcome.events;
        mine.min_events = mine.min_events.min(outcome.events);
        mine.coverage.add(&outcome.coverage);
        let twice = plan.twice_every != 0 && seed.is_multiple_of(plan.twice_every);
        let broken = outcome
            .violation
            .or_else(|| if twice { differs(seed, decide) } else { None });
        if let Some((life, violation)) = broken {
            stop.store(!plan.keep_going, Ordering::Relaxed);
            let found = Found {
                seed,
                life,
                violation,
            };
            mine.note(1, found);
        }
    }
    mine
}

/// Same seed, same bytes.
fn differs(seed: u64, decide: Decide) -> Option<(u64, Violation)> {
    let options = RunOptions {
        trace_level: TraceLevel::Digest,
        only: None,
    };
    let (first, second) = (run(seed, decide, &options), run(seed, decide, &options));
    (first.digest != second.digest || first.events != second.events).then(|| {
        let detail = format!(
            "two runs have digests {:016x} and {:016x}",
            first.digest, second.digest
        );
        (0, Violation::new("same seed, same bytes", detail))
    })
}

fn merge(total: &mut Summary, part: Summary) {
    total.seeds += part.seeds;
    total.events += part.events;
    total.min_events = total.min_events.min(part.min_events);
    total.coverage.add(&part.coverage);
    for (count, found) in part.broken.into_values() {
        total.note(count, found);
    }
}
