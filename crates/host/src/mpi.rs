//! What differs for an `MPIJob` on one machine: ranks are started through the engine.
//!
//! On a cluster the launcher enters its workers by `kubectl exec` (v1) or by ssh (v2beta1). Here
//! two small commands stand in the place of both and ask the engine to run the command in the
//! worker's pod, so that an unmodified `mpirun` works without keys, `sshd` or a cluster.

use std::path::Path;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, PodSpec as KubePodSpec};
use trainyard_core::spec::{Framework, Job, Role, Slot};

use crate::wire::{PodSpec, VolumeSource};

/// The init container that brings `kubectl` on a cluster, and the volume it brings it to.
const KUBECTL_DELIVERY: &str = "kubectl-delivery";
const KUBECTL_VOLUME: &str = "mpi-job-kubectl";

/// The stand-in for `kubectl exec`.
pub(crate) const KUBECTL: &str = "kubectl";
/// The stand-in for ssh.
pub(crate) const SSH: &str = "ssh";

/// Changes the pod of `slot` for one machine. `commands` is the folder of the stand-ins.
pub(crate) fn adapt(job: &Job, slot: Slot, pod: &mut Pod, commands: &Path) {
    let Some(spec) = &mut pod.spec else {
        return;
    };
    match &job.framework {
        Framework::MpiV1(_) => {
            if let Some(inits) = &mut spec.init_containers {
                inits.retain(|container| container.name != KUBECTL_DELIVERY);
            }
        }
        Framework::MpiV2(_) => {
            drop_keys(job, spec);
            if slot.role == Role::Launcher {
                if let Some(container) = spec.containers.first_mut() {
                    reach_by(container, &commands.join(SSH));
                }
            } else {
                for container in &mut spec.containers {
                    wait_instead_of_serving(container);
                }
            }
        }
        _ => {}
    }
}

/// Puts the stand-ins where the launcher of v1 expects `kubectl`.
pub(crate) fn provide(spec: &mut PodSpec, commands: &Path) {
    for volume in &mut spec.volumes {
        if volume.name == KUBECTL_VOLUME {
            volume.source = VolumeSource::Path(commands.to_owned());
        }
    }
}

fn drop_keys(job: &Job, spec: &mut KubePodSpec) {
    let secret = format!("{}-ssh", job.name);
    let volumes = spec.volumes.get_or_insert_default();
    let is_keys = |volume: &k8s_openapi::api::core::v1::Volume| {
        let source = volume.secret.as_ref();
        source.and_then(|source| source.secret_name.as_deref()) == Some(secret.as_str())
    };
    let dropped: Vec<String> = volumes
        .iter()
        .filter(|volume| is_keys(volume))
        .map(|volume| volume.name.clone())
        .collect();
    volumes.retain(|volume| !dropped.contains(&volume.name));
    for container in &mut spec.containers {
        if let Some(mounts) = &mut container.volume_mounts {
            mounts.retain(|mount| !dropped.contains(&mount.name));
        }
    }
}

/// Makes every implementation of MPI use our stand-in for ssh, unless the user chose another.
fn reach_by(container: &mut Container, ssh: &Path) {
    let ssh = ssh.display().to_string();
    let variables = container.env.get_or_insert_default();
    for (name, value) in [
        ("OMPI_MCA_plm_rsh_agent", ssh.as_str()),
        ("PRTE_MCA_plm_ssh_agent", ssh.as_str()),
        ("HYDRA_LAUNCHER", "ssh"),
        ("HYDRA_LAUNCHER_EXEC", ssh.as_str()),
        ("I_MPI_HYDRA_BOOTSTRAP", "ssh"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", ssh.as_str()),
    ] {
        if !variables.iter().any(|variable| variable.name == name) {
            variables.push(EnvVar {
                name: name.to_owned(),
                value: Some(value.to_owned()),
                value_from: None,
            });
        }
    }
}

/// A worker that would serve ssh only waits: commands reach it through the engine.
fn wait_instead_of_serving(container: &mut Container) {
    let program = container.command.iter().flatten().next();
    let serves = program.is_some_and(|program| Path::new(program).ends_with("sshd"));
    if serves {
        container.command = Some(vec!["sleep".to_owned(), "infinity".to_owned()]);
        container.args = None;
    }
}
