//! Which jobs get supervisors, and which pod of a gang leads.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::{FILES_FOLDER, FILES_VOLUME, RUN_FOLDER, RUN_VOLUME};
use crate::{
    barrier::MAX_MEMBERS,
    launch::{Cluster, agent},
    spec::{Job, Kind, RestartScope, Supervise, leading_slot},
};

/// Where files of a stopped program are deleted.
const SHARED_MEMORY: &str = "/dev/shm";
/// What every [`audience`] begins with.
const AUDIENCE: &str = "trainyard.dev/gangs/";

/// The audience of the token with which the leader of a gang connects to the operator. `kind` is the name of the kind, such as `PyTorchJob`.
pub fn audience(namespace: &str, kind: &str, name: &str) -> String {
    let kind = kind.to_lowercase();
    format!("{AUDIENCE}{namespace}/{kind}/{name}")
}

/// Namespace, kind and name of the job of an [`audience`].
pub fn audience_job(audience: &str) -> Option<(&str, Kind, &str)> {
    let rest = audience.strip_prefix(AUDIENCE)?;
    let mut parts = rest.split('/');
    let (namespace, kind, name) = (parts.next()?, parts.next()?, parts.next()?);
    let kind = Kind::READ
        .into_iter()
        .find(|it| it.name().to_lowercase() == kind)?;
    let whole = parts.next().is_none() && !namespace.is_empty() && !name.is_empty();
    whole.then_some((namespace, kind, name))
}

/// Why the pods of `job` get no supervisor, in a sentence without a full stop; nothing where they get one.
///
/// All pods of a gang have one or none has.
pub fn obstacle(job: &Job, cluster: &Cluster) -> Option<String> {
    of_cluster(cluster).or_else(|| job_obstacle(job))
}

/// The same, as far as it depends on the job alone.
pub fn job_obstacle(job: &Job) -> Option<String> {
    of_job(job).or_else(|| of_templates(job))
}

fn of_cluster(cluster: &Cluster) -> Option<String> {
    let Some(server) = &cluster.gang else {
        return Some("this operator runs no supervisors (`--gang-bind` is not set)".to_owned());
    };
    if cluster.agent_image().is_none() {
        return Some("this operator has no agent image (`--agent-image` is not set)".to_owned());
    }
    let no_authority = server.authority.is_none();
    no_authority.then(|| "the operator has no certificate for leaders of gangs yet".to_owned())
}

fn of_job(job: &Job) -> Option<String> {
    if job.kind.is_mpi() {
        return Some("an MPIJob has no supervisors".to_owned());
    }
    if job.kind == Kind::Train {
        // Its initializers and its launcher are no members of a gang that restarts in place.
        return Some("a TrainJob has no supervisors".to_owned());
    }
    if job.settings.supervise == Supervise::Off {
        return Some("`trainyard.dev/supervise` is `off`".to_owned());
    }
    if !job.settings.compat.is_empty() {
        return Some("`trainyard.dev/compat` is set".to_owned());
    }
    if job.restart_scope() != RestartScope::Gang {
        return Some("pods of this job restart alone (`trainyard.dev/restart-scope`)".to_owned());
    }
    if job.elastic().is_some() {
        return Some("the job is elastic".to_owned());
    }
    if job.uid.as_ref().is_none_or(String::is_empty) {
        return Some("the job has no uid".to_owned());
    }
    let pods = job.total_replicas();
    (pods > MAX_MEMBERS).then(|| {
        format!("the gang has {pods} pods, and {MAX_MEMBERS} is the most that are supervised")
    })
}

/// The first template that cannot have a supervisor.
fn of_templates(job: &Job) -> Option<String> {
    let leader = leading_slot(job)?;
    job.roles.iter().find_map(|(role, spec)| {
        let pod = spec.template.spec.as_ref()?;
        let container = pod.containers.get(job.training_container(*role)?)?;
        let why = of_container(container).or_else(|| of_pod(pod, container))?;
        Some(format!("the template of {role} {why}"))
    })
    .or_else(|| {
        let pod = job.roles.get(&leader.role)?.template.spec.as_ref()?;
        let why = "uses the network of its node (`hostNetwork`), where the port of the leader may be taken";
        (pod.host_network == Some(true)).then(|| format!("the template of {} {why}", leader.role))
    })
}

fn of_container(container: &Container) -> Option<String> {
    let name = &container.name;
    if container.command.as_ref().is_none_or(Vec::is_empty) {
        return Some(format!(
            "has no `command` in container `{name}`, so what it runs is known only to its image"
        ));
    }
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    if let Some((probe, _)) = probes.iter().find(|(_, probe)| probe.is_some()) {
        return Some(format!(
            "has a `{probe}` in container `{name}`, which would end it while programs are stopped"
        ));
    }
    let interactive = container.stdin == Some(true) || container.tty == Some(true);
    interactive.then(|| format!("sets `stdin` or `tty` in container `{name}`"))
}

fn of_pod(pod: &PodSpec, container: &Container) -> Option<String> {
    if pod.os.as_ref().is_some_and(|os| os.name == "windows") {
        return Some("is for Windows".to_owned());
    }
    if pod.host_ipc == Some(true) {
        let why = "uses the shared memory of its node (`hostIPC`), which is cleaned when a program is stopped";
        return Some(why.to_owned());
    }
    if let Some(volume) = foreign_shared_memory(pod, container) {
        return Some(format!(
            "mounts volume `{volume}`, which is no `emptyDir`, at `{SHARED_MEMORY}`, where files are deleted when a program is stopped"
        ));
    }
    let mut volumes = pod.volumes.iter().flatten();
    let taken = [
        agent::PROGRAM_VOLUME,
        agent::IDENTITY_VOLUME,
        FILES_VOLUME,
        RUN_VOLUME,
    ];
    if let Some(volume) = volumes.find(|volume| taken.contains(&volume.name.as_str())) {
        return Some(format!("has a volume `{}` of its own", volume.name));
    }
    let mut mounts = container.volume_mounts.iter().flatten();
    let taken = [
        agent::FOLDER,
        agent::IDENTITY_PATH,
        FILES_FOLDER,
        RUN_FOLDER,
    ];
    let mounted = mounts.find(|mount| taken.contains(&mount.mount_path.trim_end_matches('/')))?;
    Some(format!(
        "mounts a volume of its own at `{}`",
        mounted.mount_path
    ))
}

/// The volume at [`SHARED_MEMORY`] that others may have files in: only an `emptyDir` is the pod's own.
fn foreign_shared_memory<'a>(pod: &'a PodSpec, container: &'a Container) -> Option<&'a str> {
    let mut mounts = container.volume_mounts.iter().flatten();
    let mount = mounts.find(|mount| mount.mount_path.trim_end_matches('/') == SHARED_MEMORY)?;
    let mounted = mount.name.as_str();
    let mut volumes = pod.volumes.iter().flatten();
    let volume = volumes.find(|volume| volume.name == mounted);
    let own = volume.is_some_and(|volume| volume.empty_dir.is_some());
    (!own).then_some(mounted)
}
