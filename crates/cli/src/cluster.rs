//! The cluster side of the commands: connects to the cluster, finds the job, and reads its report.

mod kubectl;
mod report;

use trainyard_core::spec::{self, Slot};
use trainyard_kube::{
    ProcessError,
    look::{self, JobSeen, Look, LookError, Words},
};

pub(crate) use self::{
    kubectl::RankPods,
    report::{report, row},
};
use crate::{
    args::{PLUGIN_PROGRAM, Place},
    failure::Failure,
};

/// A cluster and a namespace of it.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    pub(crate) look: Look,
    pub(crate) namespace: String,
    place: &'a Place,
}

/// Connects to the cluster that the arguments name.
pub(crate) fn connect(place: &Place) -> Result<Site<'_>, Failure> {
    let server = place.server.clone();
    let look = Look::connect(server.kubeconfig, server.context).map_err(refused)?;
    let namespace = place.namespace.as_deref().unwrap_or(look.namespace());
    Ok(Site {
        namespace: namespace.to_owned(),
        look,
        place,
    })
}

/// Does `work` with the connection of the call before, where there is one. A connection with which it failed is not used again.
pub(crate) fn connected<'a, T>(
    site: &mut Option<Site<'a>>,
    place: &'a Place,
    work: impl FnOnce(&Site<'a>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let used = match site.take() {
        Some(site) => site,
        None => connect(place)?,
    };
    let done = work(&used)?;
    *site = Some(used);
    Ok(done)
}

impl Site<'_> {
    /// The job that `word` means: `name`, or `kind/name`.
    pub(crate) fn find(&self, word: &str) -> Result<JobSeen, Failure> {
        let (kind, name) = match word.split_once('/') {
            Some((kind, name)) => (Some(kind), name),
            None => (None, word),
        };
        if let Some(kind) = kind
            && !look::is_kind(kind)
        {
            return Err(Failure::new(format!("unknown job kind `{kind}`"))
                .hint("write it as `pytorchjob/mnist`, or only `mnist`"));
        }
        let mut found = self
            .look
            .called(&self.namespace, name, kind)
            .map_err(refused)?;
        match (found.pop(), found.as_slice()) {
            (Some(job), []) => Ok(job),
            (None, _) => Err(self.unknown(name, kind)),
            (Some(last), others) => {
                let names: Vec<String> = others
                    .iter()
                    .chain([&last])
                    .map(|job| format!("`{}`", job.resource()))
                    .collect();
                Err(Failure::new(format!(
                    "several jobs are called `{name}`: {}",
                    names.join(", ")
                ))
                .hint("add the kind, such as `pytorchjob/mnist`"))
            }
        }
    }

    /// Why no job of that name exists here, with a suggestion.
    fn unknown(&self, name: &str, kind: Option<&str>) -> Failure {
        let what = kind.map_or("job".to_owned(), str::to_lowercase);
        let failure = Failure::absent(format!(
            "no {what} `{name}` in namespace `{}`",
            self.namespace
        ));
        let jobs = match self.look.jobs(Some(&self.namespace)) {
            Ok(jobs) => jobs,
            Err(LookError::NoKinds) => return refused(LookError::NoKinds),
            Err(_) => Vec::new(),
        };
        let known: Vec<&str> = jobs.iter().map(|job| &*job.key.name).collect();
        if let Some(meant) = spec::nearest(name, known.iter().copied()) {
            return failure.hint(format!("did you mean `{meant}`?"));
        }
        // Without permission to list all namespaces there is no such hint.
        let everywhere = self.look.jobs(None).unwrap_or_default();
        let elsewhere = everywhere.iter().find(|job| &*job.key.name == name);
        match elsewhere {
            Some(job) => failure.hint(format!(
                "a job of that name is in namespace `{0}`: add `-n {0}`",
                job.key.namespace
            )),
            None => failure.hint(format!(
                "`{} ps{}` lists them",
                self.program(),
                self.flags()
            )),
        }
    }

    /// How this program is called.
    pub(crate) fn program(&self) -> &'static str {
        if self.place.plugin {
            PLUGIN_PROGRAM
        } else {
            "trainyard"
        }
    }

    /// The flags that mean this cluster and namespace, each with a space before it.
    pub(crate) fn flags(&self) -> String {
        flags(self.place, &self.namespace)
    }

    /// A command of this program for the job that `word` means.
    pub(crate) fn command(&self, command: &str, word: &str) -> String {
        format!("{} {command} {word}{}", self.program(), self.flags())
    }

    /// How commands for the job that `word` means are written.
    pub(crate) fn words(&self, word: &str) -> Words {
        Words {
            program: self.program().to_owned(),
            handle: format!("{word}{}", self.flags()),
        }
    }
}

/// The flags that mean the cluster of `place` and a namespace of it, each with a space before it.
pub(crate) fn flags(place: &Place, namespace: &str) -> String {
    let mut flags = String::new();
    if !place.plugin {
        flags.push_str(" --cluster");
    }
    if let Some(context) = &place.server.context {
        flags = format!("{flags} --context {context}");
    }
    if let Some(kubeconfig) = &place.server.kubeconfig {
        flags = format!("{flags} --kubeconfig {}", kubeconfig.display());
    }
    format!("{flags} -n {namespace}")
}

/// The slot of a pod of the job, which may be gone.
pub(crate) fn slot_of_pod(job: &JobSeen, pod: &str) -> Option<Slot> {
    let job = job.job.as_ref()?;
    job.slots().find(|slot| job.pod_name(*slot) == pod)
}

/// Turns an error of the cluster into a failure with a hint.
pub(crate) fn refused(error: LookError) -> Failure {
    let hint = match &error {
        LookError::Connect(ProcessError::NoCluster(_)) => {
            "name a kubeconfig with `--kubeconfig FILE` or the environment variable `KUBECONFIG`"
        }
        LookError::Connect(_) => "check the server and the credentials in the kubeconfig",
        LookError::Runtime(_) => "check the limits of this user with `ulimit -a`",
        LookError::NoKinds => {
            "install the CRDs first: `kubectl apply --server-side -k deploy/crds`"
        }
        LookError::Late { .. } => "check that the API server is up: `kubectl get --raw /readyz`",
        LookError::TooLong { .. } => "wait longer with `--timeout`",
        LookError::TooMany { .. } => "name one namespace with `--namespace`",
        LookError::Call { code: 401, .. } => "log in to the cluster again",
        LookError::Call { code: 403, .. } => "ask your cluster administrator for this permission",
        LookError::Call { code: 409, .. } => "the job has changed meanwhile; try again",
        LookError::Unreachable { .. } => {
            "check that the cluster is up and that the kubeconfig names its address: `kubectl cluster-info`"
        }
        LookError::Call { code: 0, .. } => "check the server in the kubeconfig and the network",
        LookError::Call { .. } | LookError::BadFabric { .. } => {
            return Failure::from(anyhow::Error::new(error));
        }
    };
    Failure::from(anyhow::Error::new(error)).hint(hint)
}
