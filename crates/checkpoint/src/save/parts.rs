//! A save in two calls, for programs whose ranks meet by themselves: every rank writes its part, and then one of them commits.
//!
//! Files and their order are those of [`Session::save`]. A rank that only writes does not wait for the others.

use std::time::Duration;

use super::{Limits, Progress, SaveError, Saved, Session, State};

impl Session {
    /// Writes the part of this rank; returns its bytes when they are durable. The step is not there before its commit.
    pub fn write_part(&self, step: u64, state: &State) -> Result<u64, SaveError> {
        let deadline = self.clock.now().saturating_add(self.limits.deadline);
        let folder = self.folder(step);
        let bytes = state.bytes();
        let mut progress = Progress::default();
        self.with_room(step, bytes, || {
            self.write_piece(&folder, state, deadline, &mut progress)
        })?;
        Ok(bytes)
    }

    /// Commits a step whose parts are written, whichever rank this is, and removes what need not be kept.
    pub fn commit_parts(&self, step: u64) -> Result<Saved, SaveError> {
        let session = Self {
            limits: Limits {
                takeover: Duration::ZERO,
                ..self.limits
            },
            ..self.clone()
        };
        let start = self.clock.now();
        let deadline = start.saturating_add(self.limits.deadline);
        let folder = self.folder(step);
        let (commit, is_mine) = session.with_room(step, 0, || session.finish(&folder, deadline))?;
        let wait = self.clock.now().saturating_sub(start).as_secs_f64();
        let (removed, not_removed) = if is_mine {
            self.after_commit(&folder)
        } else {
            (Vec::new(), None)
        };
        Ok(Saved {
            commit,
            bytes: 0,
            write: 0.0,
            wait,
            removed,
            not_removed,
        })
    }
}
