//! The data: images of hand-written digits, 8 by 8 pixels, and how they are divided.
//!
//! Owns the bundled set (source and licence in `data/README.md`).
//!
//! Invariant: which image is for testing depends on its place in the set alone, so every rank
//! and every attempt holds the same two parts.

use crate::digest::Digest;

/// Pixels of an image.
pub(crate) const PIXELS: usize = 64;
/// Digits an image can show.
pub(crate) const CLASSES: usize = 10;

const RECORD_BYTES: usize = PIXELS + 1;
const INK_MAX: u8 = 16;
/// Every seventh image is for testing. The set is ordered in tens of digits, so a step that
/// shares no factor with ten keeps both parts balanced.
const TEST_EVERY: usize = 7;

const BUNDLED: &[u8] = include_bytes!("../data/digits.bin");

/// One image with the digit it shows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// From 0 (paper) to 1 (ink), row by row.
    pub(crate) pixels: [f32; PIXELS],
    pub(crate) label: usize,
}

/// A whole set, divided.
#[derive(Debug)]
pub(crate) struct Digits {
    pub(crate) train: Vec<Sample>,
    pub(crate) test: Vec<Sample>,
    /// Checksum of all records.
    pub(crate) digest: u64,
}

impl Digits {
    /// The set that is part of the program.
    pub(crate) fn bundled() -> Self {
        let (records, _) = BUNDLED.as_chunks::<RECORD_BYTES>();
        let mut train = Vec::new();
        let mut test = Vec::new();
        for (at, [pixels @ .., label]) in records.iter().enumerate() {
            let part = if at % TEST_EVERY == TEST_EVERY - 1 {
                &mut test
            } else {
                &mut train
            };
            part.push(Sample {
                pixels: std::array::from_fn(|at| f32::from(pixels[at]) / f32::from(INK_MAX)),
                label: usize::from(*label),
            });
        }
        Self {
            train,
            test,
            digest: Digest::of(BUNDLED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_set_is_the_published_one() {
        // Of the records made from scikit-learn 1.9.1, computed outside this program.
        let digits = Digits::bundled();
        assert_eq!(digits.digest, 0x7768_69cc_e379_5967);
        assert_eq!(BUNDLED.len(), 1797 * RECORD_BYTES);
        assert_eq!((digits.train.len(), digits.test.len()), (1541, 256));
    }

    #[test]
    fn every_value_of_the_bundled_set_is_in_range() {
        let (records, rest) = BUNDLED.as_chunks::<RECORD_BYTES>();
        assert_eq!(rest, &[] as &[u8]);
        for [pixels @ .., label] in records {
            assert!(pixels.iter().all(|pixel| *pixel <= INK_MAX));
            assert!(usize::from(*label) < CLASSES);
        }
    }

    #[test]
    fn every_digit_is_in_both_parts() {
        let digits = Digits::bundled();
        for part in [&digits.train, &digits.test] {
            for digit in 0..CLASSES {
                let count = part.iter().filter(|sample| sample.label == digit).count();
                assert!(count * 20 > part.len(), "digit {digit}: {count} images");
            }
        }
    }
}
