//! What the names in lines of training programs mean: the table of the reader.
//!
//! A name is the word before a value (`global_step`, split at `_`, `/`, `.` and `-`) together with the words before it
//! (`lm loss`, `elapsed time per iteration (ms)`). Names are lower case here.

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Step(Trust),
    /// A place within an epoch; only with the number of all places.
    Batch,
    LastStep,
    Epoch,
    /// The higher, the more likely it is the loss of the training and not a part of it.
    Loss(u8),
    GradNorm,
    LearningRate,
    TokensPerSecond,
    /// The higher, the newer.
    SamplesPerSecond(u8),
    StepMillis,
    StepSeconds,
    /// The time of a step where the line is surely about one.
    Seconds,
    /// The same, where the unit stands behind the number.
    Time,
}

/// Which of several steps in one line is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trust {
    /// `step 5`: other programs count steps too.
    Step,
    /// `iteration 5`.
    Iteration,
    /// `global_step 5`, `completed step 5`: no other program says that.
    Global,
}

/// The field that `own`, the parts of the word before a value, and `before`, the words before that, stand for.
#[expect(
    clippy::match_same_arms,
    reason = "a table is read by program, not by result"
)]
pub(super) fn field(own: &[&str], before: &[&str]) -> Option<Field> {
    let near = before.last().copied().unwrap_or_default();
    match own {
        // MMEngine: `Iter(train) [ 50/1000]`. PyTorch: `loss: tensor(0.5)`. `loss value: 0.5`.
        ["train" | "training"] if matches!(near, "iter" | "epoch") => again(before),
        ["tensor" | "value"] if !near.is_empty() => again(before),

        // fairseq; Composer; TensorFlow 1.
        ["num", "updates"] | ["globalstep"] | ["time", "batch"] => Some(Field::Step(Trust::Global)),
        [names @ .., "step"] if names.iter().all(|name| counts_training(name)) => {
            if is_other(before) {
                return None;
            }
            let sure = |name: &str| {
                matches!(
                    name,
                    "global" | "trainer" | "completed" | "train" | "training" | "optimizer"
                )
            };
            let global = names.iter().any(|name| sure(name)) || names.is_empty() && sure(near);
            Some(Field::Step(if global {
                Trust::Global
            } else {
                Trust::Step
            }))
        }
        [names @ .., "iteration" | "iter" | "it"]
            if names.iter().all(|name| counts_training(name)) =>
        {
            (!is_other(before)).then_some(Field::Step(Trust::Iteration))
        }
        ["batch"] if !matches!(near, "micro" | "mini" | "global" | "per" | "eval") => {
            Some(Field::Batch)
        }
        ["batch", "idx" | "id"] => Some(Field::Batch),
        ["max" | "total", "steps" | "iters"] | ["max", "train", "steps"] => Some(Field::LastStep),
        ["steps"] if matches!(near, "total" | "max") => Some(Field::LastStep),
        ["time", "epoch"] => Some(Field::Epoch),
        [names @ .., "epoch"] if names.iter().all(|name| counts_training(name)) => {
            let other = matches!(near, "per" | "each" | "every" | "last" | "best");
            (!other).then_some(Field::Epoch)
        }

        [.., "loss", "step"] | ["loss", "train" | "total", ..] => Some(Field::Loss(3)),
        [names @ .., "loss"] => loss(names, near),
        // LightGBM.
        [.., "logloss"] if matches!(near, "train" | "training") => Some(Field::Loss(2)),
        ["gnorm" | "gradnorm"] | [.., "grad" | "gradient", "norm"] => Some(Field::GradNorm),
        ["norm"] if matches!(near, "grad" | "gradient" | "gradients") => Some(Field::GradNorm),
        [.., "max" | "min" | "base" | "initial" | "peak", "lr"]
        | [
            ..,
            "max" | "min" | "base" | "initial" | "peak",
            "learning",
            "rate",
        ] => None,
        ["lr", ..] | [.., "lr"] | [.., "learning", "rate"] => {
            (!matches!(near, "max" | "min" | "base" | "initial" | "peak"))
                .then_some(Field::LearningRate)
        }
        ["rate"] if near == "learning" => Some(Field::LearningRate),

        ["tps" | "wps" | "tgs"] | ["tokens" | "tok", "s" | "sec", ..] => {
            Some(Field::TokensPerSecond)
        }
        names if are_tokens_per_second(names) => Some(Field::TokensPerSecond),
        ["currsamplespersec" | "ips"] | ["samples", "s" | "sec", ..] => {
            Some(Field::SamplesPerSecond(2))
        }
        ["runningavgsamplespersec"] | [.., "samples", "per", "s" | "sec" | "second"] => {
            Some(Field::SamplesPerSecond(1))
        }

        // Megatron-LM: `elapsed time per iteration (ms): 1.5`.
        ["ms"]
            if matches!(
                before,
                [.., "per", "iteration" | "step"] | [.., "step", "time"]
            ) =>
        {
            Some(Field::StepMillis)
        }
        ["ms"] if matches!(near, "step_time" | "iter_time" | "iteration_time") => {
            Some(Field::StepMillis)
        }
        [.., "step" | "iter" | "iteration", "time", "ms"] => Some(Field::StepMillis),
        // NeMo: `train_step_timing in s: 1.5`.
        ["s"] if matches!(before, [.., timing, "in"] if timing.ends_with("step_timing")) => {
            Some(Field::StepSeconds)
        }
        [.., "step" | "iter" | "iteration", "time" | "timing"] => Some(Field::StepSeconds),
        ["time"] if matches!(near, "step" | "iteration" | "iter") => Some(Field::StepSeconds),
        // Paddle.
        ["batch", "cost"] => Some(Field::StepSeconds),
        // MaxText.
        ["seconds"] => Some(Field::Seconds),
        ["time" | "dt"] => Some(Field::Time),
        _ => None,
    }
}

/// The field of the words before a word that says nothing itself.
fn again(before: &[&str]) -> Option<Field> {
    let (last, rest) = before.split_last()?;
    let mut parts = [""; PARTS];
    let count = split(last, &mut parts);
    match parts.get(..count)? {
        ["train" | "training" | "tensor" | "value"] => None,
        own => field(own, rest),
    }
}

/// How many parts of a name are looked at.
pub(super) const PARTS: usize = 8;

/// Splits a name into its parts; more than [`PARTS`] of them say nothing.
pub(super) fn split<'a>(name: &'a str, parts: &mut [&'a str; PARTS]) -> usize {
    let mut count = 0;
    for part in name
        .split(['_', '/', '.', '-'])
        .filter(|part| !part.is_empty())
    {
        match parts.get_mut(count) {
            Some(place) => *place = part,
            None => return 0,
        }
        count += 1;
    }
    count
}

fn loss(names: &[&str], near: &str) -> Option<Field> {
    let other = |name: &str| {
        is_evaluation(name)
            || matches!(
                name,
                "aux"
                    | "auxiliary"
                    | "z"
                    | "load"
                    | "balance"
                    | "balancing"
                    | "router"
                    | "kl"
                    | "reg"
                    | "regularization"
                    | "mtp"
                    | "best"
                    | "min"
                    | "lowest"
                    | "packet"
                    | "frame"
                    | "data"
                    | "weight"
                    | "target"
                    | "no"
                    | "stop"
                    | "final"
            )
    };
    if names.iter().any(|name| other(name)) || names.is_empty() && other(near) {
        return None;
    }
    let whole = |name: &str| {
        matches!(
            name,
            "train" | "training" | "lm" | "total" | "reduced" | "losses"
        )
    };
    let usual = |name: &str| {
        whole(name)
            || matches!(
                name,
                "step" | "mean" | "avg" | "average" | "running" | "ce" | "nll" | "batch"
            )
    };
    Some(Field::Loss(match names {
        [] => 3,
        names if names.iter().any(|name| whole(name)) => 3,
        names if names.iter().all(|name| usual(name)) => 2,
        _ => 1,
    }))
}

/// Whether a part before `step` still means a step of the training: `global_step`, not `micro_step`.
fn counts_training(name: &str) -> bool {
    matches!(
        name,
        "global"
            | "train"
            | "training"
            | "trainer"
            | "optimizer"
            | "optim"
            | "opt"
            | "current"
            | "cur"
            | "completed"
            | "update"
            | "model"
    )
}

/// Whether the words before `step` make it another one.
fn is_other(before: &[&str]) -> bool {
    let mut near = before.iter().rev();
    near.next().is_some_and(|word| is_other_step(word))
        || near
            .next()
            .is_some_and(|word| matches!(*word, "from" | "until" | "since"))
        || before.iter().any(|word| is_of_checkpoint(word))
}

/// Words before `step` that make it another one, or a number of steps.
fn is_other_step(word: &str) -> bool {
    is_evaluation(word)
        || matches!(
            word,
            "micro"
                | "time"
                | "warmup"
                | "warm"
                | "decay"
                | "accumulation"
                | "per"
                | "max"
                | "maximum"
                | "num"
                | "number"
                | "total"
                | "save"
                | "logging"
                | "log"
                | "next"
                | "best"
                | "each"
                | "every"
                | "from"
                | "until"
                | "since"
                | "to"
                | "inference"
                | "denoising"
                | "sampling"
                | "diffusion"
                | "pipeline"
                | "build"
                | "job"
                | "slurm"
                | "skipping"
                | "skip"
        )
}

/// Words that make a step that of a checkpoint: it was reached before, or will be.
fn is_of_checkpoint(word: &str) -> bool {
    ["resum", "restor", "load", "reload", "checkpoint", "ckpt"]
        .iter()
        .any(|start| word.starts_with(start))
}

/// Words of an evaluation.
pub(super) fn is_evaluation(word: &str) -> bool {
    matches!(
        word,
        "eval"
            | "evaluate"
            | "evaluating"
            | "evaluation"
            | "val"
            | "valid"
            | "validate"
            | "validating"
            | "validation"
            | "test"
            | "testing"
            | "dev"
            | "predict"
            | "predicting"
            | "prediction"
            | "inference"
            | "sanity"
    )
}

/// Words right before a lone `step 5` that make it a sentence about something else.
pub(super) fn is_prose(word: &str) -> bool {
    matches!(
        word,
        "in" | "at"
            | "after"
            | "before"
            | "on"
            | "of"
            | "the"
            | "this"
            | "running"
            | "executing"
            | "starting"
            | "start"
            | "finished"
            | "done"
            | "setup"
            | "workflow"
            | "previous"
            | "first"
            | "last"
            | "error"
            | "failed"
            | "stopped"
            | "for"
            | "by"
            | "with"
    )
}

/// Words behind a lone `step 5` that leave it one.
pub(super) fn is_remark(word: &str) -> bool {
    matches!(
        word,
        "done"
            | "finished"
            | "complete"
            | "completed"
            | "ok"
            | "took"
            | "in"
            | "s"
            | "ms"
            | "sec"
            | "secs"
            | "seconds"
    )
}

/// Names of values that only training programs print beside a step.
pub(super) fn is_metric(word: &str) -> bool {
    let last = word.rsplit(['_', '/', '-']).next().unwrap_or(word);
    matches!(
        last,
        "loss"
            | "acc"
            | "accuracy"
            | "reward"
            | "return"
            | "score"
            | "ppl"
            | "perplexity"
            | "mfu"
            | "tflops"
            | "auc"
            | "f1"
            | "mae"
            | "mse"
            | "rmse"
            | "entropy"
            | "kl"
            | "memory"
    )
}

/// `tokens_per_second` with anything around it: `throughput/tokens_per_sec_per_gpu`.
fn are_tokens_per_second(names: &[&str]) -> bool {
    names
        .windows(3)
        .any(|three| matches!(three, ["tokens", "per", "s" | "sec" | "second"]))
}
