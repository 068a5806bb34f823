//! The command line as it is written: stage one of two.
//!
//! Parsing only validates. [`crate::session`] combines the arguments with the environment and the terminal;
//! [`crate::command`] runs them.

mod change;
mod checkpoints;
mod dashboard;
mod doctor;
mod fabric;
mod history;
mod inspect;
mod lint;
mod logs;
mod new;
mod operator;
mod place;
mod plan;
mod preflight;
mod profile;
mod report;
mod run;
mod simulate;
mod top;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{
    Args as ClapArgs, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
};
use trainyard_core::spec::Role;

pub(crate) use self::{
    change::{Delete, Restart, Resume, Suspend},
    checkpoints::{
        Checkpoints, CheckpointsCommand, CheckpointsConvert, CheckpointsDiff, CheckpointsLs,
        CheckpointsPrune, CheckpointsShow, CheckpointsVerify, ConvertTo,
    },
    dashboard::{Auth, Dashboard},
    doctor::Doctor,
    fabric::Fabric,
    history::{
        History, HistoryBy, HistoryCommand, HistoryExport, HistoryImport, HistoryKeep, HistoryLs,
        HistoryOutcome, HistoryPrune, HistoryReport, HistoryStore, HistorySync,
    },
    inspect::{Debug, Exec, Stacks},
    lint::{Against, Lint, LintFormat},
    logs::Logs,
    new::{New, NewAnswers},
    operator::{LogFormat, NetworkPolicy, Operator, ProgressSource},
    place::{NodeSource, Nodes, PlaceJob},
    plan::{
        Emit, GroupOrder, Known, Model as PlanModel, OptimizerName, Plan, Recompute,
        Recovery as PlanRecovery, Saving, Sharding,
    },
    preflight::Preflight,
    profile::Profile,
    report::{Report, ReportFormat, Utilization},
    run::{Attach, Gpus, Run, Stop},
    simulate::{PathName, Simulate},
    top::Top,
};

/// The parsed command line.
#[derive(Debug, Parser)]
#[command(
    name = "trainyard",
    version,
    about = "Run Kubeflow training jobs on Kubernetes and on one machine",
    long_about = "Run Kubeflow training jobs on Kubernetes and on one machine.\n\n\
        Trainyard reads the job files of the Kubeflow operators (PyTorchJob, TFJob, MPIJob, \
        XGBoostJob, PaddleJob, JAXJob) unchanged.",
    after_long_help = "\
Examples:
  trainyard run job.yaml                 run the ranks as processes on this machine
  trainyard run --nproc 4 -- python train.py   run a command without a job file
  trainyard new                          write a commented job file
  trainyard lint job.yaml                find mistakes before starting anything
  trainyard render job.yaml              print every object the operator would create
  trainyard plan --model llama3-8b --gpus 64   show layouts that fit, their speed and cost
  kubectl get pytorchjob j -o yaml | trainyard render -

Exit codes:
  0  success
  1  the job or a check failed (for `lint`: a finding of severity error)
  2  the command could not run (usage, file, environment)",
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Clone, Copy, Debug, ClapArgs)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// When to use colour
    ///
    /// `auto` uses it on a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`. No information is
    /// shown by colour alone.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// Print only errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print details of each step
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal
    Auto,
    /// Also into files and pipes
    Always,
    /// Never
    Never,
}

/// The subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<Run>),
    Attach(Attach),
    Stop(Stop),
    Ps(Ps),
    Status(Status),
    Logs(Logs),
    Top(Top),
    Dashboard(Box<Dashboard>),
    History(History),
    Report(Box<Report>),
    Stacks(Stacks),
    Profile(Box<Profile>),
    Exec(Exec),
    Debug(Debug),
    Explain(Explain),
    Doctor(Doctor),
    Suspend(Suspend),
    Resume(Resume),
    Restart(Restart),
    Delete(Delete),
    Render(Render),
    Lint(Lint),
    Fabric(Fabric),
    New(Box<New>),
    Place(PlaceJob),
    Nodes(Nodes),
    Preflight(Preflight),
    Plan(Box<Plan>),
    Simulate(Box<Simulate>),
    Checkpoints(Checkpoints),
    Operator(Box<Operator>),
    Completions(Completions),
    Man(Man),
    #[command(hide = true)]
    Reference(Reference),
}

/// List runs on this machine, or jobs in a cluster
///
/// Lists the last run of every job, newest first. With `--cluster`, lists every job in the namespace.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard ps
  trainyard ps --all
  trainyard ps --watch
  trainyard ps --cluster -n team-a
  trainyard ps --format json | jq -r '.runs[] | select(.live) | .job'")]
pub(crate) struct Ps {
    /// List every run of every job
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Print the list again every two seconds, until Ctrl-C
    #[arg(short, long, conflicts_with = "format")]
    pub(crate) watch: bool,
    /// List jobs in all namespaces; implies `--cluster`
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) state: State,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Show the status of a job: conditions, attempts, failure budget, time
///
/// Works while the job runs, from any terminal, and after it has ended.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard status mnist
  trainyard status mnist --format json | jq -r .state
  trainyard status pytorchjob/mnist --cluster -n team-a")]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print it again every two seconds, until the job has ended or Ctrl-C
    #[arg(short, long, conflicts_with = "format")]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) state: State,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Explain why a job is not running, or why it failed
///
/// Prints the cause in one sentence, the evidence, and the next step. Reads the job's status, its pods and
/// their events, quotas, volume claims, nodes and the operator lease; skips what you have no permission to read.
///
/// Exit code 0: the job runs, waits or succeeded. 1: it failed. 2: the cause could not be determined.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard explain mnist
  trainyard explain mnist --cluster -n team-a
  trainyard explain mnist --cluster --format json | jq -r .cause")]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print it again every two seconds, until the job has ended or Ctrl-C
    #[arg(short, long, conflicts_with = "format")]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) state: State,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// The job to change.
#[derive(Debug, ClapArgs)]
pub(crate) struct Named {
    /// Name of the job; on a cluster also with its kind, such as `pytorchjob/mnist`
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) state: State,
}

/// Whether the command is about this machine or a cluster, and which.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Place {
    /// Use a cluster instead of this machine; the options below imply it
    #[arg(long)]
    pub(crate) cluster: bool,
    /// Namespace [default: the namespace of the context]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) server: Cluster,
    /// Called by `kubectl`, as its plugin.
    #[arg(skip)]
    pub(crate) plugin: bool,
}

impl Place {
    /// This machine.
    pub(crate) fn machine() -> Self {
        Self {
            cluster: false,
            namespace: None,
            server: Cluster {
                kubeconfig: None,
                context: None,
            },
            plugin: false,
        }
    }

    /// Whether the command is about a cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        let server = &self.server;
        self.cluster
            || self.plugin
            || self.namespace.is_some()
            || server.context.is_some()
            || server.kubeconfig.is_some()
    }
}

impl Command {
    /// Where the jobs of the command are, for commands that have any.
    fn place_mut(&mut self) -> Option<&mut Place> {
        match self {
            Self::Ps(args) => Some(&mut args.place),
            Self::Dashboard(args) => Some(&mut args.place),
            Self::Report(args) => Some(&mut args.place),
            Self::Status(args) => Some(&mut args.place),
            Self::Logs(args) => Some(&mut args.place),
            Self::Stacks(args) => Some(&mut args.place),
            Self::Profile(args) => Some(&mut args.place),
            Self::Exec(args) => Some(&mut args.place),
            Self::Debug(args) => Some(&mut args.place),
            Self::Explain(args) => Some(&mut args.place),
            Self::Doctor(args) => Some(&mut args.place),
            Self::Preflight(args) => Some(&mut args.place),
            Self::Suspend(args) => Some(&mut args.job.place),
            Self::Resume(args) => Some(&mut args.job.place),
            Self::Restart(args) => Some(&mut args.job.place),
            Self::Delete(args) => Some(&mut args.place),
            _ => None,
        }
    }
}

/// Which run of which job.
#[derive(Debug, ClapArgs)]
pub(crate) struct Which {
    /// Name of the job; on a cluster also with its kind, such as `pytorchjob/mnist`
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// Name of the run, as `ps --all` lists it [default: the last run]
    #[arg(
        long,
        value_name = "RUN",
        conflicts_with_all = ["cluster", "namespace", "context", "kubeconfig"]
    )]
    pub(crate) run: Option<String>,
}

/// Where runs are kept.
#[derive(Debug, ClapArgs)]
pub(crate) struct State {
    /// Folder of runs, logs and volumes
    #[arg(long, value_name = "DIR", default_value = ".trainyard")]
    pub(crate) state_dir: PathBuf,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Human-readable text
    Text,
    /// One object with `"version":1`
    Json,
}

/// Print every object that the operator would create for a job
///
/// Prints pods with their environment, services and config maps, exactly as the operator would create
/// them for the first attempt. Objects in the file that are not jobs, such as a `ConfigMap`, come first
/// and unchanged. Works offline and creates nothing.
///
/// For an invalid job, prints every finding to stderr and exits with code 2.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard render job.yaml
  trainyard render job.yaml --format json | jq '.items[].metadata.name'
  trainyard render --cluster-domain cluster.local tfjob.yaml")]
pub(crate) struct Render {
    /// Job file, YAML or JSON; `-` reads stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "yaml")]
    pub(crate) format: RenderFormat,
    /// DNS domain of the cluster, such as `cluster.local`
    ///
    /// Appended to the addresses in `TF_CONFIG` and to the search list of MPI workers. Overrides the
    /// environment variable `CUSTOM_CLUSTER_DOMAIN`, which the operator reads.
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) cluster_domain: Option<String>,
    /// Image of the agent, the same as the operator's `--agent-image`
    ///
    /// If set, the agent starts the ranks of an `MPIJob`, unless the job overrides it.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) agent_image: Option<String>,
    /// Network policies for pods with agent or preflight ports, the same as the operator's `--network-policy`
    #[arg(long, value_name = "MODE", default_value = "off")]
    pub(crate) network_policy: NetworkPolicy,
    /// Gang scheduler, the same as the operator's `--gang-scheduler-name`
    #[arg(long, value_name = "NAME")]
    pub(crate) gang_scheduler_name: Option<String>,
}

/// Output format of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RenderFormat {
    /// Documents separated by `---`
    Yaml,
    /// One object, `{"version":1,"items":[…]}`
    Json,
}

/// Print the completion script of a shell
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard completions bash > ~/.local/share/bash-completion/completions/trainyard
  trainyard completions zsh > ~/.zfunc/_trainyard
  trainyard completions fish > ~/.config/fish/completions/trainyard.fish")]
pub(crate) struct Completions {
    /// Shell to generate the script for
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page, or write the pages of all commands
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard man | man -l -
  trainyard man --out ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Folder for one page per command; created if missing
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// The cluster to connect to.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Cluster {
    /// Kubeconfig file [default: `KUBECONFIG`, then `~/.kube/config`, then the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Kubeconfig context to use
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// Print a generated page of the documentation
#[derive(Debug, ClapArgs)]
pub(crate) struct Reference {
    /// Page to print
    #[arg(value_name = "PAGE")]
    pub(crate) page: Page,
}

/// A generated page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Page {
    /// Every command and flag
    Cli,
    /// Every lint rule
    LintRules,
    /// Every label and rule of the doctor
    DoctorRules,
    /// Every check of a preflight
    PreflightChecks,
}

fn parse_role(name: &str) -> Result<Role, String> {
    let is_it = |role: &Role| role.name().eq_ignore_ascii_case(name);
    Role::ALL.into_iter().find(is_it).ok_or_else(|| {
        let names = Role::ALL.map(|role| format!("`{role}`"));
        format!(
            "unknown role `{name}`; expected one of {}",
            names.join(", ")
        )
    })
}

/// Parses a command line; the error also carries help and version texts.
///
/// When called as `kubectl-trainyard`, which is how `kubectl` runs its plugin `trainyard`, commands are about
/// the cluster.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    let mut words = words.into_iter().peekable();
    let plugin = words.peek().is_some_and(is_plugin);
    let mut definition = definition();
    if plugin {
        definition = definition.bin_name(PLUGIN_PROGRAM);
    }
    let mut matches = definition.try_get_matches_from(words)?;
    let mut args = Args::from_arg_matches_mut(&mut matches)?;
    if let Some(place) = args.command.place_mut() {
        place.plugin = plugin;
    }
    Ok(args)
}

/// How people call the plugin.
pub(crate) const PLUGIN_PROGRAM: &str = "kubectl trainyard";
/// The name of its file.
const PLUGIN_FILE: &str = "kubectl-trainyard";

fn is_plugin(word: &OsString) -> bool {
    let name = Path::new(word).file_stem();
    name.is_some_and(|name| name == PLUGIN_FILE)
}

/// The definition itself, from which help, completions and manual pages are made.
pub(crate) fn definition() -> clap::Command {
    Args::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        definition().debug_assert();
    }

    #[test]
    fn cluster_options_imply_cluster() {
        let cases: [(&[&str], bool); 7] = [
            (&["trainyard", "ps"], false),
            (&["trainyard", "ps", "--cluster"], true),
            (&["trainyard", "ps", "-n", "team"], true),
            (&["trainyard", "status", "j", "--context", "c"], true),
            (&["kubectl-trainyard", "ps"], true),
            (&["/usr/bin/kubectl-trainyard", "restart", "j"], true),
            (&["./trainyard", "delete", "j"], false),
        ];
        for (words, want) in cases {
            let mut args = parse(words.iter().map(OsString::from)).unwrap();
            let place = args.command.place_mut().expect("the command has a place");
            assert_eq!(place.is_cluster(), want, "{words:?}");
        }
    }
}
