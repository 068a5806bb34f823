//! Whether a job recovered from what a line says.

use super::{LAST_LINES, STEPS_AFTER_CAUSE, STEPS_AFTER_EXCEPTION, Seen, Source, Stage};

/// A retry is taken to have worked where so many lines follow it without another.
const QUIET_LINES: u64 = 10;
/// Errors of one call or request, which a program can catch and do without.
const CATCHABLE: [&str; 8] = [
    "access_denied",
    "checkpoint_io_error",
    "cuda_oom",
    "data_corrupt",
    "data_path_missing",
    "dns_failure",
    "download_failed",
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
    let results = no_later_failure && source.ends_with_results(last);
    if recovers && (marks.continue_after(last) || marks.started > last || results) {
        return true;
    }
    // Steps go on with a loss that is NaN; that is the problem.
    // What a program writes to stdout may appear in a log behind the exception that ended it.
    let handled = last <= marks.handled || is_far_behind(source, last);
    let fatal = stage == Stage::Cause && seen.raised && !handled;
    let caught = !seen.raised && CATCHABLE.contains(&label);
    if label == "nan_loss" {
        return false;
    }
    let alone = stage == Stage::Cause && seen.raised_alone;
    let enough = !alone || marks.steps_since_failure >= STEPS_AFTER_EXCEPTION;
    let stopped = stage == Stage::Cause && source.stopped_at(&seen.ranks, last);
    (!fatal && by_training(source, last, stage) && enough && !stopped)
        || by_relaunch(source, last)
        || after_the_end(source, seen)
        || caught && results
        || (stage == Stage::Symptom && by_finishing(source, seen))
        || (seen.raised && marks.progress > last && by_finishing(source, seen))
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

/// Whether the job went on after an exception that no rule matches.
pub(super) fn of_exception(source: &Source, seen: &Seen) -> bool {
    let last = seen.last_line;
    by_finishing(source, seen)
        || by_relaunch(source, last)
        || after_the_end(source, seen)
        || ((last <= source.marks.handled || is_far_behind(source, last))
            && by_training(source, last, Stage::Cause))
}

/// Whether the job went on after an exception that stands alone: other ranks may finish a step or two after one of them
/// has failed, and a progress bar is drawn once more.
pub(super) fn of_bare(source: &Source, seen: &Seen) -> bool {
    let trained = source.passed_bare() && !source.stopped_at(&seen.ranks, seen.last_line);
    trained || source.ends_with_results(seen.last_line)
}

/// Whether it is of an earlier run in the same log, or a program caught it and trained on, before something else ended the job. One step is enough behind an import
/// that failed; other ranks may finish a step or two after one has failed.
pub(super) fn before_the_cause(source: &Source, seen: &Seen, label: &str) -> bool {
    const IMPORTS: [&str; 2] = ["module_missing", "version_mismatch"];
    if source.marks.of_earlier_run(seen.last_line) {
        return true;
    }
    if IMPORTS.contains(&label) {
        return seen.last_line <= source.marks.passed;
    }
    CATCHABLE.contains(&label) && seen.last_line <= source.marks.survived
}

/// Whether more lines follow than a buffer of a process that ended can hold: steps among them were taken later.
fn is_far_behind(source: &Source, last: u64) -> bool {
    source.lines > last + LAST_LINES
}

/// Whether a launcher reported an exit behind line `last` and the job trained on behind every exit: it was started again.
fn by_relaunch(source: &Source, last: u64) -> bool {
    let exit = source.exits.last().map_or(0, |exit| exit.evidence.line);
    exit >= last && after_exits(source)
}

/// Whether it is what the helper processes of a program print when the program has reached its end and left.
fn after_the_end(source: &Source, seen: &Seen) -> bool {
    const OF_HELPERS: [&str; 4] = [
        "ConnectionResetError",
        "BrokenPipeError",
        "ConnectionRefusedError",
        "EOFError",
    ];
    let end = source.marks.done.max(source.marks.result);
    let exited = source.exits.iter().any(|exit| exit.evidence.line > end);
    // A rank that leaves last finds the store of rank 0 gone.
    let of_helpers = |text: &str| {
        OF_HELPERS.iter().any(|name| text.starts_with(name))
            || (text.starts_with("[W") && text.contains("TCPStore"))
    };
    end > 0
        && seen.first_line > end
        && !exited
        && seen
            .evidence
            .iter()
            .all(|evidence| of_helpers(evidence.text.trim_start()))
}

/// Whether the job trained on after every exit of a process that its log reports: it was restarted.
pub(super) fn after_exits(source: &Source) -> bool {
    let last = source.exits.last().map_or(0, |exit| exit.evidence.line);
    last > 0 && by_training(source, last, Stage::Cause)
}

/// Whether the job reached its end after it.
pub(super) fn by_finishing(source: &Source, seen: &Seen) -> bool {
    let marks = &source.marks;
    let exit = source.exits.last().map_or(0, |exit| exit.evidence.line);
    let started_again = exit < marks.done && after_exits(source);
    let finished = marks.done > seen.last_line && (exit == 0 || started_again);
    finished && marks.failure <= marks.done
}
