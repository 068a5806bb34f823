//! What users do to a job while it runs.

use std::rc::Rc;

use trainyard_core::{
    job::Removal,
    spec::{Job, Role},
};

use super::{Happening, World, api::Objects};
use crate::coverage::Mark;

/// One thing a user does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Sets the replicas of the workers.
    Scale(u32),
    /// Sets `backoffLimit`.
    Limit(Option<u32>),
    /// Sets `activeDeadlineSeconds`.
    Deadline(Option<u64>),
    /// Sets `suspend`.
    Suspend(bool),
    /// Asks for a restart.
    Restart,
    /// Deletes the job; its object goes at once.
    Delete,
    /// Deletes the job; its object goes after its pods.
    DeleteInForeground,
}

impl World {
    /// A user does something.
    pub(crate) fn user_does(&mut self, deed: Deed) {
        if !self.stored.exists {
            return;
        }
        self.trace.note(self.now, format_args!("user    {deed:?}"));
        match deed {
            Deed::Scale(replicas) => {
                let elastic = self
                    .stored
                    .job
                    .elastic()
                    .map(|bounds| (bounds.min_replicas, bounds.max_replicas));
                self.edit(Mark::Scaled, |job| {
                    if let Some(spec) = job.roles.get_mut(&Role::Worker) {
                        spec.replicas = match elastic {
                            Some((min, max)) => replicas.clamp(min, max),
                            None => replicas,
                        };
                    }
                });
            }
            Deed::Limit(limit) => {
                self.edit(Mark::LimitEdited, |job| {
                    job.run_policy.backoff_limit = limit;
                });
            }
            Deed::Deadline(deadline) => self.edit(Mark::DeadlineEdited, |job| {
                job.run_policy.active_deadline_seconds = deadline;
            }),
            Deed::Suspend(suspend) => {
                let mark = if suspend {
                    Mark::Suspended
                } else {
                    Mark::Resumed
                };
                self.edit(mark, |job| job.run_policy.suspend = suspend);
            }
            Deed::Restart => {
                let name = self.now.to_string();
                self.edit(Mark::RestartAsked, |job| job.settings.restart = Some(name));
            }
            Deed::Delete => {
                self.coverage.mark(Mark::DeletedAtOnce);
                self.stored.deleted_by_user = true;
                self.delete_job();
            }
            Deed::DeleteInForeground => {
                self.coverage.mark(Mark::DeletedInForeground);
                self.stored.being_deleted = true;
                self.stored.deleted_by_user = true;
                self.spec_changed();
                self.call_collector();
                self.finish_deletion();
            }
        }
    }

    fn edit(&mut self, mark: Mark, change: impl FnOnce(&mut Job)) {
        let mut job = Job::clone(&self.stored.job);
        change(&mut job);
        if job == *self.stored.job {
            return;
        }
        self.coverage.mark(mark);
        self.stored.job = Rc::new(job);
        self.remember_spec();
        self.spec_changed();
    }

    /// The job object goes; the collector takes what it owned.
    pub(crate) fn delete_job(&mut self) {
        if !self.stored.exists {
            return;
        }
        self.trace
            .note(self.now, format_args!("api     the job is gone"));
        self.stored.exists = false;
        self.spec_changed();
        self.call_collector();
    }

    /// The collector comes by once, however often it is called meanwhile.
    pub(crate) fn call_collector(&mut self) {
        if !self.stored.collector_called {
            self.stored.collector_called = true;
            self.schedule(1_000, Happening::Collect);
        }
    }

    /// The collector deletes whatever belongs to a job that is gone or going.
    pub(crate) fn collect(&mut self) {
        self.stored.collector_called = false;
        if self.stored.exists && !self.stored.being_deleted {
            return;
        }
        let mut at = 0;
        while at < self.cluster.pods.len() {
            let birth = self.cluster.pods[at].birth;
            self.cluster.births[birth].troubled = true;
            self.delete_pod(at, Removal::Graceful);
            at += 1;
        }
        self.cluster.objects = Objects::default();
        self.objects_changed();
        self.finish_deletion();
    }

    /// A job that is being deleted goes when its last pod is gone.
    pub(crate) fn finish_deletion(&mut self) {
        if self.stored.exists && self.stored.being_deleted && self.cluster.pods.is_empty() {
            self.delete_job();
        }
    }
}
