//! The arguments of `lint`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use trainyard_core::lint::Profile;

use super::Cluster;

/// Say what is wrong with job files, and what will go wrong
///
/// Prints every finding of every file at once, each with its code, its place and what to do. All files
/// that are named together are judged together: a claim, a network attachment or a config map in one
/// of them is known to the jobs of the others. Findings go to stdout, the summary to stderr.
///
/// With `--cluster` the jobs are held against a cluster, too: whether it has the nodes, devices, claims, networks
/// and classes that they name. Only lists are read, and nothing is created.
///
/// A finding that is meant to be there is allowed by an annotation on its object, with the reason:
/// `trainyard.dev/lint-allow: "TY402: all pods are on one node"`.
///
/// Exit code 0: nothing, or only warnings. 1: at least one error. 2: at least one file could not be
/// read as a job file; the others are checked all the same.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard lint job.yaml
  trainyard lint jobs/ --profile production     every .yaml, .yml and .json below the folder
  helm template chart | trainyard lint -
  trainyard lint job.yaml --cluster -n team-a
  trainyard lint job.yaml --fix
  trainyard lint jobs/ --format sarif > findings.sarif
  trainyard lint --explain TY101")]
pub(crate) struct Lint {
    /// Job files, YAML or JSON, and folders of them; `-` reads stdin
    #[arg(value_name = "PATH", required_unless_present = "explain")]
    pub(crate) files: Vec<PathBuf>,
    /// What the jobs are for; decides how bad a finding is
    ///
    /// Without it the annotation `trainyard.dev/profile` of each job decides, and without that a job is a
    /// demo.
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<LintProfile>,
    /// Apply the fixes that cannot change what was meant, to the files themselves
    ///
    /// Comments and order are kept. What is left is told as without the option.
    #[arg(long)]
    pub(crate) fix: bool,
    /// How to write the findings
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: LintFormat,
    /// Print the page of one rule and do nothing else
    #[arg(long, value_name = "CODE", conflicts_with = "files")]
    pub(crate) explain: Option<String>,
    #[command(flatten)]
    pub(crate) against: Against,
}

/// The cluster that jobs are held against.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Against {
    /// Look for what the jobs need in a cluster, too; the options below imply it
    #[arg(long)]
    cluster: bool,
    /// Namespace of jobs that name none; else that of the context
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) server: Cluster,
}

impl Against {
    /// Whether a cluster is meant.
    pub(crate) fn is_cluster(&self) -> bool {
        let server = &self.server;
        self.cluster
            || self.namespace.is_some()
            || server.context.is_some()
            || server.kubeconfig.is_some()
    }
}

/// What jobs are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LintProfile {
    /// To be tried out
    Demo,
    /// To train for days beside the jobs of others
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

/// How findings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LintFormat {
    /// With the source line underlined
    Text,
    /// One object, `{"version":1,"findings":[…],"summary":{…}}`
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// Annotations of a GitHub workflow
    Github,
}
