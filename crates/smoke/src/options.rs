//! The command line of the trainer.
//!
//! By hand, because the trainer is a workload that must stay small: a dozen flags, each with one
//! value, as `--flag value` or `--flag=value`.

use std::{
    ffi::{OsStr, OsString},
    fmt::Display,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use thiserror::Error;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
A small data-parallel trainer: hand-written digits, real gradients, ring all-reduce over TCP

Usage: smoke-trainer [OPTIONS]

Reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun and a PyTorchJob set them, and the
variables of a JAXJob and of Open MPI. Without any of them it trains alone.

Training:
      --epochs N             passes over the training images [default: 16]
      --batch N              images per step, over all ranks [default: 32]
      --learning-rate X      [default: 0.05]
      --hidden N             units of the hidden layer [default: 32]
      --seed N               seed of the first weights and the order of images [default: 1]
      --target-accuracy X    accuracy to reach on the test images [default: 0.93]

Checkpoints:
      --checkpoint-dir DIR   save here and resume from here; without it nothing is saved
      --save-every STEPS     [default: 50]
      --keep N               how many checkpoints to keep [default: 3]

Pace and limits:
      --report-every STEPS   [default: 25]
      --step-delay MS        sleep this long in each step, for a longer run [default: 0]
      --join-timeout S       how long to wait for all ranks to join [default: 120]
      --peer-timeout S       how long a rank may send nothing in a step [default: 60]
  -h, --help

Exit codes: 0 the target was reached; 1 it was not, or a rank was lost; 2 bad usage, settings or
files; 143 stopped by SIGTERM, after saving.
";

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    Help,
    Train(Options),
}

/// How to train.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) epochs: u64,
    pub(crate) batch: usize,
    pub(crate) learning_rate: f32,
    pub(crate) hidden: usize,
    pub(crate) seed: u64,
    pub(crate) target_accuracy: f32,
    pub(crate) checkpoint_dir: Option<PathBuf>,
    pub(crate) save_every: u64,
    pub(crate) keep: usize,
    pub(crate) report_every: u64,
    pub(crate) step_delay: Duration,
    pub(crate) join_timeout: Duration,
    pub(crate) peer_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            epochs: 16,
            batch: 32,
            learning_rate: 0.05,
            hidden: 32,
            seed: 1,
            target_accuracy: 0.93,
            checkpoint_dir: None,
            save_every: 50,
            keep: 3,
            report_every: 25,
            step_delay: Duration::ZERO,
            join_timeout: Duration::from_mins(2),
            peer_timeout: Duration::from_mins(1),
        }
    }
}

/// Why the command line is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OptionsError {
    /// No such flag.
    #[error("unknown argument `{found}`; see `--help`")]
    Unknown {
        /// As it was given.
        found: String,
    },
    /// A flag without a value.
    #[error("`{flag}` needs a value")]
    NoValue {
        /// The flag.
        flag: String,
    },
    /// A value out of range, or none at all.
    #[error("`{flag}` is `{found}`; expected {needed}")]
    Value {
        /// The flag.
        flag: String,
        /// The value given.
        found: String,
        /// What it may be.
        needed: String,
    },
}

/// Reads `arguments`, without the name of the program.
pub(crate) fn parse(
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<Command, OptionsError> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        let unknown = || OptionsError::Unknown {
            found: argument.to_string_lossy().into_owned(),
        };
        let text = argument.to_str().ok_or_else(unknown)?;
        if text == "--help" || text == "-h" {
            return Ok(Command::Help);
        }
        let (flag, inline) = match text.split_once('=') {
            Some((flag, value)) => (flag, Some(OsString::from(value))),
            None => (text, None),
        };
        let value = || {
            let no_value = || OptionsError::NoValue {
                flag: flag.to_owned(),
            };
            inline.or_else(|| arguments.next()).ok_or_else(no_value)
        };
        options.set(flag, value, unknown)?;
    }
    Ok(Command::Train(options))
}

impl Options {
    /// Sets what `flag` names. The value is read only for a known flag.
    fn set(
        &mut self,
        flag: &str,
        value: impl FnOnce() -> Result<OsString, OptionsError>,
        unknown: impl FnOnce() -> OptionsError,
    ) -> Result<(), OptionsError> {
        match flag {
            "--epochs" => self.epochs = within(flag, &value()?, 1, 1_000_000)?,
            "--batch" => self.batch = within(flag, &value()?, 1, 65_536)?,
            "--learning-rate" => self.learning_rate = within(flag, &value()?, 1e-6, 1e12)?,
            "--hidden" => self.hidden = within(flag, &value()?, 1, 65_536)?,
            "--seed" => self.seed = within(flag, &value()?, 0, u64::MAX)?,
            "--target-accuracy" => self.target_accuracy = within(flag, &value()?, 0.0, 1.0)?,
            "--checkpoint-dir" => self.checkpoint_dir = Some(value()?.into()),
            "--save-every" => self.save_every = within(flag, &value()?, 1, u64::MAX)?,
            "--keep" => self.keep = within(flag, &value()?, 1, 1000)?,
            "--report-every" => self.report_every = within(flag, &value()?, 1, u64::MAX)?,
            "--step-delay" => {
                self.step_delay = Duration::from_millis(within(flag, &value()?, 0, 600_000)?);
            }
            "--join-timeout" => self.join_timeout = seconds(flag, &value()?)?,
            "--peer-timeout" => self.peer_timeout = seconds(flag, &value()?)?,
            _ => return Err(unknown()),
        }
        Ok(())
    }
}

fn seconds(flag: &str, value: &OsStr) -> Result<Duration, OptionsError> {
    within(flag, value, 1, 86_400).map(Duration::from_secs)
}

fn within<T>(flag: &str, value: &OsStr, least: T, most: T) -> Result<T, OptionsError>
where
    T: Copy + FromStr + PartialOrd + Display,
{
    let found = value.to_string_lossy().into_owned();
    match found.parse::<T>() {
        Ok(number) if number >= least && number <= most => Ok(number),
        _ => Err(OptionsError::Value {
            flag: flag.to_owned(),
            found,
            needed: format!("a number from {least} to {most}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
    }

    fn options(line: &str) -> Options {
        match read(line) {
            Ok(Command::Train(options)) => options,
            other => panic!("`{line}` gave {other:?}"),
        }
    }

    #[test]
    fn flags_take_their_value_in_two_ways() {
        let wanted = Options {
            epochs: 3,
            batch: 48,
            learning_rate: 0.25,
            hidden: 7,
            seed: 9,
            target_accuracy: 0.5,
            checkpoint_dir: Some("there".into()),
            save_every: 10,
            keep: 2,
            report_every: 5,
            step_delay: Duration::from_millis(4),
            join_timeout: Duration::from_secs(6),
            peer_timeout: Duration::from_secs(8),
        };
        let line = "--epochs 3 --batch 48 --learning-rate 0.25 --hidden 7 --seed 9 \
                    --target-accuracy 0.5 --checkpoint-dir there --save-every 10 --keep 2 \
                    --report-every 5 --step-delay 4 --join-timeout 6 --peer-timeout 8";
        assert_eq!(options(line), wanted);
        let inline: Vec<String> = line
            .replace(" --", "\n--")
            .lines()
            .map(|flag| flag.trim().replace(' ', "="))
            .collect();
        assert_eq!(options(&inline.join(" ")), wanted);
    }

    #[test]
    fn the_help_states_the_defaults() {
        assert_eq!(read("--epochs 3 -h"), Ok(Command::Help));
        let mut defaults = Options::default();
        let mut stated = 0;
        for line in HELP.lines() {
            let Some((_, default)) = line.split_once("[default: ") else {
                continue;
            };
            let flag = line.split_whitespace().next().unwrap();
            let default = OsString::from(default.trim_end_matches(']'));
            defaults
                .set(flag, || Ok(default), || panic!("unknown flag `{flag}`"))
                .unwrap();
            stated += 1;
        }
        assert_eq!(defaults, Options::default());
        assert_eq!(stated, 12);
    }

    #[test]
    fn a_bad_line_is_refused() {
        let cases = [
            ("--epoch 3", "unknown argument `--epoch`; see `--help`"),
            ("train", "unknown argument `train`; see `--help`"),
            ("--batch", "`--batch` needs a value"),
            (
                "--batch=",
                "`--batch` is ``; expected a number from 1 to 65536",
            ),
            (
                "--batch 0",
                "`--batch` is `0`; expected a number from 1 to 65536",
            ),
            (
                "--epochs many",
                "`--epochs` is `many`; expected a number from 1 to 1000000",
            ),
            (
                "--learning-rate NaN",
                "`--learning-rate` is `NaN`; expected a number from 0.000001 to 1000000000000",
            ),
            (
                "--target-accuracy 93",
                "`--target-accuracy` is `93`; expected a number from 0 to 1",
            ),
        ];
        for (line, wanted) in cases {
            assert_eq!(read(line), Err(wanted.to_owned()), "{line}");
        }
    }
}
