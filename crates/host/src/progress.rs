//! Step and loss in the output of a training script.
//!
//! Scripts say it in many ways: `step 120 loss 0.43`, `Step: 120/1000, loss=0.43`,
//! `{"step": 120, "loss": 0.43}`, `Epoch 1 Iter 120 train_loss: 0.43`. What follows one of the
//! known words, after at most a few signs, is taken as its number.
//!
//! Invariant: the work is bounded by [`WINDOW`], however much a script writes.

/// How much of the end of a piece of output is looked at.
const WINDOW: usize = 4 << 10;

/// What a script said last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    pub(crate) step: Option<u64>,
    pub(crate) loss: Option<f64>,
    pub(crate) saving: bool,
}

/// Reads the last step and loss in `output`.
pub(crate) fn read(output: &[u8]) -> Reading {
    let start = output.len().saturating_sub(WINDOW);
    let window = output.get(start..).unwrap_or_default();
    let mut reading = Reading::default();
    // From the end: a rank that floods its log mostly says what is wanted in its last line.
    for line in window.rsplit(|byte| *byte == b'\n') {
        if reading.step.is_some() && reading.loss.is_some() {
            break;
        }
        let line = String::from_utf8_lossy(line).to_lowercase();
        if reading.loss.is_none() {
            reading.loss = number_after(&line, "loss").and_then(|number| number.parse().ok());
        }
        if reading.step.is_none() {
            // What is being saved since the last step.
            reading.saving |= line.contains("saving checkpoint");
            reading.step = ["step", "iteration", "iter"]
                .iter()
                .find_map(|word| number_after(&line, word))
                .and_then(|number| number.parse().ok());
        }
    }
    reading
}

/// The number behind the first `word` of `line` that has one.
fn number_after<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let mut rest = line;
    while let Some((before, after)) = rest.split_once(word) {
        rest = after;
        // `timestep` and `loss_scale` are other words; `train_loss` is this one.
        if before.ends_with(|c: char| c.is_alphanumeric()) {
            continue;
        }
        let signs = after.trim_start_matches(|c: char| " :=\"'[#\t".contains(c));
        if after.len() - signs.len() > 4 {
            continue;
        }
        let end = signs
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | 'e' | '-' | '+')))
            .unwrap_or(signs.len());
        let number = signs.split_at(end).0.trim_end_matches(['.', '-', '+', 'e']);
        if number.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-') {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_say() {
        let cases: &[(&str, Option<u64>, Option<f64>)] = &[
            ("step 120 loss 0.43", Some(120), Some(0.43)),
            ("Step: 120/1000, loss=0.43, lr 1e-3", Some(120), Some(0.43)),
            (r#"{"step": 120, "loss": 4.3e-1}"#, Some(120), Some(0.43)),
            ("Epoch 1 Iter 7 train_loss: 0.5", Some(7), Some(0.5)),
            ("[step 9] val_loss 2.", Some(9), Some(2.0)),
            ("global_step=3", Some(3), None),
            ("step 1\nstep 2\nloss 0.1\n", Some(2), Some(0.1)),
            ("timestep 5", None, None),
            ("loss_scale 65536", None, None),
            ("the next step is unclear", None, None),
            ("steps per second 4", None, None),
            ("", None, None),
        ];
        for (text, step, loss) in cases {
            let reading = read(text.as_bytes());
            assert_eq!((reading.step, reading.loss), (*step, *loss), "{text:?}");
        }
        assert!(read(b"saving checkpoint at step 5").saving);
        assert!(read(b"step 5\nsaving checkpoint\nloss 0.1\n").saving);
        assert!(!read(b"saving checkpoint\nstep 6").saving);
    }

    #[test]
    fn only_the_end_is_looked_at() {
        let mut long = b"step 1\n".to_vec();
        long.resize(WINDOW * 2, b'x');
        assert_eq!(read(&long), Reading::default());
        long.extend(b"\nstep 2\n");
        assert_eq!(read(&long).step, Some(2));
    }
}
