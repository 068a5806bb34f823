//! The frames between the two sides: one letter, a length, the content.

use serde::{Deserialize, Serialize};
use trainyard_core::remote_shell::Words;

/// Bytes of a stream in one frame, at most.
pub(crate) const CHUNK: usize = 32 * 1024;
/// Bytes of stdin that may be on their way or wait for the command, at most.
pub(crate) const WINDOW: usize = 256 * 1024;
/// The command line of a daemon names all hosts of the job; a thousand of them take some 50 KiB.
const MAX_FRAME: usize = 1024 * 1024;
const HEAD: usize = 5;

/// The first frame of the remote shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The attempt that it is part of.
    pub(crate) attempt: u32,
    /// What is to run.
    pub(crate) command: Command,
}

/// What is to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Command {
    /// A line for the shell.
    Line(String),
    /// A program with its arguments.
    Program(Vec<String>),
}

impl From<Words> for Command {
    fn from(words: Words) -> Self {
        match words {
            Words::Line(line) => Self::Line(line),
            Words::Program(words) => Self::Program(words),
        }
    }
}

/// Why nothing was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// A sentence.
    pub(crate) message: String,
    /// Whether a retry may succeed.
    pub(crate) passing: bool,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// To the worker: run this.
    Run(Request),
    /// It was not run.
    Refused(Refusal),
    /// It runs.
    Started,
    /// To the worker: input.
    Input(Vec<u8>),
    /// To the worker: there is no more.
    InputEnd,
    /// So many bytes of input were taken.
    Taken(u32),
    /// What it wrote to stdout.
    Output(Vec<u8>),
    /// What it wrote to stderr.
    Error(Vec<u8>),
    /// It ended with this code.
    Ended(i32),
}

impl Frame {
    pub(crate) fn encode(self) -> Vec<u8> {
        let json = |value: serde_json::Result<Vec<u8>>| value.unwrap_or_default();
        let (letter, content) = match self {
            Self::Run(request) => (b'R', json(serde_json::to_vec(&request))),
            Self::Refused(refusal) => (b'X', json(serde_json::to_vec(&refusal))),
            Self::Started => (b'S', Vec::new()),
            Self::Input(bytes) => (b'i', bytes),
            Self::InputEnd => (b'I', Vec::new()),
            Self::Taken(count) => (b't', count.to_be_bytes().to_vec()),
            Self::Output(bytes) => (b'o', bytes),
            Self::Error(bytes) => (b'e', bytes),
            Self::Ended(code) => (b'E', code.to_be_bytes().to_vec()),
        };
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEAD + content.len());
        bytes.push(letter);
        bytes.extend(length.to_be_bytes());
        bytes.extend(content);
        bytes
    }

    /// Takes the first frame off `bytes`; `None` where it is not there as a whole.
    pub(crate) fn take(bytes: &mut Vec<u8>) -> Result<Option<Self>, String> {
        let Some((head, _)) = bytes.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let [letter, length @ ..] = *head;
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_FRAME {
            return Err(format!(
                "a message of {length} bytes is larger than {MAX_FRAME}"
            ));
        }
        if bytes.len() < HEAD + length {
            return Ok(None);
        }
        let content: Vec<u8> = bytes.drain(..HEAD + length).skip(HEAD).collect();
        let number = |content: &[u8]| {
            let array = content.try_into();
            array.map_err(|_| "cannot decode a message".to_owned())
        };
        let json = |error: serde_json::Error| format!("cannot decode a message: {error}");
        Ok(Some(match letter {
            b'R' => Self::Run(serde_json::from_slice(&content).map_err(json)?),
            b'X' => Self::Refused(serde_json::from_slice(&content).map_err(json)?),
            b'S' => Self::Started,
            b'i' => Self::Input(content),
            b'I' => Self::InputEnd,
            b't' => Self::Taken(u32::from_be_bytes(number(&content)?)),
            b'o' => Self::Output(content),
            b'e' => Self::Error(content),
            b'E' => Self::Ended(i32::from_be_bytes(number(&content)?)),
            other => return Err(format!("unknown message kind {other}")),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_split() {
        let frames = [
            Frame::Run(Request {
                attempt: 2,
                command: Command::Line("orted -x".to_owned()),
            }),
            Frame::Run(Request {
                attempt: 0,
                command: Command::Program(vec!["a b".to_owned(), String::new()]),
            }),
            Frame::Refused(Refusal {
                message: "no".to_owned(),
                passing: true,
            }),
            Frame::Started,
            Frame::Input(vec![0, 1, 255]),
            Frame::InputEnd,
            Frame::Taken(70_000),
            Frame::Output(Vec::new()),
            Frame::Error(vec![b'x'; CHUNK]),
            Frame::Ended(-1),
        ];
        let bytes: Vec<u8> = frames.iter().cloned().flat_map(Frame::encode).collect();
        for step in [1, 7, bytes.len()] {
            let (mut waiting, mut received) = (Vec::new(), Vec::new());
            for part in bytes.chunks(step) {
                waiting.extend(part);
                while let Some(frame) = Frame::take(&mut waiting).unwrap() {
                    received.push(frame);
                }
            }
            assert_eq!(received, frames, "in steps of {step}");
            assert!(waiting.is_empty());
        }
    }

    #[test]
    fn nonsense_is_refused_before_it_is_kept() {
        let cases: [(&[u8], &str); 4] = [
            (b"R\xff\xff\xff\xff", "4294967295 bytes"),
            (b"z\0\0\0\0", "kind 122"),
            (b"E\0\0\0\x01x", "cannot decode"),
            (b"R\0\0\0\x02{}", "missing field"),
        ];
        for (bytes, want) in cases {
            let error = Frame::take(&mut bytes.to_vec()).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }
}
