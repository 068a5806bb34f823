//! What the processes of this pod's ranks do, seen from outside, on a thread of its own: a machine under load may take long for it.
//!
//! Invariants: one question is in work, and one more waits; a later one is dropped, and the watch asks again.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use trainyard_core::launch::supervise::SupervisedRanks;
use trainyard_stacks::ranks;

use super::{
    signs::{Question, Sign},
    wake::{self, Woken},
};

/// Reading the stacks of large programs recurses a little.
const STACK: usize = 512 * 1024;

/// The thread that looks. It ends with this value.
#[derive(Debug)]
pub(crate) struct Evidence {
    questions: SyncSender<Question>,
    answers: Receiver<(Question, Vec<Sign>)>,
    woken: Woken,
}

impl Evidence {
    /// Starts the thread for a pod with these ranks.
    pub(crate) fn start(held: SupervisedRanks) -> io::Result<Self> {
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
                if done
                    .send((question, Sign::seen(looks, held.first)))
                    .is_err()
                {
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
    pub(crate) fn take(&mut self) -> Option<(Question, Vec<Sign>)> {
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
