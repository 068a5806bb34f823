//! The fabrics that files hold, and the jobs that are put on them.
//!
//! Owns the words of it. What a fabric adds to a job is `core::fabric`'s.

use std::collections::BTreeMap;

use trainyard_core::{
    fabric::{self, Fabric, Fitted},
    spec::{Document, Job},
};

use crate::{failure::Failure, printer::Printer};

/// Fabrics by name.
#[derive(Debug, Default)]
pub(crate) struct Fabrics(BTreeMap<String, Fabric>);

impl Fabrics {
    /// Takes the fabric in that `document` is, where it is one.
    pub(crate) fn add(&mut self, document: &Document) {
        if document.is_fabric() {
            let read = fabric::read(document).fabric;
            self.0
                .extend(read.map(|fabric| (fabric.name.clone(), fabric)));
        }
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Fabric> {
        self.0.values()
    }

    /// The fabric of `job`, where it names one; one that it names must be there.
    pub(crate) fn of(&self, job: &Job) -> Result<Option<&Fabric>, Failure> {
        let Some(name) = &job.settings.fabric else {
            return Ok(None);
        };
        let missing = || {
            let message = format!(
                "{} `{}` uses the fabric `{name}`, which is not in the file",
                job.kind, job.name
            );
            Failure::new(message).hint(format!(
                "add it to the file: `kubectl get fabric {name} -o yaml`"
            ))
        };
        self.0.get(name).ok_or_else(missing).map(Some)
    }

    /// The job as a cluster with these fabrics would launch it.
    pub(crate) fn fit(&self, job: Job, printer: &mut Printer) -> Result<Job, Failure> {
        let Some(fabric) = self.of(&job)? else {
            return Ok(job);
        };
        let fitted = fabric::fit(&job, fabric);
        note_fitted(&fitted, &fabric.name, "unchanged from the job", printer);
        Ok(fitted.job)
    }

    /// The same where a fabric that is not in the file may be in the cluster: what it would add is left out, and
    /// that is said.
    pub(crate) fn fit_known(&self, job: Job, printer: &mut Printer) -> Result<Job, Failure> {
        match &job.settings.fabric {
            Some(name) if !self.0.contains_key(name) => {
                printer.summary(&format!(
                    "fabric `{name}` of {} `{}` is not in the file; the devices it adds are not counted",
                    job.kind, job.name
                ));
                Ok(job)
            }
            _ => self.fit(job, printer),
        }
    }

    /// The job with what of its fabric makes sense on one machine.
    pub(crate) fn fit_locally(&self, job: Job, printer: &mut Printer) -> Job {
        let Some(name) = &job.settings.fabric else {
            return job;
        };
        let Some(fabric) = self.0.get(name) else {
            printer.summary(&format!(
                "fabric `{name}` is not in the files; the job runs without its variables"
            ));
            return job;
        };
        let fitted = fabric::fit_locally(&job, fabric);
        note_fitted(&fitted, name, "not on this machine", printer);
        fitted.job
    }
}

fn note_fitted(fitted: &Fitted, name: &str, instead: &str, printer: &mut Printer) {
    if let Some(added) = fitted.added() {
        printer.note(&format!("fabric `{name}` adds {added}"));
    }
    if let Some(objections) = fitted.objections() {
        printer.summary(&format!("fabric `{name}`, {instead}: {objections}"));
    }
}
