//! A job as a rule sees it: its pods with the numbers that matter, and the place of every field.

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec, Volume, VolumeMount};

use super::{
    Profile,
    command::{Command, base_name},
    companions::Companions,
};
use crate::{
    fabric::Fitted,
    quantity,
    spec::{Job, MpiTransport, Place, Role, RoleSpec, is_within},
};

/// One job with all that its files say around it.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) job: &'a Job,
    pub(super) root: Place<'a>,
    pub(super) companions: &'a Companions<'a>,
    /// What the fabric of the job did to it, where the files hold that fabric.
    pub(super) fitted: Option<&'a Fitted>,
    /// Whether only a part of a manifest is at hand, so that what is not there proves nothing.
    pub(super) part: bool,
    /// What the job is judged for.
    pub(super) profile: Profile,
    /// One for each role that wants pods.
    pub(super) pods: Vec<Pod<'a>>,
}

/// The pods of one role.
#[derive(Debug)]
pub(super) struct Pod<'a> {
    pub(super) role: Role,
    pub(super) replicas: u32,
    pub(super) template: &'a PodTemplateSpec,
    pub(super) spec: &'a PodSpec,
    /// The container that trains.
    pub(super) trainer: &'a Container,
    trainer_index: usize,
    /// Whether it is a pod of one of our jobs.
    in_job: bool,
    /// The place of the role.
    pub(super) place: Place<'a>,
    /// The place of the template, of its `spec`, and of the container where there is one by itself.
    pub(super) places: PodPlaces<'a>,
}

/// Where the parts of a pod stand in the file.
#[derive(Clone, Debug)]
pub(super) struct PodPlaces<'a> {
    pub(super) template: Place<'a>,
    pub(super) spec: Place<'a>,
    /// A part of a manifest that is one container and no list of them.
    pub(super) container: Option<Place<'a>>,
}

/// One pod template of an object that is not one of our jobs.
#[derive(Debug)]
pub(super) struct Template<'a> {
    pub(super) replicas: u32,
    pub(super) pod: PodTemplateSpec,
    pub(super) place: Place<'a>,
    pub(super) places: PodPlaces<'a>,
}

impl<'a> Scene<'a> {
    /// `job` as it is launched: with what its fabric added to it.
    pub(super) fn new(
        job: &'a Job,
        root: Place<'a>,
        companions: &'a Companions<'a>,
        fitted: Option<&'a Fitted>,
        profile: Profile,
    ) -> Self {
        let map = root.key("spec").key(job.kind.replica_map());
        let pod = |(role, spec): (&'a Role, &'a RoleSpec)| {
            let trainer_index = job.training_container(*role)?;
            let pod_spec = spec.template.spec.as_ref()?;
            // A role in the wrong case is read, too.
            let written = [role.name(), role.lower()];
            let key = written.iter().find(|key| map.key_span(key).is_some());
            let place = map.key(key.unwrap_or(&role.name()));
            let template = place.key("template");
            Some(Pod {
                role: *role,
                replicas: spec.replicas,
                template: &spec.template,
                spec: pod_spec,
                trainer: pod_spec.containers.get(trainer_index)?,
                trainer_index,
                in_job: true,
                places: PodPlaces {
                    spec: template.key("spec"),
                    template,
                    container: None,
                },
                place,
            })
        };
        let pods = job.roles.iter().filter_map(pod);
        Self {
            job,
            companions,
            fitted,
            part: false,
            profile,
            pods: pods.filter(|pod| pod.replicas > 0).collect(),
            root,
        }
    }

    /// The pods of an object that is not a job of ours; `stand_in` carries its name and namespace.
    pub(super) fn of_templates(
        stand_in: &'a Job,
        templates: &'a [Template<'a>],
        root: Place<'a>,
        companions: &'a Companions<'a>,
        profile: Profile,
        part: bool,
    ) -> Self {
        let pod = |found: &'a Template<'a>| {
            let spec = found.pod.spec.as_ref()?;
            let has_gpu = |container: &Container| gpus_of(container) > 0;
            let trainer_index = spec.containers.iter().position(has_gpu).unwrap_or(0);
            Some(Pod {
                role: Role::Worker,
                replicas: found.replicas,
                template: &found.pod,
                spec,
                trainer: spec.containers.get(trainer_index)?,
                trainer_index,
                in_job: false,
                place: found.place.clone(),
                places: found.places.clone(),
            })
        };
        Self {
            job: stand_in,
            companions,
            fitted: None,
            part,
            profile,
            pods: templates.iter().filter_map(pod).collect(),
            root,
        }
    }

    /// Whether pods get from a fabric what the files do not show.
    pub(super) fn is_on_unknown_fabric(&self) -> bool {
        self.job.settings.fabric.is_some() && self.fitted.is_none()
    }

    /// The place of `spec`.
    pub(super) fn spec(&self) -> Place<'a> {
        self.root.key("spec")
    }

    /// The place of `spec.runPolicy`.
    pub(super) fn run_policy(&self) -> Place<'a> {
        self.spec().key("runPolicy")
    }

    /// The GPUs of all pods.
    pub(super) fn gpus(&self) -> u64 {
        self.pods
            .iter()
            .map(|pod| pod.gpus().saturating_mul(u64::from(pod.replicas)))
            .fold(0, u64::saturating_add)
    }

    /// Pods of the roles that hold ranks of the training.
    pub(super) fn ranks(&self) -> impl Iterator<Item = &Pod<'a>> {
        self.pods.iter().filter(|pod| pod.role != Role::Launcher)
    }

    /// Pods of one role.
    pub(super) fn role(&self, role: Role) -> Option<&Pod<'a>> {
        self.pods.iter().find(|pod| pod.role == role)
    }

    /// Pods of the job in all.
    pub(super) fn pod_count(&self) -> u32 {
        if self.job.roles.is_empty() {
            return self
                .pods
                .iter()
                .map(|pod| pod.replicas)
                .fold(0, u32::saturating_add);
        }
        self.job.total_replicas()
    }

    /// Whether it is a job of ours, and not the pods of another object.
    pub(super) fn is_job(&self) -> bool {
        !self.job.roles.is_empty()
    }

    /// What the options of `mpirun` set in the ranks: name, value and the place in the launcher's command.
    pub(super) fn mpirun_variables(&self) -> Vec<(&'a str, &'a str, Place<'a>)> {
        let launcher = self.role(Role::Launcher);
        launcher.map(Pod::assigned).unwrap_or_default()
    }

    /// Whether the job only measures: it has nothing to save.
    pub(super) fn only_measures(&self) -> bool {
        let measures = |name: &str| {
            name.ends_with("_perf") || name.starts_with("osu_") || MEASURING.contains(&name)
        };
        self.pods.iter().any(|pod| {
            let words = pod.command().words;
            words.iter().any(|word| measures(base_name(word.text)))
        })
    }

    /// Whether the launcher of an `MPIJob` reaches its ranks by a way that passes no variables on.
    pub(super) fn forwards_nothing(&self) -> bool {
        self.job.kind.is_mpi() && self.job.settings.mpi_transport != Some(MpiTransport::Agent)
    }
}

impl<'a> Pod<'a> {
    /// Whose pods they are, for a sentence: the role of a job.
    pub(super) fn owner(&self) -> &'static str {
        if self.in_job {
            self.role.name()
        } else {
            "the object"
        }
    }

    /// The place of the pod's `spec`.
    pub(super) fn at(&self) -> Place<'a> {
        self.places.spec.clone()
    }

    /// The place of the template.
    pub(super) fn template_at(&self) -> Place<'a> {
        self.places.template.clone()
    }

    /// The place of the training container.
    pub(super) fn trainer_at(&self) -> Place<'a> {
        match &self.places.container {
            Some(place) => place.clone(),
            None => self.at().key("containers").index(self.trainer_index),
        }
    }

    /// Containers with their places, those that run before the others first.
    pub(super) fn containers(&self) -> impl Iterator<Item = (&'a Container, Place<'a>)> {
        let at = self.at();
        let inits = self.spec.init_containers.iter().flatten().enumerate();
        let list = at.key("initContainers");
        let inits = inits.map(move |(index, container)| (container, list.index(index)));
        let list = at.key("containers");
        let others = self.spec.containers.iter().enumerate();
        let lone = self.places.container.clone();
        inits.chain(others.map(move |(index, container)| {
            let place = lone.clone().unwrap_or_else(|| list.index(index));
            (container, place)
        }))
    }

    /// What the training container runs.
    pub(super) fn command(&self) -> Command<'a> {
        Command::of(self.trainer)
    }

    /// The place of item `index` of the command, counted through `command` and `args`.
    pub(super) fn command_at(&self, index: usize) -> Place<'a> {
        let before = self.trainer.command.as_ref().map_or(0, Vec::len);
        let at = self.trainer_at();
        match index.checked_sub(before) {
            Some(index) => at.key("args").index(index),
            None => at.key("command").index(index),
        }
    }

    /// The variables of the training container that have a plain value, with their places.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&'a str, &'a str, Place<'a>)> {
        variables(self.trainer, &self.trainer_at())
    }

    /// The value of the variable `name` of the training container, where it is plain.
    pub(super) fn variable(&self, name: &str) -> Option<(&'a str, Place<'a>)> {
        self.variables()
            .filter(|(key, _, _)| *key == name)
            .last()
            .map(|(_, value, place)| (value, place))
    }

    /// What the command of the training container sets, with the place in it.
    pub(super) fn assigned(&self) -> Vec<(&'a str, &'a str, Place<'a>)> {
        let command = self.command();
        let set = command.assignments();
        set.map(|(name, value)| (name, value.text, self.command_at(value.item)))
            .collect()
    }

    /// The text of a word in which a reference to a variable that the file sets is replaced. `None`
    /// where it refers to one that the file does not set.
    pub(super) fn resolved(&self, word: &'a str) -> Option<&'a str> {
        let Some(rest) = word.strip_prefix('$') else {
            return (!word.contains('$')).then_some(word);
        };
        let command = self.command();
        let (name, by_shell) = match (rest.strip_prefix('('), rest.strip_prefix('{')) {
            (Some(inner), _) => (inner.strip_suffix(')')?, false),
            (_, Some(inner)) => (inner.strip_suffix('}')?, true),
            _ => (rest, true),
        };
        let (name, default) = match name.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (name, None),
        };
        if by_shell && !command.is_shell {
            return None;
        }
        let set = command.assignments().filter(|(set, _)| *set == name).last();
        let stated = set.map(|(_, value)| value.text).filter(|_| by_shell);
        let value = stated.or_else(|| self.variable(name).map(|(value, _)| value));
        let unset = value.is_none() && !self.has_variable(name) && self.trainer.env_from.is_none();
        value
            .or_else(|| default.filter(|_| unset))
            .filter(|value| !value.contains('$'))
    }

    /// Whether the training container has the variable `name`, wherever its value is from.
    pub(super) fn has_variable(&self, name: &str) -> bool {
        let env = self.trainer.env.iter().flatten();
        env.into_iter().any(|variable| variable.name == name)
    }

    /// GPUs of one pod.
    pub(super) fn gpus(&self) -> u64 {
        let containers = self.spec.containers.iter().map(gpus_of);
        containers.fold(0, u64::saturating_add)
    }

    /// Whether the pod asks for GPUs, also where their number is still to be filled in.
    pub(super) fn asks_for_gpus(&self) -> bool {
        let containers = self.spec.containers.iter();
        let resources = containers.filter_map(|container| container.resources.as_ref());
        let mut limits = resources.flat_map(|resources| resources.limits.iter().flatten());
        limits.any(|(name, count)| is_gpu(name) && quantity::units(count) != Some(0))
    }

    /// Whether the training container asks for a resource that `is` says yes to.
    pub(super) fn asks_for(&self, is: fn(&str) -> bool) -> bool {
        let resources = self.trainer.resources.iter();
        resources
            .flat_map(|resources| resources.limits.iter().chain(&resources.requests))
            .flatten()
            .any(|(name, _)| is(name))
    }

    /// Whether devices or networks may come by a claim, which says nothing of what is in it.
    pub(super) fn has_claims(&self) -> bool {
        self.spec
            .resource_claims
            .as_ref()
            .is_some_and(|claims| !claims.is_empty())
    }

    /// What is mounted where in the training container: the mount, its place, its volume.
    pub(super) fn mounts(
        &self,
    ) -> impl Iterator<Item = (&'a VolumeMount, Place<'a>, Option<&'a Volume>)> {
        let list = self.trainer_at().key("volumeMounts");
        let mounts = self.trainer.volume_mounts.iter().flatten().enumerate();
        let volumes: Vec<&'a Volume> = self.spec.volumes.iter().flatten().collect();
        mounts.map(move |(index, mount)| {
            let volume = volumes.iter().find(|volume| volume.name == mount.name);
            (mount, list.index(index), volume.copied())
        })
    }

    /// The mount of the training container that the file `path` lies in.
    pub(super) fn mount_of(
        &self,
        path: &str,
    ) -> Option<(&'a VolumeMount, Place<'a>, Option<&'a Volume>)> {
        self.mounts()
            .filter(|(mount, _, _)| is_within(path, &mount.mount_path))
            .max_by_key(|(mount, _, _)| mount.mount_path.len())
    }

    /// The annotation `name` of the template with its place.
    pub(super) fn annotation(&self, name: &str) -> Option<(&'a str, Place<'a>)> {
        let metadata = self.template.metadata.as_ref()?;
        let value = metadata.annotations.as_ref()?.get(name)?;
        let place = self.template_at().key("metadata").key("annotations");
        Some((value, place.key(name)))
    }

    /// The label `name` of the template with its place.
    pub(super) fn label(&self, name: &str) -> Option<(&'a str, Place<'a>)> {
        let metadata = self.template.metadata.as_ref()?;
        let value = metadata.labels.as_ref()?.get(name)?;
        let place = self.template_at().key("metadata").key("labels");
        Some((value, place.key(name)))
    }
}

/// GPUs of one container.
pub(super) fn gpus_of(container: &Container) -> u64 {
    let resources = container.resources.iter();
    resources
        .flat_map(|resources| resources.limits.iter().flatten())
        .filter(|(name, _)| is_gpu(name))
        .filter_map(|(_, count)| quantity::units(count))
        .fold(0, u64::saturating_add)
}

/// The variables of `container` that have a plain value, with the place of the value.
pub(super) fn variables<'a>(
    container: &'a Container,
    place: &Place<'a>,
) -> impl Iterator<Item = (&'a str, &'a str, Place<'a>)> + use<'a> {
    let list = place.key("env");
    let env = container.env.iter().flatten().enumerate();
    env.filter_map(move |(index, variable)| {
        let value = variable.value.as_deref()?;
        let place = list.index(index).key("value");
        Some((variable.name.as_str(), value, place))
    })
}

/// Programs that measure a network or a machine, besides those with a common end or beginning.
const MEASURING: [&str; 6] = [
    "fi_info",
    "gpu_burn",
    "ib_read_bw",
    "ib_send_bw",
    "ib_write_bw",
    "nvbandwidth",
];

/// Whether a resource is an accelerator other than a GPU. Its processes are counted otherwise.
pub(super) fn is_other_accelerator(resource: &str) -> bool {
    matches!(
        resource.split_once('/'),
        Some(("aws.amazon.com" | "huawei.com", _) | ("google.com", "tpu"))
    )
}

/// Whether the ranks on a GPU talk by NCCL, or by the library of its maker that reads its variables.
pub(super) fn talks_nccl(resource: &str) -> bool {
    resource.starts_with("nvidia.com/") || resource.starts_with("amd.com/")
}

/// `1 GPU`, `2 GPUs`.
pub(super) fn counted(count: u64, noun: &str) -> String {
    let end = match (count, noun.ends_with("ss")) {
        (1, _) => "",
        (_, true) => "es",
        _ => "s",
    };
    format!("{count} {noun}{end}")
}

/// Whether a resource is a GPU, or what is counted like one.
pub(super) fn is_gpu(resource: &str) -> bool {
    matches!(
        resource,
        "nvidia.com/gpu" | "amd.com/gpu" | "gpu.intel.com/i915" | "habana.ai/gaudi"
    ) || resource.starts_with("nvidia.com/mig-")
}
