//! Starting a pod, and what must hold on this machine before one is.

use std::{
    fs, io,
    os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd},
    path::Path,
    sync::Arc,
    time::Instant,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EnvVar, Pod};
use nix::{fcntl::OFlag, unistd::pipe2};
use trainyard_core::{
    job::PodPhase,
    launch::LaunchedPod,
    progress::{Reader, UserRules},
    spec::Slot,
};

use super::{
    Engine, Watch,
    keeper::Keeper,
    output::Output,
    table::{Entry, Key},
};
use crate::{
    HostError, channel,
    limits::{self, Limit, Limits},
    mpi,
    pod_spec::{self, Facts},
    request::{RunEvent, Stream},
    wire::{Container, Order, PodSpec},
};

/// What this machine has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    cpus: u64,
    memory_bytes: u64,
}

impl Machine {
    pub(super) fn read() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes = number_after(&memory, "MemTotal:").unwrap_or(0);
        Self {
            cpus: cpus as u64,
            memory_bytes: kilobytes << 10,
        }
    }
}

/// How many processes of this user's cgroup the kernel has ended for their memory; of the whole
/// machine where only that is counted.
pub(super) fn out_of_memory_kills() -> u64 {
    limits::own_kills().unwrap_or_else(|| {
        let counters = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        number_after(&counters, "oom_kill ").unwrap_or(0)
    })
}

fn number_after(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(word))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

pub(super) fn node_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

impl Engine<'_> {
    /// The pod of `slot` as a cluster would run it, with what differs on one machine.
    fn pod_of(&self, slot: Slot, attempt: u32) -> Result<Pod, HostError> {
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
        mpi::adapt(self.job, slot, &mut pod, self.remote.commands());
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

    /// The place of `slot` in the order of listing.
    fn place(&self, slot: Slot) -> usize {
        let mut slots = self.job.slots();
        slots.position(|known| known == slot).unwrap_or(0)
    }

    /// Gives the pod that starts in `slot` its address, and updates the others.
    fn give_address(&mut self, slot: Slot, attempt: u32) {
        let place = self.place(slot);
        if !self.directory.is_used(place, attempt) {
            self.directory.take(place, attempt);
            return;
        }
        let before = self.directory.clone();
        self.directory.take(place, attempt);
        if let Err(error) = self.directory.write(&self.surroundings.hosts) {
            self.directory = before;
            if !self.complained.hosts {
                self.complained.hosts = true;
                let note = format!("pods keep the addresses of their predecessors: {error}");
                (self.sink)(RunEvent::Note(note));
            }
        }
    }

    pub(super) fn facts<'f>(&'f self, slot: Slot, uid: &'f str) -> Facts<'f> {
        Facts {
            uid,
            node: &self.node,
            address: self.directory.of(self.place(slot)),
            cpus: self.machine.cpus,
            memory_bytes: self.machine.memory_bytes,
        }
    }

    fn translate(
        &self,
        pod: &Pod,
        slot: Slot,
        uid: &str,
        scratch: &Path,
    ) -> Result<PodSpec, HostError> {
        let facts = self.facts(slot, uid);
        let surroundings = &self.surroundings;
        let mut spec = pod_spec::translate(pod, &facts, &self.objects, surroundings, scratch)?;
        mpi::provide(&mut spec, self.remote.commands());
        self.limit(pod, uid, &mut spec)?;
        Ok(spec)
    }

    /// Makes the cgroups of the run, if any container has a limit; says so where that cannot be.
    pub(super) fn make_limits(&mut self) {
        let mut wanted = Vec::new();
        for role in self.job.roles.values() {
            let spec = role.template.spec.as_ref();
            for container in spec.iter().flat_map(|spec| &spec.containers) {
                wanted.extend(Limit::of(container).resources());
            }
        }
        if wanted.is_empty() {
            return;
        }
        let limits = Limits::make(&self.writer.folder().id, &wanted);
        if let Some(note) = limits.note() {
            (self.sink)(RunEvent::Note(note));
        }
        self.limits = Some(limits);
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

    /// Refuses what could be seen to fail before anything is started.
    pub(super) fn check_roles(&mut self) -> Result<(), HostError> {
        if self.job.kind.is_mpi() {
            let inputs = trainyard_core::job::SharedInputs {
                replicas: self.job.replicas(),
                running_workers: trainyard_core::job::IndexSet::default(),
            };
            self.create_shared(&inputs);
        }
        for role in self.job.roles.keys() {
            if self.job.role_replicas(*role) == 0 {
                continue;
            }
            let slot = Slot::new(*role, 0);
            let pod = self.pod_of(slot, 1)?;
            let scratch = self.writer.folder().path.join("scratch").join("check");
            let spec = self.translate(&pod, slot, "check", &scratch)?;
            drop(fs::remove_dir_all(&scratch));
            for container in spec.init_containers.iter().chain(&spec.containers) {
                check_program(&spec.name, container)?;
            }
        }
        Ok(())
    }

    /// Starts the pod of `slot`, unless one has its name.
    pub(super) fn start_pod(&mut self, slot: Slot, attempt: u32) -> Result<(), HostError> {
        if self.pods.values().any(|entry| entry.slot == slot) {
            return Ok(());
        }
        let key = self.next_key;
        self.next_key += 1;
        self.give_address(slot, attempt);
        let pod = self.pod_of(slot, attempt)?;
        let name = self.job.pod_name(slot);
        let uid = format!("{name}-{attempt}-{key}");
        let run_folder = self.writer.folder().path.clone();
        let scratch = run_folder.join("scratch").join(&uid);
        let spec = self.translate(&pod, slot, &uid, &scratch)?;
        self.have_keeper()?;
        let begun = begin(&self.keeper, key, &spec, self.listener.progress_rules());
        let begun = begun.map_err(|source| HostError::StartPod {
            pod: name.clone(),
            program: self.program.clone(),
            source,
        })?;
        self.pods.insert(
            key,
            Entry {
                uid,
                slot,
                attempt,
                log_folder: self.writer.pod_folder(attempt, &name),
                name,
                grace_seconds: pod_spec::grace_seconds(&pod),
                control: Some(begun.control),
                pid: None,
                phase: PodPhase::Pending,
                restarts: std::collections::BTreeMap::new(),
                ends: 0,
                last_end: None,
                exit: None,
                deleted_at: None,
                stopped: false,
                kill_at: None,
                gone: false,
                node: self.node.clone(),
                logs: (0..spec.init_containers.len() + spec.containers.len())
                    .map(|_| None)
                    .collect(),
                init_containers: spec.init_containers.len(),
                outputs: begun.outputs,
                scratch,
                pod: self.job.kind.is_mpi().then(|| Box::new(pod)),
                injected: None,
            },
        );
        self.watch_pod(key)?;
        self.first_pod.get_or_insert_with(Instant::now);
        self.changed = true;
        Ok(())
    }

    /// Sees to it that there is a keeper: one that was killed from outside took its pods with it,
    /// and those of the next attempt need another.
    fn have_keeper(&mut self) -> Result<(), HostError> {
        if self.keeper.descriptor().is_some() {
            return Ok(());
        }
        self.keeper = Keeper::start(&self.program)?;
        self.watch_keeper()
    }

    pub(super) fn watch_keeper(&mut self) -> Result<(), HostError> {
        match self.keeper.descriptor() {
            Some(descriptor) => self.watch_raw(descriptor, Watch::Keeper),
            None => Ok(()),
        }
    }

    fn watch_pod(&mut self, key: Key) -> Result<(), HostError> {
        let Some(entry) = self.pods.get(&key) else {
            return Ok(());
        };
        let copy = |descriptor: &OwnedFd| descriptor.as_fd().as_raw_fd();
        let mut wanted: Vec<(RawFd, Watch)> = Vec::new();
        wanted.extend(
            entry
                .control
                .as_ref()
                .map(|fd| (copy(fd), Watch::Control(key))),
        );
        for (at, output) in entry.outputs.iter().enumerate() {
            let descriptor = output.descriptor().map(|fd| fd.as_raw_fd());
            wanted.extend(descriptor.map(|fd| (fd, Watch::Output(key, at))));
        }
        for (descriptor, watch) in wanted {
            self.watch_raw(descriptor, watch)?;
        }
        Ok(())
    }
}

/// The cgroup of a container.
pub(super) fn cgroup_name(uid: &str, container: &str) -> String {
    format!("{uid}-{container}")
}

/// The engine's part of a pod that was started.
struct Begun {
    control: OwnedFd,
    outputs: Vec<Output>,
}

fn begin(
    keeper: &Keeper,
    key: Key,
    spec: &PodSpec,
    rules: Option<&Arc<UserRules>>,
) -> io::Result<Begun> {
    let (control, theirs) = channel::pair()?;
    let memory = channel::to_memory(spec)?;
    let mut outputs = Vec::new();
    let mut passed = vec![memory];
    let containers = spec.init_containers.iter().chain(&spec.containers);
    for (at, container) in containers.enumerate() {
        let name: Arc<str> = container.name.as_str().into();
        for stream in [Stream::Out, Stream::Err] {
            let (ours, theirs) = pipe2(OFlag::O_CLOEXEC)?;
            let reader = match rules {
                Some(rules) => Reader::with_rules(Arc::clone(rules)),
                None => Reader::new(),
            };
            outputs.push(Output::new(ours, at, Arc::clone(&name), stream, reader)?);
            passed.push(theirs);
        }
    }
    if passed.len() > channel::MAX_DESCRIPTORS {
        return Err(io::Error::other("it has too many containers"));
    }
    let numbers: Vec<RawFd> = passed.iter().map(AsRawFd::as_raw_fd).collect();
    // The order waits in the socket, so that the keeper need not wait for anything.
    channel::send(&control, &Order::Start, &numbers)?;
    keeper.begin(key, &theirs)?;
    Ok(Begun { control, outputs })
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

/// The moment, for what must be stamped.
pub(super) fn now() -> Timestamp {
    Timestamp::now()
}
