//! The disk beneath [`super::Faulty`]: what every process sees, and what a power loss leaves of it.
//!
//! Each file has a view and a durable state; the changes between them are kept one by one since the last sync. Folders are the
//! same with entries in place of bytes: a file whose contents are durable can be lost because its name is not.

use std::{collections::BTreeMap, io};

use crate::{
    storage::{Entry, Kind, Stat},
    token::Random,
};

/// The unit in which a write can be torn.
pub(super) const SECTOR: usize = 512;

/// The node of the root folder.
const ROOT: u64 = 0;

#[derive(Clone, Debug)]
enum Node {
    File(FileState),
    Folder(FolderState),
}

#[derive(Clone, Debug, Default)]
struct FileState {
    durable: Vec<u8>,
    view: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Size(usize),
    Write(usize, Vec<u8>),
}

#[derive(Clone, Debug, Default)]
struct FolderState {
    durable: BTreeMap<String, u64>,
    view: BTreeMap<String, u64>,
    pending: Vec<EntryChange>,
}

#[derive(Clone, Debug)]
enum EntryChange {
    Set(String, u64),
    Clear(String),
    Move(String, String, u64),
}

impl EntryChange {
    fn apply(&self, entries: &mut BTreeMap<String, u64>) {
        match self {
            Self::Set(name, node) => {
                entries.insert(name.clone(), *node);
            }
            Self::Clear(name) => {
                entries.remove(name);
            }
            Self::Move(from, to, node) => {
                entries.remove(from);
                entries.insert(to.clone(), *node);
            }
        }
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Size(size) => bytes.resize((*size).max(bytes.len()), 0),
            Self::Write(offset, data) => {
                let end = offset + data.len();
                bytes.resize(end.max(bytes.len()), 0);
                bytes[*offset..end].copy_from_slice(data);
            }
        }
    }
}

/// How much of what was not synced a power loss takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Everything.
    All,
    /// Each change by itself, and each sector of a write by itself.
    Some,
    /// Entries of folders reached the disk, bytes of files did not: the file systems that order metadata only.
    Bytes,
    /// Bytes reached the disk, entries did not.
    Entries,
}

/// The disk.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    /// Bytes that fit.
    pub(super) capacity: Option<u64>,
    /// New entries that others do not see for some lookups: who made them, and how many.
    hidden: BTreeMap<(u64, String), (u32, u64)>,
    /// Whether files are published by a copy.
    pub(super) is_exclusive: bool,
    /// Whether new entries are hidden from others at first.
    lags: bool,
    pub(super) random: Random,
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            nodes: BTreeMap::from([(ROOT, Node::Folder(FolderState::default()))]),
            next: ROOT + 1,
            capacity: None,
            hidden: BTreeMap::new(),
            is_exclusive: false,
            lags: false,
            random: Random::new(seed),
        }
    }

    pub(super) fn lag(&mut self, lags: bool) {
        self.lags = lags;
        if !lags {
            self.hidden.clear();
        }
    }

    fn folder(&self, id: u64) -> io::Result<&FolderState> {
        match self.nodes.get(&id) {
            Some(Node::Folder(folder)) => Ok(folder),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn folder_mut(&mut self, id: u64) -> io::Result<&mut FolderState> {
        match self.nodes.get_mut(&id) {
            Some(Node::Folder(folder)) => Ok(folder),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn file(&self, id: u64) -> io::Result<&FileState> {
        match self.nodes.get(&id) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Folder(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn file_mut(&mut self, id: u64) -> io::Result<&mut FileState> {
        match self.nodes.get_mut(&id) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Folder(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The node of a name, as it really is.
    pub(super) fn find(&self, name: &str) -> io::Result<u64> {
        let mut at = ROOT;
        for part in name.split('/').filter(|part| !part.is_empty()) {
            let next = self.folder(at)?.view.get(part);
            at = *next.ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(at)
    }

    /// The node of a name, as a client sees it: entries of others may not be visible yet.
    pub(super) fn look_up(&mut self, client: u32, name: &str) -> io::Result<u64> {
        let found = self.find(name)?;
        let (folder, last) = self.place(name)?;
        if self.hides(client, folder, &last) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(found)
    }

    fn hides(&mut self, client: u32, folder: u64, name: &str) -> bool {
        if self.hidden.is_empty() {
            return false;
        }
        let key = (folder, name.to_owned());
        match self.hidden.get_mut(&key) {
            Some((maker, left)) if *maker != client && *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    /// The folder of a name, and the name within it.
    fn place(&self, name: &str) -> io::Result<(u64, String)> {
        let (folder, last) = name.rsplit_once('/').unwrap_or(("", name));
        Ok((self.find(folder)?, last.to_owned()))
    }

    fn change_entry(&mut self, folder: u64, change: EntryChange) -> io::Result<()> {
        let folder = self.folder_mut(folder)?;
        change.apply(&mut folder.view);
        folder.pending.push(change);
        Ok(())
    }

    fn add(&mut self, client: u32, name: &str, node: Node) -> io::Result<u64> {
        let (folder, last) = self.place(name)?;
        if self.folder(folder)?.view.contains_key(&last) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, node);
        self.hide(client, folder, &last);
        self.change_entry(folder, EntryChange::Set(last, id))?;
        Ok(id)
    }

    fn hide(&mut self, client: u32, folder: u64, name: &str) {
        if self.lags {
            let lookups = self.random.below(3);
            self.hidden
                .insert((folder, name.to_owned()), (client, lookups));
        }
    }

    pub(super) fn make_folder(&mut self, client: u32, name: &str) -> io::Result<()> {
        let node = Node::Folder(FolderState::default());
        match self.add(client, name, node) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Whoever was answered that a folder exists can open it.
                let place = self.place(name)?;
                self.hidden.remove(&place);
                self.folder(self.find(name)?).map(|_| ())
            }
            other => other.map(|_| ()),
        }
    }

    pub(super) fn create(&mut self, client: u32, name: &str) -> io::Result<u64> {
        self.add(client, name, Node::File(FileState::default()))
    }

    pub(super) fn link(&mut self, client: u32, from: &str, to: &str) -> io::Result<()> {
        let id = self.find(from)?;
        let (folder, last) = self.place(to)?;
        if self.folder(folder)?.view.contains_key(&last) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.hide(client, folder, &last);
        self.change_entry(folder, EntryChange::Set(last, id))
    }

    pub(super) fn unlink(&mut self, name: &str) -> io::Result<()> {
        self.file(self.find(name)?)?;
        let (folder, last) = self.place(name)?;
        self.change_entry(folder, EntryChange::Clear(last))
    }

    pub(super) fn remove_folder(&mut self, name: &str) -> io::Result<()> {
        if !self.folder(self.find(name)?)?.view.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let (folder, last) = self.place(name)?;
        self.change_entry(folder, EntryChange::Clear(last))
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let id = self.find(from)?;
        let ((folder, old), (other, new)) = (self.place(from)?, self.place(to)?);
        if folder != other {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        self.change_entry(folder, EntryChange::Move(old, new, id))
    }

    pub(super) fn sync_folder(&mut self, name: &str) -> io::Result<()> {
        let id = self.find(name)?;
        let folder = self.folder_mut(id)?;
        folder.durable = folder.view.clone();
        folder.pending.clear();
        Ok(())
    }

    pub(super) fn reserve(&mut self, file: u64, bytes: u64) -> io::Result<()> {
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let grows = size.saturating_sub(self.file(file)?.view.len());
        self.take_room(grows)?;
        let file = self.file_mut(file)?;
        let change = Change::Size(size);
        change.apply(&mut file.view);
        file.pending.push(change);
        Ok(())
    }

    pub(super) fn write(&mut self, file: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let grows = (offset + bytes.len()).saturating_sub(self.file(file)?.view.len());
        self.take_room(grows)?;
        let file = self.file_mut(file)?;
        let change = Change::Write(offset, bytes.to_vec());
        change.apply(&mut file.view);
        file.pending.push(change);
        Ok(())
    }

    pub(super) fn sync(&mut self, file: u64) -> io::Result<()> {
        let file = self.file_mut(file)?;
        file.durable.clone_from(&file.view);
        file.pending.clear();
        Ok(())
    }

    pub(super) fn size(&self, file: u64) -> io::Result<u64> {
        Ok(self.file(file)?.view.len() as u64)
    }

    pub(super) fn read(&self, file: u64, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        crate::storage::Input::read_at(&self.file(file)?.view, offset, buffer)
    }

    /// Flips one bit of a file, in what is seen and in what is durable.
    pub(super) fn flip(&mut self, name: &str, at: usize) -> io::Result<()> {
        let id = self.find(name)?;
        let file = self.file_mut(id)?;
        for bytes in [&mut file.view, &mut file.durable] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1;
            }
        }
        Ok(())
    }

    pub(super) fn list(&mut self, client: u32, name: &str) -> io::Result<Vec<Entry>> {
        let id = self.look_up_folder(client, name)?;
        let entries = self.folder(id)?.view.clone();
        let mut seen = Vec::new();
        for (name, node) in entries {
            if self.hides(client, id, &name) {
                continue;
            }
            let kind = match self.nodes.get(&node) {
                Some(Node::Folder(_)) => Kind::Folder,
                _ => Kind::File,
            };
            seen.push(Entry { name, kind });
        }
        Ok(seen)
    }

    fn look_up_folder(&mut self, client: u32, name: &str) -> io::Result<u64> {
        if name.is_empty() {
            Ok(ROOT)
        } else {
            self.look_up(client, name)
        }
    }

    pub(super) fn stat(&mut self, client: u32, name: &str) -> io::Result<Stat> {
        let id = self.look_up_folder(client, name)?;
        Ok(match self.nodes.get(&id) {
            Some(Node::File(file)) => Stat {
                kind: Kind::File,
                bytes: file.view.len() as u64,
            },
            _ => Stat {
                kind: Kind::Folder,
                bytes: 0,
            },
        })
    }

    /// Bytes that still fit.
    pub(super) fn free(&self) -> u64 {
        let Some(capacity) = self.capacity else {
            return u64::MAX;
        };
        capacity.saturating_sub(self.used(ROOT))
    }

    fn used(&self, id: u64) -> u64 {
        match self.nodes.get(&id) {
            Some(Node::File(file)) => file.view.len() as u64,
            Some(Node::Folder(folder)) => folder.view.values().map(|id| self.used(*id)).sum(),
            None => 0,
        }
    }

    fn take_room(&self, bytes: usize) -> io::Result<()> {
        if self.capacity.is_some() && bytes as u64 > self.free() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    /// What is left after the power failed.
    pub(super) fn lose(&mut self, loss: Loss) {
        let mut random = self.random.clone();
        for node in self.nodes.values_mut() {
            match node {
                Node::Folder(folder) => {
                    let mut left = std::mem::take(&mut folder.durable);
                    for change in folder.pending.drain(..) {
                        let kept = match loss {
                            Loss::All | Loss::Entries => false,
                            Loss::Bytes => true,
                            Loss::Some => random.one_in(2),
                        };
                        if kept {
                            change.apply(&mut left);
                        }
                    }
                    folder.durable.clone_from(&left);
                    folder.view = left;
                }
                Node::File(file) => {
                    let mut left = std::mem::take(&mut file.durable);
                    for change in file.pending.drain(..) {
                        match (loss, change) {
                            (Loss::All | Loss::Bytes, _) => {}
                            (Loss::Entries, change) => change.apply(&mut left),
                            (Loss::Some, Change::Size(size)) => {
                                if random.one_in(2) {
                                    Change::Size(size).apply(&mut left);
                                }
                            }
                            (Loss::Some, Change::Write(offset, data)) => {
                                for (at, sector) in data.chunks(SECTOR).enumerate() {
                                    if random.one_in(2) {
                                        let offset = offset + at * SECTOR;
                                        Change::Write(offset, sector.to_vec()).apply(&mut left);
                                    }
                                }
                            }
                        }
                    }
                    file.durable.clone_from(&left);
                    file.view = left;
                }
            }
        }
        self.random = random;
        self.hidden.clear();
        self.sweep();
    }

    /// Drops files that no name leads to.
    fn sweep(&mut self) {
        let mut reached = BTreeMap::new();
        let mut open = vec![ROOT];
        while let Some(id) = open.pop() {
            if let Some(node) = self.nodes.remove(&id) {
                if let Node::Folder(folder) = &node {
                    open.extend(folder.view.values());
                }
                reached.insert(id, node);
            }
        }
        self.nodes = reached;
    }
}
