//! The frames between supervisors, and between the leader and the operator: length, kind, content.
//!
//! Owns the kinds and their bounds. The content is a message of [`trainyard_core::barrier`], or what the leader's watch is about
//! ([`super::signs`]); the operator reads and writes the same frames. A frame whose length is too large for its kind is refused before its content is kept.

use trainyard_core::barrier::{
    MAX_MESSAGE,
    frame::{LENGTH_BYTES, MAX_TOKEN, ORDER, SUMMARY, TOKEN},
};

/// A message with few fields: a report, a command, a response.
const SMALL: usize = 4 * 1024;
/// What a program printed, and the heartbeats of all ranks of a pod.
const SIGNS: usize = 16 * 1024;
/// What was seen of all ranks of a pod.
const EVIDENCE: usize = 256 * 1024;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From a member to the leader: `Envelope<Hello>`.
    Hello,
    /// From the leader to a member: `Envelope<LeaderMessage>`.
    Command,
    /// From a member to the leader: signs of progress that its program printed.
    Signs,
    /// From the leader to a member: what it wants to know of its ranks.
    Question,
    /// From a member to the leader: the answer.
    Evidence,
    /// From the leader to the operator, first: the token of its pod.
    Token,
    /// From the leader to the operator: `Envelope<Summary>`.
    Summary,
    /// From the operator to the leader: `Envelope<OperatorMessage>`.
    Operator,
}

impl Kind {
    fn letter(self) -> u8 {
        match self {
            Self::Hello => b'H',
            Self::Command => b'C',
            Self::Signs => b'G',
            Self::Question => b'Q',
            Self::Evidence => b'E',
            Self::Token => TOKEN,
            Self::Summary => SUMMARY,
            Self::Operator => ORDER,
        }
    }

    fn read(letter: u8) -> Option<Self> {
        let all = [
            Self::Hello,
            Self::Command,
            Self::Signs,
            Self::Question,
            Self::Evidence,
            Self::Token,
            Self::Summary,
            Self::Operator,
        ];
        all.into_iter().find(|kind| kind.letter() == letter)
    }

    /// Bytes of its content, at most.
    pub(crate) fn bound(self) -> usize {
        match self {
            Self::Hello | Self::Command | Self::Question => SMALL,
            Self::Signs => SIGNS,
            Self::Evidence => EVIDENCE,
            Self::Token => MAX_TOKEN,
            Self::Summary | Self::Operator => MAX_MESSAGE,
        }
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// What it carries.
    pub(crate) kind: Kind,
    /// Its content.
    pub(crate) content: Vec<u8>,
}

impl Frame {
    /// A frame with this content.
    pub(crate) fn new(kind: Kind, content: Vec<u8>) -> Self {
        Self { kind, content }
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let length = u32::try_from(self.content.len() + 1).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(LENGTH_BYTES + 1 + self.content.len());
        bytes.extend(length.to_be_bytes());
        bytes.push(self.kind.letter());
        bytes.extend(&self.content);
        bytes
    }

    /// Takes the first frame off `bytes`; `None` where it has not arrived as a whole.
    pub(crate) fn take(bytes: &mut Vec<u8>) -> Result<Option<Self>, String> {
        let Some((head, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*head) as usize;
        if length == 0 || length > MAX_MESSAGE + 1 {
            return Err(format!(
                "a frame announces {length} bytes, expected 1 to {}",
                MAX_MESSAGE + 1
            ));
        }
        let Some(letter) = rest.first() else {
            return Ok(None);
        };
        let Some(kind) = Kind::read(*letter) else {
            return Err(format!("unknown frame kind {letter}"));
        };
        let (content, bound) = (length - 1, kind.bound());
        if content > bound {
            return Err(format!(
                "a frame of kind {letter} has {content} bytes, at most {bound} are allowed"
            ));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let content = bytes
            .drain(..LENGTH_BYTES + length)
            .skip(LENGTH_BYTES + 1)
            .collect();
        Ok(Some(Self { kind, content }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_split() {
        let frames = [
            Frame::new(Kind::Hello, b"{}".to_vec()),
            Frame::new(Kind::Command, Vec::new()),
            Frame::new(Kind::Token, vec![b'x'; 5000]),
            Frame::new(Kind::Summary, vec![0; MAX_MESSAGE]),
            Frame::new(Kind::Operator, vec![255]),
        ];
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        for step in [1, 7, 4096, bytes.len()] {
            let (mut waiting, mut received) = (Vec::new(), Vec::new());
            // Byte by byte only at the start: a large frame would be copied a million times.
            let (start, rest) = bytes.split_at(4000);
            for part in start.chunks(step).chain(rest.chunks(step.max(4096))) {
                waiting.extend(part);
                while let Some(frame) = Frame::take(&mut waiting).unwrap() {
                    received.push(frame);
                }
            }
            assert!(received == frames, "in steps of {step}");
            assert!(waiting.is_empty());
        }
    }

    #[test]
    fn bad_frames_are_refused_early() {
        let cases: [(&str, &[u8], &str); 4] = [
            (
                "no kind",
                b"\0\0\0\0",
                "a frame announces 0 bytes, expected 1 to 1048577",
            ),
            (
                "too long",
                b"\0\x10\0\x02S",
                "a frame announces 1048578 bytes",
            ),
            ("another kind", b"\0\0\0\x01R", "unknown frame kind 82"),
            (
                "long for its kind",
                b"\0\0\x20\0H",
                "has 8191 bytes, at most 4096",
            ),
        ];
        for (what, bytes, want) in cases {
            let error = Frame::take(&mut bytes.to_vec()).unwrap_err();
            assert!(error.contains(want), "{what}: {error}");
        }
    }
}
