//! Starting a pod.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd},
    sync::Arc,
    time::Instant,
};

use nix::{fcntl::OFlag, unistd::pipe2};
use trainyard_core::{
    job::PodPhase,
    progress::{Reader, UserRules},
    spec::Slot,
};

use super::{
    Engine,
    keeper::Keeper,
    output::Output,
    table::{Entry, Key},
    watches::{Watch, Watches},
};
use crate::{
    HostError, channel, pod_spec,
    request::Stream,
    wire::{Order, PodSpec},
};

impl Engine<'_> {
    /// Starts the pod of `slot`, unless one has its name.
    pub(super) fn start_pod(&mut self, slot: Slot, attempt: u32) -> Result<(), HostError> {
        let mut entries = self.pods.entries.values();
        if entries.any(|entry| entry.slot == slot) {
            return Ok(());
        }
        self.withdraw_notice(attempt);
        let key = self.pods.new_key();
        if let Some(note) = self.site.give_address(slot, attempt) {
            self.outlet.note(note);
        }
        let pod = self.site.pod_of(slot, attempt)?;
        let name = self.job.pod_name(slot);
        let uid = format!("{name}-{attempt}-{key}");
        let folder = &self.outlet.writer.folder().path;
        let scratch = folder.join("scratch").join(&uid);
        let spec = self.site.translate(&pod, slot, &uid, &scratch)?;
        self.have_keeper()?;
        let keeper = &self.pods.keeper;
        let begun = begin(keeper, key, &spec, self.listener.progress_rules());
        let begun = begun.map_err(|source| HostError::StartPod {
            pod: name.clone(),
            program: keeper.program().to_owned(),
            source,
        })?;
        let entry = Entry {
            uid,
            slot,
            attempt,
            log_folder: self.outlet.writer.pod_folder(attempt, &name),
            name,
            grace_seconds: pod_spec::grace_seconds(&pod),
            control: Some(begun.control),
            pid: None,
            phase: PodPhase::Pending,
            restarts: BTreeMap::new(),
            ends: 0,
            last_end: None,
            exit: None,
            deleted_at: None,
            stopped: false,
            kill_at: None,
            gone: false,
            node: self.site.node.clone(),
            logs: (0..spec.init_containers.len() + spec.containers.len())
                .map(|_| None)
                .collect(),
            init_containers: spec.init_containers.len(),
            outputs: begun.outputs,
            scratch,
            pod: self.job.kind.is_mpi().then(|| Box::new(pod)),
            injected: None,
        };
        // Without its watches it is kept all the same: it runs.
        let watched = watch_pod(&mut self.watches, key, &entry);
        self.pods.entries.insert(key, entry);
        watched?;
        self.faults.begin(Instant::now());
        self.schedule.request();
        Ok(())
    }

    /// Sees to it that there is a keeper: one that was killed from outside took its pods with it,
    /// and those of the next attempt need another.
    fn have_keeper(&mut self) -> Result<(), HostError> {
        if self.pods.keeper.descriptor().is_some() {
            return Ok(());
        }
        self.pods.keeper.restart()?;
        self.watch_keeper()
    }

    pub(super) fn watch_keeper(&mut self) -> Result<(), HostError> {
        match self.pods.keeper.descriptor() {
            Some(descriptor) => self.watches.add(descriptor, Watch::Keeper),
            None => Ok(()),
        }
    }
}

/// Watches what a pod says and writes.
fn watch_pod(watches: &mut Watches, key: Key, entry: &Entry) -> Result<(), HostError> {
    if let Some(control) = &entry.control {
        watches.add(control.as_fd(), Watch::Control(key))?;
    }
    for (at, output) in entry.outputs.iter().enumerate() {
        if let Some(pipe) = output.descriptor() {
            watches.add(pipe, Watch::Output(key, at))?;
        }
    }
    Ok(())
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
