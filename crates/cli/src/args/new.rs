//! The arguments of `new`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::{Format, lint::LintProfile};

/// Write a commented job file from a template
///
/// On a terminal it asks for what is not given, with the default in brackets; elsewhere, and with
/// `--yes`, the defaults are taken. Every comment of the file says which failure its field prevents. The
/// file has no lint error in its profile: answers that would make one are refused.
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
    /// Which template, or which version of it, such as `pytorch-ddp@1`
    #[arg(value_name = "TEMPLATE", conflicts_with = "list")]
    pub(crate) template: Option<String>,
    /// The same as a flag
    #[arg(
        long = "template",
        value_name = "TEMPLATE",
        conflicts_with_all = ["list", "template"]
    )]
    pub(crate) template_flag: Option<String>,
    /// List the templates and do nothing else
    #[arg(long)]
    pub(crate) list: bool,
    /// What the job is for
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<LintProfile>,
    /// File to write; `-` is stdout [default: the name of the job and `.yaml`]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file where it is there already
    #[arg(long)]
    pub(crate) force: bool,
    /// Ask nothing, also on a terminal
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// How to write the list
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

/// What a file is filled with.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Answers")]
pub(crate) struct NewAnswers {
    /// Name of the job [default: that of the template]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Image of every pod
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// What every rank runs, as one line; no shell reads it
    #[arg(long, value_name = "LINE")]
    pub(crate) command: Option<String>,
    /// Pods that train, the one that leads among them
    #[arg(long, value_name = "COUNT")]
    pub(crate) workers: Option<String>,
    /// GPUs of each pod
    #[arg(long, value_name = "COUNT")]
    pub(crate) gpus: Option<String>,
    /// Fewest pods with which an elastic job goes on
    #[arg(long, value_name = "COUNT")]
    pub(crate) min_workers: Option<String>,
    /// Ranks along each axis of `megatron-3d`, such as `tp=8,pp=4`
    #[arg(long, value_name = "AXES")]
    pub(crate) parallelism: Option<String>,
    /// Namespace of the job; else that of whoever applies the file
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Storage class of the claim for checkpoints, in production; else the default class
    #[arg(long, value_name = "NAME")]
    pub(crate) storage_class: Option<String>,
    /// Size of that claim
    #[arg(long, value_name = "SIZE")]
    pub(crate) storage: Option<String>,
}
