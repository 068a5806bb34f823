//! The begin of an attempt: rank 0 chooses what is restored and publishes the record, other ranks learn both from it.
//!
//! Choice and record follow from one look at the store. So the record never names a commit that the attempt did not see, and
//! every rank that reads the record restores the same step.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use trainyard_core::checkpoint::{
    ATTEMPTS, AttemptId, CommitRef, Fence, Passed, RecordSeen, Selection, StepName, Tier, TierView,
    Wanted, lineage, select, suspects,
};

use crate::{
    clock::Clock,
    storage::within,
    store::{Store, StoreError, View},
};

/// The first and the longest pause between two looks for a record.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// An attempt that has its record.
#[derive(Clone, Debug, PartialEq)]
pub struct Begun {
    /// The pair.
    pub id: AttemptId,
    /// What it resumes from; `None` where it starts at step 0.
    pub resumes_from: Option<CommitRef>,
    /// Newer commits that were passed over, with the reason. Empty for a rank that has only read the record.
    pub passed: Vec<Passed>,
}

/// Why an attempt did not begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// The store could not be used, or a higher attempt has begun.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There are steps, and none can be restored. To start at step 0 would hide them from every later attempt.
    #[error("no step can be restored: {}", first(.0))]
    NothingUsable(Vec<Passed>),
    /// Rank 0 has not published the record.
    #[error("no record of attempt {attempt} after {} s: rank 0 has not begun", waited.as_secs())]
    NoRecord {
        /// The attempt.
        attempt: u32,
        /// How long this rank waited.
        waited: Duration,
    },
}

/// The first reasons of a list, for a sentence.
fn first(passed: &[Passed]) -> String {
    let named: Vec<String> = passed.iter().take(3).map(ToString::to_string).collect();
    let more = if passed.len() > named.len() {
        "; …"
    } else {
        ""
    };
    format!("{}{more}", named.join("; "))
}

/// Begins an attempt as its rank 0: chooses the commit to restore and publishes the record.
///
/// `unreadable` are steps that this attempt could not read, with the reason; they are passed over.
pub fn begin(
    store: &Store,
    attempt: Option<u32>,
    holder: &str,
    wanted: &Wanted,
    unreadable: &BTreeMap<StepName, String>,
) -> Result<Begun, BeginError> {
    let choose = |view: &View| choose(store, view, wanted, unreadable);
    begin_seeing(store, attempt, holder, &|| store.view(), &choose)
}

/// The same with a view that `look` gives and a choice that follows from it.
pub(crate) fn begin_seeing(
    store: &Store,
    attempt: Option<u32>,
    holder: &str,
    look: &dyn Fn() -> Result<View, StoreError>,
    choose: &dyn Fn(&View) -> Selection,
) -> Result<Begun, BeginError> {
    // Before the record: one that resumes from nothing hides what is there.
    if let Selection::None { reasons } = choose(&look()?)
        && !reasons.is_empty()
    {
        return Err(BeginError::NothingUsable(reasons));
    }
    let mut passed = Vec::new();
    let id = store.fence_seeing(attempt, holder, look, |view| match choose(view) {
        Selection::Choice(choice) => {
            passed = choice.passed;
            Some(choice.commit.folder)
        }
        Selection::None { reasons } => {
            passed = reasons;
            None
        }
    })?;
    let name = within(ATTEMPTS, &id.record_file());
    // Without it, nobody knows what it resumes from; to start at step 0 then would hide every step.
    let record = store.read::<Fence>(&name)?.ok_or(BeginError::NoRecord {
        attempt: id.attempt,
        waited: Duration::ZERO,
    })?;
    Ok(Begun {
        id,
        resumes_from: record.document.resumes_from,
        passed,
    })
}

fn choose(
    store: &Store,
    view: &View,
    wanted: &Wanted,
    unreadable: &BTreeMap<StepName, String>,
) -> Selection {
    let commits = view.commits();
    let history = lineage(store.run(), &view.records, &commits);
    let mut known = suspects(&view.records, &commits);
    known.extend(unreadable.clone());
    let mut views = [TierView {
        tier: Tier::Shared,
        place: "store".into(),
        pieces: BTreeMap::new(),
    }];
    // Pieces of older commits are looked at only if newer ones are not enough.
    for seen in history.commits.iter().rev() {
        let pieces = store.pieces_seen(&seen.folder, &seen.commit.document);
        views[0].pieces.insert(seen.folder.clone(), pieces);
        let selection = select(&history, &views, wanted, &known);
        if matches!(selection, Selection::Choice(_)) {
            return selection;
        }
    }
    select(&history, &views, wanted, &known)
}

/// Waits for the record of an attempt as another rank: the highest one whose holder begins with `launch`.
///
/// A restart of rank 0 alone takes a higher record, and then this rank is fenced before it publishes anything.
pub fn join(
    store: &Store,
    clock: &dyn Clock,
    attempt: u32,
    launch: &str,
    timeout: Duration,
) -> Result<Begun, BeginError> {
    let start = clock.now();
    let mut pause = FIRST_PAUSE;
    loop {
        store.check_fence(AttemptId {
            attempt,
            restart: u32::MAX,
        })?;
        let mut found: Option<Fence> = None;
        for record in store.view()?.records {
            if let RecordSeen::Fence(fence) = record
                && fence.attempt == attempt
                && fence.holder.starts_with(launch)
                && found.as_ref().is_none_or(|known| known.id() < fence.id())
            {
                found = Some(fence);
            }
        }
        if let Some(fence) = found {
            return Ok(Begun {
                id: fence.id(),
                resumes_from: fence.resumes_from,
                passed: Vec::new(),
            });
        }
        let waited = clock.now().saturating_sub(start);
        if waited >= timeout {
            return Err(BeginError::NoRecord { attempt, waited });
        }
        clock.wait(pause.min(timeout.saturating_sub(waited)));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
