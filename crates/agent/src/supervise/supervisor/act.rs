//! Carries out what the machines of a supervisor want.

use std::time::Duration;

use trainyard_core::barrier::{LeaderAction, MemberAction};

use super::{Action, OWN, Route, Supervisor};
use crate::{log_message, supervise::frame::Kind};

impl Supervisor {
    /// Carries out what the machines want, until they want nothing more.
    pub(super) fn act(&mut self, now: Duration) {
        while let Some(action) = self.actions.pop_front() {
            match action {
                Action::Member(action) => self.act_as_member(action, now),
                Action::Leader(action) => self.act_as_leader(action, now),
            }
        }
    }

    fn act_as_member(&mut self, action: MemberAction, now: Duration) {
        match action {
            // The pod is being deleted, and the signal for it came before the program.
            MemberAction::Start { .. } if self.leaving => {}
            MemberAction::Start { attempt } => {
                if let Some(inspect) = &self.inspect {
                    inspect.set_attempt(attempt);
                }
                let reporting = self.reporting.as_mut();
                if let Some(beats) = reporting.and_then(|it| it.beats.as_mut()) {
                    beats.forget();
                }
                self.program.start(attempt);
                self.step_program(now);
            }
            MemberAction::Stop { attempt, how } => {
                self.program.stop(attempt, how, now);
                self.step_program(now);
            }
            MemberAction::Send(envelope) => match (&mut self.route, &mut self.lead) {
                (Route::Remote(outgoing), _) => {
                    if let Ok(content) = envelope.encode() {
                        outgoing.send(Kind::Hello, content);
                    }
                }
                (Route::Own { .. }, Some(lead)) => {
                    if let Some(watching) = &mut lead.watching {
                        watching.take_hello(&envelope.message, now);
                    }
                    let actions = lead.leader.receive_hello(OWN, &envelope, now);
                    self.actions.extend(actions.into_iter().map(Action::Leader));
                }
                (Route::Own { .. }, None) => {}
            },
            MemberAction::Redial { after } => match &mut self.route {
                Route::Remote(outgoing) => outgoing.redial(after, now),
                Route::Own { connect_at } => *connect_at = Some(now + after),
            },
            MemberAction::Exit { code } => self.exit = Some(code),
        }
    }

    fn act_as_leader(&mut self, action: LeaderAction, now: Duration) {
        let Some(lead) = &mut self.lead else {
            return;
        };
        match action {
            LeaderAction::ToMember {
                connection: OWN,
                message,
            } => {
                let actions = self.member.receive(&message, now);
                self.obey(actions);
            }
            LeaderAction::ToMember {
                connection,
                message,
            } => {
                if let Ok(content) = message.encode() {
                    lead.members.send(connection, Kind::Command, content);
                }
            }
            LeaderAction::CloseMember { connection: OWN } => {
                let actions = self.member.disconnected();
                self.obey(actions);
            }
            LeaderAction::CloseMember { connection } => lead.members.close(connection),
            LeaderAction::ToOperator(envelope) => match envelope.encode() {
                Ok(content) => lead.operator.send(Kind::Summary, content),
                Err(error) => log_message(&format!("cannot report to the operator: {error}")),
            },
            LeaderAction::RedialOperator { after } => lead.operator.redial(after, now),
        }
    }

    pub(super) fn obey(&mut self, actions: Vec<MemberAction>) {
        self.actions.extend(actions.into_iter().map(Action::Member));
    }
}
