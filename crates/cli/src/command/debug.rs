//! `trainyard debug`: everything that a colleague needs about a run, in one file.
//!
//! Owns what goes into the archive and what is left out; `local` and `cluster` read it. A part that cannot be read is named in the
//! archive's `README.txt`, and the others are there all the same.

mod archive;
mod cluster;
mod facts;
mod local;
mod redact;

use std::{fmt::Write as _, path::PathBuf};

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use self::{archive::Archive, redact::Redactor};
use crate::{
    args::Debug,
    environment,
    failure::{Exit, Failure},
    output,
    printer::Printer,
    words,
};

/// Lines that are kept of each log.
const LINES: usize = 2_000;
/// Bytes that are kept of each log.
const LOG_BYTES: usize = 1 << 20;
/// With less room in the archive no log is read any more.
const LEAST_ROOM: usize = 4 << 10;
/// Things left out that are named one by one, and the longest reason.
const NAMED: usize = 100;
const REASON_CHARS: usize = 500;

/// Writes the archive.
pub(super) fn run(args: &Debug, printer: &mut Printer) -> Result<Exit, Failure> {
    let bundle = if args.place.is_cluster() {
        cluster::collect(args, printer)?
    } else {
        local::collect(args)?
    };
    let left_out = bundle.left_out.len() as u64;
    let files = bundle.archive.files + 1;
    let default = format!("{}-debug.tar.gz", bundle.folder);
    let bytes = bundle.finish()?;
    let path = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(default));
    output::write_private(&path, &bytes)
        .with_context(|| format!("cannot write the archive to `{}`", path.display()))?;
    let more = match left_out {
        0 => String::new(),
        count => format!(
            "; left out: {}, see its README.txt",
            words::counted(count, "part")
        ),
    };
    printer.summary(&format!(
        "wrote {}, {} bytes, to `{}`{more}",
        words::counted(files, "file"),
        words::grouped(bytes.len() as u64),
        path.display()
    ));
    Ok(Exit::Done)
}

/// The archive and what is said about it.
struct Bundle {
    archive: Archive,
    redactor: Redactor,
    /// The folder in the archive.
    folder: String,
    title: String,
    contents: String,
    left_out: Vec<String>,
}

impl Bundle {
    /// An empty one about `job`, whose secrets are known from its variables and from those of this program.
    fn new(folder: String, title: String, job: &Value, now: Timestamp) -> Self {
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        let mut redactor = Redactor::new();
        redactor.learn_job(job);
        for (name, value) in environment::inherited(None) {
            redactor.learn(&name, &value);
        }
        Self {
            archive: Archive::new(&folder, seconds),
            redactor,
            folder,
            title,
            contents: String::new(),
            left_out: Vec::new(),
        }
    }

    /// Adds the end of a log at `path`, without its secrets.
    fn log(&mut self, path: &[&str], text: &str) {
        let text = self.redactor.text(text);
        if let Err(reason) = self.archive.add(path, last_lines(&text).as_bytes()) {
            self.leave_out(&format!("{}: {reason}", path.join("/")));
        }
    }

    /// The line of the contents about logs.
    fn logs_are(&mut self, which: &str) {
        line(
            &mut self.contents,
            format_args!("logs/: the last {LINES} lines of each log of {which}"),
        );
    }

    fn json(&mut self, name: &str, what: &str, document: &impl Serialize) {
        let shown = serde_json::to_value(document)
            .map(|document| self.redactor.document(&document))
            .and_then(|shown| serde_json::to_string_pretty(&shown));
        match shown {
            Ok(text) => self.file(name, what, text.as_bytes()),
            Err(error) => self.leave_out(&format!("{name}: {error}")),
        }
    }

    /// Adds a text without its secrets.
    fn text(&mut self, name: &str, what: &str, text: &str) {
        let text = self.redactor.text(text);
        self.file(name, what, text.as_bytes());
    }

    fn file(&mut self, name: &str, what: &str, bytes: &[u8]) {
        match self.archive.add(&[name], bytes) {
            Ok(()) => {
                line(&mut self.contents, format_args!("{name}: {what}"));
            }
            Err(reason) => self.leave_out(&format!("{name}: {reason}")),
        }
    }

    fn leave_out(&mut self, what: &str) {
        let what = self.redactor.text(what);
        self.left_out
            .push(what.chars().take(REASON_CHARS).collect());
    }

    fn finish(self) -> Result<Vec<u8>, Failure> {
        let mut readme = format!("{}\nFiles\n\n{}\nLeft out\n\n", self.title, self.contents);
        for what in self.left_out.iter().take(NAMED) {
            line(&mut readme, format_args!("{what}"));
        }
        if let Some(more) = self.left_out.len().checked_sub(NAMED + 1) {
            let more = words::counted(more as u64 + 1, "more part");
            line(&mut readme, format_args!("and {more}"));
        }
        let places = words::counted(self.redactor.count, "place");
        line(
            &mut readme,
            format_args!(
                "values of environment variables, except of a list of harmless names\n\n\
                 Something was replaced by `[redacted]` in {places}. A secret that neither a name nor a\n\
                 well-known form gives away cannot be recognized: look through the logs before you pass this on."
            ),
        );
        let bytes = self.archive.finish(&readme);
        bytes.map_err(|error| Failure::new(format!("cannot write the archive: {error}")))
    }
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(text, "{what}").expect("a string takes whatever is written");
}

/// At most [`LINES`] lines.
fn last_lines(text: &str) -> &str {
    let whole = text.strip_suffix('\n').unwrap_or(text);
    let from = whole.rmatch_indices('\n').nth(LINES - 1);
    from.and_then(|(at, _)| text.get(at + 1..)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_log_the_last_lines_are_kept() {
        let lines = |from: usize, to: usize| -> String {
            let lines: Vec<String> = (from..to).map(|line| format!("line {line}\n")).collect();
            lines.concat()
        };
        assert_eq!(last_lines(""), "");
        assert_eq!(last_lines("a\nb"), "a\nb");
        assert_eq!(last_lines(&lines(0, LINES)), lines(0, LINES));
        assert_eq!(last_lines(&lines(0, LINES + 5)), lines(5, LINES + 5));
    }
}
