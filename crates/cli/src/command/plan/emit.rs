//! `trainyard plan --emit job`: a job file for production, with the plan in it.
//!
//! Invariant: what is written passes `trainyard lint`.

use trainyard_core::plan::{
    groups::Order,
    search::{Candidate, Request},
};

use super::{Best, text};

/// A `PyTorchJob` of one pod for each node.
pub(super) fn job(request: &Request, first: &Candidate, best: &Best, model: &str) -> String {
    let cluster = &request.cluster;
    let per_node = cluster.gpu.per_node.min(cluster.gpus);
    let nodes = cluster.gpus.div_ceil(per_node);
    let name: String = model
        .chars()
        .map(|letter| match letter {
            'a'..='z' | '0'..='9' => letter,
            'A'..='Z' => letter.to_ascii_lowercase(),
            _ => '-',
        })
        .collect();
    let name = format!("train-{}", name.trim_matches('-'));
    let recovery = &best.recovery;
    let layout = &first.layout;
    let arguments = [
        Order::Megatron.mesh(layout),
        format!("--micro-batch-size {}", layout.micro_batch),
        format!("--global-batch-size {}", request.global_batch),
        format!("--seq-length {}", request.sequence),
    ]
    .join(" ");
    let save_steps = (recovery.best_seconds / first.time.total())
        .round()
        .max(1.0);
    let role = |role: &str, replicas: u32| {
        format!(
            "    {role}:
      replicas: {replicas}
      restartPolicy: OnFailure
      template:
        spec:
          # Enough for one checkpoint to reach the storage.
          terminationGracePeriodSeconds: {grace}
          containers:
            - name: pytorch
              image: registry.example.com/research/pretrain:1.0.0
              command: [torchrun, /app/pretrain.py]
              args:
{args}
                - --save-interval
                - \"{save_steps:.0}\"
                - --save
                - /checkpoints
                - --load
                - /checkpoints
              resources:
                requests:
                  cpu: \"{cpu}\"
                  memory: {memory}Gi
                limits:
                  memory: {memory}Gi
                  nvidia.com/gpu: {per_node}
              volumeMounts:
                - name: checkpoints
                  mountPath: /checkpoints
                - name: shared-memory
                  mountPath: /dev/shm
          volumes:
            - name: checkpoints
              persistentVolumeClaim:
                claimName: checkpoints
            - name: shared-memory
              emptyDir:
                medium: Memory
                sizeLimit: 64Gi
",
            grace = grace(recovery.write_seconds),
            args = arguments
                .split(' ')
                .map(|word| format!("                - {}", quoted(word)))
                .collect::<Vec<_>>()
                .join("\n"),
            cpu = 8 * per_node,
            memory = 128 * per_node,
        )
    };
    let mut roles = role("Master", 1);
    if nodes > 1 {
        roles.push_str(&role("Worker", nodes - 1));
    }
    format!(
        "# {model} on {gpus} {gpu}: {layout}, {recompute} recomputed, {sharding} shared.
# Expected: {step:.3} s a step, {mfu:.1} % MFU, {memory:.1} GiB of a GPU; one failure every {hours:.1} h, of which
# 99 of 100 runs see at most {budget}. Image, command and storage are yours to fill in.
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: {name}
  annotations:
    trainyard.dev/parallelism: {parallelism}
    trainyard.dev/budget: user=3,infrastructure={budget}
spec:
  nprocPerNode: \"{per_node}\"
  runPolicy:
    backoffLimit: 3
    cleanPodPolicy: Running
    ttlSecondsAfterFinished: 604800
  pytorchReplicaSpecs:
{roles}",
        gpus = cluster.gpus,
        gpu = cluster.gpu.name,
        layout = text::layout(layout),
        recompute = text::recompute(layout.recompute),
        sharding = text::sharding(layout.sharding),
        step = first.time.total(),
        mfu = 100.0 * first.mfu,
        memory = first.memory.total(),
        hours = recovery.mean_time_between_failures / 3_600.0,
        budget = recovery.budget.max(10),
        parallelism = best.parallelism,
    )
}

/// Seconds of grace for a checkpoint, between one and thirty minutes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to half an hour"
)]
fn grace(seconds: f64) -> u32 {
    (2.0 * seconds).clamp(60.0, 1_800.0) as u32
}

/// Numbers are words here.
fn quoted(word: &str) -> String {
    if word.chars().all(|letter| letter.is_ascii_digit()) {
        format!("\"{word}\"")
    } else {
        word.to_owned()
    }
}
