//! The arguments of `top`.

use clap::Args as ClapArgs;

use super::{Place, State};

/// Show the runs of this machine, or the jobs of a cluster, in the terminal, as they change
///
/// The pages of `trainyard dashboard` without a browser: jobs, one job with its ranks over time, its logs and its verdicts, failures by cause, and of a
/// cluster its nodes and the jobs that wait. `?` lists the keys, `q` quits. It changes nothing.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard top
  trainyard top --state-dir /data/runs/.trainyard
  trainyard top --cluster                  the jobs of the current namespace
  trainyard top -A                         the jobs of all namespaces
  trainyard top --once                     print the list of jobs once, for scripts")]
pub(crate) struct Top {
    /// Print the list of jobs once, as text, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Show the jobs of all namespaces; implies `--cluster`
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    #[command(flatten)]
    pub(crate) state: State,
    #[command(flatten)]
    pub(crate) place: Place,
}
