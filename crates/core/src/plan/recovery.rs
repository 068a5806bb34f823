//! How often a run breaks, how often it should save, and what that costs.
//!
//! Owns failure rates by component, the cadence of checkpoints (Young, Daly, and by minimising the
//! expected time), budgets and spares.
//!
//! Invariant: rates are per 1,000 GPU-hours; times are seconds.

use serde::Serialize;

use super::shape::of;
use crate::checkpoint::{daly_interval, young_interval};

const HOUR: f64 = 3_600.0;
const DAY: f64 = 24.0 * HOUR;
/// Bytes that a checkpoint has of every parameter: 16-bit weights, the 32-bit copy, two moments.
pub const CHECKPOINT_BYTES: f64 = 14.0;
/// Bytes per second that a GPU's state goes to the host's memory at, over `PCIe`, beside other copies.
const TO_HOST: f64 = 20e9;

/// A component that fails.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// Which.
    pub name: &'static str,
    /// Failures per 1,000 GPU-hours.
    pub rate: f64,
}

/// GPU-hours, in thousands, of the run that the rates are from: 16,384 GPUs for 54 days.
const OBSERVED: f64 = 16.384 * 54.0 * 24.0;

const fn component(name: &'static str, failures: f64) -> Component {
    Component {
        name,
        rate: failures / OBSERVED,
    }
}

/// The 419 unexpected interruptions of Llama 3's 54 days on 16,384 H100 (arXiv:2407.21783, table 5).
pub const LLAMA3: [Component; 14] = [
    component("gpu", 148.0),
    component("gpu memory", 72.0),
    component("software", 54.0),
    component("switch or cable", 35.0),
    component("host maintenance", 32.0),
    component("gpu sram", 19.0),
    component("gpu system processor", 17.0),
    component("network interface", 7.0),
    component("collective watchdog", 7.0),
    component("silent data corruption", 6.0),
    component("gpu temperature", 6.0),
    component("ssd", 3.0),
    component("power supply", 3.0),
    component("other", 10.0),
];

/// What recovery is worked out from.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovery {
    /// GPUs of the job.
    pub gpus: u32,
    /// GPUs of a node.
    pub per_node: u32,
    /// Parameters of the model.
    pub parameters: f64,
    /// Failures per 1,000 GPU-hours, all components together.
    pub rate: f64,
    /// Bytes per second of the storage, all nodes together.
    pub storage: f64,
    /// How a checkpoint is written.
    pub saving: Saving,
    /// From the failure to the first step of the next attempt.
    pub restart_seconds: f64,
    /// How long the job is to train.
    pub train_seconds: f64,
    /// How long a machine that failed is away.
    pub repair_seconds: f64,
}

/// How a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Saving {
    /// Training waits until it is on storage.
    Blocking,
    /// Training waits until it is in the host's memory.
    Asynchronous,
    /// It goes to the memory of peers, beside training.
    InMemory,
}

impl Saving {
    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Asynchronous => "asynchronous",
            Self::InMemory => "in-memory",
        }
    }
}

/// What recovery costs and needs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outlay {
    /// Bytes of one checkpoint.
    pub checkpoint_bytes: f64,
    /// Seconds that training waits for it.
    pub blocking_seconds: f64,
    /// Seconds until it is safe.
    pub write_seconds: f64,
    /// Seconds between two failures.
    pub mean_time_between_failures: f64,
    /// Cadence by Young.
    pub young_seconds: f64,
    /// Cadence by Daly.
    pub daly_seconds: f64,
    /// Cadence with the least expected time.
    pub best_seconds: f64,
    /// Interruptions to expect.
    pub interruptions: f64,
    /// Interruptions that 99 of 100 runs stay below: the budget to write into the job.
    pub budget: u32,
    /// Machines to keep ready: the failures within a repair that 99 of 100 such times stay below.
    pub spares: u32,
    /// Share of the time that trains, saving every `save_every_seconds`.
    pub ettr: f64,
    /// How often to save: a time that people set, near the best one, that storage can bear.
    pub save_every_seconds: f64,
    /// Bytes that are written a day at that cadence.
    pub daily_bytes: f64,
    /// Share of the storage's bandwidth that takes.
    pub storage_share: f64,
}

/// Times between checkpoints that people set, in seconds.
const USUAL: [f64; 15] = [
    30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_200.0, 1_800.0, 2_700.0, 3_600.0, 7_200.0, 10_800.0,
    14_400.0, 21_600.0, 43_200.0,
];
/// ETTR that a rounder time may cost.
const ROUND_COST: f64 = 0.002;
/// A checkpoint may take this share of the time until the next: the storage has other users, and retries.
const WRITING_SHARE: f64 = 0.1;
/// A job saves at least this often while it trains, however rarely it is expected to fail.
const LEAST_SAVES: f64 = 4.0;

/// The longest usual time that costs next to nothing against the best one and is at most a quarter of the training time; never
/// one that storage cannot bear or that nobody sets: five minutes for storage, half a minute for the memory of peers.
fn save_every(with: &Recovery, write: f64, blocking: f64, between: f64, best: f64) -> f64 {
    let at = |interval| expected_ettr(blocking, between, with.restart_seconds, interval);
    let least = match with.saving {
        Saving::InMemory => 30.0,
        Saving::Blocking | Saving::Asynchronous => (write / WRITING_SHARE).max(300.0),
    };
    let bearable = || USUAL.into_iter().filter(|seconds| *seconds >= least);
    let within = || bearable().filter(|seconds| *seconds <= with.train_seconds / LEAST_SAVES);
    let good = at(best.max(least)) - ROUND_COST;
    within()
        .rfind(|seconds| at(*seconds) >= good)
        .or_else(|| within().max_by(|one, other| at(*one).total_cmp(&at(*other))))
        .or_else(|| bearable().next())
        .unwrap_or(least)
}

/// Works recovery out.
pub fn recovery(with: &Recovery) -> Outlay {
    let bytes = CHECKPOINT_BYTES * with.parameters;
    let write = bytes / with.storage;
    let blocking = match with.saving {
        Saving::Blocking => write,
        Saving::Asynchronous => bytes / of(with.gpus) / TO_HOST,
        Saving::InMemory => 0.05,
    };
    let between = 1_000.0 * HOUR / (with.rate * of(with.gpus));
    let best = best_interval(blocking, between, with.restart_seconds).max(match with.saving {
        // One must be safe before the next begins.
        Saving::Asynchronous => write,
        _ => 0.0,
    });
    let nodes = with.gpus.div_ceil(with.per_node.max(1));
    let daily = DAY / between / of(nodes);
    let every = save_every(with, write, blocking, between, best);
    let ettr = expected_ettr(blocking, between, with.restart_seconds, every);
    let elapsed = with.train_seconds / ettr.max(0.01);
    let interruptions = elapsed / between;
    Outlay {
        checkpoint_bytes: bytes,
        blocking_seconds: blocking,
        write_seconds: write,
        mean_time_between_failures: between,
        young_seconds: young_interval(blocking, between),
        daly_seconds: daly_interval(blocking, between),
        best_seconds: best,
        interruptions,
        // A budget of none would end a job at its first failure.
        budget: poisson_quantile(interruptions, 0.99).max(1),
        spares: standbys(nodes, (daily * with.repair_seconds / DAY).min(1.0), 0.99),
        ettr,
        save_every_seconds: every,
        daily_bytes: bytes * DAY / every,
        storage_share: bytes / every / with.storage,
    }
}

/// Share of the time that trains, by Daly's complete model: failures may strike while saving and
/// while restarting too.
pub fn expected_ettr(blocking: f64, between: f64, restart: f64, interval: f64) -> f64 {
    let whole = between * (restart / between).exp() * ((interval + blocking) / between).exp_m1();
    (interval / whole).clamp(0.0, 1.0)
}

/// Meta's closed form: `nodes` nodes that fail `rate` times a node-day, all times in days.
pub fn meta_ettr(nodes: f64, rate: f64, restart: f64, interval: f64, write: f64) -> f64 {
    (1.0 - nodes * rate * (restart + interval / 2.0)) / (1.0 + write / interval)
}

/// The interval with the least expected time, found by halving the range that holds it.
fn best_interval(blocking: f64, between: f64, restart: f64) -> f64 {
    let (mut low, mut high) = (1.0_f64, between.max(2.0));
    for _ in 0..200 {
        let third = (high - low) / 3.0;
        let (left, right) = (low + third, high - third);
        let at = |interval| expected_ettr(blocking, between, restart, interval);
        if at(left) < at(right) {
            low = left;
        } else {
            high = right;
        }
    }
    f64::midpoint(low, high)
}

/// The least number of machines that `share` of all days (or repairs) do not need more than, where
/// each of `machines` fails with `probability`.
pub fn standbys(machines: u32, probability: f64, share: f64) -> u32 {
    let probability = probability.clamp(0.0, 1.0);
    if probability >= 1.0 {
        return machines;
    }
    let odds = probability / (1.0 - probability);
    let mut log_term = of(machines) * (-probability).ln_1p();
    let mut sum = log_term.exp();
    for failed in 0..machines {
        if sum >= share {
            return failed;
        }
        log_term += (of(machines - failed) / of(failed + 1) * odds).ln();
        sum += log_term.exp();
    }
    machines
}

/// The least count that `share` of all draws with that mean do not exceed.
pub fn poisson_quantile(mean: f64, share: f64) -> u32 {
    let mut log_term = -mean;
    let mut sum = log_term.exp();
    let mut count = 0_u32;
    while sum < share && count < 10_000_000 {
        count += 1;
        log_term += (mean / of(count)).ln();
        sum += log_term.exp();
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standbys_are_those_published() {
        let found = [128, 256, 512, 1_024].map(|machines| standbys(machines, 0.0012, 0.99));
        assert_eq!(found, [2, 2, 3, 4]);
        assert_eq!(standbys(10, 0.0, 0.99), 0);
        assert_eq!(standbys(10, 1.0, 0.99), 10);
    }

    #[test]
    fn meta_closed_form_is_reproduced() {
        let minute = 1.0 / 1_440.0;
        let at_16k = meta_ettr(2_048.0, 6.50e-3, 5.0 * minute, 5.0 * minute, 0.0);
        assert!((at_16k - 0.931).abs() < 0.001, "{at_16k}");
        let at_100k = meta_ettr(12_500.0, 2.34e-3, 2.0 * minute, 2.0 * minute, 0.0);
        assert!((at_100k - 0.939).abs() < 0.001, "{at_100k}");
    }

    fn llama3(saving: Saving) -> Recovery {
        Recovery {
            gpus: 16_384,
            per_node: 8,
            parameters: 405e9,
            rate: LLAMA3.iter().map(|component| component.rate).sum(),
            storage: 2e12,
            saving,
            restart_seconds: 300.0,
            train_seconds: 54.0 * DAY,
            repair_seconds: DAY,
        }
    }

    #[test]
    fn llama_3_mtbf_and_ettr() {
        let outlay = recovery(&llama3(Saving::Asynchronous));
        let hours = outlay.mean_time_between_failures / HOUR;
        assert!((hours - 3.09).abs() < 0.01, "{hours}");
        assert!(outlay.ettr > 0.90, "{outlay:?}");
        assert!(outlay.budget > 419 && outlay.budget < 700, "{outlay:?}");
        assert!((outlay.checkpoint_bytes - 5.67e12).abs() < 1e10);
    }

    #[test]
    fn cadence_is_usual_and_bearable() {
        let mut small = llama3(Saving::Asynchronous);
        (small.gpus, small.parameters, small.storage) = (64, 8e9, 16e9);
        let mut short = small.clone();
        short.train_seconds = 5.0 * HOUR;
        let mut minutes = small.clone();
        minutes.train_seconds = 600.0;
        let mut blocking = short.clone();
        (blocking.saving, blocking.storage) = (Saving::Blocking, 2e9);
        let mut slow = llama3(Saving::Asynchronous);
        slow.storage = 20e9;
        let cases = [
            ("16,384 GPUs", llama3(Saving::Asynchronous), 300.0),
            ("64 GPUs", small, 10_800.0),
            ("64 GPUs for 5 hours", short, 3_600.0),
            ("64 GPUs for 10 minutes", minutes, 300.0),
            ("64 GPUs for 5 hours, blocking", blocking, 3_600.0),
            // 5.7 TB take 284 s.
            ("slow storage", slow, 3_600.0),
            ("in memory", llama3(Saving::InMemory), 60.0),
        ];
        for (name, with, want) in cases {
            let outlay = recovery(&with);
            assert!(
                (outlay.save_every_seconds - want).abs() < 1.0,
                "{name}: {outlay:?}"
            );
            assert!(USUAL.contains(&outlay.save_every_seconds), "{name}");
            assert!(
                with.saving == Saving::InMemory || outlay.storage_share <= WRITING_SHARE + 1e-9
            );
            let daily = outlay.checkpoint_bytes * DAY / outlay.save_every_seconds;
            assert!((outlay.daily_bytes / daily - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn best_interval_is_near_daly() {
        for write in [1.0, 30.0, 300.0] {
            let between = 3.0 * HOUR;
            let best = best_interval(write, between, 300.0);
            let daly = daly_interval(write, between);
            assert!((best / daly - 1.0).abs() < 0.1, "{best} {daly}");
            let at = |interval| expected_ettr(write, between, 300.0, interval);
            // The optimum is flat: the formula comes within the last digits of it.
            assert!(at(best) >= at(daly) - 1e-9);
        }
    }
}
