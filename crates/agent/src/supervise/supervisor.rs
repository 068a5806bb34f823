//! The loop of a supervisor: one thread that owns the machines, the program and all connections.
//!
//! Decides nothing: [`Member`] and [`Leader`] do. It passes on to them what happens, and carries out what they return.

mod act;
mod reports;

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd as _, BorrowedFd},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};
use trainyard_core::{
    barrier::{
        ConnectionId, Envelope, Leader, LeaderAction, Member, MemberAction, MemberState,
        OperatorMessage, ProgramExit,
    },
    launch::supervise::{HowEnded, LastWords},
};

use super::{
    POLL_AGAIN,
    checkpoints::Checkpoints,
    frame::Kind,
    inspect::Inspect,
    last_words,
    lines::Lines,
    members::{self, Members},
    outgoing::{self, Outgoing},
    program::{Event, Program},
    reporting::{FromLeader, Reporting, read_frame},
    signals::Signals,
    watching::Watching,
};
use crate::log_message;

/// The connection of the leader's own supervisor.
const OWN: ConnectionId = 0;
/// With more members than this, a round takes at least [`ROUND`], so that a poll of all of them is worth it.
const MANY_MEMBERS: usize = 128;
const ROUND: Duration = Duration::from_millis(5);
/// The exit code of shells for a process that SIGTERM ended.
const TERMINATED: i32 = 128 + Signal::SIGTERM as i32;

/// How a member reaches its leader.
pub(crate) enum Route {
    /// Over a connection.
    Remote(Box<Outgoing>),
    /// It is this process.
    Own {
        /// When a member that was disconnected connects again.
        connect_at: Option<Duration>,
    },
}

impl Route {
    /// Whether a frame of this kind would reach the leader and replace no other one.
    fn takes(&self, kind: Kind) -> bool {
        match self {
            Self::Remote(outgoing) => outgoing.takes(kind),
            Self::Own { .. } => true,
        }
    }
}

/// The part of a supervisor that leads.
pub(crate) struct Lead {
    pub(crate) leader: Leader,
    pub(crate) members: Members,
    pub(crate) operator: Outgoing,
    pub(crate) watching: Option<Watching>,
    pub(crate) checkpoints: Option<Checkpoints>,
}

enum Action {
    Member(MemberAction),
    Leader(LeaderAction),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    Signal,
    Report,
    Outgoing,
    Listener,
    Member(ConnectionId),
}

/// A supervisor that runs.
pub(crate) struct Supervisor {
    origin: Instant,
    member: Member,
    route: Route,
    lead: Option<Box<Lead>>,
    program: Program,
    reporting: Option<Reporting>,
    signals: Signals,
    actions: VecDeque<Action>,
    /// The pod is being deleted.
    leaving: bool,
    exit: Option<i32>,
    /// Where people ask for stacks.
    inspect: Option<Inspect>,
    /// Where it writes how the program ended.
    last_words: Option<PathBuf>,
    /// The rank of the pod, where it has one.
    rank: Option<u32>,
}

impl Supervisor {
    pub(crate) fn new(
        origin: Instant,
        member: (Member, Vec<MemberAction>),
        route: Route,
        lead: Option<Box<Lead>>,
        program: Program,
        reporting: Option<Reporting>,
        signals: Signals,
    ) -> Self {
        let (member, first) = member;
        Self {
            origin,
            member,
            route,
            lead,
            program,
            reporting,
            signals,
            actions: first.into_iter().map(Action::Member).collect(),
            leaving: false,
            exit: None,
            inspect: None,
            last_words: None,
            rank: None,
        }
    }

    /// The same with what it shows to others.
    pub(crate) fn with(
        self,
        inspect: Option<Inspect>,
        last_words: Option<PathBuf>,
        rank: Option<u32>,
    ) -> Self {
        Self {
            inspect,
            last_words,
            rank,
            ..self
        }
    }

    /// Runs until the container ends; returns the exit code.
    pub(crate) fn run(mut self) -> i32 {
        let mut ready = Vec::new();
        loop {
            let now = self.origin.elapsed();
            self.take_signals();
            self.step_program(now);
            for one in ready {
                self.serve(one, now);
            }
            self.tick(now);
            // The first frame of a connection is the member's own report.
            self.act(now);
            self.report_signs(now);
            self.report_evidence(now);
            self.watch(now);
            self.report_checkpoints(now);
            self.act(now);
            self.leave_if_due();
            if let Some(code) = self.exit {
                self.program.end_all();
                self.write_last_words(code);
                return code;
            }
            ready = self.wait().unwrap_or_else(|error| {
                log_message(&format!("cannot poll: {error}"));
                thread::sleep(POLL_AGAIN);
                Vec::new()
            });
        }
    }

    fn take_signals(&mut self) {
        for signal in self.signals.take() {
            if matches!(signal, Signal::SIGTERM | Signal::SIGINT) {
                // Its pod is being deleted, and orders come too late. Some images have SIGINT as their stop signal.
                self.leaving = true;
                self.member.leave();
            }
            self.program.forward(signal);
        }
    }

    fn leave_if_due(&mut self) {
        if self.leaving && self.exit.is_none() && !self.program.runs() {
            // A program that was stopped may have saved and ended with 0, which is no success of the job.
            let by_itself = matches!(
                self.member.state(),
                MemberState::Running | MemberState::Ended(_)
            );
            let exit = self.program.exit().filter(|_| by_itself);
            self.exit = Some(exit.map_or(TERMINATED, ProgramExit::container_code));
        }
    }

    /// Leaves how the program ended where the kubelet keeps it. A success needs no words.
    fn write_last_words(&self, code: i32) {
        let Some(path) = self.last_words.as_ref().filter(|_| code != 0) else {
            return;
        };
        let exit = self.program.exit();
        let by_itself = matches!(self.member.state(), MemberState::Ended(_));
        let lines = self.program.lines();
        last_words::write(
            path,
            &LastWords {
                attempt: self.member.attempt(),
                rank: self.rank,
                how: if by_itself {
                    HowEnded::Ended
                } else {
                    HowEnded::Stopped
                },
                code,
                signal: exit.and_then(|exit| exit.signal).filter(|_| by_itself),
                last_line: lines.and_then(Lines::last_line),
            },
        );
    }

    fn step_program(&mut self, now: Duration) {
        for event in self.program.step(now) {
            let actions = match event {
                Event::Ended { attempt, exit } => self.member.program_ended(attempt, exit, now),
                Event::Stopped { attempt } => self.member.program_stopped(attempt, now),
                Event::CannotStop { attempt } => self.member.cannot_stop(attempt, now),
            };
            self.obey(actions);
        }
    }

    fn serve(&mut self, ready: Ready, now: Duration) {
        let Some(lead) = &mut self.lead else {
            return;
        };
        match ready {
            Ready::Signal | Ready::Report | Ready::Outgoing => {}
            Ready::Listener => lead.members.accept(now),
            Ready::Member(connection) => {
                for news in lead.members.read(connection, now) {
                    match news {
                        members::News::Hello {
                            connection,
                            envelope,
                        } => {
                            if let Some(watching) = &mut lead.watching {
                                watching.take_hello(&envelope.message, now);
                            }
                            let actions = lead.leader.receive_hello(connection, &envelope, now);
                            self.actions.extend(actions.into_iter().map(Action::Leader));
                        }
                        members::News::Signs {
                            connection,
                            slot,
                            report,
                        } => {
                            if let Some(watching) = &mut lead.watching {
                                watching.take(connection, slot, report, now);
                            }
                        }
                        members::News::Gone { connection } => lead.leader.member_gone(connection),
                    }
                }
            }
        }
    }

    fn tick(&mut self, now: Duration) {
        self.step_route(now);
        self.step_lead(now);
        let actions = self.member.tick(now);
        self.obey(actions);
    }

    fn step_route(&mut self, now: Duration) {
        let mut connected = false;
        match &mut self.route {
            Route::Remote(outgoing) => {
                for news in outgoing.step(now) {
                    let actions = match news {
                        outgoing::News::Opened => {
                            connected = true;
                            self.member.connected(now)
                        }
                        outgoing::News::Lost => self.member.disconnected(),
                        outgoing::News::Frame(frame) => match read_frame(&frame) {
                            Some(FromLeader::Message(envelope)) => {
                                self.member.receive(&envelope, now)
                            }
                            Some(FromLeader::Question(question)) => {
                                if let Some(reporting) = &mut self.reporting {
                                    reporting.ask(question);
                                }
                                Vec::new()
                            }
                            // Not from a leader of ours.
                            None => self.member.disconnected(),
                        },
                    };
                    self.actions.extend(actions.into_iter().map(Action::Member));
                }
            }
            Route::Own { connect_at } => {
                if connect_at.take_if(|at| now >= *at).is_some() {
                    connected = true;
                    let actions = self.member.connected(now);
                    self.obey(actions);
                }
            }
        }
        if connected && let Some(reporting) = &mut self.reporting {
            reporting.greets = true;
        }
    }

    fn step_lead(&mut self, now: Duration) {
        let Some(lead) = &mut self.lead else {
            return;
        };
        lead.members.tick(now);
        let mut actions = Vec::new();
        for news in lead.operator.step(now) {
            actions.extend(match news {
                outgoing::News::Opened => lead.leader.operator_connected(now),
                outgoing::News::Lost => lead.leader.operator_gone(),
                outgoing::News::Frame(frame) => {
                    match Envelope::<OperatorMessage>::decode(&frame.content) {
                        Ok(envelope) if frame.kind == Kind::Operator => {
                            lead.leader.receive_operator(&envelope, now)
                        }
                        _ => lead.leader.operator_gone(),
                    }
                }
            });
        }
        actions.extend(lead.leader.tick(now));
        self.actions.extend(actions.into_iter().map(Action::Leader));
    }

    /// Waits until something is ready or due.
    fn wait(&self) -> io::Result<Vec<Ready>> {
        let mut wanted: Vec<(Ready, BorrowedFd<'_>, PollFlags)> =
            vec![(Ready::Signal, self.signals.as_fd(), PollFlags::POLLIN)];
        let mut due = vec![self.member.wake_at(), self.program.wake_at()];
        if let Some(reporting) = &self.reporting {
            let answers = reporting.answers(self.route.takes(Kind::Evidence));
            wanted.extend(answers.map(|fd| (Ready::Report, fd, PollFlags::POLLIN)));
            due.push(reporting.wake_at(self.route.takes(Kind::Signs)));
            // What waits for its time wakes nobody again.
            let lines = self.program.lines().filter(|_| !reporting.has_news);
            let lines = lines.map(|lines| (Ready::Report, lines.as_fd(), PollFlags::POLLIN));
            wanted.extend(lines);
            let beats = reporting.beats.as_ref().filter(|_| !reporting.has_news);
            let beats = beats.map(|beats| (Ready::Report, beats.as_fd(), PollFlags::POLLIN));
            wanted.extend(beats);
        }
        match &self.route {
            Route::Remote(peer) => {
                let all = peer.wanted().into_iter().flatten();
                wanted.extend(all.map(|(fd, flags)| (Ready::Outgoing, fd, flags)));
                due.push(peer.wake_at());
            }
            Route::Own { connect_at } => due.push(*connect_at),
        }
        if let Some(lead) = &self.lead {
            let all = lead.operator.wanted().into_iter().flatten();
            wanted.extend(all.map(|(fd, flags)| (Ready::Outgoing, fd, flags)));
            due.extend([
                lead.operator.wake_at(),
                lead.leader.wake_at(),
                lead.members.wake_at(),
                lead.watching.as_ref().and_then(Watching::wake_at),
                lead.checkpoints.as_ref().and_then(Checkpoints::wake_at),
            ]);
            let checkpoints = lead.checkpoints.as_ref();
            let checkpoints = checkpoints.map(|it| (Ready::Report, it.as_fd(), PollFlags::POLLIN));
            wanted.extend(checkpoints);
            if lead.members.len() > MANY_MEMBERS {
                thread::sleep(ROUND);
            }
            let listener = lead.members.accepting();
            wanted.extend(listener.map(|fd| (Ready::Listener, fd, PollFlags::POLLIN)));
            let members = lead.members.wanted();
            wanted.extend(members.map(|(number, fd, flags)| (Ready::Member(number), fd, flags)));
        }
        let now = self.origin.elapsed();
        let limit = due.into_iter().flatten().min().map(|due| {
            // Rounded up, or the last millisecond would be spent in turning.
            due.saturating_sub(now)
                .saturating_add(Duration::from_micros(999))
        });
        let limit = limit.map_or(PollTimeout::NONE, |limit| {
            PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX)
        });
        let mut polled: Vec<PollFd<'_>> = wanted
            .iter()
            .map(|(_, fd, flags)| PollFd::new(*fd, *flags))
            .collect();
        match poll(&mut polled, limit) {
            Ok(_) => {}
            // A signal; its flag is read next.
            Err(Errno::EINTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let ready = wanted.iter().zip(&polled);
        let ready = ready.filter(|(_, polled)| polled.any().unwrap_or(false));
        Ok(ready.map(|((ready, ..), _)| *ready).collect())
    }
}
