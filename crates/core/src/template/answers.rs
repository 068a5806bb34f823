//! What is asked about a job, and how an answer is checked.
//!
//! Flags and answers on a terminal are both checked here, so both are refused in the same words.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{
    Refusal, Template,
    catalogue::Variant,
    words::{join, split},
};
use crate::{
    lint::Profile,
    quantity,
    spec::{JobName, Namespace, Parallelism},
};

/// The image where none is named.
const PLACEHOLDER: &str = "registry.example.com/team/train:1.0.0";
/// The image of this program, which holds the trainer that is built in.
const OWN_IMAGE: &str = concat!("trainyard:", env!("CARGO_PKG_VERSION"));
/// Size of the checkpoint volume by default.
const STORAGE: &str = "1Ti";
/// More than any node has; what is worked out from it stays far from overflow.
const MAX_GPUS: u32 = 64;
/// Longer than any reference that a registry takes.
const MAX_IMAGE: usize = 512;
/// Longest name of an object.
const MAX_NAME: usize = 253;

/// One thing that can be said about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The name of the job.
    Name,
    /// The image of every pod.
    Image,
    /// What the ranks run.
    Command,
    /// Pods that train.
    Workers,
    /// GPUs of each.
    Gpus,
    /// The fewest workers of an elastic job.
    LeastWorkers,
    /// Along which axes the ranks are divided.
    Parallelism,
    /// The namespace of the job.
    Namespace,
    /// The class of the claim for checkpoints.
    StorageClass,
    /// The size of that claim.
    Storage,
}

impl Question {
    /// Every question, in the order in which they are asked.
    pub const ALL: [Self; 10] = [
        Self::Name,
        Self::Image,
        Self::Command,
        Self::Workers,
        Self::Gpus,
        Self::LeastWorkers,
        Self::Parallelism,
        Self::Namespace,
        Self::StorageClass,
        Self::Storage,
    ];

    /// What a person is asked.
    pub fn prompt(self) -> &'static str {
        match self {
            Self::Name => "name of the job",
            Self::Image => "image, with a version",
            Self::Command => "command of every rank",
            Self::Workers => "pods that train",
            Self::Gpus => "GPUs of each pod",
            Self::LeastWorkers => "fewest pods to continue with",
            Self::Parallelism => "parallelism",
            Self::Namespace => "namespace",
            Self::StorageClass => "storage class for checkpoints",
            Self::Storage => "checkpoint volume size",
        }
    }
}

/// The answers about a job; all else has its default.
#[derive(Clone, Debug)]
pub struct Answers {
    pub(super) template: &'static Template,
    pub(super) profile: Profile,
    pub(super) name: JobName,
    pub(super) image: Option<String>,
    pub(super) command: Option<Vec<String>>,
    pub(super) workers: u32,
    pub(super) gpus: u32,
    least_workers: Option<u32>,
    parallelism: Option<Parallelism>,
    pub(super) namespace: Option<Namespace>,
    pub(super) storage_class: Option<String>,
    pub(super) storage: String,
    pub(super) planned: Option<Planned>,
}

/// What a plan has worked out for a job of several axes, instead of what the template would guess.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What is expected of the job: lines for the comment at the head of the file.
    pub heading: Vec<String>,
    /// Arguments of the program, except those about checkpoints.
    pub arguments: Vec<String>,
    /// Steps between two checkpoints.
    pub save_interval: u64,
    /// Seconds that a pod needs to save.
    pub grace: u64,
    /// Hours between two failures of machines.
    pub hours_between_failures: f64,
    /// Failures of machines that nearly every run stays below.
    pub budget: u32,
    /// Whether data ranks share gradients or weights (Megatron-FSDP).
    pub fully_sharded: bool,
}

impl Answers {
    /// The defaults of `template` for `profile`.
    pub fn new(template: &'static Template, profile: Profile) -> Self {
        let size = template.size(profile);
        Self {
            template,
            profile,
            name: JobName::parse(template.name).expect("templates are named like jobs"),
            image: None,
            command: None,
            workers: size.workers,
            gpus: size.gpus,
            least_workers: None,
            parallelism: None,
            namespace: None,
            storage_class: None,
            storage: STORAGE.to_owned(),
            planned: None,
        }
    }

    /// Whether the answer would change anything.
    pub fn applies(&self, question: Question) -> bool {
        match question {
            Question::LeastWorkers => self.template.variant == Variant::Elastic,
            Question::Parallelism => self.template.variant == Variant::Parallel,
            Question::StorageClass | Question::Storage => self.profile == Profile::Production,
            Question::Gpus => !self.is_built_in(),
            _ => true,
        }
    }

    /// The default answer; empty where there is none.
    pub fn current(&self, question: Question) -> String {
        match question {
            Question::Name => self.name.to_string(),
            Question::Image => self.image().to_owned(),
            Question::Command => join(&self.command()),
            Question::Workers => self.workers.to_string(),
            Question::Gpus => self.gpus.to_string(),
            Question::LeastWorkers => self.least_workers().to_string(),
            Question::Parallelism => self.axes().to_string(),
            Question::Namespace => {
                let name = self.namespace.as_ref().map(Namespace::as_str);
                name.unwrap_or_default().to_owned()
            }
            Question::StorageClass => self.storage_class.clone().unwrap_or_default(),
            Question::Storage => self.storage.clone(),
        }
    }

    /// Takes an answer. Later ones are checked against earlier ones, so they come in the order of
    /// [`Question::ALL`].
    pub fn set(&mut self, question: Question, text: &str) -> Result<(), Refusal> {
        let text = text.trim();
        let shown = shown(text);
        if !self.applies(question) {
            let (template, profile) = (self.template.name, self.profile.name());
            return Err(Refusal::new(format!(
                "`{template}` for {profile} has no {}, found `{shown}`",
                question.prompt()
            )));
        }
        match question {
            Question::Name => {
                self.name = JobName::parse(text).map_err(|error| {
                    Refusal::new(format!("invalid job name `{shown}`: {error}"))
                })?;
            }
            Question::Image => self.image = Some(image(text)?),
            Question::Command => {
                let words = split(text).map_err(|error| {
                    Refusal::new(format!("`{shown}` cannot be the command: {error}"))
                })?;
                self.command = Some(words);
            }
            Question::Workers => self.workers = count(text, 1, u32::MAX, "pods")?,
            Question::Gpus => self.gpus = count(text, 0, MAX_GPUS, "GPUs")?,
            Question::LeastWorkers => {
                self.least_workers = Some(count(text, 1, self.workers, "pods")?);
            }
            Question::Parallelism => {
                let axes = Parallelism::parse(text)
                    .map_err(|error| Refusal::new(format!("the parallelism {error}")))?;
                let ranks = self.ranks();
                if axes.for_ranks(ranks).is_none() {
                    return Err(Refusal::new(format!(
                        "`{axes}` makes {} ranks, the job has {ranks}",
                        axes.ranks()
                    ))
                    .with_hint("leave out `dp`, which is what is left, and choose the others so that they divide the ranks".to_owned()));
                }
                self.parallelism = Some(axes);
            }
            Question::Namespace => {
                let name = Namespace::parse(text).map_err(|error| {
                    Refusal::new(format!("invalid namespace name `{shown}`: {error}"))
                })?;
                self.namespace = Some(name);
            }
            Question::StorageClass => self.storage_class = Some(object_name(text)?),
            Question::Storage => self.storage = storage(text)?,
        }
        Ok(())
    }

    /// Takes what a plan has worked out.
    pub fn plan(&mut self, planned: Planned) {
        self.planned = Some(planned);
    }

    pub(super) fn image(&self) -> &str {
        let default = if self.is_built_in() {
            OWN_IMAGE
        } else {
            PLACEHOLDER
        };
        self.image.as_deref().unwrap_or(default)
    }

    /// Whether the defaults train, so that nothing is a placeholder.
    pub(super) fn is_built_in(&self) -> bool {
        self.template.variant == Variant::BuiltIn
    }

    pub(super) fn command(&self) -> Vec<String> {
        let default = || self.template.command.iter().map(ToString::to_string);
        self.command.clone().unwrap_or_else(|| default().collect())
    }

    /// Ranks of one pod.
    pub(super) fn processes(&self) -> u32 {
        self.gpus.max(1)
    }

    fn ranks(&self) -> u64 {
        u64::from(self.workers) * u64::from(self.processes())
    }

    /// Half of the workers: with fewer, a run is too slow to be worth its machines.
    pub(super) fn least_workers(&self) -> u32 {
        self.least_workers
            .unwrap_or_else(|| self.workers.div_ceil(2))
    }

    /// Without an answer the parts of a layer fill a node, because they talk most, and two stages follow
    /// each other where the pods can be halved.
    pub(super) fn axes(&self) -> Parallelism {
        let divides = |whole: u32| move |part: &u32| whole.is_multiple_of(*part);
        let tensor = [8, 4, 2, 1].into_iter().find(divides(self.processes()));
        let pipeline = [2, 1].into_iter().find(divides(self.workers));
        let text = format!("tp={},pp={}", tensor.unwrap_or(1), pipeline.unwrap_or(1));
        let own = self.parallelism.clone();
        own.and_then(|axes| axes.for_ranks(self.ranks()))
            .or_else(|| Parallelism::parse(&text).ok()?.for_ranks(self.ranks()))
            .expect("a divisor of the processes times one of the pods divides the ranks")
    }
}

/// An answer as a message may show it: on one line, and not longer than it needs to be.
fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let mut shown: String = text
        .chars()
        .map(|letter| {
            if letter.is_control() {
                '\u{fffd}'
            } else {
                letter
            }
        })
        .take(MOST)
        .collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}

fn count(text: &str, least: u32, most: u32, noun: &str) -> Result<u32, Refusal> {
    let number = text.parse().ok();
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| {
            let range = if most == u32::MAX {
                format!("{least} or more")
            } else {
                format!("{least} to {most}")
            };
            Refusal::new(format!(
                "`{}` is not a number of {noun}, {range}",
                shown(text)
            ))
        })
}

fn image(text: &str) -> Result<String, Refusal> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-/:@".contains(letter);
    let starts = text.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    if let Some(found) = text.chars().find(|letter| !allowed(*letter)) {
        return Err(Refusal::new(format!(
            "invalid image name `{}`: it holds {found:?}",
            shown(text)
        )));
    }
    if !starts || text.len() > MAX_IMAGE {
        return Err(Refusal::new(format!(
            "invalid image name `{}`; expected something like `{PLACEHOLDER}`",
            shown(text)
        )));
    }
    Ok(text.to_owned())
}

/// A DNS subdomain, as most objects are named.
fn object_name(text: &str) -> Result<String, Refusal> {
    let label = |label: &str| Namespace::parse(label).is_ok();
    if text.len() <= MAX_NAME && text.split('.').all(label) {
        Ok(text.to_owned())
    } else {
        Err(Refusal::new(format!(
            "invalid storage class name `{}`: use lower-case letters, digits, `-` and `.`",
            shown(text)
        )))
    }
}

fn storage(text: &str) -> Result<String, Refusal> {
    let bytes = quantity::units(&Quantity(text.to_owned()));
    match bytes {
        Some(1..) => Ok(text.to_owned()),
        _ => Err(Refusal::new(format!(
            "invalid volume size `{}`; expected something like `{STORAGE}`",
            shown(text)
        ))),
    }
}
