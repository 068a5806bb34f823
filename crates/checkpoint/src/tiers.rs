//! A fast tier of the node in front of a tier that all nodes share.
//!
//! Both are stores of the same run with the same files. A save commits on the local one, [`crate::drain`] publishes the same commit on the
//! shared one. Records of attempts are taken on the shared tier, which decides. Every node keeps a copy of those it took part in, and learns
//! at the start of the next one whether they restored, so that its local tier can be read by itself.
//!
//! Ranks on several nodes do not see each other's local tiers. Their piece records (`NNNNN.local.json`) and the commit (`LOCAL.json`) go
//! through the step folder of the shared tier: small files, under names that no reader takes for pieces or a commit of that tier.

mod begin;
#[cfg(test)]
pub(crate) mod tests;

use std::{collections::BTreeSet, io, sync::Arc};

use trainyard_core::checkpoint::{
    ATTEMPTS, AttemptId, COMMIT_FILE, Commit, CommitSeen, Document as _, Fence, FolderSeen,
    FolderState, LOCAL_COMMIT_FILE, Lineage, PieceSeen, RecordSeen, Restored, StepName, Tier,
    lineage,
};

pub use self::begin::TierBegun;
pub use crate::store::TierOptions;
use crate::{
    clock::Clock,
    load::TierStore,
    publish::Published,
    storage::{Kind, Shared, read_small, within},
    store::{Behind, Store, StoreError, View},
};

/// How many earlier attempts are asked for whether they restored. Two are enough to make a step suspect.
const MOST_EARLIER: usize = 16;

/// Whether a shared tier shows that local tiers have committed a step.
pub fn is_on_local_tiers(shared: &Store, folder: &StepName) -> bool {
    let name = within(&folder.path(), LOCAL_COMMIT_FILE);
    matches!(shared.read::<Commit>(&name), Ok(Some(_)))
}

/// The two tiers of a process.
#[derive(Clone, Debug)]
pub struct Tiers {
    /// The local one, into which a [`crate::Session`] saves.
    pub local: Arc<Store>,
    /// The one that all nodes share.
    pub shared: Arc<Store>,
    pub(crate) behind: Arc<Behind>,
}

/// What the local tier of a node has of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeHolds {
    /// The folder.
    pub folder: StepName,
    /// Its pieces there.
    pub pieces: Vec<PieceSeen>,
}

impl Tiers {
    /// Opens the local tier of a run; creates what is missing. One of another run is refused.
    pub fn open(
        shared: Arc<Store>,
        local: Shared,
        clock: Arc<dyn Clock>,
        seed: u64,
        options: TierOptions,
    ) -> Result<Self, StoreError> {
        let mut local = Store::create(local, clock, Some(shared.run()), seed)?;
        let behind = Arc::new(Behind {
            shared: Arc::clone(&shared),
            options,
            board: Arc::default(),
        });
        local.behind = Some(Arc::clone(&behind));
        Ok(Self {
            local: Arc::new(local),
            shared,
            behind,
        })
    }

    /// Both, the nearest first.
    pub fn stores(&self) -> Vec<TierStore> {
        let tier = |tier: Tier, store: &Arc<Store>| TierStore {
            tier,
            place: tier.name().to_owned(),
            store: Arc::clone(store),
        };
        vec![
            tier(Tier::Local, &self.local),
            tier(Tier::Shared, &self.shared),
        ]
    }

    /// Copies the record of an attempt to the local tier, so that it fences there and the tier can be read by itself; also that earlier
    /// attempts have restored, without which their end would be held against the step.
    pub fn adopt(&self, id: AttemptId) -> Result<(), StoreError> {
        let name = within(ATTEMPTS, &id.record_file());
        let bytes = read_small(&*self.shared.storage, &name, Fence::MAX_BYTES as u64)
            .map_err(StoreError::storage("read", &name))?;
        match self.local.publish_bytes(&name, &bytes)? {
            Published::Done => {}
            Published::Other(_) => {
                return Err(StoreError::storage("publish", &name)(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "the local tier has another record of this attempt",
                )));
            }
        }
        // Without these retention leaves more on the local tier, not less: no attempt fails for them.
        for earlier in self.not_restored(id).unwrap_or_default() {
            let name = within(ATTEMPTS, &earlier.restored_file());
            // One that died while restoring has no such file.
            if let Ok(bytes) = read_small(&*self.shared.storage, &name, Restored::MAX_BYTES as u64)
            {
                drop(self.local.publish_bytes(&name, &bytes));
            }
        }
        Ok(())
    }

    /// The newest attempts before `id` that have not restored, as far as the local tier shows.
    fn not_restored(&self, id: AttemptId) -> Result<BTreeSet<AttemptId>, StoreError> {
        let (mut begun, mut restored) = (BTreeSet::new(), BTreeSet::new());
        for record in self.local.view()?.records {
            match record {
                RecordSeen::Fence(fence) if fence.resumes_from.is_some() && fence.id() < id => {
                    begun.insert(fence.id());
                }
                RecordSeen::Restored(one) => {
                    let (attempt, restart) = (one.attempt, one.restart);
                    restored.insert(AttemptId { attempt, restart });
                }
                RecordSeen::Fence(_) | RecordSeen::Unreadable { .. } => {}
            }
        }
        let newest = begun.into_iter().rev().take(MOST_EARLIER);
        Ok(newest.filter(|one| !restored.contains(one)).collect())
    }

    /// What the local tier of this node has in full or in part, for the process that chooses. A node that was killed before it had the commit
    /// has pieces all the same.
    pub fn holds(&self) -> Result<Vec<NodeHolds>, StoreError> {
        let view = self.local.view()?;
        let mut commits = view.commits();
        commits.extend(self.commits_of_nodes(&view.folders).map(|(_, seen)| seen));
        let mut holds = Vec::new();
        for seen in commits {
            let pieces = self.local.pieces_seen(&seen.folder, &seen.commit.document);
            holds.push(NodeHolds {
                folder: seen.folder,
                pieces,
            });
        }
        Ok(holds)
    }

    /// The commits of both tiers and the records. What local tiers of other nodes committed shows by its `LOCAL.json`.
    pub(crate) fn view(&self) -> Result<(View, Option<String>), StoreError> {
        let mut view = self.shared.view()?;
        let of_nodes = self.commits_of_nodes(&view.folders).map(|(folder, seen)| {
            let state = FolderState::Committed(Box::new(seen.commit));
            FolderSeen {
                state,
                ..folder.clone()
            }
        });
        let of_nodes: Vec<FolderSeen> = of_nodes.collect();
        view.folders.extend(of_nodes);
        let failure = match self.local.view() {
            Ok(local) => {
                view.folders.extend(local.folders);
                view.records.extend(local.records);
                None
            }
            Err(error) => Some(format!("the local tier cannot be read: {error}")),
        };
        Ok((view, failure))
    }

    /// Of the folders without a commit, those that local tiers of nodes have committed.
    fn commits_of_nodes<'a>(
        &'a self,
        folders: &'a [FolderSeen],
    ) -> impl Iterator<Item = (&'a FolderSeen, CommitSeen)> {
        folders.iter().filter_map(|folder| {
            let is_partial = matches!(folder.state, FolderState::Partial);
            let name = folder.name().filter(|_| is_partial)?;
            Some((folder, self.commit_of_nodes(&name).ok()??))
        })
    }

    /// The commit of a step that local tiers of nodes have, as the shared tier shows it.
    pub(crate) fn commit_of_nodes(
        &self,
        folder: &StepName,
    ) -> Result<Option<CommitSeen>, StoreError> {
        let name = within(&folder.path(), LOCAL_COMMIT_FILE);
        let found = self.shared.read::<Commit>(&name)?;
        Ok(found.map(|commit| CommitSeen {
            folder: folder.clone(),
            commit,
        }))
    }

    /// The history as the local tier shows it.
    pub(crate) fn local_history(&self) -> Result<Lineage, StoreError> {
        let view = self.local.view()?;
        Ok(lineage(self.local.run(), &view.records, &view.commits()))
    }

    /// Whether the shared tier has the commit of a step.
    pub fn is_shared(&self, folder: &StepName) -> Result<bool, StoreError> {
        let name = within(&folder.path(), COMMIT_FILE);
        match self.shared.storage.stat(&name) {
            Ok(stat) => Ok(stat.kind == Kind::File),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::storage("read", &name)(error)),
        }
    }
}
