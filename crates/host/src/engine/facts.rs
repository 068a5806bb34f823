//! Records what happens to a run as facts, for whoever draws it.
//!
//! Owns when facts are made and when they are written. What is a fact is [`trainyard_core::chronicle`]'s, the file is the store's.
//!
//! Invariants: a file that cannot be written does not end the run. Of each number at most one point is written in [`EVERY`], and one more where an
//! attempt ends; a number that is not finite is not lost to a finite one of the same second.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use trainyard_core::{
    chronicle::{Chronicle, Fact, KeptVerdict, Places, Seen, VERSION, What},
    job::{JobStatus, ObservedPod},
    progress::{Figure, Reading},
};

use super::Engine;
use crate::store::FactsWriter;

/// How often facts are written, but for ends of attempts.
const EVERY: Duration = Duration::from_secs(1);

/// Numbers that were reported and are not written yet: the newest of each name.
#[derive(Debug, Default)]
pub(super) struct Points(BTreeMap<&'static str, (i64, f64)>);

impl Points {
    /// Takes what the rank that reports for its attempt reported; `step` is its step by now.
    pub(super) fn take(&mut self, reading: &Reading, step: Option<u64>, now: Timestamp) {
        #[expect(
            clippy::cast_precision_loss,
            reason = "steps beyond 2^53 are drawn at the same pixel"
        )]
        let step = reading.step.and(step).map(|step| step as f64);
        let values = [
            ("step", step),
            ("loss", reading.loss),
            ("gradNorm", reading.grad_norm),
            ("learningRate", reading.learning_rate),
            ("tokensPerSecond", reading.tokens_per_second),
            ("samplesPerSecond", reading.samples_per_second),
            ("stepSeconds", reading.step_seconds),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                self.add(name, value, now);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds how long a step takes as it was measured, where steps came and no line said it.
    fn complete(&mut self, step_seconds: Option<f64>) {
        if let (Some((at, _)), Some(seconds)) = (self.0.get("step").copied(), step_seconds) {
            self.0.entry("stepSeconds").or_insert((at, seconds));
        }
    }

    fn add(&mut self, name: &'static str, value: f64, now: Timestamp) {
        let known = self.0.get(name);
        if known.is_none_or(|(_, known)| known.is_finite() || !value.is_finite()) {
            self.0.insert(name, (now.as_millisecond(), value));
        }
    }
}

/// The history of a run as it grows.
#[derive(Debug)]
pub(super) struct Recorder {
    /// Nothing where the file could not be made.
    writer: Option<FactsWriter>,
    chronicle: Chronicle,
    places: Places,
    before: Option<(JobStatus, Vec<ObservedPod>)>,
    /// What the doctor concluded last, with its evidence.
    verdict: Option<KeptVerdict>,
    /// An attempt ended, or something else that is written at once.
    is_urgent: bool,
    written: Option<Instant>,
    points_written: Option<Instant>,
}

impl Recorder {
    pub(super) fn new(writer: Option<FactsWriter>, places: Places) -> Self {
        Self {
            writer,
            chronicle: Chronicle::default(),
            places,
            before: None,
            verdict: None,
            is_urgent: false,
            written: None,
            points_written: None,
        }
    }

    /// Keeps what a verdict rests on, for when it is decided on.
    pub(super) fn concluded(&mut self, verdict: Option<KeptVerdict>) {
        self.verdict = verdict.or(self.verdict.take());
    }

    /// Records what is new.
    pub(super) fn observe(&mut self, status: &JobStatus, pods: Vec<ObservedPod>, now: Timestamp) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        if let Some((known_status, known_pods)) = &self.before
            && known_status == status
            && *known_pods == pods
        {
            return;
        }
        let before = self
            .before
            .as_ref()
            .map(|(status, pods)| Seen { status, pods });
        let after = Seen {
            status,
            pods: &pods,
        };
        let facts = self
            .chronicle
            .record(before.as_ref(), &after, &self.places, now);
        for mut fact in facts {
            match &mut fact.what {
                // Numbers are taken as they are reported: a status keeps fewer.
                What::Point { .. } => continue,
                What::Verdict(verdict) => {
                    if let Some(kept) = &self.verdict
                        && kept.summary == verdict.summary
                    {
                        **verdict = kept.clone();
                    }
                    self.is_urgent = true;
                }
                What::Attempt { .. } | What::Failed(_) | What::Ended { .. } => {
                    self.is_urgent = true;
                }
                _ => {}
            }
            writer.add(&fact);
        }
        self.before = Some((status.clone(), pods));
    }

    /// When facts that wait may be written.
    pub(super) fn due(&self, points: &Points) -> Option<Instant> {
        let writer = self.writer.as_ref()?;
        let waits = writer.has_pending().then_some(self.written).flatten();
        let points = (!points.0.is_empty()).then_some(self.points_written);
        [waits, points.flatten()]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at + EVERY)
    }

    /// Writes what waits, where it is time or it is the end.
    fn write(&mut self, points: &mut Points, now: Instant, is_end: bool) -> std::io::Result<()> {
        let Some(writer) = &mut self.writer else {
            points.0.clear();
            return Ok(());
        };
        let is_due = |at: Option<Instant>| at.is_none_or(|at| at + EVERY <= now);
        let at_once = is_end || std::mem::take(&mut self.is_urgent);
        if !points.0.is_empty() && (at_once || is_due(self.points_written)) {
            self.points_written = Some(now);
            for (name, (at, value)) in std::mem::take(&mut points.0) {
                let fact = Fact {
                    version: VERSION,
                    seq: self.chronicle.next_seq(),
                    at,
                    what: What::Point {
                        name: name.to_owned(),
                        value: Figure(value),
                    },
                };
                self.chronicle.apply(&fact);
                writer.add(&fact);
            }
        }
        if !writer.has_pending() || !(at_once || is_due(self.written)) {
            return Ok(());
        }
        self.written = Some(now);
        writer.flush()
    }
}

impl Engine<'_> {
    /// Writes the facts that wait, where it is time or it is the end of the run.
    pub(super) fn write_facts(&mut self, now: Instant, is_end: bool) {
        let measured = self.steps.step_seconds();
        let points = &mut self.steps.points;
        points.complete(measured);
        let written = self.facts.write(points, now, is_end);
        self.outlet
            .save(|writer| written.map_err(|source| writer.facts_failed(source)));
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::{
        chronicle::{Outcome, adds_up},
        ledger::Phase,
    };

    use super::*;
    use crate::store::{FactsRead, RunFolder};

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
    }

    fn recorder(folder: &std::path::Path) -> (Recorder, RunFolder) {
        let writer = FactsWriter::create(&folder.join("facts.jsonl")).unwrap();
        let run = RunFolder {
            path: folder.to_owned(),
            job: "j".to_owned(),
            id: "1".to_owned(),
        };
        (Recorder::new(Some(writer), Places::new()), run)
    }

    fn read(run: &RunFolder) -> (Vec<Fact>, FactsRead) {
        run.facts().unwrap().unwrap()
    }

    #[test]
    fn facts_are_written_at_ends_and_once_a_second() {
        let temp = tempfile::tempdir().unwrap();
        let (mut recorder, run) = recorder(temp.path());
        let mut points = Points::default();
        let now = Instant::now();
        let mut status = JobStatus::default();
        let enter = |status: &mut JobStatus, phase, millis| {
            status.trainyard.attempt = 1;
            status.trainyard.ledger.enter(1, phase, at(millis));
        };
        enter(&mut status, Phase::Starting, 0);
        recorder.observe(&status, Vec::new(), at(0));
        recorder.write(&mut points, now, false).unwrap();
        let first = read(&run).0.len();
        assert!(first >= 2, "the attempt began");
        enter(&mut status, Phase::Training, 400);
        recorder.observe(&status, Vec::new(), at(400));
        let soon = now + Duration::from_millis(400);
        recorder.write(&mut points, soon, false).unwrap();
        assert_eq!(read(&run).0.len(), first, "not yet");
        assert_eq!(recorder.due(&points), Some(now + EVERY));
        recorder.write(&mut points, now + EVERY, false).unwrap();
        assert!(read(&run).0.len() > first);
        assert_eq!(recorder.due(&points), None);
        status.trainyard.ledger.end(at(1_500));
        recorder.observe(&status, Vec::new(), at(1_500));
        recorder.write(&mut points, now + EVERY, false).unwrap();
        let (facts, _) = read(&run);
        let outcome = Outcome::Unknown;
        assert_eq!(facts.last().unwrap().what, What::Ended { outcome });
        let chronicle = Chronicle::of_facts(&facts);
        assert!(adds_up(&chronicle, &status.trainyard.ledger, at(9_000)));
    }

    #[test]
    fn a_point_a_second_and_name_is_written() {
        let temp = tempfile::tempdir().unwrap();
        let (mut recorder, run) = recorder(temp.path());
        let mut points = Points::default();
        let now = Instant::now();
        for step in 0..30_u64 {
            let loss = if step == 12 { f64::NAN } else { 2.0 };
            let reading = Reading {
                step: Some(step),
                loss: Some(loss),
                ..Reading::default()
            };
            let millis = step * 100;
            points.take(&reading, Some(step), at(i64::try_from(millis).unwrap()));
            let then = now + Duration::from_millis(millis);
            recorder.write(&mut points, then, false).unwrap();
        }
        let later = now + Duration::from_millis(2_950);
        recorder.write(&mut points, later, true).unwrap();
        let (facts, _) = read(&run);
        let of = |wanted: &str| -> Vec<f64> {
            let values = facts.iter().filter_map(|fact| match &fact.what {
                What::Point { name, value } if name == wanted => Some(value.0),
                _ => None,
            });
            values.collect()
        };
        assert_eq!(of("step"), [0.0, 10.0, 20.0, 29.0]);
        let losses = of("loss");
        assert_eq!(losses.len(), 4);
        assert!(losses[2].is_nan(), "it is not lost to the ones after it");
    }
}
