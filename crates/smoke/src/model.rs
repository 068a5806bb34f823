//! The network: 64 pixels, one hidden layer, 10 digits; softmax cross entropy, SGD with momentum.
//!
//! Parameters lie in one vector, in this order: weights of the hidden layer (a row per pixel), its
//! biases, weights of the output (a row per hidden unit), its biases. That is also the vector that
//! is summed over the ranks and saved.
//!
//! Invariant: every sum is taken in one fixed order, so the same input gives the same bits.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use crate::digits::{CLASSES, PIXELS, Sample};

const MOMENTUM: f32 = 0.9;
/// Stream of the generator for the first weights; the sampler draws from stream 0.
const WEIGHT_STREAM: u64 = 1;

/// How wide the network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) hidden: usize,
}

/// What a sample, or the sum of many, showed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Score {
    pub(crate) loss: f32,
    /// Samples whose digit was found. A whole number; a float because it is summed over the ranks
    /// with the gradient.
    pub(crate) correct: f32,
}

/// Room for the activations of one sample, used again for each.
#[derive(Debug)]
pub(crate) struct Scratch {
    hidden: Vec<f32>,
    hidden_slope: Vec<f32>,
    output: [f32; CLASSES],
}

/// The parameter vector, cut into its parts.
struct Layers<'a> {
    hidden_weights: &'a [f32],
    hidden_biases: &'a [f32],
    output_weights: &'a [[f32; CLASSES]],
    output_biases: &'a [f32],
}

impl Shape {
    /// Length of the parameter vector.
    pub(crate) fn parameters(self) -> usize {
        self.hidden * (PIXELS + 1 + CLASSES) + CLASSES
    }

    /// The first weights for `seed`: uniform, with the variance that suits rectified units.
    pub(crate) fn first_weights(self, seed: u64) -> Vec<f32> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(WEIGHT_STREAM);
        let mut weights = vec![0.0; self.parameters()];
        let (hidden, rest) = weights.split_at_mut(PIXELS * self.hidden);
        let (_, rest) = rest.split_at_mut(self.hidden);
        let (output, _) = rest.split_at_mut(self.hidden * CLASSES);
        for (part, inputs) in [(hidden, PIXELS), (output, self.hidden)] {
            let bound = (6.0 / count(inputs)).sqrt();
            for weight in part {
                // The upper 16 bits, scaled to -1..1.
                let [.., low, high] = random.next_u32().to_le_bytes();
                let unit = f32::from(u16::from_le_bytes([low, high])) / f32::from(u16::MAX);
                *weight = bound * (2.0 * unit - 1.0);
            }
        }
        weights
    }

    pub(crate) fn scratch(self) -> Scratch {
        Scratch {
            hidden: vec![0.0; self.hidden],
            hidden_slope: vec![0.0; self.hidden],
            output: [0.0; CLASSES],
        }
    }

    fn layers(self, parameters: &[f32]) -> Layers<'_> {
        let (hidden_weights, rest) = parameters.split_at(PIXELS * self.hidden);
        let (hidden_biases, rest) = rest.split_at(self.hidden);
        let (output_weights, output_biases) = rest.split_at(self.hidden * CLASSES);
        Layers {
            hidden_weights,
            hidden_biases,
            output_weights: output_weights.as_chunks().0,
            output_biases,
        }
    }

    /// Fills `scratch` with the activations of `pixels`; the outputs are not normalised.
    fn forward(self, weights: &[f32], pixels: &[f32; PIXELS], scratch: &mut Scratch) {
        let layers = self.layers(weights);
        scratch.hidden.copy_from_slice(layers.hidden_biases);
        let rows = layers.hidden_weights.chunks_exact(self.hidden);
        for (pixel, row) in pixels.iter().zip(rows) {
            add_scaled(&mut scratch.hidden, *pixel, row);
        }
        scratch.output.copy_from_slice(layers.output_biases);
        for (unit, row) in scratch.hidden.iter_mut().zip(layers.output_weights) {
            *unit = unit.max(0.0);
            add_scaled(&mut scratch.output, *unit, row);
        }
    }

    /// Adds the gradient of `sample` to `gradient` and returns its score.
    pub(crate) fn add_gradient(
        self,
        weights: &[f32],
        sample: &Sample,
        gradient: &mut [f32],
        scratch: &mut Scratch,
    ) -> Score {
        self.forward(weights, &sample.pixels, scratch);
        let correct = if guess(&scratch.output) == sample.label {
            1.0
        } else {
            0.0
        };
        let loss = softmax_slope(&mut scratch.output, sample.label);
        let slope = &scratch.output;

        let (hidden_weights, rest) = gradient.split_at_mut(PIXELS * self.hidden);
        let (hidden_biases, rest) = rest.split_at_mut(self.hidden);
        let (output_weights, output_biases) = rest.split_at_mut(self.hidden * CLASSES);
        add_scaled(output_biases, 1.0, slope);
        let units = scratch.hidden.iter().zip(&mut scratch.hidden_slope);
        let rows = output_weights
            .as_chunks_mut::<CLASSES>()
            .0
            .iter_mut()
            .zip(self.layers(weights).output_weights);
        for ((unit, unit_slope), (row, weights)) in units.zip(rows) {
            add_scaled(row, *unit, slope);
            // A unit that is off passes nothing back.
            *unit_slope = if *unit > 0.0 {
                weights.iter().zip(slope).map(|(a, b)| a * b).sum()
            } else {
                0.0
            };
        }
        add_scaled(hidden_biases, 1.0, &scratch.hidden_slope);
        let rows = hidden_weights.chunks_exact_mut(self.hidden);
        for (pixel, row) in sample.pixels.iter().zip(rows) {
            add_scaled(row, *pixel, &scratch.hidden_slope);
        }
        Score { loss, correct }
    }

    /// The share of `samples` whose digit is found.
    pub(crate) fn accuracy(self, weights: &[f32], samples: &[Sample]) -> f32 {
        let mut scratch = self.scratch();
        let found = samples.iter().filter(|sample| {
            self.forward(weights, &sample.pixels, &mut scratch);
            guess(&scratch.output) == sample.label
        });
        count(found.count()) / count(samples.len())
    }
}

/// One step of SGD with momentum, along the mean of a `gradient` that was summed over `samples`.
pub(crate) fn descend(
    weights: &mut [f32],
    velocity: &mut [f32],
    gradient: &[f32],
    samples: usize,
    learning_rate: f32,
) {
    let mean = 1.0 / count(samples);
    let parameters = weights.iter_mut().zip(velocity).zip(gradient);
    for ((weight, velocity), slope) in parameters {
        *velocity = MOMENTUM * *velocity + slope * mean;
        *weight -= learning_rate * *velocity;
    }
}

/// A count as a number to divide by; counts here are far below the 24 bits that an `f32` holds
/// exactly.
#[expect(
    clippy::cast_precision_loss,
    reason = "batches, layers and test sets are bounded far below 2^24"
)]
pub(crate) fn count(number: usize) -> f32 {
    number as f32
}

fn add_scaled(sum: &mut [f32], factor: f32, values: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * value;
    }
}

fn guess(output: &[f32; CLASSES]) -> usize {
    let mut best = 0;
    for (digit, value) in output.iter().enumerate() {
        if *value > output[best] {
            best = digit;
        }
    }
    best
}

/// Turns outputs into the slope of the loss at them, and returns the loss.
fn softmax_slope(output: &mut [f32; CLASSES], label: usize) -> f32 {
    let top = output.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let wanted = output[label] - top;
    let mut total = 0.0;
    for value in output.iter_mut() {
        *value = (*value - top).exp();
        total += *value;
    }
    for value in output.iter_mut() {
        *value /= total;
    }
    output[label] -= 1.0;
    total.ln() - wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digits::Digits;

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let shape = Shape { hidden: 5 };
        let digits = Digits::bundled();
        let mut weights = shape.first_weights(3);
        let mut scratch = shape.scratch();
        let mut gradient = vec![0.0; shape.parameters()];
        for sample in &digits.train[..4] {
            shape.add_gradient(&weights, sample, &mut gradient, &mut scratch);
        }
        let mut loss_with = |weights: &[f32]| {
            let mut ignored = vec![0.0; shape.parameters()];
            let losses = digits.train[..4].iter().map(|sample| {
                f64::from(
                    shape
                        .add_gradient(weights, sample, &mut ignored, &mut scratch)
                        .loss,
                )
            });
            losses.sum::<f64>()
        };
        let step = 1e-3_f32;
        for at in (0..shape.parameters()).step_by(7) {
            let original = weights[at];
            weights[at] = original + step;
            let above = loss_with(&weights);
            weights[at] = original - step;
            let below = loss_with(&weights);
            weights[at] = original;
            let measured = (above - below) / (2.0 * f64::from(step));
            let claimed = f64::from(gradient[at]);
            assert!(
                (measured - claimed).abs() < 2e-2,
                "parameter {at}: measured {measured}, claimed {claimed}"
            );
        }
    }

    #[test]
    fn first_weights_follow_the_seed() {
        let shape = Shape { hidden: 4 };
        assert_eq!(shape.first_weights(1), shape.first_weights(1));
        assert_ne!(shape.first_weights(1), shape.first_weights(2));
        let biases = &shape.first_weights(1)[PIXELS * 4..PIXELS * 4 + 4];
        assert_eq!(biases, &[0.0; 4]);
    }

    #[test]
    fn a_wide_output_gives_a_finite_loss() {
        let mut output = [0.0; CLASSES];
        output[3] = 1e4;
        let loss = softmax_slope(&mut output, 2);
        assert!(loss.is_finite() && loss > 9e3, "{loss}");
    }
}
