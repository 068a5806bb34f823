//! `trainyard plan --emit job`: a job file for production, from the template `megatron-3d`, with the plan in it.
//!
//! Owns what a plan answers of that template; what is written, and that it passes `trainyard lint`, is
//! `core::template`'s.

use trainyard_core::{
    lint::Profile,
    plan::layout::Sharding,
    plan::search::{Candidate, Request},
    template::{self, Answers, Planned, Question, Refusal},
};

use super::{Best, text};

/// Checkpoints that the volume has room for.
const CHECKPOINTS_KEPT: f64 = 4.0;
/// Bytes of a `Ti`.
const TEBIBYTE: f64 = 1_099_511_627_776.0;

/// A `PyTorchJob` of one pod for each node.
pub(super) fn job(
    request: &Request,
    first: &Candidate,
    best: &Best,
    model: &str,
) -> Result<String, Refusal> {
    let gpus = request.cluster.gpus;
    // All pods are alike, and together have exactly the planned GPUs.
    let per_pod = (1..=request.cluster.gpu.per_node.min(gpus))
        .rev()
        .find(|size| gpus.is_multiple_of(*size))
        .unwrap_or(1);
    let recovery = &best.recovery;
    let volume = (CHECKPOINTS_KEPT * recovery.checkpoint_bytes / TEBIBYTE).ceil();
    let mut answers = Answers::new(template::find("megatron-3d")?, Profile::Production);
    for (question, answer) in [
        (Question::Name, name(model)),
        (Question::Workers, (gpus / per_pod).to_string()),
        (Question::Gpus, per_pod.to_string()),
        (Question::Parallelism, best.parallelism.clone()),
        (Question::Storage, format!("{:.0}Ti", volume.max(1.0))),
    ] {
        answers.set(question, &answer)?;
    }
    answers.plan(Planned {
        heading: heading(request, first, model),
        arguments: arguments(request, first),
        save_interval: whole(recovery.save_every_seconds / first.time.total()).max(1),
        // Enough for one checkpoint to reach the storage, between one and thirty minutes.
        grace: whole(2.0 * recovery.write_seconds).clamp(60, 1_800),
        hours_between_failures: recovery.mean_time_between_failures / 3_600.0,
        budget: recovery.budget,
        fully_sharded: first.layout.sharding > Sharding::Zero1,
    });
    answers.write()
}

fn name(model: &str) -> String {
    let letter = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9') => letter,
        _ => '-',
    };
    let model: String = model.chars().map(letter).collect();
    format!("train-{}", model.trim_matches('-'))
}

fn heading(request: &Request, first: &Candidate, model: &str) -> Vec<String> {
    let (cluster, layout) = (&request.cluster, &first.layout);
    vec![
        format!(
            "{model} on {} {}: {}, {} recomputed, {} shared.",
            cluster.gpus,
            cluster.gpu.name,
            text::layout(layout),
            text::recompute(layout.recompute),
            text::sharding(layout.sharding),
        ),
        format!(
            "Expected: {:.3} s a step, {:.1} % MFU, {:.1} GiB of each GPU.",
            first.time.total(),
            100.0 * first.mfu,
            first.memory.total(),
        ),
    ]
}

fn arguments(request: &Request, first: &Candidate) -> Vec<String> {
    let mut words = first.layout.megatron_arguments(request.shape.layers);
    for (option, value) in [
        ("--micro-batch-size", first.layout.micro_batch),
        ("--global-batch-size", request.global_batch),
        ("--seq-length", request.sequence),
    ] {
        words.extend([option.to_owned(), value.to_string()]);
    }
    words
}

/// The nearest whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a larger number saturates"
)]
fn whole(number: f64) -> u64 {
    number.round() as u64
}
