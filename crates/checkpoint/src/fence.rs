//! The records of attempts: who has begun, what it resumes from, and who is fenced by it.

use std::{collections::BTreeSet, io, time::Duration};

use trainyard_core::checkpoint::{
    ATTEMPTS, AttemptFile, AttemptId, Claim, Claimant, CommitRef, Fence, Policy, RecordSeen,
    Restored, StepName, VERSION, claim, fenced_by, lineage,
};

use crate::{
    publish::{Published, unfinished_base},
    remove::{self, Bounds},
    storage::within,
    store::{CLAIM_RETRIES, Store, StoreError, View},
};

/// The pauses before a store is looked at again whose view does not have the chosen commit; about 9 s in all.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Store {
    /// The records of attempts, read. Names that are not ours are added to `foreign`.
    pub(crate) fn records(&self, foreign: &mut Vec<String>) -> Result<Vec<RecordSeen>, StoreError> {
        let mut records = Vec::new();
        let entries = self
            .storage
            .list(ATTEMPTS)
            .map_err(StoreError::storage("list", ATTEMPTS))?;
        for entry in entries {
            let name = within(ATTEMPTS, &entry.name);
            let Ok((id, kind)) = AttemptId::from_file(&entry.name) else {
                let base = unfinished_base(&entry.name).unwrap_or_default();
                if AttemptId::from_file(base).is_err() {
                    foreign.push(name);
                }
                continue;
            };
            match kind {
                AttemptFile::Record => records.push(self.record(id, &name)),
                AttemptFile::Restored => records.extend(self.restored_record(id, &name)),
                AttemptFile::Drained => {}
            }
        }
        Ok(records)
    }

    /// A record. One that is not of this attempt and run still fences by its name, and says nothing else.
    fn record(&self, id: AttemptId, name: &str) -> RecordSeen {
        let why = match self.read::<Fence>(name) {
            Ok(Some(fence)) if fence.document.id() != id => {
                format!("`{name}` is the record of another attempt")
            }
            Ok(Some(fence)) if fence.document.run != self.run() => {
                format!("`{name}` is of another run, `{}`", fence.document.run)
            }
            Ok(Some(fence)) => return RecordSeen::Fence(fence.document),
            Ok(None) => format!("`{name}` cannot be opened"),
            Err(error) => error.to_string(),
        };
        RecordSeen::Unreadable { id, why }
    }

    fn restored_record(&self, id: AttemptId, name: &str) -> Option<RecordSeen> {
        let found = self.read::<Restored>(name).ok()??.document;
        let is_ours =
            found.run == self.run() && (found.attempt, found.restart) == (id.attempt, id.restart);
        is_ours.then_some(RecordSeen::Restored(found))
    }

    /// Fails if a higher attempt than `mine` has begun. Only names are read: a name alone fences.
    pub fn check_fence(&self, mine: AttemptId) -> Result<(), StoreError> {
        // What the drain has seen on the shared tier fences the local one, too.
        let behind = self.behind.as_ref();
        if let Some(by) = behind.and_then(|behind| behind.board.lock().fenced)
            && by > mine
        {
            return Err(StoreError::Fenced { mine, by });
        }
        let entries = self
            .storage
            .list(ATTEMPTS)
            .map_err(StoreError::storage("list", ATTEMPTS))?;
        let records: Vec<RecordSeen> = entries
            .iter()
            .filter_map(|entry| AttemptId::from_file(&entry.name).ok())
            .filter(|(_, kind)| *kind == AttemptFile::Record)
            .map(|(id, _)| RecordSeen::Unreadable {
                id,
                why: String::new(),
            })
            .collect();
        match fenced_by(mine, &records) {
            Some(by) => Err(StoreError::Fenced { mine, by }),
            None => Ok(()),
        }
    }

    /// Takes the record of an attempt: from here on, what earlier attempts commit is not seen.
    ///
    /// `choose` gets what is there and answers which commit the attempt resumes from. It is asked again where the view does not have
    /// that commit yet: a record without it would hide every commit from this attempt and from those after it.
    pub fn fence(
        &self,
        attempt: Option<u32>,
        holder: &str,
        mut choose: impl FnMut(&View) -> Option<StepName>,
    ) -> Result<AttemptId, StoreError> {
        let claimant = Claimant::new(attempt, holder);
        let look = || self.view();
        self.take_record(&claimant, None, &look, |view| Ok(choose(view)))
    }

    /// The same on a disk that may be full: where there is no room for the record, what `keep` allows is removed, and the record is
    /// taken once more. The chosen commit stays. An error of `choose` is returned, and no record is taken.
    pub fn fence_keeping<E: From<StoreError>>(
        &self,
        claimant: &Claimant,
        keep: &Policy,
        choose: impl FnMut(&View) -> Result<Option<StepName>, E>,
    ) -> Result<AttemptId, E> {
        self.fence_seeing(claimant, keep, &|| self.view(), choose)
    }

    /// The same where more than this store has commits of the run: `look` gives the view of all.
    pub(crate) fn fence_seeing<E: From<StoreError>>(
        &self,
        claimant: &Claimant,
        keep: &Policy,
        look: &dyn Fn() -> Result<View, StoreError>,
        choose: impl FnMut(&View) -> Result<Option<StepName>, E>,
    ) -> Result<AttemptId, E> {
        self.take_record(claimant, Some(keep), look, choose)
    }

    fn take_record<E: From<StoreError>>(
        &self,
        claimant: &Claimant,
        mut keep: Option<&Policy>,
        look: &dyn Fn() -> Result<View, StoreError>,
        mut choose: impl FnMut(&View) -> Result<Option<StepName>, E>,
    ) -> Result<AttemptId, E> {
        let mut pause = FIRST_PAUSE;
        let mut failure = StoreError::Contended;
        for _ in 0..CLAIM_RETRIES {
            let view = look()?;
            let id = match claim(claimant, &view.records) {
                Claim::Mine(id) => {
                    // An earlier call may have been cut between the publish and the sync.
                    self.sync_folder(ATTEMPTS)?;
                    return Ok(id);
                }
                Claim::Fenced(by) => {
                    let mine = AttemptId::first(claimant.store_attempt(&view.records).unwrap_or(0));
                    return Err(StoreError::Fenced { mine, by }.into());
                }
                Claim::Take(id) => id,
            };
            let history = lineage(self.run(), &view.records, &view.commits());
            let resume = choose(&view)?;
            if let Some(folder) = resume.as_ref().filter(|folder| !history.has(folder)) {
                failure = StoreError::NotInHistory(folder.clone());
                self.clock.wait(pause);
                pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
                continue;
            }
            let record = history.fence(self.run(), id, claimant, resume.as_ref());
            let name = within(ATTEMPTS, &id.record_file());
            match self.publish(&name, &record) {
                Ok(Published::Done) => return Ok(id),
                Ok(Published::Other(_)) => failure = StoreError::Contended,
                Err(error) if error.is_full() => {
                    let Some(policy) = keep.take() else {
                        return Err(error.into());
                    };
                    let bounds = Bounds {
                        pinned: resume.into_iter().collect::<BTreeSet<_>>(),
                        in_time: &|| true,
                    };
                    // What cannot be removed shows in the second try.
                    drop(remove::prune_within(self, None, policy, false, &bounds));
                    failure = error;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(failure.into())
    }

    /// The commit that an attempt resumes from, as its record says; `None` where it starts at step 0.
    ///
    /// Every rank of an attempt restores this one ([`crate::Loader::load_commit`]) and none chooses by itself.
    pub fn resumes_from(&self, id: AttemptId) -> Result<Option<CommitRef>, StoreError> {
        let name = within(ATTEMPTS, &id.record_file());
        match self.read::<Fence>(&name)? {
            Some(fence) => Ok(fence.document.resumes_from),
            None => Err(StoreError::storage("read", &name)(
                io::ErrorKind::NotFound.into(),
            )),
        }
    }

    /// Records that every rank of an attempt has restored, so that its end is not held against the step.
    pub fn restored(&self, id: AttemptId, folder: &StepName) -> Result<(), StoreError> {
        let document = Restored {
            version: VERSION,
            run: self.run().to_owned(),
            attempt: id.attempt,
            restart: id.restart,
            folder: folder.clone(),
            other: serde_json::Map::new(),
        };
        let name = within(ATTEMPTS, &id.restored_file());
        self.publish(&name, &document).map(|_| ())
    }
}
