//! `trainyard logs`: what the pods of a job wrote, from the store.
//!
//! Invariant: memory does not grow with the size of a log or the length of its lines.

mod piece;

use std::{io::Read, thread, time::Duration};

use anyhow::Context as _;
use regex::bytes::Regex;
use serde::Serialize;
use trainyard_core::spec::{self, Kind, Slot};
use trainyard_host::store::LogFile;

use self::piece::Piece;
pub(crate) use self::piece::Pieces;
use crate::{
    args::{Format, Logs},
    cluster,
    failure::{Exit, Failure},
    printer::{Paint, Printer},
    run::{clean, names},
    stored::{self, Stored},
    words,
};

/// Poll interval of followed logs.
const FOLLOW_EVERY: Duration = Duration::from_millis(100);
/// Suffix of a line that is cut for the terminal.
const IN_A_PIPE: &str = " … (cut for the terminal; a pipe gets the whole line)";

/// One line as JSON. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    version: u32,
    attempt: u32,
    pod: &'a str,
    container: &'a str,
    line: &'a str,
    #[serde(skip_serializing_if = "is_false")]
    cut: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Prints the lines.
pub(super) fn run(args: &Logs, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.previous || args.place.is_cluster() {
        return cluster::logs::run(args, printer);
    }
    let store = stored::open(&args.state)?;
    let run = stored::find(&store, &args.which)?;
    let wanted = Wanted::new(args, &run)?;
    if let (Some(rank), Some(slot)) = (args.rank, wanted.slot) {
        note_shared_log(&run, rank, slot, printer);
    }
    if args.follow {
        return follow(args, &run, &wanted, printer);
    }
    let attempt = match wanted.attempt {
        Some(attempt) => attempt,
        None => last_attempt(&run)?.ok_or_else(|| nothing_yet(&run))?,
    };
    let logs = wanted.logs(&run, attempt, printer.stdout_paint())?;
    if logs.is_empty() {
        let job = &run.record.name;
        let failure = Failure::new(format!(
            "attempt {attempt} of job `{job}` has no log of this pod"
        ));
        return Err(failure.hint(if run.kind().is_some_and(Kind::is_mpi) {
            format!(
                "ranks of an MPIJob write through `mpirun`: `trainyard logs {job} --pod launcher`"
            )
        } else {
            format!("`trainyard logs {job}` prints the existing logs")
        }));
    }
    let mut writer = Writer::new(args, logs.len() > 1, printer);
    for log in &logs {
        let (offset, mut pieces) = writer.begin(args, &log.log)?;
        let mut reader = log.log.open(offset).map_err(stored::refused)?;
        writer.copy(&log.label, &mut reader, &mut pieces)?;
        writer.end(&log.label, &mut pieces)?;
    }
    Ok(Exit::Done)
}

/// Prints what is there and what comes, until the run is over.
fn follow(
    args: &Logs,
    run: &Stored,
    wanted: &Wanted,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    let paint = printer.stdout_paint();
    let mut writer = Writer::new(args, wanted.slot.is_none() && run.pods() > 1, printer);
    let mut open: Vec<(Source, u64, Pieces)> = Vec::new();
    let first = wanted.attempt.or(last_attempt(run)?).unwrap_or(1);
    loop {
        // Asked before the logs are read, so that what a run wrote last is not missed.
        let live = run.folder.is_live();
        let attempts = run.folder.attempts().map_err(stored::refused)?;
        for attempt in attempts.into_iter().filter(|attempt| {
            wanted
                .attempt
                .map_or(*attempt >= first, |only| *attempt == only)
        }) {
            for log in wanted.logs(run, attempt, paint)? {
                if !open.iter().any(|(known, ..)| known.log == log.log) {
                    let (offset, pieces) = writer.begin(args, &log.log)?;
                    open.push((log, offset, pieces));
                }
            }
        }
        for (log, offset, pieces) in &mut open {
            let mut reader = log.log.open(*offset).map_err(stored::refused)?;
            writer.copy(&log.label, &mut reader, pieces)?;
            *offset = reader.offset();
        }
        if !live {
            for (log, _, pieces) in &mut open {
                writer.end(&log.label, pieces)?;
            }
            return Ok(Exit::Done);
        }
        writer.printer.flush()?;
        if !writer.printer.has_reader() {
            return Ok(Exit::Done);
        }
        thread::sleep(FOLLOW_EVERY);
    }
}

/// A log of the store.
#[derive(Debug)]
struct Source {
    log: LogFile,
    label: Label,
}

/// Whose lines these are, and what stands in front of them.
#[derive(Debug)]
pub(crate) struct Label {
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) pod: String,
    pub(crate) container: String,
}

/// Which logs are asked for.
#[derive(Debug)]
struct Wanted {
    attempt: Option<u32>,
    slot: Option<Slot>,
    container: Option<String>,
}

impl Wanted {
    fn new(args: &Logs, run: &Stored) -> Result<Self, Failure> {
        let job = &run.record.name;
        if args.first_failure {
            return Self::first_failure(run, args.attempt);
        }
        let ranks = words::counted(run.ranks().into(), "rank");
        let slot = match (args.rank, &args.pod) {
            (Some(rank), _) => Some(run.slot_of_rank(rank).ok_or_else(|| {
                Failure::new(format!("job `{job}` has no rank {rank}"))
                    .hint(format!("it has {ranks}, counted from 0"))
            })?),
            (None, Some(pod)) => Some(run.slot_called(pod).ok_or_else(|| {
                let known: Vec<String> = run.slots().map(names::short).collect();
                let failure = Failure::new(format!("job `{job}` has no pod `{pod}`"));
                match spec::nearest(pod, known.iter().map(String::as_str)) {
                    Some(meant) => failure.hint(format!("did you mean `{meant}`?")),
                    None => failure.hint(match known.first() {
                        Some(first) => format!("pod names look like `{first}`"),
                        None => "it has none".to_owned(),
                    }),
                }
            })?),
            (None, None) => None,
        };
        if let Some(attempt) = args.attempt {
            let known = run.folder.attempts().map_err(stored::refused)?;
            if !known.contains(&attempt) && !args.follow {
                let hint = match known.last() {
                    Some(last) => format!("its last is attempt {last}"),
                    None => "it has none yet".to_owned(),
                };
                let message = format!("job `{job}` has no logs of attempt {attempt}");
                return Err(Failure::new(message).hint(hint));
            }
        }
        Ok(Self {
            attempt: args.attempt,
            slot,
            container: None,
        })
    }

    fn first_failure(run: &Stored, attempt: Option<u32>) -> Result<Self, Failure> {
        let job = &run.record.name;
        let mut failures = run.failures.iter();
        let wanted =
            failures.find(|failed| attempt.is_none_or(|attempt| failed.attempt == attempt));
        let Some(failed) = wanted else {
            let so_far = if run.live { " so far" } else { "" };
            let within = attempt.map_or_else(
                || format!("in this run{so_far}"),
                |attempt| format!("in attempt {attempt}, as far as logs were kept"),
            );
            let message = format!("no pod of job `{job}` failed {within}");
            return Err(
                Failure::new(message).hint(format!("`trainyard logs {job}` prints what ran"))
            );
        };
        Ok(Self {
            attempt: Some(failed.attempt),
            slot: Some(failed.slot),
            container: Some(failed.container.clone()),
        })
    }

    /// The logs of `attempt` that are wanted, in listing order.
    fn logs(&self, run: &Stored, attempt: u32, paint: Paint) -> Result<Vec<Source>, Failure> {
        let logs = run.folder.logs(attempt).map_err(stored::refused)?;
        let mut logs: Vec<(Option<Slot>, LogFile)> = logs
            .into_iter()
            .map(|log| (run.slot_called(&log.pod), log))
            .filter(|(slot, log)| {
                self.slot.is_none_or(|wanted| *slot == Some(wanted))
                    && self
                        .container
                        .as_ref()
                        .is_none_or(|name| *name == log.container)
            })
            .collect();
        // Folders are sorted by letters, in which `worker-10` comes before `worker-2`.
        logs.sort_by_key(|(slot, _)| (slot.is_none(), *slot));
        let trains = run.kind().map_or("", Kind::container);
        let named = |(slot, log): &(Option<Slot>, LogFile)| {
            let mut name = slot.map_or_else(|| log.pod.clone(), names::short);
            let several = logs
                .iter()
                .filter(|(_, other)| other.pod == log.pod)
                .count()
                > 1;
            if several && log.container != trains {
                name = format!("{name}/{}", log.container);
            }
            let name = format!("[{name}]");
            match slot {
                Some(slot) => paint.apply(&names::colour(*slot), &name),
                None => name,
            }
        };
        Ok(logs
            .iter()
            .map(|entry| Source {
                label: Label {
                    name: named(entry),
                    attempt: entry.1.attempt,
                    pod: entry.1.pod.clone(),
                    container: entry.1.container.clone(),
                },
                log: entry.1.clone(),
            })
            .collect())
    }
}

/// The log of a pod is that of all its ranks.
fn note_shared_log(run: &Stored, rank: u32, slot: Slot, printer: &mut Printer) {
    if let Some(held) = run.ranks_beside(slot) {
        printer.summary(&format!(
            "rank {rank} runs in {}, whose log contains ranks {} to {}",
            names::short(slot),
            held.start(),
            held.end()
        ));
    }
}

fn last_attempt(run: &Stored) -> Result<Option<u32>, Failure> {
    let attempts = run.folder.attempts().map_err(stored::refused)?;
    Ok(attempts.last().copied())
}

fn nothing_yet(run: &Stored) -> Failure {
    let job = &run.record.name;
    Failure::new(format!("no pod of job `{job}` has written anything"))
        .hint(format!("`trainyard status {job}` shows its state"))
}

/// Lines that match, counted as they are read.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    pieces: Pieces,
    count: u64,
}

/// Writes pieces of logs in the form asked for.
pub(crate) struct Writer<'a> {
    format: Format,
    /// Lines have their pod in front.
    named: bool,
    terminal: bool,
    grep: Option<Regex>,
    /// Whether the warning about a log without timestamps was printed.
    untimed: bool,
    pub(crate) printer: &'a mut Printer,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(args: &Logs, named: bool, printer: &'a mut Printer) -> Self {
        Self {
            format: args.format,
            named,
            terminal: printer.stdout_is_terminal(),
            grep: args.grep.clone(),
            untimed: false,
            printer,
        }
    }

    /// Where in `log` to begin, and which of its lines to pass over.
    fn begin(&mut self, args: &Logs, log: &LogFile) -> Result<(u64, Pieces), Failure> {
        let mut pieces = Pieces::default();
        let mut offset = 0;
        if let Some(at) = args.since {
            match log.offset_since(at).map_err(stored::refused)? {
                Some(since) => offset = since,
                None if !self.untimed => {
                    self.untimed = true;
                    self.printer.summary(
                        "warning: `--since` is ignored: this run was made by an older version, which recorded \
                         no timestamps",
                    );
                }
                None => {}
            }
        }
        if let Some(tail) = args.tail {
            let mut reader = log.open(offset).map_err(stored::refused)?;
            pieces.skip = self.count(&mut reader)?.saturating_sub(tail);
        }
        Ok((offset, pieces))
    }

    /// How many lines match.
    fn count(&self, reader: &mut impl Read) -> Result<u64, Failure> {
        let mut counter = Counter::default();
        self.count_more(reader, &mut counter)?;
        Ok(self.count_end(counter))
    }

    /// Counts the lines that match of what `reader` has now.
    pub(crate) fn count_more(
        &self,
        reader: &mut impl Read,
        counter: &mut Counter,
    ) -> Result<(), Failure> {
        loop {
            let read = counter.pieces.fill(reader).context("cannot read a log")?;
            while let Some(piece) = counter.pieces.next() {
                counter.count += u64::from(piece.starts_line && self.matches(&piece));
            }
            if read == 0 {
                return Ok(());
            }
        }
    }

    /// How many matched of a log that is read to its end.
    pub(crate) fn count_end(&self, mut counter: Counter) -> u64 {
        let last = counter.pieces.rest();
        let matches = last.is_some_and(|piece| piece.starts_line && self.matches(&piece));
        counter.count + u64::from(matches)
    }

    fn matches(&self, piece: &Piece) -> bool {
        let grep = self.grep.as_ref();
        grep.is_none_or(|grep| grep.is_match(&piece.bytes))
    }

    /// Whether the line of `piece` is shown.
    fn shows(&self, piece: &Piece, pieces: &mut Pieces) -> bool {
        if piece.starts_line {
            pieces.shown = self.matches(piece) && pieces.skip == 0;
            if !pieces.shown && pieces.skip > 0 && self.matches(piece) {
                pieces.skip -= 1;
            }
        }
        pieces.shown
    }

    /// Writes all that `reader` has now.
    pub(crate) fn copy(
        &mut self,
        log: &Label,
        reader: &mut impl Read,
        pieces: &mut Pieces,
    ) -> Result<(), Failure> {
        loop {
            let count = pieces
                .fill(reader)
                .with_context(|| format!("cannot read the log of pod `{}`", log.pod))?;
            while let Some(piece) = pieces.next() {
                if self.shows(&piece, pieces) {
                    self.piece(log, &piece)?;
                }
            }
            if count == 0 || !self.printer.has_reader() {
                return Ok(());
            }
        }
    }

    /// Writes what is left of a log that gets no more.
    pub(crate) fn end(&mut self, log: &Label, pieces: &mut Pieces) -> Result<(), Failure> {
        match pieces.rest() {
            Some(piece) if self.shows(&piece, pieces) => self.piece(log, &piece),
            _ => Ok(()),
        }
    }

    fn piece(&mut self, log: &Label, piece: &Piece) -> Result<(), Failure> {
        if self.format == Format::Json {
            return self.json(log, piece);
        }
        let mut text = Vec::with_capacity(piece.bytes.len() + 40);
        if piece.starts_line && self.named {
            text.extend_from_slice(log.name.as_bytes());
            text.push(b' ');
        }
        if self.terminal {
            if !piece.starts_line {
                return Ok(());
            }
            let paint = self.printer.stdout_paint();
            let line = clean::line(&piece.bytes, !piece.ends_line, IN_A_PIPE, paint);
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
        } else {
            text.extend_from_slice(&piece.bytes);
            if piece.ends_line {
                text.push(b'\n');
            }
        }
        self.printer.data(&text)
    }

    fn json(&mut self, log: &Label, piece: &Piece) -> Result<(), Failure> {
        if !piece.starts_line {
            return Ok(());
        }
        let entry = Entry {
            version: 1,
            attempt: log.attempt,
            pod: &log.pod,
            container: &log.container,
            line: &String::from_utf8_lossy(&piece.bytes),
            cut: !piece.ends_line,
        };
        let mut json = serde_json::to_vec(&entry).context("cannot write a line as JSON")?;
        json.push(b'\n');
        self.printer.data(&json)
    }
}
