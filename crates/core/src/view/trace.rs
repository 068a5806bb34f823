//! A history as a trace file of Chrome, which Perfetto and others open.
//!
//! One track for the job and one for each pod. Time whose order nobody observed is one slice of that name.

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde::Serialize;

use super::State;
use crate::{
    chronicle::{Chronicle, Content, Lane},
    spec::Slot,
};

/// Slices and marks of a trace.
pub const EVENTS_MAX: usize = 200_000;

/// A trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// What happened.
    pub trace_events: Vec<TraceEvent>,
    /// The unit that viewers show.
    pub display_time_unit: &'static str,
    /// How many slices and marks there was no room for.
    pub left_out: usize,
}

/// A slice, a mark, or the name of a track.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceEvent {
    /// Its name.
    pub name: String,
    /// `X` for a slice, `i` for a mark, `M` for a name.
    pub ph: &'static str,
    /// When it begins, in microseconds.
    pub ts: i64,
    /// How long it lasts, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dur: Option<i64>,
    /// The job.
    pub pid: u32,
    /// The track.
    pub tid: u32,
    /// The scope of a mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s: Option<&'static str>,
    /// What belongs to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Args>,
}

/// What belongs to an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Args {
    /// The name of a track.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

struct Writer {
    trace: Trace,
}

impl Writer {
    fn push(&mut self, event: TraceEvent) {
        if self.trace.trace_events.len() < EVENTS_MAX {
            self.trace.trace_events.push(event);
        } else {
            self.trace.left_out += 1;
        }
    }

    fn slice(&mut self, tid: u32, name: &str, (from, to): (i64, i64), args: Args) {
        let micros = |millis: i64| millis.saturating_mul(1_000);
        self.push(TraceEvent {
            name: name.to_owned(),
            ph: "X",
            ts: micros(from),
            dur: Some(micros(to.saturating_sub(from).max(0))),
            pid: 1,
            tid,
            s: None,
            args: Some(args),
        });
    }

    fn mark(&mut self, tid: u32, name: String, at: i64) {
        self.push(TraceEvent {
            name,
            ph: "i",
            ts: at.saturating_mul(1_000),
            dur: None,
            pid: 1,
            tid,
            s: Some(if tid == 0 { "p" } else { "t" }),
            args: None,
        });
    }

    fn track(&mut self, tid: u32, what: &str, name: String) {
        self.push(TraceEvent {
            name: what.to_owned(),
            ph: "M",
            ts: 0,
            dur: None,
            pid: 1,
            tid,
            s: None,
            args: Some(Args {
                name: Some(name),
                ..Args::default()
            }),
        });
    }
}

/// The history of `job` until `now` as a trace.
pub fn trace(chronicle: &Chronicle, job: &str, now: Timestamp) -> Trace {
    let mut writer = Writer {
        trace: Trace {
            trace_events: Vec::new(),
            display_time_unit: "ms",
            left_out: 0,
        },
    };
    writer.track(0, "process_name", job.to_owned());
    writer.track(0, "thread_name", "job".to_owned());
    let until = chronicle.until(now).unwrap_or(0);
    for stretch in &chronicle.stretches {
        let (name, attempt) = match &stretch.content {
            Content::Phase { attempt, phase } => (State::from(*phase).name(), Some(*attempt)),
            Content::Merged(_) => ("merged", None),
            Content::NotObserved(_) => (State::NotObserved.name(), None),
        };
        let args = Args {
            attempt,
            ..Args::default()
        };
        writer.slice(0, name, (stretch.from, stretch.to), args);
    }
    if let Some(open) = chronicle.open {
        let args = Args {
            attempt: Some(open.attempt),
            ..Args::default()
        };
        let times = (open.since.as_millisecond(), until);
        writer.slice(0, State::from(open.phase).name(), times, args);
    }
    for (at, headline) in &chronicle.headlines {
        writer.mark(0, format!("attempt {} failed", headline.attempt), *at);
    }
    for (at, save) in &chronicle.saves {
        writer.mark(0, format!("checkpoint of step {}", save.step), *at);
    }
    let mut lanes: Vec<(&Slot, &Lane)> = chronicle.lanes.iter().collect();
    lanes.sort_by_key(|(slot, lane)| (lane.first_rank.is_none(), lane.first_rank, **slot));
    for (tid, (slot, lane)) in (1_u32..).zip(lanes) {
        pod(&mut writer, tid, *slot, lane, until);
    }
    writer.trace
}

fn pod(writer: &mut Writer, tid: u32, slot: Slot, lane: &Lane, until: i64) {
    let rank = lane.first_rank.map(|rank| format!(" (rank {rank})"));
    let rank = rank.unwrap_or_default();
    writer.track(tid, "thread_name", format!("{slot}{rank}"));
    for (at, turn) in lane.turns.iter().enumerate() {
        let next = lane.turns.get(at + 1);
        let end = next.map_or(until, |next| next.at).max(turn.at);
        let args = Args {
            name: None,
            attempt: Some(turn.attempt),
            node: lane.node_at(turn.at).map(str::to_owned),
        };
        let name = serde_json::to_value(turn.state).unwrap_or_default();
        let name = name.as_str().unwrap_or("other");
        match name {
            "gone" => {}
            "failed" => writer.mark(tid, format!("{slot} failed"), turn.at),
            name => writer.slice(tid, name, (turn.at, end), args),
        }
    }
}
