//! Errors of commands and their exit codes.

use std::{fmt::Write as _, io, process::ExitCode};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    /// Done.
    Done,
    /// The job or a check failed.
    Failed,
    /// The command could not run: usage, files, environment.
    CouldNot,
    /// The exit code of a program that was run on behalf of the caller.
    Code(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Done => Self::SUCCESS,
            Exit::Failed => Self::from(1),
            Exit::CouldNot => Self::from(2),
            Exit::Code(code) => Self::from(code),
        }
    }
}

/// Why a command could not run, with a hint.
#[derive(Debug)]
pub(crate) struct Failure {
    error: anyhow::Error,
    hint: Option<String>,
    /// Whether the job that was asked for does not exist: reading it again finds nothing either.
    is_absent: bool,
}

impl Failure {
    /// A failure without a cause below it.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            error: anyhow::Error::msg(message.into()),
            hint: None,
            is_absent: false,
        }
    }

    /// What was asked for does not exist.
    pub(crate) fn absent(message: impl Into<String>) -> Self {
        Self {
            is_absent: true,
            ..Self::new(message)
        }
    }

    /// Whether what was asked for does not exist.
    pub(crate) fn is_absent(&self) -> bool {
        self.is_absent
    }

    /// The same failure with a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The message, its causes and the hint, without the leading word.
    pub(crate) fn text(&self) -> String {
        let mut text = self.parts().join("\n  caused by: ");
        if let Some(hint) = &self.hint {
            write!(text, "\n\nhint: {hint}").expect("a string takes whatever is written");
        }
        text
    }

    /// The message and its causes in one line, for a list of failures.
    pub(crate) fn line(&self) -> String {
        self.parts().join(": ")
    }

    /// The message and its causes.
    ///
    /// A cause whose text is already part of the one above is left out: many libraries put the
    /// text of their cause into their own.
    fn parts(&self) -> Vec<String> {
        let mut parts = vec![self.error.to_string()];
        for cause in self.error.chain().skip(1) {
            let cause = match cause.downcast_ref::<io::Error>() {
                Some(error) => system(error),
                None => cause.to_string(),
            };
            if !parts.last().is_some_and(|above| above.contains(&cause)) {
                parts.push(cause);
            }
        }
        parts
    }
}

/// An error of the operating system, in words.
fn system(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound if error.get_ref().is_none() => "no such file or folder".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        io::ErrorKind::NotADirectory => "a part of the path is not a folder".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::StorageFull => "the disk is full".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        _ => {
            let text = error.to_string();
            text.split(" (os error ")
                .next()
                .unwrap_or_default()
                .to_owned()
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self {
            error,
            hint: None,
            is_absent: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_cause_is_printed_once() {
        let cases = [
            (anyhow!("cannot write"), "cannot write"),
            (
                anyhow!("disk is full").context("cannot write"),
                "cannot write\n  caused by: disk is full",
            ),
            (
                anyhow!("disk is full").context("cannot write: disk is full"),
                "cannot write: disk is full",
            ),
            (
                anyhow!("no space")
                    .context("write failed: no space")
                    .context("cannot save"),
                "cannot save\n  caused by: write failed: no space",
            ),
        ];
        for (error, want) in cases {
            assert_eq!(Failure::from(error).text(), want);
        }
    }

    #[test]
    fn os_errors_are_readable() {
        let cases = [
            (2, "no such file or folder"),
            (13, "permission denied"),
            (20, "a part of the path is not a folder"),
            (28, "the disk is full"),
            (24, "Too many open files"),
        ];
        for (number, want) in cases {
            let error =
                anyhow::Error::new(io::Error::from_raw_os_error(number)).context("cannot write");
            let text = Failure::from(error).text();
            assert_eq!(text, format!("cannot write\n  caused by: {want}"));
        }
        let own = io::Error::new(io::ErrorKind::NotFound, "it is a link to nothing");
        let text = Failure::from(anyhow::Error::new(own).context("cannot write")).text();
        assert_eq!(text, "cannot write\n  caused by: it is a link to nothing");
    }

    #[test]
    fn a_hint_stands_apart() {
        let failure = Failure::new("no file").hint("name one");
        assert_eq!(failure.text(), "no file\n\nhint: name one");
    }
}
