//! What is shown: the runs of this machine, or the jobs of a cluster.

use std::{path::Path, sync::Arc};

use anyhow::Context as _;
use jiff::Timestamp;
use trainyard_tui::Source;
use trainyard_web::{Asker, Document, Problem, Question};

use crate::{
    args::Top,
    command::dashboard::{
        cluster::{Cluster, Mode, Watching},
        local::{Local, Watcher},
    },
    failure::Failure,
};

/// Whoever answers, and whoever notices changes.
pub(super) enum Shown {
    Machine(Box<Local>, Watcher),
    Cluster(Arc<Cluster>, Watching),
}

impl Shown {
    pub(super) fn open(args: &Top) -> Result<Self, Failure> {
        if !args.all_namespaces && !args.place.is_cluster() {
            return Self::machine(&args.state.state_dir);
        }
        let cluster = Arc::new(Cluster::connect(
            &args.place,
            args.all_namespaces,
            Mode::Cluster,
        )?);
        let watching = Watching::start(Arc::clone(&cluster));
        let watching = watching.context("cannot start to watch the cluster")?;
        Ok(Self::Cluster(cluster, watching))
    }

    pub(super) fn machine(root: &Path) -> Result<Self, Failure> {
        let local = Box::new(Local::open(root)?);
        Ok(Self::Machine(local, Watcher::open(root)?))
    }

    /// What it is, in words.
    pub(super) fn source(&self, args: &Top) -> Source {
        match self {
            Self::Machine(..) => Source {
                name: format!("runs below {}", args.state.state_dir.display()),
                no_jobs: "no runs here yet; `trainyard run job.yaml` starts one".to_owned(),
            },
            Self::Cluster(cluster, _) => Source {
                name: cluster.words(),
                no_jobs: "no job is here; `kubectl apply --filename job.yaml` creates one"
                    .to_owned(),
            },
        }
    }

    /// Answers one question. It may call the API server.
    pub(super) fn answer(&self, question: &Question, now: Timestamp) -> Result<Document, Problem> {
        match self {
            Self::Machine(local, _) => local.answer(question, now),
            Self::Cluster(cluster, _) => cluster.answer(question, &Asker::Owner, now),
        }
    }

    /// Whether anything has changed since the last call.
    pub(super) fn has_changed(&mut self, now: Timestamp) -> bool {
        match self {
            Self::Machine(_, watcher) => !watcher.poll(now).is_empty(),
            Self::Cluster(_, watching) => watching.observe(now),
        }
    }
}
