//! The closed spans of a job in order of time, bounded.
//!
//! They are for drawing. The sums by phase and attempt are kept apart and are exact.
//!
//! Invariants: at most [`SPANS_KEPT`] spans; together they last as long as all that was ever pushed. Where there would be
//! more, the shortest becomes a part of the longer of its neighbours.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::Phase;

/// Spans kept one by one.
pub const SPANS_KEPT: usize = 64;

/// A closed span. Stored as `[attempt, phase, milliseconds]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, Phase, u64)", into = "(u32, Phase, u64)")]
pub struct Span {
    /// Of this attempt; 0 is the time before the first.
    pub attempt: u32,
    /// In this phase.
    pub phase: Phase,
    /// This long.
    pub millis: u64,
}

impl From<(u32, Phase, u64)> for Span {
    fn from((attempt, phase, millis): (u32, Phase, u64)) -> Self {
        Self {
            attempt,
            phase,
            millis,
        }
    }
}

impl From<Span> for (u32, Phase, u64) {
    fn from(span: Span) -> Self {
        (span.attempt, span.phase, span.millis)
    }
}

/// Closed spans, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timeline(pub Vec<Span>);

impl Timeline {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, span: Span) {
        match self.0.last_mut() {
            Some(last) if (last.attempt, last.phase) == (span.attempt, span.phase) => {
                last.millis = last.millis.saturating_add(span.millis);
            }
            _ if span.millis == 0 => {}
            _ => self.0.push(span),
        }
        shorten(&mut self.0, SPANS_KEPT);
    }
}

/// Merges the shortest spans until there are at most `most`, and until none is shorter than `least` milliseconds or there
/// are at most `few`. For drawings, which have no room for all.
pub fn coarsen(spans: &mut Vec<Span>, most: usize, few: usize, least: u64) {
    shorten(spans, most);
    while spans.len() > few.max(1) && spans.iter().any(|span| span.millis < least) {
        merge_shortest(spans);
    }
}

/// Merges the shortest spans until there are at most `most`.
fn shorten(spans: &mut Vec<Span>, most: usize) {
    while spans.len() > most.max(1) {
        merge_shortest(spans);
    }
}

/// Makes the shortest span a part of the longer of its neighbours, and that one of its like beside it.
fn merge_shortest(spans: &mut Vec<Span>) {
    let shortest = spans.iter().enumerate().min_by_key(|(_, span)| span.millis);
    let Some((at, _)) = shortest.filter(|_| spans.len() > 1) else {
        return;
    };
    let span = spans.remove(at);
    // What was behind it is now in its place.
    let before = at.checked_sub(1).and_then(|before| spans.get(before));
    let behind = spans.get(at);
    let into = match (before, behind) {
        (Some(before), Some(behind)) if behind.millis > before.millis => at,
        (None, _) => at,
        _ => at - 1,
    };
    if let Some(into) = spans.get_mut(into) {
        into.millis = into.millis.saturating_add(span.millis);
    }
    let (Some(left), Some(right)) = (at.checked_sub(1), spans.get(at).copied()) else {
        return;
    };
    if let Some(left) = spans.get_mut(left)
        && (left.attempt, left.phase) == (right.attempt, right.phase)
    {
        left.millis = left.millis.saturating_add(right.millis);
        spans.remove(at);
    }
}

impl<'de> Deserialize<'de> for Timeline {
    /// Spans of another form are left out: they only inform, and a job must not wait for a drawing.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Value::Array(stored) = Value::deserialize(deserializer)? else {
            return Ok(Self::default());
        };
        let mut timeline = Self::default();
        for span in stored {
            if let Ok(span) = Span::deserialize(span) {
                timeline.push(span);
            }
        }
        Ok(timeline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(attempt: u32, phase: Phase, millis: u64) -> Span {
        Span {
            attempt,
            phase,
            millis,
        }
    }

    #[test]
    fn timeline_is_bounded_and_keeps_time() {
        let mut timeline = Timeline::default();
        let mut pushed = 0;
        for turn in 0..1_000_u32 {
            let millis = u64::from(turn * 7 % 90 + 1);
            pushed += millis;
            let phase = Phase::ALL[turn as usize % 7];
            timeline.push(span(turn / 50, phase, millis));
            assert!(timeline.0.len() <= SPANS_KEPT);
            let kept: u64 = timeline.0.iter().map(|span| span.millis).sum();
            assert_eq!(kept, pushed);
        }
        let in_order = timeline.0.is_sorted_by_key(|span| span.attempt);
        assert!(in_order, "{timeline:?}");
    }

    #[test]
    fn short_spans_join_their_longer_neighbour() {
        use Phase::{Creating, Saving, Starting, Training};
        let mut spans = vec![
            span(1, Creating, 5),
            span(1, Starting, 50),
            span(1, Training, 100),
            span(1, Saving, 2),
            span(1, Training, 40),
        ];
        merge_shortest(&mut spans);
        let want = [
            span(1, Creating, 5),
            span(1, Starting, 50),
            span(1, Training, 142),
        ];
        assert_eq!(spans, want, "both sides of it are one");
        merge_shortest(&mut spans);
        assert_eq!(spans, [span(1, Starting, 55), span(1, Training, 142)]);
        merge_shortest(&mut spans);
        merge_shortest(&mut spans);
        assert_eq!(spans, [span(1, Training, 197)]);
    }

    #[test]
    fn stored_spans_are_compact_and_optional() {
        let mut timeline = Timeline::default();
        timeline.push(span(1, Phase::Starting, 1_200));
        timeline.push(span(1, Phase::Training, 0));
        timeline.push(span(2, Phase::Stalled, 45_000));
        let stored = serde_json::to_string(&timeline).unwrap();
        assert_eq!(stored, r#"[[1,"starting",1200],[2,"stalled",45000]]"#);
        let read: Timeline = serde_json::from_str(&stored).unwrap();
        assert_eq!(read, timeline);
        let cases = [
            (r#"[[1,"hanging",5]]"#, vec![span(1, Phase::Stalled, 5)]),
            (r#"[[1,"dreaming",5]]"#, vec![span(1, Phase::Other, 5)]),
            (
                r#"[{"x":1},[1,"starting",5]]"#,
                vec![span(1, Phase::Starting, 5)],
            ),
            (r#"{"other":"form"}"#, Vec::new()),
            (r#""x""#, Vec::new()),
        ];
        for (stored, want) in cases {
            let read: Timeline = serde_json::from_str(stored).unwrap();
            assert_eq!(read.0, want, "{stored}");
        }
    }
}
