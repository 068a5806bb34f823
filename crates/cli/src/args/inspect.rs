//! The arguments of the commands that look into a job that runs: `stacks`, `exec`, `debug`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::{Format, Place, State, Which};

/// Show what every rank of a running job does: Python stacks and kernel waits
///
/// Reads the processes of a run from outside: they are neither stopped nor changed, and the program needs no
/// preparation. On a cluster the supervisors of the pods read them (`--gang-bind` of the operator), asked by `kubectl exec`. Ranks with the same stack are printed once; the smallest group comes first,
/// because a rank that hangs stands apart from those that wait for it.
///
/// Stacks are read from `CPython` 3.9 to 3.14. Calls into C have no frame: the line that made the call is shown,
/// with the kernel function that the thread waits in.
///
/// The exit code is 2 if no rank could be read.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard stacks mnist
  trainyard stacks mnist --rank 2 --rank 3
  trainyard stacks mnist --native
  trainyard stacks mnist -n team-a
  trainyard stacks mnist --format json | jq '.groups[0].ranks'")]
pub(crate) struct Stacks {
    /// Name of the job
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// Read only this rank; may be repeated
    #[arg(long, value_name = "N")]
    pub(crate) rank: Vec<u32>,
    /// Also list every thread with its kernel wait and system call; C frames are not read
    #[arg(long)]
    pub(crate) native: bool,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) state: State,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Run a command in the pod of a rank
///
/// The command gets the namespaces, environment and working folder of the container that trains, and the streams of
/// this terminal. Without a command, starts `sh`. On this machine the terminal is not a controlling terminal of the
/// command: Ctrl-C ends `exec`, and the command with it. On a cluster `kubectl exec` runs it, with a terminal of its own
/// where this is one.
///
/// The exit code is that of the command; 2 if trainyard found no rank to run it in, 126 or 127 as shells use them. On a cluster it is that of `kubectl exec`,
/// which is the command's, or 1 if `kubectl` itself failed.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard exec mnist --rank 2
  trainyard exec mnist --rank 0 -- env
  trainyard exec mnist --rank 0 -n team-a
  trainyard exec mnist --rank 0 -- sh -c 'ls -l /proc/1/fd'")]
pub(crate) struct Exec {
    /// Name of the job
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// Rank whose pod runs the command
    #[arg(long, value_name = "N")]
    pub(crate) rank: u32,
    /// Container of the pod [default: the one that trains]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) container: Option<String>,
    /// Command and its arguments, after `--`
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) state: State,
}

/// Collect job, status, logs and stacks into one archive
///
/// Writes a `.tar.gz` with the job, status, the doctor's verdict, the last 2,000 lines of each log and the stacks of a job that
/// runs. Works while the job runs and afterwards. Of a run on this machine it has the report and facts about the machine too;
/// of a job on a cluster its pods, events, what `explain` prints, and the logs that the operator kept of failed pods. On a cluster
/// everything is read with your own rights, and `README.txt` names what you may not read.
///
/// Values of environment variables are left out, except those of a list of harmless names such as `NCCL_*`. Secrets
/// that are known from the job or from this environment are replaced in logs; read `README.txt` in the archive,
/// and look through the logs before you pass it on.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard debug mnist
  trainyard debug mnist --output /tmp/mnist.tar.gz
  trainyard debug mnist --run 20250101T000000Z
  trainyard debug mnist --cluster -n team-a")]
pub(crate) struct Debug {
    #[command(flatten)]
    pub(crate) which: Which,
    /// File to write; an existing file is replaced [default: `JOB-RUN-debug.tar.gz` in this folder, of a cluster `NAMESPACE-JOB-debug.tar.gz`]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) state: State,
}
