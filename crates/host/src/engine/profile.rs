//! Another terminal asks for traces of ranks.

use super::Engine;
use crate::{
    kineto::Order,
    profile::{MissingTrace, Recording},
    remote::Answer,
};

impl Engine<'_> {
    /// Has ranks record traces; the thread that Kineto's clients ask answers the client `id` once that is done.
    pub(super) fn record_traces(&mut self, id: u64, recording: Recording) {
        if let Err(message) = self.begin_recording(id, recording) {
            self.remote.answer(id, &Answer::Refused { message });
        }
    }

    fn begin_recording(&self, id: u64, recording: Recording) -> Result<(), String> {
        let daemon = self.kineto.as_ref();
        let daemon = daemon.ok_or("this run cannot record traces; its first lines say why")?;
        let to_read = self.stacks_to_read(recording.ranks.clone(), false)?;
        let is_wanted = |rank: u32| recording.ranks.is_empty() || recording.ranks.contains(&rank);
        let missing = to_read.missing.into_iter();
        let missing = missing
            .filter(|it| is_wanted(it.rank))
            .map(|it| MissingTrace {
                rank: it.rank,
                reason: it.reason,
            });
        let missing = missing.collect();
        let Some(socket) = self.remote.socket_of(id) else {
            return Ok(());
        };
        let socket = socket
            .try_clone()
            .map_err(|error| format!("cannot record traces: {error}"))?;
        daemon.order(Order {
            recording,
            attempt: to_read.attempt,
            pods: to_read.pods,
            known: Vec::new(),
            missing,
            socket,
        })
    }
}
