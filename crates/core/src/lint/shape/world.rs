//! Numbers that must agree: replicas, processes, ranks, slots and GPUs.

use super::super::{
    Rule,
    command::Word,
    scene::{Pod, Scene},
};
use crate::spec::{Framework, MpiImplementation, Place, Role};

const NNODES: &[&str] = &["--nnodes", "-nnodes"];
const NPROC: &[&str] = &["--nproc_per_node", "--nproc-per-node"];

pub(in crate::lint) fn nodes(rule: &Rule, scene: &Scene<'_>) {
    let pods = u64::from(scene.pod_count());
    for pod in scene.ranks() {
        let command = pod.command();
        if command.torchrun().is_none() {
            continue;
        }
        let Some(word) = command.option(NNODES) else {
            continue;
        };
        let (least, most) = word.text.split_once(':').unwrap_or((word.text, word.text));
        let (Ok(least), Ok(most)) = (least.parse::<u64>(), most.parse::<u64>()) else {
            continue;
        };
        if !(least..=most).contains(&pods) {
            pod.command_at(word.item).report_with(
                rule,
                format!("`--nnodes` is `{}`, the job has {pods} pods", word.text),
                "leave the option out: torchrun reads PET_NNODES, which is set in every pod",
            );
        }
    }
}

/// Processes that a pod starts, with the sentence that says where the number is from.
fn processes<'a>(scene: &Scene<'a>, pod: &Pod<'a>) -> Option<(u64, String, Place<'a>)> {
    let command = pod.command();
    let runs = command.torchrun().is_some();
    if let (true, Some(word)) = (runs, command.option(NPROC)) {
        let count = word.text.parse().ok()?;
        return Some((
            count,
            format!("`--nproc_per_node` is {count}"),
            pod.command_at(word.item),
        ));
    }
    let Framework::PyTorch(pytorch) = &scene.job.framework else {
        return None;
    };
    let count = pytorch.nproc_per_node.as_deref()?.parse().ok()?;
    let place = scene.spec().key("nprocPerNode");
    runs.then(|| (count, format!("`nprocPerNode` is {count}"), place))
}

pub(in crate::lint) fn too_many_processes(rule: &Rule, scene: &Scene<'_>) {
    for pod in scene.ranks() {
        let gpus = pod.gpus();
        if let Some((count, says, place)) = processes(scene, pod)
            && gpus > 0
            && count > gpus
        {
            let message = format!("{says}, a pod of {} has {gpus} GPUs", pod.role);
            place.report_with(
                rule,
                message,
                format!("start {gpus} processes, or ask for {count} GPUs"),
            );
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
                "{says}, a pod of {} has {gpus} GPUs: {idle} GPUs of its {} pods are idle",
                pod.role, pod.replicas
            );
            place.report_with(
                rule,
                message,
                format!("start {gpus} processes, or ask for {count} GPUs"),
            );
        }
    }
}

/// Ranks that `mpirun` is told to start, with their item, and the slots that there are.
fn ranks_and_slots(scene: &Scene<'_>) -> Option<(u64, usize, u64)> {
    let (slots, launcher_too) = match &scene.job.framework {
        Framework::MpiV1(mpi) => (mpi.slots_per_worker, false),
        Framework::MpiV2(mpi) if mpi.implementation == MpiImplementation::OpenMpi => {
            (mpi.slots_per_worker, mpi.run_launcher_as_worker)
        }
        _ => return None,
    };
    let command = scene.role(Role::Launcher)?.command();
    command.mpirun()?;
    let (ranks, item) = command.number(&["-np", "-n", "--np", "--n", "-c"])?;
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
        let message = format!("`mpirun` is to start {ranks} ranks, the workers have {slots} slots");
        let hint =
            format!("start {slots} ranks, or raise `slotsPerWorker` or the replicas of Worker");
        launcher.command_at(item).report_with(rule, message, hint);
    }
}

pub(in crate::lint) fn idle_slots(rule: &Rule, scene: &Scene<'_>) {
    if let Some(((ranks, item, slots), launcher)) =
        ranks_and_slots(scene).zip(scene.role(Role::Launcher))
        && ranks < slots
    {
        let message = format!("`mpirun` starts {ranks} ranks, the workers have {slots} slots");
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
    if gpus > 0 && gpus != u64::from(slots) {
        scene.spec().key("slotsPerWorker").report_with(
            rule,
            format!("`slotsPerWorker` is {slots}, a worker has {gpus} GPUs"),
            format!("write `slotsPerWorker: {gpus}`"),
        );
    }
}
