//! `trainyard logs`: what the pods of a job wrote, from the store or from a cluster.
//!
//! Invariant: memory does not grow with the size of a log or the length of its lines.

mod cluster;
mod machine;
mod piece;

use std::io::Read;

use anyhow::Context as _;
use regex::bytes::Regex;
use serde::Serialize;
use trainyard_core::spec::{self, Replicas, Slot};
use trainyard_host::Ranks;

use self::piece::{Piece, Pieces};
use crate::{
    args::{Format, Logs},
    clean,
    failure::{Exit, Failure},
    paint::Paint,
    printer::Printer,
    run::names,
    words,
};

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
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
}

/// Prints the lines.
pub(super) fn run(args: &Logs, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.previous || args.place.is_cluster() {
        cluster::run(args, printer)
    } else {
        machine::run(args, printer)
    }
}

/// The pod that the arguments name, by a rank or by its name.
fn wanted_slot(
    args: &Logs,
    job: &str,
    ranks: Ranks,
    replicas: &Replicas,
) -> Result<Option<Slot>, Failure> {
    if let Some(rank) = args.rank {
        let slot = ranks.pod_of(replicas, rank).ok_or_else(|| {
            let count = words::counted(ranks.count(replicas).into(), "rank");
            Failure::new(format!("job `{job}` has no rank {rank}"))
                .hint(format!("it has {count}, counted from 0"))
        });
        return slot.map(Some);
    }
    let Some(pod) = &args.pod else {
        return Ok(None);
    };
    let slot = names::slot_called(job, replicas, pod).ok_or_else(|| {
        let known: Vec<String> = names::slots(replicas).map(names::short).collect();
        let failure = Failure::new(format!("job `{job}` has no pod `{pod}`"));
        match spec::nearest(pod, known.iter().map(String::as_str)) {
            Some(meant) => failure.hint(format!("did you mean `{meant}`?")),
            None => failure.hint(match known.first() {
                Some(first) => format!("pod names look like `{first}`"),
                None => "it has none".to_owned(),
            }),
        }
    });
    slot.map(Some)
}

/// Whose lines these are, and what stands in front of them.
#[derive(Debug)]
struct Label {
    name: String,
    attempt: u32,
    pod: String,
    container: String,
}

impl Label {
    /// The label of a container of `pod`, which is in `slot`; `named`: its name stands in front of its lines, too.
    fn new(
        pod: &str,
        slot: Option<Slot>,
        attempt: u32,
        (container, named): (&str, bool),
        paint: Paint,
    ) -> Self {
        let mut name = slot.map_or_else(|| pod.to_owned(), names::short);
        if named {
            name = format!("{name}/{container}");
        }
        let name = format!("[{name}]");
        Self {
            name: match slot {
                Some(slot) => paint.apply(&names::colour(slot), &name),
                None => name,
            },
            attempt,
            pod: pod.to_owned(),
            container: container.to_owned(),
        }
    }
}

/// Lines that match, counted as they are read.
#[derive(Debug, Default)]
struct Counter {
    pieces: Pieces,
    count: u64,
}

/// Writes pieces of logs in the form asked for.
struct Writer<'a> {
    format: Format,
    /// Lines have their pod in front.
    named: bool,
    terminal: bool,
    grep: Option<Regex>,
    /// Whether the warning about a log without timestamps was printed.
    untimed: bool,
    printer: &'a mut Printer,
}

impl<'a> Writer<'a> {
    fn new(args: &Logs, named: bool, printer: &'a mut Printer) -> Self {
        Self {
            format: args.format,
            named,
            terminal: printer.stdout_is_terminal(),
            grep: args.grep.clone(),
            untimed: false,
            printer,
        }
    }

    /// How many lines match.
    fn count(&self, reader: &mut impl Read) -> Result<u64, Failure> {
        let mut counter = Counter::default();
        self.count_more(reader, &mut counter)?;
        Ok(self.count_end(counter))
    }

    /// Counts the lines that match of what `reader` has now.
    fn count_more(&self, reader: &mut impl Read, counter: &mut Counter) -> Result<(), Failure> {
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
    fn count_end(&self, mut counter: Counter) -> u64 {
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
    fn copy(
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
    fn end(&mut self, log: &Label, pieces: &mut Pieces) -> Result<(), Failure> {
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
