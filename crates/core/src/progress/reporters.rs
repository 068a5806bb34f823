//! Which stream of an attempt reports its steps.
//!
//! Megatron-LM prints on the last rank, most others on the first, some on all. So the stream that reports for the job is
//! found: the first that reports a step, and after it any that is further. Ranks behind it change nothing.
//!
//! A step that is lower than the one before is believed only of the reporting stream, and only after it has counted
//! up from there for [`BELIEVED`] reports: the program loaded a checkpoint and continues from it. A single low number is
//! a line that was read wrongly, or another counter.

use super::Reading;

/// Reports of lower steps in a row, each higher than the one before, after which they are believed.
const BELIEVED: u32 = 3;

/// The streams of one attempt; `K` names a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReporters<K> {
    /// The reporting stream, and its step.
    reporter: Option<(K, u64)>,
    /// Lower steps of that stream: the last, and how many in a row.
    lower: Option<(u64, u32)>,
}

impl<K> Default for StepReporters<K> {
    fn default() -> Self {
        Self {
            reporter: None,
            lower: None,
        }
    }
}

impl<K: PartialEq> StepReporters<K> {
    /// Takes what the stream `from` reports. Returns the step of the attempt where this is a new one.
    pub fn take(&mut self, from: K, reading: &Reading) -> Option<u64> {
        let step = reading.step?;
        let is_reporter = match &self.reporter {
            None => true,
            Some((_, known)) if step > *known => true,
            Some((reporter, known)) if *reporter == from && step < *known => {
                let count = match self.lower {
                    Some((last, count)) if step > last => count + 1,
                    Some((last, _)) if step == last => return None,
                    _ => 1,
                };
                self.lower = Some((step, count));
                count >= BELIEVED
            }
            Some((reporter, _)) => {
                if *reporter == from {
                    self.lower = None;
                }
                false
            }
        };
        if is_reporter {
            self.reporter = Some((from, step));
            self.lower = None;
        }
        is_reporter.then_some(step)
    }

    /// The stream that reports for the attempt, once one reported a step.
    pub fn reporter(&self) -> Option<&K> {
        self.reporter.as_ref().map(|(reporter, _)| reporter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, the stream and step of each report, and the step that each gives.
    type Case = (&'static str, &'static [(u8, u64)], &'static [Option<u64>]);

    #[test]
    fn furthest_stream_is_the_reporter() {
        let cases: [Case; 5] = [
            (
                "the last rank prints",
                &[(7, 1), (7, 2)],
                &[Some(1), Some(2)],
            ),
            (
                "all print, none twice",
                &[(0, 1), (1, 1), (2, 1), (1, 2), (0, 2)],
                &[Some(1), None, None, Some(2), None],
            ),
            (
                "a single low number",
                &[(0, 100), (0, 3), (0, 101)],
                &[Some(100), None, Some(101)],
            ),
            (
                "a checkpoint was loaded",
                &[(0, 100), (0, 51), (0, 51), (0, 52), (0, 53), (0, 54)],
                &[Some(100), None, None, None, Some(53), Some(54)],
            ),
            (
                "a rank that is behind counts up",
                &[(0, 100), (1, 51), (1, 52), (1, 53), (1, 54)],
                &[Some(100), None, None, None, None],
            ),
        ];
        for (name, reports, want) in cases {
            let mut reporters = StepReporters::default();
            let believed: Vec<Option<u64>> = reports
                .iter()
                .map(|(from, step)| {
                    let reading = Reading {
                        step: Some(*step),
                        ..Reading::default()
                    };
                    reporters.take(*from, &reading)
                })
                .collect();
            assert_eq!(believed, want, "{name}");
        }
    }
}
