//! Answers questions in a thread of its own, again whenever the runs or jobs change.
//!
//! The newest questions count: those before them are given up between two answers. At most [`QUEUE`] answers wait. After a change, all questions are
//! answered again, but never for more than a tenth of the time.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use jiff::Timestamp;
use trainyard_tui::{Answer, Ask, Trouble};
use trainyard_web::{JobsAsk, Question, RunPart, StripQuery};

use super::shown::Shown;
use crate::failure::Failure;

/// Answers that wait to be shown.
const QUEUE: usize = 16;
/// How often changes are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often what runs is read again, though no file of it has changed: its time passes.
const LIVE_EVERY: Duration = Duration::from_secs(5);
/// The least time between two answers to the same questions.
const PAUSE: Duration = Duration::from_secs(1);
/// Rows of a page of jobs.
const ROWS: u32 = 200;
/// How far back failures are counted.
const WINDOW_MILLIS: u64 = 30 * 86_400_000;

/// A question with its answer.
pub(super) type Answered = (Ask, Result<Box<Answer>, Trouble>);
/// Where answers come from.
pub(super) type Answers = Receiver<Answered>;

/// What is asked of the thread.
#[derive(Debug, Default)]
struct Wanted {
    asks: Vec<Ask>,
    /// Grows with every new list.
    number: u64,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
    is_busy: AtomicBool,
}

/// The thread. It ends after the answer that it works on once this is dropped; nobody waits for it, since it only reads.
#[derive(Debug)]
pub(super) struct Asker(Arc<Shared>);

impl Asker {
    pub(super) fn start(shown: Shown) -> Result<(Self, Answers), Failure> {
        let shared = Arc::new(Shared::default());
        let (sender, answers) = sync_channel(QUEUE);
        let thread = Thread {
            shared: Arc::clone(&shared),
            shown,
            sender,
        };
        thread::Builder::new()
            .name("asker".to_owned())
            .spawn(move || thread.run())
            .context("cannot start the thread that reads what is shown")?;
        Ok((Self(shared), answers))
    }

    /// Answers these from now on, and nothing else.
    pub(super) fn ask(&self, asks: Vec<Ask>) {
        let mut wanted = self.0.wanted();
        wanted.asks = asks;
        wanted.number += 1;
        self.0.is_busy.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }

    /// Whether an answer is on its way.
    pub(super) fn is_busy(&self) -> bool {
        self.0.is_busy.load(Ordering::Relaxed)
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.0.wanted().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The questions once they are others than those of `number`, or after `within`; nothing where no more will come.
    fn next(&self, number: u64, within: Duration) -> Option<(Vec<Ask>, u64)> {
        let wanted = self.wanted();
        let is_old = |wanted: &mut Wanted| wanted.number == number && !wanted.is_closed;
        let done = self.changed.wait_timeout_while(wanted, within, is_old);
        let (wanted, _) = done.unwrap_or_else(PoisonError::into_inner);
        (!wanted.is_closed).then(|| (wanted.asks.clone(), wanted.number))
    }

    /// Whether these are still the questions.
    fn still(&self, number: u64) -> bool {
        let wanted = self.wanted();
        wanted.number == number && !wanted.is_closed
    }

    /// Nothing is on its way, unless something else is asked by now.
    fn done(&self, number: u64) {
        let wanted = self.wanted();
        if wanted.number == number {
            self.is_busy.store(false, Ordering::Relaxed);
        }
    }
}

struct Thread {
    shared: Arc<Shared>,
    shown: Shown,
    sender: SyncSender<Answered>,
}

impl Thread {
    fn run(mut self) {
        let mut number = 0;
        let mut has_changed = false;
        let mut is_live = false;
        let (mut ended, mut took) = (Instant::now(), Duration::ZERO);
        while let Some((asks, newest)) = self.shared.next(number, LOOK_EVERY) {
            let is_new = newest != number;
            number = newest;
            if !is_new {
                has_changed |= self.shown.has_changed(Timestamp::now());
                let pause = PAUSE.max(took * 9);
                let is_due = has_changed || (is_live && ended.elapsed() >= LIVE_EVERY);
                if !is_due || ended.elapsed() < pause {
                    continue;
                }
            }
            has_changed = false;
            let began = Instant::now();
            let Some(live) = self.answer_all(&asks, number) else {
                return;
            };
            is_live = live;
            self.shared.done(number);
            (ended, took) = (Instant::now(), began.elapsed());
        }
    }

    /// Answers until others are asked; whether one is about something that runs. Nothing where nobody takes answers any more.
    fn answer_all(&self, asks: &[Ask], number: u64) -> Option<bool> {
        let mut is_live = false;
        for ask in asks {
            if !self.shared.still(number) {
                break;
            }
            let answer = answer(&self.shown, ask, Timestamp::now());
            is_live |= answer.as_ref().is_ok_and(|answer| answer.is_live());
            self.sender.send((ask.clone(), answer)).ok()?;
        }
        Some(is_live)
    }
}

/// Answers a question with a document that is read already.
pub(super) fn answer(shown: &Shown, ask: &Ask, now: Timestamp) -> Result<Box<Answer>, Trouble> {
    match shown.answer(&question(ask), now) {
        Ok(document) => Answer::read(ask, &document.json).map(Box::new),
        Err(problem) => Err(Trouble {
            message: problem.message,
            hint: problem.hint,
        }),
    }
}

fn question(ask: &Ask) -> Question {
    let of_run = |run: &String, part: RunPart| Question::Run {
        run: run.clone(),
        part,
    };
    match ask {
        Ask::Jobs { sort, text, cursor } => Question::Jobs(JobsAsk {
            text: text.clone(),
            sort: sort.clone(),
            cursor: cursor.clone(),
            limit: ROWS,
            ..JobsAsk::default()
        }),
        Ask::Job {
            namespace,
            name,
            run,
        } => Question::Job {
            namespace: namespace.clone(),
            name: name.clone(),
            run: run.clone(),
        },
        Ask::Strip { run, columns, rows } => of_run(
            run,
            RunPart::Strip(StripQuery {
                from: None,
                to: None,
                columns: *columns,
                rows: *rows,
                by_node: false,
            }),
        ),
        Ask::Ledger { run } => of_run(run, RunPart::Ledger),
        Ask::Verdicts { run } => of_run(run, RunPart::Verdicts),
        Ask::Logs { run, attempt } => of_run(run, RunPart::FoldedLogs { attempt: *attempt }),
        Ask::Events { run } => of_run(run, RunPart::Events { cursor: None }),
        Ask::Failures => Question::Failures {
            window_millis: WINDOW_MILLIS,
        },
        Ask::Nodes => Question::Nodes,
        Ask::Queue => Question::Queue,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_questions_are_answered() {
        let folder = tempfile::tempdir().expect("a folder");
        let shown = Shown::machine(folder.path()).expect("an empty folder");
        let (asker, answers) = Asker::start(shown).expect("a thread");
        asker.ask(vec![Ask::Nodes]);
        asker.ask(vec![Ask::Failures]);
        // What was asked before may have been answered; what is asked now is.
        let mut last = answers.recv().expect("an answer");
        while last.0 != Ask::Failures {
            last = answers.recv().expect("an answer");
        }
        assert!(last.1.is_ok(), "{last:?}");
        drop(asker);
        assert!(answers.recv().is_err(), "the thread ends");
    }

    #[test]
    fn refusals_keep_their_hint() {
        let folder = tempfile::tempdir().expect("a folder");
        let shown = Shown::machine(folder.path()).expect("an empty folder");
        let refused = answer(&shown, &Ask::Nodes, Timestamp::UNIX_EPOCH);
        let trouble = refused.expect_err("this machine has no nodes");
        assert!(trouble.hint.contains("trainyard nodes"), "{trouble:?}");
    }
}
