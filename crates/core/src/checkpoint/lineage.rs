//! Which commits exist for an attempt: the fence rule and the one history that follows from it.
//!
//! No clock, no lock, no lease. A commit counts if and only if the highest record is of the pair that saved it, or acknowledges it by
//! folder and checksum. So what a zombie of an earlier attempt commits is complete, harmless and invisible.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    codec::{Sealed, VERSION},
    manifest::{Commit, CommitRef, Fence, JobAttempt, Restored},
    names::{AttemptId, StepName},
};

/// How many attempts must die while restoring a step until it is suspect.
pub const SUSPECT_AFTER: usize = 2;

/// A file of `attempts/` as it was found.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordSeen {
    /// A record that could be read.
    Fence(Fence),
    /// A record that could not be read. Its name alone still fences.
    Unreadable {
        /// The attempt in its name.
        id: AttemptId,
        /// Why it could not be read.
        why: String,
    },
    /// A file that says that every rank has restored.
    Restored(Restored),
}

/// A commit as it was found in a folder.
#[derive(Clone, Debug, PartialEq)]
pub struct CommitSeen {
    /// The folder it was found in.
    pub folder: StepName,
    /// What it says.
    pub commit: Sealed<Commit>,
}

impl CommitSeen {
    /// How records refer to it.
    pub fn reference(&self) -> CommitRef {
        CommitRef {
            folder: self.folder.clone(),
            crc32c: self.commit.crc32c,
        }
    }
}

/// The highest record, which decides what counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The highest pair that has a record, readable or not.
    pub id: AttemptId,
    /// The highest record that could be read; that of `id` unless it is unreadable.
    pub record: Option<Fence>,
    /// Why the record of `id` could not be read.
    pub unreadable: Option<String>,
}

/// Why a complete commit does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotCounted {
    /// No attempt has a record.
    NoRecord,
    /// The commit says that it belongs to another folder.
    WrongFolder,
    /// It is of another run.
    OtherRun {
        /// Its run.
        run: String,
    },
    /// It was committed after this attempt had begun, by an earlier one.
    Fenced {
        /// The attempt that saved it.
        of: AttemptId,
        /// The attempt that does not acknowledge it.
        by: AttemptId,
    },
    /// Its attempt is higher than the highest record.
    Ahead {
        /// The attempt that saved it.
        of: AttemptId,
        /// The highest record.
        by: AttemptId,
    },
    /// The highest record acknowledges another commit of this folder.
    OtherChecksum {
        /// The attempt whose record it is.
        by: AttemptId,
    },
    /// It is newer than the commit that the highest attempt resumed from.
    PassedOver {
        /// The attempt that resumed from an older one, or from step 0.
        by: AttemptId,
    },
}

impl fmt::Display for NotCounted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRecord => out.write_str("no attempt has a record"),
            Self::WrongFolder => out.write_str("its `COMMIT.json` is of another folder"),
            Self::OtherRun { run } => write!(out, "it is of another run, `{run}`"),
            Self::Fenced { of, by } => write!(
                out,
                "attempt {of} committed it after attempt {by} had begun without it"
            ),
            Self::Ahead { of, by } => write!(
                out,
                "attempt {of} saved it, and the highest record is that of attempt {by}"
            ),
            Self::OtherChecksum { by } => write!(
                out,
                "attempt {by} acknowledged another commit of this folder"
            ),
            Self::PassedOver { by } => {
                write!(out, "attempt {by} resumed from an earlier step")
            }
        }
    }
}

/// The history of the run that the highest record sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lineage {
    /// The highest record.
    pub head: Option<Head>,
    /// The commits of the history, oldest first.
    pub commits: Vec<CommitSeen>,
    /// Complete commits that are no part of it, with the reason.
    pub side: Vec<(CommitSeen, NotCounted)>,
}

impl Lineage {
    /// The newest commit.
    pub fn newest(&self) -> Option<&CommitSeen> {
        self.commits.last()
    }

    /// The commit that the highest attempt resumed from.
    pub fn resumed_from(&self) -> Option<&StepName> {
        let record = self.head.as_ref()?.record.as_ref()?;
        record.resumes_from.as_ref().map(|commit| &commit.folder)
    }

    /// Whether a commit of the history has this folder.
    pub fn has(&self, folder: &StepName) -> bool {
        self.commits.iter().any(|commit| commit.folder == *folder)
    }

    /// The record of the attempt `id` that starts on this history and resumes from `resume`, one of its commits ([`Self::has`]).
    pub fn fence(
        &self,
        run: &str,
        id: AttemptId,
        claimant: &Claimant,
        resume: Option<&StepName>,
    ) -> Fence {
        let known = |commit: &&CommitSeen| Some(&commit.folder) == resume;
        Fence {
            version: VERSION,
            run: run.to_owned(),
            attempt: id.attempt,
            restart: id.restart,
            holder: claimant.holder.clone(),
            job: claimant.job_attempt(),
            resumes_from: self.commits.iter().find(known).map(CommitSeen::reference),
            acknowledged: self.commits.iter().map(CommitSeen::reference).collect(),
            other: serde_json::Map::new(),
        }
    }
}

/// The highest record among those found; `None` where there is none.
pub fn head(records: &[RecordSeen]) -> Option<Head> {
    let mut readable: Option<&Fence> = None;
    let mut highest: Option<(AttemptId, Option<&str>)> = None;
    for record in records {
        let (id, why) = match record {
            RecordSeen::Fence(fence) => {
                if readable.is_none_or(|known| known.id() < fence.id()) {
                    readable = Some(fence);
                }
                (fence.id(), None)
            }
            RecordSeen::Unreadable { id, why } => (*id, Some(why.as_str())),
            RecordSeen::Restored(_) => continue,
        };
        // The same record on two tiers, one of them damaged: the readable one decides.
        let better = |(known, damaged): (AttemptId, Option<&str>)| {
            known < id || (known == id && damaged.is_some() && why.is_none())
        };
        if highest.is_none_or(better) {
            highest = Some((id, why));
        }
    }
    highest.map(|(id, why)| Head {
        id,
        record: readable.cloned(),
        unreadable: why.map(str::to_owned),
    })
}

/// The fence rule: whether `commit` counts for readers of a store whose highest record is `head`.
pub fn counts(head: Option<&Head>, run: &str, seen: &CommitSeen) -> Result<(), NotCounted> {
    let commit = &seen.commit.document;
    if commit.run != run {
        return Err(NotCounted::OtherRun {
            run: commit.run.clone(),
        });
    }
    if commit.folder() != seen.folder {
        return Err(NotCounted::WrongFolder);
    }
    let head = head.ok_or(NotCounted::NoRecord)?;
    let (of, by) = (commit.id(), head.id);
    if of == by {
        return Ok(());
    }
    if of > by {
        return Err(NotCounted::Ahead { of, by });
    }
    let Some(record) = &head.record else {
        // Only unreadable records: nothing says what began when, so the history cannot be divided.
        return Ok(());
    };
    // The highest record is unreadable: the one before decides about what is older.
    if record.id() == of {
        return Ok(());
    }
    match record
        .acknowledged
        .iter()
        .find(|known| known.folder == seen.folder)
    {
        Some(known) if known.crc32c == seen.commit.crc32c => Ok(()),
        Some(_) => Err(NotCounted::OtherChecksum { by }),
        None => Err(NotCounted::Fenced { of, by }),
    }
}

/// The history that the highest record sees: up to the commit that it resumed from, then its own commits by step. A commit that was
/// found on several tiers is given once.
pub fn lineage(run: &str, records: &[RecordSeen], commits: &[CommitSeen]) -> Lineage {
    let head = head(records);
    let acknowledged: BTreeMap<&StepName, usize> = head
        .iter()
        .filter_map(|head| head.record.as_ref())
        .flat_map(|record| record.acknowledged.iter().enumerate())
        .map(|(place, commit)| (&commit.folder, place))
        .collect();
    let last = head.as_ref().and_then(|head| {
        let record = head.record.as_ref()?;
        let resumed = record.resumes_from.as_ref()?;
        acknowledged.get(&resumed.folder).copied()
    });
    let mut counted: BTreeMap<_, CommitSeen> = BTreeMap::new();
    let mut side = Vec::new();
    let mut known = BTreeSet::new();
    for seen in commits {
        if !known.insert(seen.reference()) {
            continue;
        }
        let by = head.as_ref().map_or(AttemptId::first(0), |head| head.id);
        let place = acknowledged.get(&seen.folder).copied();
        match counts(head.as_ref(), run, seen) {
            Ok(()) if place.is_some() && place > last => {
                side.push((seen.clone(), NotCounted::PassedOver { by }));
            }
            Ok(()) => {
                let commit = &seen.commit.document;
                // Acknowledged ones keep their order and come before those of the attempt itself.
                let order = (place.is_none(), place, commit.id(), commit.step);
                counted.insert((order, seen.folder.clone()), seen.clone());
            }
            Err(why) => side.push((seen.clone(), why)),
        }
    }
    Lineage {
        head,
        commits: counted.into_values().collect(),
        side,
    }
}

/// Whether an attempt may go on: the check before a piece or a commit is published.
pub fn fenced_by(mine: AttemptId, records: &[RecordSeen]) -> Option<AttemptId> {
    head(records).map(|head| head.id).filter(|id| *id > mine)
}

/// Who an attempt is after it has looked at the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Its record is there already: it goes on with it.
    Mine(AttemptId),
    /// It publishes this pair by exclusive create; if that fails it looks again.
    Take(AttemptId),
    /// A higher attempt has begun.
    Fenced(AttemptId),
}

/// Who begins an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimant {
    /// Its number, where somebody counts attempts.
    pub attempt: Option<u32>,
    /// The uid of the job that counts them; nothing where the number is the store's.
    pub job: Option<String>,
    /// The uid of its pod or the id of its launch.
    pub holder: String,
}

impl Claimant {
    /// One whose attempt is the store's own number, or has none yet.
    pub fn new(attempt: Option<u32>, holder: &str) -> Self {
        Self {
            attempt,
            job: None,
            holder: holder.to_owned(),
        }
    }

    /// Whether `fence` is a record of its attempt, held by one whose name begins as its own.
    pub fn is_of(&self, fence: &Fence) -> bool {
        let attempt = match &self.job {
            Some(_) => fence.job == self.job_attempt(),
            None => Some(fence.attempt) == self.attempt,
        };
        attempt && fence.holder.starts_with(&self.holder)
    }

    fn job_attempt(&self) -> Option<JobAttempt> {
        let (uid, attempt) = (self.job.clone()?, self.attempt?);
        Some(JobAttempt { uid, attempt })
    }

    /// The newest record, where it is of another job than this one, which had records before: the job of this one is gone, whatever its number.
    fn successor(&self, records: &[RecordSeen]) -> Option<AttemptId> {
        let uid = self.job.as_deref()?;
        let of = |fence: &Fence| fence.job.as_ref().is_some_and(|job| job.uid == uid);
        let mut fences = records.iter().filter_map(|record| match record {
            RecordSeen::Fence(fence) => Some(fence),
            _ => None,
        });
        let newest = fences.clone().max_by_key(|fence| fence.id())?;
        (!of(newest) && fences.any(of)).then(|| newest.id())
    }

    /// The number of its attempt in a store with `records`. The attempts of a job follow on those that were there before its first one.
    pub fn store_attempt(&self, records: &[RecordSeen]) -> Option<u32> {
        let attempt = self.attempt?;
        let Some(uid) = &self.job else {
            return Some(attempt);
        };
        let own = records.iter().filter_map(|record| match record {
            RecordSeen::Fence(fence) => {
                let job = fence.job.as_ref().filter(|job| job.uid == *uid)?;
                Some((fence.id(), fence.attempt.saturating_sub(job.attempt)))
            }
            _ => None,
        });
        let before = match own.max() {
            Some((_, before)) => before,
            None => head(records).map_or(0, |head| head.id.attempt),
        };
        Some(before.saturating_add(attempt))
    }
}

/// Which pair `claimant` takes; without an attempt of its own, one above the highest.
pub fn claim(claimant: &Claimant, records: &[RecordSeen]) -> Claim {
    if let Some(by) = claimant.successor(records) {
        return Claim::Fenced(by);
    }
    let attempt = claimant.store_attempt(records);
    let holder = &claimant.holder;
    let mine = records
        .iter()
        .filter_map(|record| match record {
            RecordSeen::Fence(fence) if fence.holder == *holder => Some(fence.id()),
            _ => None,
        })
        .filter(|id| attempt.is_none_or(|attempt| attempt == id.attempt))
        .max();
    let highest = head(records).map(|head| head.id);
    match (mine, highest, attempt) {
        (Some(mine), Some(highest), _) if mine == highest => Claim::Mine(mine),
        (_, Some(highest), Some(attempt)) if highest.attempt > attempt => Claim::Fenced(highest),
        (Some(_), Some(highest), _) => Claim::Fenced(highest),
        (None, Some(highest), Some(attempt)) if highest.attempt == attempt => {
            Claim::Take(AttemptId {
                attempt,
                restart: highest.restart.saturating_add(1),
            })
        }
        (_, _, Some(attempt)) => Claim::Take(AttemptId::first(attempt)),
        (_, highest, None) => {
            let next = highest.map_or(0, |highest| highest.attempt.saturating_add(1));
            Claim::Take(AttemptId::first(next))
        }
    }
}

/// Steps that attempts died on while they restored them, with the reason. The highest attempt is not counted: it may be restoring now.
/// An attempt that committed has restored, also where its commits were removed since: the record after it acknowledges them.
pub fn suspects(records: &[RecordSeen], commits: &[CommitSeen]) -> BTreeMap<StepName, String> {
    let highest = head(records).map(|head| head.id);
    let mut restored: BTreeSet<AttemptId> = records
        .iter()
        .filter_map(|record| match record {
            RecordSeen::Restored(done) => Some(AttemptId {
                attempt: done.attempt,
                restart: done.restart,
            }),
            _ => None,
        })
        .chain(commits.iter().map(|seen| seen.commit.document.id()))
        .collect();
    restored.extend(acknowledged_later(records));
    let mut died: BTreeMap<&StepName, BTreeSet<AttemptId>> = BTreeMap::new();
    for record in records {
        if let RecordSeen::Fence(fence) = record
            && let Some(from) = &fence.resumes_from
            && Some(fence.id()) != highest
            && !restored.contains(&fence.id())
        {
            died.entry(&from.folder).or_default().insert(fence.id());
        }
    }
    died.into_iter()
        .filter(|(_, attempts)| attempts.len() >= SUSPECT_AFTER)
        .map(|(folder, attempts)| {
            let names: Vec<String> = attempts.iter().take(8).map(ToString::to_string).collect();
            let why = format!(
                "{} attempts ended while they restored it ({})",
                attempts.len(),
                names.join(", ")
            );
            (folder.clone(), why)
        })
        .collect()
}

/// The attempts whose own commits the next record acknowledges: commits of that attempt which its own record does not have.
fn acknowledged_later(records: &[RecordSeen]) -> Vec<AttemptId> {
    let fences: BTreeMap<AttemptId, &Fence> = records
        .iter()
        .filter_map(|record| match record {
            RecordSeen::Fence(fence) => Some((fence.id(), fence)),
            _ => None,
        })
        .collect();
    let has_own = |before: &Fence, after: &Fence| {
        let known: BTreeSet<&CommitRef> = before.acknowledged.iter().collect();
        (after.acknowledged.iter())
            .any(|commit| commit.folder.attempt == before.attempt && !known.contains(commit))
    };
    (fences.values().zip(fences.values().skip(1)))
        .filter(|(before, after)| has_own(before, after))
        .map(|(before, _)| before.id())
        .collect()
}
