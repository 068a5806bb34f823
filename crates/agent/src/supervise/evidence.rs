//! What the processes of this pod's ranks do, seen from outside, on a thread of its own: a machine under load may take long for it.
//!
//! Invariants: one question is in work, and one more waits. A later one is dropped: the watch soon asks again, and what it asks for once is asked for
//! with its next question. An answer waits until the leader takes it, for at most [`STALE_AFTER`], and what it was about is then asked for again.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use trainyard_core::{
    launch::supervise::SupervisedRanks,
    watch::{Collective, ras::collectives},
};
use trainyard_probe::evidence::{FlightRecorder, Ras};
use trainyard_stacks::ranks;

use super::{
    signs::{MAX_SIGNS, Question, Sign},
    wake::{self, Woken},
};

/// Reading the stacks of large programs recurses a little.
const STACK: usize = 512 * 1024;
/// An answer that could not be sent for so long is not sent: ranks may have moved since, and the watch takes it for what they do now.
const STALE_AFTER: Duration = Duration::from_secs(10);

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) question: Question,
    /// When it was looked.
    looked: Instant,
    /// What was seen of the ranks of this pod.
    pub(crate) signs: Vec<Sign>,
    /// What NCCL's monitor reported of any rank.
    pub(crate) reported: Vec<(u32, Collective)>,
}

/// The thread that looks. It ends with this value.
#[derive(Debug)]
pub(crate) struct Evidence {
    questions: SyncSender<Question>,
    answers: Receiver<Answer>,
    woken: Woken,
    /// The last question, where it was dropped.
    unasked: Option<Question>,
}

impl Evidence {
    /// Starts the thread for a pod with these ranks, whose Flight Recorders `recorder` asks. `ras` is NCCL's monitor, which knows all ranks: one
    /// pod of a gang asks it. `network` counts the bytes of the program over the network.
    pub(crate) fn start(
        held: SupervisedRanks,
        mut recorder: Option<FlightRecorder>,
        mut ras: Option<Ras>,
        network: fn() -> Option<u64>,
    ) -> io::Result<Self> {
        let (woken, waker) = wake::pair()?;
        let (questions, to_do) = sync_channel::<Question>(1);
        let (done, answers) = sync_channel(2);
        let last = held.first.saturating_add(held.count.saturating_sub(1));
        let range = (held.count > 0).then_some(held.first..=last);
        let thread = thread::Builder::new().name("evidence".to_owned());
        thread.stack_size(STACK).spawn(move || {
            let own = std::process::id();
            while let Ok(mut question) = to_do.recv() {
                let looked = Instant::now();
                let looks = ranks::look(own, range.as_ref(), question.stacks);
                let mut signs = Sign::seen(looks, held.first, network());
                if let (Some(recorder), Some(range)) = (&mut recorder, &range) {
                    if question.dumps {
                        recorder.ask(range.clone());
                    }
                    // A report has a bound, and what recorders show is seldom.
                    let mut dumped = Sign::recorded(recorder.read(), held.first);
                    question.dumps |= !dumped.is_empty();
                    dumped.append(&mut signs);
                    dumped.truncate(MAX_SIGNS);
                    signs = dumped;
                }
                let mut reported = Vec::new();
                if let Some(ras) = &mut ras {
                    if question.collectives {
                        ras.ask();
                    }
                    if let Some(report) = ras.take() {
                        reported = collectives(&report, held.all);
                        question.collectives = true;
                    }
                }
                let answer = Answer {
                    question,
                    looked,
                    signs,
                    reported,
                };
                if done.send(answer).is_err() {
                    return;
                }
                waker.wake();
            }
        })?;
        Ok(Self {
            questions,
            answers,
            woken,
            unasked: None,
        })
    }

    /// Asks, where nothing else waits.
    pub(crate) fn ask(&mut self, mut question: Question) {
        if let Some(before) = self.unasked.take() {
            question.add_unasked(before);
        }
        if let Err(TrySendError::Full(dropped)) = self.questions.try_send(question) {
            self.unasked = Some(dropped);
        }
    }

    /// The next answer that is not too old at `now`, where there is one.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Answer> {
        self.woken.clear();
        while let Ok(answer) = self.answers.try_recv() {
            if now.saturating_duration_since(answer.looked) < STALE_AFTER {
                return Some(answer);
            }
            // What it was asked for once, nobody has seen.
            let mut unasked = answer.question;
            if let Some(before) = self.unasked.take() {
                unasked.add_unasked(before);
            }
            self.unasked = Some(unasked);
        }
        None
    }
}

impl AsFd for Evidence {
    /// Readable when there is an answer.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: u32, attempt: u32, once: bool) -> Question {
        Question {
            number,
            attempt,
            stacks: true,
            collectives: once,
            dumps: once,
        }
    }

    #[test]
    fn what_is_asked_once_survives_a_dropped_question() {
        let (questions, to_do) = sync_channel(1);
        let mut evidence = Evidence {
            questions,
            answers: sync_channel(1).1,
            woken: wake::pair().unwrap().0,
            unasked: None,
        };
        // The second and the third are dropped: the first was not taken yet.
        for (number, once) in [(1, false), (2, true), (3, false)] {
            evidence.ask(question(number, 1, once));
        }
        assert_eq!(to_do.try_recv(), Ok(question(1, 1, false)));
        evidence.ask(question(4, 1, false));
        assert_eq!(to_do.try_recv(), Ok(question(4, 1, true)));
        evidence.ask(question(5, 1, false));
        assert_eq!(to_do.try_recv(), Ok(question(5, 1, false)), "once");
        // Nothing is left of an attempt that is over.
        evidence.ask(question(6, 1, false));
        evidence.ask(question(7, 1, true));
        assert!(to_do.try_recv().is_ok());
        evidence.ask(question(8, 2, false));
        assert_eq!(to_do.try_recv(), Ok(question(8, 2, false)));
    }

    #[test]
    fn old_answers_are_dropped() {
        let (done, answers) = sync_channel(2);
        let (questions, to_do) = sync_channel(1);
        let mut evidence = Evidence {
            questions,
            answers,
            woken: wake::pair().unwrap().0,
            unasked: None,
        };
        let looked = Instant::now();
        for (number, looked) in [(1, looked), (2, looked + STALE_AFTER)] {
            let answer = Answer {
                question: question(number, 1, number == 1),
                looked,
                signs: Vec::new(),
                reported: Vec::new(),
            };
            done.send(answer).unwrap();
        }
        let taken = evidence.take(looked + STALE_AFTER).unwrap();
        assert_eq!(taken.question.number, 2);
        assert!(evidence.take(looked).is_none());
        evidence.ask(question(3, 1, false));
        assert_eq!(to_do.try_recv(), Ok(question(3, 1, true)), "asked again");
    }
}
