//! Which commit of a history to restore, with no more looks at pieces than that takes.

use std::collections::BTreeMap;

use trainyard_core::checkpoint::{
    CommitSeen, Lineage, PieceSeen, Selection, StepName, TierView, Wanted, select,
};

/// Selects a commit. `pieces` looks at those of a commit, by the number of the view; it is called for the newest commit first, and for
/// older ones only if that is not enough. Where it returns `None`, the view stays as it is.
pub(crate) fn choose(
    history: &Lineage,
    views: &mut [TierView],
    wanted: &Wanted,
    suspects: &BTreeMap<StepName, String>,
    mut pieces: impl FnMut(usize, &CommitSeen) -> Option<Vec<PieceSeen>>,
) -> Selection {
    for seen in history.commits.iter().rev() {
        for (number, view) in views.iter_mut().enumerate() {
            if let Some(found) = pieces(number, seen) {
                view.pieces.insert(seen.folder.clone(), found);
            }
        }
        let selection = select(history, views, wanted, suspects);
        if matches!(selection, Selection::Choice(_)) {
            return selection;
        }
    }
    select(history, views, wanted, suspects)
}
