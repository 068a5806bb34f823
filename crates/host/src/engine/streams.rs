//! The output of pods, from their pipes to the log, the progress and the caller.

use std::time::Instant;

use jiff::Timestamp;
use trainyard_core::{progress::Reading, spec::Slot};

use super::{
    Engine,
    listen::LogSource,
    output::{Buffer, Flow, Piece},
    steps::StreamId,
    table::Key,
};
use crate::{HostError, Ranks, request::RunEvent, store::LogWriter};

impl Engine<'_> {
    /// Closes a stream of a pod that is gone. A program elsewhere may have been given the other end,
    /// and is not waited for.
    pub(super) fn close_output(&mut self, key: Key, at: usize) {
        let entry = self.pods.get_mut(key);
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
        let Some(entry) = self.pods.get_mut(key) else {
            return Flow::Closed;
        };
        let Some(output) = entry.outputs.get_mut(at) else {
            return Flow::Closed;
        };
        let piece = output.read(buffer);
        let readings = output.take_readings();
        let (slot, attempt) = (entry.slot, entry.attempt);
        let is_output = match &piece {
            Piece::Nothing => true,
            Piece::Empty => false,
            Piece::Bytes(bytes) | Piece::Closed(bytes) => !bytes.is_empty(),
        };
        self.hangs.take_output(slot, attempt, is_output, &readings);
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
            && let Some(log) = entry.logs.get_mut(container)
        {
            self.outlet.log(&entry.name, || {
                if let Some(log) = log {
                    return log.write(bytes);
                }
                let mut new = LogWriter::create(&entry.log_folder, &name)?;
                new.write(bytes)?;
                *log = Some(new);
                Ok(())
            });
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
                self.schedule.request_soon();
            }
        }
        self.take_readings(slot, attempt, (key, at), &readings);
        if let Some((shown, left_out)) = passed_on {
            self.outlet.emit(RunEvent::Output {
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
            self.watches.forget(number);
            return Ok(());
        }
        let entry = self.pods.get_mut(key);
        let Some(output) = entry.and_then(|entry| entry.outputs.get_mut(at)) else {
            return Ok(());
        };
        let (before, now) = (output.pace.is_resting(), Instant::now());
        let rest = output.pace.rest(now);
        if let Some(rest) = rest {
            self.watches.read_at(now + rest, number);
        } else if let Some(until) = output.held_until() {
            // A flood that falls silent is read to its end.
            self.watches.read_at(until.max(now), number);
        }
        if before != rest.is_some()
            && let Some(descriptor) = output.descriptor()
        {
            self.watches
                .set_reported(descriptor, number, rest.is_none())?;
        }
        Ok(())
    }

    /// Looks at the streams that have rested.
    pub(super) fn read_rested_streams(&mut self, now: Instant) -> Result<(), HostError> {
        while let Some((key, at, number)) = self.watches.next_rested(now) {
            self.read_stream(key, at, number)?;
        }
        Ok(())
    }

    /// Takes what a stream reported.
    pub(super) fn take_readings(
        &mut self,
        slot: Slot,
        attempt: u32,
        stream: StreamId,
        readings: &[Reading],
    ) {
        let news = self.steps.take(attempt, stream, readings, Timestamp::now());
        if let Some((step, loss)) = news {
            self.outlet.emit(RunEvent::Progress {
                slot,
                attempt,
                step,
                loss,
            });
            self.schedule.request_soon();
        }
    }

    /// Reads what a pod wrote before now: at most what its pipes hold.
    pub(super) fn read_pipes(&mut self, key: Key) {
        for at in 0..self.pods.streams(key) {
            self.read_output(key, at);
        }
    }

    /// Reads what the pod of the last failure wrote before now.
    pub(super) fn read_failed_pod_output(&mut self) {
        if let Some(key) = self.failures.writes_on() {
            self.read_pipes(key);
        }
    }
}
