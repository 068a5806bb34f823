//! What the two versions of `MPIJob` have in common: where the launcher finds its hosts.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        ConfigMap, ConfigMapVolumeSource, Container, EnvVar, KeyToPath, PodSpec, Volume,
        VolumeMount,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{env::variable, pod};
use crate::{
    job::SharedInputs,
    spec::{Job, Role, Slot},
};

/// Where the config volume is mounted.
pub(super) const CONFIG_PATH: &str = "/etc/mpi";
/// The file, in the config volume, that lists the hosts of the job.
pub(super) const HOSTFILE: &str = "hostfile";
/// The script, in the config volume, that lists the hosts that run now.
pub(super) const DISCOVER_HOSTS: &str = "discover_hosts.sh";
/// Mode of a file that is read.
pub(super) const READ: i32 = 0o444;
/// Mode of a file that is run.
pub(super) const RUN: i32 = 0o555;

/// Metadata of an object of the job that is not a pod.
pub(super) fn metadata(job: &Job, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(job.namespace.as_str().to_owned()),
        labels: Some([("app".to_owned(), job.name.as_str().to_owned())].into()),
        owner_references: pod::owners(job),
        ..ObjectMeta::default()
    }
}

/// The `ConfigMap` with `files`.
pub(super) fn config_map(job: &Job, files: BTreeMap<String, String>) -> ConfigMap {
    ConfigMap {
        metadata: metadata(job, config_name(job)),
        data: Some(files),
        ..ConfigMap::default()
    }
}

/// Mounts `files` of the `ConfigMap`, with their modes, into the first container.
pub(super) fn mount_config(job: &Job, spec: &mut PodSpec, files: &[(&str, i32)]) {
    let items = files
        .iter()
        .map(|(name, mode)| KeyToPath {
            key: (*name).to_owned(),
            path: (*name).to_owned(),
            mode: Some(*mode),
            ..KeyToPath::default()
        })
        .collect();
    spec.volumes.get_or_insert_default().push(Volume {
        name: CONFIG_VOLUME.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: config_name(job),
            items: Some(items),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    });
    if let Some(container) = spec.containers.first_mut() {
        add_mount(container, config_mount());
    }
}

/// The mount of the config volume.
pub(super) fn config_mount() -> VolumeMount {
    mount(CONFIG_VOLUME, CONFIG_PATH)
}

/// The mount of `volume` at `path`.
pub(super) fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    }
}

/// Appends `mount` to `container`.
pub(super) fn add_mount(container: &mut Container, mount: VolumeMount) {
    container.volume_mounts.get_or_insert_default().push(mount);
}

/// Keeps GPUs away from a launcher that asked for none, also where the runtime would show it all.
pub(super) fn hide_gpus() -> [EnvVar; 2] {
    ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"].map(|name| variable(name, ""))
}

/// The name of the launcher.
pub(super) fn launcher(job: &Job) -> String {
    job.pod_name(Slot::new(Role::Launcher, 0))
}

/// The names of all workers, by index.
pub(super) fn workers(job: &Job, inputs: &SharedInputs) -> Vec<String> {
    let count = inputs.replicas.get(&Role::Worker).copied().unwrap_or(0);
    (0..count)
        .map(|index| job.pod_name(Slot::new(Role::Worker, index)))
        .collect()
}

/// The names of the workers that run, sorted as text: `j-worker-10` comes before `j-worker-2`.
pub(super) fn running_workers(job: &Job, inputs: &SharedInputs) -> Vec<String> {
    let mut names: Vec<String> = inputs
        .running_workers
        .iter()
        .map(|index| job.pod_name(Slot::new(Role::Worker, index)))
        .collect();
    names.sort_unstable();
    names
}

const CONFIG_VOLUME: &str = "mpi-job-config";

fn config_name(job: &Job) -> String {
    format!("{}-config", job.name)
}
