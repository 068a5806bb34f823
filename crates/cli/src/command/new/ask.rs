//! Questions on a terminal: each with its default in brackets, asked again until the answer will do.
//!
//! The end of the input, which is Ctrl-D, is an answer too: nothing is to be written.

use std::io;

use trainyard_core::{
    lint::Profile,
    template::{self, Answers, Question, Refusal, Template},
};

use crate::{failure::Failure, printer::Printer};

/// Longest answer that is read; a longer line is not an answer to any question.
const MAX_LINE: u64 = 64 * 1024;

/// Which template.
pub(super) fn template(printer: &mut Printer) -> Result<&'static Template, Failure> {
    printer.message(&super::table());
    let first = template::all().first().map_or("", |template| template.name);
    until("template", first, printer, template::find)
}

/// What for.
pub(super) fn profile(printer: &mut Printer) -> Result<Profile, Failure> {
    let names = Profile::ALL.map(Profile::name).join(" or ");
    until(&names, Profile::Demo.name(), printer, |text| {
        Profile::parse(text).ok_or_else(|| format!("`{}` is neither {names}", text.escape_debug()))
    })
}

/// One question about the job.
pub(super) fn question(
    question: Question,
    answers: &mut Answers,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let current = answers.current(question);
    until(question.prompt(), &current, printer, |text| {
        answers.set(question, text)
    })
}

/// Asks until `take` takes the answer.
fn until<T, E: Into<Said>>(
    prompt: &str,
    default: &str,
    printer: &mut Printer,
    mut take: impl FnMut(&str) -> Result<T, E>,
) -> Result<T, Failure> {
    loop {
        printer.message(&format!("{prompt} [{default}]: "));
        let line = line(printer)?;
        let answer = match line.trim() {
            "" => default,
            answer => answer,
        };
        match take(answer) {
            Ok(taken) => return Ok(taken),
            Err(refusal) => printer.error(&refusal.into().0),
        }
    }
}

/// Why an answer is as printed.
struct Said(Failure);

impl From<Refusal> for Said {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.into())
    }
}

impl From<String> for Said {
    fn from(message: String) -> Self {
        Self(Failure::new(message))
    }
}

fn line(printer: &mut Printer) -> Result<String, Failure> {
    use std::io::{BufRead as _, Read as _};
    let mut line = String::new();
    let read = io::stdin().lock().take(MAX_LINE).read_line(&mut line);
    match read {
        Ok(0) => {
            printer.message("\n");
            Err(
                Failure::new("not all questions were answered; no file was written")
                    .hint("pass the answers as options: see `trainyard new --help`"),
            )
        }
        Ok(_) => Ok(line),
        Err(error) => Err(anyhow::Error::new(error)
            .context("cannot read the answer")
            .into()),
    }
}
