//! Devices that are wanted and not asked for, chosen past the cluster, or asked for in amounts that cannot be.

use k8s_openapi::{api::core::v1::Container, apimachinery::pkg::api::resource::Quantity};

use super::{
    super::{
        Rule,
        scene::{Pod, Scene, counted, is_gpu, variables},
    },
    fabric, is_device, limits,
};
use crate::{quantity, spec::Place};

/// Whether a resource is a device other than a GPU, such as one of a network.
fn is_other_device(resource: &str) -> bool {
    resource.contains('/') && !is_gpu(resource)
}

/// Whether the pod may have RDMA devices, by whatever way.
fn may_have_rdma(scene: &Scene<'_>, pod: &Pod<'_>) -> bool {
    let context = pod.trainer.security_context.as_ref();
    let privileged = context.and_then(|context| context.privileged) == Some(true);
    let mounted = pod.mounts().any(|(mount, _, volume)| {
        let of_host = volume.is_some_and(|volume| volume.host_path.is_some());
        of_host && mount.mount_path.starts_with("/dev")
    });
    let by_cloud = pod.annotation("networking.gke.io/interfaces").is_some();
    let attached = fabric::attachments(scene, pod);
    let by_attachment = attached.iter().any(|one| one.resource(scene).is_some());
    pod.asks_for(is_other_device)
        || pod.has_claims()
        || privileged
        || mounted
        || by_cloud
        || by_attachment
}

pub(super) fn rdma_without_device(rule: &Rule, scene: &Scene<'_>) {
    if scene.is_on_unknown_fabric() {
        return;
    }
    for pod in scene.ranks().filter(|pod| !may_have_rdma(scene, pod)) {
        let set: Vec<(&str, &str, Place<'_>)> = pod
            .variables()
            .chain(pod.assigned())
            .chain(scene.mpirun_variables())
            .collect();
        let is_off = |(name, value, _): &&(&str, &str, Place<'_>)| {
            *name == "NCCL_IB_DISABLE" && *value != "0"
                || *name == "NCCL_NET" && value.eq_ignore_ascii_case("socket")
        };
        if set.iter().any(|one| is_off(&one)) {
            continue;
        }
        let wanted = set.iter().find(|(name, value, _)| match *name {
            "NCCL_IB_DISABLE" => *value == "0",
            "NCCL_NET" => value.eq_ignore_ascii_case("ib"),
            "NCCL_IB_HCA" | "NCCL_IB_GID_INDEX" | "NCCL_IB_TC" | "NCCL_IB_SL" => !value.is_empty(),
            _ => false,
        });
        if let Some((name, value, place)) = wanted {
            place.report_with(
                rule,
                format!("`{name}` is `{value}`, but the pods of {} have no RDMA device", pod.owner()),
                "add the device to `resources.limits`, such as `rdma/hca: 1`, or remove the variable",
            );
        }
    }
}

pub(super) fn chosen_by_hand(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let gpus = pod.gpus();
        for (container, place) in pod.containers() {
            for (name, value, place) in variables(container, &place) {
                let listed = value.split(',').map(str::trim);
                let numbers = listed.filter(|part| part.parse::<u32>().is_ok()).count() as u64;
                let message = match name {
                    "NVIDIA_VISIBLE_DEVICES" if value == "all" || numbers > 0 => {
                        format!("`{name}` is `{value}`: the container takes GPUs past the cluster")
                    }
                    "CUDA_VISIBLE_DEVICES" if gpus > 0 && numbers > 0 && numbers != gpus => {
                        format!(
                            "`{name}` names {}, the pod has {}",
                            counted(numbers, "GPU"),
                            counted(gpus, "GPU")
                        )
                    }
                    _ => continue,
                };
                place.report_with(
                    rule,
                    message,
                    "remove the variable: the limit of the container decides",
                );
            }
        }
    }
}

/// Calls `look` with every amount of every container: the list, the name, the amount and its place.
fn amounts<'a>(scene: &Scene<'a>, look: impl Fn(&'a Container, &str, &str, &Quantity, Place<'a>)) {
    for pod in &scene.pods {
        for (container, place) in pod.containers() {
            let Some(resources) = &container.resources else {
                continue;
            };
            let lists = [
                ("limits", &resources.limits),
                ("requests", &resources.requests),
            ];
            for (list, found) in lists {
                for (name, amount) in found.iter().flatten() {
                    let place = place.key("resources").key(list).key(name);
                    look(container, list, name, amount, place);
                }
            }
        }
    }
}

pub(super) fn refused_amounts(rule: &Rule, scene: &Scene<'_>) {
    amounts(scene, |container, list, name, amount, place| {
        let Some(milli) = quantity::milli(amount) else {
            return;
        };
        if name.contains('/') && milli % 1_000 != 0 {
            place.report_with(
                rule,
                format!("`{name}` is {}, devices are counted in whole numbers", amount.0),
                "ask for a whole number; a part of a GPU has a name of its own, such as `nvidia.com/mig-1g.10gb`",
            );
            return;
        }
        let limit = limits(container).and_then(|limits| limits.get(name));
        let Some(limit) = limit.filter(|_| list == "requests" && !is_device(name)) else {
            return;
        };
        if quantity::milli(limit).is_some_and(|limit| milli > limit) {
            place.report_with(
                rule,
                format!(
                    "the request of {} for `{name}` is above the limit of {}",
                    amount.0, limit.0
                ),
                "lower the request, or raise the limit",
            );
        }
    });
}

pub(super) fn few_bytes(rule: &Rule, scene: &Scene<'_>) {
    const LEAST: i128 = 1_000 * (1 << 20);
    amounts(scene, |_, _, name, amount, place| {
        let milli = quantity::milli(amount).unwrap_or_default();
        if name == "memory" && milli > 0 && milli < LEAST {
            let digits: String = amount.0.chars().take_while(char::is_ascii_digit).collect();
            place.report_with(
                rule,
                format!("`memory` is {}, which is less than one MiB", amount.0),
                format!("write the unit, such as `{digits}Gi` or `{digits}Mi`"),
            );
        }
    });
}
