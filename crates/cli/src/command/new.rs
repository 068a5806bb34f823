//! `trainyard new`: a commented job file from a template.
//!
//! Words and wiring: what can be asked and what is written is decided in `core::template`.

mod ask;

use std::{
    fs::{self, File},
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde::Serialize;
use trainyard_core::{
    lint::Profile,
    template::{self, Answers, Question, Refusal, Template},
};

use crate::{
    args::{Format, New, NewAnswers},
    failure::{Exit, Failure},
    output,
    printer::Printer,
    source,
};

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
struct List {
    version: u32,
    templates: Vec<Listed>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    name: &'static str,
    version: u32,
    api_version: &'static str,
    kind: &'static str,
    summary: &'static str,
    demo: Size,
    production: Size,
}

#[derive(Debug, Serialize)]
struct Size {
    workers: u32,
    gpus: u32,
}

/// Writes the file, or the list.
pub(super) fn run(args: &New, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.list {
        return list(args.format, printer);
    }
    let asks = !args.yes && io::stdin().is_terminal() && printer.stderr_is_terminal();
    let named = args.template.as_ref().or(args.template_flag.as_ref());
    let template = match (named, asks) {
        (Some(name), _) => template::find(name)?,
        (None, true) => ask::template(printer)?,
        (None, false) => {
            return Err(
                Failure::new("no template given, and no terminal to ask on")
                    .hint("`trainyard new --template quickstart` writes a job that runs as it is; `--list` shows all templates"),
            );
        }
    };
    let profile = match args.profile {
        Some(profile) => profile.into(),
        None if asks => ask::profile(printer)?,
        None => Profile::Demo,
    };
    let mut answers = Answers::new(template, profile);
    for question in Question::ALL {
        match given(&args.answers, question) {
            Some(text) => answers.set(question, text)?,
            None if asks && answers.applies(question) && !has_rare_answer(question) => {
                ask::question(question, &mut answers, printer)?;
            }
            None => {}
        }
    }
    let text = answers.write()?;
    let output = output(args, &answers);
    if source::is_stdin(&output) {
        printer.data(text.as_bytes())?;
        return Ok(Exit::Done);
    }
    write(&output, &text, args.force)?;
    printer.summary(&next_steps(&output, &answers, template));
    Ok(Exit::Done)
}

/// Whether the default is nearly always right, so that no question is asked.
fn has_rare_answer(question: Question) -> bool {
    matches!(
        question,
        Question::Namespace | Question::StorageClass | Question::Storage
    )
}

fn given(answers: &NewAnswers, question: Question) -> Option<&str> {
    match question {
        Question::Name => &answers.name,
        Question::Image => &answers.image,
        Question::Command => &answers.command,
        Question::Workers => &answers.workers,
        Question::Gpus => &answers.gpus,
        Question::LeastWorkers => &answers.min_workers,
        Question::Parallelism => &answers.parallelism,
        Question::Namespace => &answers.namespace,
        Question::StorageClass => &answers.storage_class,
        Question::Storage => &answers.storage,
    }
    .as_deref()
}

fn output(args: &New, answers: &Answers) -> PathBuf {
    let default = || format!("{}.yaml", answers.current(Question::Name)).into();
    args.output.clone().unwrap_or_else(default)
}

/// Writes the whole file or nothing; one that is there is replaced only by `force`.
fn write(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let shown = path.display();
    let cannot = || format!("cannot write `{shown}`");
    if force {
        return Ok(output::write(path, text.as_bytes()).with_context(cannot)?);
    }
    let mut file = File::create_new(path).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            let message = format!("cannot write `{shown}`: the file already exists");
            return Failure::new(message)
                .hint("choose another file with `--output`, or overwrite it with `--force`");
        }
        let folder = path.parent().filter(|folder| !folder.exists());
        if let (io::ErrorKind::NotFound, Some(folder)) = (error.kind(), folder) {
            let folder = folder.display();
            let message = format!("cannot write `{shown}`: folder `{folder}` does not exist");
            return Failure::new(message).hint(format!("create it first: `mkdir -p {folder}`"));
        }
        anyhow::Error::new(error).context(cannot()).into()
    })?;
    file.write_all(text.as_bytes()).with_context(|| {
        // Half a file would stand in the way of the next try.
        drop(fs::remove_file(path));
        cannot()
    })?;
    Ok(())
}

/// What to do with the file, as commands that can be copied.
fn next_steps(path: &Path, answers: &Answers, template: &Template) -> String {
    let path = quoted(path);
    let without_gpus = match answers.current(Question::Gpus).as_str() {
        "0" => "",
        _ => " --cpu",
    };
    format!(
        "wrote {path} from {}\n\nnext:\n  trainyard lint {path}\n  trainyard run {path}{without_gpus}\n  kubectl apply -f {path}",
        template.id()
    )
}

/// The path as a shell reads it back.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/+=:,@".contains(letter);
    if text.chars().all(plain) && !text.starts_with('-') {
        text
    } else if text.starts_with('-') {
        format!("'./{}'", text.replace('\'', r"'\''"))
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let failure = Self::new(refusal.to_string());
        match refusal.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

fn list(format: Format, printer: &mut Printer) -> Result<Exit, Failure> {
    match format {
        Format::Text => printer.data(table().as_bytes())?,
        Format::Json => {
            let list = List {
                version: 1,
                templates: template::all().iter().map(listed).collect(),
            };
            let json =
                serde_json::to_string_pretty(&list).context("cannot write the list as JSON")?;
            printer.data(format!("{json}\n").as_bytes())?;
        }
    }
    Ok(Exit::Done)
}

fn listed(template: &Template) -> Listed {
    let size = |profile| {
        let size = template.size(profile);
        Size {
            workers: size.workers,
            gpus: size.gpus,
        }
    };
    Listed {
        name: template.name,
        version: template.version,
        api_version: template.kind.api_version(),
        kind: template.kind.name(),
        summary: template.summary,
        demo: size(Profile::Demo),
        production: size(Profile::Production),
    }
}

fn table() -> String {
    let head = ["TEMPLATE", "KIND", "PURPOSE"].map(str::to_owned);
    let rows: Vec<[String; 3]> = std::iter::once(head)
        .chain(template::all().iter().map(|template| {
            [
                template.id(),
                template.kind.name().to_owned(),
                template.summary.to_owned(),
            ]
        }))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    let line =
        |[id, kind, summary]: &[String; 3]| format!("{id:first$}  {kind:second$}  {summary}");
    let lines: Vec<String> = rows.iter().map(line).collect();
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_can_be_copied_into_a_shell() {
        let cases = [
            ("job.yaml", "job.yaml"),
            ("my jobs/a.yaml", "'my jobs/a.yaml'"),
            ("it's.yaml", r"'it'\''s.yaml'"),
            ("-rf.yaml", "'./-rf.yaml'"),
        ];
        for (path, want) in cases {
            assert_eq!(quoted(Path::new(path)), want);
        }
    }
}
