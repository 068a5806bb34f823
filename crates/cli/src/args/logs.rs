//! The arguments of `logs`, and how a moment is written.

use clap::Args as ClapArgs;
use jiff::{SignedDuration, Timestamp};
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
    let bad = || format!("`{text}` is not a time such as `10m`, `1h30m` or `2025-01-01T12:00:00Z`");
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let ago: SignedDuration = text.parse().map_err(|_| bad())?;
    if ago.is_negative() {
        return Err(bad());
    }
    Timestamp::now().checked_sub(ago).map_err(|_| bad())
}

fn parse_pattern(text: &str) -> Result<Regex, String> {
    // Lines need not be text, and bytes are all that is compared.
    let built = RegexBuilder::new(text).unicode(false).build();
    built.map_err(|error| format!("`{text}` is not a regular expression: {error}"))
}
