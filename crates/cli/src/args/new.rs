//! The arguments of `new`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::{Format, lint::LintProfile};

/// Write a commented job file from a template
///
/// On a terminal, asks for each value that you did not pass, with its default in brackets. Otherwise, and
/// with `--yes`, uses the defaults. Each comment in the file explains which failure its field prevents. The
/// file passes lint in its profile: answers that would cause a lint error are refused.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard new
  trainyard new --list
  trainyard new --template quickstart -o job.yaml && trainyard run job.yaml
  trainyard new pytorch-ddp --name mnist --command 'torchrun train.py'
  trainyard new pytorch-fsdp@1 --profile production --image registry.example.com/team/llm:1.4.0 \\
      --workers 16 --gpus 8 --storage-class shared -o llm.yaml
  trainyard new jax --yes -o - | trainyard render -")]
pub(crate) struct New {
    /// Template, optionally with a version, such as `pytorch-ddp@1`
    #[arg(value_name = "TEMPLATE", conflicts_with = "list")]
    pub(crate) template: Option<String>,
    /// Template, the same as the argument
    #[arg(
        long = "template",
        value_name = "TEMPLATE",
        conflicts_with_all = ["list", "template"]
    )]
    pub(crate) template_flag: Option<String>,
    /// List the templates and exit
    #[arg(long)]
    pub(crate) list: bool,
    /// Purpose of the job
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<LintProfile>,
    /// File to write; `-` writes to stdout [default: the job's name plus `.yaml`]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Ask no questions, even on a terminal
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Output format of the list
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        conflicts_with_all = ["template", "template_flag"]
    )]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) answers: NewAnswers,
}

/// Values for the template.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Answers")]
pub(crate) struct NewAnswers {
    /// Name of the job [default: the template's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Image of every pod
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Command that every rank runs, as one line; it is not run through a shell
    #[arg(long, value_name = "LINE")]
    pub(crate) command: Option<String>,
    /// Number of training pods, including the master
    #[arg(long, value_name = "COUNT")]
    pub(crate) workers: Option<String>,
    /// GPUs per pod
    #[arg(long, value_name = "COUNT")]
    pub(crate) gpus: Option<String>,
    /// Minimum number of pods of an elastic job
    #[arg(long, value_name = "COUNT")]
    pub(crate) min_workers: Option<String>,
    /// Ranks along each axis of `megatron-3d`, such as `tp=8,pp=4`
    #[arg(long, value_name = "AXES")]
    pub(crate) parallelism: Option<String>,
    /// Namespace of the job [default: not set, so `kubectl apply` decides]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Storage class of the checkpoint claim, in the production profile [default: the default class]
    #[arg(long, value_name = "NAME")]
    pub(crate) storage_class: Option<String>,
    /// Size of the checkpoint claim
    #[arg(long, value_name = "SIZE")]
    pub(crate) storage: Option<String>,
}
