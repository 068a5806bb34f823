//! Piece records and commits of ranks on several nodes, brought together through the shared tier.
//!
//! The data stays on the node. Only small files travel: a rank publishes its piece record when its data is durable, rank 0 publishes the
//! commit, and every rank copies it to the local tier of its node. Where the shared tier has no room for them, they are sent again until
//! the deadline of the save: the drain makes room there.

use trainyard_core::checkpoint::{
    Commit, CommitRef, LOCAL_COMMIT_FILE, Piece, Sealed, StepFile, StepName, encode,
};

use super::{SaveError, Session, reference};
use crate::{
    publish::Published,
    storage::within,
    store::{Store, StoreError},
};

impl Session {
    /// The store that carries records between nodes.
    fn carrier(&self) -> Option<&Store> {
        let behind = self.store.behind.as_ref()?;
        behind.options.several_nodes.then_some(&*behind.shared)
    }

    /// Shows the piece of this rank to the other nodes. [`SaveError::NoExchange`] where the shared tier has no room for it.
    pub(super) fn send_piece(
        &self,
        folder: &StepName,
        piece: &Sealed<Piece>,
    ) -> Result<(), SaveError> {
        let Some(carrier) = self.carrier() else {
            return Ok(());
        };
        carrier.check_fence(self.id)?;
        let path = folder.path();
        (carrier.storage.make_folder(&path))
            .map_err(StoreError::storage("create", &path))
            .map_err(no_exchange(folder))?;
        let name = within(&path, &StepFile::LocalPiece(self.rank).to_string());
        let published = carrier.publish(&name, &piece.document);
        match published.map_err(no_exchange(folder))? {
            Published::Done => Ok(()),
            Published::Other(_) => Err(SaveError::Taken(name)),
        }
    }

    /// The same where it has not been shown yet: the shared tier may have been full when the piece was written.
    pub(super) fn send_piece_again(&self, folder: &StepName) -> Result<(), SaveError> {
        let Some(carrier) = self.carrier() else {
            return Ok(());
        };
        let name = within(&folder.path(), &StepFile::LocalPiece(self.rank).to_string());
        if carrier.storage.stat(&name).is_ok() {
            return Ok(());
        }
        match self.store.piece(folder, self.rank)? {
            Some(piece) => self.send_piece(folder, &piece),
            None => Ok(()),
        }
    }

    /// The piece of a rank: on this tier, or as another node shows it.
    pub(super) fn find_piece(
        &self,
        folder: &StepName,
        rank: u32,
    ) -> Result<Option<Sealed<Piece>>, StoreError> {
        match (self.store.piece(folder, rank)?, self.carrier()) {
            (None, Some(carrier)) => carrier.read(&within(
                &folder.path(),
                &StepFile::LocalPiece(rank).to_string(),
            )),
            (found, _) => Ok(found),
        }
    }

    /// Shows the commit to the other nodes, before this node has it. [`SaveError::NoExchange`] where the shared tier has no room for it and
    /// another node needs it.
    pub(super) fn send_commit(&self, folder: &StepName, commit: &Commit) -> Result<(), SaveError> {
        let Some(carrier) = self.carrier() else {
            return Ok(());
        };
        let name = within(&folder.path(), LOCAL_COMMIT_FILE);
        match carrier.publish(&name, commit).map_err(no_exchange(folder)) {
            Ok(Published::Done) => Ok(()),
            Ok(Published::Other(_)) => Err(SaveError::Taken(name)),
            Err(SaveError::NoExchange { .. }) if self.has_all_pieces(folder) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether the pieces of all ranks are on this node, which then are all ranks.
    fn has_all_pieces(&self, folder: &StepName) -> bool {
        (0..self.world).all(|rank| {
            let name = within(&folder.path(), &StepFile::Piece(rank).to_string());
            self.store.storage.stat(&name).is_ok()
        })
    }

    /// The commit that another node shows, copied to the local tier.
    pub(super) fn receive_commit(
        &self,
        folder: &StepName,
    ) -> Result<Option<(CommitRef, bool)>, SaveError> {
        let Some(carrier) = self.carrier() else {
            return Ok(None);
        };
        let path = folder.path();
        let Ok(Some(commit)) = carrier.read::<Commit>(&within(&path, LOCAL_COMMIT_FILE)) else {
            return Ok(None);
        };
        if !self.is_own(folder, &commit.document) {
            return Ok(None);
        }
        let name = within(&path, trainyard_core::checkpoint::COMMIT_FILE);
        let bytes = encode(&commit.document).map_err(StoreError::manifest(&name))?;
        self.store.sync_folder(&path)?;
        match self.store.publish_bytes(&name, &bytes)? {
            Published::Done => Ok(Some((reference(folder, commit.crc32c), true))),
            Published::Other(_) => Err(SaveError::Taken(name)),
        }
    }
}

/// Keeps a shared tier without room apart from a local one: what the local tier could remove would not help.
fn no_exchange(folder: &StepName) -> impl FnOnce(StoreError) -> SaveError {
    let step = folder.step;
    move |source| {
        if source.is_full() {
            SaveError::NoExchange { step, source }
        } else {
            source.into()
        }
    }
}
