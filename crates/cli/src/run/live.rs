//! The line at the bottom: where the run is at this moment.
//!
//! Invariant: the line is never as wide as the terminal, so that it can be erased as one line.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use trainyard_core::spec::Slot;

use crate::{paint::Paint, words};

/// Time over which the step rate is taken.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// Most reports the rate is taken from.
const SAMPLES_MAX: usize = 256;

/// What the line shows.
#[derive(Debug, Default)]
pub(crate) struct Live {
    job: String,
    pods: u32,
    attempt: u32,
    /// The pods whose containers all run.
    up: BTreeSet<Slot>,
    step: Option<u64>,
    loss: Option<f64>,
    /// (when, step), oldest first.
    samples: VecDeque<(Duration, u64)>,
    /// What the job waits for, shown instead of progress.
    waiting: Option<String>,
    /// When the attempt begins, where it is held back.
    begins_at: Option<Duration>,
    /// Since when no step came, while that counts as a stall.
    stalled_since: Option<Duration>,
    /// What is wrong with the numbers that it reports.
    complaint: Option<String>,
}

impl Live {
    pub(crate) fn new(job: &str, pods: u32) -> Self {
        Self {
            job: job.to_owned(),
            pods,
            ..Self::default()
        }
    }

    /// The pods that the job wants, as the engine counts them.
    pub(crate) fn wants(&mut self, pods: u32) {
        self.pods = pods;
    }

    /// The attempt that is going on; a new one begins without progress.
    pub(crate) fn attempt(&mut self, attempt: u32) {
        if self.attempt != attempt {
            self.attempt = attempt;
            self.up.clear();
            self.step = None;
            self.loss = None;
            self.samples.clear();
            self.stalled_since = None;
            self.complaint = None;
        }
    }

    pub(crate) fn up(&mut self, slot: Slot, attempt: u32) {
        if attempt == self.attempt {
            self.up.insert(slot);
        }
    }

    pub(crate) fn down(&mut self, slot: Slot, attempt: u32) {
        if attempt == self.attempt {
            self.up.remove(&slot);
        }
    }

    /// What the job waits for, if anything.
    pub(crate) fn waits(&mut self, waiting: Option<String>) {
        self.waiting = waiting;
    }

    /// When the attempt begins, where it is held back.
    pub(crate) fn begins_at(&mut self, at: Option<Duration>) {
        self.begins_at = at;
    }

    /// Since when no step came, while that counts as a stall.
    pub(crate) fn stalled(&mut self, since: Option<Duration>) {
        self.stalled_since = since;
    }

    /// What is wrong with the numbers that it reports.
    pub(crate) fn complains(&mut self, complaint: Option<String>) {
        self.complaint = complaint;
    }

    /// A rank reported how far it is. The rank that is furthest speaks for all.
    pub(crate) fn progress(&mut self, attempt: u32, step: u64, loss: Option<f64>, now: Duration) {
        if attempt != self.attempt || self.step.is_some_and(|last| step < last) {
            return;
        }
        self.loss = loss.or(self.loss);
        if self.step == Some(step) {
            return;
        }
        self.step = Some(step);
        self.samples.push_back((now, step));
        // Two are kept whatever their age, so that a slow training has a rate too.
        while self.samples.len() > SAMPLES_MAX
            || self.samples.len() > 2
                && self
                    .samples
                    .front()
                    .is_some_and(|(at, _)| *at + RATE_WINDOW < now)
        {
            self.samples.pop_front();
        }
    }

    /// Steps a second; falls while no step comes.
    fn rate(&self, now: Duration) -> Option<f64> {
        let (from, first) = self.samples.front()?;
        let (to, last) = self.samples.back()?;
        let steps = last.checked_sub(*first).filter(|steps| *steps > 0)?;
        #[expect(
            clippy::cast_precision_loss,
            reason = "steps of ten seconds fit a double"
        )]
        let steps = steps as f64;
        let spacing = to.saturating_sub(*from).as_secs_f64() / steps;
        let silent = now.saturating_sub(*to).as_secs_f64();
        let seconds = to.saturating_sub(*from).as_secs_f64() + (silent - spacing).max(0.0);
        (seconds > 0.0).then(|| steps / seconds)
    }

    /// The line for a terminal of `width` columns.
    pub(crate) fn render(&self, now: Duration, width: usize, paint: Paint) -> String {
        let mut parts = vec![self.job.clone()];
        if self.attempt > 0 {
            parts.push(format!("attempt {}", self.attempt));
        }
        parts.push(format!("pods {}/{}", self.up.len(), self.pods));
        parts.push(words::duration(now));
        if let Some(begins_at) = self.begins_at.filter(|at| *at > now) {
            parts.push(format!(
                "starts in {}",
                words::duration(begins_at.saturating_sub(now))
            ));
        } else if let Some(waiting) = &self.waiting {
            parts.push(waiting.clone());
        }
        if let Some(step) = self.step {
            parts.push(format!("step {}", words::grouped(step)));
        }
        if let Some(complaint) = &self.complaint {
            parts.push(complaint.clone());
        } else if let Some(loss) = self.loss {
            parts.push(format!("loss {}", words::loss(loss)));
        }
        if let Some(since) = self.stalled_since {
            let silent = now.saturating_sub(since);
            parts.push(format!("no step for {}", words::duration(silent)));
        } else if let Some(rate) = self.rate(now) {
            parts.push(match rate {
                0.1.. => format!("{rate:.1} steps/s"),
                rate => format!("{:.0} s/step", 1.0 / rate),
            });
        }
        let most = width.saturating_sub(1);
        let mut line = String::new();
        let mut used = 0;
        for part in parts {
            let gap = if used == 0 { "" } else { " · " };
            let length = gap.chars().count() + part.chars().count();
            if used + length > most {
                let room = most.saturating_sub(used + gap.chars().count());
                // A truncated sentence is still useful; a truncated number is wrong.
                if room >= 12 && part.contains(' ') && !part.chars().any(|c| c.is_ascii_digit()) {
                    line.push_str(gap);
                    line.extend(part.chars().take(room - 1));
                    line.push('…');
                }
                break;
            }
            line.push_str(gap);
            line.push_str(&part);
            used += length;
        }
        paint.apply("1", &line)
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::spec::Role;

    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn training() -> Live {
        let mut live = Live::new("mnist", 4);
        live.attempt(2);
        for index in 0..3 {
            live.up(Slot::new(Role::Worker, index), 2);
        }
        for step in 0..=50_u32 {
            live.progress(
                2,
                1_200 + u64::from(step),
                Some(2.314),
                seconds(60.0 + f64::from(step) / 10.0),
            );
        }
        live
    }

    #[test]
    fn live_line_shows_important_facts_first() {
        let live = training();
        let whole =
            "mnist · attempt 2 · pods 3/4 · 1m05s · step 1,250 · loss 2.3140 · 10.0 steps/s";
        let now = seconds(65.0);
        assert_eq!(live.render(now, 120, Paint::Plain), whole);
        assert_eq!(live.render(now, 80, Paint::Plain), whole);
        let narrow = "mnist · attempt 2 · pods 3/4 · 1m05s · step 1,250 · loss 2.3140";
        assert_eq!(live.render(now, 70, Paint::Plain), narrow);
        assert_eq!(live.render(now, 20, Paint::Plain), "mnist · attempt 2");
        for width in 0..100 {
            let shown = live.render(now, width, Paint::Plain);
            assert!(shown.chars().count() < width.max(1), "{width}: {shown}");
        }
        assert_eq!(
            live.render(now, 10, Paint::Styled),
            "\u{1b}[1mmnist\u{1b}[0m"
        );
    }

    #[test]
    fn stalls_and_nan_are_on_the_line() {
        let mut live = training();
        live.stalled(Some(seconds(65.0)));
        live.complains(Some("loss is NaN since step 20".to_owned()));
        let shown = live.render(seconds(110.0), 120, Paint::Plain);
        let want = "mnist · attempt 2 · pods 3/4 · 1m50s · step 1,250 · loss is NaN since step 20 · no step for 45s";
        assert_eq!(shown, want);
        live.attempt(3);
        let shown = live.render(seconds(110.0), 120, Paint::Plain);
        assert_eq!(shown, "mnist · attempt 3 · pods 0/4 · 1m50s");
    }

    #[test]
    fn new_attempt_ignores_old_events() {
        let mut live = training();
        live.attempt(3);
        live.progress(2, 9_999, None, seconds(66.0));
        live.up(Slot::new(Role::Worker, 0), 2);
        live.waits(Some("waits for pods of attempt two to end".to_owned()));
        assert_eq!(
            live.render(seconds(66.0), 80, Paint::Plain),
            "mnist · attempt 3 · pods 0/4 · 1m06s · waits for pods of attempt two to end"
        );
        assert_eq!(
            live.render(seconds(66.0), 60, Paint::Plain),
            "mnist · attempt 3 · pods 0/4 · 1m06s · waits for pods of a…"
        );
        live.begins_at(Some(seconds(76.5)));
        assert_eq!(
            live.render(seconds(66.0), 60, Paint::Plain),
            "mnist · attempt 3 · pods 0/4 · 1m06s · starts in 10s"
        );
    }

    #[test]
    fn the_rate_falls_when_steps_stop_coming() {
        let live = training();
        let at = |now| live.rate(seconds(now)).unwrap();
        assert!((at(65.0) - 10.0).abs() < 0.01);
        assert!(at(75.0) < 5.0);
        let mut slow = Live::new("j", 1);
        slow.attempt(1);
        for step in 0..4_u32 {
            slow.progress(1, u64::from(step), None, seconds(100.0 * f64::from(step)));
        }
        assert_eq!(
            slow.render(seconds(300.0), 80, Paint::Plain),
            "j · attempt 1 · pods 0/1 · 5m00s · step 3 · 100 s/step"
        );
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut live = Live::new("j", 1);
        live.attempt(1);
        for step in 0..100_000 {
            live.progress(1, step, None, Duration::from_micros(step));
        }
        assert!(live.samples.len() <= SAMPLES_MAX);
    }
}
