//! The output of a run: one line per report, for people and for parsers.

use std::{
    error::Error,
    io::{self, Write},
    time::Instant,
};

use crate::{
    SmokeError,
    checkpoint::Saved,
    model::{Score, count},
};

/// Writes the lines of one rank, each at once.
pub(super) struct Report<'a> {
    out: &'a mut dyn Write,
    every: u64,
    /// Since the last step that was reported.
    since: Instant,
    samples: usize,
    score: Score,
}

impl<'a> Report<'a> {
    pub(super) fn new(out: &'a mut dyn Write, every: u64) -> Self {
        Self {
            out,
            every,
            since: Instant::now(),
            samples: 0,
            score: Score::default(),
        }
    }

    /// A line as it is. One write, so that lines of several ranks on one pipe do not mix.
    pub(super) fn write(&mut self, sentence: &str) -> io::Result<()> {
        self.out.write_all(format!("{sentence}\n").as_bytes())?;
        self.out.flush()
    }

    pub(super) fn line(&mut self, sentence: &str) -> Result<(), SmokeError> {
        self.write(sentence).map_err(SmokeError::Output)
    }

    pub(super) fn warning(&mut self, sentence: &str) -> io::Result<()> {
        self.write(&format!("warning: {sentence}"))
    }

    /// A warning with its causes.
    pub(super) fn warning_of(&mut self, error: &dyn Error) -> Result<(), SmokeError> {
        let mut sentence = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            sentence = format!("{sentence}: {error}");
            cause = error.source();
        }
        self.warning(&sentence).map_err(SmokeError::Output)
    }

    pub(super) fn saved(&mut self, step: u64, saved: &Saved) -> Result<(), SmokeError> {
        self.line(&format!(
            "saved step {step} ({} kB, {} ms) to {}",
            saved.bytes.div_ceil(1000),
            saved.took.as_millis(),
            saved.path.display()
        ))
    }

    /// Steps are timed from here on.
    pub(super) fn begin(&mut self) {
        self.since = Instant::now();
    }

    /// Notes a step, and prints a line when one is due: means since the previous line.
    pub(super) fn step(
        &mut self,
        (step, total): (u64, u64),
        epoch: u64,
        samples: usize,
        score: Score,
    ) -> Result<(), SmokeError> {
        self.samples += samples;
        self.score.loss += score.loss;
        self.score.correct += score.correct;
        if !step.is_multiple_of(self.every) && step != total {
            return Ok(());
        }
        let seen = count(self.samples);
        let rate = seen / self.since.elapsed().as_secs_f32().max(1e-6);
        let (loss, accuracy) = (self.score.loss / seen, self.score.correct / seen);
        self.samples = 0;
        self.score = Score::default();
        self.since = Instant::now();
        self.line(&format!(
            "step {step}/{total} epoch {epoch} loss {loss:.4} accuracy {accuracy:.2} samples/s {rate:.0}"
        ))
    }
}
