//! Commits that are there and cannot be read: an attempt that ignored them would start at an earlier step without a word.

use super::{
    folder::{FolderSeen, FolderState},
    lineage::Lineage,
    names::StepName,
    select::{Passed, PassedWhy, Selection},
};

/// The place of a folder in the history: acknowledged commits first and in their order, then those of the attempt itself.
type Place = (bool, Option<usize>, u32, u64);

impl Selection {
    /// The same with the commits of the history that cannot be read among those that were passed over: all of them where nothing was
    /// selected, otherwise the newer ones. `folders` are what the history was made from.
    #[must_use]
    pub fn with_unreadable(mut self, lineage: &Lineage, folders: &[FolderSeen]) -> Self {
        let (passed, chosen) = match &mut self {
            Self::Choice(choice) => {
                let chosen = place(lineage, &choice.commit.folder);
                (&mut choice.passed, Some(chosen))
            }
            Self::None { reasons } => (reasons, None),
        };
        for folder in folders {
            if let FolderState::Unreadable { why } = &folder.state
                && let Some(name) = folder.name()
                && may_have(lineage, &name)
                && chosen.is_none_or(|chosen| place(lineage, &name) > chosen)
            {
                passed.push(Passed {
                    folder: name,
                    why: PassedWhy::Unreadable(why.clone()),
                });
            }
        }
        passed.sort_by_key(|one| std::cmp::Reverse(place(lineage, &one.folder)));
        self
    }
}

fn acknowledged(lineage: &Lineage, folder: &StepName) -> Option<usize> {
    let record = lineage.head.as_ref()?.record.as_ref()?;
    let mut known = record.acknowledged.iter();
    known.position(|commit| commit.folder == *folder)
}

fn place(lineage: &Lineage, folder: &StepName) -> Place {
    let place = acknowledged(lineage, folder);
    (place.is_none(), place, folder.attempt, folder.step)
}

/// Whether the history would have the commit of this folder if it could be read. Only its name is known.
fn may_have(lineage: &Lineage, folder: &StepName) -> bool {
    let Some(head) = &lineage.head else {
        return false;
    };
    let is_known =
        lineage.has(folder) || lineage.side.iter().any(|(seen, _)| seen.folder == *folder);
    if is_known || folder.attempt > head.id.attempt {
        return false;
    }
    let Some(record) = &head.record else {
        return true;
    };
    match acknowledged(lineage, folder) {
        Some(place) => {
            let resumed = lineage.resumed_from();
            let last = resumed.and_then(|resumed| acknowledged(lineage, resumed));
            Some(place) <= last
        }
        None => [head.id.attempt, record.attempt].contains(&folder.attempt),
    }
}
