//! Between the engine, which must never wait for a terminal, and the view, which may.
//!
//! The engine pushes; output beyond what can be read, or beyond what fits while the terminal is
//! slow, is counted instead of kept. Of progress only the last word of each rank is kept, and of
//! several statuses in a row the last.
//!
//! Invariant: what is held is bounded by [`BYTES_MAX`] of output and by the number of pods, and
//! pushing never blocks but for the moment in which the view takes what is there.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use trainyard_core::spec::Slot;
use trainyard_host::{RunEvent, Stream, count_lines};

use super::gate::Gate;

/// Output that is kept while the view is busy.
const BYTES_MAX: usize = 4 << 20;

/// Events on their way to the view.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug)]
struct State {
    gate: Gate,
    batch: Batch,
    bytes: usize,
    /// Streams that are within a line, or whose view is.
    lines: BTreeMap<(Slot, Arc<str>, bool), Within>,
}

/// Whether a stream is within a line: really, and as far as the view knows, which does not see what
/// is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Within {
    really: bool,
    shown: bool,
}

/// Closes the queue when it is dropped.
#[derive(Debug)]
pub(crate) struct Closing<'a>(&'a Queue);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What arrived since the view last looked.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// What happened and when, in order.
    pub(crate) events: VecDeque<(Duration, RunEvent)>,
    /// The last progress of each rank: when, attempt, step, loss.
    pub(crate) progress: BTreeMap<Slot, (Duration, u32, u64, Option<f64>)>,
    /// Lines that were left out, by rank.
    pub(crate) left_out: BTreeMap<Slot, u64>,
    /// Nothing comes after this.
    pub(crate) closed: bool,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.events.is_empty()
            && self.progress.is_empty()
            && self.left_out.is_empty()
            && !self.closed
    }
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                gate: Gate::new(),
                batch: Batch::default(),
                bytes: 0,
                lines: BTreeMap::new(),
            }),
            arrived: Condvar::new(),
        }
    }

    /// Adds an event of the engine.
    pub(crate) fn push(&self, event: RunEvent, now: Duration) {
        let mut state = self.lock();
        let first = state.batch.is_empty();
        state.push(event, now);
        drop(state);
        if first {
            self.arrived.notify_one();
        }
    }

    /// What closes the queue once it is dropped: also when the engine panics, after which the view would wait forever.
    pub(crate) fn closing(&self) -> Closing<'_> {
        Closing(self)
    }

    /// Nothing comes any more.
    fn close(&self) {
        self.lock().batch.closed = true;
        self.arrived.notify_one();
    }

    /// What arrived, waiting for the first of it for at most `patience`.
    pub(crate) fn take(&self, patience: Duration) -> Batch {
        let state = self.lock();
        let (mut state, _) = self
            .arrived
            .wait_timeout_while(state, patience, |state| state.batch.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        state.bytes = 0;
        let closed = state.batch.closed;
        let taken = mem::take(&mut state.batch);
        state.batch.closed = closed;
        taken
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A view that panicked has printed why; the run continues without it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, mut event: RunEvent, now: Duration) {
        let batch = &mut self.batch;
        match &mut event {
            RunEvent::Output {
                slot,
                container,
                stream,
                bytes,
                left_out,
                ..
            } => {
                let slot = *slot;
                let key = (slot, Arc::clone(container), *stream == Stream::Err);
                let before = self.lines.remove(&key).unwrap_or_default();
                let mut after = Within {
                    really: bytes.last().is_some_and(|last| *last != b'\n'),
                    shown: before.shown,
                };
                let lines = count_lines(bytes);
                let room = self.bytes + bytes.len() <= BYTES_MAX;
                let admitted = if room {
                    self.gate.admit(slot, lines, now)
                } else {
                    0
                };
                let left_out = lines - admitted + mem::take(left_out);
                if left_out > 0 {
                    *batch.left_out.entry(slot).or_default() += left_out;
                }
                if admitted < lines {
                    truncate_lines(bytes, admitted);
                }
                if admitted > 0 {
                    before.join(bytes);
                    after.shown = bytes.last().map_or(before.shown, |last| *last != b'\n');
                }
                if after != Within::default() {
                    self.lines.insert(key, after);
                }
                if admitted == 0 || bytes.is_empty() {
                    return;
                }
                self.bytes += bytes.len();
            }
            RunEvent::Progress {
                slot,
                attempt,
                step,
                loss,
            } => {
                batch.progress.insert(*slot, (now, *attempt, *step, *loss));
                return;
            }
            RunEvent::Status(_) => {
                if let Some((_, RunEvent::Status(_))) = batch.events.back() {
                    batch.events.pop_back();
                }
            }
            RunEvent::PodEnded { slot, .. } => {
                self.lines.retain(|(known, ..), _| known != slot);
            }
            _ => {}
        }
        batch.events.push_back((now, event));
    }
}

impl Within {
    /// Makes `bytes`, which are to be shown, begin where the view is.
    fn join(self, bytes: &mut Vec<u8>) {
        if self.shown && !self.really {
            // The end of the line that the view waits for was left out.
            bytes.insert(0, b'\n');
        } else if self.really && !self.shown {
            // The rest of a line whose beginning was left out is useless.
            let end = bytes.iter().position(|byte| *byte == b'\n');
            bytes.drain(..end.map_or(bytes.len(), |end| end + 1));
        }
    }
}

/// Keeps the first `count` lines.
fn truncate_lines(bytes: &mut Vec<u8>, count: u64) {
    let mut lines = 0;
    let end = bytes.iter().position(|byte| {
        lines += u64::from(*byte == b'\n');
        lines == count
    });
    match end {
        _ if count == 0 => bytes.clear(),
        Some(end) => bytes.truncate(end + 1),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::spec::Role;

    use super::*;

    fn output(index: u32, bytes: &[u8]) -> RunEvent {
        RunEvent::Output {
            slot: Slot::new(Role::Worker, index),
            attempt: 1,
            container: "pytorch".into(),
            stream: Stream::Out,
            bytes: bytes.to_vec(),
            left_out: 0,
        }
    }

    fn held(batch: &Batch) -> usize {
        let sizes = batch.events.iter().map(|(_, event)| match event {
            RunEvent::Output { bytes, .. } => bytes.len(),
            _ => 0,
        });
        sizes.sum()
    }

    #[test]
    fn queue_is_closed_by_an_engine_that_panics() {
        let queue = Queue::new();
        std::thread::scope(|scope| {
            let engine = scope.spawn(|| {
                let _closing = queue.closing();
                queue.push(output(0, b"line\n"), Duration::ZERO);
                std::panic::resume_unwind(Box::new("a defect"));
            });
            assert!(engine.join().is_err());
        });
        let batch = queue.take(Duration::ZERO);
        assert_eq!((batch.events.len(), batch.closed), (1, true));
    }

    #[test]
    fn lines_are_counted_and_cut_at_their_ends() {
        let cases: [(&[u8], u64, u64, &[u8]); 6] = [
            (b"", 0, 0, b""),
            (b"a\n", 1, 1, b"a\n"),
            (b"a\nb", 2, 2, b"a\nb"),
            (b"a\nb\nc\n", 3, 2, b"a\nb\n"),
            (b"a\nb\nc\n", 3, 0, b""),
            (b"\n\n\n", 3, 1, b"\n"),
        ];
        for (bytes, lines, keep, want) in cases {
            assert_eq!(count_lines(bytes), lines);
            let mut kept = bytes.to_vec();
            truncate_lines(&mut kept, keep);
            assert_eq!(kept, want);
        }
        for length in [254, 255, 256, 1_000] {
            assert_eq!(count_lines(&vec![b'\n'; length]), length as u64);
        }
    }

    #[test]
    fn a_flood_is_counted_and_what_is_held_is_bounded() {
        let queue = Queue::new();
        let line = [b"x".repeat(60 << 10), b"\n".to_vec()].concat();
        for _ in 0..200 {
            queue.push(output(0, &line), Duration::ZERO);
        }
        let batch = queue.take(Duration::ZERO);
        let left_out = batch.left_out[&Slot::new(Role::Worker, 0)];
        assert_eq!(left_out + batch.events.len() as u64, 200);
        assert!(held(&batch) <= BYTES_MAX);
        assert!(queue.take(Duration::ZERO).is_empty());
    }

    #[test]
    fn line_with_missing_end_swallows_no_other() {
        type Pieces<'a> = &'a [&'a [u8]];
        let texts = |batch: Batch| -> Vec<String> {
            let events = batch.events.into_iter();
            let texts = events.filter_map(|(_, event)| match event {
                RunEvent::Output { bytes, .. } => Some(String::from_utf8(bytes).unwrap()),
                _ => None,
            });
            texts.collect()
        };
        let full = vec![b'x'; BYTES_MAX];
        let cases: [(&str, Pieces<'_>, &[&str]); 4] = [
            (
                "the end was left out",
                &[b"begun", &[full.as_slice(), b"end\n"].concat(), b"next\n"],
                &["begun", "\nnext\n"],
            ),
            (
                "the end and a beginning were left out",
                &[
                    b"begun",
                    &[b"end\n", full.as_slice()].concat(),
                    b"rest\nnext\n",
                ],
                &["begun", "rest\nnext\n"],
            ),
            (
                "a beginning was left out",
                &[b"one\n", &full, b"rest\nnext\n"],
                &["one\n", "next\n"],
            ),
            (
                "nothing was left out",
                &[b"begun", b"end\n", b"next\n"],
                &["begun", "end\n", "next\n"],
            ),
        ];
        for (name, pieces, want) in cases {
            let queue = Queue::new();
            for piece in pieces {
                queue.push(output(0, piece), Duration::ZERO);
            }
            assert_eq!(texts(queue.take(Duration::ZERO)), want, "{name}");
        }
        let queue = Queue::new();
        queue.push(output(0, b"begun"), Duration::ZERO);
        let ended = RunEvent::PodEnded {
            slot: Slot::new(Role::Worker, 0),
            attempt: 1,
            exit: None,
            stopped: false,
        };
        queue.push(ended, Duration::ZERO);
        queue.push(output(0, b"of the next pod\n"), Duration::ZERO);
        let texts = texts(queue.take(Duration::ZERO));
        assert_eq!(texts, ["begun", "of the next pod\n"]);
    }

    #[test]
    fn of_progress_and_status_only_the_last_word_is_kept() {
        let queue = Queue::new();
        for step in 0..100_000 {
            queue.push(
                RunEvent::Progress {
                    slot: Slot::new(Role::Worker, 0),
                    attempt: 1,
                    step,
                    loss: None,
                },
                Duration::ZERO,
            );
            queue.push(RunEvent::Status(Box::default()), Duration::ZERO);
        }
        queue.close();
        let batch = queue.take(Duration::ZERO);
        assert_eq!(batch.events.len(), 1);
        assert_eq!(batch.progress[&Slot::new(Role::Worker, 0)].2, 99_999);
        assert!(batch.closed);
        assert!(queue.take(Duration::ZERO).closed, "closed stays closed");
    }
}
