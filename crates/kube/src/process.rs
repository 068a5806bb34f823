//! The operator as a process: its runtime, its logs, its signals.

use std::{io, path::PathBuf};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tracing::Level;
use tracing_subscriber::fmt;

use crate::{Operator, Options};

/// How an operator is run.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// What it is told.
    pub options: Options,
    /// The kubeconfig to use; the usual places are looked at where there is none.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    pub context: Option<String>,
    /// How its logs are written.
    pub logs: Logs,
}

/// How logs are written, to stderr.
#[derive(Clone, Copy, Debug, Default)]
pub struct Logs {
    /// One JSON object a line instead of text.
    pub json: bool,
    /// The least important that is written.
    pub level: Importance,
}

/// How important a log line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Importance {
    /// What someone should look at.
    Warnings,
    /// What was done.
    #[default]
    Done,
    /// What was looked at, too.
    Details,
}

/// Why an operator could not be run.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// No cluster is named anywhere.
    #[error("cannot tell which cluster: {0}")]
    NoCluster(String),
    /// The cluster's name or its credentials are of no use.
    #[error("cannot use the cluster's configuration: {0}")]
    Client(#[source] kube::Error),
    /// The runtime could not be started.
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
}

impl Process {
    /// Runs the operator until SIGTERM or SIGINT.
    pub fn run(self) -> Result<(), ProcessError> {
        start_logs(self.logs);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ProcessError::Runtime)?;
        runtime.block_on(async {
            let client = client(self.kubeconfig, self.context).await?;
            let stop = stop().map_err(ProcessError::Runtime)?;
            Operator::new(client, self.options).run(stop).await;
            Ok(())
        })
    }
}

/// A client of the cluster that the kubeconfig, its usual places, or the pod that this runs in name.
pub async fn client(
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
) -> Result<Client, ProcessError> {
    let no_cluster = |error: &dyn std::fmt::Display| ProcessError::NoCluster(error.to_string());
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(&path).map_err(|error| no_cluster(&error))?;
            Config::from_custom_kubeconfig(file, &options)
                .await
                .map_err(|error| no_cluster(&error))?
        }
        None if options.context.is_some() => Config::from_kubeconfig(&options)
            .await
            .map_err(|error| no_cluster(&error))?,
        None => Config::infer().await.map_err(|error| no_cluster(&error))?,
    };
    // Compressing on the way costs more than it saves next to the API server.
    config.disable_compression = true;
    Client::try_from(config).map_err(ProcessError::Client)
}

/// Ready when the process is asked to end.
fn stop() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn start_logs(logs: Logs) {
    let level = match logs.level {
        Importance::Warnings => Level::WARN,
        Importance::Done => Level::INFO,
        Importance::Details => Level::DEBUG,
    };
    let builder = fmt().with_max_level(level).with_writer(io::stderr);
    // A process that already has a subscriber (a test) keeps it.
    let set = if logs.json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.with_ansi(false).try_init()
    };
    drop(set);
}
