//! Checkpoints of a job, and what a failure now would cost.

use serde::Serialize;

use super::VERSION;
use crate::chronicle::Chronicle;

/// Checkpoints of an answer, the newest ones.
pub const SAVES_MAX: usize = 2_000;

/// The checkpoints of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoints {
    /// The form of this document.
    pub version: u32,
    /// Complete ones, the newest first.
    pub checkpoints: Vec<Checkpoint>,
    /// What would be trained again after a failure now; absent where the job has ended well, and where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_risk: Option<AtRisk>,
    /// How many older ones there was no room for.
    pub left_out: u64,
}

/// A complete checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// The step.
    pub step: u64,
    /// When, in Unix milliseconds.
    pub at: i64,
    /// The bytes of its tensor files, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How long training stood still for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_millis: Option<u64>,
    /// How long it was written after that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_millis: Option<u64>,
    /// The attempt that saved it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

/// Work since the newest checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AtRisk {
    /// Steps.
    pub steps: u64,
    /// Time since it was complete.
    pub millis: u64,
}

/// The checkpoints of `chronicle`. `last` is the step of the newest report and its time; nothing where the job has none, or nothing is at risk.
pub fn checkpoints(chronicle: &Chronicle, last: Option<(u64, i64)>) -> Checkpoints {
    let saves = chronicle.saves.iter().rev();
    let newest = chronicle.saves.back();
    let at_risk = newest.zip(last).and_then(|((at, save), (step, reported))| {
        Some(AtRisk {
            steps: step.checked_sub(save.step)?,
            millis: u64::try_from(reported.saturating_sub(*at)).unwrap_or(0),
        })
    });
    let dropped = chronicle.saves.len().saturating_sub(SAVES_MAX);
    Checkpoints {
        version: VERSION,
        checkpoints: saves
            .take(SAVES_MAX)
            .map(|(at, save)| Checkpoint {
                step: save.step,
                at: *at,
                bytes: Some(save.bytes).filter(|bytes| *bytes > 0),
                stall_millis: save.stall_millis,
                write_millis: save.write_millis,
                attempt: save.attempt,
            })
            .collect(),
        at_risk,
        left_out: chronicle
            .left_out
            .saves
            .saturating_add(u64::try_from(dropped).unwrap_or(u64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        chronicle::{Save, What},
        view::testing::chronicle,
    };

    #[test]
    fn steps_since_a_checkpoint_are_at_risk() {
        let save = |step: u64, at: i64| {
            let save = Save {
                step,
                attempt: Some(1),
                bytes: 0,
                stall_millis: None,
                write_millis: Some(5),
            };
            (at, What::Saved(save))
        };
        let history = chronicle([save(100, 1_000), save(200, 2_000)]);
        let cases = [
            ("ahead", Some((250, 9_000)), Some((50, 7_000))),
            ("just saved", Some((200, 1_900)), Some((0, 0))),
            ("trains again", Some((150, 9_000)), None),
            ("nothing is known", None, None),
        ];
        for (name, last, want) in cases {
            let document = checkpoints(&history, last);
            let risk = document.at_risk.map(|risk| (risk.steps, risk.millis));
            assert_eq!(risk, want, "{name}");
            let steps: Vec<u64> = document.checkpoints.iter().map(|it| it.step).collect();
            assert_eq!(steps, [200, 100]);
            assert_eq!(document.checkpoints[0].bytes, None, "not known");
        }
        let none = checkpoints(&Chronicle::default(), Some((5, 5)));
        assert_eq!((none.checkpoints.len(), none.at_risk), (0, None));
    }
}
