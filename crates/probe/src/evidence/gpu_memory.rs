//! Waits until the memory of GPUs is free after the processes of an attempt have ended.
//!
//! The driver releases it after the kernel reported the end of the last process (0.12 to 0.23 s later on one H200, four kills): a next attempt that
//! starts meanwhile fails for want of memory. Memory that was in use before the first attempt belongs to others and is not waited for.
//!
//! Invariants: [`GpuMemory::take`] answers within the time that was given and [`GRACE`], whatever the driver does. What the first attempt uses is
//! never taken for memory of others: [`GpuMemory::start`] returns when it was read what is in use, or after [`BEFORE_WITHIN`], and what is read later
//! is discarded.

use std::{
    collections::BTreeMap,
    fmt,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use super::gpu::{GpuUse, Source, has_device};

/// A GPU on which less is in use is free: drivers and monitors use some.
const FREE: u64 = 512 << 20;
/// How much more than before the first attempt others may use.
const SLACK: u64 = 64 << 20;
/// Between two readings.
const EVERY: Duration = Duration::from_millis(50);
/// How long a reading that does not end is waited for.
const GRACE: Duration = Duration::from_secs(5);
/// How long the reading before the first attempt may hold that up.
const BEFORE_WITHIN: Duration = Duration::from_secs(2);
const STACK: usize = 512 * 1024;

/// What a wait came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryWait {
    /// All is free.
    Free {
        /// The most bytes that are in use on one GPU.
        used: u64,
    },
    /// It is not, and the time is over.
    Used {
        /// The number of the GPU that uses most.
        gpu: u32,
        /// Bytes that are in use there.
        used: u64,
    },
    /// It cannot be read.
    Unreadable(String),
}

/// A wait that is over. Prints as a sentence for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waited {
    /// How long it took.
    pub waited: Duration,
    /// What it came to.
    pub outcome: MemoryWait,
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.waited.as_secs_f64();
        match &self.outcome {
            MemoryWait::Free { used } => write!(
                f,
                "GPU memory was free {seconds:.1} s after the last process ended ({} MiB are in use)",
                used >> 20
            ),
            MemoryWait::Used { gpu, used } => write!(
                f,
                "{seconds:.1} s after the last process ended {} MiB of GPU {gpu} are still in use; the next attempt starts all the same",
                used >> 20
            ),
            MemoryWait::Unreadable(why) => write!(
                f,
                "the next attempt does not wait for GPU memory, which cannot be read: {why}"
            ),
        }
    }
}

/// The memory of some GPUs. A thread of its own reads it; the thread ends with this value.
#[derive(Debug)]
pub struct GpuMemory {
    /// Waits are numbered, so that the result of one that was given up is not taken for that of the next.
    orders: SyncSender<(u64, Duration)>,
    results: Receiver<(u64, Waited)>,
    number: u64,
    /// Since when a result is awaited, and how long that may take.
    awaited: Option<(Instant, Duration)>,
    /// How long a reading that does not end is waited for.
    grace: Duration,
}

impl GpuMemory {
    /// Reads what is in use before the first attempt, which must not start before this returns, on the GPUs with these numbers or names, or on all.
    /// `None` where there is no GPU, or no thread.
    pub fn start(devices: Option<Vec<String>>) -> Option<Self> {
        if !has_device() {
            return None;
        }
        let open = move || {
            let source = Source::open();
            move || {
                let mut all = source.read()?;
                all.retain(|gpu| {
                    let named =
                        |devices: &Vec<String>| devices.iter().any(|name| gpu.is_named(name));
                    devices.as_ref().is_none_or(named)
                });
                Ok(all)
            }
        };
        Self::start_with(open, BEFORE_WITHIN)
    }

    /// The same with what `open` makes to read it, on the thread, for at most `before_within` before the first attempt.
    fn start_with<R: FnMut() -> Result<Vec<GpuUse>, String>>(
        open: impl FnOnce() -> R + Send + 'static,
        before_within: Duration,
    ) -> Option<Self> {
        let (orders, to_do) = sync_channel::<(u64, Duration)>(1);
        let (done, results) = sync_channel(1);
        let (ready, is_ready) = sync_channel(1);
        let thread = thread::Builder::new().name("gpu-memory".to_owned());
        let work = move || {
            let mut read = open();
            let mut before = read().unwrap_or_default();
            if ready.send(()).is_err() {
                // The first attempt runs, and may use what was read.
                before.clear();
            }
            while let Ok((number, within)) = to_do.recv() {
                let begun = Instant::now();
                let pause = || {
                    thread::sleep(EVERY);
                    begun.elapsed()
                };
                let waited = wait(&before, within, &mut read, pause);
                if done.send((number, waited)).is_err() {
                    return;
                }
            }
        };
        thread.stack_size(STACK).spawn(work).ok()?;
        is_ready.recv_timeout(before_within).ok();
        Some(Self {
            orders,
            results,
            number: 0,
            awaited: None,
            grace: GRACE,
        })
    }

    /// Begins to wait, for at most `within`. A wait that is under way goes on.
    pub fn wait(&mut self, within: Duration) {
        if self.awaited.is_none() {
            self.awaited = Some((Instant::now(), within));
            self.number += 1;
            self.orders.try_send((self.number, within)).ok();
        }
    }

    /// Whether a wait is under way.
    pub fn is_waiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// The result, once.
    pub fn take(&mut self) -> Option<Waited> {
        let (since, within) = self.awaited?;
        let mut results = self.results.try_iter();
        let own = results.find(|(number, _)| *number == self.number);
        let result = match own {
            Some((_, waited)) => waited,
            None if since.elapsed() < within + self.grace => return None,
            None => Waited {
                waited: since.elapsed(),
                outcome: MemoryWait::Unreadable("the driver does not respond".to_owned()),
            },
        };
        self.awaited = None;
        Some(result)
    }
}

/// Waits until nothing is in use that was not `before`. `pause` returns how long this has taken.
fn wait(
    before: &[GpuUse],
    within: Duration,
    mut read: impl FnMut() -> Result<Vec<GpuUse>, String>,
    mut pause: impl FnMut() -> Duration,
) -> Waited {
    let before: BTreeMap<&str, u64> = before
        .iter()
        .map(|gpu| (gpu.uuid.as_str(), gpu.memory_used))
        .collect();
    let mut waited = Duration::ZERO;
    loop {
        let outcome = match read() {
            Err(why) => MemoryWait::Unreadable(why),
            Ok(gpus) => {
                let is_free = |gpu: &GpuUse| {
                    let others = before.get(gpu.uuid.as_str()).copied().unwrap_or(0);
                    gpu.memory_used < FREE.max(others.saturating_add(SLACK))
                };
                let used = gpus.iter().map(|gpu| gpu.memory_used).max().unwrap_or(0);
                let busy = gpus.iter().filter(|gpu| !is_free(gpu));
                match busy.max_by_key(|gpu| gpu.memory_used) {
                    None => MemoryWait::Free { used },
                    Some(_) if waited < within => {
                        waited = pause();
                        continue;
                    }
                    Some(gpu) => MemoryWait::Used {
                        gpu: gpu.index,
                        used: gpu.memory_used,
                    },
                }
            }
        };
        return Waited { waited, outcome };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// What it is, MiB in use before, MiB of each reading, seconds waited and what came of it.
    type Case = (
        &'static str,
        &'static [u64],
        &'static [&'static [u64]],
        (u64, MemoryWait),
    );

    fn gpus(used: &[u64]) -> Vec<GpuUse> {
        let one = |(index, used): (u32, &u64)| GpuUse {
            index,
            uuid: format!("GPU-{index}"),
            memory_used: used * MIB,
        };
        (0..).zip(used).map(one).collect()
    }

    /// Waits for at most 30 s, one second from reading to reading.
    fn waited(before: &[u64], readings: &[&[u64]]) -> (u64, MemoryWait) {
        let mut readings = readings.iter();
        let mut last = Vec::new();
        let mut seconds = 0;
        let read = || {
            if let Some(next) = readings.next() {
                last = gpus(next);
            }
            Ok(last.clone())
        };
        let pause = || {
            seconds += 1;
            Duration::from_secs(seconds)
        };
        let waited = wait(&gpus(before), Duration::from_secs(30), read, pause);
        (waited.waited.as_secs(), waited.outcome)
    }

    /// Takes the result of a wait.
    fn result(memory: &mut GpuMemory) -> MemoryWait {
        // A busy machine may need longer than a driver.
        memory.grace = Duration::from_mins(2);
        let until = Instant::now() + Duration::from_mins(1);
        loop {
            if let Some(waited) = memory.take() {
                return waited.outcome;
            }
            assert!(Instant::now() < until, "no result");
            thread::yield_now();
        }
    }

    #[test]
    fn what_is_read_too_late_is_discarded() {
        let second = Duration::from_secs(1);
        for (late, want) in [
            (false, MemoryWait::Free { used: 9_000 * MIB }),
            (
                true,
                MemoryWait::Used {
                    gpu: 0,
                    used: 9_000 * MIB,
                },
            ),
        ] {
            // A reading that ends only when the test lets it.
            let (ends, ended) = sync_channel(1);
            let open = move || {
                let mut first = late;
                move || {
                    if std::mem::take(&mut first) {
                        ended.recv().unwrap();
                    }
                    Ok(gpus(&[9_000]))
                }
            };
            let within = if late { Duration::ZERO } else { 20 * second };
            let mut memory = GpuMemory::start_with(open, within).unwrap();
            ends.send(()).unwrap();
            memory.wait(Duration::ZERO);
            assert_eq!(result(&mut memory), want, "late: {late}");
        }
    }

    #[test]
    fn late_result_is_not_that_of_the_next_wait() {
        let (ends, ended) = sync_channel(3);
        let (begins, begun) = sync_channel(3);
        let open = move || {
            let mut readings = [0, 70_000, 5].into_iter();
            move || {
                begins.send(()).map_err(|error| error.to_string())?;
                ended.recv().map_err(|error| error.to_string())?;
                Ok(gpus(&[readings.next().unwrap_or(5)]))
            }
        };
        ends.send(()).unwrap();
        let mut memory = GpuMemory::start_with(open, Duration::from_secs(20)).unwrap();
        memory.wait(Duration::ZERO);
        for _ in 0..2 {
            begun.recv_timeout(Duration::from_secs(20)).unwrap();
        }
        // The driver does not respond in time.
        memory.awaited = None;
        memory.wait(Duration::ZERO);
        ends.send(()).unwrap();
        ends.send(()).unwrap();
        assert_eq!(result(&mut memory), MemoryWait::Free { used: 5 * MIB });
    }

    #[test]
    fn memory_is_waited_for() {
        let free = |used| MemoryWait::Free { used: used * MIB };
        let cases: [Case; 6] = [
            ("free at once", &[3], &[&[4]], (0, free(4))),
            (
                "free later",
                &[3, 3],
                &[&[70_000, 5], &[70_000, 5], &[511, 5]],
                (2, free(511)),
            ),
            (
                "never free",
                &[3, 3],
                &[&[600, 70_000]],
                (
                    30,
                    MemoryWait::Used {
                        gpu: 1,
                        used: 70_000 * MIB,
                    },
                ),
            ),
            (
                "of others",
                &[9_000],
                &[&[20_000], &[9_010]],
                (1, free(9_010)),
            ),
            ("unknown before", &[], &[&[513], &[0]], (1, free(0))),
            ("no GPU", &[], &[&[]], (0, free(0))),
        ];
        for (what, before, readings, want) in cases {
            assert_eq!(waited(before, readings), want, "{what}");
        }
        let broken = wait(
            &[],
            Duration::from_secs(1),
            || Err("no".to_owned()),
            || Duration::ZERO,
        );
        assert_eq!(
            broken.to_string(),
            "the next attempt does not wait for GPU memory, which cannot be read: no"
        );
    }
}
