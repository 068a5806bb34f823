//! What time went to, and what failed: sums over many runs.
//!
//! Sums come from the roll-ups by day, which hold closed time. The open phase of a live run is added up to when it was last seen.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::params;
use serde::Serialize;
use trainyard_core::chronicle::Booked;

use crate::{
    HistoryError, Reader,
    read::ratio,
    row::{self, Span, day, days, gpu_ms},
};

/// Groups of a report.
const GROUPS_MAX: usize = 1_000;
/// Causes and nodes of a report, the most frequent ones.
const COUNTS_MAX: usize = 20;

/// What sums are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Teams.
    Team,
    /// Kinds of jobs.
    Kind,
    /// Days in UTC.
    Day,
    /// Nodes, which have failures and no time of their own.
    Node,
}

/// What time went to, and what failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The first day, in UTC.
    pub since: String,
    /// When it was made, in Unix milliseconds.
    pub until: i64,
    /// What groups are.
    pub by: By,
    /// Sums over all runs.
    pub total: Sums,
    /// Sums by group, those that lost most first; days in order. Empty by node.
    pub groups: Vec<Group>,
    /// Failed attempts by cause, the most frequent first.
    pub restarts: Vec<Restarts>,
    /// Nodes that failed most.
    pub nodes: Vec<NodeCount>,
    /// Milliseconds of which nobody observed the order.
    pub not_observed_millis: u64,
    /// Runs that live, or whose end is not known yet: their open phase is counted until they were last seen.
    pub live: u64,
}

/// Sums of some runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sums {
    /// Runs that spent time.
    pub runs: u64,
    /// Failed attempts.
    pub failed_attempts: u64,
    /// Wall time.
    pub wall_millis: u64,
    /// Share of the time in which jobs were meant to train (all but suspension) that they trained: ETTR. Nothing without such time.
    pub trained_ratio: Option<f64>,
    /// Accelerator hours that jobs held.
    pub gpu_hours: f64,
    /// Those that did not train.
    pub lost_gpu_hours: f64,
    /// By phase: milliseconds of wall time and accelerator hours.
    pub phases: BTreeMap<String, PhaseSum>,
}

/// The sum of one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseSum {
    /// Wall time.
    pub millis: u64,
    /// Accelerator hours.
    pub gpu_hours: f64,
}

/// Sums of one group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The team, kind or day.
    pub key: String,
    /// Its sums.
    #[serde(flatten)]
    pub sums: Sums,
}

/// Failed attempts of one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Restarts {
    /// The label of the verdict; nothing where nothing was concluded.
    pub label: Option<String>,
    /// The failure budget that it counts against.
    pub account: Option<String>,
    /// How many attempts.
    pub times: u64,
    /// Of how many jobs.
    pub jobs: u64,
}

/// A node on which attempts failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCount {
    /// The node.
    pub node: String,
    /// Attempts whose verdict names it, or whose first failed pod ran there.
    pub failed_attempts: u64,
    /// Those whose verdict names it.
    pub blamed: u64,
    /// Of how many jobs.
    pub jobs: u64,
    /// The labels of those verdicts.
    pub labels: Vec<String>,
    /// When it failed last, in Unix milliseconds.
    pub last_at: i64,
}

/// Milliseconds and accelerator milliseconds by phase.
type Phases = BTreeMap<String, (i64, i64)>;

/// What a group adds up.
#[derive(Default)]
struct Adding {
    phases: Phases,
    runs: BTreeSet<i64>,
    failed: u64,
}

impl Reader {
    /// What happened between the day of `since` and `now`, both in Unix milliseconds.
    pub fn report(&self, by: By, since: i64, now: i64) -> Result<Report, HistoryError> {
        let first = day(since);
        let start = row_start(since);
        let mut groups: BTreeMap<String, Adding> = BTreeMap::new();
        self.add_time(by, &first, &mut groups)?;
        let live = self.add_open(by, (start, now), &mut groups)?;
        self.add_runs(by, &first, &mut groups)?;
        self.add_failures(by, start, &mut groups)?;
        let mut all = Adding::default();
        for group in groups.values() {
            for (phase, (ms, gpu)) in &group.phases {
                add(&mut all.phases, phase, *ms, *gpu);
            }
            all.runs.extend(&group.runs);
            all.failed += group.failed;
        }
        let mut groups: Vec<Group> = groups
            .into_iter()
            .map(|(key, adding)| Group {
                key,
                sums: adding.sums(),
            })
            .collect();
        match by {
            By::Node => groups.clear(),
            By::Day => {}
            By::Team | By::Kind => groups.sort_by(|one, other| {
                let lost = |group: &Group| (group.sums.lost_gpu_hours, lost_millis(&group.sums));
                let (one_lost, other_lost) = (lost(one), lost(other));
                let order = other_lost.0.total_cmp(&one_lost.0);
                order
                    .then(other_lost.1.cmp(&one_lost.1))
                    .then(one.key.cmp(&other.key))
            }),
        }
        groups.truncate(GROUPS_MAX);
        let most = if by == By::Node {
            GROUPS_MAX
        } else {
            COUNTS_MAX
        };
        Ok(Report {
            since: first,
            until: now,
            by,
            total: all.sums(),
            groups,
            restarts: self.restarts(start)?,
            nodes: self.failed_nodes(start, most)?,
            not_observed_millis: self.not_observed(start)?,
            live,
        })
    }

    fn add_time(
        &self,
        by: By,
        first: &str,
        groups: &mut BTreeMap<String, Adding>,
    ) -> Result<(), HistoryError> {
        let sql = match by {
            By::Team => {
                "SELECT team, phase, SUM(ms), SUM(gpu_ms) FROM phase_day WHERE day >= ?1 GROUP BY team, phase"
            }
            By::Day => {
                "SELECT day, phase, SUM(ms), SUM(gpu_ms) FROM phase_day WHERE day >= ?1 GROUP BY day, phase"
            }
            By::Node => {
                "SELECT '', phase, SUM(ms), SUM(gpu_ms) FROM phase_day WHERE day >= ?1 GROUP BY phase"
            }
            By::Kind => {
                "SELECT run.kind, run_day.phase, SUM(run_day.ms), SUM(run_day.gpu_ms) FROM run_day JOIN run ON run.id = run_day.run \
                 WHERE run_day.day >= ?1 GROUP BY run.kind, run_day.phase"
            }
        };
        let rows = self.rows("add up time", sql, [first], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, i64>(2)?,
                row.get::<_, i64>(3)?,
            ))
        })?;
        for (key, phase, ms, gpu) in rows {
            add(&mut groups.entry(key).or_default().phases, &phase, ms, gpu);
        }
        Ok(())
    }

    /// The open phases of live runs; says how many live.
    fn add_open(
        &self,
        by: By,
        (start, now): (i64, i64),
        groups: &mut BTreeMap<String, Adding>,
    ) -> Result<u64, HistoryError> {
        let sql = "SELECT id, team, kind, accelerators, phase, phase_since, seen FROM run WHERE ended IS NULL ORDER BY id";
        let open = self.rows("list live runs", sql, [], |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, Option<i64>>(3)?.unwrap_or(0),
                row.get::<_, Option<String>>(4)?,
                row.get::<_, Option<i64>>(5)?,
                row.get::<_, i64>(6)?,
            ))
        })?;
        let count = u64::try_from(open.len()).unwrap_or(u64::MAX);
        for (id, team, kind, accelerators, phase, since, seen) in open {
            let (Some(phase), Some(since)) = (phase, since) else {
                continue;
            };
            // A clock that was ahead, or an import, may have seen it later than now.
            let seen = seen.min(now);
            let from = since.max(start);
            let Ok(millis) = u64::try_from(seen.saturating_sub(from)) else {
                continue;
            };
            let phase = row::phase(&phase);
            let whole = Booked {
                attempt: None,
                phase,
                millis,
            };
            let span = Span {
                from,
                to: seen,
                parts: vec![whole],
                exact: true,
                is_gap: false,
            };
            for part in days(&span) {
                let key = match by {
                    By::Team => team.clone(),
                    By::Kind => kind.clone(),
                    By::Day => part.day.clone(),
                    By::Node => String::new(),
                };
                let group = groups.entry(key).or_default();
                group.runs.insert(id);
                let gpu = gpu_ms(phase, part.ms, accelerators);
                add(&mut group.phases, row::name(phase), part.ms, gpu);
            }
        }
        Ok(count)
    }

    fn add_runs(
        &self,
        by: By,
        first: &str,
        groups: &mut BTreeMap<String, Adding>,
    ) -> Result<(), HistoryError> {
        let key = match by {
            By::Team => "run.team",
            By::Kind => "run.kind",
            By::Day => "run_day.day",
            By::Node => "''",
        };
        let sql = format!(
            "SELECT DISTINCT {key}, run.id FROM run_day JOIN run ON run.id = run_day.run WHERE run_day.day >= ?1"
        );
        let rows = self.rows("count runs", &sql, [first], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
        })?;
        for (key, run) in rows {
            groups.entry(key).or_default().runs.insert(run);
        }
        Ok(())
    }

    fn add_failures(
        &self,
        by: By,
        start: i64,
        groups: &mut BTreeMap<String, Adding>,
    ) -> Result<(), HistoryError> {
        let key = match by {
            By::Team => "run.team",
            By::Kind => "run.kind",
            By::Day | By::Node => "''",
        };
        let sql = format!(
            "SELECT {key}, attempt.ended FROM attempt JOIN run ON run.id = attempt.run \
             WHERE attempt.ended >= ?1 AND {FAILED}"
        );
        let rows = self.rows("count failures", &sql, [start], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
        })?;
        for (key, at) in rows {
            let key = if by == By::Day { day(at) } else { key };
            groups.entry(key).or_default().failed += 1;
        }
        Ok(())
    }

    fn restarts(&self, start: i64) -> Result<Vec<Restarts>, HistoryError> {
        let sql = format!(
            "SELECT attempt.label, MAX(attempt.account), COUNT(*), COUNT(DISTINCT run.cluster || '/' || run.namespace || '/' || run.name) \
             FROM attempt JOIN run ON run.id = attempt.run WHERE attempt.ended >= ?1 AND {FAILED} \
             GROUP BY attempt.label ORDER BY COUNT(*) DESC, attempt.label LIMIT ?2"
        );
        self.rows(
            "count causes",
            &sql,
            params![start, count(COUNTS_MAX)],
            |row| {
                Ok(Restarts {
                    label: row.get(0)?,
                    account: row.get(1)?,
                    times: unsigned(row.get(2)?),
                    jobs: unsigned(row.get(3)?),
                })
            },
        )
    }

    fn failed_nodes(&self, start: i64, most: usize) -> Result<Vec<NodeCount>, HistoryError> {
        let sql = "SELECT node_fact.node, COUNT(DISTINCT node_fact.run || '/' || node_fact.attempt), \
                   COUNT(DISTINCT CASE WHEN node_fact.kind = 'blamed' THEN node_fact.run || '/' || node_fact.attempt END), \
                   COUNT(DISTINCT run.cluster || '/' || run.namespace || '/' || run.name), MAX(node_fact.at) \
                   FROM node_fact JOIN run ON run.id = node_fact.run \
                   WHERE node_fact.at >= ?1 AND node_fact.kind IN ('failed', 'blamed') \
                   GROUP BY node_fact.node ORDER BY 3 DESC, 2 DESC, 1 LIMIT ?2";
        let mut nodes = self.rows("count nodes", sql, params![start, count(most)], |row| {
            Ok(NodeCount {
                node: row.get(0)?,
                failed_attempts: unsigned(row.get(1)?),
                blamed: unsigned(row.get(2)?),
                jobs: unsigned(row.get(3)?),
                labels: Vec::new(),
                last_at: row.get(4)?,
            })
        })?;
        let sql = "SELECT DISTINCT detail FROM node_fact WHERE node = ?1 AND kind = 'blamed' AND at >= ?2 ORDER BY detail LIMIT 10";
        for node in &mut nodes {
            let values = params![node.node, start];
            node.labels = self.rows("list causes of a node", sql, values, |row| row.get(0))?;
        }
        Ok(nodes)
    }

    fn not_observed(&self, start: i64) -> Result<u64, HistoryError> {
        let sql = "SELECT began, ended FROM gap WHERE ended >= ?1";
        let gaps = self.rows("add up gaps", sql, [start], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })?;
        let millis = |(began, ended): (i64, i64)| unsigned(ended.saturating_sub(began.max(start)));
        Ok(gaps.into_iter().map(millis).fold(0, u64::saturating_add))
    }
}

/// Attempts that failed, not those that ended with their run.
const FAILED: &str = "(attempt.message IS NOT NULL OR attempt.label IS NOT NULL)";

/// The midnight before, in UTC.
fn row_start(since: i64) -> i64 {
    const DAY: i64 = 86_400_000;
    since.div_euclid(DAY).saturating_mul(DAY)
}

fn add(phases: &mut Phases, phase: &str, ms: i64, gpu: i64) {
    let sum = phases.entry(phase.to_owned()).or_default();
    sum.0 = sum.0.saturating_add(ms);
    sum.1 = sum.1.saturating_add(gpu);
}

fn unsigned(number: i64) -> u64 {
    number.try_into().unwrap_or(0)
}

fn count(number: usize) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "accelerator milliseconds of a fleet fit a double for hours"
)]
fn hours(gpu_ms: i64) -> f64 {
    gpu_ms as f64 / 3.6e6
}

fn lost_millis(sums: &Sums) -> u64 {
    let training = sums.phases.get("training").map_or(0, |sum| sum.millis);
    sums.wall_millis.saturating_sub(training)
}

impl Adding {
    fn sums(&self) -> Sums {
        let of = |phase: &str| self.phases.get(phase).copied().unwrap_or_default();
        let sum = |pick: fn(&(i64, i64)) -> i64| {
            self.phases.values().map(pick).fold(0, i64::saturating_add)
        };
        let (wall, gpu) = (sum(|it| it.0), sum(|it| it.1));
        let (training, training_gpu) = of("training");
        let phases = self.phases.iter().map(|(phase, (ms, gpu))| {
            let sum = PhaseSum {
                millis: unsigned(*ms),
                gpu_hours: hours(*gpu),
            };
            (phase.clone(), sum)
        });
        Sums {
            runs: u64::try_from(self.runs.len()).unwrap_or(u64::MAX),
            failed_attempts: self.failed,
            wall_millis: unsigned(wall),
            trained_ratio: ratio(training, wall.saturating_sub(of("suspended").0)),
            gpu_hours: hours(gpu),
            lost_gpu_hours: hours(gpu.saturating_sub(training_gpu)),
            phases: phases.collect(),
        }
    }
}
