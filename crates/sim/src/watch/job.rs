//! The truth: what each rank of an attempt does at each moment, and what an observer outside of it would see then.

use std::time::Duration;

use trainyard_core::watch::{ProcessState, Stack, Usage};

/// The line of the collective in the training loop.
const WAITS: u64 = 100;
/// Bytes are written in pieces, one in this time: less than between two looks.
const PIECE: Duration = Duration::from_millis(250);
/// What a place and a wait channel are padded with where a program has long ones.
const LONG: usize = 4_096;

/// How a job hangs, and who does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hang {
    /// One sleeps, the others wait for it in a collective.
    Sleeps(u32),
    /// One runs in a loop on one line.
    Busy(u32),
    /// One was stopped by a signal.
    Stopped(u32),
    /// One waits for a disk that does not respond.
    DiskWait(u32),
    /// One waits in the collective before that of the others.
    Behind(u32),
    /// One sleeps while a process that it started copies bytes without end.
    Helper(u32),
    /// All wait in a collective.
    AllWait,
    /// All sleep.
    AllSleep,
}

impl Hang {
    /// The rank that the others wait for.
    pub(super) fn culprit(self) -> Option<u32> {
        match self {
            Self::Sleeps(rank)
            | Self::Busy(rank)
            | Self::Stopped(rank)
            | Self::DiskWait(rank)
            | Self::Behind(rank)
            | Self::Helper(rank) => Some(rank),
            Self::AllWait | Self::AllSleep => None,
        }
    }
}

/// Bytes a second that a rank moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) io: u64,
    pub(super) network: u64,
}

/// What the ranks do for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// They start: nothing moves.
    Start,
    /// They compile: processors are busy.
    Compile,
    /// They take one step together.
    Step,
    /// One saves, loads or evaluates, and the others wait for it.
    Long {
        /// Which.
        by: u32,
        /// What it moves meanwhile.
        bytes: Bytes,
    },
    /// All compute and report nothing.
    Computes,
    /// They hang.
    Hangs(Hang),
}

/// What a rank used so far.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    cpu: Duration,
    io: u64,
    network: u64,
}

#[derive(Clone, Debug)]
struct Segment {
    from: Duration,
    to: Duration,
    what: What,
    /// Of each rank at `from`.
    before: Vec<Counters>,
}

/// One attempt as it will happen.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) ranks: u32,
    /// Thousandths of a core that a rank uses while it computes.
    pub(super) cpu: u32,
    /// Thousandths of a core that a rank uses while it waits.
    pub(super) spin: u32,
    /// What a step moves over the network; `None` where the interfaces are shared.
    pub(super) network: Option<u64>,
    /// Whether names of places and wait channels are very long.
    pub(super) long_names: bool,
    segments: Vec<Segment>,
}

impl Job {
    pub(super) fn new(ranks: u32) -> Self {
        Self {
            ranks,
            cpu: 900,
            spin: 0,
            network: None,
            long_names: false,
            segments: Vec::new(),
        }
    }

    /// When what was added last ends.
    pub(super) fn end(&self) -> Duration {
        self.segments
            .last()
            .map_or(Duration::ZERO, |segment| segment.to)
    }

    /// Adds a time of `what`.
    pub(super) fn then(&mut self, what: What, lasts: Duration) {
        let from = self.end();
        let last = self.segments.last();
        let used = |rank| last.map_or_else(Counters::default, |last| self.used(last, rank, from));
        let before = (0..self.ranks).map(used).collect();
        self.segments.push(Segment {
            from,
            to: from + lasts,
            what,
            before,
        });
    }

    /// When the job hung for good, where it did at `at`.
    pub(super) fn hang_at(&self, at: Duration) -> Option<(Duration, Hang)> {
        let segment = self.segment(at);
        match segment.what {
            What::Hangs(hang) if segment.from <= at => Some((segment.from, hang)),
            _ => None,
        }
    }

    fn segment(&self, at: Duration) -> &Segment {
        let index = self.segments.partition_point(|segment| segment.to <= at);
        &self.segments[index.min(self.segments.len() - 1)]
    }

    fn used(&self, segment: &Segment, rank: u32, at: Duration) -> Counters {
        let before = segment.before[rank as usize];
        let time = at.saturating_sub(segment.from);
        let (share, bytes) = self.rates(segment.what, rank);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        // The last piece is whole at the end of the segment.
        let pieces = if at >= segment.to {
            millis(time)
        } else {
            let piece = millis(PIECE);
            millis(time) / piece * piece
        };
        Counters {
            cpu: before.cpu + time / 1_000 * share,
            io: before.io + bytes.io / 1_000 * pieces,
            network: before.network + bytes.network / 1_000 * pieces,
        }
    }

    /// Thousandths of a core and bytes a second.
    fn rates(&self, what: What, rank: u32) -> (u32, Bytes) {
        let none = Bytes::default();
        match what {
            What::Start => (0, none),
            What::Compile | What::Computes => (1_000, none),
            What::Step => {
                let network = self.network.unwrap_or(0);
                (self.cpu, Bytes { io: 0, network })
            }
            What::Long { by, bytes } if by == rank => (0, bytes),
            What::Long { .. } => (self.spin, none),
            What::Hangs(hang) => match hang {
                Hang::Busy(at) if at == rank => (1_000, none),
                Hang::Helper(at) if at == rank => {
                    let io = 8 << 20;
                    (0, Bytes { io, network: 0 })
                }
                Hang::AllSleep => (0, none),
                Hang::Behind(_) => (self.spin, none),
                _ if hang.culprit() == Some(rank) => (0, none),
                _ => (self.spin, none),
            },
        }
    }

    /// What the kernel shows of `rank`.
    pub(super) fn usage(&self, rank: u32, at: Duration) -> Usage {
        let segment = self.segment(at);
        let used = self.used(segment, rank, at);
        let (state, channel) = match segment.what {
            What::Hangs(Hang::Stopped(by)) if by == rank => {
                (ProcessState::Stopped, "do_signal_stop")
            }
            What::Hangs(Hang::DiskWait(by)) if by == rank => {
                (ProcessState::DiskWait, "rpc_wait_bit_killable")
            }
            What::Hangs(Hang::Busy(by)) if by == rank => (ProcessState::Running, "0"),
            What::Hangs(Hang::Sleeps(by)) if by == rank => {
                (ProcessState::Sleeping, "hrtimer_nanosleep")
            }
            What::Compile | What::Computes => (ProcessState::Running, "0"),
            _ => (ProcessState::Sleeping, "futex_do_wait"),
        };
        Usage {
            cpu: used.cpu,
            io_bytes: used.io,
            network_bytes: self.network.map(|_| used.network),
            state,
            wait_channel: Some(self.name(channel.to_owned())),
        }
    }

    /// Where the main thread of `rank` is.
    pub(super) fn stack(&self, rank: u32, at: Duration) -> Stack {
        let segment = self.segment(at);
        let passed = at.saturating_sub(segment.from);
        let whole = segment.to.saturating_sub(segment.from).as_millis().max(1);
        // The thousandth of the segment.
        let part = u64::try_from(passed.as_millis() * 1_000 / whole).unwrap_or(1_000);
        let (line, waits) = match segment.what {
            What::Start => (5, false),
            What::Compile => (6, false),
            What::Step if part > 600 + u64::from(rank) * 30 => (WAITS, true),
            What::Step => (10 + part / 200, false),
            What::Long { by, .. } if by == rank => (30, false),
            What::Long { .. } => (WAITS, true),
            // Another line with every second.
            What::Computes => (70 + passed.as_secs() % 7, false),
            What::Hangs(hang) => match hang {
                Hang::Behind(by) if by == rank => (WAITS + 1, true),
                Hang::AllSleep => (60, false),
                _ if hang.culprit() == Some(rank) => (40, false),
                _ => (WAITS, true),
            },
        };
        Stack {
            digest: line,
            place: Some(self.name(format!("train.py:{line}"))),
            in_collective: waits,
        }
    }

    /// The collective that `rank` began last, where something counts them.
    pub(super) fn sequence(&self, rank: u32, at: Duration) -> Option<u64> {
        match self.segment(at).what {
            What::Hangs(Hang::Behind(by)) => Some(if by == rank { 79 } else { 80 }),
            _ => None,
        }
    }

    fn name(&self, mut name: String) -> String {
        if self.long_names {
            name.extend(std::iter::repeat_n('x', LONG));
        }
        name
    }
}
