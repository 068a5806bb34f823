//! The arguments of `lint`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use trainyard_core::lint::Profile;

use super::Cluster;

/// Find mistakes in job files before they run
///
/// Prints every finding of every file, each with its code, its position and a fix. Files passed together are
/// checked together: a claim, a network attachment or a config map in one file is known to the jobs in the
/// others. Prints findings to stdout and the summary to stderr.
///
/// With `--cluster`, also checks that the cluster has the nodes, devices, claims, networks and classes that the
/// jobs refer to. It only lists objects and creates nothing.
///
/// To allow a finding, annotate its object with the code and the reason:
/// `trainyard.dev/lint-allow: "TY402: all pods are on one node"`.
///
/// Exit code 0: no findings, or only warnings. 1: at least one error. 2: at least one file could not be
/// read as a job file; the other files are still checked.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard lint job.yaml
  trainyard lint jobs/ --profile production     every .yaml, .yml and .json below the folder
  helm template chart | trainyard lint -
  trainyard lint job.yaml --cluster -n team-a
  trainyard lint job.yaml --fix
  trainyard lint jobs/ --format sarif > findings.sarif
  trainyard lint --list
  trainyard lint --explain 401")]
pub(crate) struct Lint {
    /// Job files, YAML or JSON, or folders of them; `-` reads stdin
    #[arg(value_name = "PATH", required_unless_present_any = ["explain", "list"])]
    pub(crate) files: Vec<PathBuf>,
    /// Purpose of the jobs; sets the severity of findings
    ///
    /// Default: the annotation `trainyard.dev/profile` of each job, or else `demo`.
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<LintProfile>,
    /// Apply the safe fixes to the files
    ///
    /// Keeps comments and order. Prints the remaining findings as usual.
    #[arg(long)]
    pub(crate) fix: bool,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: LintFormat,
    /// Print the documentation of one rule, such as `TY401` or `401`, and exit
    #[arg(long, value_name = "CODE", conflicts_with = "files")]
    pub(crate) explain: Option<String>,
    /// Print all rules with their severities and titles, and exit
    ///
    /// `--profile` leaves out the rules that the profile does not check.
    #[arg(long, conflicts_with_all = ["files", "explain", "fix"])]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) against: Against,
}

/// The cluster that jobs are checked against.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Against {
    /// Also check the jobs against a cluster; the options below imply it
    #[arg(long)]
    cluster: bool,
    /// Namespace of jobs that set none [default: the namespace of the context]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) server: Cluster,
}

impl Against {
    /// Whether jobs are checked against a cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        let server = &self.server;
        self.cluster
            || self.namespace.is_some()
            || server.context.is_some()
            || server.kubeconfig.is_some()
    }
}

/// Purpose of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LintProfile {
    /// Trying things out
    Demo,
    /// Training for days on a shared cluster
    Production,
}

impl From<LintProfile> for Profile {
    fn from(profile: LintProfile) -> Self {
        match profile {
            LintProfile::Demo => Self::Demo,
            LintProfile::Production => Self::Production,
        }
    }
}

/// Output format of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LintFormat {
    /// Text with the source line underlined
    Text,
    /// One object, `{"version":1,"findings":[…],"summary":{…}}`
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// GitHub Actions annotations
    Github,
}
