//! The arguments of `history`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::{Format, State};

/// Keep what became of runs, and report on it: trained share, lost GPU hours, failures
///
/// Runs stay in the history after their folders are removed. It is one database file, `trainyard/history.db` in the folder for data of your user
/// (`$XDG_DATA_HOME`, else `~/.local/share`), unless `--store` names another; `sqlite3` opens it, and its views `v1_run`, `v1_attempt`, `v1_span`, `v1_node_fact`
/// and `v1_phase_day` keep their columns.
#[derive(Debug, ClapArgs)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_long_help = "\
Examples:
  trainyard history sync
  trainyard history ls --since 7d --outcome failed
  trainyard history report --since 30d --by team
  trainyard history report --by node --format json | jq '.nodes[0]'
  trainyard history export runs.jsonl
  trainyard history import runs.jsonl --store all.db
  trainyard history prune --detail 30d"
)]
pub(crate) struct History {
    #[command(subcommand)]
    pub(crate) command: HistoryCommand,
}

/// What to do with it.
#[derive(Debug, Subcommand)]
pub(crate) enum HistoryCommand {
    Sync(HistorySync),
    Ls(HistoryLs),
    Report(HistoryReport),
    Export(HistoryExport),
    Import(HistoryImport),
    Prune(HistoryPrune),
}

/// The store.
#[derive(Debug, ClapArgs)]
pub(crate) struct HistoryStore {
    /// File of the history [default: `trainyard/history.db` in the folder for data of your user]
    #[arg(long, value_name = "FILE")]
    pub(crate) store: Option<PathBuf>,
}

/// Take the runs of a state folder into the history
///
/// Takes what is new, also of runs that live, and changes nothing in the state folder. Run it as often as you like: a run that is written already is
/// passed over. Then deletes what is due, as `history prune` does.
///
/// The exit code is 1 if a run cannot be read, or if there was no room for the details of one.
#[derive(Debug, ClapArgs)]
pub(crate) struct HistorySync {
    #[command(flatten)]
    pub(crate) state: State,
    #[command(flatten)]
    pub(crate) keep: HistoryKeep,
    #[command(flatten)]
    pub(crate) store: HistoryStore,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// List runs, the newest first
#[derive(Debug, ClapArgs)]
pub(crate) struct HistoryLs {
    /// Only runs that ran since then, such as `7d`, `12h` or `2026-01-31T00:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = super::logs::parse_since)]
    pub(crate) since: Option<jiff::Timestamp>,
    /// Only runs with this outcome
    #[arg(long, value_name = "OUTCOME")]
    pub(crate) outcome: Option<HistoryOutcome>,
    /// Only runs of this team
    #[arg(long, value_name = "TEAM")]
    pub(crate) team: Option<String>,
    /// Only runs of jobs of this kind
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// Only runs of the job with this name
    #[arg(long, value_name = "JOB")]
    pub(crate) job: Option<String>,
    /// At most so many runs
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) store: HistoryStore,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HistoryOutcome {
    /// The job succeeded
    Succeeded,
    /// The job failed
    Failed,
    /// Someone stopped it
    Stopped,
    /// Its engine was killed
    Interrupted,
    /// Its folder was removed before its end was read
    Unknown,
    /// It has not ended
    Live,
}

/// Report trained share, lost GPU hours by phase, failures by cause, and nodes that failed most
///
/// The trained share is the time spent training over the time in which jobs were meant to train (all but suspension). Days are those of UTC, and the first
/// one counts whole. A live run counts until it was last seen by `history sync`.
#[derive(Debug, ClapArgs)]
pub(crate) struct HistoryReport {
    /// Since then, such as `30d` or `2026-01-31T00:00:00Z` [default: 30d]
    #[arg(long, value_name = "TIME", value_parser = super::logs::parse_since)]
    pub(crate) since: Option<jiff::Timestamp>,
    /// What to add up by
    #[arg(long, value_name = "WHAT", default_value = "team")]
    pub(crate) by: HistoryBy,
    #[command(flatten)]
    pub(crate) store: HistoryStore,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// What a report adds up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HistoryBy {
    /// The label `trainyard.dev/team`, else the namespace
    Team,
    /// The kind of the job
    Kind,
    /// Days in UTC
    Day,
    /// Nodes that failed; time is only in the total
    Node,
}

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HistoryForm {
    /// One JSON object a line
    Jsonl,
}

/// Write the whole history as lines of JSON
///
/// The same history gives the same bytes. `history import` reads it into another store.
#[derive(Debug, ClapArgs)]
pub(crate) struct HistoryExport {
    /// File to write, which must not exist; `-` for stdout
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) store: HistoryStore,
    /// Format of the export
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    pub(crate) format: HistoryForm,
}

/// Add the runs of an export to the history
///
/// A run that the store has already is passed over, unless it lived when it was taken and the export knows more of it.
#[derive(Debug, ClapArgs)]
pub(crate) struct HistoryImport {
    /// File to read; `-` for stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) store: HistoryStore,
    /// Format of the export
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    pub(crate) format: HistoryForm,
}

/// How long what is kept.
#[derive(Debug, ClapArgs)]
pub(crate) struct HistoryKeep {
    /// Keep spans, seats, changes of pods, events and checkpoints for so long
    #[arg(long, value_name = "DAYS", default_value = "90d", value_parser = parse_days)]
    pub(crate) detail: u32,
    /// Keep the lines of logs that verdicts rest on for so long
    #[arg(long, value_name = "DAYS", default_value = "30d", value_parser = parse_days)]
    pub(crate) excerpts: u32,
    /// Keep runs, attempts with their verdicts, and sums for so long
    #[arg(long, value_name = "DAYS", default_value = "400d", value_parser = parse_days)]
    pub(crate) ends: u32,
    /// The most bytes that the store may use, such as `8GiB` or `500MiB`
    #[arg(long, value_name = "SIZE", default_value = "8GiB", value_parser = parse_size)]
    pub(crate) cap: u64,
}

/// Delete what need not be kept
///
/// Ages count from the end of a run. A live run is never deleted. Where the store is larger than `--cap`, the oldest detail goes first, then the oldest
/// runs.
#[derive(Debug, ClapArgs)]
pub(crate) struct HistoryPrune {
    #[command(flatten)]
    pub(crate) keep: HistoryKeep,
    #[command(flatten)]
    pub(crate) store: HistoryStore,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Reads `90d`.
fn parse_days(text: &str) -> Result<u32, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse().ok());
    days.filter(|days| *days <= 36_500)
        .ok_or_else(|| "expected days, such as `90d`, of at most `36500d`".to_owned())
}

/// Reads `8GiB`.
fn parse_size(text: &str) -> Result<u64, String> {
    let units = [("GiB", 30_u32), ("MiB", 20), ("KiB", 10)];
    let size = units.into_iter().find_map(|(unit, shift)| {
        let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_mul(1 << shift)
    });
    size.ok_or_else(|| "expected a size, such as `8GiB`, `500MiB` or `64KiB`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_sizes() {
        assert_eq!(parse_days("90d"), Ok(90));
        for text in ["90", "d", "-1d", "1.5d", "99999d", "12h", ""] {
            assert!(parse_days(text).is_err(), "{text}");
        }
        assert_eq!(parse_size("8GiB"), Ok(8 << 30));
        assert_eq!(parse_size("64KiB"), Ok(64 << 10));
        for text in ["8", "GiB", "8GB", "-1MiB", "99999999999999GiB", ""] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
