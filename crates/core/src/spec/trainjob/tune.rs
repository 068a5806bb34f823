//! The command line of `tune run`, which has the address and the recipe that other programs have in variables.
//!
//! Invariant: what is known of a job is here, what a run decides (how many nodes, which address) is an argument.

use super::policy::Processes;

/// Arguments of the runtime's command that stay, and that the job may not set.
const KEPT: [&str; 4] = [
    "output_dir",
    "tokenizer.path",
    "tokenizer.merges_file",
    "checkpointer.checkpoint_dir",
];
/// Models that the recipes are made for.
const MODELS: [&str; 4] = ["llama3_2/1B", "llama3_2/3B", "llama3_3/70B", "qwen2_5/1.5B"];
/// The one model with a configuration for several nodes.
const OF_SEVERAL_NODES: &str = "llama3_3/70B";

/// What `tune run` is completed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tune {
    /// The model, as configurations are named.
    model: &'static str,
    method: Method,
    /// Whether a node has one process, or one GPU.
    has_one: bool,
    /// Whether a node has more processes than one, which need an address.
    has_several: bool,
    /// Arguments of the runtime.
    kept: Vec<String>,
}

/// How weights are trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Full,
    Lora,
    Qlora,
}

impl Method {
    /// A quantized base needs no list of modules: there is no other method with one.
    fn of(args: &[String]) -> Self {
        let has = |text: &str| args.iter().any(|arg| arg.contains(text));
        if has("model.quantize_base=true") && !has("model.use_dora=true") {
            Self::Qlora
        } else if has("model.lora_attn_modules") {
            Self::Lora
        } else {
            Self::Full
        }
    }
}

impl Tune {
    /// `written` is the command of the runtime, `args` are those of the job.
    pub(super) fn new(
        model: &'static str,
        processes: &Processes,
        gpus: u64,
        written: &[String],
        args: &[String],
    ) -> Self {
        let several = match processes {
            Processes::Count(count) => *count > 1,
            Processes::Auto { gpus } => *gpus > 1,
        };
        Self {
            model,
            method: Method::of(args),
            has_one: *processes == Processes::Count(1) || gpus == 1,
            has_several: several,
            kept: written
                .iter()
                .filter(|arg| kept(arg).is_some())
                .cloned()
                .collect(),
        }
    }

    /// What no recipe does on so many nodes: the field, why, and what to do.
    pub(super) fn fault(&self, nodes: u32) -> Option<(&'static str, String, &'static str)> {
        let model = self.model;
        if nodes > 1 && self.method != Method::Full {
            let message = format!(
                "`numNodes` is {nodes}, and torchtune trains LoRA and QLoRA on one node only"
            );
            return Some((
                "numNodes",
                message,
                "set `numNodes: 1`, or remove the LoRA arguments",
            ));
        }
        if nodes > 1 && model != OF_SEVERAL_NODES {
            let message =
                format!("`numNodes` is {nodes}, and torchtune trains `{model}` on one node only");
            return Some(("numNodes", message, "set `numNodes: 1`"));
        }
        if self.method != Method::Qlora {
            return None;
        }
        if model.starts_with("qwen2_5/") {
            let message = format!("torchtune has no QLoRA recipe for `{model}`");
            return Some(("args", message, "remove `model.quantize_base=true`"));
        }
        if model.starts_with("llama3_2/") && !self.has_one {
            let message = format!("torchtune has a QLoRA recipe for `{model}` on one GPU only");
            let hint = "ask for one GPU in `resourcesPerNode`, or set `numProcPerNode: 1`";
            return Some(("args", message, hint));
        }
        None
    }

    /// The rest of the command line for so many nodes that meet at `address`.
    pub(crate) fn rest(&self, address: &str, nodes: u32) -> Vec<String> {
        let mut rest = Vec::new();
        if nodes > 1 || self.has_several {
            rest.push(format!("--rdzv_endpoint={address}"));
        }
        let single = nodes <= 1 && self.has_one;
        let (recipe, suffix) = match (self.method, single) {
            (Method::Full, true) => ("full_finetune_single_device", "_full_single_device"),
            (Method::Full, false) if nodes > 1 => ("full_finetune_distributed", "_full_multinode"),
            (Method::Full, false) => ("full_finetune_distributed", "_full"),
            (Method::Lora, true) => ("lora_finetune_single_device", "_lora_single_device"),
            (Method::Lora, false) => ("lora_finetune_distributed", "_lora"),
            (Method::Qlora, true) => ("lora_finetune_single_device", "_qlora_single_device"),
            (Method::Qlora, false) => ("lora_finetune_distributed", "_qlora"),
        };
        rest.push(recipe.to_owned());
        rest.push("--config".to_owned());
        rest.push(format!("{}{suffix}", self.model));
        rest.extend(self.kept.iter().cloned());
        rest
    }
}

/// Whether the command is the one that is completed.
pub(super) fn is_tune(command: &[String]) -> bool {
    command == ["tune", "run"]
}

/// The key of an argument that the runtime sets.
pub(super) fn kept(arg: &str) -> Option<&'static str> {
    let (key, _) = arg.split_once('=').unwrap_or((arg, ""));
    KEPT.into_iter().find(|known| *known == key)
}

/// The model that a runtime is named for: `torchtune-llama3.2-1b` is for `llama3_2/1B`.
pub(super) fn model(runtime: &str) -> Option<&'static str> {
    let mut parts = runtime.split('-');
    let (Some(_), Some(family), Some(size), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let name = format!("{}/{}", family.replace('.', "_"), size.to_uppercase());
    MODELS.into_iter().find(|known| *known == name)
}

/// The models in words.
pub(super) fn models() -> String {
    let names = MODELS.map(|name| format!("`{name}`"));
    names.join(", ")
}
