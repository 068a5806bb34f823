//! The only place that writes to stdout and stderr.
//!
//! stdout carries data; warnings, errors, summaries and notes go to stderr.
//!
//! Invariant: a reader that goes away (`trainyard … | head`) ends the output, not the command: the
//! exit code does not change, and no error is printed.
//!
//! Invariant: nothing that came from a file, a file's name, a log or a cluster makes a terminal do
//! anything. What is printed on stderr, and on a stdout that is a terminal, passes
//! [`clean::printable`] here, so no caller can forget it; data in a pipe is left as it is.

use std::io::{self, BufWriter, IsTerminal as _, Write};

use anyhow::Context as _;

use serde::Serialize;

use crate::{clean, failure::Failure, paint::Paint};

/// How much is printed on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors only.
    Quiet,
    /// Warnings and summaries too.
    Normal,
    /// Notes on what is done too.
    Verbose,
}

/// Writes to both streams.
pub(crate) struct Printer {
    stdout: BufWriter<io::Stdout>,
    stdout_open: bool,
    stdout_is_terminal: bool,
    stderr: io::Stderr,
    stdout_paint: Paint,
    stderr_paint: Paint,
    verbosity: Verbosity,
}

impl Printer {
    /// A printer for the streams of this process.
    pub(crate) fn new(stdout_paint: Paint, stderr_paint: Paint, verbosity: Verbosity) -> Self {
        Self {
            stdout: BufWriter::with_capacity(64 * 1024, io::stdout()),
            stdout_open: true,
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr: io::stderr(),
            stdout_paint,
            stderr_paint,
            verbosity,
        }
    }

    /// Whether data may hold colour.
    pub(crate) fn stdout_paint(&self) -> Paint {
        self.stdout_paint
    }

    /// Whether messages may hold colour.
    pub(crate) fn stderr_paint(&self) -> Paint {
        self.stderr_paint
    }

    /// Whether data goes to a terminal.
    pub(crate) fn stdout_is_terminal(&self) -> bool {
        self.stdout_is_terminal
    }

    /// Whether messages go to a terminal.
    pub(crate) fn stderr_is_terminal(&self) -> bool {
        self.stderr.is_terminal()
    }

    /// Whether stdout is still open.
    pub(crate) fn has_reader(&self) -> bool {
        self.stdout_open
    }

    /// How much is printed on stderr.
    pub(crate) fn verbosity(&self) -> Verbosity {
        self.verbosity
    }

    /// Columns of the terminal that stderr is, where it is one.
    pub(crate) fn width(&self) -> Option<usize> {
        terminal_size::terminal_size_of(&self.stderr).map(|(width, _)| width.0.into())
    }

    /// Whether warnings and summaries are wanted.
    pub(crate) fn wants_warnings(&self) -> bool {
        self.verbosity >= Verbosity::Normal
    }

    /// Writes data.
    pub(crate) fn data(&mut self, data: &[u8]) -> Result<(), Failure> {
        if !self.stdout_open {
            return Ok(());
        }
        let written = if self.stdout_is_terminal {
            let text = String::from_utf8_lossy(data);
            let shown = clean::printable(&text, self.stdout_paint);
            self.stdout.write_all(shown.as_bytes())
        } else {
            self.stdout.write_all(data)
        };
        self.judge(written)
    }

    /// Writes a document as JSON.
    pub(crate) fn json(&mut self, document: &impl Serialize) -> Result<(), Failure> {
        let mut json =
            serde_json::to_vec_pretty(document).context("cannot write the result as JSON")?;
        json.push(b'\n');
        self.data(&json)
    }

    /// Flushes everything written so far.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        if !self.stdout_open {
            return Ok(());
        }
        let flushed = self.stdout.flush();
        self.judge(flushed)
    }

    /// Prints why the command could not run.
    pub(crate) fn error(&mut self, failure: &Failure) {
        let word = match self.stderr_paint {
            Paint::Plain => "error",
            Paint::Styled => "\u{1b}[1;31merror\u{1b}[0m",
        };
        self.message(&format!("{word}: {}\n", failure.text()));
    }

    /// Prints one line that sums up what was done, unless `--quiet` is set.
    pub(crate) fn summary(&mut self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            self.message(&format!("{text}\n"));
        }
    }

    /// Prints one line about what is being done, if asked to.
    pub(crate) fn note(&mut self, text: &str) {
        if self.verbosity >= Verbosity::Verbose {
            self.message(&format!("note: {text}\n"));
        }
    }

    /// Prints text that is complete in itself on stderr.
    pub(crate) fn message(&mut self, text: &str) {
        let shown = clean::printable(text, self.stderr_paint);
        // With a closed stderr there is nowhere to report it.
        drop(self.stderr.write_all(shown.as_bytes()));
    }

    /// Draws a frame of the live line on stderr: the only text that moves the cursor. Whoever makes
    /// it has cleaned what is in it.
    pub(crate) fn draw(&mut self, frame: &str) {
        drop(self.stderr.write_all(frame.as_bytes()));
    }

    fn judge(&mut self, outcome: io::Result<()>) -> Result<(), Failure> {
        match outcome {
            Ok(()) => Ok(()),
            Err(error) => {
                self.stdout_open = false;
                if error.kind() == io::ErrorKind::BrokenPipe {
                    Ok(())
                } else {
                    Err(error)
                        .context("cannot write to stdout")
                        .map_err(Failure::from)
                }
            }
        }
    }
}
