//! What `tune run` is completed with, and what has no recipe.

use super::{of_spec, with_runtime};
use crate::{
    launch::{Cluster, Plan},
    spec::{Framework, Job, Role, Slot},
};

/// The command of the first node.
fn command(job: &Job) -> String {
    let cluster = Cluster::default();
    let plan = Plan::new(job, &cluster).unwrap();
    let launched = plan.pod(Slot::new(Role::Node, 0), 1).unwrap();
    launched.spec().unwrap().containers[0]
        .command
        .clone()
        .unwrap()
        .join(" ")
}

fn spec(runtime: &str, trainer: &str) -> String {
    format!("  runtimeRef: {{name: {runtime}}}\n  trainer: {{command: [tune, run], {trainer}}}\n")
}

#[test]
fn recipes_follow_from_arguments_and_processes() {
    const LORA: &str = "'model.lora_attn_modules=[q_proj]'";
    const QUANTIZED: &str = "model.quantize_base=true";
    let one = "resourcesPerNode: {limits: {nvidia.com/gpu: 1}}";
    let two = "resourcesPerNode: {limits: {nvidia.com/gpu: 2}}";
    let cases = [
        (
            one,
            String::new(),
            "tune run full_finetune_single_device --config llama3_2/1B_full_single_device",
        ),
        (
            two,
            String::new(),
            "tune run --rdzv_endpoint=t-node-0-0.t:29500 full_finetune_distributed --config llama3_2/1B_full ",
        ),
        (
            one,
            LORA.to_owned(),
            "tune run lora_finetune_single_device --config llama3_2/1B_lora_single_device",
        ),
        (
            two,
            LORA.to_owned(),
            "lora_finetune_distributed --config llama3_2/1B_lora ",
        ),
        (
            one,
            format!("{LORA}, {QUANTIZED}"),
            "tune run lora_finetune_single_device --config llama3_2/1B_qlora_single_device",
        ),
        (
            one,
            QUANTIZED.to_owned(),
            "lora_finetune_single_device --config llama3_2/1B_qlora_single_device",
        ),
        (
            one,
            format!("{LORA}, {QUANTIZED}, model.use_dora=true"),
            "lora_finetune_single_device --config llama3_2/1B_lora_single_device",
        ),
    ];
    for (resources, args, want) in cases {
        let trainer = format!("{resources}, args: [{args}]");
        let (job, findings) = of_spec(&spec("torchtune-llama3.2-1b", &trainer));
        assert!(findings.is_empty(), "{trainer}: {findings:?}");
        let found = command(&job.unwrap());
        assert!(found.contains(want), "{trainer}: {found}");
    }
}

#[test]
fn combinations_without_a_recipe_are_errors() {
    let two = "resourcesPerNode: {limits: {nvidia.com/gpu: 2}}";
    let cases = [
        (
            "torchtune-llama3.2-1b",
            format!("{two}, args: [model.quantize_base=true]"),
            "on one GPU only",
        ),
        (
            "torchtune-qwen2.5-1.5b",
            "args: [model.quantize_base=true]".to_owned(),
            "torchtune has no QLoRA recipe for `qwen2_5/1.5B`",
        ),
        (
            "torchtune-llama3.2-1b",
            "numNodes: 2, args: [model.lora_attn_modules=x]".to_owned(),
            "LoRA and QLoRA on one node only",
        ),
        (
            "torchtune-llama3.2-1b",
            "numNodes: 2".to_owned(),
            "trains `llama3_2/1B` on one node only",
        ),
        (
            "torchtune-llama3.2-1b",
            "args: [output_dir=/x]".to_owned(),
            "`trainer.args` sets `output_dir`",
        ),
        (
            "torch-distributed",
            String::new(),
            "`torch-distributed` names none",
        ),
    ];
    for (runtime, trainer, want) in cases {
        let (job, findings) = of_spec(&spec(runtime, &trainer));
        assert!(job.is_none(), "{want}");
        assert!(
            findings.len() == 1 && findings[0].1.contains(want),
            "{want}: {findings:?}"
        );
    }
    let (job, findings) = with_runtime(
        "  trainer: {command: [tune, run]}",
        &super::set(&super::node()),
    );
    assert!(
        job.is_none() && findings[0].1.contains("`r` names none"),
        "{findings:?}"
    );
}

#[test]
fn the_address_is_that_of_the_run() {
    let trainer = "resourcesPerNode: {limits: {nvidia.com/gpu: 2}}";
    let (job, _) = of_spec(&spec("torchtune-llama3.2-1b", trainer));
    let mut job = job.unwrap();
    if let Framework::Train(own) = &mut job.framework {
        own.port = 31234;
    }
    let found = command(&job);
    assert!(
        found.contains("--rdzv_endpoint=t-node-0-0.t:31234 "),
        "{found}"
    );
}
