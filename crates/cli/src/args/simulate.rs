//! The arguments of `trainyard simulate`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use super::{Format, plan::Saving};

/// Simulate weeks of a job on a large cluster, with failures, in seconds
///
/// Machines fail, some more often than others. The gang detects each failure, restarts from the last checkpoint
/// and repeats the lost steps. Prints the share of wall time spent training (ETTR), where the rest went, and which
/// change would help most. The same seed gives identical output.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard simulate --gpus 16384 --days 54
  trainyard simulate --gpus 100000 --days 30 --path requeue --save-every 300
  trainyard simulate --gpus 4096 --failures 0.05 --bad-share 0.1 --bad-times 5 --sensitivity
  trainyard simulate --gpus 512 --days 30 --job status.json
  trainyard simulate --gpus 16384 --days 14 --svg timeline.svg")]
pub(crate) struct Simulate {
    /// GPUs of the job
    #[arg(long, value_name = "COUNT", default_value_t = 16_384)]
    pub(crate) gpus: u32,
    /// GPUs per machine
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    pub(crate) gpus_per_node: u32,
    /// Days to simulate
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 30.0,
        allow_negative_numbers = true
    )]
    pub(crate) days: f64,
    /// Simulate until the job has trained for this many days instead
    #[arg(long, value_name = "DAYS", conflicts_with = "days")]
    pub(crate) train_days: Option<f64>,
    /// Take failures, restarts and saves from a finished job of this size: the output of `trainyard status JOB --format json`;
    /// may be repeated. Options that you pass win over it
    #[arg(long = "job", value_name = "FILE")]
    pub(crate) jobs: Vec<PathBuf>,
    /// Seed of the random numbers
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Number of runs
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
    /// Show which change would help most
    #[arg(long)]
    pub(crate) sensitivity: bool,
    /// Write a timeline of the first run to this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// How machines fail.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Failures")]
pub(crate) struct Failures {
    /// Failures per 1,000 GPU-hours [default: the rate of the Llama 3 run]
    #[arg(long = "failures", value_name = "RATE")]
    pub(crate) rate: Option<f64>,
    /// Share of failures caused by software, which need no repair
    #[arg(long, value_name = "SHARE", default_value_t = 0.22)]
    pub(crate) software_share: f64,
    /// Share of machines that are bad
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub(crate) bad_share: f64,
    /// Failure rate of bad machines relative to good ones
    #[arg(long, value_name = "TIMES", default_value_t = 5.0)]
    pub(crate) bad_times: f64,
    /// Correlated failures per day, such as of a switch
    #[arg(long, value_name = "PER DAY", default_value_t = 0.0)]
    pub(crate) bursts: f64,
    /// Machines lost in a correlated failure
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    pub(crate) burst_machines: u32,
    /// Preemptions per day
    #[arg(long, value_name = "PER DAY", default_value_t = 0.0)]
    pub(crate) preemptions: f64,
    /// Seconds that a preempted gang waits
    #[arg(long, value_name = "SECONDS", default_value_t = 3_600.0)]
    pub(crate) preempted: f64,
}

/// How the gang restarts.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Restart")]
pub(crate) struct Restart {
    /// Restart path
    #[arg(long, value_name = "PATH", default_value = "standby")]
    pub(crate) path: PathName,
    /// Seconds that the path takes [default: published values for this number of machines]
    #[arg(long = "restart", value_name = "SECONDS")]
    pub(crate) seconds: Option<f64>,
    /// Seconds from process start to the first step [default: 120]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) start: Option<f64>,
    /// Seconds until a failure is detected
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub(crate) notice: f64,
    /// Share of failures that are silent hangs
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    pub(crate) silent_share: f64,
    /// Seconds until a silent hang is detected
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    pub(crate) silent: f64,
}

/// How checkpoints are saved.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Checkpoints")]
pub(crate) struct Checkpoint {
    /// How checkpoints are saved
    #[arg(long, value_name = "HOW", default_value = "asynchronous")]
    pub(crate) saving: Saving,
    /// Seconds of training between checkpoints [default: 600]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) save_every: Option<f64>,
    /// Seconds that training waits for a checkpoint [default: 60 blocking, 1 asynchronous, 0.05 in-memory]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) blocking: Option<f64>,
    /// Seconds until a checkpoint is durable
    #[arg(long, value_name = "SECONDS")]
    pub(crate) safe_after: Option<f64>,
}

/// Spare machines, and repair.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Machines")]
pub(crate) struct Spares {
    /// Warm standbys [default: enough for 99 of 100 days]
    #[arg(long, value_name = "COUNT")]
    pub(crate) standbys: Option<u32>,
    /// Idle machines in the cluster [default: one per 32]
    #[arg(long, value_name = "COUNT")]
    pub(crate) pool: Option<u32>,
    /// Hours of an automatic repair of a machine
    #[arg(long, value_name = "HOURS", default_value_t = 2.0)]
    pub(crate) repair: f64,
    /// Hours of a manual repair of a machine
    #[arg(long, value_name = "HOURS", default_value_t = 48.0)]
    pub(crate) manual: f64,
}

/// How the gang restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PathName {
    /// The whole gang goes back to the wait queue
    Requeue,
    /// Only the failed machine is replaced
    Replace,
    /// A warm standby replaces the failed machine
    Standby,
    /// Processes restart on the same machines; standbys replace failed machines
    InPlace,
}
