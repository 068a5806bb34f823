//! The command line as it is written: stage one of two.
//!
//! Parsing only validates. What the words mean together with the environment and the terminal is
//! worked out in [`crate::session`]; what they do is in [`crate::command`].

use std::{ffi::OsString, path::PathBuf};

use clap::{Args as ClapArgs, CommandFactory as _, Parser, Subcommand, ValueEnum};

/// Everything a command line can say.
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
  trainyard lint job.yaml                what would go wrong, before anything is started
  trainyard render job.yaml              every object the job becomes
  kubectl get pytorchjob j -o yaml | trainyard render -

Exit codes:
  0  done
  1  the thing asked about failed (for `lint`: a finding of severity error)
  2  could not do it (usage, file, environment)",
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

/// Flags that every command takes.
#[derive(Clone, Copy, Debug, ClapArgs)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// When to use colour
    ///
    /// `auto` uses it on a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`. Nothing is said
    /// by colour alone.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// Say errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say what is being done
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

/// When colour is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal
    Auto,
    /// Also into files and pipes
    Always,
    /// Not at all
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Render(Render),
    Lint(Lint),
    Completions(Completions),
    Man(Man),
    #[command(hide = true)]
    Reference(Reference),
}

/// Print every object a job becomes
///
/// Pods with their environment, services and config, exactly as the operator would create them
/// for the first attempt. Objects in the file that are not jobs, such as a `ConfigMap`, come first and
/// unchanged. Nothing is contacted and nothing is created.
///
/// A file that is not a valid job is refused with every finding on stderr and exit code 2.
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
    /// How to write the objects
    #[arg(long, value_name = "FORMAT", default_value = "yaml")]
    pub(crate) format: RenderFormat,
    /// DNS domain of the cluster, such as `cluster.local`
    ///
    /// Appended to the addresses in `TF_CONFIG` and to the search list of MPI workers. Overrides the
    /// variable `CUSTOM_CLUSTER_DOMAIN`, from which the operator takes it.
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) cluster_domain: Option<String>,
}

/// How objects are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RenderFormat {
    /// Documents separated by `---`
    Yaml,
    /// One object, `{"version":1,"items":[…]}`
    Json,
}

/// Say what is wrong with job files
///
/// Prints every finding of every file at once, each with its code, its place and what to do. Findings
/// go to stdout, the summary to stderr.
///
/// Exit code 0: nothing, or only warnings. 1: at least one error. 2: at least one file could not be
/// read as a job file; the others are checked all the same.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard lint job.yaml
  trainyard lint jobs/*.yaml --format json
  trainyard lint --explain TY101")]
pub(crate) struct Lint {
    /// Job files, YAML or JSON; `-` reads stdin
    #[arg(value_name = "FILE", required_unless_present = "explain")]
    pub(crate) files: Vec<PathBuf>,
    /// How to write the findings
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: LintFormat,
    /// Print the page of one rule and do nothing else
    #[arg(long, value_name = "CODE", conflicts_with = "files")]
    pub(crate) explain: Option<String>,
}

/// How findings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LintFormat {
    /// With the source line underlined
    Text,
    /// One object, `{"version":1,"findings":[…],"summary":{…}}`
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
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page, or write all of them
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard man | man -l -
  trainyard man --out ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Folder that gets one page per command; made where it is missing
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Print a generated page of the documentation
#[derive(Debug, ClapArgs)]
pub(crate) struct Reference {
    /// Which page
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
}

/// Reads a command line; the refusal holds help and version too.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    Args::try_parse_from(words)
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
}
