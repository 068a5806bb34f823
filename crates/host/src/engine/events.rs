//! What happens while the engine waits, and what it makes of it.

use std::{io, time::Instant};

use jiff::Timestamp;
use nix::sys::signal::Signal;
use trainyard_core::job::{Exit, PodPhase};

use super::{
    Engine,
    failures::End,
    output::Flow,
    table::{Entry, Key},
    watches::Watch,
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
                    self.watches.forget(number);
                }
                Ok(())
            }
            Watch::Keeper => {
                if self.read_keeper()? {
                    self.watches.forget(number);
                }
                Ok(())
            }
            Watch::Output(key, at) => self.read_stream(key, at, number),
            Watch::Listener => self.accept(),
            Watch::Looker => {
                self.take_evidence();
                Ok(())
            }
            Watch::Beats => self.beats_written(number),
            Watch::Checkpoints => {
                self.look_at_checkpoints(Instant::now());
                Ok(())
            }
            Watch::Client(client) => {
                self.serve(client, number);
                Ok(())
            }
        }
    }

    pub(super) fn asked_to_stop(&mut self, times: usize) {
        if self.wanted.stop(times) {
            self.schedule.request();
        }
        if self.wanted.is_stopped_at_once() {
            for key in self.pods.entries.keys() {
                self.pods.keeper.end(*key);
            }
        }
    }

    /// Reads which pods are gone; true when the keeper itself is, and with it every pod.
    fn read_keeper(&mut self) -> Result<bool, HostError> {
        loop {
            match self.pods.keeper.next_gone() {
                Ok(Some(key)) => self.finish_gone_pod(key)?,
                Ok(None) => break,
                // No message is left.
                Err(_) => return Ok(false),
            }
        }
        for key in self.pods.live() {
            self.finish_gone_pod(key)?;
        }
        Ok(true)
    }

    /// A pod is gone. Its last reports may not have been read yet.
    fn finish_gone_pod(&mut self, key: Key) -> Result<(), HostError> {
        let over = self.read_reports(key)?;
        let ended = self.pods.get(key).is_none_or(Entry::has_ended);
        if !over && !ended {
            self.killed_from_outside(key);
        }
        self.pod_gone(key);
        Ok(())
    }

    /// Reads all reports of a pod init; true when no more will come.
    fn read_reports(&mut self, key: Key) -> Result<bool, HostError> {
        loop {
            let Some(entry) = self.pods.get_mut(key) else {
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
        let container = self.pods.training_container(key, self.job.kind);
        let Some(entry) = self.pods.get_mut(key) else {
            return;
        };
        self.schedule.request();
        entry.phase = PodPhase::Failed;
        entry.ends += u32::from(entry.exit.is_none());
        entry.exit.get_or_insert(Exit {
            code,
            out_of_memory: false,
            at: Some(Timestamp::now()),
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
        let Some(entry) = self.pods.get_mut(key) else {
            return Ok(());
        };
        let pod = entry.name.clone();
        match report {
            Report::Started { pid } => {
                let (slot, attempt) = (entry.slot, entry.attempt);
                entry.pid = Some(pid);
                self.pods.unsaved = true;
                self.outlet
                    .emit(RunEvent::PodStarted { slot, attempt, pid });
            }
            Report::Running => {
                entry.phase = PodPhase::Running;
                let (slot, attempt) = (entry.slot, entry.attempt);
                self.pods.unsaved = true;
                self.schedule.request();
                self.outlet.emit(RunEvent::PodRunning { slot, attempt });
                self.watch_attempt(attempt);
                self.remote.run_waiting(&self.pods);
            }
            Report::Restarted {
                container,
                restarts,
                code,
                signaled,
            } => {
                self.schedule.request();
                entry.restarts.insert(container.clone(), restarts);
                let out_of_memory = self.ended_for_memory(key, &container, code);
                let is_training = container == self.pods.training_container(key, self.job.kind);
                if is_training && let Some(entry) = self.pods.get_mut(key) {
                    entry.ends += 1;
                    entry.last_end = Some(Exit {
                        code,
                        out_of_memory,
                        at: Some(Timestamp::now()),
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
                self.pods.to_start_again.push((key, container));
            }
            Report::Exited {
                container,
                code,
                signaled,
            } => self.container_exited(key, &container, code, signaled),
            Report::Ended { succeeded } => {
                self.schedule.request();
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
            Report::ExecEnded { id, code } => self.remote.command_ended(id, code),
            Report::Isolated => {}
        }
        Ok(())
    }

    fn container_exited(&mut self, key: Key, container: &str, code: i32, signaled: bool) {
        let out_of_memory = self.ended_for_memory(key, container, code);
        let training = self.job.kind.container();
        let Some(entry) = self.pods.get_mut(key) else {
            return;
        };
        self.schedule.request();
        let names = entry.outputs.iter().map(|output| &*output.name);
        let is_training = container == training || !names.into_iter().any(|name| name == training);
        // An init container that fails is the program's failure as well: nothing else will end.
        if is_training || entry.phase == PodPhase::Pending && code != 0 {
            entry.ends += 1;
            entry.exit = Some(Exit {
                code,
                out_of_memory,
                at: Some(Timestamp::now()),
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

    /// Whether memory was why a container ended with `code`.
    fn ended_for_memory(&mut self, key: Key, container: &str, code: i32) -> bool {
        let cgroups = &mut self.site.cgroups;
        let entry = self.pods.get(key);
        entry.is_some_and(|entry| cgroups.ended_for_memory(entry, container, code))
    }

    /// Keeps the first failure of each attempt.
    fn note_failure(&mut self, key: Key, end: End<'_>) {
        let Some(entry) = self.pods.get(key) else {
            return;
        };
        if self.failures.add(self.job, key, entry, end) && end.starts_again {
            // The next lines of its log belong to the container that starts in its place.
            self.read_pipes(key);
            self.failures.output_ended(key, self.outlet.writer.folder());
        }
    }

    /// No process of the pod is left.
    fn pod_gone(&mut self, key: Key) {
        for at in 0..self.pods.streams(key) {
            // No process of the pod can write any more, so this ends.
            while self.read_output(key, at) == Flow::Open {}
            self.close_output(key, at);
        }
        self.end_beats_of(key);
        self.failures.output_ended(key, self.outlet.writer.folder());
        let Some(entry) = self.pods.get_mut(key) else {
            return;
        };
        entry.gone = true;
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
            self.pods.entries.remove(&key);
        }
        self.pods.unsaved = true;
        self.remote.drop_commands_of(key);
        self.schedule.request();
        self.outlet.emit(event);
        self.report_notice_once_known();
    }

    /// What is due by the clock.
    pub(super) fn act_on_time(&mut self) -> Result<(), HostError> {
        let now = Instant::now();
        self.read_rested_streams(now)?;
        self.end_rest_of_beats(now)?;
        self.pods.kill_late(now);
        self.inject(now);
        self.look_for_hangs(now);
        self.end_gpu_wait(now);
        self.look_at_checkpoints(now);
        Ok(())
    }

    /// Ends every pod at once and waits until the kernel has.
    pub(super) fn end_everything(&mut self) {
        self.write_store(Instant::now());
        self.write_facts(Instant::now(), true);
        self.pods.keeper.end_everything();
        for entry in self.pods.entries.values().filter(|entry| !entry.gone) {
            drop(std::fs::remove_dir_all(&entry.scratch));
        }
        let folder = &self.outlet.writer.folder().path;
        drop(std::fs::remove_dir(folder.join("scratch")));
        drop(std::fs::remove_dir(folder.join("mnt")));
        drop(std::fs::remove_file(folder.join("hosts")));
        drop(std::fs::remove_dir_all(folder.join("bin")));
        drop(std::fs::remove_dir_all(folder.join("beats")));
        // Traces stay; without any, the folder is empty.
        drop(std::fs::remove_dir(folder.join("profiles")));
        drop(std::fs::remove_dir_all(folder.join("flight")));
        drop(std::fs::remove_file(folder.join(remote::SOCKET)));
    }
}
