//! The arguments of `run`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use trainyard_core::spec::Role;

use super::{Format, State, parse_role};

/// Run the job of a file, or a command as N ranks, on this machine, to its end
///
/// Every pod becomes processes of this user, with the environment, ranks, restarts and status that it
/// would have on a cluster. Nothing is installed, no image is pulled, and root is not needed.
///
/// With a command after `--` no job file is needed: `--nproc` ranks run it, each with `RANK`,
/// `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR` and `MASTER_PORT`, as a `PyTorchJob` would have them.
///
/// What ranks write goes to stdout, each line with its pod in front (`·` marks stderr) and identical
/// lines of several pods told once; all of it is kept in the logs. What trainyard says, and the report
/// at the end, go to stderr.
///
/// Ctrl-C once stops the job in order: pods get SIGTERM and their grace period to save. Ctrl-C again
/// ends them at once.
///
/// Exit code 0: the job succeeded. 1: it failed or was stopped. 2: it could not be run.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard run job.yaml
  trainyard run --nproc 4 -- python train.py --epochs 3
  trainyard run job.yaml --cpu --replicas Worker=2
  trainyard run job.yaml --set spec.runPolicy.backoffLimit=5 --env NCCL_DEBUG=INFO
  trainyard run job.yaml --image-env nvcr.io/nvidia/pytorch=./venv
  trainyard run job.yaml --inject 'kill rank=3 at=5s'
  trainyard run --rules rules.toml --nproc 4 -- ./train
  trainyard run job.yaml --detach
  trainyard run job.yaml --format json -q > report.json")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of its own on the command line"
)]
pub(crate) struct Run {
    /// Job file, YAML or JSON, with the objects it needs beside it; `-` reads stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Command that every rank runs, in place of a job file
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<String>,
    /// More files with objects that the job needs; may be repeated
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(crate) more: Vec<PathBuf>,
    /// Which job to run, where the files hold several
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,
    /// Another name for the job; that of a command is made from its program
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Run without GPUs, whatever the job asks for
    #[arg(long)]
    pub(crate) cpu: bool,
    /// How many ranks run the command; 1 unless stated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) nproc: Option<u32>,
    /// GPUs of each rank of the command, or `auto`
    ///
    /// `auto` divides the GPUs of this machine, or those of your `CUDA_VISIBLE_DEVICES`, among the ranks.
    /// That is also done where the option is left out, if there is at least one for each rank.
    #[arg(long, value_name = "N", value_parser = parse_gpus)]
    pub(crate) gpus: Option<Gpus>,
    /// Restart the ranks up to so many times, whatever failed
    ///
    /// For a job file this replaces `backoffLimit`. Without it a command is restarted up to three times when
    /// a signal ended a rank, and not at all when a rank ended with an exit code of its own.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) restarts: Option<u32>,
    /// How many pods a role has, such as `Worker=2`; may be repeated
    #[arg(long, value_name = "ROLE=COUNT", value_parser = parse_replicas)]
    pub(crate) replicas: Vec<(Role, u32)>,
    /// Variable of every rank, in place of the job's own; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_env)]
    pub(crate) env: Vec<(String, String)>,
    /// Value of a field of the job, such as `spec.runPolicy.backoffLimit=5`; may be repeated
    ///
    /// The value is read as YAML. Items of a list are named by number or name:
    /// `spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].image=train:2`. Keys with dots stand in
    /// brackets: `metadata.annotations[trainyard.dev/gang]=off`. It is set before the job is checked.
    #[arg(long, value_name = "PATH=VALUE", value_parser = parse_set)]
    pub(crate) set: Vec<(String, String)>,
    /// Virtual environment that stands for an image; may be repeated
    ///
    /// Containers of the image find the programs of the environment first. Tag and digest are ignored
    /// unless they are stated.
    #[arg(long, value_name = "IMAGE=PATH", value_parser = parse_image_env)]
    pub(crate) image_env: Vec<(String, PathBuf)>,
    /// Fault on purpose, to see the job recover; may be repeated
    ///
    /// `kill rank=3 at=5s`, `hang rank=1 at=step:100`, `exit code=137 rank=0 at=2s`,
    /// `node-loss pods=2,3 at=8s`, `slow rank=2 factor=5 at=10s`. The report says of each whether it took
    /// place, and why not.
    #[arg(long, value_name = "FAULT", value_parser = parse_injection)]
    pub(crate) inject: Vec<trainyard_host::Injection>,
    /// More rules for progress and verdicts, as `doctor --rules` takes them; may be repeated
    ///
    /// A rule of the stage `progress` reads steps and losses of a program that prints them in a form of its own:
    /// docs/guides/progress.md. `--inject at=step:N` counts them too.
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
    /// Start with empty volumes; what they hold is moved to `replaced` in the state folder
    ///
    /// Volumes of claims outlive runs, so a program that resumes from a checkpoint goes on from where the last
    /// run was, and has nothing left to do once one has succeeded.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Return once the job runs, and let it go on without this terminal
    ///
    /// Prints the names of job and run. `trainyard attach` returns to it, `trainyard stop` stops it.
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Be the engine of a detached run.
    #[arg(long, hide = true)]
    pub(crate) detached_engine: bool,
    #[command(flatten)]
    pub(crate) state: State,
    /// How to write the report
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Return to the live view of a run
///
/// Shows the last lines of every rank and then what comes, with the live line at the bottom, as `run` does.
/// Works for runs that were detached and for those of another terminal, from several terminals at once. Ctrl-C
/// leaves the run as it is. Of a run that is over the report is printed.
///
/// Exit code 0: the job succeeded, or you left it. 1: it failed or was stopped. 2: there is no such run.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard attach
  trainyard attach mnist")]
pub(crate) struct Attach {
    /// Name of the job; may be left out where only one runs
    #[arg(value_name = "JOB")]
    pub(crate) job: Option<String>,
    #[command(flatten)]
    pub(crate) state: State,
}

/// Stop a run, and wait until it has ended
///
/// Pods get SIGTERM and their grace period (`terminationGracePeriodSeconds`) to save, then SIGKILL. Volumes,
/// logs and the report stay. A run that has ended already is no error.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard stop
  trainyard stop mnist --now
  trainyard stop --all")]
pub(crate) struct Stop {
    /// Name of the job; may be left out where only one runs
    #[arg(value_name = "JOB")]
    pub(crate) job: Option<String>,
    /// Stop every run of the state folder
    #[arg(short, long, conflicts_with = "job")]
    pub(crate) all: bool,
    /// End all pods at once, without their grace period
    #[arg(long)]
    pub(crate) now: bool,
    #[command(flatten)]
    pub(crate) state: State,
}

/// GPUs of each rank of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gpus {
    /// Those of this machine, divided among the ranks.
    Auto,
    /// So many.
    Each(
        /// How many.
        u32,
    ),
}

fn parse_gpus(text: &str) -> Result<Gpus, String> {
    match text {
        "auto" => Ok(Gpus::Auto),
        _ => text
            .parse()
            .map(Gpus::Each)
            .map_err(|_| "a number of GPUs for each rank or `auto` is needed".to_owned()),
    }
}

fn parse_env(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a name and a value are needed, such as `NCCL_DEBUG=INFO`".to_owned()),
    }
}

fn parse_set(text: &str) -> Result<(String, String), String> {
    // Keys in brackets may hold any sign.
    let mut inside = false;
    let end = text.find(|sign| {
        inside = match sign {
            '[' => true,
            ']' => false,
            _ => inside,
        };
        sign == '=' && !inside
    });
    match end.and_then(|end| text.split_at_checked(end)) {
        Some((path, value)) if !path.is_empty() => Ok((
            path.to_owned(),
            value.strip_prefix('=').unwrap_or(value).to_owned(),
        )),
        _ => {
            Err("a path and a value are needed, such as `spec.runPolicy.backoffLimit=5`".to_owned())
        }
    }
}

fn parse_replicas(text: &str) -> Result<(Role, u32), String> {
    let (name, count) = text
        .split_once('=')
        .ok_or("a role and a count are needed, such as `Worker=2`")?;
    let role = parse_role(name)?;
    let count = count
        .parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| format!("`{count}` is not a number of pods, 1 or more"))?;
    Ok((role, count))
}

fn parse_image_env(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((image, path)) if !image.is_empty() && !path.is_empty() => {
            Ok((image.to_owned(), path.into()))
        }
        _ => Err("an image and a path are needed, such as `example.com/train=./venv`".to_owned()),
    }
}

fn parse_injection(text: &str) -> Result<trainyard_host::Injection, String> {
    text.parse()
        .map_err(|error: trainyard_host::InjectionError| error.to_string())
}
