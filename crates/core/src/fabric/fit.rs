//! A job with what its fabric adds to every pod.
//!
//! Owns the merge: what is added, and what the user has set otherwise and keeps. The whole of it
//! happens to the templates of the job, so that placement counts the devices, the linter sees the
//! interfaces, and every framework launches the same pods.
//!
//! Invariant: fitting a job that is fitted already adds nothing.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{
    api::core::v1::{Container, EmptyDirVolumeSource, EnvVar, PodSpec, Volume, VolumeMount},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    Fabric, FabricSpec, NETWORKS,
    attachment::{self, Attachment, attachments},
    forward::forward,
};
use crate::{
    quantity,
    spec::{Framework, Job, MpiImplementation, Role, RoleSpec, annotation, holds_ranks},
};

/// Where the memory that processes of a pod share is.
const SHM_PATH: &str = "/dev/shm";
/// The volume that is added for it.
const SHM_VOLUME: &str = "trainyard-shm";

/// A job as its fabric has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The job.
    pub job: Job,
    /// What became of each role.
    pub roles: BTreeMap<Role, RoleFitting>,
}

/// What became of the pods of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleFitting {
    /// What was added, in words.
    pub added: Vec<String>,
    /// What the user set otherwise, and keeps.
    pub disagreements: Vec<Disagreement>,
    /// What could not be added, and why.
    pub left_out: Vec<String>,
}

/// Something that the user and the fabric say differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// What it is about.
    pub setting: Setting,
    /// What the user says, which holds.
    pub stated: String,
    /// What the fabric says.
    pub fabric: String,
}

/// What the user and the fabric can say differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A variable of the training container.
    Variable(String),
    /// The variable that `mpirun` forwards under this name.
    Forwarded(String),
    /// The interface of the network that the gradients travel on.
    Interface,
    /// A resource of the training container.
    Resource(String),
    /// The size of `/dev/shm`.
    SharedMemory,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "variable `{name}`"),
            Self::Forwarded(name) => write!(f, "`-x {name}`"),
            Self::Interface => f.write_str("the interface of its network"),
            Self::Resource(name) => write!(f, "resource `{name}`"),
            Self::SharedMemory => write!(f, "`{SHM_PATH}`"),
        }
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            setting,
            stated,
            fabric,
        } = self;
        write!(f, "{setting} is `{stated}`, the fabric has `{fabric}`")
    }
}

impl Fitted {
    /// What was added, in one sentence; roles with the same additions are named together.
    pub fn added(&self) -> Option<String> {
        self.in_words(|role| role.added.clone())
    }

    /// What the user has set otherwise and what could not be added, in one sentence.
    pub fn objections(&self) -> Option<String> {
        self.in_words(|role| {
            let kept = role.disagreements.iter().map(ToString::to_string);
            kept.chain(role.left_out.iter().cloned()).collect()
        })
    }

    fn in_words(&self, words: impl Fn(&RoleFitting) -> Vec<String>) -> Option<String> {
        let mut grouped: Vec<(Vec<String>, Vec<&'static str>)> = Vec::new();
        for (role, fitting) in &self.roles {
            let words = words(fitting);
            if words.is_empty() {
                continue;
            }
            match grouped.iter_mut().find(|(known, _)| *known == words) {
                Some((_, roles)) => roles.push(role.name()),
                None => grouped.push((words, vec![role.name()])),
            }
        }
        let parts: Vec<String> = grouped
            .into_iter()
            .map(|(words, roles)| format!("{}: {}", roles.join(", "), words.join(", ")))
            .collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// `job` with what `fabric` adds to its pods.
pub fn fit(job: &Job, fabric: &Fabric) -> Fitted {
    fit_each(job, |role, spec, holds_ranks, fitting| {
        let interface = if holds_ranks {
            attach(spec, fabric, job.namespace.as_str(), fitting)
        } else {
            fabric.spec.interface.clone()
        };
        let variables = fabric.spec.variables_on(interface.as_deref());
        mark(spec, &fabric.name);
        let Some((pod, trainer)) = trainer(job, role, spec) else {
            return;
        };
        let container = &mut pod.containers[trainer];
        set_variables(container, &variables, fitting);
        if holds_ranks {
            reserve(container, &fabric.spec, fitting);
            share_memory(pod, trainer, &fabric.spec, fitting);
        }
        if role == Role::Launcher && is_open_mpi(job) {
            hand_on(&mut pod.containers[trainer], &variables, fitting);
        }
    })
}

/// `job` with what of `fabric` makes sense without its network: the variables that do not name the
/// interface. What is left out is reported.
pub fn fit_locally(job: &Job, fabric: &Fabric) -> Fitted {
    let names_interface = |value: &str| {
        let interface = fabric.spec.interface.as_deref();
        interface.is_some_and(|name| value.trim_start_matches('=') == name)
    };
    let spec = &fabric.spec;
    let (on_interface, variables): (BTreeMap<String, String>, _) = spec
        .variables_on(spec.interface.as_deref())
        .into_iter()
        .partition(|(_, value)| names_interface(value));
    fit_each(job, |role, role_spec, holds_ranks, fitting| {
        if holds_ranks {
            let networks = spec.attachments.iter().flatten();
            let networks = networks.map(|name| format!("the network `{name}`"));
            let device = spec
                .device()
                .map(|(name, count)| format!("`{name}: {count}`"));
            let named = on_interface.keys().map(|name| format!("variable `{name}`"));
            fitting.left_out = networks.chain(device).chain(named).collect();
        }
        if let Some((pod, trainer)) = trainer(job, role, role_spec) {
            set_variables(&mut pod.containers[trainer], &variables, fitting);
            if role == Role::Launcher && is_open_mpi(job) {
                hand_on(&mut pod.containers[trainer], &variables, fitting);
            }
        }
    })
}

fn fit_each(job: &Job, fit: impl Fn(Role, &mut RoleSpec, bool, &mut RoleFitting)) -> Fitted {
    let mut fitted = job.clone();
    let mut roles = BTreeMap::new();
    for (role, spec) in &mut fitted.roles {
        let holds_ranks = holds_ranks(job, *role);
        let mut fitting = RoleFitting::default();
        fit(*role, spec, holds_ranks, &mut fitting);
        roles.insert(*role, fitting);
    }
    Fitted { job: fitted, roles }
}

/// The pod of `spec` and the index of the container that trains in it.
fn trainer<'a>(job: &Job, role: Role, spec: &'a mut RoleSpec) -> Option<(&'a mut PodSpec, usize)> {
    let index = job.training_container(role)?;
    let pod = spec.template.spec.as_mut()?;
    (index < pod.containers.len()).then_some((pod, index))
}

/// Labels the pod with its fabric.
fn mark(spec: &mut RoleSpec, name: &str) {
    let metadata = spec.template.metadata.get_or_insert_default();
    let annotations = metadata.annotations.get_or_insert_default();
    annotations
        .entry(annotation::FABRIC.to_owned())
        .or_insert_with(|| name.to_owned());
}

/// Attaches the pod to the networks; the interface that carries the gradients.
fn attach(
    spec: &mut RoleSpec,
    fabric: &Fabric,
    namespace: &str,
    fitting: &mut RoleFitting,
) -> Option<String> {
    let wanted: Vec<Attachment> = fabric
        .spec
        .attachments
        .iter()
        .flatten()
        .map(|text| Attachment::parse(text))
        .collect();
    let interface = fabric.spec.interface.clone();
    if wanted.is_empty() {
        return interface;
    }
    let pod = spec.template.spec.as_ref();
    if pod.is_some_and(|pod| pod.host_network == Some(true)) {
        let why = "no network: the pod uses the host network".to_owned();
        fitting.left_out.push(why);
        return interface;
    }
    let metadata = spec.template.metadata.get_or_insert_default();
    let annotations = metadata.annotations.get_or_insert_default();
    let text = annotations.get(NETWORKS).cloned().unwrap_or_default();
    let own = attachments(&text);
    let mut taken: Vec<String> = own
        .iter()
        .enumerate()
        .map(|(index, one)| one.interface_at(index))
        .collect();

    // The first network whose interface is not stated carries the gradients.
    let carrier = wanted.iter().position(|one| match &interface {
        Some(name) => one.interface.as_ref().is_none_or(|own| own == name),
        None => false,
    });
    let mut gradients_on = None;
    let mut more = Vec::new();
    for (index, mut one) in wanted.into_iter().enumerate() {
        let is_carrier = carrier == Some(index);
        if let Some(at) = own.iter().position(|known| known.is(&one, namespace)) {
            if is_carrier {
                gradients_on = taken.get(at).cloned();
            }
            continue;
        }
        if is_carrier {
            one.interface.clone_from(&interface);
        }
        if one
            .interface
            .as_ref()
            .is_some_and(|name| taken.contains(name))
        {
            one.interface = None;
        }
        let name = one.interface_at(own.len() + more.len());
        if is_carrier {
            gradients_on = Some(name.clone());
        }
        taken.push(name);
        more.push(one);
    }
    if !more.is_empty() {
        let Some(joined) = attachment::extend(&text, &more) else {
            fitting
                .left_out
                .push(format!("no network: `{NETWORKS}` is not valid JSON"));
            return interface;
        };
        fitting
            .added
            .push(format!("annotation `{NETWORKS}: {joined}`"));
        annotations.insert(NETWORKS.to_owned(), joined);
    }
    if let (Some(found), Some(wanted)) = (&gradients_on, &interface)
        && found != wanted
    {
        fitting.disagreements.push(Disagreement {
            setting: Setting::Interface,
            stated: found.clone(),
            fabric: wanted.clone(),
        });
    }
    gradients_on.or(interface)
}

fn set_variables(
    container: &mut Container,
    variables: &BTreeMap<String, String>,
    fitting: &mut RoleFitting,
) {
    for (name, value) in variables {
        let env = container.env.get_or_insert_default();
        // The last of several with one name counts.
        if let Some(known) = env.iter().rfind(|known| known.name == *name) {
            let stated = known.value.as_deref().unwrap_or("(from valueFrom)");
            if stated != value {
                fitting.disagreements.push(Disagreement {
                    setting: Setting::Variable(name.clone()),
                    stated: stated.to_owned(),
                    fabric: value.clone(),
                });
            }
            continue;
        }
        fitting.added.push(format!("variable `{name}={value}`"));
        env.push(EnvVar {
            name: name.clone(),
            value: Some(value.clone()),
            value_from: None,
        });
    }
    if container.env.as_ref().is_some_and(Vec::is_empty) {
        container.env = None;
    }
}

/// Asks for the devices. A request follows its limit, so the limit is enough.
fn reserve(container: &mut Container, spec: &FabricSpec, fitting: &mut RoleFitting) {
    let Some((name, count)) = spec.device() else {
        return;
    };
    let resources = container.resources.get_or_insert_default();
    let stated = [&resources.limits, &resources.requests]
        .into_iter()
        .flatten()
        .find_map(|amounts| amounts.get(name));
    if let Some(stated) = stated {
        if quantity::units(stated) != u64::try_from(count).ok() {
            fitting.disagreements.push(Disagreement {
                setting: Setting::Resource(name.to_owned()),
                stated: stated.0.clone(),
                fabric: count.to_string(),
            });
        }
        return;
    }
    fitting.added.push(format!("resource `{name}: {count}`"));
    let limits = resources.limits.get_or_insert_default();
    limits.insert(name.to_owned(), Quantity(count.to_string()));
}

fn share_memory(pod: &mut PodSpec, trainer: usize, spec: &FabricSpec, fitting: &mut RoleFitting) {
    let Some(size) = &spec.shm else { return };
    let container = &mut pod.containers[trainer];
    let mounts = container.volume_mounts.get_or_insert_default();
    let is_shm = |mount: &&VolumeMount| mount.mount_path.trim_end_matches('/') == SHM_PATH;
    if let Some(mount) = mounts.iter().find(is_shm) {
        let volume = pod.volumes.iter().flatten();
        let volume = volume.into_iter().find(|volume| volume.name == mount.name);
        let folder = volume.and_then(|volume| volume.empty_dir.as_ref());
        let limit = folder.and_then(|folder| folder.size_limit.as_ref());
        if let Some(limit) = limit
            && quantity::milli(limit) < quantity::milli(size)
        {
            fitting.disagreements.push(Disagreement {
                setting: Setting::SharedMemory,
                stated: limit.0.clone(),
                fabric: size.0.clone(),
            });
        }
        return;
    }
    fitting
        .added
        .push(format!("`{SHM_PATH}` of {} in memory", size.0));
    mounts.push(VolumeMount {
        name: SHM_VOLUME.to_owned(),
        mount_path: SHM_PATH.to_owned(),
        ..VolumeMount::default()
    });
    pod.volumes.get_or_insert_default().push(Volume {
        name: SHM_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(size.clone()),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    });
}

/// Open MPI forwards only the named variables; the others forward all of them.
fn is_open_mpi(job: &Job) -> bool {
    match &job.framework {
        Framework::MpiV1(_) => true,
        Framework::MpiV2(own) => own.implementation == MpiImplementation::OpenMpi,
        _ => false,
    }
}

fn hand_on(
    container: &mut Container,
    variables: &BTreeMap<String, String>,
    fitting: &mut RoleFitting,
) {
    let forwarded = forward(container, variables);
    for name in &forwarded.added {
        fitting.added.push(format!("`-x {name}` for `mpirun`"));
    }
    for (name, stated) in forwarded.kept {
        let fabric = variables.get(&name).cloned().unwrap_or_default();
        fitting.disagreements.push(Disagreement {
            setting: Setting::Forwarded(name),
            stated,
            fabric,
        });
    }
    if !forwarded.missed.is_empty() {
        let names = forwarded.missed.join("`, `-x ");
        fitting.left_out.push(format!(
            "`-x {names}`: no item of the command is `mpirun`, add them where it is called"
        ));
    }
}
