//! A folder of `steps/` as it was found.

use super::{
    codec::Sealed, lineage::CommitSeen, manifest::Commit, names::StepName, select::PieceSeen,
};

/// What the files of a step folder say about it.
#[derive(Clone, Debug, PartialEq)]
pub enum FolderState {
    /// It has a commit.
    Committed(Box<Sealed<Commit>>),
    /// It has a commit that cannot be read, or one of a newer version. It is never removed by a rule.
    Unreadable {
        /// Why.
        why: String,
    },
    /// It has no commit.
    Partial,
    /// It had a commit; its removal has begun.
    Removed,
}

/// A folder of `steps/` as it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct FolderSeen {
    /// Its name, which may be anything.
    pub folder: String,
    /// What its files say.
    pub state: FolderState,
    /// The run of its pieces, where that is not the run of the store.
    pub other_run: Option<String>,
    /// Its pieces; `None` where nobody looked.
    pub pieces: Option<Vec<PieceSeen>>,
    /// The bytes that it takes.
    pub bytes: u64,
}

impl FolderSeen {
    /// Its name as one of ours.
    pub fn name(&self) -> Option<StepName> {
        self.folder.parse().ok()
    }

    /// Its commit.
    pub fn commit(&self) -> Option<CommitSeen> {
        match &self.state {
            FolderState::Committed(commit) => Some(CommitSeen {
                folder: self.name()?,
                commit: (**commit).clone(),
            }),
            _ => None,
        }
    }
}

/// The commits of the folders that have one.
pub fn commits(folders: &[FolderSeen]) -> Vec<CommitSeen> {
    folders.iter().filter_map(FolderSeen::commit).collect()
}
