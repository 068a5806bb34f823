//! What a member reports to the leader's watch and how often, and what a leader sends it.

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    time::{Duration, Instant},
};

use trainyard_core::{
    barrier::{Envelope, LeaderMessage},
    launch::supervise::SupervisedRanks,
    spec::Slot,
};

use super::{
    beats::Beats,
    evidence::{Answer, Evidence},
    frame::{Frame, Kind},
    signs::{Question, Report, Sign},
};

/// Between two reports of signs, for each pod of the gang, and its bounds. The watch learns the rhythm of steps from when
/// reports arrive, so the shortest must be well below `hang-floor`.
const REPORT_EACH: Duration = Duration::from_millis(8);
const REPORT_LEAST: Duration = Duration::from_millis(250);
const REPORT_MOST: Duration = Duration::from_secs(2);

/// What a member reports to the leader's watch.
pub(crate) struct Reporting {
    job: String,
    pub(crate) slot: Slot,
    ranks: SupervisedRanks,
    evidence: Evidence,
    /// What the program writes into its files, where they can be read.
    pub(crate) beats: Option<Beats>,
    /// Between two reports of what the program prints.
    pub(crate) gap: Duration,
    /// When the next one may be sent.
    pub(crate) next: Duration,
    pub(crate) has_news: bool,
    /// The leader does not know yet which ranks this pod holds.
    pub(crate) greets: bool,
}

impl Reporting {
    pub(crate) fn new(job: String, slot: Slot, ranks: SupervisedRanks, evidence: Evidence) -> Self {
        let pods = ranks.all / ranks.count.max(1);
        Self {
            job,
            slot,
            ranks,
            evidence,
            beats: None,
            // A leader reads at most a few hundred of them in a second, however large the gang is.
            gap: (REPORT_EACH * pods).clamp(REPORT_LEAST, REPORT_MOST),
            next: Duration::ZERO,
            has_news: false,
            greets: false,
        }
    }

    /// Whether signs are reported now, where the leader `takes` them. Signs only add to those before, so they are kept until it does.
    pub(crate) fn is_due(&self, takes: bool, now: Duration) -> bool {
        takes && (self.greets || self.has_news && now >= self.next)
    }

    /// When they are, at the latest. A leader that does not take them wakes the supervisor by its connection.
    pub(crate) fn wake_at(&self, takes: bool) -> Option<Duration> {
        (self.has_news && takes).then_some(self.next)
    }

    /// Asks what the ranks do.
    pub(crate) fn ask(&mut self, question: Question) {
        self.evidence.ask(question);
    }

    /// The next answer, where the leader `takes` it: a dump is read once, so an answer is kept until it can be sent.
    pub(crate) fn take_answer(&mut self, takes: bool) -> Option<Answer> {
        takes.then(|| self.evidence.take(Instant::now())).flatten()
    }

    /// Readable when there is an answer that the leader `takes`. One that waits for the leader wakes nobody.
    pub(crate) fn answers(&self, takes: bool) -> Option<BorrowedFd<'_>> {
        takes.then(|| self.evidence.as_fd())
    }

    /// A report about the ranks of this pod.
    pub(crate) fn report(&self, attempt: u32, asked: Option<u32>, signs: Vec<Sign>) -> Report {
        Report {
            job: self.job.clone(),
            attempt,
            first: self.ranks.first,
            count: self.ranks.count,
            asked,
            signs,
        }
    }
}

/// What a leader sends.
pub(crate) enum FromLeader {
    Message(Envelope<LeaderMessage>),
    Question(Question),
}

/// The content of a frame from a leader; nothing where no leader sends such a frame.
pub(crate) fn read_frame(frame: &Frame) -> Option<FromLeader> {
    match frame.kind {
        Kind::Command => Envelope::decode(&frame.content)
            .ok()
            .map(FromLeader::Message),
        Kind::Question => Question::decode(&frame.content)
            .ok()
            .map(FromLeader::Question),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use trainyard_core::spec::Role;

    use super::*;

    fn reporting() -> Reporting {
        let held = SupervisedRanks {
            first: 0,
            count: 1,
            all: 2,
        };
        let evidence = Evidence::start(held, None, None, || None).unwrap();
        let slot = Slot::new(Role::Worker, 0);
        Reporting::new("j".to_owned(), slot, held, evidence)
    }

    #[test]
    fn answers_wait_for_the_leader() {
        let mut reporting = reporting();
        reporting.ask(Question {
            number: 7,
            attempt: 1,
            stacks: false,
            collectives: false,
            dumps: false,
        });
        let readable = |reporting: &Reporting| {
            let fd = reporting.answers(true).unwrap();
            let mut polled = [PollFd::new(fd, PollFlags::POLLIN)];
            poll(&mut polled, PollTimeout::from(20_000_u16)).unwrap() == 1
        };
        assert!(readable(&reporting), "no answer");
        // Without a connection, or while an answer waits, nothing is taken, and nothing is polled for it.
        assert!(reporting.take_answer(false).is_none());
        assert!(reporting.answers(false).is_none());
        assert!(readable(&reporting), "it was lost");
        let answer = reporting.take_answer(true).unwrap();
        assert_eq!(answer.question.number, 7);
        assert!(reporting.take_answer(true).is_none());
    }

    #[test]
    fn signs_wait_for_the_leader() {
        let mut reporting = reporting();
        reporting.next = Duration::from_secs(5);
        let (early, late) = (Duration::from_secs(4), Duration::from_secs(6));
        let cases = [
            // greets, has news, takes, now: is due, when it wakes
            (false, false, true, late, false, None),
            (false, true, true, early, false, Some(reporting.next)),
            (false, true, true, late, true, Some(reporting.next)),
            // Without a connection, or while a report waits, nothing is taken, and nothing is polled for it.
            (false, true, false, late, false, None),
            (true, true, false, late, false, None),
            (true, false, true, early, true, None),
        ];
        for (greets, has_news, takes, now, due, wake_at) in cases {
            (reporting.greets, reporting.has_news) = (greets, has_news);
            let case = (greets, has_news, takes, now);
            assert_eq!(reporting.is_due(takes, now), due, "{case:?}");
            assert_eq!(reporting.wake_at(takes), wake_at, "{case:?}");
        }
    }
}
