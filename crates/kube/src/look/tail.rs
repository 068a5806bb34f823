//! The ends of logs, with the time of each line.
//!
//! Invariants: of each log at most [`TailAsk::bytes`] are kept, however long its lines are; [`STREAMED_MAX`] bytes are read and [`READ_WITHIN`] is waited
//! for at most.

use std::{pin::pin, time::Duration};

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::core::subresource::LogParams;

use super::{Api, LogAsked, Look, LookError, logs::next_bytes};

/// Bytes of one log that are read from its node at most.
const STREAMED_MAX: i64 = 64 << 20;
/// One log is read within this time.
const READ_WITHIN: Duration = Duration::from_secs(20);
/// Logs that are read at once.
const READ_AT_ONCE: usize = 16;
/// Bytes read at once.
const CHUNK: usize = 32 << 10;
/// The time in front of a line is looked for in so many bytes.
const STAMP_BYTES: usize = 40;

/// How much of a log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailAsk {
    /// Lines, at its end.
    pub lines: u64,
    /// Bytes that are kept of these, at its end.
    pub bytes: usize,
    /// Only what was written since then, to a second.
    pub since: Option<Timestamp>,
}

/// The end of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// Its lines in order.
    pub lines: Vec<TailLine>,
    /// Whether lines before these were left out.
    pub is_cut: bool,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailLine {
    /// When it was written, where its node has that.
    pub at: Option<Timestamp>,
    /// The line without its end.
    pub text: Vec<u8>,
}

impl Look {
    /// The ends of logs in `namespace`, in the order in which they are asked for; read with `token`, where there is one.
    pub fn tails(
        &self,
        namespace: &str,
        asked: &[LogAsked],
        ask: TailAsk,
        token: Option<&str>,
    ) -> Vec<Result<Tail, LookError>> {
        let api = self.api_of(token);
        self.runtime.block_on(async {
            let reads = asked.iter().map(|asked| api.tail(namespace, asked, ask));
            stream::iter(reads).buffered(READ_AT_ONCE).collect().await
        })
    }
}

impl Api {
    async fn tail(
        &self,
        namespace: &str,
        asked: &LogAsked,
        ask: TailAsk,
    ) -> Result<Tail, LookError> {
        let read = self.read_tail(namespace, asked, ask);
        let late = || LookError::Late {
            tried: format!("read the log of pod `{}`", asked.log.pod),
            patience: READ_WITHIN,
        };
        let read = tokio::time::timeout(READ_WITHIN, read).await;
        read.map_err(|_| late())?
    }

    async fn read_tail(
        &self,
        namespace: &str,
        asked: &LogAsked,
        ask: TailAsk,
    ) -> Result<Tail, LookError> {
        let log = &asked.log;
        let since = ask.since;
        let params = LogParams {
            container: Some(log.container.clone()),
            previous: asked.previous,
            tail_lines: i64::try_from(ask.lines).ok(),
            since_time: since.and_then(|since| Timestamp::from_second(since.as_second()).ok()),
            limit_bytes: Some(STREAMED_MAX),
            timestamps: true,
            ..LogParams::default()
        };
        let reader = self.open(namespace, log, &params).await?;
        let mut reader = pin!(reader);
        let mut buffer = vec![0; CHUNK];
        let mut end = End::new(ask.bytes);
        loop {
            let bytes = next_bytes(&mut reader, &mut buffer, log).await?;
            if bytes.is_empty() {
                return Ok(end.lines(ask.lines));
            }
            end.push(bytes);
        }
    }
}

/// The last bytes of what is read.
struct End {
    kept: Vec<u8>,
    most: usize,
    is_cut: bool,
}

impl End {
    fn new(most: usize) -> Self {
        Self {
            kept: Vec::new(),
            most,
            is_cut: false,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
        if self.kept.len() > self.most.saturating_mul(2) {
            self.cut();
        }
    }

    /// Drops whole lines from the front until there is room, and half a line only where it is longer than all room.
    fn cut(&mut self) {
        let surplus = self.kept.len().saturating_sub(self.most);
        if surplus == 0 {
            return;
        }
        self.is_cut = true;
        let rest = self.kept.get(surplus..).unwrap_or_default();
        let newline = rest.iter().position(|byte| *byte == b'\n');
        let dropped = newline.map_or(surplus, |newline| surplus + newline + 1);
        self.kept.drain(..dropped);
    }

    fn lines(mut self, asked: u64) -> Tail {
        self.cut();
        let text = self.kept.strip_suffix(b"\n").unwrap_or(&self.kept);
        let lines: Vec<TailLine> = match text {
            [] => Vec::new(),
            text => text.split(|byte| *byte == b'\n').map(line).collect(),
        };
        let is_full = u64::try_from(lines.len()).is_ok_and(|count| count >= asked);
        Tail {
            is_cut: self.is_cut || is_full,
            lines,
        }
    }
}

/// A line with the time that the kubelet writes in front of it.
fn line(raw: &[u8]) -> TailLine {
    let head = raw.get(..raw.len().min(STAMP_BYTES)).unwrap_or_default();
    let space = head.iter().position(|byte| *byte == b' ');
    let stamp = space.and_then(|space| raw.get(..space)).unwrap_or(raw);
    let at = std::str::from_utf8(stamp).ok();
    let at = at.and_then(|stamp| stamp.parse::<Timestamp>().ok());
    let begin = match (at, space) {
        (None, _) => 0,
        (Some(_), Some(space)) => space + 1,
        (Some(_), None) => raw.len(),
    };
    let text = raw.get(begin..).unwrap_or_default();
    TailLine {
        at,
        text: text.strip_suffix(b"\r").unwrap_or(text).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(tail: &Tail) -> Vec<String> {
        let lines = tail.lines.iter();
        lines
            .map(|line| String::from_utf8_lossy(&line.text).into_owned())
            .collect()
    }

    #[test]
    fn stamps_are_read_and_taken_off() {
        let cases: [(&str, bool, &str); 6] = [
            ("2026-11-18T10:00:00.5Z step 1", true, "step 1"),
            ("2026-11-18T10:00:00Z  two", true, " two"),
            ("2026-11-18T10:00:00Z", true, ""),
            ("2026-11-18T10:00:00.123456789+01:00 x\r", true, "x"),
            ("no time here", false, "no time here"),
            ("", false, ""),
        ];
        for (raw, has_time, want) in cases {
            let line = line(raw.as_bytes());
            assert_eq!(line.at.is_some(), has_time, "{raw:?}");
            assert_eq!(line.text, want.as_bytes(), "{raw:?}");
        }
    }

    #[test]
    fn only_the_end_of_a_log_is_kept() {
        let cases = [
            (vec!["a\nb\n", "c"], 100, 10, "a b c", false),
            (vec!["a\nb\nc\n"], 100, 3, "a b c", true),
            (vec!["aaaa\nbbbb\n", "cc\n"], 8, 10, "cc", true),
            (vec!["xxxxxxxxxxxxxxxxxxxxxxxx"], 4, 10, "xxxx", true),
            (vec![], 4, 10, "", false),
        ];
        for (pieces, most, asked, want, is_cut) in cases {
            let mut end = End::new(most);
            for piece in &pieces {
                end.push(piece.as_bytes());
                assert!(end.kept.len() <= 2 * most.max(piece.len()), "{pieces:?}");
            }
            let tail = end.lines(asked);
            assert_eq!(texts(&tail).join(" "), want, "{pieces:?}");
            assert_eq!(tail.is_cut, is_cut, "{pieces:?}");
        }
    }
}
