//! `trainyard fabric`: the network attachments that fabrics describe.
//!
//! Invariant: where anything is wrong in any file, nothing is written.

use serde_json::{Value, json};
use trainyard_core::{
    fabric,
    finding::Severity,
    lint,
    spec::{self, File},
};

use super::print_finding;
use crate::{
    args::{Fabric, RenderFormat},
    fabrics::Fabrics,
    failure::{Exit, Failure},
    printer::Printer,
    source,
};

/// Prints the attachments.
pub(super) fn run(args: &Fabric, printer: &mut Printer) -> Result<Exit, Failure> {
    let mut files: Vec<(String, File)> = Vec::new();
    for path in &args.files {
        let name = source::name(path);
        let bytes = source::read(path, spec::MAX_BYTES)?;
        match spec::read(&bytes) {
            Ok(file) => files.push((name, file)),
            Err(finding) => {
                print_finding(&finding, &name, &spec::source_text(&bytes), printer);
                return Ok(Exit::CouldNot);
            }
        }
    }
    let read: Vec<&File> = files.iter().map(|(_, file)| file).collect();
    let mut refused = false;
    for ((name, file), findings) in files.iter().zip(lint::review(&read, None)) {
        for finding in findings {
            let error = finding.severity == Severity::Error;
            refused |= error;
            if error || printer.wants_warnings() {
                print_finding(&finding, name, &file.text, printer);
            }
        }
    }
    if refused {
        return Ok(Exit::Failed);
    }
    let mut fabrics = Fabrics::default();
    for (_, file) in &files {
        for document in &file.documents {
            fabrics.add(document);
        }
    }
    let made: Vec<Value> = fabrics.all().filter_map(fabric::attachment).collect();
    if made.is_empty() {
        return Err(Failure::new("no fabric in the files has a `spec.network`")
            .hint("set `spec.network` of the fabric, such as `plugin: macvlan`"));
    }
    let made: Vec<Value> = made
        .into_iter()
        .map(|object| in_namespace(object, args.namespace.as_deref()))
        .collect();
    write(&made, args.format, printer)?;
    Ok(Exit::Done)
}

fn in_namespace(mut object: Value, namespace: Option<&str>) -> Value {
    if let (Some(namespace), None) = (namespace, object["metadata"].get("namespace")) {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn write(objects: &[Value], format: RenderFormat, printer: &mut Printer) -> Result<(), Failure> {
    match format {
        RenderFormat::Yaml => {
            let texts: Vec<String> = objects.iter().map(spec::to_yaml).collect();
            printer.data(texts.join("---\n").as_bytes())
        }
        RenderFormat::Json => printer.json(&json!({"version": 1, "items": objects})),
    }
}
