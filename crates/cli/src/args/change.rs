//! The arguments of the commands that change a job: `suspend`, `resume`, `restart`, `delete`.

use clap::Args as ClapArgs;

use super::{Named, Place, State, Which};

/// Suspend a job: delete its pods until it is resumed
///
/// Pods get SIGTERM and their grace period to save. On this machine the run remains, without processes,
/// until you resume or stop it.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard suspend mnist
  trainyard suspend mnist --cluster -n team-a")]
pub(crate) struct Suspend {
    #[command(flatten)]
    pub(crate) job: Named,
}

/// Resume a suspended job, as a new attempt
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard resume mnist
  trainyard resume mnist --cluster -n team-a")]
pub(crate) struct Resume {
    #[command(flatten)]
    pub(crate) job: Named,
}

/// Restart all pods of a job, as a new attempt
///
/// Replaces every pod. The restart does not count against any failure budget. A job that has ended is not
/// restarted.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard restart mnist
  trainyard restart mnist --cluster -n team-a")]
pub(crate) struct Restart {
    #[command(flatten)]
    pub(crate) job: Named,
}

/// Delete a job and its pods
///
/// On this machine: stops the run and removes all records and logs of the job's runs; volumes stay.
/// Does not ask for confirmation.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard delete mnist
  trainyard delete mnist --run 20250101T000000Z
  trainyard delete mnist --cluster -n team-a --no-wait")]
pub(crate) struct Delete {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Do not wait until the job and its pods are deleted
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Maximum seconds to wait
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300,
        conflicts_with = "no_wait"
    )]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) state: State,
}
