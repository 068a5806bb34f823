//! The inputs of a simulation.
//!
//! Times are seconds, rates are per machine-day.

use serde::Serialize;
use thiserror::Error;

use crate::plan::recovery::Saving;

/// Machines that a world may have.
const MOST_MACHINES: u32 = 1_000_000;
/// Longest run, in days.
const MOST_DAYS: f64 = 3_660.0;

/// A job, its machines, and the failures they suffer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct World {
    /// Machines of the gang.
    pub machines: u32,
    /// How long it runs.
    pub length: Length,
    /// How machines fail.
    pub failures: Failures,
    /// Failures of several machines at once.
    pub bursts: Bursts,
    /// How failures are detected.
    pub notice: Notice,
    /// How the gang restarts.
    pub path: Path,
    /// How long each path takes.
    pub path_seconds: PathSeconds,
    /// From the start of processes to the first step: groups, compilation, reading the checkpoint.
    pub start_seconds: f64,
    /// How training is saved.
    pub checkpoints: Checkpoints,
    /// Spare machines.
    pub spares: Spares,
    /// How machines come back.
    pub repair: Repair,
    /// Preemptions by jobs of higher priority.
    pub preemptions: Preemptions,
}

/// How long a run lasts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Length {
    /// Until so much has been trained.
    Trained(f64),
    /// Until so much time has passed.
    Passed(f64),
}

/// How machines fail.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failures {
    /// Failures of a good machine, its hardware.
    pub hardware: f64,
    /// Failures of the software that runs on it; the machine stays good.
    pub software: f64,
    /// Share of machines that are bad.
    pub bad_share: f64,
    /// How many times more often their hardware fails.
    pub bad_times: f64,
    /// Whether failures strike while the gang restarts too.
    pub while_restarting: bool,
}

/// Failures of several machines at once, such as a switch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bursts {
    /// Bursts in a day, in the whole cluster.
    pub per_day: f64,
    /// Machines that each takes.
    pub machines: u32,
}

/// How failures are detected.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// Where a process ends.
    pub seconds: f64,
    /// Share of failures that hang: no process ends, and none makes progress.
    pub silent_share: f64,
    /// Until such a hang is detected.
    pub silent_seconds: f64,
}

/// How the gang restarts after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Every pod is deleted, and the whole gang returns to the wait queue.
    Requeue,
    /// Only the pod of the failed machine is placed again.
    Replace,
    /// A machine that is ready and warm takes its place.
    Standby,
    /// Processes restart where they are; machines that failed are replaced by standbys.
    InPlace,
}

impl Path {
    /// Every path.
    pub const ALL: [Self; 4] = [Self::Requeue, Self::Replace, Self::Standby, Self::InPlace];

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requeue => "requeue",
            Self::Replace => "replace",
            Self::Standby => "standby",
            Self::InPlace => "in-place",
        }
    }
}

/// How long each path takes, from the notice to the start of processes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PathSeconds {
    /// The whole gang in the wait queue again.
    pub requeue: f64,
    /// One pod placed again.
    pub replace: f64,
    /// A warm standby.
    pub standby: f64,
    /// Where they are.
    pub in_place: f64,
}

impl PathSeconds {
    /// As `ByteRobust` published them for 128 to 1,024 machines (arXiv:2509.16293, table 7 and figure
    /// 12), in between and beyond by doublings.
    pub fn published(machines: u32) -> Self {
        let doublings = (f64::from(machines.max(1)) / 128.0).log2().max(-4.0);
        let requeue = (454.0 + 104.7 * doublings).max(60.0);
        Self {
            requeue,
            replace: requeue * 5.36 / 10.87,
            standby: requeue / 10.87,
            in_place: (46.0 + 6.3 * doublings).max(15.0),
        }
    }

    /// The same time for every path.
    pub fn same(seconds: f64) -> Self {
        Self {
            requeue: seconds,
            replace: seconds,
            standby: seconds,
            in_place: seconds,
        }
    }
}

/// How training is saved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoints {
    /// How.
    pub saving: Saving,
    /// Trained between two.
    pub every: f64,
    /// Training waits for one.
    pub blocking: f64,
    /// From its beginning until one is safe.
    pub safe_after: f64,
    /// Machines that may fail at once before what peers hold in memory is lost; then the last one on
    /// storage counts.
    pub memory_survives: u32,
    /// Trained between two on storage, where the others are in memory.
    pub storage_every: f64,
}

/// Machines besides those of the gang.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spares {
    /// Warm ones that belong to the job.
    pub standbys: u32,
    /// Idle ones of the cluster.
    pub pool: u32,
    /// Ones that other jobs must release first.
    pub lent: u32,
    /// To choose machines of the pool.
    pub choose_seconds: f64,
    /// Until another job has released one.
    pub lent_seconds: f64,
}

/// How machines come back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Repair {
    /// The first, automatic, attempt.
    pub automatic: f64,
    /// Share of those that do not help.
    pub automatic_fails: f64,
    /// Share of those that are repaired manually; the others come back as they are.
    pub escalated: f64,
    /// The manual repair.
    pub manual: f64,
    /// Share of manual repairs that do not help.
    pub manual_fails: f64,
}

/// Preemptions by jobs of higher priority.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preemptions {
    /// In a day.
    pub per_day: f64,
    /// How long the gang then waits.
    pub wait: f64,
}

/// Why a world is invalid.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum WorldError {
    /// A number is out of range.
    #[error("{what} is {found}; it must be between {least} and {most}")]
    Range {
        /// Which.
        what: &'static str,
        /// What it is.
        found: f64,
        /// Smallest that makes sense.
        least: f64,
        /// Largest that makes sense.
        most: f64,
    },
}

impl World {
    /// A gang of `machines` that runs for `days`, with hardware failing `rate` times a machine-day, the
    /// paths as published, and an in-house cluster's repair.
    pub fn usual(machines: u32, days: f64, rate: f64) -> Self {
        let day = 86_400.0;
        Self {
            machines,
            length: Length::Passed(days * day),
            failures: Failures {
                hardware: rate * 0.78,
                software: rate * 0.22,
                bad_share: 0.0,
                bad_times: 1.0,
                while_restarting: true,
            },
            bursts: Bursts {
                per_day: 0.0,
                machines: 0,
            },
            notice: Notice {
                seconds: 30.0,
                silent_share: 0.1,
                silent_seconds: 600.0,
            },
            path: Path::Standby,
            path_seconds: PathSeconds::published(machines),
            start_seconds: 120.0,
            checkpoints: Checkpoints {
                saving: Saving::Asynchronous,
                every: 600.0,
                blocking: 1.0,
                safe_after: 60.0,
                memory_survives: 1,
                storage_every: 1_800.0,
            },
            spares: Spares {
                standbys: 4,
                pool: machines / 32 + 4,
                lent: machines / 16,
                choose_seconds: 180.0,
                lent_seconds: 1_200.0,
            },
            repair: Repair {
                automatic: 7_200.0,
                automatic_fails: 0.4,
                escalated: 0.8,
                manual: 2.0 * day,
                manual_fails: 0.2,
            },
            preemptions: Preemptions {
                per_day: 0.0,
                wait: 3_600.0,
            },
        }
    }

    /// Checks every number.
    pub fn check(&self) -> Result<(), WorldError> {
        let (length, longest) = match self.length {
            Length::Trained(seconds) | Length::Passed(seconds) => (seconds, MOST_DAYS * 86_400.0),
        };
        let year = 366.0 * 86_400.0;
        let numbers = [
            (
                "machines",
                f64::from(self.machines),
                1.0,
                f64::from(MOST_MACHINES),
            ),
            ("the length in seconds", length, 1.0, longest),
            (
                "the rate of hardware failures",
                self.failures.hardware,
                0.0,
                100.0,
            ),
            (
                "the rate of software failures",
                self.failures.software,
                0.0,
                100.0,
            ),
            (
                "the share of bad machines",
                self.failures.bad_share,
                0.0,
                1.0,
            ),
            (
                "how much more often bad machines fail",
                self.failures.bad_times,
                1.0,
                1e6,
            ),
            ("bursts per day", self.bursts.per_day, 0.0, 1_000.0),
            (
                "seconds to detect a failure",
                self.notice.seconds,
                0.0,
                year,
            ),
            (
                "the share of silent failures",
                self.notice.silent_share,
                0.0,
                1.0,
            ),
            (
                "seconds to detect a hang",
                self.notice.silent_seconds,
                0.0,
                year,
            ),
            ("seconds to start", self.start_seconds, 0.0, year),
            (
                "seconds between checkpoints",
                self.checkpoints.every,
                0.001,
                year,
            ),
            (
                "seconds that a checkpoint blocks",
                self.checkpoints.blocking,
                0.0,
                year,
            ),
            (
                "the share of repairs that fail",
                self.repair.automatic_fails,
                0.0,
                1.0,
            ),
            ("the share of escalations", self.repair.escalated, 0.0, 1.0),
            (
                "the share of manual repairs that fail",
                self.repair.manual_fails,
                0.0,
                1.0,
            ),
            (
                "preemptions per day",
                self.preemptions.per_day,
                0.0,
                10_000.0,
            ),
        ];
        let seconds = [
            ("seconds to restart", self.path_seconds.requeue),
            ("seconds to restart", self.path_seconds.replace),
            ("seconds to restart", self.path_seconds.standby),
            ("seconds to restart", self.path_seconds.in_place),
            (
                "seconds until a checkpoint is durable",
                self.checkpoints.safe_after,
            ),
            ("seconds of an automatic repair", self.repair.automatic),
            ("seconds of a manual repair", self.repair.manual),
            ("seconds of a preemption", self.preemptions.wait),
        ]
        .map(|(what, found)| (what, found, 0.0, year));
        let counts = [
            ("standbys", self.spares.standbys),
            ("idle machines", self.spares.pool),
            (
                "machines lost in a correlated failure",
                self.bursts.machines,
            ),
        ]
        .map(|(what, found)| (what, f64::from(found), 0.0, f64::from(MOST_MACHINES)));
        for (what, found, least, most) in numbers.into_iter().chain(seconds).chain(counts) {
            if !(least..=most).contains(&found) {
                return Err(WorldError::Range {
                    what,
                    found,
                    least,
                    most,
                });
            }
        }
        Ok(())
    }
}
