//! Random jobs: none that trains is ended, and every hang is named in time.

use std::time::Duration;

use super::{
    super::{Phase, Settings, Signal},
    bounds::check,
    defaults, millis, secs,
    world::{Fault, Job, What, step_of, watch},
};

/// Marsaglia's xorshift.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..4 {
            dice.next();
        }
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// From 10 ms to `most`, each order of magnitude as often as the others.
    fn time(&mut self, most: Duration) -> Duration {
        let mut time = most;
        while time > millis(100) && self.percent(60) {
            time /= 4;
        }
        let part = 500 + self.below(500);
        (time / 1000 * u32::try_from(part).unwrap()).max(millis(10))
    }
}

/// A job that trains, and how its lines are carried.
struct Draw {
    dice: Dice,
    job: Job,
    settings: Settings,
    step: Duration,
    steps: u64,
    reporters: u32,
    lost: u64,
    late: u64,
    doubled: u64,
    /// When the last line of a phase arrives.
    last_phase: Duration,
    /// Whether an unannounced phase was last. The line after it is not lost: two of them in one silence can last longer
    /// than bytes excuse, see `bytes_excuse_three_hours`.
    unannounced: bool,
}

impl Draw {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let ranks = 2 + u32::try_from(dice.below(5)).unwrap();
        let mut job = Job::new(ranks);
        job.cpu = [0, 30, 900][usize::try_from(dice.below(3)).unwrap()];
        job.spin = [0, 1000][usize::try_from(dice.below(2)).unwrap()];
        let settings = Settings {
            hang_floor: [secs(2), secs(5), secs(30)][usize::try_from(dice.below(3)).unwrap()],
            ..defaults()
        };
        let step = dice.time(Duration::from_mins(10));
        let start = dice.time(Duration::from_mins(19));
        job.then(What::Start, start);
        Self {
            step,
            steps: 0,
            reporters: if dice.percent(30) { ranks } else { 1 },
            lost: [0, 5, 20][usize::try_from(dice.below(3)).unwrap()],
            late: [0, 20][usize::try_from(dice.below(2)).unwrap()],
            doubled: [0, 10][usize::try_from(dice.below(2)).unwrap()],
            last_phase: Duration::ZERO,
            unannounced: false,
            dice,
            job,
            settings,
        }
    }

    /// A line of `rank` that may be lost, late or doubled.
    fn line(&mut self, rank: u32, signal: Signal, may_be_lost: bool) {
        let (lost, late) = (self.dice.percent(self.lost), self.dice.percent(self.late));
        let doubled = self.dice.percent(self.doubled);
        let mut at = self.job.end();
        if late {
            at += millis(self.dice.below(2_000));
        }
        // Phases come from one stream, which keeps its order; steps may come from another.
        let is_phase = !matches!(signal, Signal::Step(_));
        if is_phase {
            at = at.max(self.last_phase);
            self.last_phase = at;
        }
        if doubled {
            let again = if is_phase { 0 } else { self.dice.below(5_000) };
            let again = (at + millis(again), rank, signal.clone());
            self.job.lines.push(again);
        }
        if !lost || !may_be_lost || doubled {
            self.job.lines.push((at, rank, signal));
        }
    }

    fn step(&mut self) {
        let part = u32::try_from(700 + self.dice.below(700)).unwrap();
        self.job
            .then(What::Step(self.steps), self.step / 1000 * part);
        let may_be_lost = !std::mem::take(&mut self.unannounced);
        for rank in 0..self.reporters {
            self.line(rank, step_of(self.steps), may_be_lost);
        }
        self.steps += 1;
    }

    /// A save or an evaluation of rank 0, which it announces or which moves bytes.
    fn long(&mut self) {
        let (phase, most) = if self.dice.percent(60) {
            (Phase::Save, Duration::from_mins(30))
        } else {
            (Phase::Evaluate, Duration::from_hours(2))
        };
        let said = self.dice.percent(50);
        if said {
            let beat = Signal::Beat {
                phase: Some(phase),
                step: None,
            };
            self.line(0, beat, false);
        }
        self.unannounced = !said;
        let lasts = self.dice.time(most);
        self.job.then(What::Long { phase, said }, lasts);
        if said && self.dice.percent(50) {
            self.line(0, Signal::Done { phase }, true);
        }
    }

    fn train(&mut self) {
        for _ in 0..20 + self.dice.below(40) {
            self.step();
            if self.dice.percent(6) {
                self.long();
            }
        }
    }

    fn finish(&mut self) {
        self.job.lines.sort_by_key(|(at, ..)| *at);
    }
}

#[test]
fn no_false_accusation_in_4000_jobs() {
    let mut evidence = 0;
    for seed in 0..4_000 {
        let mut draw = Draw::new(seed);
        draw.train();
        draw.finish();
        let delay = millis(10 + draw.dice.below(200));
        let trace = watch(draw.settings, &draw.job, draw.job.end(), delay);
        assert!(trace.act().is_none(), "seed {seed}: {:?}", trace.act());
        check(draw.settings, &trace, None).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        evidence += trace
            .looks
            .iter()
            .filter(|(_, look)| !look.ask.is_empty())
            .count();
    }
    // The jobs are such that evidence was needed.
    assert!(evidence > 10_000, "{evidence}");
}

/// The longest time between two steps as they arrive; lines that arrive twice and phases do not count.
fn largest_gap(job: &Job) -> Duration {
    let mut steps = vec![None; job.ranks as usize];
    let (mut last, mut largest) = (None, Duration::ZERO);
    for (at, rank, signal) in &job.lines {
        let Signal::Step(step) = signal else {
            continue;
        };
        if steps[*rank as usize] != step.step {
            steps[*rank as usize] = step.step;
            largest = largest.max(at.saturating_sub(last.replace(*at).unwrap_or(*at)));
        }
    }
    largest
}

#[test]
fn injected_hangs_are_named() {
    for seed in 0..1_000 {
        let mut draw = Draw::new(seed);
        draw.train();
        (draw.lost, draw.late, draw.doubled) = (0, 0, 0);
        // Lines that are late arrive before the hang, and what was announced is over.
        let last = draw.job.lines.iter().map(|(at, ..)| *at).max();
        let trained = draw.steps;
        while draw.job.end() < last.unwrap_or_default() + secs(3) || draw.steps < trained + 4 {
            draw.step();
        }
        let ranks = u64::from(draw.job.ranks);
        let rank = u32::try_from(draw.dice.below(ranks)).unwrap();
        let fault = match draw.dice.below(4) {
            0 => Fault::Stopped(rank),
            1 => Fault::Busy(rank),
            2 => Fault::AllWait,
            _ => Fault::Sleeps(rank),
        };
        let begin = draw.job.end();
        draw.job.then(What::Hangs(fault), Duration::from_hours(200));
        draw.finish();
        let largest = largest_gap(&draw.job);
        let delay = millis(10 + draw.dice.below(200));
        let trace = watch(draw.settings, &draw.job, Duration::from_hours(240), delay);
        let named = matches!(fault, Fault::Sleeps(_) | Fault::Stopped(_));
        let patience = if named {
            draw.settings.hang_floor
        } else {
            draw.settings.hang_after
        };
        let patience = patience.max(largest * 3);
        let Some((at, finding)) = trace.act() else {
            panic!("seed {seed}: {fault:?} is not found");
        };
        let took = at.checked_sub(begin);
        let took =
            took.unwrap_or_else(|| panic!("seed {seed}: {at:?} before {begin:?}: {finding:?}"));
        let within = patience + (patience / 8).clamp(secs(1), secs(61));
        assert!(
            took <= within,
            "seed {seed}: {fault:?} {took:?}, not {within:?}"
        );
        assert!(took >= draw.settings.hang_floor, "seed {seed}");
        let want = match fault {
            Fault::AllWait => vec![],
            _ => vec![rank],
        };
        assert_eq!(finding.ranks, want, "seed {seed}: {fault:?} {finding:?}");
        check(draw.settings, &trace, Some(begin)).unwrap();
    }
}

#[test]
fn same_signals_give_same_bytes() {
    for seed in 0..50 {
        let run = || {
            let mut draw = Draw::new(seed);
            draw.train();
            draw.finish();
            draw.job.then(What::Hangs(Fault::Sleeps(0)), secs(5_000));
            let until = draw.job.end();
            format!("{:?}", watch(draw.settings, &draw.job, until, millis(50)))
        };
        assert_eq!(run(), run(), "seed {seed}");
    }
}
