//! What a program writes into the file that `TRAINYARD_BEAT` names: `step=120 loss=0.5 phase=train`.
//!
//! Owns the words and their meaning. Does not read files, and trusts nothing: what is not understood is ignored word by word.

use super::{Phase, Signal, Step};
use crate::progress::Reading;

/// How many bytes of the file are read, from its end.
pub const HEARTBEAT_BYTES: usize = 4096;

/// One heartbeat.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heartbeat {
    /// `step=N`.
    pub step: Option<u64>,
    /// `loss=X`. It can be NaN or infinite.
    pub loss: Option<f64>,
    /// `grad_norm=X`. It can be NaN or infinite.
    pub grad_norm: Option<f64>,
    /// `phase=train|eval|save|load|compile`.
    pub phase: Option<Phase>,
}

impl PartialEq for Heartbeat {
    /// The same words: NaN is equal to itself.
    fn eq(&self, other: &Self) -> bool {
        let bits = |number: Option<f64>| number.map(f64::to_bits);
        self.step == other.step
            && self.phase == other.phase
            && bits(self.loss) == bits(other.loss)
            && bits(self.grad_norm) == bits(other.grad_norm)
    }
}

impl Heartbeat {
    /// The heartbeat in a file that ends with `bytes`; `whole` where they are all of it.
    ///
    /// The last line that ends counts, so that a program may append; a file of one line need not end it. Nothing where no word
    /// is understood.
    pub fn parse(bytes: &[u8], whole: bool) -> Option<Self> {
        let line = last_line(bytes, whole)?;
        let mut beat = Self::default();
        for word in line.split(u8::is_ascii_whitespace) {
            let Some((name, value)) = str::from_utf8(word)
                .ok()
                .and_then(|word| word.split_once('='))
            else {
                continue;
            };
            match name {
                "step" => beat.step = value.parse().ok().or(beat.step),
                "loss" => beat.loss = value.parse().ok().or(beat.loss),
                "grad_norm" => beat.grad_norm = value.parse().ok().or(beat.grad_norm),
                "phase" => beat.phase = Phase::parse(value).or(beat.phase),
                _ => {}
            }
        }
        (beat != Self::default()).then_some(beat)
    }

    /// Whether it is about a step of training. The loss of an evaluation is not.
    fn trains(&self) -> bool {
        let in_training = matches!(self.phase, None | Some(Phase::Train));
        in_training && (self.step.is_some() || self.loss.is_some())
    }

    /// What it says after `before` of the same rank. One that repeats the last is no step, because a thread of its own may
    /// write it.
    pub fn signals(&self, before: Option<&Self>) -> impl Iterator<Item = Signal> {
        let is_step = self.trains() && before != Some(self);
        let step = is_step.then_some(Signal::Step(Step {
            step: self.step,
            step_time: None,
            loss: self.loss,
            grad_norm: self.grad_norm,
        }));
        // The phase comes last, as in a line.
        let beat = (!is_step || self.phase.is_some()).then_some(Signal::Beat {
            phase: self.phase,
            step: self.step,
        });
        step.into_iter().chain(beat)
    }

    /// The same as a line that was read, for the progress of the attempt.
    pub fn reading(&self) -> Option<Reading> {
        self.trains().then(|| Reading {
            step: self.step,
            loss: self.loss,
            grad_norm: self.grad_norm,
            ..Reading::default()
        })
    }
}

fn last_line(bytes: &[u8], whole: bool) -> Option<&[u8]> {
    let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
        return whole.then_some(bytes);
    };
    let ended = bytes.get(..end)?;
    match ended.iter().rposition(|byte| *byte == b'\n') {
        Some(before) => ended.get(before + 1..),
        None => whole.then_some(ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(
        clippy::unnecessary_wraps,
        reason = "what is read may be nothing, and the cases say so beside each other"
    )]
    fn beat(
        step: Option<u64>,
        loss: Option<f64>,
        grad_norm: Option<f64>,
        phase: Option<Phase>,
    ) -> Option<Heartbeat> {
        Some(Heartbeat {
            step,
            loss,
            grad_norm,
            phase,
        })
    }

    #[test]
    fn heartbeats_are_read() {
        let step = |step| beat(Some(step), None, None, None);
        let nan = f64::NAN;
        let cases: [(&[u8], bool, Option<Heartbeat>); 24] = [
            (b"step=12", true, step(12)),
            (b"step=12\n", true, step(12)),
            (
                b"step=12 loss=0.5 grad_norm=1e-3 phase=train",
                true,
                beat(Some(12), Some(0.5), Some(0.001), Some(Phase::Train)),
            ),
            (
                b"phase=save",
                true,
                beat(None, None, None, Some(Phase::Save)),
            ),
            (
                b"phase=eval",
                true,
                beat(None, None, None, Some(Phase::Evaluate)),
            ),
            (
                b"phase=load",
                true,
                beat(None, None, None, Some(Phase::Load)),
            ),
            (
                b"phase=compile\t",
                true,
                beat(None, None, None, Some(Phase::Compile)),
            ),
            (b"loss=nan", true, beat(None, Some(nan), None, None)),
            (
                b"loss=-inf step=3",
                true,
                beat(Some(3), Some(f64::NEG_INFINITY), None, None),
            ),
            // Other words of a later version, and words that make no sense.
            (b"step=4 tokens=9 loss=tensor(0.5) x", true, step(4)),
            (b"step=4 step=5", true, step(5)),
            (b"step=4 step=-1", true, step(4)),
            (b"step=18446744073709551615", true, step(u64::MAX)),
            (b"step=18446744073709551616", true, None),
            (b"step=1.5", true, None),
            (b"", true, None),
            (b"\n\n", true, None),
            (b"hello world", true, None),
            (b"\xff\xfe\0\0step=1", true, None),
            (b"\xff step=1", true, step(1)),
            // Appended: the last line that ends counts.
            (b"step=1\nstep=2\nstep=", true, step(2)),
            (b"step=1\nstep=2\n", true, step(2)),
            // Only the end of the file: its first line may have lost its beginning.
            (b"3\nstep=14\n", false, step(14)),
            (b"step=3 loss=1", false, None),
        ];
        for (bytes, whole, want) in cases {
            let found = Heartbeat::parse(bytes, whole);
            assert_eq!(found, want, "{:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(Heartbeat::parse(b"3 step=14\n", false), None);
        let long = vec![b'a'; HEARTBEAT_BYTES];
        assert_eq!(Heartbeat::parse(&long, false), None);
        let words = b"step=1 ".repeat(HEARTBEAT_BYTES / 7);
        assert_eq!(Heartbeat::parse(&words, true), step(1));
    }

    #[test]
    fn signals_of_heartbeats() {
        let parse = |text: &str| Heartbeat::parse(text.as_bytes(), true);
        let step = |step: Option<u64>, loss: Option<f64>| {
            Signal::Step(Step {
                step,
                loss,
                ..Step::default()
            })
        };
        let beat = |phase, step| Signal::Beat { phase, step };
        let train = Some(Phase::Train);
        let cases = [
            ("step=2 loss=0.5", "", vec![step(Some(2), Some(0.5))]),
            (
                "step=2 phase=train",
                "",
                vec![step(Some(2), None), beat(train, Some(2))],
            ),
            ("loss=0.5", "", vec![step(None, Some(0.5))]),
            // A thread that only repeats the last words makes no progress.
            ("loss=0.5", "loss=0.5", vec![beat(None, None)]),
            ("step=2", "step=2", vec![beat(None, Some(2))]),
            ("step=3", "step=2", vec![step(Some(3), None)]),
            (
                "step=3 loss=1 phase=save",
                "step=3 loss=1",
                vec![beat(Some(Phase::Save), Some(3))],
            ),
            (
                "loss=9 phase=eval",
                "",
                vec![beat(Some(Phase::Evaluate), None)],
            ),
            ("grad_norm=1", "", vec![beat(None, None)]),
        ];
        for (text, before, want) in cases {
            let found = parse(text).expect("a heartbeat");
            let before = parse(before);
            let signals: Vec<Signal> = found.signals(before.as_ref()).collect();
            assert_eq!(signals, want, "{text} after {before:?}");
            let trains = want.iter().any(|signal| matches!(signal, Signal::Step(_)));
            let trains = trains || before == Some(found) && found.phase.is_none();
            assert_eq!(found.reading().is_some(), trains, "{text}");
        }
        let nan = parse("loss=nan").expect("a heartbeat");
        assert_eq!(nan.signals(Some(&nan)).count(), 1, "NaN repeats itself");
    }
}
