//! Paths and queries of the API, as questions.
//!
//! Pure. Invariant: a question holds only values within their limits and names that are safe in a path; a number above its limit
//! is the limit, and everything else that is not known is refused with the nearest known one.

mod nearest;
mod query;
#[cfg(test)]
mod tests;

use self::{
    nearest::nearest,
    query::{Query, checked_name, decode, quoted},
};
use crate::{
    JobsAsk, LogsAsk, Problem, ProblemCode, Question, RunPart, SeriesAsk, StripQuery,
    hub::{StreamAsk, Topic},
};

/// States of a job, as rows name them.
const STATES: &[&str] = &[
    "running",
    "waiting",
    "stalled",
    "restarting",
    "suspended",
    "succeeded",
    "failed",
    "stopped",
    "unknown",
];
/// Columns that rows are sorted by.
const COLUMNS: &[&str] = &[
    "job",
    "namespace",
    "kind",
    "state",
    "ranks",
    "accelerators",
    "attempt",
    "step",
    "trainedRatio",
    "startedAt",
    "endedAt",
];
/// Parts of a run.
const PARTS: &[&str] = &[
    "strip",
    "ledger",
    "verdicts",
    "seats",
    "series",
    "logs",
    "logs/folded",
    "events",
    "checkpoints",
    "spec",
    "trace.json",
];
/// What is below `api/v1/`.
const PATHS: &[&str] = &[
    "about", "jobs", "runs", "nodes", "queue", "failures", "stream", "login",
];
/// Names of series in one question, at most.
const MAX_SERIES: usize = 32;
/// Topics of one stream, at most.
const MAX_TOPICS: usize = 16;
/// Bytes of a text to look for, at most.
const MAX_TEXT: usize = 512;
/// Bytes of a cursor, at most.
const MAX_CURSOR: usize = 512;
/// How far back failures are counted where nothing is asked for, and at most.
const WINDOW_DAYS: (u64, u64) = (30, 400);
const DAY_MILLIS: u64 = 24 * 60 * 60 * 1000;

/// What is asked for below `api/v1/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Ask(Question),
    Stream(StreamAsk),
    Login,
}

/// The path of the login below `api/`.
pub(crate) const LOGIN: &str = "v1/login";

/// Parses a path below `api/`, and the query behind it.
pub(crate) fn parse(path: &str, query: Option<&str>) -> Result<Route, Problem> {
    let unknown = || not_found(path, PATHS, "a path below `api/v1/`");
    let rest = path.strip_prefix("v1/").ok_or_else(unknown)?;
    let decoded: Vec<String> = rest
        .split('/')
        .map(|segment| decode(segment, false))
        .collect::<Result<_, _>>()?;
    let segments: Vec<&str> = decoded.iter().map(String::as_str).collect();
    let query = query.unwrap_or_default();
    let question = match segments.as_slice() {
        ["about"] => {
            Query::parse(query, "about", &[])?;
            Question::About
        }
        ["jobs"] => Question::Jobs(jobs(query)?),
        ["jobs", namespace, name] => {
            let query = Query::parse(query, "jobs/{namespace}/{name}", &["run"])?;
            Question::Job {
                namespace: checked_name("namespace", namespace)?,
                name: checked_name("job", name)?,
                run: query.name("run")?,
            }
        }
        ["runs", run, part @ ..] if !part.is_empty() => {
            let run = checked_name("run", run)?;
            let part = run_part(&part.join("/"), query)?;
            Question::Run { run, part }
        }
        ["nodes"] => {
            Query::parse(query, "nodes", &[])?;
            Question::Nodes
        }
        ["queue"] => {
            Query::parse(query, "queue", &[])?;
            Question::Queue
        }
        ["failures"] => Question::Failures {
            window_millis: window(query)?,
        },
        ["stream"] => return stream(query).map(Route::Stream),
        ["login"] => {
            Query::parse(query, "login", &[])?;
            return Ok(Route::Login);
        }
        [first, ..] => return Err(not_found(first, PATHS, "a path below `api/v1/`")),
        [] => return Err(unknown()),
    };
    Ok(Route::Ask(question))
}

fn not_found(found: &str, known: &[&str], what: &str) -> Problem {
    let best = nearest(found, known);
    Problem {
        code: ProblemCode::NotFound,
        message: format!(
            "{} is not {what}; the nearest known one is `{best}`",
            quoted(found)
        ),
        hint: format!("use one of {}", known.join(", ")),
    }
}

pub(crate) fn bad_request(message: impl Into<String>, hint: impl Into<String>) -> Problem {
    Problem {
        code: ProblemCode::BadRequest,
        message: message.into(),
        hint: hint.into(),
    }
}

fn jobs(query: &str) -> Result<JobsAsk, Problem> {
    let keys = ["q", "state", "namespace", "kind", "sort", "cursor", "limit"];
    let query = Query::parse(query, "jobs", &keys)?;
    if let Some(sort) = query.get("sort") {
        let column = sort.strip_prefix('-').unwrap_or(sort);
        Query::check_known("sort", column, COLUMNS)?;
    }
    Ok(JobsAsk {
        text: query.text("q", MAX_TEXT)?,
        state: query.one_of("state", STATES)?,
        namespace: query.name("namespace")?,
        kind: query.name("kind")?,
        sort: query.get("sort").map(str::to_owned),
        cursor: query.text("cursor", MAX_CURSOR)?,
        limit: query.count("limit", 200)?.unwrap_or(50),
    })
}

fn run_part(part: &str, query: &str) -> Result<RunPart, Problem> {
    let parse = |keys: &[&'static str]| Query::parse(query, &format!("runs/{{id}}/{part}"), keys);
    let nothing = |part: RunPart| parse(&[]).map(|_| part);
    let attempt = || parse(&["attempt"])?.number("attempt");
    match part {
        "strip" => strip(&parse(&["from", "to", "columns", "rows", "by"])?).map(RunPart::Strip),
        "ledger" => nothing(RunPart::Ledger),
        "verdicts" => nothing(RunPart::Verdicts),
        "seats" => Ok(RunPart::Seats {
            attempt: attempt()?,
        }),
        "series" => series(&parse(&["names", "from", "to", "points"])?).map(RunPart::Series),
        "logs" => logs(&parse(&[
            "attempt",
            "pod",
            "rank",
            "container",
            "offset",
            "line",
            "lines",
            "dir",
            "q",
        ])?)
        .map(RunPart::Logs),
        "logs/folded" => Ok(RunPart::FoldedLogs {
            attempt: attempt()?,
        }),
        "events" => Ok(RunPart::Events {
            cursor: parse(&["cursor"])?.text("cursor", MAX_CURSOR)?,
        }),
        "checkpoints" => nothing(RunPart::Checkpoints),
        "spec" => nothing(RunPart::Spec),
        "trace.json" => nothing(RunPart::Trace),
        _ => Err(not_found(part, PARTS, "a part of a run")),
    }
}

fn strip(query: &Query) -> Result<StripQuery, Problem> {
    let (from, to) = query.times()?;
    Ok(StripQuery {
        from,
        to,
        columns: query.count("columns", 2000)?.unwrap_or(800),
        rows: query.count("rows", 512)?.unwrap_or(512),
        by_node: query.one_of("by", &["rank", "node"])?.as_deref() == Some("node"),
    })
}

fn series(query: &Query) -> Result<SeriesAsk, Problem> {
    let (from, to) = query.times()?;
    let names = query.names("names", MAX_SERIES)?;
    Ok(SeriesAsk {
        names,
        from,
        to,
        points: query.count("points", 2000)?.unwrap_or(600),
    })
}

fn logs(query: &Query) -> Result<LogsAsk, Problem> {
    query.check_only_one("pod", "rank")?;
    query.check_only_one("offset", "line")?;
    let line = query.number("line")?;
    if line == Some(0) {
        return Err(bad_request(
            "query key `line` is 0, and lines are counted from 1",
            "use a number of at least 1",
        ));
    }
    let placed = query.get("offset").is_some() || line.is_some();
    let backwards = match query.one_of("dir", &["back", "forward"])? {
        Some(direction) => direction == "back",
        // Without a place it is the end of the log that is wanted, and behind it there is nothing.
        None => !placed,
    };
    Ok(LogsAsk {
        attempt: query.number("attempt")?,
        pod: query.name("pod")?,
        rank: query.number("rank")?,
        container: query.name("container")?,
        offset: query.number("offset")?,
        line,
        lines: query.count("lines", 2000)?.unwrap_or(500),
        backwards,
        search: query.text("q", MAX_TEXT)?,
    })
}

/// How far back, such as `30d`, `12h` or `90m`.
fn window(query: &str) -> Result<u64, Problem> {
    let query = Query::parse(query, "failures", &["window"])?;
    let Some(text) = query.get("window") else {
        return Ok(WINDOW_DAYS.0 * DAY_MILLIS);
    };
    let units = [('d', DAY_MILLIS), ('h', DAY_MILLIS / 24), ('m', 60_000)];
    let parsed = units.iter().find_map(|(unit, millis)| {
        let count: u64 = text.strip_suffix(*unit)?.parse().ok()?;
        (count > 0).then(|| count.saturating_mul(*millis))
    });
    let millis = parsed.ok_or_else(|| {
        bad_request(
            format!(
                "query key `window` is {}, not a time such as `30d`",
                quoted(text)
            ),
            "use a number with `d`, `h` or `m` behind it",
        )
    })?;
    Ok(millis.min(WINDOW_DAYS.1 * DAY_MILLIS))
}

fn stream(query: &str) -> Result<StreamAsk, Problem> {
    let query = Query::parse(query, "stream", &["topics", "since"])?;
    let topics = query.get("topics").unwrap_or("jobs");
    let topics: Vec<Topic> = topics
        .split(',')
        .map(|topic| match topic.split_once(':') {
            Some(("run", id)) => checked_name("run", id).map(Topic::Run),
            _ => Topic::named(topic).ok_or_else(|| {
                let known = ["jobs", "nodes", "queue", "run:ID"];
                let best = nearest(topic, &known);
                bad_request(
                    format!(
                        "unknown topic {}; the nearest known one is `{best}`",
                        quoted(topic)
                    ),
                    format!("use one of {}", known.join(", ")),
                )
            }),
        })
        .collect::<Result<_, _>>()?;
    if topics.len() > MAX_TOPICS {
        return Err(bad_request(
            format!(
                "{} topics were asked for, and {MAX_TOPICS} are the maximum",
                topics.len()
            ),
            "ask for the runs that are on the screen",
        ));
    }
    Ok(StreamAsk {
        topics: topics.into_iter().collect(),
        since: query.number("since")?,
    })
}
