//! What is kept of one rank: at most 4 KiB, half of it for collectives where a Flight Recorder reports them; digests instead of texts.
//!
//! Owns the question whether a rank moves. There are two answers: *work* are bytes at a rate that only loading, saving or
//! talking to peers has, and it excuses a silence; *stirring* is anything else (CPU time, lines, another stack, a few
//! bytes), and it only puts a conclusion off.

use std::time::Duration;

use super::{
    collective::{Collective, MAX_GROUPS},
    numbers::Numbers,
    signal::{CHANNEL_CHARS, Gpu, PLACE_CHARS, ProcessState, Stack, Usage, cut},
    slow::StepTimes,
};

/// Bytes that a helper thread (metrics, logs) may move without the rank being alive.
const STIR_BYTES: u64 = 16 << 10;
/// Bytes a second, read and written, that are work.
const WORK_IO: u64 = 64 << 10;
/// Bytes a second over the network that are work; keep-alives of all peers are less.
const WORK_NETWORK: u64 = 256 << 10;
/// Thousandths of a core that helper threads may use without the rank being alive.
pub(super) const STIR_CPU: u32 = 50;
/// Two samples that are closer say nothing about a rate.
const SAMPLES_APART: Duration = Duration::from_millis(100);

/// The counters of a sample.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    cpu: Duration,
    io_bytes: u64,
    network_bytes: Option<u64>,
}

/// What was seen of a rank during one silence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Which silence.
    silence: u32,
    /// The first sample of usage.
    first_usage: Option<Duration>,
    /// The last one.
    last_usage: Option<Duration>,
    /// Samples of usage.
    usages: u32,
    /// Samples since bytes moved, that one included.
    calm_usage: u32,
    /// The first stack.
    first_stack: Option<Duration>,
    /// The last one.
    last_stack: Option<Duration>,
    /// Stacks.
    stacks: u32,
    /// Stacks in a row that were equal.
    pub(super) equal_stacks: u32,
    /// Samples in a row with the rank stopped.
    pub(super) stopped: u32,
    /// Samples in a row with the rank in disk wait.
    pub(super) disk_wait: u32,
    /// Whether collectives were reported.
    counted: bool,
    bytes_moved: Option<Duration>,
    cpu_moved: Option<Duration>,
    stack_moved: Option<Duration>,
    sequence_moved: Option<Duration>,
    gpu_moved: Option<Duration>,
    output: Option<Duration>,
}

/// One rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Rank {
    pub(super) ended: bool,
    /// The last step that it reported.
    pub(super) step: Option<u64>,
    sample: Option<Sample>,
    /// Bytes at the last time that they moved.
    bytes: u64,
    pub(super) state: Option<ProcessState>,
    pub(super) wait_channel: Option<String>,
    /// Thousandths of a core that it used between the last two samples.
    pub(super) cpu: Option<u32>,
    pub(super) stack: Option<Stack>,
    pub(super) stack_at: Duration,
    /// What it began in its groups, as reported last.
    collectives: Vec<Collective>,
    /// The mean power of its GPU while the job made progress.
    power: Option<u32>,
    seen: Seen,
    pub(super) numbers: Numbers,
    pub(super) step_times: StepTimes,
}

impl Rank {
    /// What was seen of it in silence `silence`; what belongs to an earlier one is forgotten.
    fn seen_in(&mut self, silence: u32) -> &mut Seen {
        if self.seen.silence != silence {
            self.seen = Seen {
                silence,
                ..Seen::default()
            };
        }
        &mut self.seen
    }

    /// What was seen of it in silence `silence`.
    pub(super) fn seen(&self, silence: u32) -> Seen {
        if self.seen.silence == silence {
            self.seen
        } else {
            Seen::default()
        }
    }

    /// Takes a sample; whether it shows work, where it says anything about that.
    pub(super) fn take_usage(&mut self, silence: u32, at: Duration, usage: Usage) -> Option<bool> {
        let mut channel = usage.wait_channel;
        if let Some(channel) = &mut channel {
            cut(channel, CHANNEL_CHARS);
        }
        self.wait_channel = channel;
        self.state = Some(usage.state);
        let now = Sample {
            at,
            cpu: usage.cpu,
            io_bytes: usage.io_bytes,
            network_bytes: usage.network_bytes,
        };
        let before = self.sample;
        let apart = before.map(|before| at.saturating_sub(before.at));
        if apart.is_some_and(|apart| apart < SAMPLES_APART) {
            return None;
        }
        self.sample = Some(now);
        let mut works = false;
        let mut cpu = None;
        if let (Some(before), Some(apart)) = (before, apart) {
            let rate = |bytes: u64| per_second(bytes, apart);
            works = rate(now.io_bytes.saturating_sub(before.io_bytes)) >= WORK_IO
                || matches!((now.network_bytes, before.network_bytes), (Some(now), Some(before))
                    if rate(now.saturating_sub(before)) >= WORK_NETWORK);
            let micros = now.cpu.saturating_sub(before.cpu).as_micros();
            let share = micros.saturating_mul(1_000) / apart.as_micros().max(1);
            cpu = Some(u32::try_from(share).unwrap_or(u32::MAX));
        }
        // Counters fall when a child ends: that is movement, too. A network always carries a little: keep-alives, name lookups, our own reports.
        let stirs = now.io_bytes.abs_diff(self.bytes) >= STIR_BYTES;
        if stirs {
            self.bytes = now.io_bytes;
        }
        let moved = stirs || works;
        self.cpu = cpu;
        let seen = self.seen_in(silence);
        let first = seen.first_usage.is_none();
        seen.usages = seen.usages.saturating_add(1);
        seen.first_usage.get_or_insert(at);
        seen.last_usage = Some(at);
        // The first sample of a silence is compared with one from before it.
        if moved && !first {
            seen.bytes_moved = Some(at);
            seen.calm_usage = 0;
        }
        if cpu.is_some_and(|cpu| cpu >= STIR_CPU) && !first {
            seen.cpu_moved = Some(at);
        }
        seen.calm_usage = seen.calm_usage.saturating_add(1);
        let count = |state, before: u32| {
            if usage.state == state {
                before.saturating_add(1)
            } else {
                0
            }
        };
        seen.stopped = count(ProcessState::Stopped, seen.stopped);
        seen.disk_wait = count(ProcessState::DiskWait, seen.disk_wait);
        (!first).then_some(works)
    }

    /// Takes a stack.
    pub(super) fn take_stack(&mut self, silence: u32, at: Duration, mut stack: Stack) {
        if let Some(place) = &mut stack.place {
            cut(place, PLACE_CHARS);
        }
        let equal = self
            .stack
            .as_ref()
            .is_some_and(|before| before.digest == stack.digest);
        self.stack = Some(stack);
        self.stack_at = at;
        let seen = self.seen_in(silence);
        let first = seen.first_stack.is_none();
        seen.stacks = seen.stacks.saturating_add(1);
        seen.first_stack.get_or_insert(at);
        seen.last_stack = Some(at);
        if first || !equal {
            seen.equal_stacks = 0;
        }
        if !first && !equal {
            seen.stack_moved = Some(at);
        }
        seen.equal_stacks = seen.equal_stacks.saturating_add(1);
    }

    /// Takes what it began in a group. What was reported in an earlier silence says nothing.
    pub(super) fn take_collective(&mut self, silence: u32, at: Duration, mut began: Collective) {
        began.bound();
        if !self.seen_in(silence).counted {
            self.collectives.clear();
        }
        let room = self.collectives.len() < MAX_GROUPS;
        let mut known = self.collectives.iter_mut();
        let known = known.find(|one| one.group == began.group);
        let mut moved = false;
        if let Some(known) = known {
            moved = known.sequence != began.sequence;
            *known = began;
        } else if room {
            self.collectives.push(began);
        }
        let seen = self.seen_in(silence);
        if moved {
            seen.sequence_moved = Some(at);
        }
        seen.counted = true;
    }

    /// What it began in its groups, as reported in silence `silence`.
    pub(super) fn collectives(&self, silence: u32) -> &[Collective] {
        if self.seen(silence).counted {
            &self.collectives
        } else {
            &[]
        }
    }

    /// Takes the power of the GPU; `suspected` where the job is silent, and the mean is then left as it was.
    pub(super) fn take_gpu(&mut self, silence: u32, at: Duration, gpu: Gpu, suspected: bool) {
        let now = u64::from(gpu.milliwatts);
        match self.power.map(u64::from) {
            Some(mean) if suspected => {
                let informative = mean * 2 >= u64::from(gpu.limit_milliwatts);
                if informative && now * 4 > mean * 3 {
                    self.seen_in(silence).gpu_moved = Some(at);
                }
            }
            None if suspected => {}
            mean => {
                let mean = mean.unwrap_or(now);
                self.power = u32::try_from((mean * 31 + now) / 32).ok();
            }
        }
    }

    /// It printed something.
    pub(super) fn take_output(&mut self, silence: u32, at: Duration) {
        self.seen_in(silence).output = Some(at);
    }
}

impl Seen {
    /// Whether at least `looks` samples were taken of each kind of evidence that there is.
    pub(super) fn is_seen(&self, looks: u32) -> bool {
        let enough = |count: u32| count == 0 || count >= looks;
        self.usages.max(self.stacks) >= looks && enough(self.usages) && enough(self.stacks)
    }

    /// Whether samples of usage were taken.
    pub(super) fn has_usage(&self) -> bool {
        self.first_usage.is_some()
    }

    /// Whether stacks were taken.
    pub(super) fn has_stack(&self) -> bool {
        self.first_stack.is_some()
    }

    /// When it moved last. CPU time does not count where it `waits` for peers: NCCL and MPI spin.
    fn moved(&self, waits: bool) -> Option<Duration> {
        let cpu = if waits { None } else { self.cpu_moved };
        [
            cpu,
            self.bytes_moved,
            self.stack_moved,
            self.sequence_moved,
            self.gpu_moved,
            self.output,
        ]
        .into_iter()
        .flatten()
        .max()
    }

    /// Whether enough looks over at least `span` show that it did not move, and none since does.
    pub(super) fn is_still(&self, waits: bool, span: Duration, looks: u32) -> bool {
        let moved = self.moved(waits);
        let covered = |first: Option<Duration>, last: Option<Duration>| match (first, last) {
            (Some(first), Some(last)) => {
                let from = moved.map_or(first, |moved| moved.max(first));
                last.saturating_sub(from) >= span
            }
            _ => true,
        };
        (self.has_usage() || self.has_stack())
            && covered(self.first_usage, self.last_usage)
            && covered(self.first_stack, self.last_stack)
            && (!self.has_usage() || self.calm_usage >= looks)
            && (!self.has_stack() || self.equal_stacks >= looks)
    }
}

/// Bytes a second.
fn per_second(bytes: u64, time: Duration) -> u64 {
    let millis = time.as_millis().max(1);
    let rate = u128::from(bytes).saturating_mul(1_000) / millis;
    u64::try_from(rate).unwrap_or(u64::MAX)
}
