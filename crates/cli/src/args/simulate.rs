//! The arguments of `trainyard simulate`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use super::{Format, plan::Saving};

/// Simulate weeks of a job on a large cluster, with failures, in seconds
///
/// Machines fail, some more often than others; failures are noticed, the gang restarts, trains again what
/// was not saved, and goes on. Says what share of the time trains, where the rest went, and which change
/// would win most. The same seed gives the same bytes.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard simulate --gpus 16384 --days 54
  trainyard simulate --gpus 100000 --days 30 --path requeue --save-every 300
  trainyard simulate --gpus 4096 --failures 0.05 --bad-share 0.1 --bad-times 5 --sensitivity
  trainyard simulate --gpus 16384 --days 14 --svg timeline.svg")]
pub(crate) struct Simulate {
    /// GPUs of the job
    #[arg(long, value_name = "COUNT", default_value_t = 16_384)]
    pub(crate) gpus: u32,
    /// GPUs of a machine
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    pub(crate) gpus_per_node: u32,
    /// Days that pass
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 30.0,
        allow_negative_numbers = true
    )]
    pub(crate) days: f64,
    /// Go on until so many days have been trained instead
    #[arg(long, value_name = "DAYS", conflicts_with = "days")]
    pub(crate) train_days: Option<f64>,
    /// Dice
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Runs
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) runs: u32,
    #[command(flatten)]
    pub(crate) failures: Failures,
    #[command(flatten)]
    pub(crate) restart: Restart,
    #[command(flatten)]
    pub(crate) checkpoint: Checkpoint,
    #[command(flatten)]
    pub(crate) spares: Spares,
    /// Say which change would win most
    #[arg(long)]
    pub(crate) sensitivity: bool,
    /// Draw the timeline of the first run into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// How to write the outlook
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// What befalls machines.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Failures")]
pub(crate) struct Failures {
    /// Failures per 1,000 GPU-hours; else those of Llama 3's run
    #[arg(long = "failures", value_name = "RATE")]
    pub(crate) rate: Option<f64>,
    /// Share of them that is software, after which the machine is good
    #[arg(long, value_name = "SHARE", default_value_t = 0.22)]
    pub(crate) software_share: f64,
    /// Share of machines that are bad
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub(crate) bad_share: f64,
    /// How many times more often bad machines fail
    #[arg(long, value_name = "TIMES", default_value_t = 5.0)]
    pub(crate) bad_times: f64,
    /// Bursts in a day, such as a switch that fails
    #[arg(long, value_name = "PER DAY", default_value_t = 0.0)]
    pub(crate) bursts: f64,
    /// Machines that a burst takes
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    pub(crate) burst_machines: u32,
    /// Preemptions in a day
    #[arg(long, value_name = "PER DAY", default_value_t = 0.0)]
    pub(crate) preemptions: f64,
    /// Seconds that a preempted gang waits
    #[arg(long, value_name = "SECONDS", default_value_t = 3_600.0)]
    pub(crate) preempted: f64,
}

/// How the gang gets going again.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Restart")]
pub(crate) struct Restart {
    /// By which path
    #[arg(long, value_name = "PATH", default_value = "standby")]
    pub(crate) path: PathName,
    /// Seconds that the path takes; else as published, by the number of machines
    #[arg(long = "restart", value_name = "SECONDS")]
    pub(crate) seconds: Option<f64>,
    /// Seconds from the start of processes to the first step
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0)]
    pub(crate) start: f64,
    /// Seconds until a failure is noticed
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub(crate) notice: f64,
    /// Share of failures that hang without a sign
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    pub(crate) silent_share: f64,
    /// Seconds until a hang is noticed
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    pub(crate) silent: f64,
}

/// How training is saved.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Checkpoints")]
pub(crate) struct Checkpoint {
    /// How
    #[arg(long, value_name = "HOW", default_value = "asynchronous")]
    pub(crate) saving: Saving,
    /// Seconds of training between two
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    pub(crate) save_every: f64,
    /// Seconds that training waits for one; else 60 where it blocks, 1 where not, 0.05 in memory
    #[arg(long, value_name = "SECONDS")]
    pub(crate) blocking: Option<f64>,
    /// Seconds until one is safe
    #[arg(long, value_name = "SECONDS")]
    pub(crate) safe_after: Option<f64>,
}

/// Machines besides, and their repair.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Machines")]
pub(crate) struct Spares {
    /// Warm standbys; else as many as 99 of 100 days need
    #[arg(long, value_name = "COUNT")]
    pub(crate) standbys: Option<u32>,
    /// Idle machines of the cluster; else one for every 32
    #[arg(long, value_name = "COUNT")]
    pub(crate) pool: Option<u32>,
    /// Hours of an automatic repair
    #[arg(long, value_name = "HOURS", default_value_t = 2.0)]
    pub(crate) repair: f64,
    /// Hours of a repair by people
    #[arg(long, value_name = "HOURS", default_value_t = 48.0)]
    pub(crate) manual: f64,
}

/// How the gang restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PathName {
    /// The whole gang waits in line again
    Requeue,
    /// Only the failed machine is replaced
    Replace,
    /// By a warm standby
    Standby,
    /// Where it is; standbys for machines that failed
    InPlace,
}
