//! Training jobs in virtual time: what their ranks print, and what is seen of them from outside.

use std::{collections::VecDeque, time::Duration};

use crate::{
    spec::JobSettings,
    watch::{
        Ask, Collective, Finding, Outlook, Phase, ProcessState, Settings, Signal, Stack, Step,
        Usage, Watch,
    },
};

/// The digest of ranks that wait in the collective of the training loop.
const WAITS: u64 = 100;

/// A hang, and of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Sleeps, the others wait in a collective.
    Sleeps(u32),
    /// Was stopped by a signal.
    Stopped(u32),
    /// Runs in a loop.
    Busy(u32),
    /// Sleeps, and the others spin at a line that is not known to be a collective.
    SleepsAmongSpinning(u32),
    /// The same of a program without readable stacks.
    SleepsWithoutStacks(u32),
    /// Waits for a disk that does not respond.
    DiskWait(u32),
    /// Waits in the collective before that of the others.
    Behind(u32),
    /// All wait in a collective.
    AllWait,
    /// All sleep.
    AllSleep,
    /// All compute, and no step is reported any more.
    AllCompute,
    /// Nothing can be seen from outside.
    Unseen,
}

/// What the ranks do for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// They start.
    Start,
    /// They do one step and report it.
    Step(u64),
    /// Rank 0 does something while the others wait. It says so, or its bytes move.
    Long {
        /// Save, evaluate or load.
        phase: Phase,
        /// Whether it says so.
        said: bool,
    },
    /// They hang from here on.
    Hangs(Fault),
}

#[derive(Clone, Debug)]
struct Segment {
    from: Duration,
    to: Duration,
    what: What,
    /// Of each rank, at `from`: CPU time and bytes.
    before: Vec<(Duration, u64)>,
}

/// A job as it will happen.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) ranks: u32,
    /// Thousandths of a core that a rank uses while it computes.
    pub(super) cpu: u32,
    /// Thousandths of a core that a rank uses while it waits.
    pub(super) spin: u32,
    segments: Vec<Segment>,
    /// Signals in order of their arrival.
    pub(super) lines: Vec<(Duration, u32, Signal)>,
}

impl Job {
    pub(super) fn new(ranks: u32) -> Self {
        Self {
            ranks,
            cpu: 900,
            spin: 0,
            segments: Vec::new(),
            lines: Vec::new(),
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
        let before = self.segments.last();
        let used = |rank| before.map_or((Duration::ZERO, 0), |last| self.used(last, rank, from));
        let before = (0..self.ranks).map(used).collect();
        self.segments.push(Segment {
            from,
            to: from + lasts,
            what,
            before,
        });
    }

    /// Adds `count` steps of `lasts` each, which rank 0 reports.
    pub(super) fn steps(&mut self, count: u64, lasts: Duration) {
        let first = self.lines.len() as u64;
        for step in first..first + count {
            self.then(What::Step(step), lasts);
            self.lines.push((self.end(), 0, step_of(step)));
        }
    }

    /// CPU time and bytes that `rank` used at `at`, which is in `segment`.
    fn used(&self, segment: &Segment, rank: u32, at: Duration) -> (Duration, u64) {
        let (cpu, bytes) = segment.before[rank as usize];
        let time = at.saturating_sub(segment.from);
        let (share, rate) = self.rates(segment.what, rank);
        let bytes = bytes + rate / 1000 * u64::try_from(time.as_millis()).unwrap();
        (cpu + time / 1000 * share, bytes)
    }

    /// Thousandths of a core, and bytes a second.
    fn rates(&self, what: What, rank: u32) -> (u32, u64) {
        match what {
            What::Start => (0, 0),
            What::Step(_) => (self.cpu, 0),
            What::Long { said, .. } if rank == 0 => (0, if said { 0 } else { 8 << 20 }),
            What::Long { .. } => (self.spin, 0),
            What::Hangs(fault) => match fault {
                Fault::Busy(at) if at == rank => (1000, 0),
                Fault::AllCompute => (1000, 0),
                Fault::SleepsAmongSpinning(at) | Fault::SleepsWithoutStacks(at) if at != rank => {
                    (1000, 0)
                }
                Fault::Sleeps(at) | Fault::Stopped(at) | Fault::DiskWait(at) if at != rank => {
                    (self.spin, 0)
                }
                Fault::AllWait | Fault::Behind(_) => (self.spin, 0),
                _ => (0, 0),
            },
        }
    }

    fn at(&self, at: Duration) -> &Segment {
        let index = self.segments.partition_point(|segment| segment.to <= at);
        &self.segments[index.min(self.segments.len() - 1)]
    }

    fn usage(&self, rank: u32, at: Duration) -> Option<Usage> {
        let segment = self.at(at);
        let (cpu, io_bytes) = self.used(segment, rank, at);
        let mut state = ProcessState::Sleeping;
        let mut channel = "futex_do_wait";
        match segment.what {
            What::Hangs(Fault::Unseen) => return None,
            What::Hangs(Fault::Stopped(at)) if at == rank => {
                (state, channel) = (ProcessState::Stopped, "do_signal_stop");
            }
            What::Hangs(Fault::DiskWait(at)) if at == rank => {
                (state, channel) = (ProcessState::DiskWait, "rpc_wait_bit_killable");
            }
            _ => {}
        }
        Some(Usage {
            cpu,
            io_bytes,
            network_bytes: None,
            state,
            wait_channel: Some(channel.to_owned()),
        })
    }

    fn stack(&self, rank: u32, at: Duration) -> Option<Stack> {
        let segment = self.at(at);
        let stands = |line: u64| stack(line, false);
        let waits = Some(stack(WAITS, true));
        // The thousandth of the segment.
        let part = at.saturating_sub(segment.from).as_nanos() * 1000
            / segment.to.saturating_sub(segment.from).as_nanos();
        let part = u64::try_from(part).unwrap();
        Some(match segment.what {
            What::Start => stands(5),
            What::Step(_) if part > 600 + u64::from(rank) * 30 => return waits,
            What::Step(_) => stands(10 + part / 200),
            What::Long { .. } if rank == 0 => stands(30),
            What::Long { .. } => return waits,
            What::Hangs(fault) => match fault {
                Fault::Unseen | Fault::SleepsWithoutStacks(_) => return None,
                Fault::Sleeps(at) | Fault::Busy(at) | Fault::Stopped(at) if at == rank => {
                    stands(40)
                }
                Fault::SleepsAmongSpinning(at) if at == rank => stands(40),
                Fault::SleepsAmongSpinning(_) => stands(50),
                Fault::DiskWait(at) if at == rank => stands(41),
                Fault::Behind(at) if at == rank => stack(WAITS + 1, true),
                Fault::AllSleep => stands(60),
                Fault::AllCompute => {
                    // Another line with every second.
                    stands(70 + at.saturating_sub(segment.from).as_secs() % 7)
                }
                _ => return waits,
            },
        })
    }

    fn sequence(&self, rank: u32, at: Duration) -> Option<u64> {
        match self.at(at).what {
            What::Hangs(Fault::Behind(behind)) => Some(if behind == rank { 79 } else { 80 }),
            _ => None,
        }
    }
}

fn stack(line: u64, in_collective: bool) -> Stack {
    Stack {
        digest: line,
        place: Some(format!("train.py:{line}")),
        in_collective,
    }
}

/// A step without numbers.
pub(super) fn step_of(step: u64) -> Signal {
    Signal::Step(Step {
        step: Some(step),
        ..Step::default()
    })
}

/// What a watch over a job gave.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    pub(super) looks: Vec<(Duration, Outlook)>,
    pub(super) findings: Vec<(Duration, Finding)>,
}

impl Trace {
    /// The first finding that something follows from.
    pub(super) fn act(&self) -> Option<&(Duration, Finding)> {
        self.findings.iter().find(|(_, finding)| finding.act)
    }
}

/// The settings of a job without annotations.
pub(super) fn defaults() -> Settings {
    Settings::from(&JobSettings::default())
}

/// Watches `job` until `until`, or until something follows. Evidence arrives `delay` after it was asked for.
pub(super) fn watch(settings: Settings, job: &Job, until: Duration, delay: Duration) -> Trace {
    let mut watch = Watch::begin(settings, job.ranks, Duration::ZERO);
    let mut trace = Trace::default();
    let mut lines = job.lines.iter().peekable();
    let mut wake = Some(Duration::ZERO);
    let mut answers: VecDeque<(Duration, Vec<Ask>)> = VecDeque::new();
    loop {
        let line = lines.peek().map(|(at, ..)| *at);
        let answer = answers.front().map(|(at, _)| *at);
        let Some(now) = [line, answer, wake].into_iter().flatten().min() else {
            break;
        };
        if now > until {
            break;
        }
        let mut due = wake == Some(now);
        if answer == Some(now) {
            for ask in answers
                .pop_front()
                .map(|(_, asks)| asks)
                .unwrap_or_default()
            {
                for rank in 0..job.ranks {
                    let signal = match ask {
                        Ask::Usage => job.usage(rank, now).map(Signal::Usage),
                        Ask::Stacks => job.stack(rank, now).map(Signal::Stack),
                        Ask::Dumps => None,
                        Ask::Collectives => job
                            .sequence(rank, now)
                            .map(|sequence| Signal::Collective(Collective::numbered(sequence))),
                    };
                    if let Some(signal) = signal {
                        due |= watch.hear(now, rank, signal);
                    }
                }
            }
        } else if line == Some(now)
            && let Some((_, rank, signal)) = lines.next()
        {
            due |= watch.hear(now, *rank, signal.clone());
        }
        if !due {
            continue;
        }
        let outlook = watch.look(now);
        assert!(
            outlook.wake_at.is_none_or(|at| at > now),
            "{now:?}: {outlook:?}"
        );
        wake = outlook.wake_at;
        if !outlook.ask.is_empty() {
            answers.push_back((now + delay, outlook.ask.clone()));
        }
        let findings = outlook.findings.iter().cloned();
        trace
            .findings
            .extend(findings.map(|finding| (now, finding)));
        trace.looks.push((now, outlook));
        if trace.act().is_some() {
            break;
        }
    }
    trace
}
