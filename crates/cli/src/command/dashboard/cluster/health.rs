//! What cannot be read of a cluster, in words. Pure.

use jiff::Timestamp;
use trainyard_kube::look::{Health, LookError, SourceHealth, Trouble};
use trainyard_web::{Problem, ProblemCode};

use super::{super::shared::Unread, problem};
use crate::{clean, cluster, words};

/// What to do about a cluster without any kind of job.
const INSTALL: &str = "install the CRDs first: `kubectl apply --server-side -k deploy/crds`";

/// Everything that cannot be read. A kind that the cluster does not serve is no trouble. How many had no room is said to whoever may see all of them.
pub(super) fn unread(health: &Health, is_counted: bool, now: Timestamp) -> Vec<Unread> {
    let mut unread = Vec::new();
    if let Some(trouble) = &health.unreachable {
        unread.push(Unread {
            run: "the API server".to_owned(),
            why: late(health, trouble, now),
        });
    }
    if health.serves_nothing() {
        unread.push(Unread {
            run: "the cluster".to_owned(),
            why: format!("it serves no kind of training job; {INSTALL}"),
        });
        return unread;
    }
    unread.extend(
        health
            .sources
            .iter()
            .flat_map(|it| of_source(it, is_counted)),
    );
    unread
}

fn of_source(source: &SourceHealth, is_counted: bool) -> Vec<Unread> {
    let entry = |why: String| Unread {
        run: source.name.clone(),
        why,
    };
    let trouble = source.trouble.as_ref().filter(|it| it.code != Some(404));
    let refused = trouble.map(|it| entry(with_hint(it)));
    let left_out = (source.left_out > 0).then(|| {
        let count = if is_counted {
            source.left_out.to_string()
        } else {
            "some".to_owned()
        };
        entry(format!(
            "{count} of them, the oldest, are not shown for want of memory; show one namespace with `--namespace`"
        ))
    });
    refused.into_iter().chain(left_out).collect()
}

fn with_hint(trouble: &Trouble) -> String {
    let words = clean::text(&trouble.words);
    match hint(trouble.code) {
        Some(hint) => format!("{words}; {hint}"),
        None => words,
    }
}

fn hint(code: Option<u16>) -> Option<&'static str> {
    match code {
        Some(401) => Some("log in to the cluster again"),
        Some(403) => Some(
            "ask your cluster administrator for this permission, or show a namespace that you may read with `--namespace`",
        ),
        _ => None,
    }
}

fn late(health: &Health, trouble: &Trouble, now: Timestamp) -> String {
    let words = clean::text(&trouble.words);
    let age = health.answered_at.map_or_else(
        || "nothing was read yet".to_owned(),
        |at| {
            let age = words::age(words::since(at, now));
            format!("what is shown is {age} old")
        },
    );
    format!("{words}; {age}")
}

/// What a reader of one job should know of what is missing.
pub(super) fn notes(health: &Health, is_counted: bool, now: Timestamp) -> Vec<String> {
    let unreachable = health.unreachable.as_ref();
    let unreachable = unreachable.map(|trouble| late(health, trouble, now));
    let pods = health
        .pods()
        .into_iter()
        .flat_map(|it| of_source(it, is_counted));
    let pods = pods.map(|it| format!("{}: {}", it.run, it.why));
    unreachable.into_iter().chain(pods).collect()
}

/// Why nothing at all is known, where that is so.
pub(super) fn nothing(health: &Health) -> Option<Problem> {
    if let Some(trouble) = &health.unreachable {
        return Some(problem(
            ProblemCode::Unreadable,
            clean::text(&trouble.words),
            "check that the cluster is up and that the kubeconfig names its address: `kubectl cluster-info`",
        ));
    }
    (!health.is_complete()).then(|| {
        problem(
            ProblemCode::Busy,
            "the jobs of the cluster are being listed",
            "retry in a second",
        )
    })
}

/// An error of one call, for a page: what may not be read is no defect, and said in words.
pub(super) fn refused(error: LookError) -> Problem {
    let code = match error.code() {
        Some(401 | 403) => ProblemCode::NotHere,
        Some(404) => ProblemCode::NotFound,
        _ => ProblemCode::Unreadable,
    };
    let own = hint(error.code());
    let failure = cluster::refused(error);
    let message = clean::text(&failure.line());
    problem(code, message, own.unwrap_or("retry in a second"))
}
