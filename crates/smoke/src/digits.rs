//! The data: images of hand-written digits, 8 by 8 pixels, and how they are divided.
//!
//! Owns the bundled set (source and licence in `data/README.md`) and reading another one from a
//! file of comma-separated values.
//!
//! Invariant: which image is for testing depends on its place in the file alone, so every rank
//! and every attempt holds the same two parts.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

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

/// Why a data file cannot be used.
#[derive(Debug, Error)]
pub enum DataError {
    /// The file cannot be read.
    #[error("cannot read the data file `{path}`")]
    Read {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A line is not an image.
    #[error(
        "line {line} of `{path}` is not an image: found {found}, expected 64 pixels from 0 to 16 and \
         a digit, separated by commas"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// One-based.
        line: usize,
        /// What is there instead.
        found: String,
    },
    /// Too little to divide.
    #[error("`{path}` has {found} images; at least {TEST_EVERY} are needed")]
    TooFew {
        /// The file.
        path: PathBuf,
        /// How many it holds.
        found: usize,
    },
}

impl Digits {
    /// The set that is part of the program.
    pub(crate) fn bundled() -> Self {
        Self::divide(BUNDLED)
    }

    /// The set in the file at `path`: one image a line, 64 pixels and the digit, as the UCI
    /// repository publishes it.
    pub(crate) fn read(path: &Path) -> Result<Self, DataError> {
        let text = fs::read_to_string(path).map_err(|source| DataError::Read {
            path: path.to_owned(),
            source,
        })?;
        let mut records = Vec::new();
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let record = record(line).map_err(|found| DataError::Line {
                path: path.to_owned(),
                line: at + 1,
                found,
            })?;
            records.extend(record);
        }
        let found = records.len() / RECORD_BYTES;
        if found < TEST_EVERY {
            return Err(DataError::TooFew {
                path: path.to_owned(),
                found,
            });
        }
        Ok(Self::divide(&records))
    }

    fn divide(records: &[u8]) -> Self {
        let (records_exact, _) = records.as_chunks::<RECORD_BYTES>();
        let mut train = Vec::new();
        let mut test = Vec::new();
        for (at, [pixels @ .., label]) in records_exact.iter().enumerate() {
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
            digest: Digest::of(records),
        }
    }
}

/// The record of one line, or what is wrong with it.
fn record(line: &str) -> Result<Vec<u8>, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    if fields.len() != RECORD_BYTES {
        return Err(format!("{} fields", fields.len()));
    }
    let value = |(at, field): (usize, &&str)| {
        let (limit, what) = if at == PIXELS {
            (9, "digit")
        } else {
            (INK_MAX, "pixel")
        };
        match field.parse::<u8>() {
            Ok(value) if value <= limit => Ok(value),
            _ => Err(format!("{what} `{}`", field.escape_debug())),
        }
    };
    fields.iter().enumerate().map(value).collect()
}

#[cfg(test)]
mod tests {
    use std::{error::Error, io::Write};

    use super::*;

    fn line(first: &str, label: &str) -> String {
        let middle = vec!["7"; PIXELS - 1].join(",");
        format!("{first},{middle},{label}")
    }

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

    #[test]
    fn a_file_gives_the_same_records() -> Result<(), Box<dyn Error>> {
        let mut file = tempfile::NamedTempFile::new()?;
        let (records, _) = BUNDLED.as_chunks::<RECORD_BYTES>();
        for record in records {
            let fields: Vec<String> = record.iter().map(u8::to_string).collect();
            writeln!(file, "{}", fields.join(","))?;
        }
        let digits = Digits::read(file.path())?;
        assert_eq!(digits.digest, Digits::bundled().digest);
        assert_eq!(digits.train, Digits::bundled().train);
        Ok(())
    }

    #[test]
    fn a_bad_line_is_named() {
        let cases = [
            ("too few fields", "1,2,3".to_owned(), "3 fields"),
            ("ink out of range", line("17", "3"), "pixel `17`"),
            ("not a number", line("x\u{7}", "3"), "pixel `x\\u{7}`"),
            ("digit out of range", line("0", "10"), "digit `10`"),
        ];
        for (name, text, found) in cases {
            assert_eq!(record(&text), Err(found.to_owned()), "{name}");
        }
        assert!(record(&line("16", "9")).is_ok());
    }

    #[test]
    fn a_file_of_few_images_is_refused() -> Result<(), Box<dyn Error>> {
        let mut file = tempfile::NamedTempFile::new()?;
        writeln!(file, "{}", line("0", "1"))?;
        let refused = Digits::read(file.path()).map(|digits| digits.digest);
        assert!(matches!(refused, Err(DataError::TooFew { found: 1, .. })));
        Ok(())
    }
}
