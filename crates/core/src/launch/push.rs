//! How a pod is given an address to which its program reports progress, as Kubeflow Trainer gives it to pods of a `TrainJob`.
//!
//! Programs find it by three variables: the address, the file of a token that is good for this job's address only, and the file of the
//! authority to trust. The token is the pod's own, so that the receiver knows which pod sent a report. The authority travels in
//! an annotation of the pod: no other object and no further right is needed for it.
//!
//! Invariant: what the user set stays. A container that has one of the variables, or something mounted at that place, is left as it is.

use k8s_openapi::api::core::v1::{Container, VolumeMount};

use super::{
    LaunchedPod, env,
    operator_files::{AUTHORITY_FILE, TOKEN_FILE, operator_files},
};
use crate::spec::{Job, ProgressBy, annotation};

/// The port of the operator's Service to which progress is sent.
pub const PORT: u16 = 10_443;

const URL: &str = "KUBEFLOW_TRAINER_SERVER_URL";
const CA_CERT: &str = "KUBEFLOW_TRAINER_SERVER_CA_CERT";
const TOKEN: &str = "KUBEFLOW_TRAINER_SERVER_TOKEN";
const VOLUME: &str = "kubeflow-trainer-token";
const FOLDER: &str = "/var/run/secrets/kubeflow/trainer";

/// Where progress is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// Scheme, host and port.
    pub server: String,
    /// The authority of the server's certificate, as PEM.
    pub authority: String,
}

/// The path at which the progress of a job is taken.
pub fn path(namespace: &str, name: &str) -> String {
    format!("/apis/{}", audience(namespace, name))
}

/// The namespace and the name of the job in a path.
pub fn job_at(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix("/apis/trainer.kubeflow.org/v1alpha1/namespaces/")?;
    let (namespace, rest) = rest.split_once("/trainjobs/")?;
    let name = rest.strip_suffix("/status")?;
    let one = |text: &str| !text.is_empty() && !text.contains('/');
    (one(namespace) && one(name)).then_some((namespace, name))
}

/// The audience of a token that reports a job's progress.
pub fn audience(namespace: &str, name: &str) -> String {
    format!("trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status")
}

/// Gives the containers of `pod` the address to report to, where the job asks for it.
pub fn add(pod: &mut LaunchedPod, job: &Job, push: &Push) {
    if job.settings.progress != ProgressBy::Push {
        return;
    }
    let (spec, metadata) = match pod {
        LaunchedPod::Pod(pod) => (pod.spec.get_or_insert_default(), &mut pod.metadata),
        LaunchedPod::Job(job) => {
            let template = &mut job.spec.get_or_insert_default().template;
            let metadata = template.metadata.get_or_insert_default();
            (template.spec.get_or_insert_default(), metadata)
        }
    };
    let mut volumes = spec.volumes.iter().flatten();
    if volumes.any(|volume| volume.name == VOLUME) {
        return;
    }
    let (namespace, name) = (job.namespace.as_str(), job.name.as_str());
    let mut mounted = false;
    for container in &mut spec.containers {
        if is_taken(container) {
            continue;
        }
        mounted = true;
        let variables = [
            env::variable(URL, format!("{}{}", push.server, path(namespace, name))),
            env::variable(CA_CERT, format!("{FOLDER}/{AUTHORITY_FILE}")),
            env::variable(TOKEN, format!("{FOLDER}/{TOKEN_FILE}")),
        ];
        env::append(container, variables);
        container
            .volume_mounts
            .get_or_insert_default()
            .push(VolumeMount {
                name: VOLUME.to_owned(),
                mount_path: FOLDER.to_owned(),
                read_only: Some(true),
                ..VolumeMount::default()
            });
    }
    if !mounted {
        return;
    }
    let volumes = spec.volumes.get_or_insert_default();
    let audience = audience(namespace, name);
    volumes.push(operator_files(VOLUME, audience, annotation::PROGRESS_CA));
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::PROGRESS_CA.to_owned(), push.authority.clone());
}

fn is_taken(container: &Container) -> bool {
    let mut variables = container.env.iter().flatten();
    let mut mounts = container.volume_mounts.iter().flatten();
    variables.any(|variable| [URL, CA_CERT, TOKEN].contains(&variable.name.as_str()))
        || mounts.any(|mount| mount.mount_path.trim_end_matches('/') == FOLDER)
}
