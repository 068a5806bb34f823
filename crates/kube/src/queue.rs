//! The work queue: which job gets a pass next, and when.
//!
//! Owns times and turns, nothing of what a pass does. A job that is enqueued many times gets
//! one pass; a job that is enqueued during its pass gets another one afterwards.
//!
//! Invariants: a job never has two passes at once; between two passes over one job lies at least
//! [`PAUSE`], so that the eight pods of a job that come up together cost one pass and not eight, or
//! [`QUICK_PAUSE`] while all of a gang waits for the next; no job waits for another that fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{backoff::Backoff, key::JobKey};

/// The minimum time between two passes over one job.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);
/// The same while a gang restarts in place: every pass is a step that all its pods wait for.
pub(crate) const QUICK_PAUSE: Duration = Duration::from_millis(20);
/// The backoff after the first failed pass over a job, and after many.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_mins(5));

/// Jobs that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// By time, then by name.
    due: BTreeSet<(Instant, JobKey)>,
    jobs: BTreeMap<JobKey, Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    due: Option<Instant>,
    /// Whether its pass is running.
    busy: bool,
    /// When its last pass began.
    began: Option<Instant>,
    /// No pass before this.
    not_before: Option<Instant>,
    failures: Option<Backoff>,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Well; requeued for then, if nothing happens before.
    Done(Option<Instant>),
    /// The same, and what comes in gets its pass sooner.
    DoneQuickly(Option<Instant>),
    /// It failed and is requeued with backoff.
    Failed,
    /// The job is gone.
    Gone,
}

impl Queue {
    /// Enqueues `key`.
    pub(crate) fn enqueue(&self, key: JobKey) {
        self.with(|state| state.ask(key, Instant::now()));
        self.changed.notify_one();
    }

    /// Enqueues each of `keys`.
    pub(crate) fn enqueue_all(&self, keys: impl IntoIterator<Item = JobKey>) {
        let now = Instant::now();
        self.with(|state| {
            for key in keys {
                state.ask(key, now);
            }
        });
        self.changed.notify_one();
    }

    /// The next job whose time has come. It is busy until [`Queue::done`].
    pub(crate) async fn next(&self) -> JobKey {
        loop {
            let next = self.with(|state| state.take(Instant::now()));
            match next {
                Ok(key) => return key,
                Err(Some(at)) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        () = self.changed.notified() => {}
                    }
                }
                Err(None) => self.changed.notified().await,
            }
        }
    }

    /// Ends the pass over `key`.
    pub(crate) fn done(&self, key: &JobKey, outcome: Outcome) {
        self.with(|state| state.done(key, outcome, Instant::now()));
        self.changed.notify_one();
    }

    /// Jobs that are due and not being processed yet.
    pub(crate) fn waiting(&self) -> usize {
        let now = Instant::now();
        self.with(|state| state.due.iter().take_while(|(at, _)| *at <= now).count())
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self
            .state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut state)
    }
}

impl State {
    fn ask(&mut self, key: JobKey, at: Instant) {
        let turn = self.jobs.entry(key.clone()).or_default();
        let at = turn.not_before.map_or(at, |bound| at.max(bound));
        if turn.due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(due) = turn.due.replace(at) {
            self.due.remove(&(due, key.clone()));
        }
        if !turn.busy {
            self.due.insert((at, key));
        }
    }

    fn take(&mut self, now: Instant) -> Result<JobKey, Option<Instant>> {
        let Some((at, _)) = self.due.first() else {
            return Err(None);
        };
        if *at > now {
            return Err(Some(*at));
        }
        let Some((_, key)) = self.due.pop_first() else {
            return Err(None);
        };
        let turn = self.jobs.entry(key.clone()).or_default();
        turn.due = None;
        turn.busy = true;
        turn.began = Some(now);
        turn.not_before = Some(now + PAUSE);
        Ok(key)
    }

    fn done(&mut self, key: &JobKey, outcome: Outcome, now: Instant) {
        let Some(turn) = self.jobs.get_mut(key) else {
            return;
        };
        turn.busy = false;
        let asked = turn.due.take();
        let next = match outcome {
            Outcome::Done(wake) => {
                turn.failures = None;
                asked.into_iter().chain(wake).min()
            }
            Outcome::DoneQuickly(wake) => {
                turn.failures = None;
                let soon = turn.began.map_or(now, |began| began + QUICK_PAUSE);
                turn.not_before = Some(soon);
                // What came in during the pass was put off for longer.
                asked.map(|_| now).into_iter().chain(wake).min()
            }
            Outcome::Failed => {
                let (first, most) = RETRY;
                let backoff = turn
                    .failures
                    .get_or_insert_with(|| Backoff::new(first, most));
                let at = now + backoff.next();
                // What failed is not tried sooner because something else has happened.
                turn.not_before = Some(at);
                Some(at)
            }
            Outcome::Gone if asked.is_some() => asked,
            Outcome::Gone => {
                self.jobs.remove(key);
                return;
            }
        };
        if let Some(at) = next {
            let at = turn.not_before.map_or(at, |bound| at.max(bound));
            turn.due = Some(at);
            self.due.insert((at, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::spec::Kind;

    use super::*;

    fn key(name: &str) -> JobKey {
        JobKey {
            kind: Kind::PyTorch,
            namespace: "n".into(),
            name: name.into(),
        }
    }

    #[test]
    fn repeated_requests_run_one_pass() {
        let mut state = State::default();
        let start = Instant::now();
        for _ in 0..5 {
            state.ask(key("a"), start);
        }
        state.ask(key("b"), start);
        assert_eq!(state.take(start), Ok(key("a")));
        assert_eq!(state.take(start), Ok(key("b")));
        assert_eq!(state.take(start), Err(None));
        state.ask(key("a"), start);
        assert_eq!(state.take(start), Err(None), "it is being looked at");
        state.done(&key("a"), Outcome::Done(None), start);
        assert_eq!(state.take(start), Err(Some(start + PAUSE)), "after a pause");
        assert_eq!(state.take(start + PAUSE), Ok(key("a")));
        state.done(&key("a"), Outcome::Gone, start);
        state.done(&key("b"), Outcome::Gone, start);
        assert!(state.jobs.is_empty() && state.due.is_empty());
    }

    #[test]
    fn a_restart_in_place_gets_quick_passes() {
        let mut state = State::default();
        let start = Instant::now();
        let late = start + PAUSE * 9;
        state.ask(key("a"), start);
        assert_eq!(state.take(start), Ok(key("a")));
        state.ask(key("a"), start);
        state.done(&key("a"), Outcome::DoneQuickly(Some(late)), start);
        let soon = start + QUICK_PAUSE;
        assert_eq!(state.take(start), Err(Some(soon)));
        assert_eq!(state.take(soon), Ok(key("a")));
        // Nothing came in during this one.
        state.done(&key("a"), Outcome::DoneQuickly(Some(late)), soon);
        assert_eq!(state.take(soon), Err(Some(late)));
        state.ask(key("a"), soon);
        assert_eq!(state.take(soon), Err(Some(soon + QUICK_PAUSE)));
    }

    #[test]
    fn the_sooner_of_news_and_wake_up_counts() {
        let mut state = State::default();
        let start = Instant::now();
        let (soon, late) = (start + PAUSE * 2, start + PAUSE * 9);
        state.ask(key("a"), start);
        assert_eq!(state.take(start), Ok(key("a")));
        state.done(&key("a"), Outcome::Done(Some(late)), start);
        assert_eq!(state.take(start), Err(Some(late)));
        state.ask(key("a"), soon);
        assert_eq!(state.take(start), Err(Some(soon)));
        state.ask(key("a"), late);
        assert_eq!(state.take(start), Err(Some(soon)));
        assert_eq!(state.take(soon), Ok(key("a")));
    }

    #[test]
    fn a_job_that_fails_waits_longer_and_holds_nobody_up() {
        let mut state = State::default();
        let mut now = Instant::now();
        let mut last = Duration::ZERO;
        for _ in 0..6 {
            state.ask(key("bad"), now);
            assert_eq!(state.take(now), Ok(key("bad")));
            state.done(&key("bad"), Outcome::Failed, now);
            // News do not make it come sooner.
            state.ask(key("bad"), now);
            let Err(Some(at)) = state.take(now) else {
                unreachable!("it waits")
            };
            let wait = at - now;
            assert!(wait > last.mul_f64(1.1), "{wait:?} after {last:?}");
            last = wait;
            state.ask(key("good"), now);
            assert_eq!(state.take(now), Ok(key("good")));
            state.done(&key("good"), Outcome::Gone, now);
            now = at;
        }
    }
}
