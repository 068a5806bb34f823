//! This machine in the place of a cluster: pods as they run here, their addresses, their files and their limits.

use std::{
    fs,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{EnvVar, Pod};
use nix::sys::signal::Signal;
use trainyard_core::{
    job::{IndexSet, SharedInputs},
    launch::{self, LaunchedPod, Plan, StartPoint},
    spec::{Job, Slot, leading_slot},
};

use super::{
    checkpoints,
    table::{Entry, Pods},
};
use crate::{
    HostError, channel,
    limits::{self, Limit, Limits},
    mpi,
    objects::Objects,
    pod_spec::{self, Facts, Surroundings},
    prepare::{Prepared, addresses::Directory, gpus::Gpus},
    wire::{Container, Order, PodSpec},
};

/// What this machine has.
#[derive(Clone, Copy, Debug)]
struct Machine {
    cpus: u64,
    memory_bytes: u64,
}

impl Machine {
    fn read() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes = number_after(&memory, "MemTotal:").unwrap_or(0);
        Self {
            cpus: cpus as u64,
            memory_bytes: kilobytes << 10,
        }
    }
}

/// The cgroups of a run, and why processes in them ended.
#[derive(Debug)]
pub(super) struct Cgroups {
    /// Where a container has a limit and this user may make cgroups.
    limits: Option<Limits>,
    out_of_memory_kills: u64,
}

impl Cgroups {
    fn new() -> Self {
        Self {
            limits: None,
            out_of_memory_kills: out_of_memory_kills(),
        }
    }

    /// Makes the cgroups of the run, if any container of `job` has a limit. Returns a note where that is not possible.
    pub(super) fn make(&mut self, job: &Job, run_id: &str) -> Option<String> {
        let templates = job.roles.values().map(|role| &role.template);
        let specs = templates.filter_map(|template| template.spec.as_ref());
        let containers = specs.flat_map(|spec| &spec.containers);
        let wanted: Vec<_> = containers
            .flat_map(|container| Limit::of(container).resources())
            .collect();
        if wanted.is_empty() {
            return None;
        }
        self.limits.insert(Limits::make(run_id, &wanted)).note()
    }

    /// Puts the containers of a pod into cgroups with their limits.
    fn limit(&self, pod: &Pod, uid: &str, spec: &mut PodSpec) -> Result<(), HostError> {
        let Some(limits) = &self.limits else {
            return Ok(());
        };
        let stated = pod.spec.iter().flat_map(|spec| &spec.containers);
        for (stated, container) in stated.zip(&mut spec.containers) {
            let limit = Limit::of(stated);
            if !limit.is_none() {
                let name = cgroup_name(uid, &stated.name);
                let folders = limits.container(&name, limit);
                container.cgroups =
                    folders.map_err(HostError::system(format!("create cgroup `{name}`")))?;
            }
        }
        Ok(())
    }

    /// Whether memory was why a container of `pod` ended with `code`: the kernel ended a process of it, or,
    /// where its memory is not counted apart, some process of this user.
    pub(super) fn ended_for_memory(&mut self, pod: &Entry, container: &str, code: i32) -> bool {
        let name = cgroup_name(&pod.uid, container);
        let limits = self.limits.as_mut();
        // A program may live on for a moment without the process that was ended, and say another
        // code.
        if let Some(ended) = limits.and_then(|limits| limits.ended_for_memory(&name)) {
            return ended && code != 0;
        }
        if code != 128 + Signal::SIGKILL as i32 {
            return false;
        }
        let kills = out_of_memory_kills();
        let more = kills > self.out_of_memory_kills;
        self.out_of_memory_kills = kills;
        more && pod.injected.is_none()
    }
}

fn cgroup_name(uid: &str, container: &str) -> String {
    format!("{uid}-{container}")
}

/// How many processes of this user's cgroup the kernel has ended for their memory; of the whole
/// machine where only that is counted.
fn out_of_memory_kills() -> u64 {
    limits::own_kills().unwrap_or_else(|| {
        let counters = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        number_after(&counters, "oom_kill ").unwrap_or(0)
    })
}

fn number_after(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(word))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn node_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// What the pods of a run are made from.
pub(super) struct Site<'a> {
    job: &'a Job,
    prepared: &'a Prepared,
    plan: Plan<'a>,
    directory: Directory,
    objects: Objects,
    pub(super) surroundings: Surroundings,
    /// The folder of the stand-ins for ssh and `kubectl`.
    commands: PathBuf,
    pub(super) node: String,
    machine: Machine,
    pub(super) cgroups: Cgroups,
    /// A hosts file that could not be written was reported.
    hosts_failed: bool,
}

impl<'a> Site<'a> {
    pub(super) fn new(
        prepared: &'a Prepared,
        plan: Plan<'a>,
        surroundings: Surroundings,
        commands: PathBuf,
    ) -> Self {
        Self {
            job: &prepared.job,
            prepared,
            plan,
            // A machine without the file resolves by other means, which stay.
            directory: Directory::new(
                &prepared.addresses,
                &prepared.job,
                &fs::read_to_string("/etc/hosts").unwrap_or_default(),
            ),
            objects: prepared.objects.clone(),
            surroundings,
            commands,
            node: node_name(),
            machine: Machine::read(),
            cgroups: Cgroups::new(),
            hosts_failed: false,
        }
    }

    /// Writes what pods need before the first is started.
    pub(super) fn write_files(&self) -> Result<(), HostError> {
        let Surroundings { hosts, stage, .. } = &self.surroundings;
        let failed = |path: &Path| HostError::system(format!("write `{}`", path.display()));
        self.directory.write(hosts).map_err(failed(hosts))?;
        fs::create_dir_all(stage).map_err(failed(stage))
    }

    /// The pod of `slot` as a cluster would run it, with what differs on one machine.
    pub(super) fn pod_of(&self, slot: Slot, attempt: u32) -> Result<Pod, HostError> {
        let launched = self
            .plan
            .pod(slot, attempt)
            .map_err(|source| HostError::Launch {
                job: self.job.name.clone(),
                source,
            })?;
        let mut pod = match launched {
            LaunchedPod::Pod(pod) => *pod,
            LaunchedPod::Job(batch) => {
                let template = batch.spec.unwrap_or_default().template;
                Pod {
                    metadata: template.metadata.unwrap_or_default(),
                    spec: template.spec,
                    status: None,
                }
            }
        };
        pod.metadata.name = Some(self.job.pod_name(slot));
        pod.metadata.namespace = Some(self.job.namespace.as_str().to_owned());
        mpi::adapt(self.job, slot, &mut pod, &self.commands);
        for container in pod.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
            if let Some(devices) = self.prepared.gpus.visible(slot, &container.name) {
                container.env.get_or_insert_default().push(EnvVar {
                    name: "CUDA_VISIBLE_DEVICES".to_owned(),
                    value: Some(devices),
                    value_from: None,
                });
            }
        }
        Ok(pod)
    }

    /// The GPUs of the run.
    pub(super) fn gpus(&self) -> &Gpus {
        &self.prepared.gpus
    }

    /// The place of `slot` in the order of listing.
    fn place(&self, slot: Slot) -> usize {
        let mut slots = self.job.slots();
        slots.position(|known| known == slot).unwrap_or(0)
    }

    /// Gives the pod that starts in `slot` its address, and updates the others. Returns a note where that is not possible.
    pub(super) fn give_address(&mut self, slot: Slot, attempt: u32) -> Option<String> {
        let place = self.place(slot);
        let is_used = self.directory.is_used(place, attempt);
        let before = is_used.then(|| self.directory.clone());
        self.directory.take(place, attempt);
        let before = before?;
        let error = self.directory.write(&self.surroundings.hosts).err()?;
        self.directory = before;
        let known = std::mem::replace(&mut self.hosts_failed, true);
        (!known).then(|| format!("pods keep the addresses of their predecessors: {error}"))
    }

    fn facts<'f>(&'f self, slot: Slot, uid: &'f str) -> Facts<'f> {
        Facts {
            uid,
            node: &self.node,
            address: self.directory.of(self.place(slot)),
            cpus: self.machine.cpus,
            memory_bytes: self.machine.memory_bytes,
        }
    }

    pub(super) fn translate(
        &self,
        pod: &Pod,
        slot: Slot,
        uid: &str,
        scratch: &Path,
    ) -> Result<PodSpec, HostError> {
        let facts = self.facts(slot, uid);
        let surroundings = &self.surroundings;
        let mut spec = pod_spec::translate(pod, &facts, &self.objects, surroundings, scratch)?;
        mpi::provide(&mut spec, &self.commands);
        self.cgroups.limit(pod, uid, &mut spec)?;
        Ok(spec)
    }

    /// Refuses what could be seen to fail before anything is started.
    pub(super) fn check_roles(&mut self, scratch: &Path) -> Result<(), HostError> {
        if self.job.kind.is_mpi() {
            self.create_shared(&SharedInputs {
                replicas: self.job.replicas(),
                running_workers: IndexSet::default(),
            });
        }
        for role in self.job.roles.keys() {
            if self.job.role_replicas(*role) == 0 {
                continue;
            }
            let slot = Slot::new(*role, 0);
            let pod = self.pod_of(slot, 1)?;
            let spec = self.translate(&pod, slot, "check", scratch)?;
            drop(fs::remove_dir_all(scratch));
            for container in spec.init_containers.iter().chain(&spec.containers) {
                check_program(&spec.name, container)?;
            }
        }
        Ok(())
    }

    /// The folder of this machine in which the job saves checkpoints, where it says where that is; or why it is none.
    pub(super) fn checkpoint_folder(
        &self,
        scratch: &Path,
    ) -> Result<Option<Result<PathBuf, String>>, HostError> {
        let path = self.job.settings.checkpoints.as_ref();
        let (Some(path), Some(slot)) = (path, leading_slot(self.job)) else {
            return Ok(None);
        };
        let pod = self.pod_of(slot, 1)?;
        let check = scratch.join("check");
        let spec = self.translate(&pod, slot, "check", &check)?;
        drop(fs::remove_dir_all(&check));
        let container = self.job.kind.container();
        Ok(Some(checkpoints::folder(&spec, container, path, scratch)))
    }

    /// From here on, pods are given what is known of the checkpoints that they start from.
    pub(super) fn start_from(&mut self, start: StartPoint) {
        self.plan.start_from(start);
    }

    /// Makes the objects that all pods share.
    pub(super) fn create_shared(&mut self, inputs: &SharedInputs) {
        // Ranks are started without ssh here, so there are no keys; and without an agent, which alone
        // could be missing.
        let shared = launch::shared(self.job, inputs, None, &self.prepared.cluster);
        for object in shared.unwrap_or_default() {
            self.objects.add(object);
        }
    }

    /// Brings the files of pods that run up to date.
    pub(super) fn update_files(&self, pods: &Pods) {
        for (key, entry) in &pods.entries {
            let Some(pod) = entry.pod.as_deref() else {
                continue;
            };
            let volumes = pod
                .spec
                .iter()
                .flat_map(|spec| spec.volumes.iter().flatten());
            for volume in volumes {
                let facts = self.facts(entry.slot, &entry.uid);
                let files = pod_spec::volume_files(pod, &volume.name, &facts, &self.objects);
                let Some(files) = files else {
                    continue;
                };
                if let Ok(memory) = channel::to_memory(&files) {
                    let order = Order::Update {
                        volume: volume.name.clone(),
                    };
                    pods.order(*key, &order, &[memory.as_raw_fd()]);
                }
            }
        }
    }
}

/// Refuses a program that is not there. What a volume may bring is left to the start.
fn check_program(pod: &str, container: &Container) -> Result<(), HostError> {
    let Some(program) = container.command.first() else {
        return Ok(());
    };
    let from_volume = |path: &Path| {
        let mut mounts = container.mounts.iter();
        mounts.any(|mount| path.starts_with(&mount.path))
    };
    let path = Path::new(program);
    let found = if program.contains('/') {
        let path = container.working_dir.join(path);
        from_volume(&path) || path.exists()
    } else {
        let variable = container
            .environment
            .iter()
            .find(|(name, _)| name == "PATH");
        let folders = variable.map_or("/bin:/usr/bin", |(_, value)| value.as_str());
        let mut folders = folders.split(':').map(Path::new);
        folders.any(|folder| from_volume(folder) || folder.join(path).is_file())
    };
    if found {
        Ok(())
    } else {
        Err(HostError::NotOnPath {
            pod: pod.to_owned(),
            container: container.name.clone(),
            program: program.clone(),
        })
    }
}
