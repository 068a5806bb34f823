//! From arguments to the question that `core::plan` answers.

use trainyard_core::plan::{
    config,
    hardware::{self, Cluster, Precision},
    layout::{self, Layout, nearest_divisor},
    names,
    recovery::{self, Component, LLAMA3},
    search::{Fixed, Request},
    shape::{Experts, Mlp, Shape},
    software,
    tuning::{Lora, Optimizer, Tuning},
};

use crate::{
    args::{Known, OptimizerName, Plan, PlanModel, PlanRecovery, Recompute, Saving, Sharding},
    failure::Failure,
    source,
};

use super::{calibrate, list};

/// Longest `config.json` that is read.
const CONFIG_LIMIT: usize = 4 << 20;
/// Most GPUs of a cluster.
const MOST_GPUS: u32 = 1 << 20;
/// Most context ranks that are searched.
const MOST_CONTEXT: u32 = 128;
/// Tokens of a step of a large model where no batch is given.
const USUAL_STEP: u32 = 4 << 20;
/// GB/s that the storage of a large cluster sustains: Llama 3's had 2 TB/s (arXiv:2407.21783).
const USUAL_STORAGE: f64 = 2_000.0;
/// The same of fine-tuning: about a quarter of a million.
const FINETUNE_STEP: u32 = 1 << 18;
/// Tokens of fine-tuning where none are given: some ten thousand conversations, a few times over.
const FINETUNE_TOKENS: f64 = 1e8;

/// The model's name and the question.
pub(super) fn of(args: &Plan) -> Result<(String, Request), Failure> {
    let (name, shape, made_for) = shape(&args.model)?;
    shape
        .check()
        .map_err(|error| Failure::new(format!("invalid model: {error}")))?;
    let mut cluster = cluster(args)?;
    if let Some(path) = &args.on.profile {
        let profile = calibrate::read(path)?;
        profile
            .apply(&mut cluster)
            .map_err(|error| Failure::new(format!("cannot use the profile: {error}")))?;
    }
    let sequence = args.goal.sequence.unwrap_or(made_for.unwrap_or(4_096));
    if sequence == 0 || sequence > 1 << 26 {
        return Err(Failure::new(format!(
            "`--sequence` is {sequence}; it must be between 1 and {}",
            1 << 26
        )));
    }
    let global_batch = match args.goal.batch {
        Some(0) => {
            return Err(Failure::new(
                "`--batch` is 0; it must be at least 1 sequence",
            ));
        }
        Some(batch) => batch,
        None => {
            let step = if finetunes(args) {
                FINETUNE_STEP
            } else {
                usual_step(shape.parameters())
            };
            (step / sequence).max(1).next_multiple_of(cluster.gpus)
        }
    };
    let precision = Precision::named(&args.goal.precision).ok_or_else(|| {
        Failure::new(format!("unknown precision `{}`", args.goal.precision))
            .hint("expected one of `bf16`, `fp8`, `nvfp4`")
    })?;
    if !cluster.gpu.has(precision) {
        let known: Vec<&str> = [
            ("bf16", Precision::Bf16),
            ("fp8", Precision::Fp8),
            ("nvfp4", Precision::Fp4),
        ]
        .into_iter()
        .filter(|(_, format)| cluster.gpu.has(*format))
        .map(|(name, _)| name)
        .collect();
        let message = format!("`{}` has no `{}`", cluster.gpu.name, args.goal.precision);
        let hint = format!("use `--precision {}`", known.join("` or `--precision "));
        return Err(Failure::new(message).hint(hint));
    }
    let software = software::named(&args.goal.software).map_err(unknown(Known::Software))?;
    let request = Request {
        shape,
        cluster,
        software,
        sequence,
        global_batch,
        precision,
        fixed: fixed(args),
        tuning: tuning(args),
    };
    check_fixed(&request)?;
    Ok((name, request))
}

/// Tokens of a step that models of that size are usually trained with (GPT-3's table 2.1, arXiv:2005.14165).
fn usual_step(parameters: f64) -> u32 {
    if parameters < 1e9 {
        USUAL_STEP / 8
    } else if parameters < 4e9 {
        USUAL_STEP / 4
    } else {
        USUAL_STEP
    }
}

/// A refusal that names everything which would be accepted.
fn unknown(what: Known) -> impl Fn(hardware::Unknown) -> Failure {
    move |error| {
        let more = match what {
            Known::Gpus => {
                "; for any other, pass `--gpu-spec memory=GIB,tflops=TFLOPS,bandwidth=GB/S`"
            }
            Known::Models => {
                "; `--list models` prints all; for any other decoder or encoder, pass its `config.json` with `--config`"
            }
            Known::Networks => ", or GB/s per GPU",
            Known::Software => "",
        };
        let names = list::names(what, &error.name);
        Failure::from(anyhow::Error::from(error)).hint(format!("use one of {names}{more}"))
    }
}

fn shape(model: &PlanModel) -> Result<(String, Shape, Option<u32>), Failure> {
    let (name, mut shape, sequence) = match (&model.name, &model.config) {
        (Some(name), _) => {
            let named = names::model(name).map_err(unknown(Known::Models))?;
            (named.name.to_owned(), named.shape(), Some(named.sequence))
        }
        (None, Some(path)) => {
            let bytes = source::read(path, CONFIG_LIMIT)?;
            let file = source::name(path);
            let text = String::from_utf8(bytes)
                .map_err(|_| Failure::new(format!("cannot read `{file}`: it is not UTF-8")))?;
            let (shape, sequence) = config::read(&text).map_err(|error| {
                Failure::new(format!("cannot read a model from `{file}`: {error}"))
            })?;
            ("model".to_owned(), shape, sequence)
        }
        (None, None) => {
            let (Some(layers), Some(hidden), Some(heads)) =
                (model.layers, model.hidden, model.heads)
            else {
                return Err(Failure::new(
                    "no model given: pass `--model`, `--config`, or `--layers`, `--hidden` and `--heads`",
                )
                .hint("pass `--model llama3-8b`, or the `config.json` of any Hugging Face model"));
            };
            let shape = Shape::dense(layers, hidden, heads, model.vocabulary.unwrap_or(50_304));
            ("model".to_owned(), shape, None)
        }
    };
    let set = |field: &mut u32, given: Option<u32>| {
        if let Some(given) = given {
            *field = given;
        }
    };
    if let (Some(hidden), Some(heads)) = (model.hidden, model.heads.or(Some(shape.heads))) {
        shape.head_size = hidden / heads.max(1);
    }
    set(&mut shape.layers, model.layers);
    set(&mut shape.hidden, model.hidden);
    if let Some(heads) = model.heads {
        shape.heads = heads;
        if model.kv_heads.is_none() && (model.name.is_none() && model.config.is_none()) {
            shape.kv_heads = heads;
        }
    }
    set(&mut shape.kv_heads, model.kv_heads);
    set(&mut shape.ffn, model.ffn);
    set(&mut shape.vocabulary, model.vocabulary);
    if model.gated {
        shape.mlp = Mlp::Gated;
    }
    if let Some(count) = model.experts {
        shape.experts = Some(Experts {
            count,
            per_token: model.experts_per_token.unwrap_or(2),
            ffn: model.expert_ffn.unwrap_or(shape.ffn),
            shared_ffn: 0,
            dense_layers: 0,
        });
    }
    Ok((name, shape, sequence))
}

fn cluster(args: &Plan) -> Result<Cluster, Failure> {
    let on = &args.on;
    let mut gpu = match &on.gpu_spec {
        Some(spec) => spec.gpu(),
        None => hardware::gpu(&on.gpu).map_err(unknown(Known::Gpus))?,
    };
    if on.gpus == 0 || on.gpus > MOST_GPUS {
        return Err(Failure::new(format!(
            "`--gpus` is {}; it must be between 1 and {MOST_GPUS}",
            on.gpus
        )));
    }
    if let Some(per_node) = on.gpus_per_node {
        if per_node == 0 {
            return Err(Failure::new(
                "`--gpus-per-node` is 0; it must be at least 1",
            ));
        }
        // A link that joins more than a node, a rack or a slice, still does.
        gpu.domain = if gpu.domain == gpu.per_node {
            per_node
        } else {
            gpu.domain.max(per_node)
        };
        gpu.per_node = per_node;
    }
    if let Some(memory) = on.memory {
        gpu.memory_gib = positive("--memory", memory)?;
    }
    if let Some(link) = on.link {
        gpu.link.bandwidth = 1e9 * positive("--link", link)?;
    }
    let network = match &on.network {
        None => gpu.network,
        Some(text) => match text.parse::<f64>() {
            Ok(giga) => 1e9 * positive("--network", giga)?,
            Err(_) => {
                hardware::network(text)
                    .map_err(unknown(Known::Networks))?
                    .bandwidth
            }
        },
    };
    Ok(Cluster {
        network,
        gpus: on.gpus,
        nodes_per_leaf: on.nodes_per_leaf.unwrap_or(0),
        oversubscription: positive("--oversubscription", on.oversubscription)?,
        rates: None,
        gpu,
    })
}

fn finetunes(args: &Plan) -> bool {
    let goal = &args.goal;
    goal.finetune || goal.lora.is_some() || goal.qlora.is_some()
}

fn tuning(args: &Plan) -> Tuning {
    let goal = &args.goal;
    let rank = goal.lora.or(goal.qlora);
    Tuning {
        lora: rank.map(|rank| Lora {
            rank,
            four_bits: goal.qlora.is_some(),
        }),
        optimizer: match goal.optimizer {
            OptimizerName::Adamw => Optimizer::AdamW,
            OptimizerName::Adam8bit => Optimizer::Adam8bit,
            OptimizerName::Sgd => Optimizer::Sgd,
        },
        offload: goal.offload,
    }
}

/// What was not given and decides the answer, in words.
pub(super) fn assumptions(args: &Plan, request: &Request) -> Vec<String> {
    let goal = &args.goal;
    let mut assumed = Vec::new();
    if goal.sequence.is_none() {
        assumed.push(format!("`--sequence {}`", request.sequence));
    }
    if goal.batch.is_none() {
        assumed.push(format!("`--batch {}`", request.global_batch));
    }
    if goal.tokens.is_none() {
        assumed.push(if finetunes(args) {
            "`--tokens 100M`".to_owned()
        } else {
            "20 tokens per parameter".to_owned()
        });
    }
    if args.on.network.is_none() && request.cluster.gpus > request.cluster.gpu.domain {
        let giga = request.cluster.network / 1e9;
        assumed.push(format!("`--network {giga}`"));
    }
    if request.cluster.gpu.only_fp16() {
        assumed.push(format!(
            "fp16 with loss scaling (`{}` has no bf16)",
            request.cluster.gpu.name
        ));
    }
    if args.recovery.storage.is_none() {
        assumed.push(format!("`--storage {}`", storage(args, request)));
    }
    assumed
}

/// Bandwidth of the storage in GB/s.
pub(super) fn storage(args: &Plan, request: &Request) -> f64 {
    let nodes = request.cluster.gpus.div_ceil(request.cluster.gpu.per_node);
    let usual = (2.0 * f64::from(nodes)).min(USUAL_STORAGE);
    args.recovery.storage.unwrap_or(usual)
}

pub(super) fn positive(flag: &str, value: f64) -> Result<f64, Failure> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(Failure::new(format!(
            "`{flag}` is {value}; it must be greater than 0"
        )))
    }
}

pub(super) fn not_negative(flag: &str, value: f64) -> Result<f64, Failure> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(Failure::new(format!(
            "`{flag}` is {value}; it must be at least 0"
        )))
    }
}

fn fixed(args: &Plan) -> Fixed {
    let degrees = &args.layout;
    Fixed {
        tensor: degrees.tp,
        pipeline: degrees.pp,
        context: degrees.cp,
        expert: degrees.ep,
        micro_batch: degrees.micro_batch,
        interleave: degrees.interleave,
        recompute: if degrees.gradient_checkpointing {
            Some(layout::Recompute::Full)
        } else {
            degrees.recompute.map(recompute)
        },
        sharding: degrees.sharding.map(|sharding| match sharding {
            Sharding::Ddp => layout::Sharding::None,
            Sharding::Zero1 => layout::Sharding::Zero1,
            Sharding::Zero2 => layout::Sharding::Zero2,
            Sharding::Zero3 => layout::Sharding::Zero3,
        }),
    }
}

fn recompute(recompute: Recompute) -> layout::Recompute {
    match recompute {
        Recompute::None => layout::Recompute::None,
        Recompute::Selective => layout::Recompute::Selective,
        Recompute::Half => layout::Recompute::Half,
        Recompute::Full => layout::Recompute::Full,
    }
}

/// Degrees that cannot divide are refused by name, with the nearest that can.
fn check_fixed(request: &Request) -> Result<(), Failure> {
    let fixed = request.fixed;
    let asked = [
        ("tp", fixed.tensor),
        ("pp", fixed.pipeline),
        ("cp", fixed.context),
        ("ep", fixed.expert),
        ("micro-batch", fixed.micro_batch),
        ("interleave", fixed.interleave),
    ];
    for (flag, value) in asked {
        if value == Some(0) {
            return Err(Failure::new(format!(
                "`--{flag}` is 0; it must be at least 1"
            )));
        }
    }
    if let Some(context) = fixed.context.filter(|context| *context > 1) {
        let power = context.is_power_of_two() && context <= MOST_CONTEXT;
        if !power {
            return Err(Failure::new(format!(
                "`--cp` is {context}; it must be a power of 2 up to {MOST_CONTEXT}"
            )));
        }
        if !request.sequence.is_multiple_of(2 * context) {
            return Err(Failure::new(format!(
                "`--cp {context}` cuts a sequence into {} parts, which do not divide {} tokens",
                2 * context,
                request.sequence
            )));
        }
    }
    let gpus = request.cluster.gpus;
    let mut rest = gpus;
    for (flag, value) in [
        ("tp", fixed.tensor),
        ("pp", fixed.pipeline),
        ("cp", fixed.context),
    ] {
        let value = value.unwrap_or(1);
        if !rest.is_multiple_of(value) {
            return Err(Failure::new(format!(
                "`--{flag} {value}` does not divide {rest} GPUs; the nearest divisor is {}",
                nearest_divisor(rest, value)
            )));
        }
        rest /= value;
    }
    if fixed
        .tensor
        .is_some_and(|tensor| tensor > request.cluster.gpu.domain)
    {
        return Err(Failure::new(format!(
            "`--tp {}` is more than the {} GPUs that the link joins",
            fixed.tensor.unwrap_or(1),
            request.cluster.gpu.domain
        )));
    }
    let layout = Layout {
        tensor: fixed.tensor.unwrap_or(1),
        pipeline: fixed.pipeline.unwrap_or(1),
        context: fixed.context.unwrap_or(1),
        expert: fixed.expert.unwrap_or(1),
        data: rest,
        ..Layout::single()
    };
    layout
        .check(&request.shape, gpus)
        .map_err(|error| Failure::new(error.to_string()))
}

/// Tokens to train.
pub(super) fn tokens(args: &Plan, request: &Request) -> Result<f64, Failure> {
    let Some(text) = &args.goal.tokens else {
        if finetunes(args) {
            return Ok(FINETUNE_TOKENS);
        }
        return Ok(20.0 * request.shape.parameters());
    };
    let bad = || {
        Failure::new(format!("`--tokens` is `{text}`; it must be a number"))
            .hint("use a number such as `15T`, `300B` or `2000000000`")
    };
    let (digits, times) = match text.char_indices().next_back() {
        Some((at, 'T' | 't')) => (text.split_at(at).0, 1e12),
        Some((at, 'B' | 'b' | 'G' | 'g')) => (text.split_at(at).0, 1e9),
        Some((at, 'M' | 'm')) => (text.split_at(at).0, 1e6),
        _ => (text.as_str(), 1.0),
    };
    let tokens = digits.parse::<f64>().map_err(|_| bad())? * times;
    if tokens.is_finite() && tokens >= 1.0 {
        Ok(tokens)
    } else {
        Err(bad())
    }
}

/// Failures by component: Llama 3's, with what is given in their place.
pub(super) fn rates(with: &PlanRecovery) -> Result<Vec<Component>, Failure> {
    if let Some(rate) = with.failures {
        let rate = positive("--failures", rate)?;
        return Ok(vec![Component { name: "all", rate }]);
    }
    let mut rates = LLAMA3.to_vec();
    for (name, rate) in &with.failure {
        let Some(component) = rates.iter_mut().find(|component| component.name == name) else {
            let known = LLAMA3.iter().map(|component| component.name);
            let nearest = hardware::closest(name, known);
            return Err(Failure::new(format!(
                "unknown component `{name}`; the nearest is `{nearest}`"
            )));
        };
        component.rate = *rate;
    }
    positive(
        "--failure",
        rates.iter().map(|component| component.rate).sum(),
    )?;
    Ok(rates)
}

pub(super) fn saving(saving: Saving) -> recovery::Saving {
    match saving {
        Saving::Blocking => recovery::Saving::Blocking,
        Saving::Asynchronous => recovery::Saving::Asynchronous,
        Saving::InMemory => recovery::Saving::InMemory,
    }
}
