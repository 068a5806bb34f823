//! What members report to the leader's watch, and what it asks them for: the content of two kinds of frames.
//!
//! A member reports about the ranks of its own pod. What it says is bounded in number and length, and can mislead only the watch of its
//! own job.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use trainyard_core::watch::{
    Collective, PendingCollective, Phase, ProcessState, Signal, Stack, Step, Usage,
};
use trainyard_stacks::ranks::{RankLook, RankState};

/// Signs of one report, at most: two of each rank of a large pod, and what it printed.
pub(crate) const MAX_SIGNS: usize = 256;
/// Bytes of a number without an exponent, at most.
const MAX_NUMBER: usize = 24;
/// Bytes of a text in a sign, at most.
const MAX_TEXT: usize = 512;

/// From a member to the leader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The uid of the job.
    pub(crate) job: String,
    /// The attempt that runs.
    pub(crate) attempt: u32,
    /// The first rank of the pod.
    pub(crate) first: u32,
    /// How many it holds.
    pub(crate) count: u32,
    /// The number of the question that this answers; none for what the program prints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asked: Option<u32>,
    pub(crate) signs: Vec<Sign>,
}

/// From the leader to a member: look at the processes of your ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) number: u32,
    pub(crate) attempt: u32,
    /// Also where their main threads are.
    pub(crate) stacks: bool,
    /// Also ask NCCL's monitor, in the pod that leads.
    #[serde(default)]
    pub(crate) collectives: bool,
    /// Also ask their Flight Recorders for dumps, which come with a later answer.
    #[serde(default)]
    pub(crate) dumps: bool,
}

/// One sign of a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sign {
    /// Which, counted from the first of the pod.
    #[serde(rename = "r", default, skip_serializing_if = "is_zero")]
    pub(crate) rank: u32,
    #[serde(flatten)]
    what: What,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_zero(rank: &u32) -> bool {
    *rank == 0
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum What {
    Step {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        n: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        micros: Option<u64>,
        /// As text: JSON has no NaN.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        loss: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        norm: Option<String>,
    },
    Begins(String),
    Ends(String),
    Output,
    Usage {
        cpu_millis: u64,
        io: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        net: Option<u64>,
        state: char,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waits: Option<String>,
    },
    Stack {
        digest: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        place: Option<String>,
        collective: bool,
    },
    Collective {
        #[serde(default, skip_serializing_if = "String::is_empty")]
        group: String,
        began: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pending: Option<Pending>,
    },
}

/// A collective that has not completed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Pending {
    n: u64,
    operation: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    elements: Option<u64>,
    #[serde(default)]
    started: bool,
}

impl Report {
    /// The content of a frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The report in a frame's content, where every part is within its bound.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let report: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let long = |text: &Option<String>| text.as_ref().is_some_and(|text| text.len() > MAX_TEXT);
        let too_long = report.signs.iter().any(|sign| match &sign.what {
            What::Step { loss, norm, .. } => long(loss) || long(norm),
            What::Usage { waits, .. } => long(waits),
            What::Stack { place, .. } => long(place),
            What::Collective { group, pending, .. } => {
                let operation = pending.as_ref().map(|pending| &pending.operation);
                group.len() > MAX_TEXT || operation.is_some_and(|name| name.len() > MAX_TEXT)
            }
            What::Begins(phase) | What::Ends(phase) => phase.len() > MAX_TEXT,
            What::Output => false,
        });
        if report.signs.len() > MAX_SIGNS || too_long {
            return Err("a report is too large".to_owned());
        }
        Ok(report)
    }

    /// What it says of which rank. Of ranks beyond those of the pod it says nothing.
    pub(crate) fn signals(self) -> impl Iterator<Item = (u32, Signal)> {
        let (first, count) = (self.first, self.count);
        let own = self.signs.into_iter().filter(move |sign| sign.rank < count);
        own.filter_map(move |sign| Some((first.checked_add(sign.rank)?, sign.what.into_signal()?)))
    }
}

impl Sign {
    /// What the program of the pod has printed, which is its first rank's.
    pub(crate) fn printed(signal: &Signal) -> Option<Self> {
        let number = |value: Option<f64>| value.map(number_text);
        let what = match signal {
            Signal::Step(step) => What::Step {
                n: step.step,
                micros: step
                    .step_time
                    .and_then(|time| u64::try_from(time.as_micros()).ok()),
                loss: number(step.loss),
                norm: number(step.grad_norm),
            },
            Signal::Beat {
                phase: Some(phase), ..
            } => What::Begins(phase.name().to_owned()),
            Signal::Done { phase } => What::Ends(phase.name().to_owned()),
            Signal::Output => What::Output,
            _ => return None,
        };
        Some(Self { rank: 0, what })
    }

    /// What a heartbeat says of `rank`, counted from the first of the pod. One without a phase is a sign of life, as output is.
    pub(crate) fn beaten(rank: u32, signal: &Signal) -> Option<Self> {
        let sign = match signal {
            Signal::Beat { phase: None, .. } => Self::printed(&Signal::Output),
            signal => Self::printed(signal),
        };
        sign.map(|sign| Self { rank, ..sign })
    }

    /// What was seen of the ranks of a pod whose first is `first` and whose interfaces have moved `network` bytes.
    pub(crate) fn seen(looks: Vec<RankLook>, first: u32, network: Option<u64>) -> Vec<Self> {
        let signs = looks.into_iter().filter_map(|look| {
            let rank = look.rank.checked_sub(first)?;
            let usage = What::Usage {
                cpu_millis: u64::try_from(look.cpu.as_millis()).unwrap_or(u64::MAX),
                io: look.io_bytes,
                net: network,
                state: letter(look.state),
                waits: look.wait_channel.map(|text| cut(text, MAX_TEXT)),
            };
            let stack = look.stack.map(|stack| What::Stack {
                digest: stack.digest,
                place: stack.place.map(|text| cut(text, MAX_TEXT)),
                collective: stack.in_collective,
            });
            let both = [Some(usage), stack].into_iter().flatten();
            Some(both.map(move |what| Self { rank, what }))
        });
        signs.flatten().take(MAX_SIGNS).collect()
    }

    /// What Flight Recorders of the ranks of a pod show whose first is `first`.
    pub(crate) fn recorded(dumps: Vec<(u32, Vec<Collective>)>, first: u32) -> Vec<Self> {
        let signs = dumps.into_iter().filter_map(|(rank, began)| {
            let rank = rank.checked_sub(first)?;
            let what = began.into_iter().map(|one| What::Collective {
                group: cut(one.group, MAX_TEXT),
                began: one.sequence,
                pending: one.pending.map(|pending| Pending {
                    n: pending.sequence,
                    operation: cut(pending.operation, MAX_TEXT),
                    elements: pending.elements,
                    started: pending.started,
                }),
            });
            Some(what.map(move |what| Self { rank, what }))
        });
        signs.flatten().take(MAX_SIGNS / 2).collect()
    }
}

/// A number as it is parsed again. Written out, 1e300 has 301 digits, and a few of them fill a frame.
fn number_text(value: f64) -> String {
    let text = value.to_string();
    if text.len() > MAX_NUMBER {
        format!("{value:e}")
    } else {
        text
    }
}

/// The first `most` bytes of a text, or less so that no character is cut.
pub(crate) fn cut(mut text: String, most: usize) -> String {
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}

fn letter(state: RankState) -> char {
    match state {
        RankState::Running => 'R',
        RankState::Sleeping => 'S',
        RankState::DiskWait => 'D',
        RankState::Stopped => 'T',
    }
}

impl What {
    fn into_signal(self) -> Option<Signal> {
        let number = |text: Option<String>| text.and_then(|text| text.parse().ok());
        Some(match self {
            Self::Step {
                n,
                micros,
                loss,
                norm,
            } => Signal::Step(Step {
                step: n,
                step_time: micros.map(Duration::from_micros),
                loss: number(loss),
                grad_norm: number(norm),
            }),
            Self::Begins(phase) => Signal::Beat {
                phase: Some(Phase::parse(&phase)?),
                step: None,
            },
            Self::Ends(phase) => Signal::Done {
                phase: Phase::parse(&phase)?,
            },
            Self::Output => Signal::Output,
            Self::Usage {
                cpu_millis,
                io,
                net,
                state,
                waits,
            } => Signal::Usage(Usage {
                cpu: Duration::from_millis(cpu_millis),
                io_bytes: io,
                network_bytes: net,
                state: match state {
                    'R' => ProcessState::Running,
                    'D' => ProcessState::DiskWait,
                    'T' => ProcessState::Stopped,
                    _ => ProcessState::Sleeping,
                },
                wait_channel: waits,
            }),
            Self::Stack {
                digest,
                place,
                collective,
            } => Signal::Stack(Stack {
                digest,
                place,
                in_collective: collective,
            }),
            Self::Collective {
                group,
                began,
                pending,
            } => Signal::Collective(Collective {
                group,
                sequence: began,
                pending: pending.map(|pending| PendingCollective {
                    sequence: pending.n,
                    operation: pending.operation,
                    elements: pending.elements,
                    started: pending.started,
                }),
            }),
        })
    }
}

impl Question {
    /// Also asks for what `before` asked for and nobody was asked: the watch asks for it once. An attempt that is over needs no answer.
    pub(crate) fn add_unasked(&mut self, before: Self) {
        if before.attempt == self.attempt {
            self.collectives |= before.collectives;
            self.dumps |= before.dumps;
        }
    }

    /// The content of a frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The question in a frame's content.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::{beats::MOST_RANKS, frame::Kind};

    #[test]
    fn reports_survive_the_wire() {
        let printed = [
            Signal::Output,
            Signal::Step(Step {
                step: Some(7),
                step_time: Some(Duration::from_micros(1500)),
                loss: Some(f64::INFINITY),
                grad_norm: None,
            }),
            Signal::Done { phase: Phase::Save },
        ];
        let report = Report {
            job: "j".to_owned(),
            attempt: 2,
            first: 4,
            count: 1,
            asked: None,
            signs: printed.iter().filter_map(Sign::printed).collect(),
        };
        let back = Report::decode(&report.encode()).unwrap();
        assert_eq!(back, report);
        let signals: Vec<(u32, Signal)> = back.signals().collect();
        let wanted: Vec<(u32, Signal)> = printed.into_iter().map(|signal| (4, signal)).collect();
        assert_eq!(signals, wanted);
        // A pod sends up to four of them in a second.
        assert!(report.encode().len() < 256, "{}", report.encode().len());
    }

    #[test]
    fn nan_is_kept() {
        let nan = Signal::Step(Step {
            loss: Some(f64::NAN),
            ..Step::default()
        });
        let back = Sign::printed(&nan).unwrap().what.into_signal();
        let Some(Signal::Step(step)) = back else {
            panic!("{back:?}");
        };
        assert!(step.loss.unwrap().is_nan());
    }

    /// The most that a program may have printed between two reports, and the heartbeats of all its ranks and of the pod, with the longest
    /// numbers there are.
    #[test]
    fn the_largest_report_of_steps_fits_into_a_frame() {
        for value in [1e300, -f64::MAX, f64::MIN_POSITIVE, -5e-324, 0.1 + 0.2] {
            let step = Signal::Step(Step {
                step: Some(u64::MAX),
                step_time: Some(Duration::from_micros(u64::MAX)),
                loss: Some(value),
                grad_norm: Some(value),
            });
            let phase = Signal::Beat {
                phase: Some(Phase::Evaluate),
                step: None,
            };
            let printed = vec![Sign::printed(&step).unwrap(); 16];
            let beaten = (0..MOST_RANKS).chain([0]).flat_map(|rank| {
                let both = [&step, &phase].into_iter();
                both.filter_map(move |signal| Sign::beaten(rank, signal))
            });
            let all: Vec<Sign> = printed.iter().cloned().chain(beaten).collect();
            for (count, signs) in [(1, printed), (MOST_RANKS, all)] {
                let report = Report {
                    job: "0".repeat(36),
                    attempt: u32::MAX,
                    first: u32::MAX - count,
                    count,
                    asked: None,
                    signs,
                };
                let bytes = report.encode();
                let bound = Kind::Signs.bound();
                let length = bytes.len();
                assert!(length <= bound, "{count} ranks, {value:e}: {length} bytes");
                let back: Vec<(u32, Signal)> = Report::decode(&bytes).unwrap().signals().collect();
                assert_eq!(back.len(), report.signs.len(), "{count} ranks");
                assert_eq!(back.first(), Some(&(u32::MAX - count, step.clone())));
            }
        }
    }

    #[test]
    fn reports_are_bounded() {
        let sign = Sign {
            rank: 9,
            what: What::Output,
        };
        let mut report = Report {
            job: String::new(),
            attempt: 1,
            first: u32::MAX,
            count: 10,
            asked: Some(1),
            signs: vec![sign; MAX_SIGNS],
        };
        assert!(Report::decode(&report.encode()).is_ok());
        assert_eq!(report.clone().signals().count(), 0, "no such ranks");
        report.signs.push(Sign {
            rank: 0,
            what: What::Begins("x".repeat(MAX_TEXT)),
        });
        assert!(Report::decode(&report.encode()).is_err());
        assert!(Report::decode(b"{}").is_err());
    }
}
