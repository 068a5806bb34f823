//! The command line of `tune run`, which has the address and the recipe that other programs have in variables.

use super::policy::Processes;

/// Arguments of the runtime's command that stay.
const KEPT: [&str; 4] = [
    "output_dir",
    "tokenizer.path",
    "tokenizer.merges_file",
    "checkpointer.checkpoint_dir",
];

/// Whether the command is the one that is completed.
pub(super) fn is_tune(command: &[String]) -> bool {
    command == ["tune", "run"]
}

/// The rest of the command line. `written` is the command of the runtime, `args` those of the job.
pub(super) fn rest(
    runtime: &str,
    address: &str,
    nodes: u32,
    processes: &Processes,
    written: &[String],
    args: &[String],
) -> Vec<String> {
    let one =
        *processes == Processes::Count(1) || matches!(processes, Processes::Auto { gpus: ..=1 });
    let mut rest = Vec::new();
    if nodes > 1 || !one {
        rest.push(format!("--rdzv_endpoint={address}"));
    }
    let has = |text: &str| args.iter().any(|arg| arg.contains(text));
    let lora = has("model.lora_attn_modules");
    let quantized = has("model.quantize_base=true") && !has("model.use_dora=true");
    let single = nodes == 1 && one;
    let recipe = match (lora, single) {
        (false, true) => "full_finetune_single_device",
        (false, false) => "full_finetune_distributed",
        (true, true) => "lora_finetune_single_device",
        (true, false) => "lora_finetune_distributed",
    };
    let suffix = match (lora, quantized, single, nodes) {
        (false, _, true, _) => "_full_single_device",
        (false, _, false, 1) => "_full",
        (false, _, false, _) => "_full_multinode",
        (true, true, true, _) => "_qlora_single_device",
        (true, true, false, _) => "_qlora",
        (true, false, true, _) => "_lora_single_device",
        (true, false, false, _) => "_lora",
    };
    rest.push(recipe.to_owned());
    rest.push("--config".to_owned());
    rest.push(format!("{}{suffix}", model(runtime)));
    let is_kept = |arg: &&String| {
        arg.split_once('=')
            .is_some_and(|(key, _)| KEPT.contains(&key))
    };
    rest.extend(written.iter().filter(is_kept).cloned());
    rest
}

/// The model of a runtime: `torchtune-llama3.2-1b` is `llama3_2/1B`.
fn model(runtime: &str) -> String {
    let name = runtime.strip_prefix("torchtune-").unwrap_or(runtime);
    match name.rsplit_once('-') {
        Some((family, size)) => format!("{}/{}", family.replace('.', "_"), size.to_uppercase()),
        None => name.replace('.', "_"),
    }
}
