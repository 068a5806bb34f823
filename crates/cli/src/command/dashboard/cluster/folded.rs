//! The ends of the logs of all pods of an attempt, equal lines together.
//!
//! At most [`PODS_MAX`] pods and [`BYTES`] bytes of each are read; what is left out is in the answer. Lines are folded in order of the times that their
//! nodes wrote, so that what many ranks write at the same moment is one group.

use std::{collections::VecDeque, sync::Arc};

use jiff::Timestamp;
use serde::Serialize;
use trainyard_core::view::{
    fold::{CONTEXT_MAX, Folded, Folder, Severity, TEXT_CHARS},
    read_line,
};
use trainyard_kube::look::{LogAsked, Tail, TailAsk, TailLine};
use trainyard_web::{Document, Problem, ProblemCode};

use super::{
    Cluster, document,
    health::refused,
    lock,
    logs::{PodLog, first_failure, logs_of, newest},
    problem,
    reader::Reader,
    run::{Moment, RunSlot, is_fresh},
};

/// Pods whose logs are read.
const PODS_MAX: usize = 64;
/// Lines of one log that are read, at its end.
const LINES: u64 = 2_000;
/// Bytes of one log that are kept of these.
const BYTES: usize = 256 << 10;
/// Attempts whose folded logs are kept.
const KEPT: usize = 4;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FoldedLogs<'a> {
    run: &'a str,
    attempt: u32,
    #[serde(flatten)]
    folded: Folded,
    /// Where the first failure is.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_failure_at: Option<FailureAt>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<Unread>,
    bytes: u64,
}

/// The first line that reports an error.
#[derive(Serialize)]
struct FailureAt {
    pod: String,
    container: String,
    #[serde(skip)]
    before: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Unread {
    pod: String,
    why: String,
}

/// The end of a log that was read.
struct Part {
    pod: String,
    container: String,
    rank: Option<u32>,
    tail: Tail,
}

impl Cluster {
    pub(super) fn folded_logs(
        &self,
        (slot, moment): (&RunSlot, &Moment),
        attempt: Option<u32>,
        reader: &Reader<'_>,
        now: Timestamp,
    ) -> Result<Document, Problem> {
        let last = moment.job.status.trainyard.attempt;
        let attempt = attempt.or_else(|| newest(&moment.pods)).unwrap_or(last);
        // Whoever asks for the same meanwhile waits for this answer, and does not read again.
        let mut known = lock(&slot.folded);
        if let Some((at, json)) = known.get(&attempt)
            && is_fresh(*at, now)
        {
            return Ok(Document::json(json.to_vec()));
        }
        let (parts, unread, is_refused) = self.parts(moment, attempt, reader)?;
        let causes = causes(moment, attempt);
        let answer = document(&fold(&slot.uid, attempt, &parts, unread, &causes))?;
        if is_refused && reader.token.is_some() {
            // Somebody else's token may read what this one may not.
            return Ok(answer);
        }
        known.insert(attempt, (now, Arc::new(answer.json.clone())));
        while known.len() > KEPT {
            // The newest attempts are what people look at.
            known.pop_first();
        }
        Ok(answer)
    }

    /// The ends of the logs of an attempt, or of what the operator kept of them; and whether any could not be read.
    fn parts(
        &self,
        moment: &Moment,
        attempt: u32,
        reader: &Reader<'_>,
    ) -> Result<(Vec<Part>, Vec<Unread>, bool), Problem> {
        let mut logs = logs_of(moment, attempt);
        logs.retain(|log| log.trains);
        if logs.is_empty() {
            let (parts, unread) = self.kept_parts(moment, attempt)?;
            return Ok((parts, unread, false));
        }
        let failed = first_failure(moment, attempt);
        let (logs, mut unread) = chosen(logs, failed);
        let asked: Vec<LogAsked> = logs.iter().map(PodLog::asked).collect();
        let ask = TailAsk {
            lines: LINES,
            bytes: BYTES,
            since: None,
        };
        let namespace = &moment.job.key.namespace;
        let tails = self.look.tails(namespace, &asked, ask, reader.token);
        let is_refused = tails.iter().any(Result::is_err);
        let mut parts = Vec::new();
        for (log, tail) in logs.into_iter().zip(tails) {
            match tail {
                Ok(tail) => parts.push(Part {
                    rank: log.first_rank.filter(|_| log.ranks == Some(1)),
                    pod: log.pod,
                    container: log.container,
                    tail,
                }),
                Err(error) => unread.push(Unread {
                    pod: log.pod,
                    why: refused(error).message,
                }),
            }
        }
        let cut = parts.iter().filter(|part| part.tail.is_cut).count();
        if cut > 0 {
            unread.push(Unread {
                pod: format!("the begin of {cut} logs"),
                why: format!("at most the last {LINES} lines of each are read"),
            });
        }
        Ok((parts, unread, is_refused))
    }

    fn kept_parts(
        &self,
        moment: &Moment,
        attempt: u32,
    ) -> Result<(Vec<Part>, Vec<Unread>), Problem> {
        let kept = self.look.kept(&moment.job, Some(attempt));
        let kept = kept.map_err(refused)?;
        if kept.is_empty() {
            return Err(problem(
                ProblemCode::NotFound,
                format!(
                    "no pod of attempt {attempt} has started, or none is left and nothing was kept of what they wrote"
                ),
                "the operator keeps the log tails of attempts that failed",
            ));
        }
        let parts = kept.into_iter().map(|log| Part {
            rank: None,
            tail: Tail {
                lines: log.text.lines().map(untimed).collect(),
                is_cut: true,
            },
            pod: log.pod,
            container: log.container,
        });
        let unread = Unread {
            pod: "the pods of this attempt".to_owned(),
            why: "they were deleted; the ends of their logs are shown, as far as the operator kept them"
                .to_owned(),
        };
        Ok((parts.collect(), vec![unread]))
    }
}

fn untimed(text: &str) -> TailLine {
    TailLine {
        at: None,
        text: text.as_bytes().to_vec(),
    }
}

/// The logs that are read, the one of the first failure among them, and what is left out.
fn chosen(mut logs: Vec<PodLog>, failed: Option<&str>) -> (Vec<PodLog>, Vec<Unread>) {
    // Stable: the others stay in the order of ranks.
    logs.sort_by_key(|log| Some(log.pod.as_str()) != failed);
    let surplus = logs.len().saturating_sub(PODS_MAX);
    logs.truncate(PODS_MAX);
    let unread = (surplus > 0).then(|| Unread {
        pod: format!("{surplus} more pods"),
        why: format!(
            "the logs of at most {PODS_MAX} pods are read at once; `trainyard logs` prints all"
        ),
    });
    (logs, unread.into_iter().collect())
}

/// The lines that verdicts on an attempt rest on.
fn causes(moment: &Moment, attempt: u32) -> Vec<String> {
    let verdicts = moment.chronicle.verdicts.iter();
    let verdicts = verdicts.filter(|(_, it)| it.summary.attempt == attempt);
    let lines = verdicts.flat_map(|(_, it)| it.evidence.iter());
    lines.map(|line| line.text.clone()).collect()
}

fn fold<'a>(
    run: &'a str,
    attempt: u32,
    parts: &[Part],
    unread: Vec<Unread>,
    causes: &[String],
) -> FoldedLogs<'a> {
    let mut order: Vec<(Option<Timestamp>, usize, usize)> = Vec::new();
    for (part, it) in parts.iter().enumerate() {
        // A line without a time is of the time of the line before.
        let mut newest = None;
        for (line, it) in it.tail.lines.iter().enumerate() {
            newest = it.at.max(newest);
            order.push((newest, part, line));
        }
    }
    order.sort_unstable();
    let mut folder = Folder::default();
    let mut first: Option<FailureAt> = None;
    let mut before: Vec<VecDeque<String>> = parts.iter().map(|_| VecDeque::new()).collect();
    let (mut bytes, mut scratch) = (0_u64, Vec::new());
    for (at, part, line) in order {
        let (Some(part), Some(before)) = (parts.get(part), before.get_mut(part)) else {
            continue;
        };
        let Some(line) = part.tail.lines.get(line) else {
            continue;
        };
        bytes += u64::try_from(line.text.len()).unwrap_or(0) + 1;
        let at = at.map(Timestamp::as_millisecond);
        folder.push(part.rank, at, &line.text);
        let is_error = read_line(&line.text, &mut scratch).severity == Severity::Error;
        if is_error && first.is_none() {
            first = Some(FailureAt {
                pod: part.pod.clone(),
                container: part.container.clone(),
                before: before.iter().cloned().collect(),
            });
        }
        let text = line.text.get(..TEXT_CHARS).unwrap_or(&line.text);
        before.push_back(String::from_utf8_lossy(text).into_owned());
        if before.len() > CONTEXT_MAX {
            before.pop_front();
        }
    }
    let causes: Vec<&str> = causes.iter().map(String::as_str).collect();
    let context = first.as_ref().map(|it| it.before.as_slice());
    FoldedLogs {
        run,
        attempt,
        folded: folder.finish(&causes, context.unwrap_or_default()),
        first_failure_at: first,
        unread,
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(pod: &str, rank: u32, lines: &[(i64, &str)]) -> Part {
        let lines = lines.iter().map(|(second, text)| TailLine {
            at: Timestamp::from_second(*second).ok(),
            text: text.as_bytes().to_vec(),
        });
        Part {
            pod: pod.to_owned(),
            container: "pytorch".to_owned(),
            rank: Some(rank),
            tail: Tail {
                lines: lines.collect(),
                is_cut: false,
            },
        }
    }

    #[test]
    fn the_first_failure_of_all_pods_is_found() {
        let parts = vec![
            part(
                "a-0",
                0,
                &[(1, "step 1"), (9, "RuntimeError: peer is gone")],
            ),
            part("a-1", 1, &[(1, "step 1"), (5, "KeyError: 'x'"), (9, "bye")]),
        ];
        let folded = fold("u", 1, &parts, Vec::new(), &[]);
        let at = folded.first_failure_at.as_ref().unwrap();
        assert_eq!(
            (at.pod.as_str(), at.before.as_slice()),
            ("a-1", &["step 1".to_owned()][..])
        );
        let first = folded.folded.first_failure.as_ref().unwrap();
        assert_eq!((first.rank, first.at), (Some(1), Some(5_000)));
        let steps = folded
            .folded
            .groups
            .iter()
            .find(|it| it.example == "step 1");
        assert_eq!(
            steps.map(|it| it.count),
            Some(2),
            "{:?}",
            folded.folded.groups
        );
    }

    #[test]
    fn pods_beyond_the_limit_are_named() {
        let log = |number: usize| PodLog {
            pod: format!("a-{number}"),
            container: "pytorch".to_owned(),
            first_rank: None,
            ranks: None,
            attempt: 1,
            size: 0,
            uid: String::new(),
            slot: None,
            has_ended: false,
            trains: true,
        };
        let (read, unread) = chosen((0..70).map(log).collect(), Some("a-69"));
        assert_eq!((read.len(), read[0].pod.as_str()), (PODS_MAX, "a-69"));
        assert_eq!(unread[0].pod, "6 more pods");
        let (read, unread) = chosen((0..3).map(log).collect(), None);
        assert_eq!((read.len(), unread), (3, Vec::new()));
    }
}
