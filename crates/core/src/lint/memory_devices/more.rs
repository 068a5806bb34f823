//! Devices, processors and disk that are reserved and not used, or used beyond what is reserved.

use super::{
    super::{
        Rule,
        advice::{Advice, Look, ODD, rule},
        scene::{Scene, counted, gpus_of},
        shape::world,
    },
    limits,
};
use crate::{
    quantity,
    spec::{Framework, Role},
};

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY216",
            ODD,
            "GPUs of a launcher that runs no rank",
            "`mpirun` starts its ranks in the workers. The launcher only waits for them, so its GPUs are paid for and idle, \
             unless `runLauncherAsWorker` is set.",
        ),
        look: Look::Job(idle_launcher),
    },
    Advice {
        rule: rule(
            "TY217",
            ODD,
            "more threads than CPUs",
            "Every process of a pod starts as many threads as `OMP_NUM_THREADS` says. Where all of them together are more \
             than twice the CPU limit of the container, they take turns, and the slowest rank sets the pace.",
        ),
        look: Look::Job(threads),
    },
    Advice {
        rule: rule(
            "TY218",
            ODD,
            "scratch space above the disk limit",
            "What is written to an `emptyDir` on disk counts against the `ephemeral-storage` limit. The pod is evicted before the \
             volume is full.",
        ),
        look: Look::Job(scratch),
    },
    Advice {
        rule: rule(
            "TY219",
            ODD,
            "init container that reserves more GPUs",
            "A pod reserves the most that an init container asks for, for as long as it runs. With more GPUs there than in the \
             training, the others are never used, and the pod may fit no node.",
        ),
        look: Look::Job(init_gpus),
    },
];

fn idle_launcher(rule: &Rule, scene: &Scene<'_>) {
    let (Some(launcher), Some(worker)) = (scene.role(Role::Launcher), scene.role(Role::Worker))
    else {
        return;
    };
    let as_worker =
        matches!(&scene.job.framework, Framework::MpiV2(own) if own.run_launcher_as_worker);
    let command = launcher.command();
    let starts = command.mpirun().or_else(|| command.call(&["horovodrun"]));
    let idle = launcher.gpus();
    if idle > 0 && worker.gpus() > 0 && !as_worker && starts.is_some() {
        launcher.trainer_at().key("resources").report_with(
            rule,
            format!(
                "the launcher reserves {} and runs no rank",
                counted(idle, "GPU")
            ),
            "remove the GPUs of the launcher, or set `runLauncherAsWorker: true`",
        );
    }
}

fn threads(rule: &Rule, scene: &Scene<'_>) {
    for pod in scene.ranks() {
        // Above its request a container takes what CPUs the node has.
        let limit = limits(pod.trainer).and_then(|limits| quantity::milli(limits.get("cpu")?));
        let Some(milli) = limit.filter(|milli| *milli > 0) else {
            continue;
        };
        let command = pod.command();
        let processes = match world::processes(scene, pod) {
            Some((stated, ..)) => stated.max(1),
            // In an object that is no job torchrun starts one.
            None if scene.is_job() && command.node_launcher().is_some() => pod.gpus().max(1),
            None => 1,
        };
        for (name, value, place) in pod.variables().chain(pod.assigned()) {
            let Some(each) = value
                .parse::<u64>()
                .ok()
                .filter(|_| name == "OMP_NUM_THREADS")
            else {
                continue;
            };
            let all = each.saturating_mul(processes);
            if i128::from(all).saturating_mul(1_000) > milli.saturating_mul(2) {
                let cpus = u64::try_from(milli.saturating_add(999) / 1_000).unwrap_or(u64::MAX);
                let fitting = (cpus / processes).max(1);
                place.report_with(
                    rule,
                    format!(
                        "`OMP_NUM_THREADS` is {each}: {all} threads in {} for {}",
                        counted(processes, "process"),
                        counted(cpus, "CPU")
                    ),
                    format!("write {fitting}, or ask for more CPUs"),
                );
            }
        }
    }
}

fn scratch(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        // What is in a volume counts against the limits of all containers together.
        let stated: Vec<(&str, i128)> = pod
            .containers()
            .filter_map(|(container, _)| {
                let limit = limits(container)?.get("ephemeral-storage")?;
                Some((limit.0.as_str(), quantity::milli(limit)?))
            })
            .collect();
        let bytes = stated
            .iter()
            .map(|(_, bytes)| *bytes)
            .fold(0, i128::saturating_add);
        let words: Vec<&str> = stated.iter().map(|(text, _)| *text).collect();
        for (container, place) in pod.containers().filter(|_| !stated.is_empty()) {
            let list = place.key("volumeMounts");
            for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
                let mut volumes = pod.spec.volumes.iter().flatten();
                let volume = volumes.find(|volume| volume.name == mount.name);
                let found = volume.and_then(|volume| volume.empty_dir.as_ref());
                let on_disk =
                    found.filter(|it| it.medium.as_deref().unwrap_or_default().is_empty());
                let Some(size) = on_disk.and_then(|it| it.size_limit.as_ref()) else {
                    continue;
                };
                if quantity::milli(size).is_some_and(|size| size > bytes) {
                    list.index(index).report_with(
                        rule,
                        format!(
                            "`{}` may grow to {}, the pod is evicted at {} of `ephemeral-storage`",
                            mount.mount_path,
                            size.0,
                            words.join(" + ")
                        ),
                        "raise the limit of `ephemeral-storage` above the size of the volume",
                    );
                }
            }
        }
    }
}

fn init_gpus(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let gpus = pod.gpus();
        let list = pod.at().key("initContainers");
        for (index, container) in pod.spec.init_containers.iter().flatten().enumerate() {
            let asked = gpus_of(container);
            if gpus > 0 && asked > gpus {
                list.index(index).key("resources").report_with(
                    rule,
                    format!(
                        "the init container `{}` asks for {}, the pod trains with {gpus}",
                        container.name,
                        counted(asked, "GPU")
                    ),
                    format!("ask for at most {}", counted(gpus, "GPU")),
                );
            }
        }
    }
}
