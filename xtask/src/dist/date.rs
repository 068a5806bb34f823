//! The one time that everything in a release has: that of the commit, or of `SOURCE_DATE_EPOCH`.

use std::{ffi::OsString, process::Command};

use crate::{Failure, cache, step};

/// The variable that sets the time, as reproducible builds agreed on it.
const VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// A moment as people write it, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) year: u64,
    pub(super) month: u64,
    pub(super) day: u64,
    pub(super) hour: u64,
    pub(super) minute: u64,
    pub(super) second: u64,
}

impl Moment {
    /// The moment `time` seconds after the beginning of 1970.
    pub(super) fn of(time: u64) -> Self {
        let (days, rest) = (time / 86_400, time % 86_400);
        // Years begin in March here, so that a leap day is the last of its year; 400 years have 146,097 days.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let (of_month, month) = (
            day - (153 * month + 2) / 5 + 1,
            if month < 10 { month + 3 } else { month - 9 },
        );
        Self {
            year: era * 400 + year + u64::from(month <= 2),
            month,
            day: of_month,
            hour: rest / 3_600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }

    /// As RFC 3339 writes it.
    pub(super) fn text(self) -> String {
        format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
            self.year, self.month, self.day, self.hour, self.minute, self.second
        )
    }
}

/// The time of this release, in seconds since 1970.
pub(super) fn of_release() -> Result<u64, Failure> {
    if let Some(value) = cache::variable(VARIABLE) {
        return read(&value);
    }
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"])
        .current_dir(step::root());
    let text = step::capture(&mut git).map_err(|_| {
        Failure::CouldNotRun(format!(
            "cannot read the date of the commit, which every file of a release gets\n\nhint: outside of a clone, set `{VARIABLE}` to \
             seconds since 1970"
        ))
    })?;
    read(&OsString::from(text.trim()))
}

fn read(value: &OsString) -> Result<u64, Failure> {
    let shown = value.to_string_lossy();
    match shown.parse() {
        // What a zip archive can state: from 1980 to 2107.
        Ok(time) if (315_532_800..4_354_819_200).contains(&time) => Ok(time),
        _ => Err(Failure::CouldNotRun(format!(
            "the date of the release is `{shown}`; it must be in seconds since 1970, from 315532800 (1980) to 4354819199 (2107)"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_from_seconds() {
        for (time, want) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_704_067_199, "2023-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Moment::of(time).text(), want, "{time}");
        }
    }

    #[test]
    fn dates_outside_of_archives_are_refused() {
        for (text, good) in [
            ("315532800", true),
            ("4354819199", true),
            ("315532799", false),
            ("4354819200", false),
            ("-1", false),
            ("yesterday", false),
            ("", false),
        ] {
            assert_eq!(read(&OsString::from(text)).is_ok(), good, "{text}");
        }
    }
}
