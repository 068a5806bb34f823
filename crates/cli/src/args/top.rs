//! The arguments of `top`.

use clap::Args as ClapArgs;

use super::State;

/// Show the runs of this machine in the terminal, as they change
///
/// The pages of `trainyard dashboard` without a browser: jobs, one job with its ranks over time, its logs and its verdicts, and failures by cause.
/// `?` lists the keys, `q` quits. It changes nothing.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard top
  trainyard top --state-dir /data/runs/.trainyard
  trainyard top --once                     print the list of jobs once, for scripts")]
pub(crate) struct Top {
    /// Print the list of jobs once, as text, and end
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) state: State,
}
