//! The jobs and runs that are stored, in brief: read once, and again where they change.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use jiff::Timestamp;
use trainyard_core::{
    job::JobStatus,
    view::{
        failures::Judged,
        rows::{self, Ending, Line, RowState},
    },
};
use trainyard_host::{
    Outcome,
    store::{RunFolder, RunOutline, Store, StoreError},
};

use super::{
    cache::{FileStamp, Stamp, stamp},
    lock, names,
};
use crate::stored::Stored;

/// Threads that read runs: more would wait for the same disk.
const READERS: usize = 4;
/// Runs that are kept in brief. One takes about a kilobyte.
const BRIEFS_KEPT: usize = 50_000;

/// A run in brief.
#[derive(Clone, Debug)]
pub(super) struct Brief {
    pub(super) namespace: String,
    pub(super) kind: String,
    pub(super) state: RowState,
    pub(super) line: Option<Line>,
    pub(super) ranks: u32,
    pub(super) attempt: u32,
    pub(super) step: Option<u64>,
    pub(super) trained_ratio: Option<f64>,
    pub(super) started_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    /// The verdicts on its attempts.
    pub(super) judged: Vec<Judged>,
}

/// A run, and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) folder: RunFolder,
    pub(super) live: bool,
    /// The error says why it cannot be read.
    pub(super) brief: Result<Arc<Brief>, String>,
}

/// What is known of a run in brief; the error says why it cannot be read.
type Known = Result<Arc<Brief>, String>;

/// What is known of all runs in brief.
#[derive(Debug, Default)]
pub(super) struct Index {
    briefs: BTreeMap<String, (Stamp, Known)>,
    /// The lock file of each job, and the run that held it.
    locks: BTreeMap<String, (FileStamp, Option<String>)>,
}

/// Jobs whose runs cannot be listed, and why.
type Unlisted = Vec<(String, String)>;

impl Index {
    /// The last run of every job, by job, and the jobs whose runs cannot be listed.
    pub(super) fn newest(
        &mut self,
        store: &Store,
        now: Timestamp,
    ) -> Result<(Vec<Entry>, Unlisted), StoreError> {
        let (mut wanted, mut unlisted) = (Vec::new(), Vec::new());
        for job in store.jobs()? {
            // Asked first: a run that ends in between is then seen as live, and never as one whose engine died.
            let live = self.live_run(store, &job);
            match store.runs(&job) {
                Ok(mut runs) => wanted.extend(runs.pop().map(|run| {
                    let is_live = live.as_ref() == Some(&run.id);
                    (run, is_live)
                })),
                Err(error) => unlisted.push((job, error.to_string())),
            }
        }
        Ok((self.entries(&wanted, now), unlisted))
    }

    /// Every run that is stored, at most `most` of them, the newest first.
    pub(super) fn all(
        &mut self,
        store: &Store,
        most: usize,
        now: Timestamp,
    ) -> Result<Vec<Entry>, StoreError> {
        let mut wanted = Vec::new();
        for job in store.jobs()? {
            let live = self.live_run(store, &job);
            let runs = store.runs(&job).unwrap_or_default().into_iter();
            wanted.extend(runs.map(|run| {
                let is_live = live.as_ref() == Some(&run.id);
                (run, is_live)
            }));
        }
        wanted.sort_by(|(one, _), (other, _)| other.id.cmp(&one.id));
        wanted.truncate(most);
        Ok(self.entries(&wanted, now))
    }

    /// The runs of one job, at most `most` of them, the newest first.
    pub(super) fn of_job(
        &mut self,
        store: &Store,
        job: &str,
        most: usize,
        now: Timestamp,
    ) -> Result<Vec<Entry>, StoreError> {
        let live = self.live_run(store, job);
        let runs = store.runs(job)?.into_iter().rev().take(most);
        let wanted = runs.map(|run| {
            let is_live = live.as_ref() == Some(&run.id);
            (run, is_live)
        });
        let wanted: Vec<_> = wanted.collect();
        Ok(self.entries(&wanted, now))
    }

    /// The run of `job` whose engine lives. Whoever asks the store takes the lock for a moment where nobody has it, and an engine that starts in that
    /// moment would find it taken: so the store is asked only where an engine had the lock, or has written to it since.
    pub(super) fn live_run(&mut self, store: &Store, job: &str) -> Option<String> {
        let found = lock_stamp(store.root(), job);
        found?;
        if let Some((known, None)) = self.locks.get(job)
            && *known == found
        {
            return None;
        }
        let live = store.live_run(job);
        self.locks.insert(job.to_owned(), (found, live.clone()));
        live
    }

    fn entries(&mut self, wanted: &[(RunFolder, bool)], now: Timestamp) -> Vec<Entry> {
        let mut missing = Vec::new();
        let mut entries: Vec<Option<Entry>> = Vec::new();
        for (at, (folder, live)) in wanted.iter().enumerate() {
            let stamp = Stamp::of(folder);
            let known = self.briefs.get(&names::id(folder));
            let known = known.filter(|(known, _)| !live && *known == stamp);
            entries.push(known.map(|(_, brief)| Entry {
                folder: folder.clone(),
                live: *live,
                brief: brief.clone(),
            }));
            if known.is_none() {
                missing.push((at, stamp));
            }
        }
        let read = read_all(wanted, &missing, now);
        for ((at, stamp), brief) in missing.into_iter().zip(read) {
            let (Some((folder, live)), Some(entry)) = (wanted.get(at), entries.get_mut(at)) else {
                continue;
            };
            if !live && stamp.is_settled() {
                if self.briefs.len() >= BRIEFS_KEPT {
                    self.briefs.clear();
                }
                self.briefs
                    .insert(names::id(folder), (stamp, brief.clone()));
            }
            *entry = Some(Entry {
                folder: folder.clone(),
                live: *live,
                brief,
            });
        }
        entries.into_iter().flatten().collect()
    }
}

/// What the lock file of a job looks like.
pub(super) fn lock_stamp(root: &Path, job: &str) -> FileStamp {
    stamp(&root.join("runs").join(job).join("run.lock"))
}

/// Reads the runs that are missing, on as many threads as help.
fn read_all(
    wanted: &[(RunFolder, bool)],
    missing: &[(usize, Stamp)],
    now: Timestamp,
) -> Vec<Known> {
    let next = AtomicUsize::new(0);
    let empty = Err("it was not read".to_owned());
    let found: Mutex<Vec<Known>> = Mutex::new(vec![empty; missing.len()]);
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some((at, _)) = missing.get(place) else {
                return;
            };
            let Some((folder, live)) = wanted.get(*at) else {
                return;
            };
            let brief = Brief::read(folder, *live, now).map(Arc::new);
            let brief = brief.map_err(|error| error.to_string());
            if let Some(slot) = lock(&found).get_mut(place) {
                *slot = brief;
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // A few are read sooner than a thread is started.
    let readers = cores.min(READERS).min(missing.len() / 16).max(1);
    thread::scope(|scope| {
        for _ in 1..readers {
            scope.spawn(work);
        }
        work();
    });
    found.into_inner().unwrap_or_default()
}

impl Brief {
    fn read(folder: &RunFolder, live: bool, now: Timestamp) -> Result<Self, StoreError> {
        let outline = folder.outline()?;
        let judged = |at: Timestamp, verdict| Judged {
            run: names::id(folder),
            job: folder.job.clone(),
            namespace: outline.namespace.clone(),
            at,
            verdict,
        };
        let Some(report) = &outline.report else {
            let run = Stored::read_as(folder.clone(), live)?;
            let failures = run.failures.iter();
            let judged = failures.filter_map(|it| Some(judged(it.at, it.verdict.clone()?)));
            return Ok(Self::of_status(&outline, &run, judged.collect(), now));
        };
        let state = rows::state(Some(ending(report.outcome)), false, &JobStatus::default());
        let failures = report.failures.iter();
        let mut all: Vec<Judged> = failures
            .filter_map(|it| Some(judged(it.at, it.verdict.clone()?)))
            .collect();
        let last = report.verdict.clone().map(|it| judged(report.ended_at, it));
        // The failure that ended the job is among those of its attempts, but for one that no pod had.
        let is_new = |last: &Judged| {
            let mut known = all.iter();
            !known.any(|it| it.verdict.attempt == last.verdict.attempt)
        };
        let last = last.filter(is_new);
        all.extend(last);
        let verdict = all.last().map(|it| &it.verdict);
        let message = Some(report.message.as_str());
        let shown = rows::line(state, &JobStatus::default(), verdict, message, now);
        Ok(Self {
            state,
            line: shown,
            ranks: outline.ranks.count(&outline.replicas),
            attempt: report.attempts,
            step: report.last_step,
            trained_ratio: report.trained_ratio,
            started_at: outline.started_at,
            ended_at: Some(report.ended_at),
            judged: all,
            namespace: outline.namespace,
            kind: outline.kind,
        })
    }

    /// Of a run that has no report.
    fn of_status(outline: &RunOutline, run: &Stored, judged: Vec<Judged>, now: Timestamp) -> Self {
        let row = run.row();
        let status = run.status_now();
        let state = rows::state(None, run.live, &status);
        let verdict = judged.last().map(|it| &it.verdict);
        Self {
            state,
            line: rows::line(state, &status, verdict, None, now),
            ranks: outline.ranks.count(&outline.replicas),
            attempt: row.attempts,
            step: row.shown_step().0,
            trained_ratio: status.trainyard.ledger.ettr(now),
            started_at: outline.started_at,
            ended_at: None,
            judged,
            namespace: outline.namespace.clone(),
            kind: outline.kind.clone(),
        }
    }
}

/// How a run is over.
pub(super) fn ending(outcome: Outcome) -> Ending {
    match outcome {
        Outcome::Succeeded => Ending::Succeeded,
        Outcome::Failed => Ending::Failed,
        Outcome::Stopped => Ending::Stopped,
    }
}
