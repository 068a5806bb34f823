//! Numbers that must agree: replicas, processes, ranks, slots and GPUs.

use super::{
    super::{
        Rule,
        command::Word,
        scene::{Pod, Scene, counted},
    },
    uses,
};
use crate::spec::{Framework, MpiImplementation, Place, Role};

const NNODES: &[&str] = &["--nnodes", "-nnodes"];
const NPROC: &[&str] = &["--nproc_per_node", "--nproc-per-node"];
const MACHINES: &[&str] = &["--num_machines", "--num-machines"];

pub(in crate::lint) fn nodes(rule: &Rule, scene: &Scene<'_>) {
    let pods = u64::from(scene.pod_count());
    for pod in scene.ranks() {
        let command = pod.command();
        let by_torch = command.torchrun().or_else(|| command.module(OLD_LAUNCHER));
        let (name, names) = if by_torch.or_else(|| command.module(PADDLE)).is_some() {
            ("--nnodes", NNODES)
        } else if command.call(&["accelerate"]).is_some() {
            ("--num_machines", MACHINES)
        } else {
            continue;
        };
        let Some(word) = command.option(names) else {
            continue;
        };
        let set = uses(word.text, "WORLD_SIZE").then(|| world_size(scene));
        let (least, most) = word.text.split_once(':').unwrap_or((word.text, word.text));
        let number = |text| pod.resolved(text)?.parse::<u64>().ok();
        let Some((least, most)) = set
            .flatten()
            .map(|size| (size, size))
            .or_else(|| number(least).zip(number(most)))
        else {
            continue;
        };
        if !(least..=most).contains(&pods) {
            let found = if word.text.contains('$') {
                format!("`{}`, which is {least}", word.text)
            } else {
                format!("`{}`", word.text)
            };
            let hint = match name {
                "--nnodes" if by_torch.is_some() => {
                    "leave the option out: torchrun reads PET_NNODES, which is set in every pod"
                }
                "--nnodes" => "leave the option out: PADDLE_NNODES is set in every pod",
                _ => "name as many as there are pods: `$PET_NNODES` is set in every one",
            };
            let message = format!("`{name}` is {found}, the job has {}", counted(pods, "pod"));
            pod.command_at(word.item).report_with(rule, message, hint);
        }
    }
}

const OLD_LAUNCHER: &str = "torch.distributed.launch";
const PADDLE: &str = "paddle.distributed.launch";

/// What `WORLD_SIZE` is in a pod: the processes of all pods where `nprocPerNode` is a number.
fn world_size(scene: &Scene<'_>) -> Option<u64> {
    let Framework::PyTorch(pytorch) = &scene.job.framework else {
        return None;
    };
    let has_master = scene.job.roles.contains_key(&Role::Master);
    let each = pytorch.nproc_per_node.as_deref().unwrap_or_default();
    let each = each.parse().unwrap_or(1);
    has_master.then(|| u64::from(scene.pod_count()).saturating_mul(each))
}

/// Processes that a pod starts, with the sentence that says where the number is from.
pub(in crate::lint) fn processes<'a>(
    scene: &Scene<'a>,
    pod: &Pod<'a>,
) -> Option<(u64, String, Place<'a>)> {
    let command = pod.command();
    let runs = command.torchrun().or_else(|| command.module(OLD_LAUNCHER));
    if let (true, Some(word)) = (runs.is_some(), command.option(NPROC)) {
        let count = pod.resolved(word.text)?.parse().ok()?;
        return Some((
            count,
            format!("`--nproc_per_node` is {count}"),
            pod.command_at(word.item),
        ));
    }
    if let (Some(_), Some(word)) = (
        command.module(PADDLE),
        command.option(&["--devices", "--gpus"]),
    ) {
        let listed = word.text.split(',').map(str::trim);
        let numbers = listed.filter(|part| part.parse::<u32>().is_ok()).count() as u64;
        let place = pod.command_at(word.item);
        return (numbers > 0).then(|| (numbers, format!("`--devices` names {numbers}"), place));
    }
    let Framework::PyTorch(pytorch) = &scene.job.framework else {
        return None;
    };
    let count = pytorch.nproc_per_node.as_deref()?.parse().ok()?;
    let place = scene.spec().key("nprocPerNode");
    let reads = command.torchrun().is_some();
    reads.then(|| (count, format!("`nprocPerNode` is {count}"), place))
}

/// What to do where processes and GPUs of a pod differ.
fn make_equal(count: u64, gpus: u64) -> String {
    format!(
        "start {}, or ask for {}",
        counted(gpus, "process"),
        counted(count, "GPU")
    )
}

pub(in crate::lint) fn too_many_processes(rule: &Rule, scene: &Scene<'_>) {
    for pod in scene.ranks() {
        let gpus = pod.gpus();
        if let Some((count, says, place)) = processes(scene, pod)
            && gpus > 0
            && count > gpus
        {
            let message = format!(
                "{says}, a pod of {} has {}",
                pod.owner(),
                counted(gpus, "GPU")
            );
            place.report_with(rule, message, make_equal(count, gpus));
        }
    }
}

pub(in crate::lint) fn idle_gpus(rule: &Rule, scene: &Scene<'_>) {
    for pod in scene.ranks() {
        let gpus = pod.gpus();
        if let Some((count, says, place)) = processes(scene, pod)
            && count < gpus
        {
            let idle = (gpus - count).saturating_mul(u64::from(pod.replicas));
            let message = format!(
                "{says}, a pod of {} has {}: {idle} of the GPUs of these pods are idle",
                pod.owner(),
                counted(gpus, "GPU"),
            );
            place.report_with(rule, message, make_equal(count, gpus));
        }
    }
}

/// Ranks that `mpirun` starts by its options, with their item, and the slots that there are.
fn ranks_and_slots(scene: &Scene<'_>) -> Option<(u64, usize, u64)> {
    let (slots, launcher_too) = match &scene.job.framework {
        Framework::MpiV1(mpi) => (mpi.slots_per_worker, false),
        Framework::MpiV2(mpi) if mpi.implementation == MpiImplementation::OpenMpi => {
            (mpi.slots_per_worker, mpi.run_launcher_as_worker)
        }
        _ => return None,
    };
    let launcher = scene.role(Role::Launcher)?;
    let word = launcher
        .command()
        .mpirun_option(&["-np", "-n", "--np", "--n", "-c"])?;
    let (ranks, item) = (launcher.resolved(word.text)?.parse().ok()?, word.item);
    let pods = u64::from(scene.job.role_replicas(Role::Worker)) + u64::from(launcher_too);
    Some((ranks, item, pods.saturating_mul(u64::from(slots))))
}

pub(in crate::lint) fn too_many_ranks(rule: &Rule, scene: &Scene<'_>) {
    let Some(((ranks, item, slots), launcher)) =
        ranks_and_slots(scene).zip(scene.role(Role::Launcher))
    else {
        return;
    };
    let oversubscribed = |word: &Word<'_>| word.text.to_ascii_lowercase().contains("oversubscribe");
    if ranks > slots && slots > 0 && !launcher.command().words.iter().any(oversubscribed) {
        let (wanted, there) = (counted(ranks, "rank"), counted(slots, "slot"));
        let message = format!("`mpirun` would start {wanted}, the workers have {there}");
        let hint = format!(
            "start {}, or raise `slotsPerWorker` or the replicas of Worker",
            counted(slots, "rank")
        );
        launcher.command_at(item).report_with(rule, message, hint);
    }
}

pub(in crate::lint) fn idle_slots(rule: &Rule, scene: &Scene<'_>) {
    if let Some(((ranks, item, slots), launcher)) =
        ranks_and_slots(scene).zip(scene.role(Role::Launcher))
        && ranks < slots
    {
        let (started, there) = (counted(ranks, "rank"), counted(slots, "slot"));
        let message = format!("`mpirun` starts {started}, the workers have {there}");
        let hint = "leave the number out: `mpirun` starts one rank in every slot";
        launcher.command_at(item).report_with(rule, message, hint);
    }
}

pub(in crate::lint) fn slots_and_gpus(rule: &Rule, scene: &Scene<'_>) {
    let slots = match &scene.job.framework {
        Framework::MpiV1(mpi) => mpi.slots_per_worker,
        Framework::MpiV2(mpi) => mpi.slots_per_worker,
        _ => return,
    };
    let Some(worker) = scene.role(Role::Worker) else {
        return;
    };
    let gpus = worker.gpus();
    // With one slot `mpirun` may start a launcher on every worker that starts the other processes.
    if gpus > 0 && gpus != u64::from(slots) && !(slots == 1 && starts_launchers(scene)) {
        scene.spec().key("slotsPerWorker").report_with(
            rule,
            format!(
                "`slotsPerWorker` is {slots}, a worker has {}",
                counted(gpus, "GPU")
            ),
            format!("write `slotsPerWorker: {gpus}`"),
        );
    }
}

/// Whether what `mpirun` starts is, or may be, a program that starts one process for each GPU.
fn starts_launchers(scene: &Scene<'_>) -> bool {
    let Some(launcher) = scene.role(Role::Launcher) else {
        return false;
    };
    let command = launcher.command();
    let names_nproc =
        |text: &str| text.contains("nproc_per_node") || text.contains("nproc-per-node");
    let words = command.words.iter().map(|word| word.text);
    let values = launcher.variables().map(|(_, value, _)| value);
    let script = |text: &str| text.rsplit('.').next() == Some("sh");
    command.node_launcher().is_some()
        || words.clone().any(script)
        || words.chain(values).any(names_nproc)
}

/// Ranks of the whole job, where they can be counted.
pub(in crate::lint) fn total_ranks(scene: &Scene<'_>) -> Option<u64> {
    if scene.job.kind.is_mpi() {
        let started = ranks_and_slots(scene).map(|(ranks, _, _)| ranks);
        let slots = match &scene.job.framework {
            Framework::MpiV1(mpi) => mpi.slots_per_worker,
            Framework::MpiV2(mpi) => mpi.slots_per_worker,
            _ => return None,
        };
        let workers = u64::from(scene.job.role_replicas(Role::Worker));
        return started.or(Some(workers.saturating_mul(slots.into())));
    }
    let Framework::PyTorch(pytorch) = &scene.job.framework else {
        return None;
    };
    let each = |pod: &Pod<'_>| {
        let stated = processes(scene, pod).map(|(count, _, _)| count);
        let by_gpu = matches!(pytorch.nproc_per_node.as_deref(), Some("gpu" | "auto"));
        let runs = pod.command().torchrun().is_some() && pod.command().option(NPROC).is_none();
        stated.or_else(|| Some(pod.gpus()).filter(|gpus| by_gpu && runs && *gpus > 0))
    };
    if pytorch.elastic.is_some() {
        // The number of workers changes, unless torchrun is given a fixed one.
        let pod = scene.ranks().next()?;
        let nodes: u64 = pod
            .resolved(pod.command().option(NNODES)?.text)?
            .parse()
            .ok()?;
        return Some(nodes.saturating_mul(each(pod)?));
    }
    scene.ranks().try_fold(0_u64, |sum, pod| {
        let ranks = each(pod)?.saturating_mul(pod.replicas.into());
        Some(sum.saturating_add(ranks))
    })
}
