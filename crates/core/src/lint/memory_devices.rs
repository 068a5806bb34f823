//! Memory and devices: shared memory, GPUs, CPUs, and what RDMA needs.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, EmptyDirVolumeSource, Toleration},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    Rule,
    advice::{Advice, CAREFUL, Look, ODD, RISKY, WRONG, rule},
    command::base_name,
    fabric,
    scene::{Pod, Scene, counted, is_gpu, is_other_accelerator},
};
use crate::{
    finding::Fix,
    quantity,
    spec::{Kind, Place},
};

mod devices;
mod fixes;
mod more;

pub(super) use more::RULES as MORE_RULES;

const GIB: u64 = 1 << 30;

/// The rules of this family.
pub(super) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY201",
            RISKY,
            "no shared memory",
            "A container has 64 MiB of `/dev/shm` unless a memory-backed volume is mounted there. NCCL \
             moves data between the GPUs of a pod through it, and so do the workers of a data loader; \
             when it is full they end with a bus error.",
        ),
        look: Look::Job(no_shared_memory),
    },
    Advice {
        rule: rule(
            "TY202",
            ODD,
            "shared memory too small",
            "Every GPU has a process, its data loader and its share of NCCL's buffers in `/dev/shm`. \
             Less than 1 GiB for each GPU fills up in ordinary use; 8 GiB for each is common in \
             production.",
        ),
        look: Look::Job(small_shared_memory),
    },
    Advice {
        rule: rule(
            "TY203",
            ODD,
            "shared memory above the memory limit",
            "What is written to a memory-backed volume counts against the memory limit of the \
             container. A volume that may grow beyond the limit lets the container be killed before \
             the volume is full.",
        ),
        look: Look::Job(shared_memory_above_limit),
    },
    Advice {
        rule: rule(
            "TY204",
            ODD,
            "NCCL without a GPU",
            "The variables of NCCL are set, which needs GPUs, but the container asks for none. It is \
             started on any node, and ends when it looks for its device.",
        ),
        look: Look::Job(no_gpu),
    },
    Advice {
        rule: rule(
            "TY205",
            WRONG,
            "GPU requests and limits differ",
            "GPUs and the other devices of a plugin are not shared, so the cluster accepts a request only together with the \
             same limit. A limit alone is enough.",
        ),
        look: Look::Job(requests_and_limits),
    },
    Advice {
        rule: rule(
            "TY206",
            CAREFUL,
            "no toleration for GPU nodes",
            "Nodes with GPUs are commonly tainted so that nothing else is placed on them. Without a \
             toleration the pods stay Pending, unless the cluster adds one by its \
             `ExtendedResourceToleration` admission.",
        ),
        look: Look::Job(no_toleration),
    },
    Advice {
        rule: rule(
            "TY207",
            ODD,
            "too few CPUs for the GPUs",
            "A GPU is fed by a process and the workers of its data loader. With fewer than 2 CPUs for \
             each GPU the GPUs wait for data.",
        ),
        look: Look::Job(too_few_cpus),
    },
    Advice {
        rule: rule(
            "TY208",
            RISKY,
            "network device not asked for",
            "The network attachment hands out devices of a node, and says in its annotation \
             `k8s.v1.cni.cncf.io/resourceName` what they are called. A pod that does not ask for one \
             gets none, and its start fails, unless an admission webhook adds the resource.",
        ),
        look: Look::Beside(no_network_device),
    },
    Advice {
        rule: rule(
            "TY209",
            CAREFUL,
            "no requests",
            "A pod that asks for neither CPU nor memory is placed anywhere and is the first to be \
             evicted when its node runs short, and the gang ends with it.",
        ),
        look: Look::Job(no_requests),
    },
    Advice {
        rule: rule(
            "TY210",
            ODD,
            "RDMA without IPC_LOCK",
            "RDMA pins memory, and a container may pin very little unless it has the capability \
             IPC_LOCK. NCCL then fails to register its buffers, or falls back to sockets.",
        ),
        look: Look::Job(no_ipc_lock),
    },
    Advice {
        rule: rule(
            "TY211",
            WRONG,
            "fraction without quotes",
            "The definitions of jobs take an amount as text or as a whole number. The API server refuses `cpu: 0.5`, \
             which it takes in a plain pod; `cpu: \"0.5\"` and `cpu: 500m` are fine.",
        ),
        look: Look::Job(bare_fraction),
    },
    Advice {
        rule: rule(
            "TY212",
            ODD,
            "RDMA wanted without a device",
            "The variables ask NCCL to use InfiniBand or RoCE, and the container has no RDMA device: no resource \
             such as `rdma/hca`, no `/dev/infiniband`, no claim. NCCL finds none and uses sockets, at a fraction of \
             the speed, without an error.",
        ),
        look: Look::Job(devices::rdma_without_device),
    },
    Advice {
        rule: rule(
            "TY213",
            ODD,
            "GPUs chosen by hand",
            "The cluster gives a container the GPUs of its limit, and numbers them from 0. `NVIDIA_VISIBLE_DEVICES` takes \
             GPUs past the cluster, also those of other pods; `CUDA_VISIBLE_DEVICES` with another number of GPUs than the \
             limit leaves some idle, or names some that are not there.",
        ),
        look: Look::Job(devices::chosen_by_hand),
    },
    Advice {
        rule: rule(
            "TY214",
            WRONG,
            "amount that the cluster refuses",
            "Devices are counted in whole numbers, and a request must not be above its limit. The cluster refuses such a \
             pod, so the job stays without pods.",
        ),
        look: Look::Job(devices::refused_amounts),
    },
    Advice {
        rule: rule(
            "TY215",
            RISKY,
            "memory of a few bytes",
            "An amount of memory without a unit is in bytes, and with `m` in thousandths of a byte. A container with such \
             a limit is killed at its start.",
        ),
        look: Look::Job(devices::few_bytes),
    },
];

/// Pods that train on GPUs.
fn gpu_pods<'s, 'a>(scene: &'s Scene<'a>) -> impl Iterator<Item = &'s Pod<'a>> {
    scene.ranks().filter(|pod| pod.gpus() > 0)
}

/// The memory-backed volume at `/dev/shm`, with its place.
fn shared_memory<'a>(pod: &Pod<'a>) -> Option<(&'a EmptyDirVolumeSource, Place<'a>)> {
    let (mount, _, volume) = pod
        .mounts()
        .find(|(mount, _, _)| mount.mount_path.trim_end_matches('/') == "/dev/shm")?;
    let source = volume?.empty_dir.as_ref()?;
    let volumes = pod.spec.volumes.iter().flatten();
    let index = volumes
        .into_iter()
        .position(|volume| volume.name == mount.name)?;
    let place = pod
        .at()
        .key("volumes")
        .index(index)
        .key("emptyDir")
        .key("sizeLimit");
    (source.medium.as_deref() == Some("Memory")).then_some((source, place))
}

fn bare_fraction(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        for (container, place) in pod.containers() {
            let Some(resources) = &container.resources else {
                continue;
            };
            for (list, amounts) in [
                ("limits", &resources.limits),
                ("requests", &resources.requests),
            ] {
                for name in amounts.iter().flat_map(|amounts| amounts.keys()) {
                    let place = place.key("resources").key(list).key(name);
                    if let Some(written) = place.fraction() {
                        place.report_fix(
                            rule,
                            format!("`{name}` is {written}, which must be text or a whole number"),
                            format!("write `\"{written}\"`"),
                            Fix::Quote,
                        );
                    }
                }
            }
        }
    }
}

fn no_shared_memory(rule: &Rule, scene: &Scene<'_>) {
    if scene.is_on_unknown_fabric() {
        return;
    }
    // A single GPU has nobody to share with; only the data loader of PyTorch needs the memory there, also in
    // a rank of the job that has no GPU.
    let by_loader = scene.job.kind == Kind::PyTorch && scene.gpus() > 0;
    let needs = |pod: &&Pod<'_>| {
        let loads = scene.is_job() || pod.gpus() > 0 && trains(pod);
        pod.gpus() > 1 || by_loader && loads
    };
    // KubeRay mounts memory there in every Ray container that does not.
    let by_ray = |pod: &Pod<'_>| !scene.is_job() && is_of_ray(pod);
    for pod in scene.ranks().filter(needs) {
        if by_ray(pod) {
            continue;
        }
        let at_shm = |path: &str| path.trim_end_matches('/') == "/dev/shm";
        let mount = pod.mounts().find(|(mount, _, _)| at_shm(&mount.mount_path));
        // Another kind of volume there, or the memory of the host, is somebody's own decision.
        let is_there = match &mount {
            Some((_, _, Some(volume))) => {
                volume.empty_dir.is_none() || shared_memory(pod).is_some()
            }
            Some((_, _, None)) => true,
            None => pod.spec.host_ipc == Some(true),
        };
        if is_there {
            continue;
        }
        let (place, found, fix) = match mount {
            Some((_, place, _)) => (place.key("mountPath"), "is on disk", None),
            None => (
                pod.trainer_at().key("volumeMounts"),
                "has the 64 MiB of a container",
                fixes::shared_memory(pod),
            ),
        };
        let gpus = pod.gpus();
        let size = fixes::shared_memory_size(pod);
        place.report_fix(
            rule,
            match gpus {
                0 => format!(
                    "`/dev/shm` {found}, and the data loader of {} uses it without a GPU, too",
                    pod.owner()
                ),
                _ => format!(
                    "`/dev/shm` {found}, a pod of {} has {}",
                    pod.owner(),
                    counted(gpus, "GPU")
                ),
            },
            format!(
                "mount an `emptyDir` with `medium: Memory` and `sizeLimit: {size}Gi` at `/dev/shm`"
            ),
            fix,
        );
    }
}

/// Whether a pod of an object that is no job trains, as far as its command shows: what serves or measures on one GPU
/// has no data loader.
fn trains(pod: &Pod<'_>) -> bool {
    let command = pod.command();
    let is_script = |name: &str| matches!(name.rsplit_once('.'), Some((_, "py" | "sh")));
    let by_name = |name: &str| is_script(name) && (name.contains("train") || name.contains("tune"));
    command.node_launcher().is_some()
        || command
            .words
            .iter()
            .any(|word| by_name(base_name(word.text)))
}

/// Whether a pod is one of a Ray cluster: its place in the object says so.
fn is_of_ray(pod: &Pod<'_>) -> bool {
    let path = pod.template_at().path;
    path.contains("headGroupSpec") || path.contains("workerGroupSpecs")
}

fn small_shared_memory(rule: &Rule, scene: &Scene<'_>) {
    for pod in gpu_pods(scene) {
        let Some((source, place)) = shared_memory(pod) else {
            continue;
        };
        let Some(bytes) = source.size_limit.as_ref().and_then(quantity::units) else {
            continue;
        };
        let gpus = pod.gpus();
        if bytes < gpus.saturating_mul(GIB) {
            let each = (bytes >> 20) / gpus;
            place.report_with(
                rule,
                format!(
                    "`/dev/shm` has {} MiB for {}, {each} MiB for each",
                    bytes >> 20,
                    counted(gpus, "GPU")
                ),
                format!("give it {}Gi, 8Gi for each GPU", gpus.saturating_mul(8)),
            );
        }
    }
}

fn shared_memory_above_limit(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        for container in &pod.spec.containers {
            let limit = limits(container).and_then(|limits| limits.get("memory"));
            let Some(limit) = limit.and_then(quantity::units) else {
                continue;
            };
            for mount in container.volume_mounts.iter().flatten() {
                let volumes = pod.spec.volumes.iter().flatten().enumerate();
                let volume = volumes
                    .into_iter()
                    .find(|(_, volume)| volume.name == mount.name);
                let Some((index, source)) =
                    volume.and_then(|(index, volume)| Some((index, volume.empty_dir.as_ref()?)))
                else {
                    continue;
                };
                let size = source.size_limit.as_ref().and_then(quantity::units);
                let in_memory = source.medium.as_deref() == Some("Memory");
                let Some(size) = size.filter(|size| in_memory && *size >= limit) else {
                    continue;
                };
                let place = pod.at().key("volumes").index(index).key("emptyDir");
                let path = mount.mount_path.trim_end_matches('/');
                place.key("sizeLimit").report_with(
                    rule,
                    format!(
                        "`{path}` may grow to {} MiB, the container `{}` may use {} MiB in all",
                        size >> 20,
                        container.name,
                        limit >> 20
                    ),
                    format!("raise the memory limit, or give `{path}` at most half of it"),
                );
            }
        }
    }
}

fn no_gpu(rule: &Rule, scene: &Scene<'_>) {
    let has_others = |pod: &Pod<'_>| {
        pod.asks_for_gpus() || pod.has_claims() || pod.asks_for(is_other_accelerator)
    };
    if scene.pods.iter().any(has_others) {
        return;
    }
    for pod in scene.ranks() {
        let mut nccl = pod
            .variables()
            .filter(|(name, _, _)| name.starts_with("NCCL_"));
        if let Some((name, _, _)) = nccl.next() {
            pod.trainer_at().key("resources").report_with(
                rule,
                format!("`{name}` is set, but the container asks for no GPU"),
                "add `nvidia.com/gpu` to `resources.limits`, or remove the variables of NCCL",
            );
        }
    }
}

/// Whether a resource is one of a device plugin, which is not shared.
fn is_device(name: &str) -> bool {
    name.split_once('/')
        .is_some_and(|(domain, _)| !domain.ends_with("kubernetes.io"))
}

fn requests_and_limits(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        for (container, place) in pod.containers() {
            let requests = container
                .resources
                .as_ref()
                .and_then(|found| found.requests.as_ref());
            let limits = limits(container);
            for (name, request) in requests
                .into_iter()
                .flatten()
                .filter(|(name, _)| is_device(name))
            {
                let limit = limits.and_then(|limits| limits.get(name));
                if limit.and_then(quantity::milli) == quantity::milli(request) {
                    continue;
                }
                let found = limit.map_or_else(|| "none".to_owned(), |limit| limit.0.clone());
                place.key("resources").key("requests").key(name).report_with(
                    rule,
                    format!("`{name}` has the request {} and the limit {found}, they must be the same", request.0),
                    "state the limit only",
                );
            }
        }
    }
}

fn no_toleration(rule: &Rule, scene: &Scene<'_>) {
    for pod in scene.ranks().filter(|pod| pod.asks_for_gpus()) {
        let bears = |toleration: &Toleration| match toleration.key.as_deref() {
            None | Some("") => toleration.operator.as_deref() == Some("Exists"),
            Some(key) => is_gpu(key),
        };
        if !pod.spec.tolerations.iter().flatten().any(bears) {
            let limits = limits(pod.trainer).into_iter().flatten();
            let device = limits
                .map(|(name, _)| name.as_str())
                .find(|name| is_gpu(name));
            let device = device.unwrap_or("nvidia.com/gpu");
            pod.at().key("tolerations").report_fix(
                rule,
                "the pod has GPUs and no toleration for tainted GPU nodes",
                format!("add `{{key: {device}, operator: Exists}}` to `tolerations`"),
                fixes::toleration(pod, device),
            );
        }
    }
}

fn too_few_cpus(rule: &Rule, scene: &Scene<'_>) {
    for pod in gpu_pods(scene) {
        let resources = pod.trainer.resources.as_ref();
        let requests = resources.and_then(|found| found.requests.as_ref());
        let cpu = |from: Option<&BTreeMap<String, Quantity>>| {
            from.and_then(|from| from.get("cpu"))
                .and_then(quantity::milli)
        };
        let Some(milli) = cpu(requests).or_else(|| cpu(limits(pod.trainer))) else {
            continue;
        };
        let gpus = pod.gpus();
        if milli < i128::from(gpus) * 2_000 {
            let place = pod.trainer_at().key("resources");
            let place = if cpu(requests).is_some() {
                place.key("requests")
            } else {
                place.key("limits")
            };
            place.key("cpu").report_with(
                rule,
                format!(
                    "{} CPUs for {}, {} for each",
                    thousandths(milli),
                    counted(gpus, "GPU"),
                    thousandths(milli / i128::from(gpus))
                ),
                format!(
                    "ask for at least {} CPUs, 2 for each GPU",
                    gpus.saturating_mul(2)
                ),
            );
        }
    }
}

/// `1500` as `1.5`.
fn thousandths(milli: i128) -> String {
    let text = format!("{}.{:03}", milli / 1000, milli % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn no_network_device(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        for attachment in fabric::attachments(scene, pod) {
            let Some(resource) = attachment.resource(scene) else {
                continue;
            };
            let asked = |container: &Container| {
                limits(container).is_some_and(|limits| limits.contains_key(resource))
            };
            if !pod.spec.containers.iter().any(asked) && !pod.has_claims() {
                pod.trainer_at().key("resources").report_with(
                    rule,
                    format!(
                        "the attachment `{}` needs a `{resource}`, the pod asks for none",
                        attachment.name
                    ),
                    format!("add `{resource}: 1` to `resources.limits`"),
                );
            }
        }
    }
}

fn no_requests(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let states = |list: Option<&BTreeMap<String, Quantity>>| {
            list.is_some_and(|list| list.contains_key("cpu") || list.contains_key("memory"))
        };
        let resources = pod.trainer.resources.as_ref();
        let requests = resources.and_then(|found| found.requests.as_ref());
        let place = pod.trainer_at().key("resources");
        if !states(requests) && !states(limits(pod.trainer)) {
            place.report_with(
                rule,
                format!("the pods of {} ask for neither CPU nor memory", pod.owner()),
                "add `requests` for both",
            );
        }
    }
}

fn no_ipc_lock(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let context = pod.trainer.security_context.as_ref();
        let added = context
            .and_then(|context| context.capabilities.as_ref())
            .and_then(|found| found.add.as_ref());
        let may = added.is_some_and(|added| {
            added
                .iter()
                .any(|name| matches!(name.as_str(), "IPC_LOCK" | "CAP_IPC_LOCK" | "ALL"))
        }) || context.is_some_and(|context| context.privileged == Some(true));
        let devices = limits(pod.trainer).into_iter().flatten();
        let asked = devices.map(|(name, _)| name.as_str());
        let mounted = pod.mounts().filter_map(|(mount, _, volume)| {
            volume?.host_path.as_ref()?;
            Some(mount.mount_path.trim_end_matches('/'))
        });
        let device = asked
            .filter(|name| fabric::is_verbs(name))
            .chain(mounted.filter(|path| *path == "/dev/infiniband"))
            .next();
        if let (Some(name), false) = (device, may) {
            pod.trainer_at().key("securityContext").report_fix(
                rule,
                format!("the container has `{name}` but not the capability IPC_LOCK"),
                "add `IPC_LOCK` to `securityContext.capabilities.add`",
                fixes::ipc_lock(pod),
            );
        }
    }
}

fn limits(container: &Container) -> Option<&BTreeMap<String, Quantity>> {
    container.resources.as_ref()?.limits.as_ref()
}
