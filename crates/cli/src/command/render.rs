//! `trainyard render`: every object that the jobs of a file become.
//!
//! Invariant: a file with one wrong job prints nothing on stdout, so that half of what was meant
//! never reaches a pipe into the cluster. Jobs that passed the checks can be launched, and are,
//! one object at a time, so that memory does not grow with their number.

use anyhow::Context as _;
use serde_json::Value;
use trainyard_core::{
    launch::{Cluster, GangScheduler, Plan},
    spec::{self, RoleInFile},
};

use super::{jobs_file, note_foreign};
use crate::{
    args::{Render, RenderFormat},
    environment::Environment,
    failure::{Exit, Failure},
    printer::Printer,
    source,
};

/// Prints the objects.
pub(super) fn run(
    args: Render,
    environment: &Environment,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    let Some((file, fabrics)) = jobs_file(&args.file, printer)? else {
        return Ok(Exit::CouldNot);
    };
    let cluster = Cluster {
        domain: args
            .cluster_domain
            .or_else(|| environment.cluster_domain.clone()),
        agent_image: args.agent_image,
        network_policy: super::operator::network_policy(args.network_policy),
        gang_scheduler: args
            .gang_scheduler_name
            .as_deref()
            .and_then(GangScheduler::named),
        ..Cluster::default()
    };
    let jobs = || {
        let documents = file.documents.iter();
        documents.filter_map(|document| spec::check(document).job)
    };
    for job in jobs() {
        fabrics.of(&job)?;
    }
    let mut writer = Writer {
        format: args.format,
        count: 0,
        printer,
    };
    writer.begin()?;
    let unused = spec::unused_runtimes(&file.documents);
    for (place, document) in file.documents.iter().enumerate() {
        // What the runtime of a job says is in the pods.
        let is_read = document.is_runtime() && !unused.contains(&place);
        if !matches!(document.role_in_file(), RoleInFile::Job(_)) && !is_read {
            writer.write(&document.tree.to_json())?;
        }
    }
    for job in jobs() {
        let job = fabrics.fit(job, writer.printer)?;
        let plan = Plan::new(&job, &cluster)
            .with_context(|| format!("cannot render {} `{}`", job.kind, job.name))?;
        for object in plan.objects() {
            writer.write(&plan.written(&object))?;
        }
    }
    writer.end()?;
    let count = writer.count;
    note_foreign(&[&file], "printed as is", printer);
    let name = source::name(&args.file);
    printer.note(&format!("`{name}` becomes {count} objects"));
    Ok(Exit::Done)
}

/// Writes objects one by one.
struct Writer<'a> {
    format: RenderFormat,
    count: usize,
    printer: &'a mut Printer,
}

impl Writer<'_> {
    fn begin(&mut self) -> Result<(), Failure> {
        match self.format {
            RenderFormat::Yaml => Ok(()),
            RenderFormat::Json => self.printer.data(b"{\"version\":1,\"items\":["),
        }
    }

    /// JSON has one object to a line, so that two outputs can be compared.
    fn write(&mut self, object: &Value) -> Result<(), Failure> {
        let first = self.count == 0;
        self.count += 1;
        match self.format {
            RenderFormat::Yaml => {
                if !first {
                    self.printer.data(b"---\n")?;
                }
                self.printer.data(spec::to_yaml(object).as_bytes())
            }
            RenderFormat::Json => {
                self.printer.data(if first { b"\n" } else { b",\n" })?;
                let json = serde_json::to_vec(object).context("cannot write an object as JSON")?;
                self.printer.data(&json)
            }
        }
    }

    fn end(&mut self) -> Result<(), Failure> {
        match self.format {
            RenderFormat::Yaml => Ok(()),
            RenderFormat::Json => self.printer.data(b"\n]}\n"),
        }
    }
}
