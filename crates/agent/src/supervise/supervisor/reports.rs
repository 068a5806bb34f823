//! What a supervisor reports: output and evidence of its ranks, and, where it leads, the watch and the store of checkpoints.

use std::time::Duration;

use super::{Action, OWN, Route, Supervisor};
use crate::supervise::{
    beats::Beats,
    evidence::Answer,
    frame::Kind,
    signs::{Report, Sign},
};

impl Supervisor {
    /// Reports what the program has printed, where it is time.
    pub(super) fn report_signs(&mut self, now: Duration) {
        let (Some(reporting), Some(lines)) = (&mut self.reporting, self.program.lines()) else {
            return;
        };
        let beats = reporting.beats.as_mut();
        let beats = beats.is_some_and(Beats::has_news);
        reporting.has_news = lines.has_news() || beats;
        if !reporting.is_due(self.route.takes(Kind::Signs), now) {
            return;
        }
        reporting.has_news = false;
        reporting.greets = false;
        reporting.next = now + reporting.gap;
        let attempt = self.member.attempt();
        let signals = lines.take(attempt);
        let mut signs: Vec<Sign> = signals.iter().filter_map(Sign::printed).collect();
        signs.extend(
            reporting
                .beats
                .as_mut()
                .map(Beats::take)
                .into_iter()
                .flatten(),
        );
        let report = reporting.report(attempt, None, signs);
        self.send_report(Kind::Signs, report, now);
    }

    /// Reports what was seen of the ranks, where it was asked for and the leader takes it.
    pub(super) fn report_evidence(&mut self, now: Duration) {
        while let Some(reporting) = &mut self.reporting
            && let Some(answer) = reporting.take_answer(self.route.takes(Kind::Evidence))
        {
            let Answer {
                question,
                signs,
                reported,
                ..
            } = answer;
            if let Some(watching) = self.lead.as_mut().and_then(|lead| lead.watching.as_mut()) {
                watching.take_reported(question.attempt, reported, now);
            }
            let asked = Some(question.number);
            let report = reporting.report(question.attempt, asked, signs);
            self.send_report(Kind::Evidence, report, now);
        }
    }

    fn send_report(&mut self, kind: Kind, report: Report, now: Duration) {
        match (&mut self.route, &mut self.lead, &self.reporting) {
            (Route::Remote(outgoing), _, _) => outgoing.send(kind, report.encode()),
            (Route::Own { .. }, Some(lead), Some(reporting)) => {
                if let Some(watching) = &mut lead.watching {
                    watching.take(OWN, reporting.slot, report, now);
                }
            }
            (Route::Own { .. }, _, _) => {}
        }
    }

    /// Looks whether the gang still trains, where it is time.
    pub(super) fn watch(&mut self, now: Duration) {
        let Some(lead) = &mut self.lead else {
            return;
        };
        let Some(watching) = &mut lead.watching else {
            return;
        };
        let connections = lead.members.connections().chain([OWN]);
        let outcome = watching.step(&lead.leader, connections, now);
        if let Some(question) = outcome.ask {
            lead.members.ask(question);
            if let Some(reporting) = &mut self.reporting {
                reporting.ask(question);
            }
        }
        if let Some(hang) = outcome.hang {
            let actions = lead.leader.report_hang(hang, now);
            self.actions.extend(actions.into_iter().map(Action::Leader));
        }
    }

    /// Reports what was seen in the store of checkpoints.
    pub(super) fn report_checkpoints(&mut self, now: Duration) {
        let Some(lead) = &mut self.lead else {
            return;
        };
        let Some(checkpoints) = &mut lead.checkpoints else {
            return;
        };
        let (attempt, runs) = (self.member.attempt(), self.program.runs());
        if let Some(report) = checkpoints.step(attempt, runs, now) {
            let actions = lead.leader.report_store(report, now);
            self.actions.extend(actions.into_iter().map(Action::Leader));
        }
    }
}
