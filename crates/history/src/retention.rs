//! How long what is kept.

/// One day, in milliseconds.
const DAY: i64 = 86_400_000;

/// How long what is kept, in days after the end of a run, and how large the store may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Spans, seats, changes of pods, events and checkpoints.
    pub detail_days: u32,
    /// Lines of logs that verdicts rest on.
    pub excerpt_days: u32,
    /// Runs, attempts with their verdicts, failures of nodes, and sums by day.
    pub end_days: u32,
    /// Bytes.
    pub cap_bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            detail_days: 90,
            excerpt_days: 30,
            end_days: 400,
            cap_bytes: 8 << 30,
        }
    }
}

/// A run, as far as retention asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Nothing while it lives, or while its last facts are not written.
    pub(crate) ended: Option<i64>,
    pub(crate) has_detail: bool,
    pub(crate) has_excerpts: bool,
}

/// What of a run is due to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Excerpts,
    /// Detail; excerpts too, where those are due.
    Detail {
        excerpts: bool,
    },
    All,
}

impl Retention {
    /// What of a run is due at `now`.
    pub(crate) fn due(&self, run: Kept, now: i64) -> Due {
        let Some(ended) = run.ended else {
            return Due::Nothing;
        };
        let is_older = |days: u32| ended < cutoff(days, now);
        let excerpts = run.has_excerpts && is_older(self.excerpt_days);
        if is_older(self.end_days) {
            Due::All
        } else if run.has_detail && is_older(self.detail_days) {
            Due::Detail { excerpts }
        } else if excerpts {
            Due::Excerpts
        } else {
            Due::Nothing
        }
    }

    /// The end before which something of every run is due.
    pub(crate) fn first_cutoff(&self, now: i64) -> i64 {
        let days = [self.detail_days, self.excerpt_days, self.end_days];
        cutoff(days.into_iter().min().unwrap_or(0), now)
    }

    /// The end before which nothing of a run is kept.
    pub fn end_cutoff(&self, now: i64) -> i64 {
        cutoff(self.end_days, now)
    }
}

fn cutoff(days: u32, now: i64) -> i64 {
    now.saturating_sub(i64::from(days).saturating_mul(DAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due() {
        let retention = Retention::default();
        let now = 1_000 * DAY;
        let run = |age_days: Option<i64>, has_detail, has_excerpts| Kept {
            ended: age_days.map(|age| now - age * DAY),
            has_detail,
            has_excerpts,
        };
        let cases = [
            ("live", run(None, true, true), Due::Nothing),
            ("ended today", run(Some(0), true, true), Due::Nothing),
            (
                "at the limit of excerpts",
                run(Some(30), true, true),
                Due::Nothing,
            ),
            ("past it", run(Some(31), true, true), Due::Excerpts),
            (
                "past it, deleted before",
                run(Some(31), true, false),
                Due::Nothing,
            ),
            (
                "past detail",
                run(Some(91), true, true),
                Due::Detail { excerpts: true },
            ),
            (
                "past detail, no excerpts",
                run(Some(91), true, false),
                Due::Detail { excerpts: false },
            ),
            (
                "past detail, deleted before",
                run(Some(91), false, false),
                Due::Nothing,
            ),
            (
                "at the limit of ends",
                run(Some(400), false, false),
                Due::Nothing,
            ),
            ("past it", run(Some(401), false, false), Due::All),
            ("in the future", run(Some(-5), true, true), Due::Nothing),
        ];
        for (name, run, want) in cases {
            assert_eq!(retention.due(run, now), want, "{name}");
        }
        let none = Retention {
            detail_days: 0,
            excerpt_days: 0,
            end_days: 0,
            ..retention
        };
        assert_eq!(none.due(run(Some(1), true, true), now), Due::All);
        assert_eq!(
            none.due(run(None, true, true), i64::MAX),
            Due::Nothing,
            "never a live run"
        );
    }
}
