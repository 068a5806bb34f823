//! What a rank wrote before it failed, kept for longer than its pod.
//!
//! Owns one `ConfigMap` for each job that had a failure, which the cluster deletes with the job: for each attempt the
//! end of the log of the pod that failed first, with the line that tells why. It is what was read for the verdict, so
//! nothing is read for it. Whether and where a log is read is [`crate::consult`]'s.
//!
//! Invariants: no pass waits for it, and none fails for it. Of one attempt at most [`MOST`] bytes are kept, of a job at
//! most [`ATTEMPTS`] attempts, so the object stays far below the MiB that the API server takes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tracing::debug;
use trainyard_core::spec::Kind;

use crate::{
    act::{object_path, stored_as},
    key::{JOB_LABEL, JobKey},
    operator::Operator,
};

/// Bytes that are kept of the log of one attempt.
const MOST: usize = 24 << 10;
/// Bytes of them that stand around the line that tells why, where that is further from the end.
const AROUND: usize = 4 << 10;
/// Attempts that are kept: the first, and the last ones.
const ATTEMPTS: usize = 16;
/// What stands in place of lines that are left out.
const LEFT_OUT: &str = "[… lines are left out here]\n";

/// The end of a log.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The attempt.
    pub(crate) attempt: u32,
    /// `pod/container`.
    pub(crate) of: String,
    /// The lines.
    pub(crate) text: String,
}

/// What is kept of a job, as it is read back.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KeptView {
    pub(crate) data: BTreeMap<String, String>,
}

impl KeptView {
    /// Whose log of `attempt` is kept, and the log.
    pub(crate) fn of(&self, attempt: u32) -> Option<(&str, &str)> {
        let whose = self.data.get(&whose_key(attempt))?;
        let text = self.data.get(&log_key(attempt))?;
        Some((whose, text))
    }

    /// The attempts that are kept, in order.
    pub(crate) fn attempts(&self) -> Vec<u32> {
        let keys = self.data.keys().filter_map(|key| {
            let number = key.strip_prefix("attempt-")?.strip_suffix(".log")?;
            number.parse().ok()
        });
        let mut attempts: Vec<u32> = keys.collect();
        attempts.sort_unstable();
        attempts
    }
}

/// The name of the object; jobs that have the same name one after the other have one each.
pub(crate) fn name_of(job: &str, uid: &str) -> String {
    let short: String = uid.chars().take(8).collect();
    format!("{job}-failures-{short}")
}

fn log_key(attempt: u32) -> String {
    format!("attempt-{attempt}.log")
}

fn whose_key(attempt: u32) -> String {
    format!("attempt-{attempt}.pod")
}

/// What is kept of `log`, whose line `telling` (from 1) tells why its program failed.
pub(crate) fn excerpt(log: &[u8], telling: Option<u64>) -> String {
    let log = String::from_utf8_lossy(log);
    if log.len() <= MOST {
        return log.into_owned();
    }
    let tail = end_of(&log, MOST - AROUND - LEFT_OUT.len());
    let before = log.len() - tail.len();
    let telling = telling.and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
    let mut from = 0;
    let mut around = String::new();
    for (number, line) in log.split_inclusive('\n').enumerate() {
        let wanted = telling.is_some_and(|telling| number >= telling);
        if from >= before || wanted && around.len() + line.len() > AROUND {
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

/// The keys that are too many once `attempt` is kept, too.
fn surplus(kept: &[u32]) -> Vec<u32> {
    let too_many = kept.len().saturating_sub(ATTEMPTS);
    kept.iter().skip(1).take(too_many).copied().collect()
}

impl Operator {
    /// Keeps the end of a log, in a task of its own.
    pub(crate) fn keep(&self, key: &JobKey, uid: &str, kept: Kept) {
        let (this, key, uid) = (self.clone(), key.clone(), uid.to_owned());
        tokio::spawn(async move {
            if let Err(error) = this.put_kept(&key, &uid, &kept).await {
                debug!(job = %key, attempt = kept.attempt, %error, "cannot keep the log of a failure");
            }
        });
    }

    async fn put_kept(
        &self,
        key: &JobKey,
        uid: &str,
        kept: &Kept,
    ) -> Result<(), crate::api::CallError> {
        let path = object_path(&key.namespace, "configmaps");
        let name = name_of(&key.name, uid);
        let data = json!({
            log_key(kept.attempt): kept.text,
            whose_key(kept.attempt): kept.of,
        });
        let change = json!({ "data": data });
        let there = match self.caller.merge::<KeptView>(&path, &name, &change).await {
            Ok(there) => there,
            Err(error) if error.is_not_found() => {
                let object = object(key, uid, &name, &data);
                return self
                    .caller
                    .create::<serde::de::IgnoredAny>(&path, &object)
                    .await
                    .map(drop);
            }
            Err(error) => return Err(error),
        };
        let mut gone = Map::new();
        for attempt in surplus(&there.attempts()) {
            gone.insert(log_key(attempt), Value::Null);
            gone.insert(whose_key(attempt), Value::Null);
        }
        if !gone.is_empty() {
            let change = json!({ "data": gone });
            self.caller
                .merge::<serde::de::IgnoredAny>(&path, &name, &change)
                .await?;
        }
        Ok(())
    }
}

fn object(key: &JobKey, uid: &str, name: &str, data: &Value) -> Value {
    let kind: Kind = stored_as(key.kind);
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": &*key.namespace,
            "labels": {JOB_LABEL: &*key.name},
            "ownerReferences": [{
                "apiVersion": kind.api_version(),
                "kind": key.kind.name(),
                "name": &*key.name,
                "uid": uid,
            }],
        },
        "data": data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_tells_and_the_end_are_kept() {
        let short = b"one\ntwo\n";
        assert_eq!(excerpt(short, Some(1)), "one\ntwo\n");
        let mut lines: Vec<String> = (0..2000)
            .map(|line| format!("line {line:08} xxxxxxxxxxxx\n"))
            .collect();
        lines[9] = "KeyError: 'rate'\n".to_owned();
        let log = lines.concat();
        for (name, telling, begins) in [
            ("the line", Some(10), "KeyError: 'rate'\nline 00000010 "),
            ("none is known", None, LEFT_OUT),
            ("it is at the end", Some(2000), LEFT_OUT),
            ("beyond the end", Some(9999), LEFT_OUT),
        ] {
            let kept = excerpt(log.as_bytes(), telling);
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
        assert_eq!(surplus(&all), [2, 3]);
        assert_eq!(surplus(&all[..16]), [0u32; 0]);
        let mut view = KeptView::default();
        for attempt in [10, 2] {
            view.data.insert(log_key(attempt), "text".to_owned());
            view.data
                .insert(whose_key(attempt), "j-worker-0/pytorch".to_owned());
        }
        assert_eq!(view.attempts(), [2, 10]);
        assert_eq!(view.of(2), Some(("j-worker-0/pytorch", "text")));
        assert_eq!(view.of(3), None);
    }

    #[test]
    fn jobs_of_the_same_name_do_not_share() {
        let (one, two) = (name_of("j", "0123456789ab"), name_of("j", "fedcba987654"));
        assert_eq!(one, "j-failures-01234567");
        assert_ne!(one, two);
    }
}
