//! Findings in words: what was found, what the others do, what would refute it.

use std::{fmt::Write, time::Duration};

use super::{Cause, Finding, Others};

/// The labels of findings for which a gang may restart: hangs, and a loss that stays NaN.
pub const RESTART_LABELS: [&str; 6] = [
    "hang_all_alike",
    "hang_cpu_side",
    "hang_disk_wait",
    "hang_in_collective",
    "hang_stopped",
    "nan_loss",
];

impl Cause {
    /// The stable label, as the doctor uses it.
    pub fn label(&self) -> &'static str {
        match self {
            Self::HangCpuSide { .. } => "hang_cpu_side",
            Self::HangStopped => "hang_stopped",
            Self::HangDiskWait { .. } => "hang_disk_wait",
            Self::HangInCollective { .. } => "hang_in_collective",
            Self::HangAllAlike { .. } => "hang_all_alike",
            Self::NanLoss { .. } => "nan_loss",
            Self::LossSpike { .. } => "loss_spike",
            Self::Straggler { .. } => "straggler",
            Self::JobSlower { .. } => "job_slower",
        }
    }

    /// Whether no rank trains any more.
    pub fn is_hang(&self) -> bool {
        matches!(
            self,
            Self::HangCpuSide { .. }
                | Self::HangStopped
                | Self::HangDiskWait { .. }
                | Self::HangInCollective { .. }
                | Self::HangAllAlike { .. }
        )
    }

    /// What would show that the finding is wrong.
    pub fn refuted_by(&self) -> &'static str {
        match self {
            Self::HangCpuSide { .. } => {
                "a later step, or another stack of the named rank while the others wait"
            }
            Self::HangStopped => "a later step, or the named rank running again without a signal",
            Self::HangDiskWait { .. } => "bytes that the named rank reads or writes",
            Self::HangInCollective { .. } => {
                "the named rank having begun the same collective as the others"
            }
            Self::HangAllAlike { .. } => "a later step, or a rank whose stack differs",
            Self::NanLoss { .. } => "a finite loss in the next steps",
            Self::LossSpike { .. } => "a loss that falls back within a few steps",
            Self::Straggler { .. } => "step times of the named rank that are those of the others",
            Self::JobSlower { .. } => "a larger batch or longer sequences since the faster steps",
        }
    }
}

impl Finding {
    /// What was found, with the numbers: lower case, no full stop.
    pub fn sentence(&self) -> String {
        let mut text = self.what();
        if let Some(others) = &self.others {
            text.push_str(&of_others(others));
        }
        if let Some(collective) = &self.collective {
            let words = collective.words(&self.who(), self.count > 1);
            // Writing to a string cannot fail.
            _ = write!(text, "; {words}");
        }
        text
    }

    fn what(&self) -> String {
        let who = self.who();
        let silent = seconds(self.silent_for);
        match &self.cause {
            Cause::HangCpuSide { place: Some(place) } => {
                format!("no step for {silent}: {who} stands at `{place}`")
            }
            Cause::HangCpuSide { place: None } => {
                format!("no step for {silent}: {who} does not do what the others do")
            }
            Cause::HangStopped => {
                format!("no step for {silent}: {who} is stopped by a signal (state T)")
            }
            Cause::HangDiskWait { channel } => {
                let channel = channel.as_deref();
                let place = channel.map_or_else(String::new, |name| format!(" in `{name}`"));
                format!("no step for {silent}: {who} waits for a disk or a driver{place} (state D)")
            }
            Cause::HangInCollective { sequence, others } if sequence == others => {
                format!("no step for {silent}: {who} holds up collective {sequence}")
            }
            Cause::HangInCollective { sequence, others } => format!(
                "no step for {silent}: {who} began collective {sequence} last, others are at {others}"
            ),
            Cause::HangAllAlike { place: Some(place) } => {
                format!(
                    "no step for {silent}: no rank differs from the others, all stand at `{place}`"
                )
            }
            Cause::HangAllAlike { place: None } => {
                format!("no step for {silent}: no rank differs from the others")
            }
            Cause::NanLoss { step, norm } => {
                let what = if *norm { "gradient norm" } else { "loss" };
                let since = step.map_or_else(String::new, |step| format!(" since step {step}"));
                format!("the {what} of {who} is NaN or infinite{since}")
            }
            Cause::LossSpike { step, loss, usual } => {
                let at = step.map_or_else(String::new, |step| format!(" at step {step}"));
                format!("the loss rose to {loss}{at}, usual are {usual}")
            }
            Cause::Straggler {
                percent: Some(percent),
            } => format!(
                "{who} takes {} times as long for a step as the other ranks",
                times(*percent)
            ),
            Cause::Straggler { percent: None } => {
                format!("the job is slower than before, and {who} is waited for by all others")
            }
            Cause::JobSlower { percent } => {
                format!(
                    "steps take {} times as long as at their best",
                    times(*percent)
                )
            }
        }
    }

    /// The ranks that are named.
    fn who(&self) -> String {
        let more = (self.count as usize).saturating_sub(self.ranks.len());
        let mut text = match self.ranks.as_slice() {
            [] => return "no rank".to_owned(),
            [rank] if more == 0 => return format!("rank {rank}"),
            _ => "ranks ".to_owned(),
        };
        for (index, rank) in self.ranks.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            // Writing to a string cannot fail.
            _ = write!(text, "{comma}{rank}");
        }
        if more > 0 {
            _ = write!(text, " and {more} more");
        }
        text
    }
}

/// What the others do, as the end of a sentence.
fn of_others(others: &Others) -> String {
    let count = others.count;
    let ranks = if count == 1 {
        "1 other rank".to_owned()
    } else {
        format!("{count} other ranks")
    };
    let verb = if count == 1 { "waits" } else { "wait" };
    match (&others.place, others.in_collective) {
        (Some(place), true) => format!("; {ranks} {verb} in a collective at `{place}`"),
        (None, true) => format!("; {ranks} {verb} in a collective"),
        (Some(place), false) => format!("; {ranks}: at `{place}`"),
        (None, false) => String::new(),
    }
}

/// Percent as a factor with one digit.
fn times(percent: u32) -> String {
    format!("{}.{}", percent / 100, percent % 100 / 10)
}

/// A time that a person reads: whole seconds, or tenths under ten.
fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(10) {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} s", time.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Figure;

    /// A finding that ends no training restarts nothing, and every other one has its label in the list.
    #[test]
    fn restart_labels_are_those_of_hangs_and_nan() {
        let causes = [
            Cause::HangCpuSide { place: None },
            Cause::HangStopped,
            Cause::HangDiskWait { channel: None },
            Cause::HangInCollective {
                sequence: 1,
                others: 2,
            },
            Cause::HangAllAlike { place: None },
            Cause::NanLoss {
                step: None,
                norm: false,
            },
            Cause::LossSpike {
                step: None,
                loss: Figure(2.0),
                usual: Figure(1.0),
            },
            Cause::Straggler { percent: None },
            Cause::JobSlower { percent: 150 },
        ];
        let mut restarts: Vec<&str> = causes
            .iter()
            .filter(|cause| cause.is_hang() || matches!(cause, Cause::NanLoss { .. }))
            .map(Cause::label)
            .collect();
        restarts.sort_unstable();
        assert_eq!(restarts, RESTART_LABELS);
    }
}
