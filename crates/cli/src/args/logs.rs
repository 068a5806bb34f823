//! The arguments of `logs`, and how a moment is written.

use clap::Args as ClapArgs;
use jiff::{Span, SpanRelativeTo, Timestamp, civil::Date, tz::TimeZone};
use regex::bytes::{Regex, RegexBuilder};

use super::{Format, Place, State, Which};

/// Print the logs of a job's pods
///
/// Prints the last attempt unless `--attempt` names another. Lines of several pods are prefixed with
/// their pod; the output of a single pod is printed unchanged. Works while the job runs and afterwards.
///
/// On a cluster, logs are deleted with their pods: of an earlier attempt, only the logs of pods that
/// still exist can be read.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard logs mnist
  trainyard logs mnist --rank 3 --attempt 1
  trainyard logs mnist --first-failure
  trainyard logs mnist --follow
  trainyard logs mnist --since 10m --grep 'loss|error' --tail 20
  trainyard logs mnist --cluster -n team-a --first-failure")]
pub(crate) struct Logs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print only the pod of this rank
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u32>,
    /// Print only this pod, such as `worker-1`
    #[arg(long, value_name = "POD", conflicts_with = "rank")]
    pub(crate) pod: Option<String>,
    /// Print this attempt instead of the latest (first is 1)
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    /// Print only the container that failed first; with `--attempt`, in that attempt
    #[arg(long, conflicts_with_all = ["rank", "pod", "follow"])]
    pub(crate) first_failure: bool,
    /// Keep printing new lines until the run ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print only the last N lines of each container; with `--grep`, the last N that match
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u64>,
    /// Print only lines written since then, such as `10m`, `1h30m` or `2025-01-01T12:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    pub(crate) since: Option<Timestamp>,
    /// Print only lines that match this regular expression
    ///
    /// Only the first 64 KiB of a line are searched. Start the pattern with `(?i)` to ignore case.
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    pub(crate) grep: Option<Regex>,
    /// Print the previous instance of restarted containers; implies `--cluster`
    #[arg(long, conflicts_with = "follow")]
    pub(crate) previous: bool,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) state: State,
    /// Output format; `json` prints one object per line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// A moment, or how long ago.
pub(super) fn parse_since(text: &str) -> Result<Timestamp, String> {
    let bad = || {
        format!(
            "`{text}` is not a time such as `10m`, `1h30m`, `7d`, `2025-01-01` or `2025-01-01T12:00:00Z`"
        )
    };
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    if let Ok(day) = text.parse::<Date>() {
        let midnight = day.to_zoned(TimeZone::UTC).map_err(|_| bad())?;
        return Ok(midnight.timestamp());
    }
    let ago: Span = text.parse().map_err(|_| bad())?;
    // How long a month is depends on which one.
    if ago.is_negative() || ago.get_months() != 0 || ago.get_years() != 0 {
        return Err(bad());
    }
    let days = SpanRelativeTo::days_are_24_hours();
    let ago = ago.to_duration(days).map_err(|_| bad())?;
    Timestamp::now().checked_sub(ago).map_err(|_| bad())
}

fn parse_pattern(text: &str) -> Result<Regex, String> {
    // Lines need not be text, and bytes are all that is compared.
    let built = RegexBuilder::new(text).unicode(false).build();
    built.map_err(|error| format!("`{text}` is not a regular expression: {error}"))
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn moments() {
        let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        let cases = [
            ("2026-01-31T12:00:00Z", at("2026-01-31T12:00:00Z")),
            ("2026-01-31", at("2026-01-31T00:00:00Z")),
            ("2026-02-31", None),
            ("-5m", None),
            ("1mo", None),
            ("2y", None),
            ("yesterday", None),
            ("", None),
        ];
        for (text, want) in cases {
            assert_eq!(parse_since(text).ok(), want, "{text}");
        }
    }

    #[test]
    fn days_and_weeks_ago() {
        for (text, hours) in [("12h", 12), ("7d", 168), ("2w", 336), ("1d12h", 36)] {
            let before = Timestamp::now();
            let since = parse_since(text).unwrap();
            let ago = SignedDuration::from_hours(hours);
            assert!(before.checked_sub(ago).unwrap() <= since, "{text}");
            assert!(
                since <= Timestamp::now().checked_sub(ago).unwrap(),
                "{text}"
            );
        }
    }
}
