//! A job for a command: `trainyard run --nproc 4 -- python train.py`.
//!
//! It becomes a `PyTorchJob` like one of a file, so that everything else is the same: ranks, restarts,
//! logs, injected faults, the report.

use std::path::Path;

use anyhow::Context as _;
use serde_json::json;
use trainyard_host::{NO_IMAGE, gpu_count};

use crate::{
    args::{Gpus, Run},
    failure::Failure,
    printer::Printer,
    words,
};

/// Attempts of a command whose rank was ended by a signal, unless `--restarts` says otherwise.
const ATTEMPTS: u32 = 4;
/// Longest name that is made from a command; pods have longer ones.
const NAME_MAX: usize = 40;
/// Words that start a program and are not its name.
const STARTERS: [&str; 14] = [
    "accelerate",
    "bash",
    "deepspeed",
    "env",
    "exec",
    "launch",
    "nice",
    "python",
    "run",
    "sh",
    "time",
    "torchrun",
    "trainyard",
    "uv",
];

/// Refuses options that only mean something for a command.
pub(super) fn refuse_options(args: &Run, file: &Path) -> Result<(), Failure> {
    let option = match (args.nproc, args.gpus) {
        (Some(_), _) => "--nproc",
        (None, Some(_)) => "--gpus",
        (None, None) => return Ok(()),
    };
    Err(Failure::new(format!(
        "`{option}` needs a command after `--`; `{}` sets its own ranks and GPUs",
        file.display()
    ))
    .hint("set the number of pods with `--replicas Worker=2`, and other fields with `--set`"))
}

/// The job as a file would hold it.
pub(super) fn job(
    args: &Run,
    environment: &[(String, String)],
    printer: &mut Printer,
) -> Result<Vec<u8>, Failure> {
    let ranks = args.nproc.unwrap_or(1);
    let gpus = if args.cpu {
        0
    } else {
        gpus(args.gpus, ranks, environment, printer)?
    };
    // A cluster reads `$(NAME)` as a variable; a command is meant as it was typed.
    let words = args.command.iter();
    let command: Vec<String> = words.map(|word| word.replace('$', "$$")).collect();
    let mut container = json!({
        "name": "pytorch",
        "image": NO_IMAGE,
        "command": command,
        // Every rank is a pod with devices of its own, which count from 0.
        "env": [
            {"name": "LOCAL_RANK", "value": "0"},
            {"name": "LOCAL_WORLD_SIZE", "value": "1"},
        ],
    });
    if gpus > 0 {
        container["resources"] = json!({"limits": {"nvidia.com/gpu": gpus}});
    }
    // A program that ends with a code of its own has a mistake that a restart does not mend; one that a
    // signal ended was out of memory or killed.
    let policy = if args.restarts.is_some() {
        "OnFailure"
    } else {
        "ExitCode"
    };
    let role = |replicas: u32| {
        json!({
            "replicas": replicas,
            "restartPolicy": policy,
            "template": {"spec": {"containers": [container.clone()]}},
        })
    };
    let mut roles = json!({"Master": role(1)});
    if ranks > 1 {
        roles["Worker"] = role(ranks - 1);
    }
    let name = args.name.clone();
    let job = json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name.unwrap_or_else(|| name_of(&args.command))},
        "spec": {"runPolicy": {"backoffLimit": ATTEMPTS}, "pytorchReplicaSpecs": roles},
    });
    Ok(serde_json::to_vec(&job).context("cannot create the job of the command")?)
}

/// How many GPUs each rank gets; 0 where devices are not divided.
fn gpus(
    wanted: Option<Gpus>,
    ranks: u32,
    environment: &[(String, String)],
    printer: &mut Printer,
) -> Result<u32, Failure> {
    if let Some(Gpus::Each(each)) = wanted {
        return Ok(each);
    }
    let mut variables = environment.iter();
    let visible = variables.find(|(name, _)| name == "CUDA_VISIBLE_DEVICES");
    let count = gpu_count(visible.map(|(_, value)| value.as_str()));
    let each = u32::try_from(count).unwrap_or(u32::MAX) / ranks;
    if each > 0 || (count == 0 && wanted.is_none()) {
        return Ok(each);
    }
    let (found, needed) = (
        words::counted(count as u64, "GPU"),
        words::counted(ranks.into(), "rank"),
    );
    if wanted.is_some() {
        return Err(Failure::new(format!(
            "`--gpus auto`: this machine has {found} for {needed}"
        ))
        .hint("start fewer ranks with `--nproc`, or run without GPUs with `--cpu`"));
    }
    printer.summary(&format!(
        "note: this machine has {found} for {needed}, so every rank sees all GPUs"
    ));
    Ok(0)
}

/// A name for the job of a command: that of its program or script, without folder and ending.
fn name_of(command: &[String]) -> String {
    let is_name = |word: &&String| {
        let word = word.rsplit('/').next().unwrap_or_default();
        let plain = word.trim_end_matches(|sign: char| sign.is_ascii_digit() || sign == '.');
        !word.starts_with('-') && !word.contains('=') && !STARTERS.contains(&plain)
    };
    let word = command.iter().find(is_name).or(command.first());
    let word = word.map_or("", String::as_str);
    let file = word.rsplit('/').next().unwrap_or_default();
    let stem = file.split_once('.').map_or(file, |(stem, _)| stem);
    let mut name = String::new();
    for sign in stem.chars().take(NAME_MAX) {
        let sign = sign.to_ascii_lowercase();
        if sign.is_ascii_lowercase() || sign.is_ascii_digit() {
            name.push(sign);
        } else if !name.ends_with('-') {
            name.push('-');
        }
    }
    let name = name.trim_matches('-');
    match name.chars().next() {
        None => "command".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("run-{name}"),
        Some(_) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_gives_its_name() {
        let cases: [(&[&str], &str); 9] = [
            (&["python", "train.py"], "train"),
            (
                &["/usr/bin/python3.12", "-u", "src/Train_GPT.py", "--lr=1"],
                "train-gpt",
            ),
            (&["python", "-m", "pkg.train"], "pkg"),
            (&["env", "A=b", "./2fast.sh"], "run-2fast"),
            (&["torchrun", "--nproc-per-node=2", "main.py"], "main"),
            (&["bash"], "bash"),
            (&["sh", "-c", "echo $RANK; exit 3"], "echo-rank-exit-3"),
            (&["./__"], "command"),
            (&["nvidia-smi"], "nvidia-smi"),
        ];
        for (command, want) in cases {
            let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(name_of(&command), want, "{command:?}");
        }
    }
}
