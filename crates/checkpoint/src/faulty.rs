//! Memory that behaves as a disk on its worst day, by seed.
//!
//! Several clients (processes) share one disk. A client can be killed before or within any of its changes, refused because the disk is
//! full, or given an error for a change that was carried out. A power loss drops what was not synced: any subset, per file and
//! per entry of a folder, with writes torn at 512 bytes ([`Loss`]). Listings and lookups of other clients' new names may lag.
//!
//! Only changes count as operations; reads are free, because a kill before a read is a kill after the change before it.

mod disk;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

pub use self::disk::Loss;
use self::disk::{Disk, SECTOR};
use crate::storage::{Entry, Input, Output, Stat, Storage};

/// What happens at one operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The client is killed: a write may be torn, everything after fails without effect.
    Kill,
    /// No room, this once.
    NoSpace,
    /// An I/O error, without effect.
    Io,
    /// An I/O error although the change was carried out.
    DoneButFailed,
    /// `AlreadyExists` although the change was carried out by this very call: a server that saw a repeated request.
    DoneButExists,
    /// The call does not return until the disk is released.
    Hang,
}

#[derive(Clone, Debug, Default)]
struct Client {
    operations: u64,
    faults: BTreeMap<u64, Fault>,
    is_dead: bool,
}

#[derive(Debug)]
struct State {
    disk: Disk,
    clients: Vec<Client>,
    /// How often a file was opened for reading.
    opens: u64,
    is_released: bool,
}

#[derive(Debug)]
struct Machine {
    state: Mutex<State>,
    released: Condvar,
}

impl Machine {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The disk; makes clients.
#[derive(Debug)]
pub struct FaultyDisk(Arc<Machine>);

/// One client's view of the disk.
#[derive(Clone, Debug)]
pub struct Faulty {
    machine: Arc<Machine>,
    client: u32,
}

fn machine(disk: Disk) -> Arc<Machine> {
    let state = State {
        disk,
        clients: Vec::new(),
        opens: 0,
        is_released: false,
    };
    Arc::new(Machine {
        state: Mutex::new(state),
        released: Condvar::new(),
    })
}

impl FaultyDisk {
    /// An empty disk.
    pub fn new(seed: u64) -> Self {
        Self(machine(Disk::new(seed)))
    }

    #[must_use]
    /// A copy as it is now, without clients, whose further faults come from another seed.
    pub fn copy(&self, seed: u64) -> Self {
        let mut disk = self.0.lock().disk.clone();
        disk.random = crate::token::Random::new(seed);
        Self(machine(disk))
    }

    /// How often a file was opened for reading, by all clients.
    pub fn opens(&self) -> u64 {
        self.0.lock().opens
    }

    /// A new process.
    pub fn client(&self) -> Faulty {
        self.client_with(&[])
    }

    /// A new process whose n-th operations fail; the first one is 0.
    pub fn client_with(&self, faults: &[(u64, Fault)]) -> Faulty {
        let mut state = self.0.lock();
        let client = u32::try_from(state.clients.len()).unwrap_or(u32::MAX);
        state.clients.push(Client {
            faults: faults.iter().copied().collect(),
            ..Client::default()
        });
        Faulty {
            machine: Arc::clone(&self.0),
            client,
        }
    }

    /// Limits the bytes that fit.
    pub fn limit(&self, bytes: Option<u64>) {
        self.0.lock().disk.capacity = bytes;
    }

    /// A disk without links and without exclusive renames: a published file is copied under its final name, and a reader may see a part.
    pub fn exclusive(&self, is_exclusive: bool) {
        self.0.lock().disk.is_exclusive = is_exclusive;
    }

    /// New names become visible to other clients only after some lookups. Switched off, everything is visible: caches expire.
    pub fn lag(&self, lags: bool) {
        self.0.lock().disk.lag(lags);
    }

    /// The power fails: every client is killed, and what was not synced is lost as `loss` says.
    pub fn power_loss(&self, loss: Loss) {
        let mut state = self.0.lock();
        for client in &mut state.clients {
            client.is_dead = true;
        }
        state.disk.lose(loss);
    }

    /// Flips a bit of a file.
    pub fn flip(&self, name: &str, at: usize) -> io::Result<()> {
        self.0.lock().disk.flip(name, at)
    }

    /// Ends every hanging call.
    pub fn release(&self) {
        self.0.lock().is_released = true;
        self.0.released.notify_all();
    }
}

impl Faulty {
    /// Operations so far.
    pub fn operations(&self) -> u64 {
        let state = self.machine.lock();
        state.clients[self.client as usize].operations
    }

    /// Whether the client was killed.
    pub fn is_dead(&self) -> bool {
        self.machine.lock().clients[self.client as usize].is_dead
    }

    /// Kills the client.
    pub fn kill(&self) {
        self.machine.lock().clients[self.client as usize].is_dead = true;
    }

    /// The state, for a client that lives.
    fn alive(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.machine.lock();
        if state.clients[self.client as usize].is_dead {
            return Err(killed());
        }
        Ok(state)
    }

    /// What [`crate::files::probe::Publish::Exclusive`] does, one operation after the other.
    fn publish_copy(&self, temporary: &str, name: &str) -> io::Result<()> {
        let body = crate::storage::read_small(self, temporary, u64::MAX)?;
        let target = self.create(name)?;
        if let Err(error) = target.write_at(0, &body).and_then(|()| target.sync()) {
            drop(self.remove(name));
            return Err(error);
        }
        let removed = self.remove(temporary);
        if self.is_dead() { removed } else { Ok(()) }
    }

    /// Counts one operation, and does it unless a fault is planned for it.
    fn operate<T>(&self, work: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        self.operate_or_tear(work, |_| {})
    }

    fn operate_or_tear<T>(
        &self,
        work: impl FnOnce(&mut Disk) -> io::Result<T>,
        tear: impl FnOnce(&mut Disk),
    ) -> io::Result<T> {
        let mut state = self.alive()?;
        let client = &mut state.clients[self.client as usize];
        let fault = client.faults.get(&client.operations).copied();
        client.operations += 1;
        match fault {
            None => work(&mut state.disk),
            Some(Fault::Kill) => {
                client.is_dead = true;
                tear(&mut state.disk);
                Err(killed())
            }
            Some(Fault::NoSpace) => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Io) => Err(io::Error::other("input/output error")),
            Some(Fault::DoneButFailed) => {
                work(&mut state.disk)?;
                Err(io::Error::other("input/output error"))
            }
            Some(Fault::DoneButExists) => {
                work(&mut state.disk)?;
                Err(io::ErrorKind::AlreadyExists.into())
            }
            Some(Fault::Hang) => {
                while !state.is_released {
                    state = self
                        .machine
                        .released
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                Err(io::Error::other("the storage hung"))
            }
        }
    }
}

fn killed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the process was killed")
}

impl Storage for Faulty {
    fn make_folder(&self, name: &str) -> io::Result<()> {
        self.operate(|disk| disk.make_folder(self.client, name))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Output>> {
        let file = self.operate(|disk| disk.create(self.client, name))?;
        Ok(Box::new(FaultyFile {
            storage: self.clone(),
            file,
        }))
    }

    fn publish(&self, temporary: &str, name: &str) -> io::Result<()> {
        if self.alive()?.disk.is_exclusive {
            return self.publish_copy(temporary, name);
        }
        self.operate(|disk| disk.link(self.client, temporary, name))?;
        // As on a real file system: the second name is garbage, and failing to remove it is not a failure.
        let removed = self.operate(|disk| disk.unlink(temporary));
        if self.is_dead() { removed } else { Ok(()) }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.operate(|disk| disk.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.operate(|disk| disk.unlink(name))
    }

    fn remove_folder(&self, name: &str) -> io::Result<()> {
        self.operate(|disk| disk.remove_folder(name))
    }

    fn sync_folder(&self, name: &str) -> io::Result<()> {
        self.operate(|disk| disk.sync_folder(name))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Input>> {
        let mut state = self.alive()?;
        let file = state.disk.look_up(self.client, name)?;
        state.opens += 1;
        drop(state);
        Ok(Box::new(FaultyFile {
            storage: self.clone(),
            file,
        }))
    }

    fn list(&self, name: &str) -> io::Result<Vec<Entry>> {
        self.alive()?.disk.list(self.client, name)
    }

    fn stat(&self, name: &str) -> io::Result<Stat> {
        self.alive()?.disk.stat(self.client, name)
    }

    fn free(&self) -> io::Result<u64> {
        Ok(self.alive()?.disk.free())
    }
}

/// An open file of a client.
#[derive(Debug)]
struct FaultyFile {
    storage: Faulty,
    file: u64,
}

impl Output for FaultyFile {
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.storage.operate(|disk| disk.reserve(self.file, bytes))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.storage.operate_or_tear(
            |disk| disk.write(self.file, offset, bytes),
            |disk| {
                let sectors = bytes.len().div_ceil(SECTOR) as u64;
                let torn = usize::try_from(disk.random.below(sectors + 1)).unwrap_or(0) * SECTOR;
                let part = &bytes[..torn.min(bytes.len())];
                // The process is dead: nobody learns whether this part fitted.
                drop(disk.write(self.file, offset, part));
            },
        )
    }

    fn sync(&self) -> io::Result<()> {
        self.storage.operate(|disk| disk.sync(self.file))
    }
}

impl Input for FaultyFile {
    fn size(&self) -> io::Result<u64> {
        self.storage.alive()?.disk.size(self.file)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.storage.alive()?.disk.read(self.file, offset, buffer)
    }
}
