//! The loop: a batch, its gradient summed over the ranks, a step; reports and saves between steps.
//!
//! Every rank holds the whole state and takes the same steps; rank 0 alone reports and saves.
//!
//! Invariant: the state changes only after the sum of a step is complete, so at any moment, even
//! when a rank is lost, it is the state after a whole number of steps and may be saved.

mod report;

use std::io::Write;

use self::report::Report;
use crate::{
    Outcome, SmokeError,
    checkpoint::Folder,
    digest::Digest,
    digits::Digits,
    join::{self, JoinError, Joining},
    model::{self, Score, Scratch, Shape},
    options::Options,
    ring::{Ring, RingError},
    sampler::{Sampler, share},
    state::{Identity, State},
    stop::Stop,
    world::World,
};

/// Values that are summed behind the gradient: loss, correct guesses, ranks asked to stop.
const EXTRAS: usize = 3;

/// Trains as one rank of `world`.
pub(crate) fn train(
    options: &Options,
    world: &World,
    stop: &Stop,
    out: &mut dyn Write,
) -> Result<Outcome, SmokeError> {
    let digits = Digits::bundled();
    let mut report = Report::new(out, options.report_every);
    let folder = match &options.checkpoint_dir {
        Some(path) if world.rank() == 0 => {
            Some(Folder::open(path, options.keep).map_err(SmokeError::Checkpoint)?)
        }
        _ => None,
    };
    let mut ring = match join(options, world, &digits, stop, &mut report) {
        Ok(ring) => ring,
        Err(SmokeError::Join(JoinError::Asked)) => {
            report.line("asked to stop before the first step")?;
            return Ok(Outcome::Left);
        }
        Err(error) => return Err(error),
    };

    let ended =
        begin(options, &digits, folder.as_ref(), &mut ring, &mut report).and_then(|state| {
            let run = Run {
                options,
                digits: &digits,
                folder: folder.as_ref(),
                saved_step: state.step,
                sampler: Sampler::at(options.seed, digits.train.len(), state.cursor),
                state,
                ring: &mut ring,
                stop,
                report: &mut report,
            };
            run.complete()
        });
    match ended {
        Ok(outcome) => Ok(outcome),
        Err(Break::Asked) => {
            ring.notify_exit(None);
            Ok(Outcome::Left)
        }
        Err(Break::Failed(error)) => {
            let lost = match &error {
                SmokeError::Lost(lost) => Some(lost),
                _ => None,
            };
            ring.notify_exit(lost);
            Err(error)
        }
    }
}

/// Why a run breaks off.
#[derive(Debug)]
enum Break {
    /// This rank was asked to stop, and the others did not complete the step.
    Asked,
    Failed(SmokeError),
}

impl From<SmokeError> for Break {
    fn from(error: SmokeError) -> Self {
        Self::Failed(error)
    }
}

impl From<RingError> for Break {
    fn from(error: RingError) -> Self {
        match error {
            RingError::Asked => Self::Asked,
            RingError::Lost(lost) => Self::Failed(SmokeError::Lost(lost)),
        }
    }
}

fn join(
    options: &Options,
    world: &World,
    digits: &Digits,
    stop: &Stop,
    report: &mut Report<'_>,
) -> Result<Ring, SmokeError> {
    let World::Member(member) = world else {
        return Ok(Ring::alone(stop));
    };
    let joining = Joining {
        member,
        token: token(options, world.size(), digits),
        join_limit: options.join_timeout,
        peer_limit: options.peer_timeout,
        stop,
    };
    join::join(joining, &mut |sentence| report.write(sentence)).map_err(SmokeError::Join)
}

/// Checksum of everything that must be equal on all ranks.
fn token(options: &Options, size: usize, digits: &Digits) -> u64 {
    Digest::new()
        .number(options.epochs)
        .number(options.batch as u64)
        .number(u64::from(options.learning_rate.to_bits()))
        .number(options.hidden as u64)
        .number(options.seed)
        .number(u64::from(options.target_accuracy.to_bits()))
        .number(digits.digest)
        .number(size as u64)
        .finish()
}

/// The state to start from: rank 0 loads and broadcasts it.
fn begin(
    options: &Options,
    digits: &Digits,
    folder: Option<&Folder>,
    ring: &mut Ring,
    report: &mut Report<'_>,
) -> Result<State, Break> {
    let identity = Identity {
        seed: options.seed,
        data: digits.digest,
        shape: Shape {
            hidden: options.hidden,
        },
    };
    let place = ring.place();
    let mut bytes = Vec::new();
    if place.rank == 0 {
        let loaded = match folder {
            Some(folder) => folder
                .load(&identity, &mut |sentence| report.warning(sentence))
                .map_err(SmokeError::Checkpoint)?,
            None => None,
        };
        bytes = loaded.unwrap_or_else(|| State::first(identity)).encode();
    }
    ring.broadcast(&mut bytes)?;
    let handout = |why: &str| SmokeError::Handout {
        why: why.to_owned(),
    };
    let mut state = State::decode(&bytes).map_err(|error| handout(&error.to_string()))?;
    if state.identity != identity || state.cursor.position > digits.train.len() {
        return Err(handout("it belongs to another run").into());
    }
    report.line(&format!("rank {} of {} ready", place.rank, place.size))?;
    if state.step > 0 && place.rank == 0 {
        report.line(&format!("resumed from step {}", state.step))?;
        if state.world_size != place.size {
            let sentence = format!("world size is {}, was {}", place.size, state.world_size);
            report.line(&sentence)?;
        }
    }
    state.world_size = place.size;
    Ok(state)
}

/// A run under way.
struct Run<'a, 'out> {
    options: &'a Options,
    digits: &'a Digits,
    /// Where rank 0 saves.
    folder: Option<&'a Folder>,
    saved_step: u64,
    sampler: Sampler,
    state: State,
    ring: &'a mut Ring,
    stop: &'a Stop,
    report: &'a mut Report<'out>,
}

/// What a step showed, over all ranks.
struct Step {
    samples: usize,
    score: Score,
    /// Some rank was asked to stop.
    leave: bool,
}

impl Run<'_, '_> {
    fn complete(mut self) -> Result<Outcome, Break> {
        let trained = self.steps();
        let leave = match trained {
            Ok(leave) => leave,
            Err(error) => {
                // The state is whole; with it, the next attempt loses nothing.
                let ends_here = matches!(error, Break::Asked | Break::Failed(SmokeError::Lost(_)));
                if ends_here && let Err(unsaved) = self.save_if_due(1) {
                    self.report.warning_of(&unsaved)?;
                }
                return Err(error);
            }
        };
        self.save_if_due(1)?;
        // No rank exits before the save is done, or with weights that differ from the others.
        let digest = Digest::of_values(&self.state.weights);
        self.ring.agree(digest)?;
        if leave {
            let sentence = format!("asked to stop: stopped after step {}", self.state.step);
            self.report.line(&sentence)?;
            return Ok(Outcome::Left);
        }
        Ok(self.conclude(digest)?)
    }

    /// Trains until the last epoch is complete, or until a rank is asked to stop; returns whether one was.
    fn steps(&mut self) -> Result<bool, Break> {
        let shape = self.state.identity.shape;
        let mut sums = vec![0.0; shape.parameters() + EXTRAS];
        let mut scratch = shape.scratch();
        let left = self
            .sampler
            .steps_left(self.options.epochs, self.options.batch);
        let total = self.state.step + left;
        self.report.begin();
        while self.state.step < total {
            let epoch = self.sampler.cursor().epoch + 1;
            let step = self.step(&mut sums, &mut scratch)?;
            if self.ring.place().rank == 0 {
                let step_of = (self.state.step, total);
                self.report.step(step_of, epoch, step.samples, step.score)?;
            }
            if step.leave {
                return Ok(true);
            }
            if self.state.step < total
                && let Err(unsaved) = self.save_if_due(self.options.save_every)
            {
                // A failed save does not fail the run, unless it is the last one.
                self.report.warning_of(&unsaved)?;
            }
        }
        Ok(false)
    }

    /// One step of all ranks together.
    fn step(&mut self, sums: &mut [f32], scratch: &mut Scratch) -> Result<Step, Break> {
        let shape = self.state.identity.shape;
        let place = self.ring.place();
        let batch = self.sampler.batch(self.options.batch);
        let samples = batch.len();
        sums.fill(0.0);
        let (gradient, extras) = sums.split_at_mut(shape.parameters());
        for at in share(batch, place.rank, place.size) {
            let sample = &self.digits.train[*at];
            let score = shape.add_gradient(&self.state.weights, sample, gradient, scratch);
            extras[0] += score.loss;
            extras[1] += score.correct;
        }
        self.ring.delay_step(self.options.step_delay)?;
        extras[2] = if self.stop.requested() { 1.0 } else { 0.0 };
        self.ring.sum(sums)?;

        let (gradient, extras) = sums.split_at(shape.parameters());
        if !extras[0].is_finite() {
            let step = self.state.step + 1;
            return Err(SmokeError::Diverged { step }.into());
        }
        model::descend(
            &mut self.state.weights,
            &mut self.state.velocity,
            gradient,
            samples,
            self.options.learning_rate,
        );
        self.sampler.advance(samples);
        self.state.cursor = self.sampler.cursor();
        self.state.step += 1;
        Ok(Step {
            samples,
            score: Score {
                loss: extras[0],
                correct: extras[1],
            },
            leave: extras[2] > 0.0,
        })
    }

    /// Saves where there is a place for it, a step that is a multiple of `every` and not yet saved.
    fn save_if_due(&mut self, every: u64) -> Result<(), SmokeError> {
        let Some(folder) = self.folder else {
            return Ok(());
        };
        if self.state.step == self.saved_step || !self.state.step.is_multiple_of(every) {
            return Ok(());
        }
        let saved = folder.save(&self.state).map_err(SmokeError::Checkpoint)?;
        self.saved_step = self.state.step;
        self.report.saved(self.state.step, &saved)
    }

    /// Prints the result. Every rank computes it for itself: all hold the same weights.
    fn conclude(&mut self, digest: u64) -> Result<Outcome, SmokeError> {
        let shape = self.state.identity.shape;
        let accuracy = shape.accuracy(&self.state.weights, &self.digits.test);
        let target = self.options.target_accuracy;
        let (outcome, word) = if accuracy >= target {
            (Outcome::Reached, "done")
        } else {
            (Outcome::Missed, "missed")
        };
        let place = self.ring.place();
        if place.rank == 0 {
            self.report.line(&format!("weights {digest:016x}"))?;
            let step = self.state.step;
            self.report.line(&format!(
                "{word}: test accuracy {accuracy:.3} (target {target}) after {step} steps"
            ))?;
        } else {
            self.report
                .line(&format!("rank {} of {} {word}", place.rank, place.size))?;
        }
        Ok(outcome)
    }
}
