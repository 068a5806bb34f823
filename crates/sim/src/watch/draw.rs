//! The job of a seed: its rhythm, its phases, how it ends, and how its lines and its evidence are carried.

use std::{fmt, time::Duration};

use trainyard_core::{
    spec::{JobSettings, OnNan, WatchMode},
    watch::{Phase, Settings, Signal, Step},
};

use super::{
    bounds::CLOCK_COUNTS,
    job::{Bytes, Hang, Job, What},
};
use crate::dice::Dice;

/// How long a program that reports nothing is watched: longer than evidence may be asked for.
const LONG_WATCH: Duration = Duration::from_hours(14);
/// The same for most seeds, for speed.
const SHORT_WATCH: Duration = Duration::from_hours(1);
/// The longest evaluation.
const EVALUATION: Duration = Duration::from_hours(2);
/// How many times as long a slow rank takes for a step.
const SLOW: u32 = 3;
/// Something long that rank 0 does without moving bytes.
const SILENT: What = What::Long {
    by: 0,
    bytes: Bytes { io: 0, network: 0 },
};
/// How late a line may be.
const LATE: Duration = Duration::from_secs(2);
/// The longest save.
const SAVE: Duration = Duration::from_mins(30);

/// Which evidence there is, and how it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// All of it, at once.
    Full,
    /// All of it, up to 3 s late.
    Late,
    /// Three of ten pieces are missing.
    Lossy,
    /// No stacks: the program is not Python.
    NoStacks,
    /// Only stacks.
    NoUsage,
    /// None.
    Nothing,
}

impl Evidence {
    /// Whether it shows bytes and processor time.
    pub(super) fn has_usage(self) -> bool {
        !matches!(self, Self::NoUsage | Self::Nothing)
    }

    /// Whether it shows lines of the program.
    pub(super) fn has_stacks(self) -> bool {
        !matches!(self, Self::NoStacks | Self::Nothing)
    }
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Its programs end.
    Finishes,
    /// It computes and reports nothing any more.
    Computes,
    /// It hangs.
    Hangs {
        /// Who.
        hang: Hang,
        /// What is known before it.
        after: After,
    },
}

/// What an adapter knows of a job when it hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// No step was taken.
    Nothing,
    /// Steps and phases in any order.
    Training,
    /// Steps that were all reported, and no phase since.
    Steps,
    /// The same, and then a phase that was said.
    Said(Phase),
}

/// How steps are numbered in lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbering {
    Global,
    /// From 0 in each epoch of so many.
    Epochs(u64),
    /// Lines have a loss and no number.
    Absent,
}

/// A line, and when it arrives.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) at: Duration,
    pub(super) rank: u32,
    pub(super) signal: Signal,
}

/// One attempt, drawn.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) settings: Settings,
    pub(super) job: Job,
    /// In order of arrival.
    pub(super) lines: Vec<Line>,
    pub(super) evidence: Evidence,
    pub(super) ending: Ending,
    /// When the adapter's clock steps forward, and by how much.
    pub(super) clock_steps: Vec<(Duration, Duration)>,
    /// A rank that prints something that is no step, and how often.
    pub(super) chatter: Option<(u32, Duration)>,
    /// The rank that is slow where all report step times of their own.
    pub(super) slow: Option<u32>,
    /// How long a hang is watched that nothing shows.
    pub(super) watch_for: Duration,
    /// How late the adapter looks.
    pub(super) lag: Duration,
    /// For what happens in the adapter.
    pub(super) dice: Dice,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ranks, cpu {} spin {} network {:?}, {:?}, {:?} evidence, {:?}, clock {:?}, chatter {:?}, slow {:?}",
            self.job.ranks,
            self.job.cpu,
            self.job.spin,
            self.job.network,
            self.settings,
            self.evidence,
            self.ending,
            self.clock_steps,
            self.chatter,
            self.slow
        )
    }
}

/// What all attempts of a seed have in common.
#[derive(Debug)]
pub(super) struct Draw {
    seed: u64,
    pub(super) attempts: u64,
    settings: Settings,
    ranks: u32,
    cpu: u32,
    spin: u32,
    network: Option<u64>,
    long_names: bool,
    evidence: Evidence,
    step: Duration,
    /// Steps from one line to the next.
    interval: u64,
    numbering: Numbering,
    reporters: Vec<u32>,
    own_times: bool,
    slow: Option<u32>,
    lost: u32,
    late: u32,
    doubled: u32,
    clock_steps: u32,
    /// Whether bytes that move are seen, and so is the training after them.
    shows_bytes: bool,
}

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 0);
        let ranks = if dice.chance(10) {
            1
        } else {
            2 + dice.below(6)
        };
        let secs = Duration::from_secs;
        let settings = Settings {
            mode: match dice.below(100) {
                0..3 => WatchMode::Off,
                3..8 => WatchMode::Report,
                _ => WatchMode::Act,
            },
            hang_floor: dice.pick(&[secs(2), secs(5), secs(30), secs(30)]),
            hang_after: dice.pick(&[secs(10), secs(60), secs(600), secs(600), secs(1_800)]),
            first_step_within: dice.pick(&[secs(600), JobSettings::FIRST_STEP_WITHIN]),
            on_nan: dice.pick(&OnNan::ALL),
        };
        let own_times = dice.chance(25);
        let slow = (own_times && ranks >= 3 && dice.chance(60)).then(|| dice.below(ranks));
        let most = Duration::from_mins(10).min(settings.first_step_within / 3);
        let step = time(&mut dice, if slow.is_some() { most / SLOW } else { most });
        let evidence = match dice.below(100) {
            0..50 => Evidence::Full,
            50..65 => Evidence::Late,
            65..80 => Evidence::Lossy,
            80..90 => Evidence::NoStacks,
            90..95 => Evidence::NoUsage,
            _ => Evidence::Nothing,
        };
        let cpu = dice.pick(&[0, 30, 900]);
        let network = dice.chance(30).then_some(1 << 20);
        // Where nothing would show that a job trains, its lines arrive.
        let shows =
            evidence.has_stacks() || evidence.has_usage() && (cpu > 100 || network.is_some());
        let reporters = match dice.below(10) {
            _ if own_times => (0..ranks).collect(),
            0..5 => vec![0],
            5..7 => vec![ranks - 1],
            _ => (0..ranks).collect(),
        };
        Self {
            seed,
            attempts: if dice.chance(25) { 2 } else { 1 },
            settings,
            ranks,
            cpu,
            spin: dice.pick(&[0, 1_000]),
            network,
            long_names: dice.chance(2),
            evidence,
            step,
            interval: if step < secs(1) && !own_times && dice.chance(20) {
                10
            } else {
                1
            },
            numbering: match dice.below(10) {
                0 => Numbering::Absent,
                1 => Numbering::Epochs(16 + u64::from(dice.below(20))),
                _ => Numbering::Global,
            },
            reporters,
            own_times,
            slow,
            lost: if shows { dice.pick(&[0, 5, 20]) } else { 0 },
            late: dice.pick(&[0, 20]),
            doubled: dice.pick(&[0, 10]),
            shows_bytes: shows && evidence.has_usage(),
            clock_steps: if dice.chance(15) {
                1 + dice.below(3)
            } else {
                0
            },
        }
    }

    /// The plan of one attempt.
    pub(super) fn attempt(&mut self, attempt: u64) -> Plan {
        let mut job = Job::new(self.ranks);
        (job.cpu, job.spin, job.network) = (self.cpu, self.spin, self.network);
        job.long_names = self.long_names;
        let mut script = Script {
            dice: Dice::new(self.seed, attempt),
            draw: self,
            job,
            lines: Vec::new(),
            steps: 0,
            nan: (0, 0),
            last_phase: Duration::ZERO,
            must_arrive: false,
        };
        let ending = script.play();
        let Script {
            mut dice,
            job,
            mut lines,
            ..
        } = script;
        lines.sort_by_key(|line| line.at);
        let end = lines.last().map_or(Duration::ZERO, |line| line.at);
        let mut clock_steps = Vec::new();
        for _ in 0..self.clock_steps {
            let at = end.mul_f64(f64::from(dice.below(1_100)) / 1_000.0);
            clock_steps.push((at, time(&mut dice, EVALUATION)));
        }
        clock_steps.sort();
        let chatter = dice.chance(15).then(|| {
            let rank = dice.below(self.ranks);
            (rank, Duration::from_secs(3 + u64::from(dice.below(40))))
        });
        Plan {
            settings: self.settings,
            job,
            lines,
            evidence: self.evidence,
            ending,
            clock_steps,
            chatter,
            slow: self.slow,
            watch_for: dice.pick(&[LONG_WATCH, SHORT_WATCH, SHORT_WATCH, SHORT_WATCH]),
            lag: Duration::from_millis(dice.pick(&[0, 5, 40])),
            dice,
        }
    }
}

/// The attempt while it is drawn.
struct Script<'a> {
    dice: Dice,
    draw: &'a Draw,
    job: Job,
    lines: Vec<Line>,
    steps: u64,
    /// The first step whose loss is NaN, and how many are.
    nan: (u64, u64),
    /// When the last line of a phase arrives.
    last_phase: Duration,
    /// Whether the next line is not lost: two phases that nobody announced, in one silence, can last longer than bytes
    /// excuse.
    must_arrive: bool,
}

impl Script<'_> {
    fn play(&mut self) -> Ending {
        let most = self.draw.settings.first_step_within;
        let start = time(&mut self.dice, most / 2);
        self.job.then(What::Start, start);
        if self.dice.chance(20) {
            let (phase, what) = if self.dice.chance(50) {
                (Phase::Compile, What::Compile)
            } else {
                (Phase::Load, SILENT)
            };
            self.say(0, phase);
            let lasts = time(&mut self.dice, most.mul_f64(0.9));
            self.job.then(what, lasts);
        }
        let hang = self.hang();
        if self.dice.chance(6) {
            return self.hangs(hang, After::Nothing);
        }
        let slow = self.draw.slow.is_some();
        let steps = if slow { 70 } else { 12 } + u64::from(self.dice.below(40));
        if self.dice.chance(15) {
            let first = u64::from(self.dice.below(40));
            self.nan = (first, self.dice.pick(&[1, 8, 8]));
        }
        for _ in 0..steps {
            self.step();
            if self.dice.chance(if slow { 1 } else { 6 }) {
                self.phase();
            }
        }
        match self.dice.below(100) {
            0..35 => Ending::Finishes,
            35..39 if self.draw.evidence.has_usage() => {
                self.job.then(What::Computes, LONG_WATCH);
                Ending::Computes
            }
            35..55 => self.hangs(hang, After::Training),
            55..90 => {
                self.settle();
                self.hangs(hang, After::Steps)
            }
            _ => {
                self.settle();
                let phase = self.dice.pick(&[Phase::Save, Phase::Evaluate]);
                self.say(0, phase);
                let lasts = time(&mut self.dice, SAVE / 2);
                self.job.then(SILENT, lasts);
                self.hangs(hang, After::Said(phase))
            }
        }
    }

    fn hang(&mut self) -> Hang {
        let rank = self.dice.below(self.draw.ranks);
        match self.dice.below(16) {
            0..5 => Hang::Sleeps(rank),
            5..7 => Hang::Busy(rank),
            7..9 => Hang::Stopped(rank),
            9..11 => Hang::DiskWait(rank),
            11 => Hang::Behind(rank),
            12 => Hang::Helper(rank),
            13 => Hang::AllSleep,
            _ => Hang::AllWait,
        }
    }

    fn hangs(&mut self, hang: Hang, after: After) -> Ending {
        self.job
            .then(What::Hangs(hang), Duration::from_hours(1_000));
        Ending::Hangs { hang, after }
    }

    /// Steps without any disturbance: until lines that are late have arrived and what was announced is over, and eight reports
    /// after that.
    fn settle(&mut self) {
        let last = self.lines.iter().map(|line| line.at).max();
        let until = last.unwrap_or_default() + Duration::from_secs(3);
        let reported = 8 * self.draw.reporters.len();
        let mut after = None;
        self.must_arrive = true;
        while after.is_none_or(|from| self.lines.len() < from + reported) {
            if self.job.end() >= until {
                after.get_or_insert(self.lines.len());
            }
            let lasts = self.step_time();
            self.job.then(What::Step, lasts);
            if self.steps.is_multiple_of(self.draw.interval) {
                for rank in self.draw.reporters.clone() {
                    let signal = self.report(rank, lasts, Some(self.steps + 1_000));
                    let at = self.job.end();
                    self.lines.push(Line { at, rank, signal });
                }
            }
            self.steps += 1;
        }
    }

    fn step_time(&mut self) -> Duration {
        let part = 700 + self.dice.below(600);
        let slow = if self.draw.slow.is_some() { SLOW } else { 1 };
        (self.draw.step / 1_000 * part * slow).max(Duration::from_millis(5))
    }

    /// One step, and its lines where it has any.
    fn step(&mut self) {
        let lasts = self.step_time();
        self.job.then(What::Step, lasts);
        if self.steps.is_multiple_of(self.draw.interval) {
            let may_be_lost = !std::mem::take(&mut self.must_arrive);
            let number = match self.draw.numbering {
                Numbering::Global => Some(self.steps),
                Numbering::Epochs(steps) => Some(self.steps % steps),
                Numbering::Absent => None,
            };
            for rank in self.draw.reporters.clone() {
                let signal = self.report(rank, lasts, number);
                self.line(rank, signal, may_be_lost);
            }
        }
        self.steps += 1;
    }

    /// The line of a step.
    fn report(&mut self, rank: u32, lasts: Duration, step: Option<u64>) -> Signal {
        let (first, count) = self.nan;
        let bad = (first..first + count).contains(&self.steps);
        let slow = self.draw.slow.is_none_or(|slow| slow == rank);
        let own = if slow { lasts } else { lasts / SLOW };
        Signal::Step(Step {
            step,
            step_time: self.draw.own_times.then_some(own),
            loss: Some(if bad { f64::NAN } else { 2.5 }),
            grad_norm: None,
        })
    }

    fn say(&mut self, rank: u32, phase: Phase) {
        let phase = Some(phase);
        self.line(rank, Signal::Beat { phase, step: None }, false);
    }

    /// A save or an evaluation that one rank announces, or that moves bytes.
    fn phase(&mut self) {
        let (phase, most) = if self.dice.chance(60) {
            (Phase::Save, SAVE)
        } else {
            (Phase::Evaluate, EVALUATION)
        };
        let by = self.dice.below(self.draw.ranks);
        // Two that nobody announces between two lines can last longer than bytes excuse.
        let said = !self.draw.shows_bytes || self.must_arrive || self.dice.chance(50);
        let mut bytes = Bytes::default();
        if said {
            self.say(by, phase);
        } else if self.draw.network.is_some() && self.dice.chance(30) {
            bytes.network = 1 << 20;
        } else {
            // A rate is taken between the times at which evidence arrives.
            let late = self.draw.evidence == Evidence::Late;
            let slow = if late { 1 << 20 } else { 128 << 10 };
            bytes.io = self.dice.pick(&[slow, 8 << 20]);
        }
        self.must_arrive |= !said;
        // A part of each step of the clock counts as time.
        let most = most.saturating_sub(CLOCK_COUNTS * self.draw.clock_steps);
        let lasts = time(&mut self.dice, most);
        self.job.then(What::Long { by, bytes }, lasts);
        if said {
            match self.dice.below(10) {
                0..5 => self.line(by, Signal::Done { phase }, true),
                5..7 => {
                    let phase = Some(Phase::Train);
                    self.line(by, Signal::Beat { phase, step: None }, true);
                }
                _ => {}
            }
        }
    }

    /// A line that may be lost, late or doubled.
    fn line(&mut self, rank: u32, signal: Signal, may_be_lost: bool) {
        let (lost, late) = (
            self.dice.chance(self.draw.lost),
            self.dice.chance(self.draw.late),
        );
        let doubled = self.dice.chance(self.draw.doubled);
        let mut at = self.job.end();
        if late {
            // A phase that is announced later than the floor is silent until then.
            let most = LATE.min(self.draw.settings.hang_floor / 2);
            at += most / 1_000 * self.dice.below(1_000);
        }
        // Phases come from one stream, which keeps its order; steps may come from another.
        let is_phase = !matches!(signal, Signal::Step(_));
        if is_phase {
            at = at.max(self.last_phase);
            self.last_phase = at;
        }
        if doubled {
            // Without a number, only a line that is printed twice at once is known to be the same.
            let numbered = matches!(signal, Signal::Step(step) if step.step.is_some());
            let again = if numbered { self.dice.below(5_000) } else { 0 };
            self.lines.push(Line {
                at: at + Duration::from_millis(again.into()),
                rank,
                signal: signal.clone(),
            });
        }
        if !lost || !may_be_lost || doubled {
            self.lines.push(Line { at, rank, signal });
        }
    }
}

/// From 10 ms to `most`, each order of magnitude as often as the others.
fn time(dice: &mut Dice, most: Duration) -> Duration {
    let mut time = most;
    while time > Duration::from_millis(100) && dice.chance(60) {
        time /= 4;
    }
    (time / 1_000 * (500 + dice.below(500))).max(Duration::from_millis(10))
}
