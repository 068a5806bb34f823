//! The arguments of `run`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use trainyard_core::spec::Role;

use super::{Format, State, parse_role};

/// Run a job file, or a command with N ranks, on this machine
///
/// Runs each pod as processes of your user, with the environment, ranks, restarts and status that it
/// would have on a cluster. Installs nothing, pulls no images and needs no root.
///
/// With a command after `--` no job file is needed: `--nproc` ranks run it, each with `RANK`,
/// `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR` and `MASTER_PORT`, as in a `PyTorchJob`.
///
/// The output of ranks goes to stdout, each line prefixed with its pod (`·` marks stderr); a line that several
/// pods print is shown once. The logs keep every line. Messages of trainyard and the final report go to stderr.
///
/// Ctrl-C stops the job gracefully: pods get SIGTERM and their grace period to save. A second Ctrl-C kills
/// them.
///
/// Exit code 0: the job succeeded. 1: it failed or was stopped. 2: it could not be started.
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
    /// Job file, YAML or JSON, which may contain other objects the job needs; `-` reads stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Command that every rank runs, instead of a job file
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<String>,
    /// More files with objects that the job needs; may be repeated
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(crate) more: Vec<PathBuf>,
    /// Job to run, if the files contain several
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,
    /// Name of the job, instead of the one in the file or the program of the command
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Run without GPUs, whatever the job requests
    #[arg(long)]
    pub(crate) cpu: bool,
    /// Number of ranks that run the command [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) nproc: Option<u32>,
    /// GPUs per rank of the command, or `auto`
    ///
    /// `auto` divides the GPUs of this machine, or those in `CUDA_VISIBLE_DEVICES`, among the ranks. This is the
    /// default if there is at least one GPU per rank.
    #[arg(long, value_name = "N", value_parser = parse_gpus)]
    pub(crate) gpus: Option<Gpus>,
    /// Restart the ranks up to N times, whatever failed
    ///
    /// For a job file this overrides `backoffLimit`. By default a command is restarted up to three times if
    /// a signal killed a rank, and never if a rank exited with an error code.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) restarts: Option<u32>,
    /// Number of pods of a role, such as `Worker=2`; may be repeated
    #[arg(long, value_name = "ROLE=COUNT", value_parser = parse_replicas)]
    pub(crate) replicas: Vec<(Role, u32)>,
    /// Environment variable of every rank, overriding the job's; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_env)]
    pub(crate) env: Vec<(String, String)>,
    /// Set a field of the job, such as `spec.runPolicy.backoffLimit=5`; may be repeated
    ///
    /// The value is YAML. Address list items by index or name:
    /// `spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].image=train:2`. Put keys with dots in
    /// brackets: `metadata.annotations[trainyard.dev/gang]=off`. Fields are set before the job is validated.
    #[arg(long, value_name = "PATH=VALUE", value_parser = parse_set)]
    pub(crate) set: Vec<(String, String)>,
    /// Python virtual environment to use for an image; may be repeated
    ///
    /// The `bin` folder of the environment comes first in `PATH` of containers with this image. IMAGE matches any tag
    /// and digest unless it states one.
    #[arg(long, value_name = "IMAGE=PATH", value_parser = parse_image_env)]
    pub(crate) image_env: Vec<(String, PathBuf)>,
    /// Inject a fault, to test recovery; may be repeated
    ///
    /// `kill rank=3 at=5s`, `hang rank=1 at=step:100`, `exit code=137 rank=0 at=2s`,
    /// `node-loss pods=2,3 at=8s`, `slow rank=2 factor=5 at=10s`. The report shows for each fault whether it was
    /// injected, and if not, why.
    #[arg(long, value_name = "FAULT", value_parser = parse_injection)]
    pub(crate) inject: Vec<trainyard_host::Injection>,
    /// Extra rules file for progress and verdicts, as for `doctor --rules`; may be repeated
    ///
    /// A rule of the stage `progress` parses steps and losses from a custom log format: see docs/guides/progress.md.
    /// `--inject at=step:N` uses these steps too.
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
    /// Start with empty volumes; existing content is moved to `replaced` in the state folder
    ///
    /// Volumes of claims persist between runs. Without this option a program that loads checkpoints continues where
    /// the last run stopped, and has nothing left to do if that run succeeded.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Run in the background: return once the job runs
    ///
    /// Prints the names of job and run. Use `trainyard attach` to return to it and `trainyard stop` to stop it.
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Run as the engine of a detached run.
    #[arg(long, hide = true)]
    pub(crate) detached_engine: bool,
    #[command(flatten)]
    pub(crate) state: State,
    /// Output format of the report
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Return to the live view of a run
///
/// Shows the last lines of every rank and then new lines, with the status line at the bottom, as `run` does.
/// Works for detached runs and for runs of other terminals, from several terminals at once. Ctrl-C detaches and
/// does not stop the run. If the run has ended, prints the report.
///
/// Exit code 0: the job succeeded, or you detached. 1: it failed or was stopped. 2: there is no such run.
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

/// Stop a run and wait until it has ended
///
/// Pods get SIGTERM and their grace period (`terminationGracePeriodSeconds`) to save, then SIGKILL. Volumes,
/// logs and the report stay. Succeeds if the run has already ended.
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
    /// Kill all pods at once, without a grace period
    #[arg(long)]
    pub(crate) now: bool,
    #[command(flatten)]
    pub(crate) state: State,
}

/// GPUs per rank of a command.
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
            .map_err(|_| "expected a number of GPUs per rank, or `auto`".to_owned()),
    }
}

fn parse_env(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected a name and a value, such as `NCCL_DEBUG=INFO`".to_owned()),
    }
}

fn parse_set(text: &str) -> Result<(String, String), String> {
    // Keys in brackets may contain any character.
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
        _ => Err("expected a path and a value, such as `spec.runPolicy.backoffLimit=5`".to_owned()),
    }
}

fn parse_replicas(text: &str) -> Result<(Role, u32), String> {
    let (name, count) = text
        .split_once('=')
        .ok_or("expected a role and a count, such as `Worker=2`")?;
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
        _ => Err("expected an image and a path, such as `example.com/train=./venv`".to_owned()),
    }
}

fn parse_injection(text: &str) -> Result<trainyard_host::Injection, String> {
    text.parse()
        .map_err(|error: trainyard_host::InjectionError| error.to_string())
}
