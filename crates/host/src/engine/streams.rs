//! The output of pods, from their pipes to the log, the progress and the caller.

use std::time::Instant;

use nix::sys::epoll::{EpollEvent, EpollFlags};
use trainyard_core::{
    progress::{Reading, StepReporters, Track},
    spec::Slot,
};

use super::{
    Engine, PROGRESS_EVERY, Watch,
    listen::LogSource,
    output::{Buffer, Flow, Piece},
    start,
    table::Key,
};
use crate::{HostError, Ranks, request::RunEvent, store::LogWriter};

impl Engine<'_> {
    /// Closes a stream of a pod that is gone. A program elsewhere may have been given the other end,
    /// and is not waited for.
    pub(super) fn close_output(&mut self, key: Key, at: usize) {
        let entry = self.pods.get_mut(&key);
        if let Some(output) = entry.and_then(|entry| entry.outputs.get_mut(at)) {
            output.close();
            self.read_output(key, at);
        }
    }

    /// Reads once from a stream.
    pub(super) fn read_output(&mut self, key: Key, at: usize) -> Flow {
        // Lent for the time of the call, so that what was read need not be copied.
        let mut buffer = std::mem::take(&mut self.buffer);
        let flow = self.pass_output_on(key, at, &mut buffer);
        self.buffer = buffer;
        flow
    }

    fn pass_output_on(&mut self, key: Key, at: usize, buffer: &mut Buffer) -> Flow {
        let Some(entry) = self.pods.get_mut(&key) else {
            return Flow::Closed;
        };
        let Some(output) = entry.outputs.get_mut(at) else {
            return Flow::Closed;
        };
        let piece = output.read(buffer);
        let readings = output.take_readings();
        let (slot, attempt) = (entry.slot, entry.attempt);
        let (bytes, flow) = match piece {
            Piece::Nothing => {
                self.take_readings(slot, attempt, (key, at), &readings);
                return Flow::Open;
            }
            Piece::Empty => {
                self.take_readings(slot, attempt, (key, at), &readings);
                return Flow::Empty;
            }
            Piece::Bytes(bytes) => (bytes, Flow::Open),
            Piece::Closed(bytes) => (bytes, Flow::Closed),
        };
        let passed_on = if bytes.is_empty() {
            None
        } else {
            output.show.choose(bytes, Instant::now())
        };
        // The last event of a stream counts the lines that were left out before.
        let passed_on = match flow {
            Flow::Closed => Some(passed_on.unwrap_or((&[], output.show.rest()))),
            _ => passed_on,
        };
        let passed_on = passed_on.filter(|(shown, left_out)| !shown.is_empty() || *left_out > 0);
        let (container, name, stream) = (output.container, output.name.clone(), output.stream);
        if !bytes.is_empty()
            && !self.complained.logs
            && let Some(log) = entry.logs.get_mut(container)
        {
            let written = match log {
                Some(log) => log.write(bytes),
                None => LogWriter::create(&entry.log_folder, &name).and_then(|mut new| {
                    new.write(bytes)?;
                    *log = Some(new);
                    Ok(())
                }),
            };
            if let Err(error) = written {
                self.complained.logs = true;
                let note = format!(
                    "cannot write the log of pod `{}`: {error}; the job continues without logs",
                    entry.name
                );
                (self.sink)(RunEvent::Note(note));
            }
        }
        if entry.deleted_at.is_none() {
            let log = LogSource {
                key,
                attempt,
                pod: &entry.name,
                container,
                name: &name,
            };
            let job = self.job;
            let rank = || Ranks::of(job).only_of_pod(&job.replicas(), slot);
            self.listener.read(log, rank, bytes, Instant::now());
            if self.listener.has_transport_news() {
                self.decide_soon();
            }
        }
        self.take_readings(slot, attempt, (key, at), &readings);
        if let Some((shown, left_out)) = passed_on {
            (self.sink)(RunEvent::Output {
                slot,
                attempt,
                container: name,
                stream,
                bytes: shown.to_vec(),
                left_out,
            });
        }
        flow
    }

    /// Reads a stream, and lets it rest where that is better for its writer.
    pub(super) fn read_stream(
        &mut self,
        key: Key,
        at: usize,
        number: u64,
    ) -> Result<(), HostError> {
        if self.read_output(key, at) == Flow::Closed {
            self.watches.remove(&number);
            return Ok(());
        }
        let Some(output) = self
            .pods
            .get_mut(&key)
            .and_then(|entry| entry.outputs.get_mut(at))
        else {
            return Ok(());
        };
        let (before, now) = (output.pace.is_resting(), Instant::now());
        let rest = output.pace.rest(now);
        if let Some(rest) = rest {
            self.resting.insert((now + rest, number));
        } else if let Some(until) = output.held_until() {
            // A flood that falls silent is read to its end.
            self.resting.insert((until.max(now), number));
        }
        if before != rest.is_some()
            && let Some(descriptor) = output.descriptor()
        {
            let flags = if rest.is_some() {
                EpollFlags::empty()
            } else {
                EpollFlags::EPOLLIN
            };
            self.epoll
                .modify(descriptor, &mut EpollEvent::new(flags, number))
                .map_err(HostError::system_errno("watch a descriptor"))?;
        }
        Ok(())
    }

    /// Looks at the streams that have rested.
    pub(super) fn read_rested_streams(&mut self, now: Instant) -> Result<(), HostError> {
        while self.resting.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, number)) = self.resting.pop_first() else {
                break;
            };
            if let Some(Watch::Output(key, at)) = self.watches.get(&number).copied() {
                self.read_stream(key, at, number)?;
            }
        }
        Ok(())
    }

    /// Takes what a stream reported. Records which stream reports for the attempt.
    fn take_readings(
        &mut self,
        slot: Slot,
        attempt: u32,
        stream: (Key, usize),
        readings: &[Reading],
    ) {
        if readings.is_empty() || attempt < self.tracked {
            return;
        }
        if attempt > self.tracked {
            self.tracked = attempt;
            self.track = Track::default();
            self.reporters = StepReporters::default();
        }
        let now = start::now();
        let (before, complained) = (self.track.step, self.track.nan_since);
        for reading in readings {
            let accepted = self.reporters.take(stream, reading);
            // Several ranks report the same steps, and not at once. Those behind report nothing new.
            if accepted.is_none() && reading.step.is_some() && reading.step != self.track.step {
                continue;
            }
            self.track.take(reading, now);
            self.first_step = self.first_step.or(self.track.step);
            self.last_loss = reading.loss.or(self.last_loss);
        }
        let Some(step) = self.track.step else {
            return;
        };
        let turned = self.track.nan_since != complained;
        if self.track.step == before && !turned {
            return;
        }
        self.unsaved.progress = true;
        self.last_step = Some(self.last_step.map_or(step, |last| last.max(step)));
        (self.sink)(RunEvent::Progress {
            slot,
            attempt,
            step,
            loss: self.track.loss.map(|(_, loss)| loss),
        });
        self.decide_soon();
    }

    /// Asks for a decision about what was just read. A script may report a thousand times in a second, and the
    /// ledger needs only seconds.
    fn decide_soon(&mut self) {
        let next = self.decided + PROGRESS_EVERY;
        self.decide_at = Some(self.decide_at.map_or(next, |at| at.min(next)));
    }
}
