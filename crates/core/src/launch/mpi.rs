//! What the two versions of `MPIJob` have in common: how the launcher enters its workers, and where
//! it finds them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        ConfigMap, ConfigMapVolumeSource, Container, EnvVar, KeyToPath, PodDNSConfig, PodSpec,
        Service, ServiceSpec, Volume, VolumeMount,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    Cluster, LaunchError,
    agent::{Agent, is_sshd},
    env::variable,
    pod::{self, label},
};
use crate::{
    job::SharedInputs,
    spec::{Compat, Framework, Job, Kind, MpiTransport, Role, Slot},
};

/// The volume of the hostfile and the scripts.
const CONFIG_VOLUME: &str = "mpi-job-config";
/// The volume that brings `kubectl` to a launcher of `kubeflow.org/v1`.
pub(super) const KUBECTL_VOLUME: &str = "mpi-job-kubectl";
/// The volume of the key pair of a job of `kubeflow.org/v2beta1`.
pub(super) const SSH_VOLUME: &str = "ssh-auth";
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

/// What stands in place of keys that are not made yet.
pub(super) const PLACEHOLDER: &str = "(made when the job is launched)";

/// How the launcher of `job` enters its workers; nothing where it is not an `MPIJob`.
///
/// By the agent, unless the job says otherwise, the cluster has no image of it, or the job's own
/// commands are written for the transport of its kind's old operator.
pub fn transport(job: &Job, cluster: &Cluster) -> Result<Option<MpiTransport>, LaunchError> {
    let Some(before) = MpiTransport::before(job.kind) else {
        return Ok(None);
    };
    let has_image = cluster.agent_image().is_some();
    let transport = match job.settings.mpi_transport {
        Some(MpiTransport::Agent) if !has_image => return Err(LaunchError::NoAgentImage),
        Some(stated) => stated,
        None if has_image && !needs(job, before) => MpiTransport::Agent,
        None => before,
    };
    match transport {
        MpiTransport::Kubectl if cluster.launcher_rights => {}
        MpiTransport::Kubectl if has_image => return Err(LaunchError::NoLauncherRights),
        MpiTransport::Kubectl => return Err(LaunchError::NoAgentNorRights),
        MpiTransport::Agent | MpiTransport::Ssh => {}
    }
    Ok(Some(transport))
}

/// The agent of `job`, where it is what the launcher enters its workers by.
pub(super) fn agent<'a>(
    job: &'a Job,
    cluster: &'a Cluster,
) -> Result<Option<Agent<'a>>, LaunchError> {
    let by_agent = transport(job, cluster)? == Some(MpiTransport::Agent);
    let image = cluster.agent_image().filter(|_| by_agent);
    Ok(image.map(|image| Agent { job, image }))
}

/// Whether `job` names what only `transport` brings: in a command, or as a volume that it mounts.
fn needs(job: &Job, transport: MpiTransport) -> bool {
    let (marks, volume): (&[&str], &str) = match transport {
        MpiTransport::Agent => return false,
        MpiTransport::Ssh => (&["ssh", "plm_rsh"], SSH_VOLUME),
        MpiTransport::Kubectl => (&["kubectl"], KUBECTL_VOLUME),
    };
    let specs = job
        .roles
        .values()
        .filter_map(|role| role.template.spec.as_ref());
    let mut containers = specs.flat_map(|spec| {
        let before = spec.init_containers.iter().flatten();
        before.chain(&spec.containers)
    });
    containers.any(|container| {
        let parts = [&container.command, &container.args].into_iter();
        let words: Vec<String> = parts.flatten().flatten().cloned().collect();
        let marked = |word: &String| marks.iter().any(|mark| word.contains(mark));
        let mut mounts = container.volume_mounts.iter().flatten();
        // A plain `sshd` is there for the launcher alone, and the agent takes its place.
        mounts.any(|mount| mount.name == volume) || !is_sshd(&words) && words.iter().any(marked)
    })
}

/// The volumes that the pods of `role` are given, which its containers may mount without stating them.
pub(crate) fn given_volumes(kind: Kind, role: Role) -> &'static [&'static str] {
    match (kind, role) {
        (Kind::MpiV1, Role::Launcher) => &[CONFIG_VOLUME, KUBECTL_VOLUME],
        (Kind::MpiV1, Role::Worker) => &[CONFIG_VOLUME],
        (Kind::MpiV2, Role::Launcher) => &[CONFIG_VOLUME, SSH_VOLUME],
        (Kind::MpiV2, Role::Worker) => &[SSH_VOLUME],
        _ => &[],
    }
}

/// Gives a pod its host name within the Service of the job, and lets it call the others by theirs.
pub(super) fn name_host(spec: &mut PodSpec, job: &Job) {
    spec.subdomain = Some(job.name.as_str().to_owned());
    if spec.host_network == Some(true) {
        spec.dns_policy = Some("ClusterFirstWithHostNet".to_owned());
    }
}

/// Lets a pod call the others by their bare host names.
pub(super) fn search_job(spec: &mut PodSpec, job: &Job, cluster: &Cluster) {
    let Job {
        name,
        namespace,
        settings,
        ..
    } = job;
    let domain = match cluster.stated_domain() {
        Some(domain) if !settings.compat.contains(&Compat::ClusterLocalSearch) => domain,
        _ => "cluster.local",
    };
    spec.dns_config
        .get_or_insert_with(PodDNSConfig::default)
        .searches
        .get_or_insert_default()
        .push(format!("{name}.{namespace}.svc.{domain}"));
}

/// The Service that gives every pod of the job its host name.
///
/// Where the agent starts the ranks, pods have their names before they are ready: what makes them
/// ready may be the ranks. So have they where the launcher is a worker, too, and must reach itself.
pub(super) fn job_service(job: &Job, by_agent: bool) -> Service {
    let selector = [
        (label::OPERATOR_NAME, job.kind.controller()),
        (label::JOB_NAME, job.name.as_str()),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let as_worker = matches!(&job.framework, Framework::MpiV2(own) if own.run_launcher_as_worker);
    Service {
        metadata: metadata(job, job.name.as_str().to_owned()),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(by_agent || as_worker),
            selector: Some(selector.into()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

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

fn config_name(job: &Job) -> String {
    format!("{}-config", job.name)
}
