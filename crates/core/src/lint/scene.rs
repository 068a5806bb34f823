//! A job as a rule sees it: its pods with the numbers that matter, and the place of every field.

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec, Volume, VolumeMount};

use super::{
    command::{Command, base_name},
    companions::Companions,
};
use crate::{
    fabric::Fitted,
    quantity,
    spec::{Job, MpiTransport, Place, Role, RoleSpec},
};

/// One job with all that its files say around it.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) job: &'a Job,
    pub(super) root: Place<'a>,
    pub(super) companions: &'a Companions<'a>,
    /// What the fabric of the job did to it, where the files hold that fabric.
    pub(super) fitted: Option<&'a Fitted>,
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
    /// The place of the role.
    pub(super) place: Place<'a>,
}

impl<'a> Scene<'a> {
    /// `job` as it is launched: with what its fabric added to it.
    pub(super) fn new(
        job: &'a Job,
        root: Place<'a>,
        companions: &'a Companions<'a>,
        fitted: Option<&'a Fitted>,
    ) -> Self {
        let map = root.key("spec").key(job.kind.replica_map());
        let pod = |(role, spec): (&'a Role, &'a RoleSpec)| {
            let trainer_index = job.training_container(*role)?;
            let pod_spec = spec.template.spec.as_ref()?;
            Some(Pod {
                role: *role,
                replicas: spec.replicas,
                template: &spec.template,
                spec: pod_spec,
                trainer: pod_spec.containers.get(trainer_index)?,
                trainer_index,
                place: map.key(role.name()),
            })
        };
        let pods = job.roles.iter().filter_map(pod);
        Self {
            job,
            companions,
            fitted,
            pods: pods.filter(|pod| pod.replicas > 0).collect(),
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
        self.job.total_replicas()
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
    /// The place of the pod's `spec`.
    pub(super) fn at(&self) -> Place<'a> {
        self.template_at().key("spec")
    }

    /// The place of the template.
    pub(super) fn template_at(&self) -> Place<'a> {
        self.place.key("template")
    }

    /// The place of the training container.
    pub(super) fn trainer_at(&self) -> Place<'a> {
        self.at().key("containers").index(self.trainer_index)
    }

    /// Containers with their places, those that run before the others first.
    pub(super) fn containers(&self) -> impl Iterator<Item = (&'a Container, Place<'a>)> {
        let at = self.at();
        let inits = self.spec.init_containers.iter().flatten().enumerate();
        let list = at.key("initContainers");
        let inits = inits.map(move |(index, container)| (container, list.index(index)));
        let list = at.key("containers");
        let others = self.spec.containers.iter().enumerate();
        inits.chain(others.map(move |(index, container)| (container, list.index(index))))
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
        let gpus = |container: &Container| -> u64 {
            let resources = container.resources.iter();
            resources
                .flat_map(|resources| resources.limits.iter().flatten())
                .filter(|(name, _)| is_gpu(name))
                .filter_map(|(_, count)| quantity::units(count))
                .fold(0, u64::saturating_add)
        };
        let containers = self.spec.containers.iter().map(gpus);
        containers.fold(0, u64::saturating_add)
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

/// Whether the file `path` is `folder` or lies in it.
pub(crate) fn is_within(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
