//! What ranks wrote before an attempt failed, kept for longer than their pods.
//!
//! Owns one `ConfigMap` for each job that had a failure, which the cluster deletes with the job: for each attempt the
//! end of the log of the pod that failed first, with the line that says why, and less of what the others wrote. The
//! first is what was read for the verdict. Whether and where logs are read, and when the object is written, is the
//! operator's.
//!
//! Invariants: of the first failure of an attempt at most [`MOST`] bytes are kept, of each of at most [`OTHERS`] other
//! pods [`MOST_OF_OTHER`]; the first of at most [`ATTEMPTS`] attempts, the others of [`ATTEMPTS_OF_OTHERS`]. So the
//! object stays below the MiB that the API server takes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::view::Meta;

/// Bytes that are kept of the log of what failed first.
const MOST: usize = 24 << 10;
/// Bytes that are kept of the log of another pod.
const MOST_OF_OTHER: usize = 2 << 10;
/// Of what is kept of a log, the part that stands around the line that says why, where that is further from the end.
const AROUND: usize = 6;
/// Other pods of an attempt of which anything is kept.
pub(crate) const OTHERS: usize = 32;
/// Attempts that are kept: the first, and the last ones.
const ATTEMPTS: usize = 16;
/// Attempts of which other pods are kept, too.
const ATTEMPTS_OF_OTHERS: usize = 5;
/// What stands in place of lines that are left out.
const LEFT_OUT: &str = "[… lines are left out here]\n";

/// The ends of logs of one attempt.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The attempt.
    pub(crate) attempt: u32,
    /// `pod/container` of what failed first, and its lines.
    pub(crate) first: Option<(String, String)>,
    /// Other pods, and the lines of their training containers.
    pub(crate) others: Vec<(String, String)>,
}

impl Kept {
    /// The entries of the object.
    pub(crate) fn data(&self) -> Map<String, Value> {
        let mut data = Map::new();
        if let Some((pod, text)) = &self.first {
            data.insert(log_key(self.attempt), json!(text));
            data.insert(pod_key(self.attempt), json!(pod));
        }
        for (pod, text) in &self.others {
            data.insert(other_key(self.attempt, pod), json!(text));
        }
        data
    }
}

/// What is kept of a job, as it is read back.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KeptView {
    pub(crate) metadata: Meta,
    pub(crate) data: BTreeMap<String, String>,
}

impl KeptView {
    /// Whether it goes with the job of `uid`.
    pub(crate) fn is_of(&self, uid: &str) -> bool {
        let mut owners = self.metadata.owner_references.iter();
        !uid.is_empty() && owners.any(|owner| owner.uid == uid)
    }

    /// The pod and container whose log of `attempt` is kept, and the log.
    pub(crate) fn of(&self, attempt: u32) -> Option<(&str, &str)> {
        let pod = self.data.get(&pod_key(attempt))?;
        let text = self.data.get(&log_key(attempt))?;
        Some((pod, text))
    }

    /// The other pods of `attempt` that are kept, and their logs.
    pub(crate) fn others(&self, attempt: u32) -> impl Iterator<Item = (&str, &str)> {
        self.data.iter().filter_map(move |(key, text)| {
            let (of, pod) = other_of(key)?;
            (of == attempt).then_some((pod, text.as_str()))
        })
    }

    /// The attempts that are kept, in order.
    pub(crate) fn attempts(&self) -> Vec<u32> {
        let keys = self.data.keys().filter_map(|key| {
            let number = key.strip_prefix("attempt-")?.strip_suffix(".log")?;
            number.parse().ok()
        });
        in_order(keys)
    }

    /// The keys that are too many.
    pub(crate) fn surplus(&self) -> Vec<String> {
        let attempts = surplus(&self.attempts(), ATTEMPTS);
        let keys = attempts
            .iter()
            .flat_map(|attempt| [log_key(*attempt), pod_key(*attempt)]);
        let mut keys: Vec<String> = keys.collect();
        let of_others = in_order(self.data.keys().filter_map(|key| Some(other_of(key)?.0)));
        let attempts = surplus(&of_others, ATTEMPTS_OF_OTHERS);
        let others = self.data.keys().filter(|key| {
            let of = other_of(key);
            of.is_some_and(|(attempt, _)| attempts.contains(&attempt))
        });
        keys.extend(others.cloned());
        keys
    }
}

fn in_order(attempts: impl Iterator<Item = u32>) -> Vec<u32> {
    let attempts: BTreeSet<u32> = attempts.collect();
    attempts.into_iter().collect()
}

/// The name of the object; jobs that have the same name one after the other have one each.
pub(crate) fn name_of(job: &str, uid: &str) -> String {
    let short: String = uid.chars().take(8).collect();
    format!("{job}-failures-{short}")
}

fn log_key(attempt: u32) -> String {
    format!("attempt-{attempt}.log")
}

fn pod_key(attempt: u32) -> String {
    format!("attempt-{attempt}.pod")
}

fn other_key(attempt: u32, pod: &str) -> String {
    format!("attempt-{attempt}.{pod}.log")
}

/// The attempt and the pod of a key of [`other_key`].
fn other_of(key: &str) -> Option<(u32, &str)> {
    let rest = key.strip_prefix("attempt-")?.strip_suffix(".log")?;
    let (attempt, pod) = rest.split_once('.')?;
    Some((attempt.parse().ok()?, pod))
}

/// What is kept of the log of what failed first, whose line `cause_line` (from 1) says why.
pub(crate) fn excerpt(log: &[u8], cause_line: Option<u64>) -> String {
    cut(log, cause_line, MOST)
}

/// What is kept of the log of another pod.
pub(crate) fn excerpt_of_other(log: &[u8], cause_line: Option<u64>) -> String {
    cut(log, cause_line, MOST_OF_OTHER)
}

fn cut(log: &[u8], cause_line: Option<u64>, most: usize) -> String {
    let log = String::from_utf8_lossy(log);
    if log.len() <= most {
        return log.into_owned();
    }
    let most_around = most / AROUND;
    let tail = end_of(&log, most - most_around - LEFT_OUT.len());
    let before = log.len() - tail.len();
    let cause_line = cause_line.and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
    let mut from = 0;
    let mut around = String::new();
    for (number, line) in log.split_inclusive('\n').enumerate() {
        let wanted = cause_line.is_some_and(|cause_line| number >= cause_line);
        if from >= before || wanted && around.len() + line.len() > most_around {
            break;
        }
        if wanted {
            around.push_str(line);
        }
        from += line.len();
    }
    format!("{around}{LEFT_OUT}{tail}")
}

/// At most `most` bytes at the end, from the beginning of a line.
fn end_of(log: &str, most: usize) -> &str {
    let mut at = log.len().saturating_sub(most);
    while !log.is_char_boundary(at) {
        at += 1;
    }
    let (before, end) = log.split_at(at);
    if before.is_empty() || before.ends_with('\n') {
        return end;
    }
    // Of a line that is longer than that, its end is better than nothing.
    end.split_once('\n')
        .map_or(end, |(_, rest)| if rest.is_empty() { end } else { rest })
}

/// The attempts that are too many: of `most`, the first and the last ones stay.
fn surplus(kept: &[u32], most: usize) -> Vec<u32> {
    let too_many = kept.len().saturating_sub(most);
    kept.iter().skip(1).take(too_many).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_keeps_cause_line_and_end() {
        let short = b"one\ntwo\n";
        assert_eq!(excerpt(short, Some(1)), "one\ntwo\n");
        let mut lines: Vec<String> = (0..2000)
            .map(|line| format!("line {line:08} xxxxxxxxxxxx\n"))
            .collect();
        lines[9] = "KeyError: 'rate'\n".to_owned();
        let log = lines.concat();
        for (name, cause_line, begins) in [
            ("the line", Some(10), "KeyError: 'rate'\nline 00000010 "),
            ("none is known", None, LEFT_OUT),
            ("it is at the end", Some(2000), LEFT_OUT),
            ("beyond the end", Some(9999), LEFT_OUT),
        ] {
            let kept = excerpt(log.as_bytes(), cause_line);
            assert!(kept.len() <= MOST, "{name}: {}", kept.len());
            assert!(kept.starts_with(begins), "{name}: {kept}");
            assert!(kept.ends_with("line 00001999 xxxxxxxxxxxx\n"), "{name}");
            let behind = kept.split(LEFT_OUT).nth(1).unwrap();
            assert!(behind.starts_with("line "), "{name}: a whole line");
        }
        let endless = "é".repeat(MOST);
        let kept = excerpt(endless.as_bytes(), None);
        assert!(kept.len() <= MOST && kept.ends_with('é'));
        let broken = excerpt(&vec![0xff; MOST], None);
        assert!(broken.len() <= MOST, "{}", broken.len());
    }

    #[test]
    fn the_first_attempt_and_the_last_ones_are_kept() {
        let all: Vec<u32> = (1..=18).collect();
        assert_eq!(surplus(&all, ATTEMPTS), [2, 3]);
        assert_eq!(surplus(&all[..16], ATTEMPTS), [0u32; 0]);
        let mut view = KeptView::default();
        for attempt in [10, 2] {
            view.data.insert(log_key(attempt), "text".to_owned());
            view.data
                .insert(pod_key(attempt), "j-worker-0/pytorch".to_owned());
        }
        assert_eq!(view.attempts(), [2, 10]);
        assert_eq!(view.of(2), Some(("j-worker-0/pytorch", "text")));
        assert_eq!(view.of(3), None);
    }

    #[test]
    fn all_that_is_kept_of_a_job_fits_into_one_object() {
        let mut view = KeptView::default();
        for attempt in 1..=100 {
            let pods = (0..OTHERS).map(|pod| format!("{}-worker-{pod}", "j".repeat(50)));
            let kept = Kept {
                attempt,
                first: Some(("j-worker-0/pytorch".to_owned(), "x".repeat(MOST))),
                others: pods.map(|pod| (pod, "x".repeat(MOST_OF_OTHER))).collect(),
            };
            for (key, text) in kept.data() {
                let text = text.as_str().unwrap_or_default().to_owned();
                view.data.insert(key, text);
            }
            for key in view.surplus() {
                view.data.remove(&key);
            }
        }
        let bytes = view.data.iter().map(|(key, text)| key.len() + text.len());
        let bytes: usize = bytes.sum();
        assert!(bytes < 800 << 10, "{bytes}");
        assert_eq!(view.attempts().len(), ATTEMPTS);
        let with_others = |attempt: u32| view.others(attempt).count() == OTHERS;
        let kept: Vec<u32> = (1..=100).filter(|attempt| with_others(*attempt)).collect();
        assert_eq!(kept, [1, 97, 98, 99, 100]);
    }

    #[test]
    fn jobs_of_the_same_name_do_not_share() {
        let (one, two) = (name_of("j", "0123456789ab"), name_of("j", "fedcba987654"));
        assert_eq!(one, "j-failures-01234567");
        assert_ne!(one, two);
    }
}
