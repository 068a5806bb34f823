//! The templates: their names, versions and texts.
//!
//! Invariant: a released version never changes; a change to a template is its next version.

use super::Refusal;
use crate::{
    lint::Profile,
    spec::{Kind, nearest},
};

/// One version of one template.
#[derive(Debug)]
pub struct Template {
    /// Its name, such as `pytorch-ddp`.
    pub name: &'static str,
    /// Its version, from 1.
    pub version: u32,
    /// The job it makes.
    pub kind: Kind,
    /// What it is for, in one line without a full stop.
    pub summary: &'static str,
    pub(super) variant: Variant,
    /// What the ranks run by default.
    pub(super) command: &'static [&'static str],
    demo: Size,
    production: Size,
    pub(super) text: &'static str,
}

/// How large a job is by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Pods that train, the master or chief among them.
    pub workers: u32,
    /// GPUs of each.
    pub gpus: u32,
}

/// What sets a template apart from others of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// Nothing.
    Plain,
    /// The model is divided among the ranks, which gather it piece by piece.
    Sharded,
    /// Workers come and go.
    Elastic,
    /// The ranks are divided along several axes.
    Parallel,
    /// `DeepSpeed`, with its configuration beside the job.
    DeepSpeed,
    /// Parameter servers hold the weights.
    Servers,
    /// Collective, of a kind whose pods would restart alone.
    Gang,
    /// Runs the trainer of this program, which uses no GPU.
    BuiltIn,
}

impl Template {
    /// Name and version, as an annotation keeps them.
    pub fn id(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// The size of the job by default.
    pub fn size(&self, profile: Profile) -> Size {
        match profile {
            Profile::Demo => self.demo,
            Profile::Production => self.production,
        }
    }
}

const fn size(workers: u32, gpus: u32) -> Size {
    Size { workers, gpus }
}

const TORCHRUN: &[&str] = &["torchrun", "/app/train.py"];
const PYTHON: &[&str] = &["python", "/app/train.py"];

static TEMPLATES: [Template; 12] = [
    Template {
        name: "pytorch-ddp",
        version: 1,
        kind: Kind::PyTorch,
        summary: "PyTorch, data-parallel: every rank holds the whole model",
        variant: Variant::Plain,
        command: TORCHRUN,
        demo: size(2, 0),
        production: size(4, 8),
        text: include_str!("v1/pytorch-ddp.yaml"),
    },
    Template {
        name: "pytorch-fsdp",
        version: 1,
        kind: Kind::PyTorch,
        summary: "PyTorch, fully sharded: every rank holds a part of the model and of the optimizer",
        variant: Variant::Sharded,
        command: TORCHRUN,
        demo: size(2, 1),
        production: size(4, 8),
        text: include_str!("v1/pytorch-fsdp.yaml"),
    },
    Template {
        name: "pytorch-elastic",
        version: 1,
        kind: Kind::PyTorch,
        summary: "PyTorch, elastic: training continues with the workers that are left",
        variant: Variant::Elastic,
        command: TORCHRUN,
        demo: size(2, 0),
        production: size(4, 8),
        text: include_str!("v1/pytorch-elastic.yaml"),
    },
    Template {
        name: "deepspeed-mpi",
        version: 1,
        kind: Kind::MpiV2,
        summary: "DeepSpeed with ZeRO, ranks started by MPI",
        variant: Variant::DeepSpeed,
        command: &[
            "python",
            "/app/train.py",
            "--deepspeed_config",
            "/etc/deepspeed/config.json",
        ],
        demo: size(2, 1),
        production: size(4, 8),
        text: include_str!("v1/deepspeed-mpi.yaml"),
    },
    Template {
        name: "horovod",
        version: 1,
        kind: Kind::MpiV2,
        summary: "Horovod, ranks started by MPI",
        variant: Variant::Plain,
        command: PYTHON,
        demo: size(2, 0),
        production: size(4, 8),
        text: include_str!("v1/horovod.yaml"),
    },
    Template {
        name: "tf-multiworker",
        version: 1,
        kind: Kind::Tf,
        summary: "TensorFlow, MultiWorkerMirroredStrategy: all workers step together",
        variant: Variant::Gang,
        command: PYTHON,
        demo: size(2, 0),
        production: size(4, 8),
        text: include_str!("v1/tf-multiworker.yaml"),
    },
    Template {
        name: "tf-ps",
        version: 1,
        kind: Kind::Tf,
        summary: "TensorFlow, ParameterServerStrategy: servers hold the weights, workers step on their own",
        variant: Variant::Servers,
        command: PYTHON,
        demo: size(2, 0),
        production: size(4, 1),
        text: include_str!("v1/tf-ps.yaml"),
    },
    Template {
        name: "jax",
        version: 1,
        kind: Kind::Jax,
        summary: "JAX on several hosts, one process for each pod",
        variant: Variant::Plain,
        command: PYTHON,
        demo: size(2, 0),
        production: size(4, 8),
        text: include_str!("v1/jax.yaml"),
    },
    Template {
        name: "paddle",
        version: 1,
        kind: Kind::Paddle,
        summary: "PaddlePaddle, collective",
        variant: Variant::Plain,
        command: &["python", "-m", "paddle.distributed.launch", "/app/train.py"],
        demo: size(2, 0),
        production: size(4, 8),
        text: include_str!("v1/paddle.yaml"),
    },
    Template {
        name: "xgboost",
        version: 1,
        kind: Kind::XgBoost,
        summary: "XGBoost or LightGBM on CPUs, the data divided among the ranks",
        variant: Variant::Gang,
        command: PYTHON,
        demo: size(2, 0),
        production: size(4, 0),
        text: include_str!("v1/xgboost.yaml"),
    },
    Template {
        name: "megatron-3d",
        version: 1,
        kind: Kind::PyTorch,
        summary: "Megatron-LM, divided by tensor, pipeline and data",
        variant: Variant::Parallel,
        command: &["torchrun", "/app/pretrain_gpt.py"],
        demo: size(2, 2),
        production: size(4, 8),
        text: include_str!("v1/megatron-3d.yaml"),
    },
    Template {
        name: "quickstart",
        version: 1,
        kind: Kind::PyTorch,
        summary: "Trains as it is: hand-written digits, with a trainer that is built in and needs no framework",
        variant: Variant::BuiltIn,
        command: &["trainyard", "smoke-trainer", "--step-delay=10"],
        demo: size(4, 0),
        production: size(4, 0),
        text: include_str!("v1/quickstart.yaml"),
    },
];

/// What several texts say.
pub(super) fn part(name: &str) -> Option<&'static str> {
    Some(match name {
        "claim" => include_str!("v1/parts/claim.yaml"),
        "command" => include_str!("v1/parts/command.yaml"),
        "env" => include_str!("v1/parts/env.yaml"),
        "header" => include_str!("v1/parts/header.yaml"),
        "image" => include_str!("v1/parts/image.yaml"),
        "metadata" => include_str!("v1/parts/metadata.yaml"),
        "mounts" => include_str!("v1/parts/mounts.yaml"),
        "mpi" => include_str!("v1/parts/mpi.yaml"),
        "pod" => include_str!("v1/parts/pod.yaml"),
        "pytorch" => include_str!("v1/parts/pytorch.yaml"),
        "resources" => include_str!("v1/parts/resources.yaml"),
        "restart" => include_str!("v1/parts/restart.yaml"),
        "run-policy" => include_str!("v1/parts/run-policy.yaml"),
        "volumes" => include_str!("v1/parts/volumes.yaml"),
        _ => return None,
    })
}

/// The newest version of every template.
pub fn all() -> &'static [Template] {
    &TEMPLATES
}

/// The template called `name`, or the version of it that `name@version` says.
pub fn find(name: &str) -> Result<&'static Template, Refusal> {
    let (name, version) = match name.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (name, None),
    };
    let names = || all().iter().map(|template| template.name);
    let Some(template) = all().iter().find(|template| template.name == name) else {
        let hint = match nearest(name, names()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "`trainyard new --list` shows all of them".to_owned(),
        };
        return Err(Refusal::new(format!("unknown template `{name}`")).with_hint(hint));
    };
    match version {
        Some(version) if version.parse() != Ok(template.version) => Err(Refusal::new(format!(
            "the template `{name}` has no version `{version}`, only {}",
            template.version
        ))
        .with_hint(format!("write `{}`", template.id()))),
        _ => Ok(template),
    }
}
