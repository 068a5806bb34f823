//! Arguments, environment and terminal put together: stage two of two.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use crate::{
    args::{Args, Color},
    command,
    environment::Environment,
    failure::Exit,
    paint::Paint,
    printer::{Printer, Verbosity},
};

/// Runs the command and returns its exit code.
pub(crate) fn run(args: Args, environment: &Environment) -> ExitCode {
    let global = args.global;
    let verbosity = match (global.quiet, global.verbose) {
        (true, _) => Verbosity::Quiet,
        (false, true) => Verbosity::Verbose,
        (false, false) => Verbosity::Normal,
    };
    let mut printer = Printer::new(
        paint(global.color, environment, io::stdout().is_terminal()),
        paint(global.color, environment, io::stderr().is_terminal()),
        verbosity,
    );
    let outcome = command::run(args.command, environment, &mut printer)
        .and_then(|exit| printer.flush().map(|()| exit));
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            printer.error(&failure);
            Exit::CouldNot.into()
        }
    }
}

/// Prints help, the version, or why the command line cannot be read.
pub(crate) fn refuse(refusal: &clap::Error, environment: &Environment) -> ExitCode {
    let (stdout, stderr) = (io::stdout().is_terminal(), io::stderr().is_terminal());
    let mut printer = Printer::new(
        paint(Color::Auto, environment, stdout),
        paint(Color::Auto, environment, stderr),
        Verbosity::Normal,
    );
    let text = |paint| match paint {
        Paint::Plain => refusal.render().to_string(),
        Paint::Styled => refusal.render().ansi().to_string(),
    };
    if refusal.use_stderr() {
        let text = plain(text(printer.stderr_paint()));
        printer.message(&text);
        return Exit::CouldNot.into();
    }
    let text = text(printer.stdout_paint());
    match printer.data(text.as_bytes()).and_then(|()| printer.flush()) {
        Ok(()) => Exit::Done.into(),
        Err(failure) => {
            printer.error(&failure);
            Exit::CouldNot.into()
        }
    }
}

/// A refusal of the command line without the words of the standard library's parsers.
fn plain(mut text: String) -> String {
    let words = [
        ("invalid digit found in string", "not a whole number"),
        (
            "cannot parse integer from empty string",
            "not a whole number",
        ),
        (
            "number too large to fit in target type",
            "the number is too large",
        ),
        (
            "number too small to fit in target type",
            "the number is too small",
        ),
        ("invalid float literal", "not a number"),
        ("cannot parse float from empty string", "not a number"),
    ];
    for (theirs, ours) in words {
        if text.contains(theirs) {
            text = text.replace(theirs, ours);
        }
    }
    text
}

fn paint(color: Color, environment: &Environment, terminal: bool) -> Paint {
    let styled = match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => terminal && !environment.no_color && !environment.dumb_terminal,
    };
    if styled { Paint::Styled } else { Paint::Plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_needs_a_terminal_that_wants_it() {
        let calm = Environment::default();
        let no_color = Environment {
            no_color: true,
            ..calm.clone()
        };
        let dumb = Environment {
            dumb_terminal: true,
            ..calm.clone()
        };
        let cases = [
            (
                "auto on a terminal",
                Color::Auto,
                &calm,
                true,
                Paint::Styled,
            ),
            ("auto into a pipe", Color::Auto, &calm, false, Paint::Plain),
            (
                "auto with NO_COLOR",
                Color::Auto,
                &no_color,
                true,
                Paint::Plain,
            ),
            (
                "auto on a dumb terminal",
                Color::Auto,
                &dumb,
                true,
                Paint::Plain,
            ),
            (
                "always beats NO_COLOR",
                Color::Always,
                &no_color,
                false,
                Paint::Styled,
            ),
            ("never", Color::Never, &calm, true, Paint::Plain),
        ];
        for (name, color, environment, terminal, want) in cases {
            assert_eq!(paint(color, environment, terminal), want, "{name}");
        }
    }
}
