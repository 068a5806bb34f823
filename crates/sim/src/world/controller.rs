//! The controller: observe, decide, write the status on top of the one observed, act.
//!
//! It may be killed between any two of these; the next one starts with a fresh list. Two may live
//! at once for a while. Besides what its watches bring, nothing wakes it but the time that
//! `decide` asked for: a timer that `decide` forgets is never made up for.

use std::rc::Rc;

use jiff::Timestamp;
use trainyard_core::{
    job::{self, Action, Decision, JobStatus, PROGRESS_EVERY, Refusal, Seating},
    ledger::Phase,
    reason::{Code, InVain, Reason},
};

use super::{
    EPOCH, Happening, World,
    invariants::{self, Pass},
    view::{Channel, News},
};
use crate::{
    coverage::Mark,
    trace::{Actions, Brief},
};

/// What happens to one action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// It never arrives, and the controller gets no error.
    Lost,
    /// It arrives this much later; the controller gets no error.
    Delayed(i64),
    /// It arrives now and again this much later.
    Twice(i64),
    /// The other side refuses it.
    Refused,
}

/// Between a watch event and the pass it causes.
pub(super) const QUEUE_DELAY: i64 = 4;
/// Between two calls of a pass.
const CALL: i64 = 3;
/// A controller whose call was refused decides again after this.
const RETRY: i64 = 1_000;

impl World {
    /// The controller of the moment: the one started last.
    fn leader(&self) -> Option<usize> {
        self.controllers
            .adapters
            .iter()
            .rposition(|adapter| adapter.alive)
    }

    /// Whether two controllers are alive.
    pub(crate) fn contested(&self) -> bool {
        self.controllers
            .adapters
            .iter()
            .filter(|adapter| adapter.alive)
            .count()
            > 1
    }

    pub(crate) fn plan_crash(&mut self, after_steps: u8, down: i64) {
        if let Some(leader) = self.leader() {
            self.controllers.adapters[leader].crash = Some((after_steps, down));
        }
    }

    /// Another controller takes over; the old one does not know for a while.
    pub(crate) fn fail_over(&mut self, overlap: i64) {
        let Some(old) = self.leader() else { return };
        if self.contested() {
            return;
        }
        self.coverage.mark(Mark::Failover);
        self.start_adapter();
        self.schedule(overlap, Happening::Retire(old));
    }

    /// A controller is killed; unless another has taken over, one starts after a while.
    fn kill(&mut self, number: usize, down: i64) {
        self.trace
            .note(self.now, format_args!("ctrl {number}  is killed"));
        self.retire(number);
        if number + 1 == self.controllers.adapters.len() {
            self.schedule(down, Happening::StartAdapter);
        }
    }

    pub(crate) fn retire(&mut self, number: usize) {
        let adapter = &mut self.controllers.adapters[number];
        adapter.alive = false;
        adapter.pending.clear();
        adapter.inbox = Default::default();
    }

    /// A watch delivers its last event again: nothing changes, but the controller runs a pass.
    pub(crate) fn repeat(&mut self) {
        if let Some(leader) = self.leader() {
            self.coverage.mark(Mark::Repeated);
            self.want_pass(leader, QUEUE_DELAY);
        }
    }

    pub(super) fn want_pass(&mut self, number: usize, delay: i64) {
        let adapter = &mut self.controllers.adapters[number];
        if !adapter.pending.is_empty() {
            adapter.wanted = true;
        } else if !adapter.pass_due {
            adapter.pass_due = true;
            self.schedule(delay, Happening::Pass(number));
        }
    }

    /// The controller wakes because a pass asked for it.
    pub(crate) fn wake(&mut self, number: usize, wake: u64) {
        if self.controllers.adapters[number].alive && self.controllers.adapters[number].wake == wake
        {
            self.want_pass(number, 0);
        }
    }

    /// One pass up to its actions.
    pub(crate) fn pass(&mut self, number: usize) {
        let adapter = &mut self.controllers.adapters[number];
        adapter.pass_due = false;
        if !adapter.alive || !adapter.job_exists {
            return;
        }
        if !adapter.pending.is_empty() {
            adapter.wanted = true;
            return;
        }
        self.controllers.passes += 1;
        self.read_transports(number);
        self.consult(number);
        self.admit(number);
        let now = self.timestamp();
        if let Some(progress) = &mut self.controllers.adapters[number].view.progress {
            // The output is read as it comes.
            progress.read_at = now;
        }
        let adapter = &self.controllers.adapters[number];
        let decision = (self.decide)(&adapter.job, &adapter.view, now);
        self.check_pass(number, &decision, now);
        self.note_pass(number, &decision);
        let adapter = &self.controllers.adapters[number];
        let replaced: Vec<String> = invariants::replaced(&Pass {
            job: &adapter.job,
            observed: &adapter.view,
            decision: &decision,
            now,
        })
        .map(ToOwned::to_owned)
        .collect();
        self.controllers.adapters[number].view.refusals.clear();
        let put_off = self.put_off(number, &decision);
        let asked = put_off.into_iter().chain(decision.wake_at).min();
        self.set_wake(number, asked);
        if self.crashes(number, 0) {
            self.coverage.mark(Mark::CrashBeforeWrite);
            return;
        }
        let Decision {
            actions,
            status,
            events,
            ..
        } = decision;
        if put_off.is_some() {
            self.coverage.mark(Mark::WritePutOff);
        } else if status != self.controllers.adapters[number].view.status
            && !self.write_status(number, status)
        {
            return;
        }
        for event in &events {
            self.trace.note(
                self.now,
                format_args!("ctrl {number}  event {}: {}", event.reason, event.message),
            );
        }
        if self.crashes(number, 1) {
            self.coverage.mark(Mark::CrashAfterWrite);
            return;
        }
        if !replaced.is_empty() {
            self.controllers.replaced.extend(replaced);
            let verdict = invariants::check_actions(self);
            self.judge(verdict);
        }
        if !actions.is_empty() {
            self.controllers.adapters[number].pending = actions.into();
            self.schedule(CALL, Happening::Act(number));
        }
    }

    /// Until when a status with only new progress is not written, soon after the one before.
    fn put_off(&self, number: usize, decision: &Decision) -> Option<Timestamp> {
        let adapter = &self.controllers.adapters[number];
        let every = i64::try_from(PROGRESS_EVERY.as_millis()).unwrap_or(i64::MAX);
        let next = adapter.wrote_at?.saturating_add(every);
        let waits = next > self.now
            && decision.status != adapter.view.status
            && job::may_wait(&adapter.view.status, decision);
        let next = Timestamp::from_millisecond(EPOCH + next).ok();
        next.filter(|_| waits)
    }

    /// Whether the controller is killed after this many steps of its pass.
    fn crashes(&mut self, number: usize, steps: u8) -> bool {
        match self.controllers.adapters[number].crash {
            Some((after, down)) if after == steps => {
                self.kill(number, down);
                true
            }
            _ => false,
        }
    }

    fn check_pass(&mut self, number: usize, decision: &Decision, now: Timestamp) {
        if decision
            .reasons
            .iter()
            .any(|reason| reason.code() == Code::StaleView)
        {
            self.coverage.mark(Mark::StaleViewRefused);
        }
        let view = &self.controllers.adapters[number].view;
        if matches!(view.seating, Seating::Evicted(_)) {
            self.cluster.evicted.insert(view.status.trainyard.attempt);
        }
        let adapter = &self.controllers.adapters[number];
        let pass = Pass {
            job: &adapter.job,
            observed: &adapter.view,
            decision,
            now,
        };
        let first = invariants::check_pass(&pass, self);
        // A second look costs as much as the first; every fourth pass is enough to catch a
        // decision that is not settled.
        let second = if self.controllers.passes.is_multiple_of(4) {
            invariants::check_second_look(&pass, self.decide)
        } else {
            Ok(())
        };
        self.judge(first);
        self.judge(second);
        if number + 1 == self.controllers.adapters.len() {
            self.controllers.last_reasons.clone_from(&decision.reasons);
        }
    }

    fn note_pass(&mut self, number: usize, decision: &Decision) {
        self.trace.digest(format_args!("{decision:?}"));
        match decision.status.trainyard.ledger.open.map(|open| open.phase) {
            Some(Phase::Training) => self.coverage.mark(Mark::Trains),
            Some(Phase::Redoing) => self.coverage.mark(Mark::Redoes),
            Some(Phase::Stalled) => self.coverage.mark(Mark::Stalls),
            _ => {}
        }
        let in_vain = |reason: &Reason| reason.code() == Code::RetryDoesNotHelp;
        if decision.reasons.iter().any(in_vain) {
            self.coverage.mark(Mark::EndInVain);
        }
        let stuck = |reason: &Reason| {
            matches!(
                reason,
                Reason::RetryDoesNotHelp {
                    shown_by: InVain::NoProgress { .. },
                    ..
                }
            )
        };
        if decision.reasons.iter().any(stuck) {
            self.coverage.mark(Mark::EndWithoutProgress);
        }
        let adapter = &self.controllers.adapters[number];
        let changed = decision.status != adapter.view.status;
        self.trace.note(
            self.now,
            format_args!(
                "ctrl {number}  pass on view {} and status {}{}: {}{}",
                adapter.view.version,
                adapter.status_version,
                if changed { ", status changes" } else { "" },
                decision
                    .reasons
                    .first()
                    .map_or_else(String::new, Reason::to_string),
                Actions(&decision.actions),
            ),
        );
    }

    fn set_wake(&mut self, number: usize, wake_at: Option<Timestamp>) {
        self.controllers.adapters[number].wake += 1;
        if let Some(wake_at) = wake_at {
            let wake = self.controllers.adapters[number].wake;
            // A wake-up never comes early: the millisecond after a fraction.
            let millisecond = wake_at.as_nanosecond().div_euclid(1_000_000)
                + i128::from(wake_at.as_nanosecond().rem_euclid(1_000_000) != 0);
            let at = i64::try_from(millisecond).unwrap_or(i64::MAX) - EPOCH;
            self.schedule((at - self.now).max(0), Happening::Wake(number, wake));
        }
    }

    /// Writes on top of the job observed; whether the pass continues. The object has one
    /// version for its spec and its status, so a write on top of either of before is refused.
    fn write_status(&mut self, number: usize, status: JobStatus) -> bool {
        let adapter = &self.controllers.adapters[number];
        let seen = (adapter.status_version, adapter.spec_version);
        if seen != (self.stored.status_version, self.stored.spec_version) || !self.stored.exists {
            self.coverage.mark(Mark::Conflict);
            self.trace
                .note(self.now, format_args!("ctrl {number}  write conflict"));
            return false;
        }
        let verdict = invariants::check_write(
            &self.controllers.adapters[number].job,
            &self.stored.status,
            &status,
            self,
        );
        self.judge(verdict);
        self.trace.note(
            self.now,
            format_args!("ctrl {number}  writes {}", Brief(&status)),
        );
        self.controllers.adapters[number].wrote_at = Some(self.now);
        let status = Rc::new(status);
        self.stored.status = Rc::clone(&status);
        self.stored.status_version += 1;
        let version = self.stored.status_version;
        if self.temper.reads_its_writes {
            let adapter = &mut self.controllers.adapters[number];
            adapter.view.status = JobStatus::clone(&status);
            adapter.status_version = version;
        }
        self.publish(Channel::Status, &News::Status(version, status));
        if std::mem::take(&mut self.controllers.write_times_out) {
            self.coverage.mark(Mark::WriteTimeout);
            self.want_pass(number, RETRY);
            return false;
        }
        true
    }

    /// One action of the pass is carried out, or meets its mishap.
    pub(crate) fn act(&mut self, number: usize) {
        if !self.controllers.adapters[number].alive {
            return;
        }
        let Some(action) = self.controllers.adapters[number].pending.pop_front() else {
            return;
        };
        // These stay within the controller itself.
        let own = match &action {
            Action::AskSeats => {
                self.ask_seats(number);
                true
            }
            Action::ReleaseSeats { avoid, .. } => {
                self.release_seats(number, avoid);
                true
            }
            Action::StartPreflight { round, seats } => {
                self.start_preflight(number, *round, seats);
                true
            }
            Action::EndPreflight { round } => {
                self.end_preflight(number, *round);
                true
            }
            _ => false,
        };
        let mishap = if own {
            None
        } else {
            self.controllers.mishaps.pop_front()
        };
        self.trace.note(
            self.now,
            format_args!(
                "ctrl {number}  {action:?}{}",
                mishap.map_or(String::new(), |mishap| format!(" meets {mishap:?}"))
            ),
        );
        match mishap {
            None => self.apply(&action),
            Some(Mishap::Lost) => self.coverage.mark(Mark::ActionLost),
            Some(Mishap::Delayed(delay)) => {
                self.coverage.mark(Mark::ActionDelayed);
                self.schedule(delay, Happening::Late(Box::new(action)));
            }
            Some(Mishap::Twice(delay)) => {
                self.coverage.mark(Mark::ActionTwice);
                self.apply(&action);
                self.schedule(delay, Happening::Late(Box::new(action)));
            }
            Some(Mishap::Refused) => {
                self.coverage.mark(Mark::ActionRefused);
                self.controllers.adapters[number]
                    .view
                    .refusals
                    .push(Refusal::new(format!("{action:?}"), "exceeded quota"));
                self.schedule(RETRY, Happening::Retry(number));
            }
        }
        if let Some((after, down)) = &mut self.controllers.adapters[number].crash {
            *after = after.saturating_sub(1);
            if *after <= 1 {
                let down = *down;
                self.coverage.mark(Mark::CrashBetweenActions);
                self.kill(number, down);
                return;
            }
        }
        let adapter = &mut self.controllers.adapters[number];
        if !adapter.pending.is_empty() {
            self.schedule(CALL, Happening::Act(number));
        } else if std::mem::take(&mut adapter.wanted) {
            self.want_pass(number, QUEUE_DELAY);
        }
    }

    /// A controller whose call failed decides again.
    pub(crate) fn retry(&mut self, number: usize) {
        if self.controllers.adapters[number].alive {
            self.want_pass(number, 0);
        }
    }
}
