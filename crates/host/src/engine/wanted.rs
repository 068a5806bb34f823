//! What users ask of the run: the job as it was started, as it was changed since, and whether it is to stop.
//!
//! Invariant: a run that was asked to stop takes no other change.

use trainyard_core::spec::Job;

/// The job as it is wanted now.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    started: &'a Job,
    /// The job as it was changed since.
    edited: Option<Job>,
    /// The job with `suspend` set, once a stop was requested.
    stopped: Option<Job>,
    stops: usize,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(job: &'a Job) -> Self {
        Self {
            started: job,
            edited: None,
            stopped: None,
            stops: 0,
        }
    }

    /// The job that the next decision is about.
    pub(super) fn job(&self) -> &Job {
        let changed = self.stopped.as_ref().or(self.edited.as_ref());
        changed.unwrap_or(self.started)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Whether it was asked more than once: no pod gets its grace period then.
    pub(super) fn is_stopped_at_once(&self) -> bool {
        self.stops > 1
    }

    /// Counts requests to stop; true when the first is among them.
    pub(super) fn stop(&mut self, times: usize) -> bool {
        self.stops += times;
        if self.stops == 0 || self.is_stopped() {
            return false;
        }
        let mut job = self.started.clone();
        job.run_policy.suspend = true;
        self.stopped = Some(job);
        true
    }

    /// Changes the job as a user of a cluster would. The error is the refusal.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut Job)) -> Result<(), String> {
        if self.is_stopped() {
            let name = &self.started.name;
            return Err(format!("the run of job `{name}` is being stopped"));
        }
        change(self.edited.get_or_insert_with(|| self.started.clone()));
        Ok(())
    }
}
