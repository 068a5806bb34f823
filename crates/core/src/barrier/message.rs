//! What members, leader and operator send each other.
//!
//! Owns the order of what is said: a [`Fence`] for orders, [`Hello::is_newer_than`] for reports. Each message is a whole state, so one that
//! is lost is made good by the next. Frames and TLS belong to the adapters; a message is the content of one frame.

use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use super::{
    limits::{MAX_ENDED, MAX_GROUPS, MAX_MEMBERS, MAX_MESSAGE, MAX_SAVES, MAX_SENTENCE, MAX_TEXT},
    slots::{Roster, SlotSet},
};
use crate::{checkpoint::StoreSeen, pod::PodUid, spec::Slot};

/// A message and the job that it belongs to. A message of another job changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope<M> {
    /// The uid of the job object.
    pub job: String,
    /// The message.
    pub message: M,
}

/// The stages of an attempt, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// No program runs; members get ready for the attempt.
    Prepare,
    /// Programs run.
    Go,
    /// One of them failed, and all containers are kept for inspection. Programs that run still run.
    Hold,
    /// Programs are stopped.
    Stop,
}

/// How far the orders of a job have come: the attempt, then the stage in it. It only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fence {
    /// The attempt.
    pub attempt: u32,
    /// The stage in it.
    pub stage: Stage,
}

impl Fence {
    /// The fence of `stage` in `attempt`.
    pub fn new(attempt: u32, stage: Stage) -> Self {
        Self { attempt, stage }
    }
}

/// How programs are stopped. A hang overrides a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopHow {
    /// SIGTERM, then this long until they are killed.
    Grace(Duration),
    /// Without grace: they hang.
    Hang,
}

/// What a member is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Command {
    /// Get ready for `attempt`.
    Prepare {
        /// The attempt.
        attempt: u32,
    },
    /// Run the program as `attempt`.
    Go {
        /// The attempt.
        attempt: u32,
    },
    /// Keep the container, whether or not the program of `attempt` ended: people inspect it.
    Hold {
        /// The attempt.
        attempt: u32,
        /// For so long since the member first received it, at least.
        within: Duration,
    },
    /// Stop the program of `attempt`, and start none of it again.
    Stop {
        /// The attempt.
        attempt: u32,
        /// How.
        how: StopHow,
    },
}

impl Command {
    /// Its place in the order of all commands.
    pub fn fence(&self) -> Fence {
        match *self {
            Self::Prepare { attempt } => Fence::new(attempt, Stage::Prepare),
            Self::Go { attempt } => Fence::new(attempt, Stage::Go),
            Self::Hold { attempt, .. } => Fence::new(attempt, Stage::Hold),
            Self::Stop { attempt, .. } => Fence::new(attempt, Stage::Stop),
        }
    }
}

/// From the operator to the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperatorMessage {
    /// What all pods of the roster are to do.
    Order(Order),
    /// The summary was received, and the leader has the current order.
    Ack,
}

/// What the pods of a roster are to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What.
    pub command: Command,
    /// Who.
    pub roster: Roster,
}

/// From the leader to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LeaderMessage {
    /// What it is to do.
    Command(Command),
    /// The report was received; there is no command for this pod.
    Ack,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramExit {
    /// Its exit code; of no meaning where a signal ended it.
    pub code: i32,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

impl ProgramExit {
    /// The exit code of a container that ends like this program: 128 + n for signal n.
    pub fn container_code(self) -> i32 {
        self.signal
            .map_or(self.code, |signal| 128_i32.saturating_add(signal))
    }
}

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MemberState {
    /// It waits for Go.
    Ready,
    /// Its program runs.
    Running,
    /// Its program ended by itself.
    Ended(ProgramExit),
    /// It stops its program.
    Stopping,
    /// Its program does not end.
    CannotStop,
    /// No program of this attempt or an earlier one runs, or will.
    Stopped,
}

impl MemberState {
    /// Its name.
    pub fn name(self) -> StateName {
        match self {
            Self::Ready => StateName::Ready,
            Self::Running => StateName::Running,
            Self::Ended(_) => StateName::Ended,
            Self::Stopping => StateName::Stopping,
            Self::CannotStop => StateName::CannotStop,
            Self::Stopped => StateName::Stopped,
        }
    }
}

/// The name of a member's state, in the order in which a member passes through them in one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StateName {
    /// It waits for Go.
    Ready,
    /// Its program runs.
    Running,
    /// Its program ended by itself.
    Ended,
    /// It stops its program.
    Stopping,
    /// Its program does not end.
    CannotStop,
    /// No program of this attempt or an earlier one runs.
    Stopped,
}

/// From a member to the leader: all that it has to report, at the start of a connection, at every change, and again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its pod.
    pub uid: PodUid,
    /// Its slot.
    pub slot: Slot,
    /// The attempt that `state` is about.
    pub attempt: u32,
    /// What it does.
    pub state: MemberState,
}

impl Hello {
    /// How far the member has come; it only grows while the pod lives.
    pub fn position(&self) -> (u32, StateName) {
        (self.attempt, self.state.name())
    }

    /// Whether this report is newer than `other`, of the same pod.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.position() > other.position()
    }
}

/// From the leader to the operator: all members in one message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The order that the leader has; none after its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// [`Roster::digest`] of that order: `groups` are about its pods and no others.
    pub roster: u64,
    /// The connected members of the roster, by what they report.
    pub groups: Vec<Group>,
    /// The first programs that ended by themselves, in the order of their slots.
    pub ended: Vec<EndedMember>,
    /// What the watch of the leader found, where programs run and do not train.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hang: Option<HangReport>,
    /// What the supervisor of the leading pod saw in the store of checkpoints, once it has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreReport>,
}

/// What was seen in the store of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// The attempt that ran then.
    pub attempt: u32,
    /// What is in it; nothing where it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Box<StoreSeen>>,
    /// Why it could not be read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// A hang, as the watch of the leader reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HangReport {
    /// The attempt that hangs.
    pub attempt: u32,
    /// The pod of the rank that is apart, or the first one where all are alike.
    pub slot: Slot,
    /// The rank that is apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The label of the verdict, such as `hang_cpu_side`.
    pub label: String,
    /// What was found, in one sentence.
    pub sentence: String,
}

/// Members that report the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The attempt.
    pub attempt: u32,
    /// The state.
    pub state: StateName,
    /// Who.
    pub slots: SlotSet,
}

/// A program that ended by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedMember {
    /// Its slot.
    pub slot: Slot,
    /// Its pod.
    pub uid: PodUid,
    /// Its attempt.
    pub attempt: u32,
    /// How.
    pub exit: ProgramExit,
}

/// Why bytes are not a message.
#[derive(Debug, Error)]
pub enum MessageError {
    /// They are too many.
    #[error("a message of {length} bytes is larger than {MAX_MESSAGE}")]
    TooLong {
        /// How many.
        length: usize,
    },
    /// They have another form.
    #[error("cannot decode a message")]
    Decode {
        /// Why.
        source: serde_json::Error,
    },
    /// They cannot be written.
    #[error("cannot encode a message")]
    Encode {
        /// Why.
        source: serde_json::Error,
    },
    /// A part of it is too large.
    #[error("{what} of a message has {length} entries or bytes, at most {bound} are allowed")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// How large it is.
        length: usize,
        /// How large it may be.
        bound: usize,
    },
}

/// A message whose parts have bounds of their own.
pub trait Bounded {
    /// The parts that can be large: name, length, bound.
    fn parts(&self) -> Vec<(&'static str, usize, usize)>;
}

impl Bounded for OperatorMessage {
    fn parts(&self) -> Vec<(&'static str, usize, usize)> {
        Vec::new()
    }
}

impl Bounded for LeaderMessage {
    fn parts(&self) -> Vec<(&'static str, usize, usize)> {
        Vec::new()
    }
}

impl Bounded for Hello {
    fn parts(&self) -> Vec<(&'static str, usize, usize)> {
        vec![("the pod uid", self.uid.len(), MAX_TEXT)]
    }
}

impl Bounded for Summary {
    fn parts(&self) -> Vec<(&'static str, usize, usize)> {
        let uids = self.ended.iter().map(|ended| ended.uid.len());
        let hang = |text: fn(&HangReport) -> &String| {
            self.hang.as_ref().map_or(0, |hang| text(hang).len())
        };
        let slots = self.groups.iter().map(|group| group.slots.len() as usize);
        let store = self.store.as_ref().and_then(|store| store.seen.as_deref());
        let seen = |part: &dyn Fn(&StoreSeen) -> usize| store.map_or(0, part);
        vec![
            ("the slots of all groups", slots.sum(), MAX_MEMBERS as usize),
            ("the label of a hang", hang(|hang| &hang.label), MAX_TEXT),
            (
                "the sentence of a hang",
                hang(|hang| &hang.sentence),
                MAX_SENTENCE,
            ),
            ("the list of groups", self.groups.len(), MAX_GROUPS),
            (
                "the list of saves",
                seen(&|seen| seen.saves.len()),
                MAX_SAVES,
            ),
            (
                "the reason about a store",
                seen(&|seen| seen.why.as_ref().map_or(0, String::len)),
                MAX_SENTENCE,
            ),
            (
                "the reason about a store that cannot be read",
                self.store.as_ref().map_or(0, |store| store.why.len()),
                MAX_SENTENCE,
            ),
            ("the list of ended programs", self.ended.len(), MAX_ENDED),
            ("a pod uid", uids.max().unwrap_or(0), MAX_TEXT),
        ]
    }
}

impl<M: Bounded + Serialize + DeserializeOwned> Envelope<M> {
    /// The content of a frame.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        let bytes = serde_json::to_vec(self).map_err(|source| MessageError::Encode { source })?;
        check_length(&bytes)?;
        Ok(bytes)
    }

    /// The message of a frame's content, where every part is within its bound.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        check_length(bytes)?;
        let envelope: Self =
            serde_json::from_slice(bytes).map_err(|source| MessageError::Decode { source })?;
        let mut parts = envelope.message.parts();
        parts.push(("the job uid", envelope.job.len(), MAX_TEXT));
        match parts.into_iter().find(|(_, length, bound)| length > bound) {
            Some((what, length, bound)) => Err(MessageError::TooLarge {
                what,
                length,
                bound,
            }),
            None => Ok(envelope),
        }
    }
}

fn check_length(bytes: &[u8]) -> Result<(), MessageError> {
    let length = bytes.len();
    if length > MAX_MESSAGE {
        return Err(MessageError::TooLong { length });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
