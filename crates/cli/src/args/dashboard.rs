//! The arguments of `dashboard`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args as ClapArgs, ValueEnum};

use super::{Format, LogFormat, Place, State};

/// Show the runs of this machine, or the jobs of a cluster, as pages in a browser
///
/// Serves them until Ctrl-C, on the loopback address and a free port, and prints the URL. The URL holds a token, a new one at each start:
/// whoever has it can read job files and logs of this folder, or what your kubeconfig may read of the cluster. The pages change nothing.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard dashboard                      serve the runs below ./.trainyard
  trainyard dashboard --open               and show them in the browser of this desktop
  trainyard dashboard --cluster -n team-a  the jobs of a namespace, with the rights of your kubeconfig
  trainyard dashboard -A --context prod    the jobs of all namespaces of a cluster
  trainyard dashboard --bind 127.0.0.1:8265   on a port of your choice, for `ssh -L 8265:127.0.0.1:8265 HOST`
  trainyard dashboard --bind 0.0.0.0:8265 --token-file token.txt --host gpu-01.example.com:8265
  trainyard dashboard --in-cluster --bind 0.0.0.0:8265   as a pod, for everybody: the chart does this")]
pub(crate) struct Dashboard {
    /// Address and port to listen at; port 0 is a free one
    ///
    /// Other addresses than those of the loopback interface need `--token-file`: then the token is known before the start and shown nowhere.
    /// The connection is not encrypted; put a proxy with TLS in front of it where others share the network.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub(crate) bind: SocketAddr,
    /// File with the token: one line of at least 32 characters, readable by its owner alone
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Name under which browsers reach it, with the port where it is not 80 or 443; repeat it for several
    ///
    /// Requests for other names than these and the loopback ones are refused, so that no foreign page can reach the data through a name of its own.
    #[arg(long, value_name = "NAME[:PORT]")]
    pub(crate) host: Vec<String>,
    /// Path under which a proxy passes requests on without removing it, such as `/ml/yard`
    #[arg(long, value_name = "PATH")]
    pub(crate) base_path: Option<String>,
    /// Open the page in the browser of this desktop
    ///
    /// The browser gets a code that is valid once and for 60 s, since other users can see the arguments of its process.
    #[arg(long, conflicts_with = "format")]
    pub(crate) open: bool,
    /// Read the assets of the page from a folder, for work on the page itself
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) assets: Option<PathBuf>,
    /// Show the jobs of all namespaces; implies `--cluster`
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    #[command(flatten)]
    pub(crate) state: State,
    /// How to print where the pages are: the URL on stderr, or one object on stdout
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) installed: Installed,
}

/// How it runs in a pod of the cluster.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "In a cluster")]
pub(crate) struct Installed {
    /// Run in a pod of the cluster, for everybody who may see jobs there
    ///
    /// Shows all namespaces, or the one of `--namespace`, to each user as far as the API server says that he may see them. The chart installs it with
    /// `dashboard.enabled`.
    #[arg(long, conflicts_with_all = ["token_file", "open", "cluster", "all_namespaces"])]
    pub(crate) in_cluster: bool,
    /// Who is answered
    #[arg(
        long,
        value_name = "WAY",
        default_value = "token",
        requires = "in_cluster"
    )]
    pub(crate) auth: Auth,
    /// Header in which a proxy in front puts the user's token, such as `X-Forwarded-Access-Token`; beside `Authorization`
    ///
    /// The token is reviewed like every other. Name a header only where a proxy sets or removes it in every request.
    #[arg(long, value_name = "NAME", requires = "in_cluster")]
    pub(crate) trusted_proxy_header: Option<String>,
    /// Folder with `tls.crt` and `tls.key`, read again when they change; without it connections are not encrypted
    #[arg(long, value_name = "DIR", requires = "in_cluster")]
    pub(crate) tls_dir: Option<PathBuf>,
    /// Address and port of `/healthz` and `/readyz`, which hold no data
    #[arg(long, value_name = "ADDRESS:PORT", requires = "in_cluster")]
    pub(crate) health_bind: Option<SocketAddr>,
    /// Format of the logs on stderr
    #[arg(
        long,
        value_name = "FORM",
        default_value = "text",
        requires = "in_cluster"
    )]
    pub(crate) log_format: LogFormat,
}

/// Who is answered in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Auth {
    /// Whoever has a bearer token that the API server accepts; he sees what he may list there
    Token,
    /// Whoever can forward a port to the pod, which listens at its loopback address; he sees what its account sees
    PortForward,
}
