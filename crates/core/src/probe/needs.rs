//! What a machine must have for the pods of one role of a job.
//!
//! Owns the way from a job and its fabric to numbers that a machine can be held to. Every part may be
//! left out: what no job needs is checked too, against what any training job needs.

#[cfg(test)]
mod tests;

use k8s_openapi::{
    api::core::v1::{Container, PodSpec, Volume},
    apimachinery::pkg::api::resource::Quantity,
};
use serde::{Deserialize, Serialize};

use crate::{
    fabric::{self, Fabric},
    quantity,
    spec::{Framework, Job, Role, holds_ranks, is_within, keeps, wire::wire},
};

/// The label of a node with the model of its GPUs, which jobs select by.
const PRODUCT: &str = "nvidia.com/gpu.product";
/// The resource of a node that is a whole GPU.
pub(crate) const GPU: &str = "nvidia.com/gpu";
/// Where the memory that processes of a pod share is.
const SHM_PATH: &str = "/dev/shm";

wire! {
    /// What a machine must have. Whatever is left out is only reported.
    struct Needs {
        /// Whose needs these are, in words, such as ``PyTorchJob `llama`, Worker``.
        asked_by: String,
        /// Thousandths of a processor.
        cpu_milli: u64,
        /// Bytes of memory.
        memory_bytes: u64,
        /// Bytes of local disk.
        disk_bytes: u64,
        /// Bytes of memory at `/dev/shm`.
        shm_bytes: u64,
        /// GPUs.
        gpus: u32,
        /// The model of the GPUs, as the label of a node has it (`NVIDIA-H100-80GB-HBM3`).
        gpu_model: String,
        /// The interface that gradients travel on.
        interface: String,
        /// The range that the address of the interface is in, such as `10.10.0.0/16`.
        address_range: String,
        /// Bytes of the largest packet on the interface.
        mtu: u64,
        /// Gigabits in a second between this machine and others.
        bandwidth_gbps: u64,
        /// What ranks talk over: `ib`, `roce`, `socket` or `ofi`.
        transport: String,
        /// RDMA devices.
        rdma_devices: u32,
        /// The RDMA devices that are used, as `NCCL_IB_HCA` has them.
        hcas: String,
        /// The index of the address of RDMA ports that is used.
        gid_index: u32,
        /// Whether the container may pin memory whatever its limit (`IPC_LOCK`, or privileged).
        locks_memory: bool,
        /// Names that must resolve.
        names: Vec<String>,
        /// Ports that must be free.
        ports: Vec<u16>,
        /// Volumes that are written to.
        volumes: Vec<VolumeNeeds>,
    }

    /// What one volume must do.
    struct VolumeNeeds {
        /// Where containers have it.
        path: String,
        /// The folder of the node that it is, where it is one.
        host_path: String,
        /// Whether the job is known to write there, as by an option that names it.
        written: bool,
        /// Bytes that must be free.
        free_bytes: u64,
        /// Bytes in a second that must be written.
        write_bytes_per_second: u64,
        /// Bytes in a second that must be read.
        read_bytes_per_second: u64,
    }
}

impl Needs {
    /// Whether ranks use RDMA devices.
    pub fn rdma(&self) -> bool {
        let over = self.transport.as_deref();
        matches!(over, Some("ib" | "roce")) || self.rdma_devices.is_some_and(|count| count > 0)
    }

    /// Whether ranks use GPUs.
    pub fn uses_gpus(&self) -> bool {
        self.gpus.is_some_and(|count| count > 0)
    }

    /// These needs for a machine that is examined from outside of any pod: volumes that
    /// only pods have are left out, folders of the node take the place of their mounts.
    #[must_use]
    pub fn on_the_node(mut self) -> Self {
        let volumes = self.volumes.take().into_iter().flatten();
        let on_node = volumes.filter_map(|volume| {
            let path = Some(volume.host_path.clone()?);
            Some(VolumeNeeds { path, ..volume })
        });
        self.volumes = Some(on_node.collect()).filter(|list: &Vec<_>| !list.is_empty());
        self
    }
}

/// What a machine must have for a pod of `role`, where the job is on `fabric`.
///
/// A role that the job does not declare needs nothing.
pub fn needs(job: &Job, fabric: Option<&Fabric>, role: Role) -> Needs {
    let fitted = fabric.map(|fabric| fabric::fit(job, fabric).job);
    let job = fitted.as_ref().unwrap_or(job);
    let template = job.roles.get(&role).map(|spec| &spec.template);
    let Some(pod) = template.and_then(|template| template.spec.as_ref()) else {
        return Needs::default();
    };
    let trainer = job.training_container(role);
    let Some(trainer) = trainer.and_then(|index| pod.containers.get(index)) else {
        return Needs::default();
    };
    let mut needs = Needs {
        asked_by: Some(format!("{} `{}`, {role}", job.kind, job.name)),
        cpu_milli: asked(trainer, "cpu", |amount| {
            u64::try_from(quantity::milli(amount)?).ok()
        }),
        memory_bytes: asked(trainer, "memory", quantity::units),
        disk_bytes: asked(trainer, "ephemeral-storage", quantity::units),
        shm_bytes: shared_memory(pod, trainer),
        gpus: asked(trainer, GPU, quantity::units).and_then(|count| u32::try_from(count).ok()),
        gpu_model: model(pod),
        names: rendezvous_host(job).map(|host| vec![host]),
        ports: ports(job, role, pod),
        volumes: volumes(pod, trainer),
        locks_memory: locks_memory(trainer).then_some(true),
        ..Needs::default()
    };
    if holds_ranks(job, role) {
        network_needs(&mut needs, trainer, fabric);
    }
    needs
}

/// What gradients travel on.
fn network_needs(needs: &mut Needs, trainer: &Container, fabric: Option<&Fabric>) {
    let variable = |name: &str| {
        let env = trainer.env.iter().flatten();
        env.rev().find(|known| known.name == name)?.value.as_deref()
    };
    // A list or an exclusion names no single interface, and neither does the beginning of a name.
    let is_single = |name: &&str| {
        !name.contains([',', '^']) && name.ends_with(|last: char| last.is_ascii_digit())
    };
    let stated = variable("NCCL_SOCKET_IFNAME").map(|value| value.trim_start_matches('='));
    needs.interface = stated.filter(is_single).map(str::to_owned);
    let Some(spec) = fabric.map(|fabric| &fabric.spec) else {
        return;
    };
    if needs.interface.is_none() {
        needs.interface.clone_from(&spec.interface);
    }
    let network = spec.network.as_ref();
    let addresses = network.and_then(|network| network.addresses.as_ref());
    needs.address_range = addresses.and_then(|addresses| addresses.range.clone());
    if let Some(expected) = &spec.expects {
        let number = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
        needs.mtu = number(expected.mtu);
        needs.bandwidth_gbps = number(expected.bandwidth_gbps);
        needs.transport.clone_from(&expected.transport);
    }
    let is_off = variable("NCCL_IB_DISABLE") == Some("1");
    if !is_off {
        let count = spec.device().map(|(_, count)| count);
        needs.rdma_devices = count.and_then(|count| u32::try_from(count).ok());
        needs.hcas = variable("NCCL_IB_HCA").map(str::to_owned);
        needs.gid_index = variable("NCCL_IB_GID_INDEX").and_then(|value| value.parse().ok());
    }
}

/// What the container asks for. Containers beside it have limits of their own.
fn asked(
    container: &Container,
    resource: &str,
    read: impl Fn(&Quantity) -> Option<u64>,
) -> Option<u64> {
    let resources = container.resources.as_ref()?;
    let lists = [&resources.requests, &resources.limits];
    let mut amounts = lists.into_iter().flatten();
    let amount = amounts.find_map(|list| list.get(resource).and_then(&read));
    amount.filter(|amount| *amount > 0)
}

fn shared_memory(pod: &PodSpec, trainer: &Container) -> Option<u64> {
    let mut mounts = trainer.volume_mounts.iter().flatten();
    let mount = mounts.find(|mount| mount.mount_path.trim_end_matches('/') == SHM_PATH)?;
    let mut volumes = pod.volumes.iter().flatten();
    let volume = volumes.find(|volume| volume.name == mount.name)?;
    let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
    quantity::units(limit)
}

fn model(pod: &PodSpec) -> Option<String> {
    pod.node_selector.as_ref()?.get(PRODUCT).cloned()
}

fn locks_memory(trainer: &Container) -> bool {
    let Some(context) = &trainer.security_context else {
        return false;
    };
    let added = context
        .capabilities
        .iter()
        .flat_map(|all| all.add.iter().flatten());
    let mut names = added.map(|name| name.trim_start_matches("CAP_"));
    context.privileged == Some(true) || names.any(|name| matches!(name, "IPC_LOCK" | "ALL"))
}

/// The host that ranks meet at, where the user names one of their own.
fn rendezvous_host(job: &Job) -> Option<String> {
    let Framework::PyTorch(own) = &job.framework else {
        return None;
    };
    let host = own.elastic.as_ref()?.rdzv_host.clone()?;
    // Names of the job's own pods resolve only once the pods exist.
    (!host.starts_with(job.name.as_str())).then_some(host)
}

/// The ports of the node that the pod takes.
fn ports(job: &Job, role: Role, pod: &PodSpec) -> Option<Vec<u16>> {
    let containers = pod.containers.iter();
    let stated = containers.flat_map(|container| container.ports.iter().flatten());
    let mut ports: Vec<i32> = stated.filter_map(|port| port.host_port).collect();
    if pod.host_network == Some(true) {
        ports.extend(job.rendezvous_port(role));
    }
    let ports: Vec<u16> = ports
        .into_iter()
        .filter_map(|port| u16::try_from(port).ok().filter(|port| *port > 0))
        .collect();
    Some(ports).filter(|ports| !ports.is_empty())
}

/// The volumes that the trainer may write and that outlive the pod.
fn volumes(pod: &PodSpec, trainer: &Container) -> Option<Vec<VolumeNeeds>> {
    let volumes: Vec<&Volume> = pod.volumes.iter().flatten().collect();
    let mounts = trainer.volume_mounts.iter().flatten();
    let writable = mounts.filter(|mount| mount.read_only != Some(true));
    let kept = writable.filter_map(|mount| {
        let volume = volumes.iter().find(|volume| volume.name == mount.name)?;
        let host_path = volume.host_path.as_ref().map(|host| host.path.clone());
        let claim = volume.persistent_volume_claim.as_ref();
        let claim = claim.map(|claim| claim.claim_name.as_str());
        let names = [Some(mount.mount_path.as_str()), Some(&volume.name), claim];
        let is_written = names.into_iter().flatten().any(is_checkpoint_name)
            || is_saved_to(trainer, &mount.mount_path);
        (keeps(volume) || host_path.is_some()).then(|| VolumeNeeds {
            path: Some(mount.mount_path.clone()),
            host_path,
            written: is_written.then_some(true),
            ..VolumeNeeds::default()
        })
    });
    Some(kept.collect()).filter(|list: &Vec<_>| !list.is_empty())
}

/// Whether a name is one for what a job saves. Data sets are mounted for writing, too, and are often
/// not the job's to write.
fn is_checkpoint_name(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let words = ["checkpoint", "ckpt", "output", "save"];
    words.into_iter().any(|word| text.contains(word))
}

/// Whether an option or a variable with the name of a checkpoint path has a path below `folder`.
fn is_saved_to(trainer: &Container, folder: &str) -> bool {
    let lines = [&trainer.command, &trainer.args];
    let lines = lines.into_iter().flatten().flatten();
    let words: Vec<&str> = lines.flat_map(|line| line.split_whitespace()).collect();
    let before = std::iter::once("").chain(words.iter().copied());
    let by_option = before.zip(&words).any(|(before, word)| {
        let (option, value) = word.split_once('=').unwrap_or((before, word));
        is_checkpoint_name(option) && is_within(value, folder)
    });
    let mut variables = trainer.env.iter().flatten();
    let by_variable = variables.any(|variable| {
        let value = variable.value.as_deref().unwrap_or_default();
        is_checkpoint_name(&variable.name) && is_within(value, folder)
    });
    by_option || by_variable
}
