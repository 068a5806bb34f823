//! The traces of several ranks as one, for a viewer such as Perfetto.
//!
//! Each event is rewritten as it passes: its process gets a number of its own and is named after the rank, its time is shifted
//! to one clock, and arrows stay inside their rank. Nothing of a trace is held but one event.

use std::collections::BTreeMap;

use crate::read::{
    scan::Value,
    split::{Piece, Splitter},
};

/// Processes of one rank that have numbers of their own: threads, GPUs, and a few that the profiler adds.
const PROCESSES: u32 = 1000;

/// Writes the beginning of the merged trace. `base` is the wall-clock time of time 0, in nanoseconds.
pub fn begin(base: u64, out: &mut Vec<u8>) {
    let head = format!("{{\"schemaVersion\":1,\"baseTimeNanoseconds\":{base},\"traceEvents\":[");
    out.extend_from_slice(head.as_bytes());
    // So that every event may begin with a comma.
    out.extend_from_slice(b"\n{\"ph\":\"M\",\"name\":\"merged\",\"pid\":0,\"args\":{}}");
}

/// Writes the end of the merged trace.
pub fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\n]}\n");
}

/// Rewrites the events of one rank.
#[derive(Debug)]
pub struct Merger {
    splitter: Splitter,
    rewrite: Rewrite,
}

#[derive(Debug)]
struct Rewrite {
    rank: u32,
    /// Nanoseconds that are added to each time.
    shift: u64,
    processes: BTreeMap<Vec<u8>, u32>,
}

impl Merger {
    /// Rewrites the trace of `rank`, whose times are `shift` nanoseconds too early.
    pub fn new(rank: u32, shift: u64) -> Self {
        Self {
            splitter: Splitter::default(),
            rewrite: Rewrite {
                rank,
                shift,
                processes: BTreeMap::new(),
            },
        }
    }

    /// Takes the next bytes of the trace and writes the events that end in them. Whether more can follow.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let rewrite = &mut self.rewrite;
        self.splitter.push(bytes, &mut |piece| {
            if let Piece::Event(event) = piece {
                rewrite.event(event, out);
            }
        });
        !self.splitter.is_foreign() && !self.splitter.is_complete()
    }
}

impl Rewrite {
    fn event(&mut self, event: &[u8], out: &mut Vec<u8>) {
        let event = Value(event);
        let names_process = event
            .fields()
            .any(|(name, value)| name == b"name" && value.0 == b"\"process_name\"");
        let mut separator = ",\n{";
        for (name, value) in event.fields() {
            out.extend_from_slice(separator.as_bytes());
            separator = ",";
            out.push(b'"');
            out.extend_from_slice(name);
            out.extend_from_slice(b"\":");
            match name {
                b"pid" => {
                    let process = self.process(value.0);
                    out.extend_from_slice(process.to_string().as_bytes());
                }
                b"ts" => match value.nanoseconds() {
                    Some(at) => {
                        let at = at.saturating_add(self.shift);
                        let at = format!("{}.{:03}", at / 1000, at % 1000);
                        out.extend_from_slice(at.as_bytes());
                    }
                    None => write_value(value, out),
                },
                b"id" => match value.whole() {
                    Some(id) => {
                        let id = (u64::from(self.rank) << 32) | (id & 0xffff_ffff);
                        out.extend_from_slice(id.to_string().as_bytes());
                    }
                    None => write_value(value, out),
                },
                b"args" if names_process => self.process_name(value, out),
                _ => write_value(value, out),
            }
        }
        if separator == "," {
            out.push(b'}');
        }
    }

    /// The number of a process, which the trace may call by a number or by a text.
    fn process(&mut self, written: &[u8]) -> u32 {
        let count = u32::try_from(self.processes.len()).unwrap_or(PROCESSES);
        let within = match self.processes.get(written) {
            Some(known) => *known,
            None if count >= PROCESSES => PROCESSES - 1,
            None => {
                self.processes.insert(written.to_vec(), count);
                count
            }
        };
        // 0 is that of the merged trace itself.
        self.rank
            .saturating_mul(PROCESSES)
            .saturating_add(1 + within)
    }

    fn process_name(&self, arguments: Value<'_>, out: &mut Vec<u8>) {
        let mut fields = arguments.fields();
        let name = fields.find(|(name, _)| *name == b"name");
        let name = name.and_then(|(_, name)| name.text()).unwrap_or_default();
        // Control characters are gone from it already.
        let name = name.replace(['"', '\\'], "'");
        let text = format!("{{\"name\":\"rank {}: {name}\"}}", self.rank);
        out.extend_from_slice(text.as_bytes());
    }
}

/// A value as it is, where it may stand in JSON.
fn write_value(value: Value<'_>, out: &mut Vec<u8>) {
    let is_json = match value.0.first() {
        Some(b'"' | b'{' | b'[' | b'0'..=b'9') => true,
        Some(b'-') => value.0.get(1).is_some_and(u8::is_ascii_digit),
        _ => matches!(value.0, b"true" | b"false" | b"null"),
    };
    out.extend_from_slice(if is_json { value.0 } else { b"null" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ranks_as_one() {
        let trace = r#"{"baseTimeNanoseconds":5,"traceEvents":[
            {"ph":"M","name":"process_name","pid":7,"tid":0,"ts":0.000,"args":{"name":"pyt\"hon"}},
            {"ph":"X","name":"a","pid":7,"tid":7,"ts":1.5,"dur":2,"args":{"x":[1]}},
            {"ph":"X","name":"b","pid":"Spans","ts":2,"dur":NaN},
            {"ph":"s","id":9,"pid":7,"ts":3}
        ]}"#;
        let mut out = Vec::new();
        begin(1_000, &mut out);
        for (rank, shift) in [(0, 0), (2, 2_500)] {
            let mut merger = Merger::new(rank, shift);
            for block in trace.as_bytes().chunks(16) {
                merger.push(block, &mut out);
            }
        }
        end(&mut out);
        let want = r#"{"schemaVersion":1,"baseTimeNanoseconds":1000,"traceEvents":[
{"ph":"M","name":"merged","pid":0,"args":{}},
{"ph":"M","name":"process_name","pid":1,"tid":0,"ts":0.000,"args":{"name":"rank 0: pyt'hon"}},
{"ph":"X","name":"a","pid":1,"tid":7,"ts":1.500,"dur":2,"args":{"x":[1]}},
{"ph":"X","name":"b","pid":2,"ts":2.000,"dur":null},
{"ph":"s","id":9,"pid":1,"ts":3.000},
{"ph":"M","name":"process_name","pid":2001,"tid":0,"ts":2.500,"args":{"name":"rank 2: pyt'hon"}},
{"ph":"X","name":"a","pid":2001,"tid":7,"ts":4.000,"dur":2,"args":{"x":[1]}},
{"ph":"X","name":"b","pid":2002,"ts":4.500,"dur":null},
{"ph":"s","id":8589934601,"pid":2001,"ts":5.500}
]}
"#;
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }
}
