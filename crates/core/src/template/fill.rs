//! From answers to the text of a file.

use super::{
    Answers, Refusal,
    catalogue::{self, Variant},
    text::{self, Values},
};
use crate::{
    finding::{Finding, Severity},
    lint::{self, Profile},
    plan::{
        layout::{Layout, Sharding},
        recovery::LLAMA3,
    },
    spec::{self, Axis, Kind, Parallelism},
};

/// Hours of a week, for which failures are counted.
const WEEK: f64 = 168.0;
/// The smallest restart budget of any job.
const LEAST_BUDGET: u32 = 10;

impl Answers {
    /// The file, commented; it has no error in its profile.
    pub fn write(&self) -> Result<String, Refusal> {
        let text = text::fill(self.template.text, &catalogue::part, &self.values())
            .expect("every template is put together by a test");
        let file = spec::read(text.as_bytes()).map_err(refusal)?;
        let findings = lint::review(&[&file], Some(self.profile)).concat();
        match findings
            .into_iter()
            .find(|finding| finding.severity == Severity::Error)
        {
            Some(error) => Err(refusal(error)),
            None => Ok(text),
        }
    }

    fn values(&self) -> Values {
        let mut values = Values::default();
        self.set_answers(&mut values);
        self.measure(&mut values);
        self.choose(&mut values);
        values
    }

    /// What was answered, as words of YAML.
    fn set_answers(&self, values: &mut Values) {
        let name = self.name.as_str();
        values.set("template", &self.template.id());
        values.set("summary", &self.template.summary);
        values.set("profile", &self.profile.name());
        values.set("name", &spec::yaml_word(name));
        values.set("claim", &spec::yaml_word(&format!("{name}-checkpoints")));
        values.set("config", &spec::yaml_word(&format!("{name}-deepspeed")));
        values.set("image", &spec::yaml_word(self.image()));
        values.set("storage", &spec::yaml_word(&self.storage));
        let words = |words: &[String]| words.iter().map(|word| spec::yaml_word(word)).collect();
        values.set_list("command", words(&self.command()));
        let placeholder = !self.is_built_in() && (self.image.is_none() || self.command.is_none());
        values.flag("placeholder", placeholder);
        values.flag("namespace", self.namespace.is_some());
        if let Some(namespace) = &self.namespace {
            values.set("namespace", &spec::yaml_word(namespace.as_str()));
        }
        values.flag("storage-class", self.storage_class.is_some());
        if let Some(class) = &self.storage_class {
            values.set("storage-class", &spec::yaml_word(class));
        }
        let parallel = self.template.variant == Variant::Parallel;
        values.flag("parallelism", parallel);
        let arguments = (parallel || self.is_built_in()) && self.command.is_none();
        values.flag("arguments", arguments);
        if parallel {
            let axes = self.axes();
            values.set("parallelism", &in_megatron_order(&axes));
            values.set_list("arguments", words(&self.megatron(&axes)));
            values.flag("tensor-parallel", self.one_connection());
        }
    }

    /// Numbers that follow from the answers.
    fn measure(&self, values: &mut Values) {
        let gpus = self.gpus;
        let production = self.profile == Profile::Production;
        let (cpus, memory, shared) = match (production, gpus) {
            (true, 0) => (8, 32, 8),
            (true, _) => (8 * gpus, 64 * gpus, 8 * gpus),
            (false, 0) => (1, 1, 1),
            (false, _) => (4 * gpus, 16 * gpus, 2 * gpus),
        };
        values.set("gpus", &gpus);
        values.set("has-gpus", &(gpus > 0));
        values.set("cpus", &cpus);
        values.set("memory", &memory);
        values.set("shared-memory-size", &shared);
        values.set("workers", &self.workers);
        values.set("others", &(self.workers - 1));
        values.set("least", &self.least_workers());
        values.set("processes", &self.processes());
        values.set("servers", &self.workers.div_ceil(2));
        values.set("server-cpus", &(if production { 8 } else { 1 }));
        values.set("server-memory", &(if production { 64 } else { 1 }));
        let whole_model = matches!(
            self.template.variant,
            Variant::Plain | Variant::Gang | Variant::BuiltIn
        );
        let grace = if whole_model { 120 } else { 300 };
        let planned = self.planned.as_ref();
        values.set("grace", &planned.map_or(grace, |planned| planned.grace));
        let failures = self.failures();
        values.set("all-gpus", &(u64::from(gpus) * u64::from(self.workers)));
        values.set("failures", &format!("{failures:.1}"));
        let whole_run = planned.map_or(0, |planned| planned.budget);
        values.set("budget", &budget(failures).max(whole_run));
        if let Some(planned) = planned {
            values.set_list("heading", planned.heading.clone());
            let hours = planned.hours_between_failures;
            values.set("failure-hours", &format!("{hours:.1}"));
        }
    }

    /// Which parts are shown.
    fn choose(&self, values: &mut Values) {
        let Self { template, gpus, .. } = self;
        let production = self.profile == Profile::Production;
        let has_gpus = *gpus > 0;
        let torch = template.kind == Kind::PyTorch;
        let is = |variant| template.variant == variant;
        let shared_memory = has_gpus || (production && torch);
        // The operator sets it for the other kinds.
        let unbuffered = template.kind == Kind::Tf;
        let variant = match template.variant {
            Variant::Elastic => true,
            Variant::Sharded => has_gpus,
            Variant::Parallel => self.one_connection(),
            _ => false,
        };
        for (flag, on) in [
            ("production", production),
            ("planned", self.planned.is_some()),
            ("gpus", has_gpus),
            ("several", self.workers > 1),
            ("gang", is(Variant::Gang)),
            ("elastic", is(Variant::Elastic)),
            ("sharded", is(Variant::Sharded)),
            ("deepspeed", is(Variant::DeepSpeed)),
            ("torch", torch),
            ("unbuffered", unbuffered),
            ("env", production || unbuffered || variant),
            ("shared-memory", shared_memory),
            (
                "mounts",
                shared_memory || production || is(Variant::DeepSpeed),
            ),
        ] {
            values.flag(flag, on);
        }
    }

    /// Failures of machines to expect in a week, as `trainyard lint` counts them.
    fn failures(&self) -> f64 {
        let rate: f64 = LLAMA3.iter().map(|component| component.rate).sum();
        f64::from(self.gpus) * f64::from(self.workers) * WEEK / 1_000.0 * rate
    }

    /// Whether Megatron-LM needs `CUDA_DEVICE_MAX_CONNECTIONS=1`: with tensor or context parallelism. Its FSDP needs more than
    /// one connection, or gathering weights would wait for products.
    fn one_connection(&self) -> bool {
        let axes = self.axes();
        let divided = axes.size(Axis::Tensor) > 1 || axes.size(Axis::Context) > 1;
        let fully = self.planned.as_ref().is_some_and(|it| it.fully_sharded);
        self.gpus > 0 && divided && !fully
    }

    /// The arguments of Megatron-LM.
    fn megatron(&self, axes: &Parallelism) -> Vec<String> {
        let production = self.profile == Profile::Production;
        let tensor = axes.size(Axis::Tensor);
        let mut words = match &self.planned {
            Some(planned) => planned.arguments.clone(),
            None => Layout {
                tensor,
                pipeline: axes.size(Axis::Pipeline),
                context: axes.size(Axis::Context),
                expert: axes.size(Axis::Expert),
                sequence_parallel: tensor > 1,
                sharding: if production {
                    Sharding::Zero1
                } else {
                    Sharding::None
                },
                ..Layout::single()
            }
            .megatron_arguments(1),
        };
        if production {
            let every = self.planned.as_ref().map_or(500, |it| it.save_interval);
            let save = "--save /checkpoints --load /checkpoints --save-interval";
            words.extend(save.split(' ').map(str::to_owned));
            words.push(every.to_string());
        }
        words
    }
}

/// Megatron-LM numbers its ranks so that pipeline stages are farthest apart.
fn in_megatron_order(axes: &Parallelism) -> String {
    let order = [
        Axis::Tensor,
        Axis::Context,
        Axis::Expert,
        Axis::Data,
        Axis::Pipeline,
    ];
    let sizes = order.map(|axis| format!("{}={}", axis.name(), axes.size(axis)));
    let stated = sizes.iter().filter(|size| !size.ends_with("=1"));
    let text = stated.cloned().collect::<Vec<_>>().join(",");
    if text.is_empty() {
        "dp=1".to_owned()
    } else {
        text
    }
}

/// Twice what is to be expected.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "no job has so many GPUs; a cast of a larger number saturates"
)]
fn budget(failures: f64) -> u32 {
    ((2.0 * failures).ceil() as u32).max(LEAST_BUDGET)
}

fn refusal(finding: Finding) -> Refusal {
    let message = format!("{} ({})", finding.message, finding.code);
    Refusal::new(message).with_hint(finding.hint)
}
