//! What happens while the engine waits, and what it makes of it.

use std::{
    io,
    os::fd::{BorrowedFd, RawFd},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use trainyard_core::job::{Exit, PodPhase};

use super::{
    Engine, Watch,
    output::Flow,
    start,
    table::{Entry, Key},
    unsaved::End,
};
use crate::{
    HostError, channel, namespaces, remote, request::RunEvent, stop::StopHandle, wire::Report,
};

impl Engine<'_> {
    pub(super) fn handle(
        &mut self,
        watch: Watch,
        number: u64,
        stop: &StopHandle,
    ) -> Result<(), HostError> {
        match watch {
            Watch::Stop => {
                self.asked_to_stop(stop.take());
                Ok(())
            }
            Watch::Control(key) => {
                if self.read_reports(key)? {
                    self.watches.remove(&number);
                }
                Ok(())
            }
            Watch::Keeper => {
                if self.read_keeper()? {
                    self.watches.remove(&number);
                }
                Ok(())
            }
            Watch::Output(key, at) => self.read_stream(key, at, number),
            Watch::Listener => self.accept(),
            Watch::Client(client) => {
                self.serve(client, number);
                Ok(())
            }
        }
    }

    pub(super) fn asked_to_stop(&mut self, times: usize) {
        self.stops += times;
        if self.stops == 0 {
            return;
        }
        if self.stopped_job.is_none() {
            let mut job = self.job.clone();
            job.run_policy.suspend = true;
            self.stopped_job = Some(job);
            self.changed = true;
        }
        if self.stops > 1 {
            for key in self.pods.keys() {
                self.keeper.end(*key);
            }
        }
    }

    /// Reads which pods are gone; true when the keeper itself is, and with it every pod.
    fn read_keeper(&mut self) -> Result<bool, HostError> {
        loop {
            match self.keeper.next_gone() {
                Ok(Some(key)) => self.finish_gone_pod(key)?,
                Ok(None) => break,
                // No message is left.
                Err(_) => return Ok(false),
            }
        }
        let left = self.pods.iter().filter(|(_, entry)| !entry.gone);
        for key in left.map(|(key, _)| *key).collect::<Vec<Key>>() {
            self.finish_gone_pod(key)?;
        }
        Ok(true)
    }

    /// A pod is gone. Its last reports may not have been read yet.
    fn finish_gone_pod(&mut self, key: Key) -> Result<(), HostError> {
        let over = self.read_reports(key)?;
        let ended = self.pods.get(&key).is_none_or(Entry::has_ended);
        if !over && !ended {
            self.killed_from_outside(key);
        }
        self.pod_gone(key);
        Ok(())
    }

    /// Reads all reports of a pod init; true when no more will come.
    fn read_reports(&mut self, key: Key) -> Result<bool, HostError> {
        loop {
            let Some(entry) = self.pods.get_mut(&key) else {
                return Ok(true);
            };
            let Some(control) = &entry.control else {
                return Ok(true);
            };
            match channel::receive_now::<Report>(control) {
                Ok(Some((report, _))) => self.handle_report(key, report)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                // An end that was reset is as gone as one that was closed.
                Ok(None) | Err(_) => {
                    entry.control = None;
                    if !entry.has_ended() {
                        self.killed_from_outside(key);
                    }
                    return Ok(true);
                }
            }
        }
    }

    /// A pod init is gone that did not say its pod has ended.
    fn killed_from_outside(&mut self, key: Key) {
        let code = 128 + Signal::SIGKILL as i32;
        let container = self.training_container(key);
        let Some(entry) = self.pods.get_mut(&key) else {
            return;
        };
        self.changed = true;
        entry.phase = PodPhase::Failed;
        entry.ends += u32::from(entry.exit.is_none());
        entry.exit.get_or_insert(Exit {
            code,
            out_of_memory: false,
            at: Some(start::now()),
        });
        let end = End {
            container: &container,
            code,
            signaled: true,
            out_of_memory: false,
            starts_again: false,
        };
        self.note_failure(key, end);
    }

    fn handle_report(&mut self, key: Key, report: Report) -> Result<(), HostError> {
        let Some(entry) = self.pods.get_mut(&key) else {
            return Ok(());
        };
        let pod = entry.name.clone();
        match report {
            Report::Started { pid } => {
                let (slot, attempt) = (entry.slot, entry.attempt);
                entry.pid = Some(pid);
                self.pods_changed = true;
                (self.sink)(RunEvent::PodStarted { slot, attempt, pid });
            }
            Report::Running => {
                entry.phase = PodPhase::Running;
                self.pods_changed = true;
                let (slot, attempt) = (entry.slot, entry.attempt);
                self.changed = true;
                (self.sink)(RunEvent::PodRunning { slot, attempt });
                self.run_waiting();
            }
            Report::Restarted {
                container,
                restarts,
                code,
                signaled,
            } => {
                self.changed = true;
                entry.restarts.insert(container.clone(), restarts);
                let out_of_memory = self.ended_for_memory(key, &container, code);
                let is_training = container == self.training_container(key);
                if is_training && let Some(entry) = self.pods.get_mut(&key) {
                    entry.ends += 1;
                    entry.last_end = Some(Exit {
                        code,
                        out_of_memory,
                        at: Some(start::now()),
                    });
                }
                let end = End {
                    container: &container,
                    code,
                    signaled,
                    out_of_memory,
                    starts_again: true,
                };
                self.note_failure(key, end);
                self.ended_in_place(key, container);
            }
            Report::Exited {
                container,
                code,
                signaled,
            } => self.container_exited(key, &container, code, signaled),
            Report::Ended { succeeded } => {
                self.changed = true;
                entry.phase = if succeeded {
                    PodPhase::Succeeded
                } else {
                    PodPhase::Failed
                };
            }
            Report::Broken { message } => return Err(HostError::PodSetup { pod, message }),
            Report::NotIsolated { step, reason } => {
                return Err(HostError::NoNamespaces {
                    step,
                    reason,
                    cures: namespaces::cures(),
                });
            }
            Report::ExecEnded { id, code } => self.command_ended(id, code),
            Report::Isolated => {}
        }
        Ok(())
    }

    fn container_exited(&mut self, key: Key, container: &str, code: i32, signaled: bool) {
        let out_of_memory = self.ended_for_memory(key, container, code);
        let training = self.job.kind.container();
        let Some(entry) = self.pods.get_mut(&key) else {
            return;
        };
        self.changed = true;
        let names = entry.outputs.iter().map(|output| &*output.name);
        let is_training = container == training || !names.into_iter().any(|name| name == training);
        // An init container that fails is the program's failure as well: nothing else will end.
        if is_training || entry.phase == PodPhase::Pending && code != 0 {
            entry.ends += 1;
            entry.exit = Some(Exit {
                code,
                out_of_memory,
                at: Some(start::now()),
            });
        }
        let end = End {
            container,
            code,
            signaled,
            out_of_memory,
            starts_again: false,
        };
        self.note_failure(key, end);
    }

    /// Whether memory was why a container ended with `code`: the kernel ended a process of it, or,
    /// where its memory is not counted apart, some process of this user.
    fn ended_for_memory(&mut self, key: Key, container: &str, code: i32) -> bool {
        let Some(entry) = self.pods.get(&key) else {
            return false;
        };
        let on_purpose = entry.injected.is_some();
        let name = start::cgroup_name(&entry.uid, container);
        let limits = self.limits.as_mut();
        // A program may live on for a moment without the process that was ended, and say another
        // code.
        if let Some(ended) = limits.and_then(|limits| limits.ended_for_memory(&name)) {
            return ended && code != 0;
        }
        if code != 128 + Signal::SIGKILL as i32 {
            return false;
        }
        let kills = start::out_of_memory_kills();
        let more = kills > self.out_of_memory_kills;
        self.out_of_memory_kills = kills;
        more && !on_purpose
    }

    /// No process of the pod is left.
    fn pod_gone(&mut self, key: Key) {
        let streams = self.pods.get(&key).map_or(0, |entry| entry.outputs.len());
        for at in 0..streams {
            // No process of the pod can write any more, so this ends.
            while self.read_output(key, at) == Flow::Open {}
            self.close_output(key, at);
        }
        self.output_ended(key);
        let Some(entry) = self.pods.get_mut(&key) else {
            return;
        };
        entry.gone = true;
        self.pods_changed = true;
        entry.control = None;
        entry.kill_at = None;
        entry.outputs.clear();
        for log in entry.logs.drain(..).flatten() {
            // Where the disk is full, what was written can be read as it is.
            drop(log.finish());
        }
        drop(std::fs::remove_dir_all(&entry.scratch));
        if !entry.has_ended() {
            entry.phase = PodPhase::Failed;
        }
        let event = RunEvent::PodEnded {
            slot: entry.slot,
            attempt: entry.attempt,
            exit: entry.exit,
            stopped: entry.stopped,
        };
        if entry.deleted_at.is_some() {
            self.pods.remove(&key);
        }
        self.drop_commands_of(key);
        self.changed = true;
        (self.sink)(event);
    }

    /// What is due by the clock.
    pub(super) fn act_on_time(&mut self) -> Result<(), HostError> {
        let now = Instant::now();
        self.read_rested_streams(now)?;
        for (key, entry) in &mut self.pods {
            if entry.kill_at.is_some_and(|at| at <= now) {
                entry.kill_at = None;
                self.keeper.end(*key);
            }
        }
        self.inject(now);
        Ok(())
    }

    /// Ends every pod at once and waits until the kernel has.
    pub(super) fn end_everything(&mut self) {
        self.write_store(Instant::now());
        self.keeper.end_everything();
        for entry in self.pods.values().filter(|entry| !entry.gone) {
            drop(std::fs::remove_dir_all(&entry.scratch));
        }
        let folder = &self.writer.folder().path;
        drop(std::fs::remove_dir(folder.join("scratch")));
        drop(std::fs::remove_dir(folder.join("mnt")));
        drop(std::fs::remove_file(folder.join("hosts")));
        drop(std::fs::remove_dir_all(folder.join("bin")));
        drop(std::fs::remove_file(folder.join(remote::SOCKET)));
    }

    pub(super) fn watch_raw(&mut self, descriptor: RawFd, watch: Watch) -> Result<(), HostError> {
        #[expect(
            unsafe_code,
            reason = "the table that owns the descriptor is borrowed by the same call"
        )]
        // SAFETY: the caller has just read the number from a descriptor in the table, and nothing
        // closes it before this returns.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        self.watch(descriptor, watch)
    }
}

/// How long a pod init that was asked to end a pod may take beyond the grace period.
pub(super) const LATE: Duration = Duration::from_secs(2);
