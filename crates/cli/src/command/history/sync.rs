//! `trainyard history sync`: the runs of a state folder become history.
//!
//! Invariants: nothing in the state folder is changed. A run that is written is passed over by its id, which is made of its name, its job, its process and
//! the nanosecond at which it began, and so does not depend on where the folder lies. The sums that are written of a run that ended are those of its ledger.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use trainyard_core::{
    chronicle::{Chronicle, Fact, What},
    ledger::PhaseMillis,
    spec,
    view::rows,
};
use trainyard_history::{BATCH, End, HistoryError, Pruned, Retention, Run, Store, Written};
use trainyard_host::{
    Outcome,
    store::{RunFolder, Store as Runs},
};

use super::{open, refused, retention};
use crate::{
    args::{Format, HistorySync},
    command::dashboard::local::{history as facts, names},
    failure::{Exit, Failure},
    printer::{Printer, Verbosity},
    stored::{self, Stored},
    words,
};

/// The label that names the team of a job.
const TEAM: &str = "/metadata/labels/trainyard.dev~1team";
/// How often a terminal shows how far it is.
const SHOWN_EVERY: Duration = Duration::from_millis(500);

/// What was done, as JSON. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Done {
    version: u32,
    store: PathBuf,
    state_folder: PathBuf,
    /// Runs of which something was written.
    written: u64,
    /// Runs that were written whole before.
    known: u64,
    /// Runs that live: what they do next is for the next call.
    live: u64,
    /// Runs whose folder was removed before its end was read.
    lost: u64,
    /// Runs that ended so long ago that they are not kept, or that the cap has no room for.
    too_old: u64,
    facts: Facts,
    /// There was no room for details: only ends were written.
    full: bool,
    unreadable: Vec<Unreadable>,
    pruned: Pruned,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Facts {
    new: u64,
    /// Facts that cannot be true.
    refused: u64,
    no_room: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Unreadable {
    job: String,
    run_id: Option<String>,
    reason: String,
}

/// Why a run is not taken.
enum Untaken {
    /// Its folder cannot be read: the others can.
    Run(String),
    /// The history cannot be written.
    History(HistoryError),
}

impl From<HistoryError> for Untaken {
    fn from(error: HistoryError) -> Self {
        Self::History(error)
    }
}

/// Runs the command.
pub(super) fn run(args: &HistorySync, path: &Path, printer: &mut Printer) -> Result<Exit, Failure> {
    let runs = stored::open(&args.state)?;
    let root = fs::canonicalize(runs.root())
        .with_context(|| format!("cannot read the state folder `{}`", runs.root().display()));
    let root = root.map_err(|error| {
        Failure::from(error)
            .hint("`trainyard run` makes it where it is started; `--state-dir` selects another")
    })?;
    let mut store = open(path, "sync", printer)?;
    let retention = retention(&args.keep);
    let places = (root.as_path(), path);
    let done = take_all(
        &mut store,
        &runs,
        places,
        &retention,
        Timestamp::now(),
        printer,
    );
    let done = done.map_err(refused)?;
    match args.format {
        Format::Json => printer.json(&done)?,
        Format::Text => printer.summary(&in_words(&done)),
    }
    for it in &done.unreadable {
        let run = it
            .run_id
            .as_ref()
            .map_or(String::new(), |run| format!(", run `{run}`"));
        printer.summary(&format!("warning: job `{}`{run}: {}", it.job, it.reason));
    }
    if done.full {
        printer.summary(&format!(
            "warning: there is no room for details at `{}`: only ends are written; free space and sync again",
            path.display()
        ));
    }
    let is_whole = done.unreadable.is_empty() && !done.full;
    Ok(if is_whole { Exit::Done } else { Exit::Failed })
}

fn in_words(done: &Done) -> String {
    let mut text = format!(
        "took {} with {} into `{}`; {} known, {} live",
        words::counted(done.written, "run"),
        words::counted(done.facts.new, "fact"),
        done.store.display(),
        words::grouped(done.known),
        words::grouped(done.live),
    );
    for (count, what) in [
        (done.lost, "lost with their folders"),
        (done.too_old, "too old to be kept"),
        (done.facts.refused, "facts that cannot be true"),
    ] {
        if count > 0 {
            write!(text, ", {} {what}", words::grouped(count)).expect("a string takes it");
        }
    }
    text
}

/// Takes every run of `runs`, the oldest first, and deletes what is due.
fn take_all(
    store: &mut Store,
    runs: &Runs,
    (root, path): (&Path, &Path),
    retention: &Retention,
    now: Timestamp,
    printer: &mut Printer,
) -> Result<Done, HistoryError> {
    let mut done = Done {
        version: 1,
        store: path.to_owned(),
        state_folder: root.to_owned(),
        ..Done::default()
    };
    // With the name of the machine: an import may bring live runs of another machine's folder with the same path, and they are not lost here.
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let source = format!("{}:{}", host.trim(), root.display());
    let mut folders: Vec<(RunFolder, bool)> = Vec::new();
    let mut is_complete = true;
    let unlisted = |job: &str, reason: String| Unreadable {
        job: job.to_owned(),
        run_id: None,
        reason,
    };
    let jobs = runs.jobs().unwrap_or_else(|error| {
        is_complete = false;
        done.unreadable.push(unlisted("*", error.to_string()));
        Vec::new()
    });
    for job in jobs {
        // Asked first: a run that ends in between is then seen as live, and taken to its end the next time.
        let live = runs.live_run(&job);
        match runs.runs(&job) {
            Ok(all) => folders.extend(all.into_iter().map(|folder| {
                let is_live = live.as_ref() == Some(&folder.id);
                (folder, is_live)
            })),
            Err(error) => {
                is_complete = false;
                done.unreadable.push(unlisted(&job, error.to_string()));
            }
        }
    }
    folders.sort_by(|(one, _), (other, _)| (&one.id, &one.job).cmp(&(&other.id, &other.job)));
    let oldest = retention.end_cutoff(now.as_millisecond());
    // What the cap deleted is still in its folder: it would be written and deleted again each time.
    let oldest = oldest.max(store.cap_cutoff(retention)?);
    let mut taking = Taking {
        store,
        runs,
        source: &source,
        now,
        oldest,
        found: BTreeSet::new(),
        done: &mut done,
    };
    let count = folders.len();
    let mut shown = Instant::now();
    let wants = printer.stderr_is_terminal() && printer.verbosity() >= Verbosity::Normal;
    let mut has_shown = false;
    for (at, (folder, live)) in folders.into_iter().enumerate() {
        if wants && shown.elapsed() > SHOWN_EVERY {
            printer.draw(&format!("\rrun {at} of {count}\u{1b}[K"));
            shown = Instant::now();
            has_shown = true;
        }
        let (job, run) = (folder.job.clone(), folder.id.clone());
        match taking.take(folder, live) {
            Ok(()) => {}
            Err(Untaken::History(error)) => return Err(error),
            Err(Untaken::Run(reason)) => {
                is_complete = false;
                taking.done.unreadable.push(Unreadable {
                    job,
                    run_id: Some(run),
                    reason,
                });
            }
        }
    }
    if has_shown {
        printer.draw("\r\u{1b}[K");
    }
    let found = taking.found;
    // A folder that cannot be read may be one of them.
    if is_complete {
        for uid in store.open_runs(&source)? {
            if !found.contains(&uid) {
                store.lose(&uid, "its folder was removed before its end was read")?;
                done.lost += 1;
            }
        }
    }
    done.full = store.is_full();
    if !done.full {
        done.pruned = store.prune(retention, now.as_millisecond())?;
    }
    Ok(done)
}

struct Taking<'a> {
    store: &'a mut Store,
    runs: &'a Runs,
    source: &'a str,
    now: Timestamp,
    /// Runs that ended before are not kept.
    oldest: i64,
    found: BTreeSet<String>,
    done: &'a mut Done,
}

impl Taking<'_> {
    fn take(&mut self, folder: RunFolder, live: bool) -> Result<(), Untaken> {
        let unreadable = |error: trainyard_host::store::StoreError| Untaken::Run(error.to_string());
        let record = folder.record().map_err(unreadable)?;
        let uid = uid(&folder, &record);
        self.found.insert(uid.clone());
        let state = self.store.state(&uid)?;
        if state.is_some_and(|state| state.is_complete) {
            self.done.known += 1;
            return Ok(());
        }
        // Asked again: a run that began after the first question and was listed then would be written as interrupted, for good.
        let live = live || self.runs.live_run(&folder.job).as_ref() == Some(&folder.id);
        let run = Stored::read_as(folder, live).map_err(unreadable)?;
        let until = facts::known_until(&run, self.now);
        // One that is there without its end is ended first; then it is deleted like any other.
        if !live && state.is_none() && until.as_millisecond() < self.oldest {
            self.done.too_old += 1;
            return Ok(());
        }
        let head = head(&run, uid, self.source);
        let next = state.map_or(0, |state| state.next_seq);
        let mut written = Written::default();
        let mut writer = Batches {
            store: self.store,
            head: &head,
            next,
            seen: self.now.as_millisecond(),
            pending: Vec::new(),
            written: &mut written,
            failed: None,
        };
        let mut chronicle = Chronicle::default();
        let read = run.folder.read_facts(0, |fact| {
            if chronicle.apply(&fact) {
                writer.add(fact);
            }
        });
        let has_facts = read.map_err(unreadable)?.is_some() && chronicle.began.is_some();
        if !live {
            writer.complete(&run, chronicle, has_facts, until)?;
        }
        writer.flush()?;
        if live {
            self.done.live += 1;
        } else {
            self.store
                .end(&head, &end(&run, until), self.now.as_millisecond())?;
        }
        self.done.written += 1;
        self.done.facts.new += written.new;
        self.done.facts.refused += written.refused;
        self.done.facts.no_room += written.no_room;
        Ok(())
    }
}

/// Writes facts in batches: those of a file come one by one, and there may be many.
struct Batches<'a> {
    store: &'a mut Store,
    head: &'a Run,
    next: u64,
    seen: i64,
    pending: Vec<Fact>,
    written: &'a mut Written,
    /// After an error nothing is written any more.
    failed: Option<HistoryError>,
}

impl Batches<'_> {
    fn add(&mut self, fact: Fact) {
        // Numbers of the program are not kept.
        if fact.seq < self.next || matches!(fact.what, What::Point { .. }) || self.failed.is_some()
        {
            return;
        }
        self.pending.push(fact);
        if self.pending.len() >= BATCH {
            self.failed = self.write().err();
        }
    }

    fn write(&mut self) -> Result<(), HistoryError> {
        let more = self.store.write(self.head, &self.pending, self.seen)?;
        self.pending.clear();
        self.written.new += more.new;
        self.written.refused += more.refused;
        self.written.no_room += more.no_room;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), HistoryError> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.write(),
        }
    }

    /// Adds what the status of a run that ended says and its file does not, and checks the sums.
    fn complete(
        &mut self,
        run: &Stored,
        mut chronicle: Chronicle,
        has_facts: bool,
        until: Timestamp,
    ) -> Result<(), HistoryError> {
        let whole = if has_facts {
            let whole = facts::completed(chronicle.clone(), run, until);
            let rest = chronicle.record(None, &facts::seen(run), &facts::places(run), until);
            for fact in rest {
                // The status has no pods, which does not mean that they are gone.
                if !matches!(fact.what, What::Pod { .. }) {
                    self.add(fact);
                }
            }
            whole
        } else {
            let whole = facts::of_status(run, until);
            whole.facts().into_iter().for_each(|fact| self.add(fact));
            whole
        };
        self.flush()?;
        if self.store.is_full() || same(&self.store.totals(&self.head.uid)?, &closed(&whole)) {
            return Ok(());
        }
        // Lines are missing, or are not true: the time of the run is counted again.
        let state = self.store.state(&self.head.uid)?;
        let next = state.map_or(0, |state| state.next_seq);
        let began = whole.began.map(|began| (began, What::Began));
        let stretches = whole.stretches.iter().cloned();
        let stretches = stretches.map(|stretch| (stretch.from, What::from(stretch)));
        let again = began.into_iter().chain(stretches).zip(next..);
        for ((at, what), seq) in again {
            self.add(Fact {
                version: trainyard_core::chronicle::VERSION,
                seq,
                at,
                what,
            });
        }
        self.flush()
    }
}

/// The closed time of a history, by phase.
fn closed(chronicle: &Chronicle) -> PhaseMillis {
    let mut sums = PhaseMillis::new();
    for part in chronicle
        .stretches
        .iter()
        .flat_map(trainyard_core::chronicle::Stretch::booked)
    {
        let sum = sums.entry(part.phase).or_default();
        *sum = sum.saturating_add(part.millis);
    }
    sums
}

fn same(one: &PhaseMillis, other: &PhaseMillis) -> bool {
    let time = |sums: &PhaseMillis| -> Vec<_> {
        let sums = sums.iter().filter(|(_, millis)| **millis > 0);
        sums.map(|(phase, millis)| (*phase, *millis)).collect()
    };
    time(one) == time(other)
}

/// The id of a run, which no other run has on any machine.
pub(in crate::command) fn uid(
    folder: &RunFolder,
    record: &trainyard_host::store::RunRecord,
) -> String {
    let began = record.started_at.as_nanosecond();
    format!("{}.{began:x}-{:x}", names::id(folder), record.pid)
}

fn head(run: &Stored, uid: String, source: &str) -> Run {
    let record = &run.record;
    let team = record.job.pointer(TEAM).and_then(|team| team.as_str());
    let job = spec::job_from_value(&record.job).job;
    Run {
        uid,
        source: source.to_owned(),
        cluster: String::new(),
        namespace: record.namespace.clone(),
        name: record.name.clone(),
        kind: record.kind.clone(),
        team: team
            .unwrap_or(&record.namespace)
            .chars()
            .take(253)
            .collect(),
        ranks: record.ranks.count(&record.replicas),
        accelerators: job.as_ref().map(rows::accelerators),
        created: record.started_at.as_millisecond(),
    }
}

fn end(run: &Stored, until: Timestamp) -> End {
    let report = run.report.as_ref();
    let outcome = match report.map(|report| report.outcome) {
        Some(Outcome::Succeeded) => "succeeded",
        Some(Outcome::Failed) => "failed",
        Some(Outcome::Stopped) => "stopped",
        None => "interrupted",
    };
    let verdict = report
        .and_then(|report| report.verdict.as_ref())
        .or_else(|| run.failures.iter().rev().find_map(|it| it.verdict.as_ref()));
    let cause = verdict.filter(|_| matches!(outcome, "failed" | "interrupted"));
    let sentence = report.map_or("the program that ran it was killed", |report| {
        &report.message
    });
    let step = run.progress_record().map(|progress| progress.step);
    End {
        ended: until.as_millisecond(),
        outcome: outcome.to_owned(),
        cause: cause.map(|verdict| verdict.label.clone()),
        sentence: sentence.to_owned(),
        attempts: run.attempts(),
        last_step: report.and_then(|report| report.last_step).or(step),
    }
}
