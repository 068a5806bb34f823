//! What came first: lowers what something else explains.

use super::{Account, Case, Judge, Retry, Stage, who::WAITS};
use crate::diagnose::torch;

/// Lines behind an exception that are of its message where nothing says that it goes on: another process would first
/// print its traceback.
const NEXT_LINES: u64 = 2;
/// How a process ended: a launcher prints it behind the exception, and it is not of its message.
const ENDS: [&str; 4] = [
    "worker_segfault",
    "shm_too_small",
    "sigterm_preemption",
    "host_oom_killed",
];
/// The weight from which a symptom in the message of an exception says more than the exception.
const SAYS_MORE: u8 = 40;

/// Whether a cause or a symptom stands in the message of an exception, which goes on over several lines.
fn is_of_message(exception: &Case<'_>, other: &Case<'_>) -> bool {
    let mut evidence = exception.evidence.iter();
    let text = evidence.find(|(_, place, _)| *place == exception.place);
    let text = text.map_or("", |(_, _, evidence)| evidence.text.as_str());
    let announced = torch::lines_of_message(text);
    // What a rule of a user found may be no exception, and then has no message.
    let is_exception = text.contains("Error") || text.contains("Exception");
    let lines = announced.unwrap_or(if is_exception { NEXT_LINES } else { 0 });
    let says_more = match other.stage {
        Stage::Cause => announced.is_some() || !ENDS.contains(&other.label.name.as_str()),
        Stage::Symptom => announced.is_some() && other.weight >= SAYS_MORE,
        _ => false,
    };
    let (source, first) = exception.place;
    let message = first + 1..=first + lines;
    let mut evidence = other.evidence.iter();
    says_more && evidence.any(|(_, place, _)| place.0 == source && message.contains(&place.1))
}

impl Judge<'_> {
    /// Lowers the weight of what something else explains.
    pub(super) fn settle(&mut self) {
        self.stopped_after_failure();
        self.exception_before_waits();
        // SIGTERM after something had failed is the end of a failed job, not its cause.
        let first_other = self
            .cases
            .values()
            .filter(|case| case.label.name != "sigterm_preemption" && case.stage >= Stage::Symptom)
            .map(|case| case.place)
            .min();
        if let Some(case) = self.cases.get_mut("sigterm_preemption")
            && case.stage == Stage::Symptom
            && first_other.is_some_and(|other| other < case.place)
        {
            case.weight = 25;
        }
        let limit = self
            .cases
            .get("sigterm_preemption")
            .and_then(|case| case.fields.get("detail").cloned());
        if let Some(detail) = limit
            && let Some(case) = self.cases.get_mut("sigterm_preemption")
        {
            if detail.contains("NODE FAIL") {
                case.account = Account::Infrastructure;
            } else if detail.contains("TIME LIMIT") {
                case.account = Account::User;
                case.retry = Retry::MayHelp;
            }
        }
        // The file that could not be written says more than the exception that followed.
        if let Some(user) = self.cases.get("user_code_error")
            && user.stage == Stage::Cause
            && self.cases.values().any(|case| {
                let before = case.stage == Stage::Cause && case.place <= user.place;
                case.label.name != "user_code_error"
                    && ((before && case.place.0 == user.place.0) || is_of_message(user, case))
            })
        {
            let case = self
                .cases
                .get_mut("user_code_error")
                .expect("it was just found");
            case.stage = Stage::Symptom;
            case.weight = 20;
        }
    }

    /// An exception that stands alone explains why ranks wait that write so behind it, where it is of none of them.
    fn exception_before_waits(&mut self) {
        let Some(exception) = self.cases.get("user_code_error") else {
            return;
        };
        let waits = || WAITS.iter().filter_map(|name| self.cases.get(*name));
        let first = waits().map(|case| case.place).min();
        let weight = waits().map(|case| case.weight).max().unwrap_or_default();
        let own = waits().all(|case| case.ranks.is_disjoint(&exception.ranks));
        let explains = exception.stage == Stage::Symptom
            && own
            && waits().all(|case| case.stage <= Stage::Symptom)
            && first.is_some_and(|first| {
                exception.place.0 == first.0
                    && exception.place < first
                    && self.is_last_word(exception, first.1)
            });
        if explains && let Some(case) = self.cases.get_mut("user_code_error") {
            case.weight = case.weight.max(weight.saturating_add(1));
        }
    }

    /// A job that something had failed in before it was cancelled, or ran into its time limit, was not preempted.
    fn stopped_after_failure(&mut self) {
        let Some(stop) = self.cases.get("sigterm_preemption") else {
            return;
        };
        if stop.fact.is_some() {
            return;
        }
        let place = stop.place;
        // A step that is cancelled without a reason is cancelled because of a task that failed.
        let has_reason = stop.stage == Stage::Cause;
        let failed_first = self.first_own_exit(|exit, source| {
            let behind = (source, exit.evidence.line) > place;
            let own = exit.code.is_some_and(|code| (1..128).contains(&code))
                || exit.signal.is_some_and(|signal| signal != 9);
            let cancelled = stop
                .evidence
                .iter()
                .any(|(_, _, evidence)| evidence.text.contains("CANCELLED"));
            own && (!behind || (!has_reason && (cancelled || exit.first)))
        });
        let explained = self.cases.values().any(|case| {
            let name = case.label.name.as_str();
            name != "sigterm_preemption"
                && case.stage >= Stage::Symptom
                && case.weight >= 30
                && case.place.0 == place.0
                && case.place < place
                && self.is_last_word(case, place.1)
        });
        if let (Some(exit), false) = (&failed_first, explained) {
            let evidence = exit.evidence.clone();
            let detail = exit.words();
            self.exited_first(evidence, detail);
        }
        if failed_first.is_none() && !explained {
            return;
        }
        if let Some(case) = self.cases.get_mut("sigterm_preemption") {
            case.stage = Stage::Symptom;
            case.weight = 10;
            case.account = Account::User;
            case.retry = Retry::MayHelp;
        }
    }

    /// Whether no progress lies between a case and line `until` of its source.
    fn is_last_word(&self, case: &Case<'_>, until: u64) -> bool {
        let Some(source) = self.sources.get(case.place.0) else {
            return false;
        };
        let went_on = source.marks.progress > case.place.1 && source.marks.progress < until;
        !went_on
    }
}
