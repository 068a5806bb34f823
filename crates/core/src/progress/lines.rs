//! From one line to what it reports, with what earlier lines of the same program said.
//!
//! Some programs split a report over lines: the epoch stands in one and the step of that epoch in another, and a bar
//! starts again in each epoch. What has to be remembered of that is small and of a fixed size.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::{
    Event, Reading, UserRules,
    bar::{self, Bar, Title},
    event,
    fields::{self, Fields},
};
use crate::line;

/// Bits of text of which a line must hold one to be looked at: most lines of most programs hold none.
static WORTH_READING: LazyLock<AhoCorasick> = LazyLock::new(|| {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build([
            "step", "iter", "loss", "epoch", "batch", "it/s", "s/it", "]\t", "it [", "sav", "eval",
            "predict", "valid", "updates", "running",
        ])
        .expect("these are few and short")
});

/// What was said so far in one stream, or by one rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineReader {
    bar: Option<Counted>,
    /// A bar that does not count as the training yet: its total and place.
    other: Option<(u64, u64)>,
    epochs: Epochs,
    keras: Option<Keras>,
    /// The program said that it evaluates; bars without a title belong to that.
    evaluates: bool,
}

/// The bar of the training.
#[derive(Clone, Copy, Debug)]
struct Counted {
    total: Option<u64>,
    place: u64,
    /// Steps of bars like it that are complete.
    before: u64,
}

/// Steps that start again in each epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Epochs {
    /// The number of the first epoch, 0 or 1, once that is known.
    first: Option<u64>,
    last: Option<u64>,
    /// Steps of the epochs before, where their number is not said.
    before: u64,
    /// The highest step of this one.
    highest: u64,
}

#[derive(Clone, Copy, Debug)]
struct Keras {
    epoch: u64,
    epochs: u64,
    /// Steps of an epoch, from its first bar.
    total: Option<u64>,
}

impl LineReader {
    /// Whether `raw` can report anything at all, without a rule of a user.
    pub(crate) fn is_worth_reading(raw: &[u8]) -> bool {
        WORTH_READING.is_match(raw)
    }

    /// What `raw` reports, where it reports anything.
    pub(crate) fn read(&mut self, raw: &[u8], rules: Option<&UserRules>) -> Option<Reading> {
        // A bar is read as soon as it is complete, so what follows it in the same line can never count.
        let raw = bar::end(raw).and_then(|end| raw.get(..end)).unwrap_or(raw);
        let added = rules.filter(|rules| !rules.is_empty());
        if added.is_none() && !Self::is_worth_reading(raw) {
            return None;
        }
        let mut scratch = Vec::new();
        let text = line::read(raw, &mut scratch).text;
        if let Some(reading) = added.and_then(|rules| rules.read(text)) {
            return Some(reading);
        }
        let text = text.to_ascii_lowercase();
        let reading = self.lower(&text)?;
        (reading != Reading::default()).then_some(reading)
    }

    fn lower(&mut self, text: &[u8]) -> Option<Reading> {
        if let Some(bar) = bar::tqdm(text).or_else(|| bar::rich(text)) {
            return self.bar(&bar);
        }
        if let Some((place, total, rest)) = bar::keras(text) {
            return self.keras(place, total, rest);
        }
        if let Some(bar) = bar::paddle(text).filter(|_| self.keras.is_some() || self.evaluates) {
            // The bar of an evaluation looks the same as that of the training.
            let (place, total, rest) = bar;
            return if self.evaluates {
                None
            } else {
                self.keras(place, total, rest)
            };
        }
        if let Some((step, loss)) = bar::boosting(text) {
            return Some(Reading {
                step: Some(step),
                loss,
                ..Reading::default()
            });
        }
        match event::of(text) {
            Some(event) => {
                // The step of a checkpoint may be long past when it is on the disk.
                self.evaluates |= event == Event::Evaluating;
                Some(Reading {
                    event: Some(event),
                    ..Reading::default()
                })
            }
            None => self.values(text),
        }
    }

    /// Names and values.
    fn values(&mut self, text: &[u8]) -> Option<Reading> {
        if memchr::memmem::find(text, b"running training").is_some() {
            self.evaluates = false;
            self.bar = None;
            self.other = None;
            return None;
        }
        let fields = fields::read(text);
        if fields.evaluates || is_result_of_evaluation(text) {
            return is_result_of_evaluation(text)
                .then_some(Event::Evaluating)
                .or_else(|| {
                    (fields.step.is_some() || fields.loss().is_some()).then_some(Event::Evaluating)
                })
                .map(|event| Reading {
                    event: Some(event),
                    ..Reading::default()
                });
        }
        // The last line of HF's trainer holds means over the whole training.
        if memchr::memmem::find(text, b"train_runtime").is_some() {
            return None;
        }
        if let (Some(epoch), Some(epochs)) = (fields.epoch, fields.epochs)
            && fields.step.is_none()
            && fields.batch.is_none()
            && fields.loss().is_none()
        {
            self.evaluates = false;
            self.keras = whole(epoch).map(|epoch| Keras {
                epoch,
                epochs,
                total: None,
            });
        }
        let (step, last_step) = self.step(&fields);
        let has_loss = fields.loss().is_some();
        if has_loss && let Some((total, place)) = self.other.take() {
            // The bar that was drawn last is that of the training after all.
            self.evaluates = false;
            self.bar = Some(Counted {
                total: Some(total),
                place,
                before: 0,
            });
        }
        let known = step.is_some() || has_loss || fields.epoch.is_some();
        known.then(|| Reading {
            last_step,
            ..reading(&fields, step)
        })
    }

    /// The step of a line of names and values, and the number of all steps.
    fn step(&mut self, fields: &Fields) -> (Option<u64>, Option<u64>) {
        let sure = fields.loss().is_some() || fields.epochs.is_some() || fields.is_only_batch();
        let (step, own) = match (fields.step, fields.batch, fields.epoch) {
            (Some((fields::GLOBAL, step)), ..) | (Some((_, step)), _, None) => {
                return (Some(step), fields.last_step);
            }
            (Some((_, step)), _, Some(epoch)) => {
                let total = fields.last_step;
                (self.epochs.step(whole(epoch), step, total), (step, total))
            }
            (None, Some((place, total)), Some(epoch)) if sure => match whole(epoch) {
                Some(epoch) => {
                    return (
                        Some(self.epochs.of(epoch, fields.epochs, place, total)),
                        None,
                    );
                }
                None => (place, (place, None)),
            },
            (None, Some((place, total)), None) if sure => {
                (self.count(Some(total), place), (place, Some(total)))
            }
            _ => return (None, None),
        };
        let (place, total) = own;
        (Some(step), total.filter(|_| step == place))
    }

    /// A bar of tqdm or rich.
    fn bar(&mut self, bar: &Bar<'_>) -> Option<Reading> {
        let fields = fields::read(bar.rest);
        let has_loss = fields.loss().is_some();
        let mut found = reading(&fields, None);
        found.step_seconds = bar.step_seconds.or(found.step_seconds);
        match bar.title {
            Title::Evaluation => {
                return Some(Reading {
                    event: Some(Event::Evaluating),
                    ..Reading::default()
                });
            }
            Title::Epochs => {
                found.epoch = Some(number(bar.place));
                found.step_seconds = None;
                return Some(found);
            }
            Title::Other if !has_loss => return None,
            _ => {}
        }
        if let Some((fields::GLOBAL, step)) = fields.step {
            found.step = Some(step);
            return Some(found);
        }
        let step = match bar.title {
            Title::Epoch(epoch, epochs) => {
                found.epoch = Some(number(epoch));
                // The version of a logger, which only Lightning shows, and it counts from 0.
                if memchr::memmem::find(bar.rest, b"v_num").is_some() {
                    self.epochs.first = Some(0);
                }
                match bar.total {
                    Some(total) => self.epochs.of(epoch, epochs, bar.place, total),
                    None => self.epochs.step(Some(epoch), bar.place, None),
                }
            }
            Title::None if !has_loss && !self.is_training_bar(bar) => return None,
            _ => {
                found.last_step = bar.total;
                let step = self.count(bar.total, bar.place);
                if step != bar.place {
                    found.last_step = None;
                }
                step
            }
        };
        if bar.place == 0 {
            // Drawn before the first step.
            return None;
        }
        found.step = Some(step);
        Some(found)
    }

    /// Whether a bar without a title and without a loss is that of the training: the first such bar is, and it is until
    /// a loss is reported beside another. What is drawn in between, or after it, evaluates.
    fn is_training_bar(&mut self, bar: &Bar<'_>) -> bool {
        let known = self.bar.is_some_and(|known| known.place > 0);
        let same = self.bar.is_some_and(|known| known.total == bar.total);
        if self.evaluates && !(known && same) {
            return false;
        }
        if known && !same {
            self.other = bar.total.map(|total| (total, bar.place));
            return false;
        }
        self.evaluates = false;
        true
    }

    /// The step of a bar that starts again when it is complete.
    fn count(&mut self, total: Option<u64>, place: u64) -> u64 {
        let before = match self.bar {
            Some(known) if known.total == total && place < known.place => {
                known.before
                    + if Some(known.place) == total {
                        known.place
                    } else {
                        0
                    }
            }
            Some(known) if known.total == total => known.before,
            _ => 0,
        };
        self.other = None;
        self.bar = Some(Counted {
            total,
            place,
            before,
        });
        before.saturating_add(place)
    }

    fn keras(&mut self, place: u64, total: u64, rest: &[u8]) -> Option<Reading> {
        let keras = self.keras.as_mut()?;
        let fields = fields::read(rest);
        // A bar of another length behind the epochs evaluates or predicts.
        if *keras.total.get_or_insert(total) != total || fields.loss().is_none() && place > 1 {
            return None;
        }
        let step = keras
            .epoch
            .saturating_sub(1)
            .saturating_mul(total)
            .saturating_add(place);
        let mut found = reading(&fields, Some(step));
        found.last_step = keras.epochs.checked_mul(total);
        found.epoch = Some(number(keras.epoch));
        Some(found)
    }
}

impl Epochs {
    /// The step of the training, of a program that says how many steps an epoch has.
    fn of(&mut self, epoch: u64, epochs: Option<u64>, place: u64, total: u64) -> u64 {
        // `Epoch 1/5` counts from 1; `Epoch 0` says by itself that it counts from 0.
        let first = *self
            .first
            .get_or_insert(u64::from(epochs.is_some() && epoch > 0 || epoch == 1));
        if epoch < first {
            self.first = Some(epoch);
        }
        let done = epoch.saturating_sub(first.min(epoch));
        done.saturating_mul(total).saturating_add(place)
    }

    /// The step of the training, of a program whose steps may start again in each epoch.
    fn step(&mut self, epoch: Option<u64>, step: u64, total: Option<u64>) -> u64 {
        let Some(epoch) = epoch else {
            return step;
        };
        if self.last.is_some_and(|last| epoch > last) && step < self.highest {
            let steps = total.map_or(self.highest, |total| total.max(self.highest));
            self.before = self.before.saturating_add(steps);
            self.highest = 0;
        }
        self.last = Some(epoch);
        self.highest = self.highest.max(step);
        self.before.saturating_add(step)
    }
}

fn reading(fields: &Fields, step: Option<u64>) -> Reading {
    Reading {
        step,
        last_step: None,
        epoch: fields.epoch,
        loss: fields.loss(),
        grad_norm: fields.grad_norm,
        learning_rate: fields.learning_rate,
        tokens_per_second: fields.tokens_per_second,
        samples_per_second: fields.samples_per_second(),
        step_seconds: fields.step_seconds,
        event: None,
    }
}

/// `{'eval_loss': 0.5, 'eval_runtime': 1.2, 'epoch': 1.0}`.
fn is_result_of_evaluation(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"eval_loss").is_some()
        && memchr::memmem::find(text, b"eval_runtime").is_some()
}

#[expect(clippy::cast_precision_loss, reason = "epochs are few")]
fn number(epoch: u64) -> f64 {
    epoch as f64
}

/// An epoch that is not a part of one.
fn whole(epoch: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be a whole number of a size that fits"
    )]
    (epoch.fract() == 0.0 && (0.0..1e9).contains(&epoch)).then_some(epoch as u64)
}
