//! What the software of a run can do, by the time it is from.
//!
//! A published figure is also a figure of its software: attention without a fused kernel reads and
//! writes the scores several times; tensor-parallel traffic that nothing overlaps with is waited
//! for. Each profile says which of these mechanisms a run had. None of them is a number that was
//! fitted to a single row, but a few (time of the host per operation, what eager attention costs, extra
//! buffers) were set by hand with all published rows at hand.

use serde::Serialize;

use super::hardware::{Unknown, closest};

/// Kernels, overlaps and number formats of one generation of frameworks.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a mechanism that a framework has or has not, and they are independent"
)]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Software {
    /// As users write it.
    pub name: &'static str,
    /// What it is, in a few words.
    #[serde(skip)]
    pub about: &'static str,
    /// How attention is computed.
    pub attention: AttentionKernel,
    /// How the work between matrices is computed.
    pub kernels: Kernels,
    /// How tensor-parallel traffic is waited for.
    pub tensor: Overlap,
    /// How gradients and weights of data ranks are waited for.
    pub data: Overlap,
    /// How activations between stages are waited for.
    pub pipeline: Overlap,
    /// How tokens on their way to experts are waited for.
    pub expert: Overlap,
    /// Nodes that a token is sent to at most, in one copy each that the node passes on; a copy for every expert where none.
    pub expert_nodes: Option<u32>,
    /// Mean bytes of an element on its way to an expert and back.
    pub expert_bytes: f64,
    /// Share of the bubble of a plain pipeline that is left.
    pub bubble: f64,
    /// Compute units that communication keeps to itself, so that work never has them.
    pub reserved_units: f64,
    /// Copies of the weights and their gradients of a stage.
    pub stage_copies: f64,
    /// Whether tokens are spread evenly over experts, as benchmarks force them to be.
    pub balanced_experts: bool,
    /// Whether there is dropout, as the models of that time had it.
    pub dropout: bool,
    /// Whether gradients of a micro-batch are added to the sum in a pass of their own.
    pub separate_accumulation: bool,
    /// Whether computing a layer again stops before its last product (non-reentrant checkpoints).
    pub stops_early: bool,
    /// Whether data ranks share everything, layer by layer (FSDP).
    pub fully_sharded: bool,
    /// Seconds that the host takes for one operation and the GPU waits for; 0 where it is ahead.
    pub host_per_operation: f64,
    /// Bytes of a parameter's gradient, with the sum over micro-batches where it is apart.
    pub gradient_bytes: f64,
    /// Bytes of a parameter in the optimizer: 12 for a 32-bit copy and two moments.
    pub optimizer_bytes: f64,
    /// GiB of buffers beyond what every process has, such as `DeepSpeed`'s buckets.
    pub extra_buffers_gib: f64,
    /// Plain `PyTorch`, and the format of its weights.
    pub plain: Option<Plain>,
}

/// Plain `PyTorch`: `torch.compile` of the whole model, `scaled_dot_product_attention`, fused `AdamW`, data parallel at
/// most. The loss is compiled too, so its logits stay in 16 bits and their gradient takes their place; gradients
/// of weights are made while the backward pass frees activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Plain {
    /// Weights and residual stream in 32 bits, products in 16 (`autocast`).
    Autocast,
    /// Everything in 16 bits, moments too.
    Bf16,
}

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum AttentionKernel {
    /// Scores in memory: two batched matrix products around a softmax.
    Unfused,
    /// The first `FlashAttention` and its Triton port.
    Flash1,
    /// `FlashAttention` 2.
    Flash2,
    /// `FlashAttention` 3 and cuDNN's fused attention.
    Flash3,
    /// What `scaled_dot_product_attention` of `PyTorch` 2.5 and later chooses.
    Sdpa,
}

/// How the work between matrices is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kernels {
    /// One kernel for each operation.
    Eager,
    /// Hand-written or compiled kernels for groups of them.
    Fused,
}

/// Whether traffic runs beside other work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Overlap {
    /// All of it is waited for.
    Waited,
    /// It runs beside the work it does not depend on.
    Beside,
}

/// Megatron-LM of 2021, before fused attention.
pub const MEGATRON_2021: Software = Software {
    name: "megatron-2021",
    about: "Megatron-LM of 2021, attention without a fused kernel",
    attention: AttentionKernel::Unfused,
    kernels: Kernels::Fused,
    tensor: Overlap::Waited,
    data: Overlap::Waited,
    pipeline: Overlap::Waited,
    expert: Overlap::Waited,
    expert_nodes: None,
    expert_bytes: 2.0,
    bubble: 1.0,
    reserved_units: 0.0,
    stage_copies: 1.0,
    balanced_experts: false,
    dropout: true,
    separate_accumulation: true,
    stops_early: false,
    fully_sharded: false,
    host_per_operation: 0.0,
    gradient_bytes: 4.0,
    optimizer_bytes: 12.0,
    extra_buffers_gib: 0.0,
    plain: None,
};

/// Megatron-LM of 2022, with sequence parallelism and gradients that are summed in the product.
pub const MEGATRON_2022: Software = Software {
    name: "megatron-2022",
    about: "Megatron-LM of 2022, with sequence parallelism",
    separate_accumulation: false,
    ..MEGATRON_2021
};

/// Megatron-DeepSpeed of 2022 in 16-bit floats, as BLOOM was prepared with: the pipeline is driven
/// operation by operation from Python.
pub const DEEPSPEED_2022: Software = Software {
    name: "megatron-deepspeed",
    about: "Megatron-DeepSpeed of 2022, fp16",
    dropout: false,
    host_per_operation: 30e-6,
    gradient_bytes: 2.0,
    extra_buffers_gib: 4.0,
    ..MEGATRON_2021
};

/// The same with bfloat16 weights, whose gradients are summed in 32 bits besides.
pub const DEEPSPEED_2022_BF16: Software = Software {
    name: "megatron-deepspeed-bf16",
    about: "Megatron-DeepSpeed of 2022, bf16",
    gradient_bytes: 6.0,
    ..DEEPSPEED_2022
};

/// Megatron-Core and `NeMo`, since 2024.
pub const MEGATRON_CORE: Software = Software {
    name: "megatron-core",
    about: "Megatron-Core and NeMo since 2024",
    attention: AttentionKernel::Flash3,
    tensor: Overlap::Beside,
    data: Overlap::Beside,
    pipeline: Overlap::Beside,
    dropout: false,
    separate_accumulation: false,
    gradient_bytes: 2.0,
    ..MEGATRON_2021
};

/// Megatron-Bridge, since 2025: expert traffic beside another micro-batch, tokens spread evenly.
pub const MEGATRON_BRIDGE: Software = Software {
    name: "megatron-bridge",
    about: "Megatron-Bridge since 2025, balanced experts",
    expert: Overlap::Beside,
    balanced_experts: true,
    ..MEGATRON_CORE
};

/// What `DeepSeek-V3` was trained with (arXiv:2412.19437): stages run in both directions, which keeps two copies of
/// them and leaves a third of the bubble; a token goes to at most four nodes, in 8 bits there and in 16 back, beside the
/// work of another micro-batch, by 20 units that do nothing else; experts are kept balanced.
pub const DUALPIPE: Software = Software {
    name: "dualpipe",
    about: "DeepSeek-V3's: DualPipe and DeepEP, at most 4 nodes per token, balanced experts",
    expert: Overlap::Beside,
    expert_nodes: Some(4),
    expert_bytes: 1.5,
    bubble: 1.0 / 3.0,
    reserved_units: 20.0,
    stage_copies: 2.0,
    balanced_experts: true,
    ..MEGATRON_CORE
};

/// FSDP of 2023 with the first fused attention (llm-foundry).
pub const FSDP_2023: Software = Software {
    name: "fsdp-2023",
    about: "FSDP of 2023 with the first FlashAttention (llm-foundry)",
    attention: AttentionKernel::Flash1,
    kernels: Kernels::Eager,
    data: Overlap::Beside,
    dropout: false,
    separate_accumulation: false,
    stops_early: true,
    fully_sharded: true,
    ..MEGATRON_2021
};

/// The same with every state in 16 bits.
pub const FSDP_2023_PURE: Software = Software {
    name: "fsdp-2023-pure",
    about: "the same, every state in 16 bits",
    gradient_bytes: 2.0,
    optimizer_bytes: 4.0,
    ..FSDP_2023
};

/// FSDP 2 of torchtitan, compiled.
pub const FSDP_2: Software = Software {
    name: "fsdp2",
    about: "FSDP 2, compiled (torchtitan)",
    attention: AttentionKernel::Flash2,
    kernels: Kernels::Fused,
    ..FSDP_2023
};

/// The same without the compiler, as its first figures were taken.
pub const FSDP_2_EAGER: Software = Software {
    name: "fsdp2-eager",
    about: "FSDP 2 without the compiler",
    kernels: Kernels::Eager,
    ..FSDP_2
};

/// The compiled one with tensor-parallel traffic beside the products.
pub const FSDP_2_ASYNC: Software = Software {
    name: "fsdp2-async-tp",
    about: "FSDP 2, compiled, asynchronous tensor parallelism",
    tensor: Overlap::Beside,
    ..FSDP_2
};

/// Plain `PyTorch` under `autocast`.
pub const TORCH: Software = Software {
    name: "torch",
    about: "plain PyTorch 2.5+: torch.compile, SDPA, fused AdamW, autocast (32-bit weights), DDP",
    attention: AttentionKernel::Sdpa,
    data: Overlap::Beside,
    dropout: false,
    stops_early: true,
    plain: Some(Plain::Autocast),
    ..MEGATRON_2021
};

/// Plain `PyTorch` with a model in bfloat16.
pub const TORCH_BF16: Software = Software {
    name: "torch-bf16",
    about: "the same with weights, gradients and moments in bf16",
    gradient_bytes: 2.0,
    optimizer_bytes: 4.0,
    plain: Some(Plain::Bf16),
    ..TORCH
};

/// Every profile.
pub const ALL: [Software; 14] = [
    MEGATRON_CORE,
    MEGATRON_BRIDGE,
    DUALPIPE,
    TORCH,
    TORCH_BF16,
    FSDP_2,
    FSDP_2_EAGER,
    FSDP_2_ASYNC,
    FSDP_2023,
    FSDP_2023_PURE,
    MEGATRON_2022,
    MEGATRON_2021,
    DEEPSPEED_2022,
    DEEPSPEED_2022_BF16,
];

/// The profile of that name.
pub fn named(name: &str) -> Result<Software, Unknown> {
    ALL.into_iter()
        .find(|software| software.name.eq_ignore_ascii_case(name))
        .ok_or_else(|| Unknown {
            what: "software",
            name: name.to_owned(),
            nearest: closest(name, ALL.iter().map(|software| software.name)),
        })
}
