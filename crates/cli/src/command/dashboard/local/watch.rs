//! Notices which runs change, by looking at the times and sizes of few files.
//!
//! Every look costs the folder of runs, some folders of jobs, and the files of live runs; nothing of a run that is over. No thread and no descriptor is
//! held between two looks.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::Serialize;
use trainyard_core::chronicle::{Fact, What};
use trainyard_host::store::{RunFolder, Store};

use super::{
    cache::{FileStamp, is_settled, stamp},
    index::{Index, lock_stamp},
    logs::size,
    names,
};
use crate::failure::Failure;

/// Folders of jobs that are looked at each time; of more, the next ones come with the next look.
const JOBS_EACH: usize = 512;
/// Logs of a live run whose growth is looked at each time; of more, the next ones come with the next look.
const LOGS_EACH: usize = 1_024;
/// Logs that are listed at every look. Of more, every second look lists them, and so on: listing costs a call for each pod.
const LOGS_LISTED: usize = 16_384;
/// Facts of a run that are handed on each time; more are read by whoever asks for the history.
const FACTS_MAX: usize = 256;

/// A part of a run that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Part {
    Status,
    Strip,
    Logs,
    Checkpoints,
    Verdicts,
    Series,
}

/// What changed in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Change {
    /// The id of the run.
    pub(crate) run: String,
    /// Whether it is no longer stored.
    pub(crate) gone: bool,
    /// Which parts.
    pub(crate) parts: BTreeSet<Part>,
    /// What happened.
    pub(crate) facts: Vec<Fact>,
    /// Whether there were more facts than are handed on.
    pub(crate) is_cut: bool,
    /// The logs that grew.
    pub(crate) logs: Vec<LogGrowth>,
}

/// A log that grew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LogGrowth {
    pub(crate) attempt: u32,
    pub(crate) pod: String,
    pub(crate) container: String,
    /// How long it is now.
    pub(crate) size: u64,
}

/// Notices changes of the runs below a state folder.
#[derive(Debug)]
pub(crate) struct Watcher {
    root: PathBuf,
    index: Index,
    /// The folder of all jobs, as it was.
    runs: FileStamp,
    jobs: BTreeMap<String, Job>,
    /// The job that is looked at first the next time.
    next: usize,
}

#[derive(Debug, Default)]
struct Job {
    folder: FileStamp,
    /// Each engine writes to it once it has it.
    lock: FileStamp,
    /// The names of its runs, as far as they were seen.
    runs: BTreeSet<String>,
    live: Option<Live>,
}

/// A live run, as it was.
#[derive(Debug)]
struct Live {
    folder: RunFolder,
    files: BTreeMap<&'static str, FileStamp>,
    facts: u64,
    logs: BTreeMap<(u32, String, String), u64>,
    /// The log that is looked at first the next time.
    next_log: usize,
    /// How many looks list no logs from now on.
    skipped: usize,
}

/// The files that a live run writes, and what they are about.
const FILES: [(&str, &[Part]); 6] = [
    ("status.json", &[Part::Status, Part::Strip]),
    ("progress.json", &[Part::Status]),
    ("failures.json", &[Part::Status, Part::Verdicts]),
    ("pods.json", &[Part::Status]),
    (
        "report.json",
        &[
            Part::Status,
            Part::Strip,
            Part::Logs,
            Part::Checkpoints,
            Part::Verdicts,
        ],
    ),
    ("facts.jsonl", &[]),
];

impl Watcher {
    /// Watches the runs below `root`. What is there by now is no change; a run that begins and ends before the next look is.
    pub(crate) fn open(root: &Path) -> Result<Self, Failure> {
        Store::open(root).map_err(crate::stored::refused)?;
        let mut watcher = Self {
            root: root.to_owned(),
            index: Index::default(),
            runs: None,
            jobs: BTreeMap::new(),
            next: 0,
        };
        watcher.look(true);
        Ok(watcher)
    }

    /// What changed since the last look. A folder that cannot be read has no changes: an answer says why.
    pub(crate) fn poll(&mut self, _now: Timestamp) -> Vec<Change> {
        self.look(false)
    }

    fn look(&mut self, is_first: bool) -> Vec<Change> {
        let mut changes = Vec::new();
        let Ok(store) = Store::open(&self.root) else {
            return changes;
        };
        let runs = stamp(&self.root.join("runs"));
        if runs != self.runs
            && let Ok(names) = store.jobs()
        {
            // What changed just now may change once more and look the same.
            self.runs = runs.filter(|_| is_settled(runs));
            let names: BTreeSet<String> = names.into_iter().collect();
            let known: Vec<String> = self.jobs.keys().cloned().collect();
            for name in known.iter().filter(|name| !names.contains(*name)) {
                let job = self.jobs.remove(name).unwrap_or_default();
                changes.extend(job.runs.iter().map(|run| gone(name, run)));
            }
            for name in names {
                self.jobs.entry(name).or_default();
            }
        }
        for name in self.due() {
            self.look_at_job(&store, &name, is_first, &mut changes);
        }
        changes
    }

    /// The jobs with a live run, and the next ones of the others.
    fn due(&mut self) -> Vec<String> {
        let count = self.jobs.len();
        // All at first: who is live is not known.
        let is_new = |job: &Job| job.folder.is_none();
        let turn = self.next..self.next + JOBS_EACH;
        let is_turn = |at: usize| turn.contains(&at) || turn.contains(&(at + count));
        let due = self
            .jobs
            .iter()
            .enumerate()
            .filter(|(at, (_, job))| job.live.is_some() || is_new(job) || is_turn(*at))
            .map(|(_, (name, _))| name.clone())
            .collect();
        self.next = if count == 0 { 0 } else { turn.end % count };
        due
    }

    fn look_at_job(
        &mut self,
        store: &Store,
        name: &str,
        is_first: bool,
        changes: &mut Vec<Change>,
    ) {
        let folder = stamp(&self.root.join("runs").join(name));
        let lock = lock_stamp(&self.root, name);
        let live = self.index.live_run(store, name);
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        let ended = job
            .live
            .take_if(|known| live.as_ref() != Some(&known.folder.id));
        // An engine had the lock since the last look and is gone: its run may have been seen when it was not live yet.
        let was_missed = job.lock != lock && ended.is_none() && live.is_none() && !is_first;
        job.lock = lock;
        if let Some(mut ended) = ended {
            // What it wrote last, and that it is over.
            ended.skipped = 0;
            let mut change = ended.look();
            change.parts.insert(Part::Status);
            changes.push(change);
        }
        if job.folder != folder
            && let Ok(runs) = store.runs(name)
        {
            job.folder = folder.filter(|_| is_settled(folder));
            let names: BTreeSet<String> = runs.iter().map(|run| run.id.clone()).collect();
            changes.extend(job.runs.difference(&names).map(|run| gone(name, run)));
            let new = names.difference(&job.runs).filter(|_| !is_first);
            changes.extend(new.map(|run| status_of(name, run)));
            job.runs = names;
        }
        if let Some(last) = job.runs.last().filter(|_| was_missed) {
            let change = status_of(name, last);
            if !changes.contains(&change) {
                changes.push(change);
            }
        }
        if let Some(id) = live {
            if let Some(known) = &mut job.live {
                let change = known.look();
                if !change.parts.is_empty() || !change.facts.is_empty() {
                    changes.push(change);
                }
            } else {
                let runs = store.runs(name).unwrap_or_default();
                let folder = runs.into_iter().find(|run| run.id == id);
                job.live = folder.map(|folder| {
                    let mut live = Live {
                        folder,
                        files: BTreeMap::new(),
                        facts: 0,
                        logs: BTreeMap::new(),
                        next_log: 0,
                        skipped: 0,
                    };
                    // What is there already is no change.
                    let change = live.look();
                    if !is_first {
                        changes.push(change);
                    }
                    live
                });
            }
        }
    }
}

/// The status of a run changed.
fn status_of(job: &str, run: &str) -> Change {
    Change {
        run: names::id(&RunFolder {
            path: PathBuf::new(),
            job: job.to_owned(),
            id: run.to_owned(),
        }),
        parts: BTreeSet::from([Part::Status]),
        ..Change::default()
    }
}

fn gone(job: &str, run: &str) -> Change {
    Change {
        run: format!("{run}.{job}"),
        gone: true,
        ..Change::default()
    }
}

impl Live {
    fn look(&mut self) -> Change {
        let mut change = Change {
            run: names::id(&self.folder),
            ..Change::default()
        };
        for (name, parts) in FILES {
            let found = stamp(&self.folder.path.join(name));
            if self.files.insert(name, found) != Some(found) && found.is_some() {
                change.parts.extend(parts);
                if name == "facts.jsonl" {
                    self.read_facts(&mut change);
                }
            }
        }
        self.look_at_logs(&mut change);
        change
    }

    fn read_facts(&mut self, change: &mut Change) {
        let mut facts = VecDeque::new();
        let mut parts = BTreeSet::new();
        let mut is_cut = false;
        let read = self.folder.read_facts(self.facts, |fact| {
            parts.insert(part_of(&fact.what));
            if facts.len() == FACTS_MAX {
                facts.pop_front();
                is_cut = true;
            }
            facts.push_back(fact);
        });
        if let Ok(Some(read)) = read {
            self.facts = read.next;
        }
        change.facts = facts.into();
        change.is_cut = is_cut;
        change.parts.extend(parts);
    }

    /// Only the last attempt writes.
    fn look_at_logs(&mut self, change: &mut Change) {
        if self.skipped > 0 {
            self.skipped -= 1;
            return;
        }
        let attempts = self.folder.attempts().unwrap_or_default();
        let Some(attempt) = attempts.last() else {
            return;
        };
        let logs = self.folder.logs(*attempt).unwrap_or_default();
        self.logs.retain(|(of, ..), _| of == attempt);
        let count = logs.len();
        self.skipped = count / LOGS_LISTED;
        let first = match count {
            0..=LOGS_EACH => 0,
            _ => self.next_log % count,
        };
        self.next_log = first + LOGS_EACH;
        let turn = logs.iter().cycle().skip(first);
        for log in turn.take(count.min(LOGS_EACH)) {
            let size = size(log);
            let key = (*attempt, log.pod.clone(), log.container.clone());
            if self.logs.insert(key, size) != Some(size) && size > 0 {
                change.parts.insert(Part::Logs);
                change.logs.push(LogGrowth {
                    attempt: *attempt,
                    pod: log.pod.clone(),
                    container: log.container.clone(),
                    size,
                });
            }
        }
    }
}

/// Which part of a page shows a fact.
fn part_of(what: &What) -> Part {
    match what {
        What::Verdict(_) => Part::Verdicts,
        What::Saved(_) => Part::Checkpoints,
        What::Point { .. } => Part::Series,
        What::Spent(_) | What::Waiting(_) | What::Ended { .. } => Part::Status,
        _ => Part::Strip,
    }
}
