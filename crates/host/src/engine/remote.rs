//! Requests from pods and from other terminals.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write as _,
    os::{
        fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use nix::unistd::geteuid;
use trainyard_core::spec::{Job, Slot};

use super::{
    Engine,
    table::{Key, Pods},
    watches::Watch,
};
use crate::{
    HostError, Ranks, channel, mpi,
    prepare::addresses,
    remote::{self, Answer, Request},
    wire::Order,
};

/// Connections of other users that are kept until they have read why they are refused.
const MAX_REFUSED: usize = 16;

/// The socket of a run and those who asked.
#[derive(Debug)]
pub(super) struct Remote {
    listener: OwnedFd,
    /// The folder of the stand-ins for ssh and `kubectl`.
    commands: PathBuf,
    clients: BTreeMap<u64, Client>,
    next: u64,
    /// Whether it was noted that another user asked.
    refusal_noted: bool,
    /// Whether stacks are being read for someone.
    reading: Arc<AtomicBool>,
}

/// One who asked.
#[derive(Debug)]
struct Client {
    socket: OwnedFd,
    /// The command, until the pod it is meant for runs.
    waiting: Option<Waiting>,
    /// The pod in which the command runs.
    pod: Option<Key>,
    /// Why every request of this client is refused.
    refusal: Option<String>,
}

#[derive(Debug)]
struct Waiting {
    slot: Slot,
    container: Option<String>,
    command: Vec<String>,
    streams: Vec<OwnedFd>,
}

impl Remote {
    /// Listens in the run's folder and lays down the stand-ins.
    pub(super) fn listen(folder: &Path, program: &Path) -> Result<Self, HostError> {
        let listener = remote::serve(folder).map_err(HostError::system(format!(
            "listen in `{}`",
            folder.display()
        )))?;
        let commands = folder.join("bin");
        let quote =
            |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
        let write = |name: &str| {
            let script = format!(
                "#!/bin/sh\nexec {} pod-exec {} {name} \"$@\"\n",
                quote(program),
                quote(folder)
            );
            let path = commands.join(name);
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o755)
                .open(&path)?;
            file.write_all(script.as_bytes())?;
            file.set_permissions(fs::Permissions::from_mode(0o755))
        };
        fs::create_dir_all(&commands)
            .and_then(|()| write(mpi::SSH))
            .and_then(|()| write(mpi::KUBECTL))
            .map_err(HostError::system(format!("write `{}`", commands.display())))?;
        Ok(Self {
            listener,
            commands,
            clients: BTreeMap::new(),
            next: 0,
            refusal_noted: false,
            reading: Arc::default(),
        })
    }

    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The folder of the stand-ins for ssh and `kubectl`.
    pub(super) fn commands(&self) -> &Path {
        &self.commands
    }

    /// Runs every command whose pod runs. The others wait, as ssh would try again.
    pub(super) fn run_waiting(&mut self, pods: &Pods) {
        let ids: Vec<u64> = self.clients.keys().copied().collect();
        for id in ids {
            let Some(client) = self.clients.get_mut(&id) else {
                continue;
            };
            let Some(slot) = client.waiting.as_ref().map(|waiting| waiting.slot) else {
                continue;
            };
            let Some(key) = pods.running(slot) else {
                continue;
            };
            if let Some(waiting) = client.waiting.take() {
                client.pod = Some(key);
                let numbers: Vec<RawFd> = waiting.streams.iter().map(AsRawFd::as_raw_fd).collect();
                let order = Order::Exec {
                    id,
                    container: waiting.container,
                    command: waiting.command,
                };
                pods.order(key, &order, &numbers);
            }
        }
    }

    /// A command ended: sends its exit code to the client that requested it.
    pub(super) fn command_ended(&mut self, id: u64, code: i32) {
        self.answer(id, &Answer::Ended { code });
        if let Some(client) = self.clients.get_mut(&id) {
            client.pod = None;
        }
    }

    /// A pod is gone, and with it the commands in it.
    pub(super) fn drop_commands_of(&self, key: Key) {
        let lost: Vec<u64> = self
            .clients
            .iter()
            .filter(|(_, client)| client.pod == Some(key))
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            let message = "the pod in which the command ran has ended".to_owned();
            self.answer(id, &Answer::Refused { message });
        }
    }

    /// Whether stacks are being read for someone.
    pub(super) fn reading(&self) -> &Arc<AtomicBool> {
        &self.reading
    }

    /// The connection of a client.
    pub(super) fn socket_of(&self, id: u64) -> Option<&OwnedFd> {
        self.clients.get(&id).map(|client| &client.socket)
    }

    pub(super) fn answer(&self, id: u64, answer: &Answer) {
        if let Some(client) = self.clients.get(&id) {
            // One who does not listen any more needs no answer.
            drop(channel::send(&client.socket, answer, &[]));
        }
    }
}

impl Engine<'_> {
    /// Someone asks.
    pub(super) fn accept(&mut self) -> Result<(), HostError> {
        // One who gave up meanwhile is not there to be taken.
        let Ok(socket) = remote::accept(&self.remote.listener) else {
            return Ok(());
        };
        // A peer without credentials is refused.
        let refusal = match remote::peer(&socket) {
            Ok(asking) => remote::refusal(asking, geteuid()),
            Err(error) => Some(format!(
                "cannot get the peer credentials of a request: {error}"
            )),
        };
        if let Some(refusal) = &refusal {
            if !self.remote.refusal_noted {
                self.remote.refusal_noted = true;
                self.outlet.note(format!("refused a request: {refusal}"));
            }
            let clients = self.remote.clients.values();
            if clients.filter(|client| client.refusal.is_some()).count() >= MAX_REFUSED {
                return Ok(());
            }
        }
        let id = self.remote.next;
        self.remote.next += 1;
        self.watches.add(socket.as_fd(), Watch::Client(id))?;
        let client = Client {
            socket,
            waiting: None,
            pod: None,
            refusal,
        };
        self.remote.clients.insert(id, client);
        Ok(())
    }

    /// One who asked says something, or is gone.
    pub(super) fn serve(&mut self, id: u64, number: u64) {
        let Some(client) = self.remote.clients.get_mut(&id) else {
            self.watches.forget(number);
            return;
        };
        let said = channel::receive::<Request>(&client.socket).unwrap_or(None);
        if said.is_some()
            && let Some(message) = client.refusal.clone()
        {
            self.remote.answer(id, &Answer::Refused { message });
            self.watches.forget(number);
            self.remote.clients.remove(&id);
            return;
        }
        match said {
            None => {
                self.watches.forget(number);
                let pod = client.pod;
                self.remote.clients.remove(&id);
                if let Some(key) = pod {
                    self.pods.order(key, &Order::EndExec { id }, &[]);
                }
            }
            Some((Request::Stop { now }, _)) => {
                self.remote.answer(id, &Answer::Done);
                self.asked_to_stop(if now { 2 } else { 1 });
            }
            Some((Request::Stacks { ranks, native }, _)) => {
                self.answer_stacks(id, ranks, native);
            }
            Some((Request::Profile(recording), _)) => self.record_traces(id, recording),
            Some((Request::Suspend { suspend }, _)) => {
                self.edit(id, |job| job.run_policy.suspend = suspend);
            }
            Some((Request::Restart { name }, _)) => {
                self.edit(id, |job| job.settings.restart = Some(name));
            }
            Some((
                Request::Exec {
                    rank,
                    container,
                    command,
                },
                streams,
            )) => {
                let found = self.find_container(rank, container.as_deref());
                let waiting = found.map(|(slot, container)| Waiting {
                    slot,
                    container: Some(container),
                    command,
                    streams,
                });
                self.run_in_pod(id, waiting);
            }
            Some((
                Request::Run {
                    host,
                    container,
                    command,
                },
                streams,
            )) => {
                let slot = slot_called(self.job, &host)
                    .ok_or_else(|| format!("job `{}` has no pod `{host}`", self.job.name));
                let waiting = slot.map(|slot| Waiting {
                    slot,
                    container,
                    command,
                    streams,
                });
                self.run_in_pod(id, waiting);
            }
        }
    }

    /// Runs a command as soon as its pod runs, or refuses it.
    fn run_in_pod(&mut self, id: u64, waiting: Result<Waiting, String>) {
        match (waiting, self.remote.clients.get_mut(&id)) {
            (Err(message), _) => self.remote.answer(id, &Answer::Refused { message }),
            (Ok(waiting), Some(client)) => {
                client.waiting = Some(waiting);
                self.remote.run_waiting(&self.pods);
            }
            (Ok(_), None) => {}
        }
    }

    /// The pod of `rank`, which must run, and its container called `wanted`; the one that trains where none is named.
    fn find_container(&self, rank: u32, wanted: Option<&str>) -> Result<(Slot, String), String> {
        let job = self.job;
        let (ranks, replicas) = (Ranks::of(job), job.replicas());
        let slot = ranks
            .pod_of(&replicas, rank)
            .ok_or_else(|| no_such_rank(job, rank))?;
        let name = job.pod_name(slot);
        let key = self.pods.running(slot);
        let entry = key.and_then(|key| self.pods.get(key));
        let entry = entry.ok_or_else(|| format!("pod `{name}` of rank {rank} is not running"))?;
        let Some(wanted) = wanted else {
            return Ok((slot, entry.training_container(job.kind).to_owned()));
        };
        let outputs = entry.outputs.iter();
        let mut names: Vec<&str> = outputs
            .filter(|output| output.container >= entry.init_containers)
            .map(|output| &*output.name)
            .collect();
        names.dedup();
        if names.contains(&wanted) {
            return Ok((slot, wanted.to_owned()));
        }
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        Err(format!(
            "pod `{name}` has no container `{wanted}`; expected one of {}",
            names.join(", ")
        ))
    }

    /// Changes the job as a user of a cluster would; what follows from it is decided in the next pass.
    fn edit(&mut self, id: u64, change: impl FnOnce(&mut Job)) {
        let answer = match self.wanted.edit(change) {
            Ok(()) => {
                self.schedule.request();
                Answer::Done
            }
            Err(message) => Answer::Refused { message },
        };
        self.remote.answer(id, &answer);
    }
}

/// Why a rank is refused that the job does not have.
pub(super) fn no_such_rank(job: &Job, rank: u32) -> String {
    let count = Ranks::of(job).count(&job.replicas());
    let last = count.saturating_sub(1);
    format!(
        "job `{}` has no rank {rank}; its ranks are 0 to {last}",
        job.name
    )
}

/// The pod that has `host` as one of its names.
fn slot_called(job: &Job, host: &str) -> Option<Slot> {
    let mut slots = job.slots();
    slots.find(|slot| {
        let names = addresses::names(job, *slot);
        names.iter().any(|name| name == host)
    })
}
