//! The start of an attempt: rank 0 chooses what is restored and publishes the record, other ranks learn both from it.
//!
//! Choice and record follow from one look at the store. So the record never names a commit that the attempt did not see, and
//! every rank that reads the record restores the same step.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use trainyard_core::checkpoint::{
    ATTEMPTS, AttemptId, Claimant, CommitRef, CommitSeen, Fence, Passed, Policy, RecordSeen,
    Selection, StepName, Tier, TierView, Wanted, head, lineage, suspects, suspects_at_start,
};

use crate::{
    choose,
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
/// `unreadable` are steps that this attempt could not read, with the reason; they are passed over. Where there is no room for the
/// record, what `keep` allows is removed. Where there are steps and none can be restored, no record is published: one that resumes from
/// nothing would hide them.
pub fn begin(
    store: &Store,
    claimant: &Claimant,
    wanted: &Wanted,
    unreadable: &BTreeMap<StepName, String>,
    keep: &Policy,
) -> Result<Begun, BeginError> {
    let choose = |view: &View| {
        let attempt = claimant.store_attempt(&view.records);
        choose(store, view, attempt, wanted, unreadable)
    };
    begin_seeing(store, claimant, keep, &|| store.view(), &choose)
}

/// The same with a view that `look` gives and a choice that follows from it.
pub(crate) fn begin_seeing(
    store: &Store,
    claimant: &Claimant,
    keep: &Policy,
    look: &dyn Fn() -> Result<View, StoreError>,
    choose: &dyn Fn(&View) -> Selection,
) -> Result<Begun, BeginError> {
    let mut passed = Vec::new();
    let id = store.fence_seeing(claimant, keep, look, |view| match choose(view) {
        Selection::Choice(choice) => {
            passed = choice.passed;
            Ok(Some(choice.commit.folder))
        }
        Selection::None { reasons } if reasons.is_empty() => Ok(None),
        Selection::None { reasons } => Err(BeginError::NothingUsable(reasons)),
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

/// The commit that an attempt would resume from now, or the one of a step; nothing is recorded, so nobody is fenced.
pub fn find(
    store: &Store,
    step: Option<u64>,
    wanted: &Wanted,
) -> Result<Option<CommitRef>, BeginError> {
    let view = store.view()?;
    let commits = view.commits();
    let history = lineage(store.run(), &view.records, &commits);
    let folder = match step {
        Some(step) => (history.commits.iter().rev())
            .find(|seen| seen.folder.step == step)
            .map(|seen| seen.folder.clone()),
        None => match choose(store, &view, None, wanted, &BTreeMap::new()) {
            Selection::Choice(choice) => Some(choice.commit.folder),
            Selection::None { reasons } if reasons.is_empty() => None,
            Selection::None { reasons } => return Err(BeginError::NothingUsable(reasons)),
        },
    };
    let seen = folder.and_then(|folder| {
        let mut commits = history.commits.iter();
        commits.find(|seen| seen.folder == folder)
    });
    Ok(seen.map(|seen| CommitRef {
        folder: seen.folder.clone(),
        crc32c: seen.commit.crc32c,
    }))
}

/// The commits after one that was loaded, with the reason why an attempt that continues from it passes over them.
pub fn later_than(
    store: &Store,
    loaded: &StepName,
) -> Result<BTreeMap<StepName, String>, BeginError> {
    let view = store.view()?;
    let history = lineage(store.run(), &view.records, &view.commits());
    let after = (history.commits.iter().rev()).take_while(|seen| seen.folder != *loaded);
    let why = format!("step {} was loaded instead", loaded.step);
    Ok(after
        .map(|seen| (seen.folder.clone(), why.clone()))
        .collect())
}

/// The steps that attempts died on. Whoever counts attempts starts one when those before it have ended; without a number, the newest may be
/// restoring now.
pub(crate) fn suspected(
    view: &View,
    commits: &[CommitSeen],
    attempt: Option<u32>,
) -> BTreeMap<StepName, String> {
    let is_next = attempt
        .is_some_and(|mine| head(&view.records).is_some_and(|newest| newest.id.attempt < mine));
    if is_next {
        suspects_at_start(&view.records, commits)
    } else {
        suspects(&view.records, commits)
    }
}

fn choose(
    store: &Store,
    view: &View,
    attempt: Option<u32>,
    wanted: &Wanted,
    unreadable: &BTreeMap<StepName, String>,
) -> Selection {
    let commits = view.commits();
    let history = lineage(store.run(), &view.records, &commits);
    let mut known = suspected(view, &commits, attempt);
    known.extend(unreadable.clone());
    let mut views = [TierView {
        tier: Tier::Shared,
        place: "store".into(),
        pieces: BTreeMap::new(),
    }];
    choose::choose(&history, &mut views, wanted, &known, |_, seen| {
        Some(store.pieces_seen(&seen.folder, &seen.commit.document))
    })
    .with_unreadable(&history, &view.folders)
}

/// Waits for the record of an attempt as another rank: the highest one whose holder begins as that of `claimant`, which is the name of the launch.
///
/// A restart of rank 0 alone takes a higher record, and then this rank is fenced before it publishes anything.
pub fn join(
    store: &Store,
    clock: &dyn Clock,
    claimant: &Claimant,
    timeout: Duration,
) -> Result<Begun, BeginError> {
    let start = clock.now();
    let mut pause = FIRST_PAUSE;
    loop {
        let records = store.view()?.records;
        let attempt = claimant.store_attempt(&records).unwrap_or(0);
        store.check_fence(AttemptId {
            attempt,
            restart: u32::MAX,
        })?;
        let mut found: Option<Fence> = None;
        for record in records {
            if let RecordSeen::Fence(fence) = record
                && claimant.is_of(&fence)
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
