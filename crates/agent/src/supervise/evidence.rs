//! What the processes of this pod's ranks do, seen from outside, on a thread of its own: a machine under load may take long for it.
//!
//! Invariants: one question is in work, and one more waits; a later one is dropped, and the watch asks again.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
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

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) question: Question,
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
            while let Ok(question) = to_do.recv() {
                let looks = ranks::look(own, range.as_ref(), question.stacks);
                let mut signs = Sign::seen(looks, held.first, network());
                if let (Some(recorder), Some(range)) = (&mut recorder, &range) {
                    if question.dumps {
                        recorder.ask(range.clone());
                    }
                    // A report has a bound, and what recorders show is seldom.
                    let mut dumped = Sign::recorded(recorder.read(), held.first);
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
                    }
                }
                let answer = Answer {
                    question,
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
        })
    }

    /// Asks, where nothing else waits.
    pub(crate) fn ask(&self, question: Question) {
        self.questions.try_send(question).ok();
    }

    /// The next answer, where there is one.
    pub(crate) fn take(&mut self) -> Option<Answer> {
        self.woken.clear();
        self.answers.try_recv().ok()
    }
}

impl AsFd for Evidence {
    /// Readable when there is an answer.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}
