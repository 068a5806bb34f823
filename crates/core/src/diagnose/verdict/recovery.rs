//! Whether a job recovered from what a line says.

use super::{Seen, Source, Stage};

/// A retry is taken to have worked where so many lines follow it without another.
const QUIET_LINES: u64 = 10;
/// How often the step must grow after what explains a failure by itself: other ranks may finish one or two more steps
/// after one has failed.
const STEPS_AFTER_CAUSE: u32 = 3;

/// Errors of one call or request, which a program can catch and do without.
const CATCHABLE: [&str; 6] = [
    "access_denied",
    "checkpoint_io_error",
    "cuda_oom",
    "data_path_missing",
    "dns_failure",
    "user_code_error",
];

/// Whether the job recovered. `recovers` says that programs usually retry it.
pub(super) fn of(source: &Source, seen: &Seen, label: &str, stage: Stage, recovers: bool) -> bool {
    let last = seen.last_line;
    let marks = &source.marks;
    let no_later_failure = marks.failure <= last && source.exits.is_empty();
    if recovers && no_later_failure && source.lines >= last + QUIET_LINES {
        return true;
    }
    if recovers && (marks.continue_after(last) || marks.started > last) {
        return true;
    }
    // Steps go on with a loss that is NaN; that is the problem.
    // What a program writes to stdout may appear in a log behind the exception that ended it.
    let fatal = stage == Stage::Cause && seen.raised || label == "nan_loss";
    let caught = !seen.raised && CATCHABLE.contains(&label);
    !fatal && by_training(source, last, stage)
        || caught && no_later_failure && source.ends_with_results(last)
        || (stage == Stage::Symptom && by_finishing(source, seen))
}

/// Whether the job trained on after line `last`, and nothing failed after that.
fn by_training(source: &Source, last: u64, stage: Stage) -> bool {
    let marks = &source.marks;
    let failed_later = source.exits.iter().any(|exit| exit.evidence.line > last);
    let steps = if stage == Stage::Cause {
        STEPS_AFTER_CAUSE
    } else {
        1
    };
    !failed_later
        && marks.progress > last
        && marks.failure < marks.progress
        && marks.steps_since_failure >= steps
}

/// Whether the job trained on after every exit of a process that its log reports: it was restarted.
pub(super) fn after_exits(source: &Source) -> bool {
    let last = source.exits.last().map_or(0, |exit| exit.evidence.line);
    last > 0 && by_training(source, last, Stage::Cause)
}

/// Whether the job reached its end after it.
pub(super) fn by_finishing(source: &Source, seen: &Seen) -> bool {
    let marks = &source.marks;
    let finished = marks.done > seen.last_line && source.exits.is_empty();
    finished && marks.failure <= marks.done
}
