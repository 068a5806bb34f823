//! `trainyard render`: every object that the jobs of a file become.
//!
//! Invariant: either all of it is printed or none: a file with one wrong job prints nothing on
//! stdout, so that half of a job never reaches a pipe into the cluster.

use anyhow::Context as _;
use serde_json::Value;
use trainyard_core::{
    finding::{Finding, Severity},
    launch::{self, Cluster, Object},
    lint,
    spec::{self, File, Job, RoleInFile},
};

use crate::{
    args::{Render, RenderFormat},
    environment::Environment,
    failure::{Exit, Failure},
    printer::Printer,
    snippet, source,
};

/// Prints the objects.
pub(super) fn run(
    args: Render,
    environment: &Environment,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    let name = source::name(&args.file);
    let bytes = source::read(&args.file, spec::MAX_BYTES)?;
    let file = match spec::read(&bytes) {
        Ok(file) => file,
        Err(finding) => {
            tell(&finding, &name, &spec::source_text(&bytes), printer);
            return Ok(Exit::CouldNot);
        }
    };
    drop(bytes);

    let findings = lint::lint(&file);
    let refused = findings.iter().any(|finding| finding.severity == Severity::Error);
    for finding in &findings {
        if finding.severity == Severity::Error || printer.wants_warnings() {
            tell(finding, &name, &file.text, printer);
        }
    }
    if refused {
        return Ok(Exit::CouldNot);
    }

    let cluster = Cluster {
        domain: args.cluster_domain.or_else(|| environment.cluster_domain.clone()),
        ..Cluster::default()
    };
    let objects = objects(&file, &cluster)?;
    printer.note(&format!("`{name}` becomes {} objects", objects.len()));
    match args.format {
        RenderFormat::Yaml => print_yaml(objects, printer)?,
        RenderFormat::Json => print_json(objects, printer)?,
    }
    Ok(Exit::Done)
}

/// What is printed: an object of the file as it stands there, or one that a job becomes.
enum Item {
    Companion(Value),
    Launched(Object),
}

impl Item {
    fn into_value(self) -> Value {
        match self {
            Self::Companion(value) => value,
            Self::Launched(object) => object.to_value(),
        }
    }
}

/// Companions in the order of the file, then what each job becomes.
fn objects(file: &File, cluster: &Cluster) -> Result<Vec<Item>, Failure> {
    let mut items = Vec::new();
    let mut jobs: Vec<Job> = Vec::new();
    for document in &file.documents {
        match document.role_in_file() {
            RoleInFile::Job(_) => jobs.extend(spec::check(document).job),
            _ => items.push(Item::Companion(document.tree.to_json())),
        }
    }
    for job in &jobs {
        let launched = launch::render(job, cluster)
            .with_context(|| format!("cannot render {} `{}`", job.kind, job.name))?;
        items.extend(launched.into_iter().map(Item::Launched));
    }
    Ok(items)
}

fn print_yaml(items: Vec<Item>, printer: &mut Printer) -> Result<(), Failure> {
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            printer.data(b"---\n")?;
        }
        printer.data(spec::to_yaml(&item.into_value()).as_bytes())?;
    }
    Ok(())
}

/// One object to a line, so that two outputs can be compared and none is held as a whole.
fn print_json(items: Vec<Item>, printer: &mut Printer) -> Result<(), Failure> {
    printer.data(b"{\"version\":1,\"items\":[")?;
    for (at, item) in items.into_iter().enumerate() {
        printer.data(if at == 0 { b"\n" } else { b",\n" })?;
        let json = serde_json::to_vec(&item.into_value()).context("cannot write an object as JSON")?;
        printer.data(&json)?;
    }
    printer.data(b"\n]}\n")
}

fn tell(finding: &Finding, file: &str, text: &str, printer: &mut Printer) {
    let block = snippet::render(finding, file, text, printer.stderr_paint());
    printer.message(&block);
}
