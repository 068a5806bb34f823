//! What the dashboards of a machine and of a cluster share: documents and problems, how states look, verdicts, lines of logs, and pages of the list of
//! jobs ([`list`]).

pub(super) mod list;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use serde_json::{Value, json};
use trainyard_core::{
    chronicle::KeptVerdict,
    spec,
    view::{State, fold::Severity},
};
use trainyard_web::{Document, Problem, ProblemCode};

/// Something that cannot be read, in a list of jobs.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Unread {
    /// What it is.
    pub(super) run: String,
    /// Why.
    pub(super) why: String,
}

/// How states look.
pub(super) fn palette() -> Value {
    let states = State::ALL.map(|state| {
        let colours = state.colours();
        json!({
            "name": state.name(),
            "word": spaced(state.name()),
            "sign": state.sign(),
            "light": colours.light,
            "dark": colours.dark,
        })
    });
    json!({ "states": states })
}

/// `notObserved` as `not observed`.
fn spaced(name: &str) -> String {
    let mut word = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            word.push(' ');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

/// What a thread that panicked left behind is a cache: it is used as it is.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A document of a run: its fields, with the id of the run beside them.
#[derive(Serialize)]
struct OfRun<'a, T> {
    run: &'a str,
    #[serde(flatten)]
    document: T,
}

pub(super) fn document(value: &impl Serialize) -> Result<Document, Problem> {
    let json = serde_json::to_vec(value).map_err(|error| {
        problem(
            ProblemCode::Unreadable,
            format!("the answer cannot be written as JSON: {error}"),
            "report this as a bug",
        )
    })?;
    Ok(Document::json(json))
}

pub(super) fn of_run(run: &str, document: impl Serialize) -> Result<Document, Problem> {
    self::document(&OfRun { run, document })
}

pub(super) fn problem(
    code: ProblemCode,
    message: impl Into<String>,
    hint: impl Into<String>,
) -> Problem {
    Problem {
        code,
        message: message.into(),
        hint: hint.into(),
    }
}

/// A problem with one of several names: which was meant.
pub(super) fn unknown(what: &str, found: &str, known: &[&'static str]) -> Problem {
    let nearest = spec::nearest(found, known.iter().copied());
    let meant = nearest.map_or_else(
        || format!("expected one of: {}", known.join(", ")),
        |nearest| format!("did you mean `{nearest}`?"),
    );
    problem(
        ProblemCode::BadRequest,
        format!("unknown {what} `{found}`; {meant}"),
        format!("use one of: {}", known.join(", ")),
    )
}

/// Verdicts by attempt, with their times as far as they are known.
pub(super) type Verdicts = BTreeMap<u32, (Option<i64>, KeptVerdict)>;

/// A verdict as a page shows it.
#[derive(Serialize)]
pub(super) struct ShownVerdict {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    #[serde(flatten)]
    verdict: KeptVerdict,
}

/// Verdicts as a page shows them, the newest attempt first.
pub(super) fn shown_verdicts(verdicts: Verdicts) -> Vec<ShownVerdict> {
    let shown = verdicts
        .into_values()
        .rev()
        .map(|(at, verdict)| ShownVerdict {
            at,
            rank: verdict.summary.ranks.first().copied(),
            node: verdict.summary.nodes.first().cloned(),
            fingerprint: verdict.summary.digest(),
            verdict,
        });
    shown.collect()
}

/// A line of a log as a page shows it.
#[derive(Serialize)]
pub(super) struct ShownLine {
    pub(super) offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rank: Option<u32>,
    pub(super) text: String,
    pub(super) severity: Severity,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) cut: bool,
}
