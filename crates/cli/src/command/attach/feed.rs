//! What changed in the store since the last poll, as the events of a run.

use std::{collections::BTreeMap, io::Read as _};

use anyhow::Context as _;
use trainyard_core::{job::JobStatus, spec::Slot};
use trainyard_host::{
    RunEvent, Stream,
    store::{LogFile, StoredProgress},
};

use crate::{
    failure::Failure,
    run::names,
    stored::{self, Stored},
};

/// Lines of each log that are shown of the time before.
const LINES_BEFORE: usize = 10;

/// Where a reader of the store is.
pub(super) struct Feed<'a> {
    run: &'a Stored,
    /// Logs with how far they were read.
    logs: Vec<(LogFile, u64)>,
    status: Option<JobStatus>,
    progress: Option<StoredProgress>,
    /// The pods that were there, and whether they were running.
    pods: BTreeMap<(Slot, u32), bool>,
    /// The last attempt whose first failure is known.
    failed: u32,
    /// Nothing was read yet.
    first: bool,
}

impl<'a> Feed<'a> {
    pub(super) fn new(run: &'a Stored) -> Self {
        Self {
            run,
            logs: Vec::new(),
            status: None,
            progress: None,
            pods: BTreeMap::new(),
            failed: run.failures.last().map_or(0, |failed| failed.attempt),
            first: true,
        }
    }

    /// Pushes what is new.
    pub(super) fn poll(&mut self, push: &mut dyn FnMut(RunEvent)) -> Result<(), Failure> {
        self.read_status(push)?;
        self.read_logs(push)?;
        self.read_failures(push)?;
        self.read_pods(push);
        self.first = false;
        Ok(())
    }

    fn read_status(&mut self, push: &mut dyn FnMut(RunEvent)) -> Result<(), Failure> {
        let status = self.run.folder.status().map_err(stored::refused)?;
        if self.status.as_ref() != Some(&status) {
            self.status = Some(status.clone());
            push(RunEvent::Status(Box::new(status)));
        }
        let progress = self.run.folder.progress().map_err(stored::refused)?;
        if let Some(reported) = &progress
            && self.progress != progress
            && let Some(slot) = names::slots(&self.run.record.replicas).next()
        {
            push(RunEvent::Progress {
                slot,
                attempt: reported.attempt,
                step: reported.step,
                loss: reported.loss,
            });
        }
        self.progress = progress;
        Ok(())
    }

    fn read_logs(&mut self, push: &mut dyn FnMut(RunEvent)) -> Result<(), Failure> {
        let folder = &self.run.folder;
        let attempts = folder.attempts().map_err(stored::refused)?;
        // The attempt before may still write its last.
        for attempt in attempts.iter().rev().take(2).rev() {
            for log in folder.logs(*attempt).map_err(stored::refused)? {
                if self.logs.iter().any(|(known, _)| *known == log) {
                    continue;
                }
                let old = self.first && Some(attempt) != attempts.last();
                let offset = match (self.first, old) {
                    (true, true) => log.last_offset(0),
                    (true, false) => log.last_offset(LINES_BEFORE),
                    (false, _) => Ok(0),
                };
                self.logs.push((log, offset.map_err(stored::refused)?));
            }
        }
        for (log, offset) in &mut self.logs {
            let Some(slot) = self.run.slot_called(&log.pod) else {
                continue;
            };
            let mut reader = log.open(*offset).map_err(stored::refused)?;
            let mut bytes = Vec::new();
            reader
                .read_to_end(&mut bytes)
                .with_context(|| format!("cannot read the log of pod `{}`", log.pod))?;
            *offset = reader.offset();
            if !bytes.is_empty() {
                push(RunEvent::Output {
                    slot,
                    attempt: log.attempt,
                    container: log.container.as_str().into(),
                    // Logs hold both streams as one.
                    stream: Stream::Out,
                    bytes,
                    left_out: 0,
                });
            }
        }
        Ok(())
    }

    fn read_failures(&mut self, push: &mut dyn FnMut(RunEvent)) -> Result<(), Failure> {
        let failures = self.run.folder.failures().map_err(stored::refused)?;
        for failed in failures {
            if failed.attempt > self.failed {
                self.failed = failed.attempt;
                push(RunEvent::FailedFirst(Box::new(failed)));
            }
        }
        Ok(())
    }

    fn read_pods(&mut self, push: &mut dyn FnMut(RunEvent)) {
        // A run of an older version has no such file.
        let pods = self.run.folder.pods().unwrap_or_default();
        let mut now = BTreeMap::new();
        for pod in pods {
            let key = (pod.slot, pod.attempt);
            let before = self.pods.remove(&key);
            let (slot, attempt, pid) = (pod.slot, pod.attempt, pod.pid);
            if before.is_none() {
                push(RunEvent::PodStarted { slot, attempt, pid });
            }
            if pod.running && before != Some(true) {
                push(RunEvent::PodRunning { slot, attempt });
            }
            now.insert(key, pod.running);
        }
        for (slot, attempt) in std::mem::replace(&mut self.pods, now).into_keys() {
            push(RunEvent::PodEnded {
                slot,
                attempt,
                exit: None,
                stopped: true,
            });
        }
    }
}
