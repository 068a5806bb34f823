//! `--watch`: the same text again and again, as the job or the cluster changes.
//!
//! Invariant: what is on the screen is what was read last, with the time of that reading where reading fails now: an API server that does
//! not respond for a moment neither ends the command nor empties the screen. A job that is deleted ends it: how the job would have ended is unknown.

use std::{thread, time::Duration};

use jiff::Timestamp;

use crate::{
    failure::{Exit, Failure},
    printer::Printer,
    words,
};

/// How often it is read again.
const EVERY: Duration = Duration::from_secs(2);
/// Empties the terminal.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// What one reading prints.
#[derive(Debug)]
pub(super) struct Frame {
    /// For stdout.
    pub(super) text: String,
    /// One line each, for stderr.
    pub(super) notes: Vec<String>,
    /// How the command ends where this is its last reading.
    pub(super) exit: Exit,
    /// Whether nothing will change any more.
    pub(super) is_last: bool,
}

impl Frame {
    /// Text that may change.
    pub(super) fn of(text: String) -> Self {
        Self {
            text,
            notes: Vec::new(),
            exit: Exit::Done,
            is_last: false,
        }
    }

    /// Prints it.
    pub(super) fn print(&self, printer: &mut Printer) -> Result<(), Failure> {
        for note in &self.notes {
            printer.summary(note);
        }
        printer.data(self.text.as_bytes())
    }
}

/// Reads and prints until nothing will change any more, stdout is closed, or Ctrl-C. A first reading that fails ends the command, and one that finds
/// the job deleted; other later ones are repeated.
pub(super) fn watch(
    printer: &mut Printer,
    read: impl FnMut(&Printer) -> Result<Frame, Failure>,
) -> Result<Exit, Failure> {
    watch_every(EVERY, printer, read)
}

fn watch_every(
    pause: Duration,
    printer: &mut Printer,
    mut read: impl FnMut(&Printer) -> Result<Frame, Failure>,
) -> Result<Exit, Failure> {
    let redraws = printer.stdout_is_terminal() && printer.stderr_is_terminal();
    let mut shown = (read(printer)?, Timestamp::now());
    let mut refused: Option<String> = None;
    loop {
        if redraws {
            printer.draw(CLEAR);
        }
        // In a pipe each reading is printed once: a failed one has only its line.
        if redraws || refused.is_none() {
            shown.0.print(printer)?;
        }
        if let Some(why) = &refused {
            let age = words::age(words::since(shown.1, Timestamp::now()));
            printer.summary(&format!(
                "{why}; shown is what was read {age} ago, retrying"
            ));
        } else if !redraws {
            printer.data(b"\n")?;
        }
        printer.flush()?;
        if !printer.has_reader() || (shown.0.is_last && refused.is_none()) {
            return Ok(shown.0.exit);
        }
        thread::sleep(pause);
        refused = match read(printer) {
            Ok(frame) => {
                shown = (frame, Timestamp::now());
                None
            }
            Err(failure) if failure.is_absent() => {
                let age = words::age(words::since(shown.1, Timestamp::now()));
                printer.summary(&format!(
                    "deleted while it was watched; shown is what was read {age} ago"
                ));
                return Err(failure);
            }
            Err(failure) => Some(failure.line()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{paint::Paint, printer::Verbosity};

    fn watched(mut readings: Vec<Result<Frame, Failure>>) -> (Result<Exit, Failure>, usize) {
        let mut printer = Printer::new(Paint::Plain, Paint::Plain, Verbosity::Quiet);
        readings.reverse();
        let done = watch_every(Duration::ZERO, &mut printer, |_| {
            readings.pop().expect("nothing is read after the last one")
        });
        (done, readings.len())
    }

    fn last() -> Frame {
        Frame {
            exit: Exit::Failed,
            is_last: true,
            ..Frame::of(String::new())
        }
    }

    #[test]
    fn a_failed_reading_is_repeated() {
        let refused = || Err(Failure::new("the API server does not respond"));
        let readings = vec![
            Ok(Frame::of(String::new())),
            refused(),
            refused(),
            Ok(last()),
        ];
        let (done, left) = watched(readings);
        assert_eq!((done.expect("it ends"), left), (Exit::Failed, 0));
    }

    #[test]
    fn a_job_that_was_deleted_ends_it() {
        let gone = Err(Failure::absent("no job `k` in namespace `n`"));
        let readings = vec![Ok(Frame::of(String::new())), gone, Ok(last())];
        let (done, left) = watched(readings);
        assert_eq!((done.is_err(), left), (true, 1));
    }

    #[test]
    fn a_first_reading_that_fails_ends_it() {
        let (done, left) = watched(vec![Err(Failure::new("no job `k`")), Ok(last())]);
        assert_eq!((done.is_err(), left), (true, 1));
    }
}
