//! What Kineto's client in a program and its daemon exchange, as values.
//!
//! Every `PyTorch` for Linux holds a client that asks a daemon over a UNIX datagram socket whether it shall record a trace. The client
//! polls, nothing is pushed: whoever answers, answers one request with one datagram, at once or not at all.
//!
//! A message is a header of 40 bytes (u64 size of what follows, 32 bytes of type) and a payload, in little-endian order.
//!
//! Invariant: a configuration holds only numbers and paths of ours, never a byte that a client sent.

mod capture;

use std::fmt::Write as _;

pub use capture::{Capture, Stage};

/// Bytes of the longest message in either direction.
pub const MOST_MESSAGE: usize = 4 << 10;
/// The name of the daemon's socket in its folder.
pub const SOCKET: &str = "dynolog";
/// Bytes of the folder of the sockets: a client adds its own name of 52 bytes and copies both into 108 bytes, unchecked.
pub const MOST_FOLDER: usize = 54;
/// The variables that switch a client on; none is set where the user set one.
pub const VARIABLES: [&str; 4] = [
    "KINETO_USE_DAEMON",
    "KINETO_CONFIG",
    "KINETO_IPC_SOCKET_DIR",
    "KINETO_ONDEMAND_TRACE_DIR",
];
/// What the file behind `KINETO_CONFIG` holds: clients poll every second instead of every five.
pub const BASE_CONFIG: &str = "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n";

/// The first `PyTorch` in which a client does not end its program at `import torch` now and then.
const SAFE_TORCH: (u32, u32) = (2, 10);
const HEADER: usize = 40;
/// The bit of a request that is set while the client is free to trace activities.
const FREE: u32 = 2;
/// Process ids of one request: its own and ten parents.
const MOST_PIDS: usize = 16;

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// It registers; answered with the number of its peers.
    Context,
    /// It asks for work.
    Request {
        /// Whether it is free to trace.
        free: bool,
        /// Its process id and those of its parents, as its own namespace numbers them: a claim.
        pids: Vec<u32>,
    },
}

/// Why a message is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not the size that its header states, or beyond the bound.
    #[error("a message of {0} bytes does not have the size that it states")]
    Size(usize),
    /// Of no known type.
    #[error("a message of an unknown type")]
    Kind,
}

impl Message {
    /// Reads one datagram.
    pub fn read(datagram: &[u8]) -> Result<Self, MessageError> {
        let wrong_size = MessageError::Size(datagram.len());
        let (header, payload) = datagram.split_at_checked(HEADER).ok_or(wrong_size)?;
        let (size, kind) = header.split_at_checked(8).ok_or(wrong_size)?;
        let size = size
            .try_into()
            .map(u64::from_le_bytes)
            .map_err(|_| wrong_size)?;
        if datagram.len() > MOST_MESSAGE || size != payload.len() as u64 {
            return Err(wrong_size);
        }
        let kind = kind.split(|byte| *byte == 0).next().unwrap_or_default();
        match kind {
            b"ctxt" if payload.len() == 16 => Ok(Self::Context),
            b"req" => {
                let number = |at: usize| -> Option<u32> {
                    let bytes = payload.get(at..at.checked_add(4)?)?;
                    bytes.try_into().ok().map(u32::from_le_bytes)
                };
                let (kinds, count) = number(0).zip(number(4)).ok_or(wrong_size)?;
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                if count > MOST_PIDS || payload.len() != 16 + 4 * count {
                    return Err(wrong_size);
                }
                Ok(Self::Request {
                    free: kinds & FREE != 0,
                    pids: (0..count).filter_map(|at| number(16 + 4 * at)).collect(),
                })
            }
            b"ctxt" => Err(wrong_size),
            _ => Err(MessageError::Kind),
        }
    }
}

fn message(kind: &str, payload: &[u8]) -> Vec<u8> {
    let mut datagram = (payload.len() as u64).to_le_bytes().to_vec();
    datagram.extend_from_slice(kind.as_bytes());
    datagram.resize(HEADER, 0);
    datagram.extend_from_slice(payload);
    datagram
}

/// The answer to a client that registers.
pub fn context_answer(peers: u32) -> Vec<u8> {
    message("ctxt", &peers.to_le_bytes())
}

/// The answer to a client that asks for work: a configuration, or nothing to do.
pub fn request_answer(configuration: &str) -> Vec<u8> {
    message("req", configuration.as_bytes())
}

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Extent {
    /// So many whole steps of `optimizer.step()`, from the next multiple of `round_up` on, which is how all ranks record the
    /// same ones.
    Steps {
        /// How many.
        count: u32,
        /// They begin at a multiple of it.
        round_up: u32,
    },
    /// So long.
    Seconds(u32),
}

/// Whether operators are recorded with shapes and stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Detail {
    /// Names and times.
    Plain,
    /// Also shapes of inputs and Python stacks.
    Detailed,
}

/// The configuration that makes a client record into `file`, which ends in `.json`; the client adds its process id.
pub fn configuration(file: &str, extent: Extent, detail: Detail, request: u64) -> String {
    let mut text = format!("ACTIVITIES_LOG_FILE={file}\nREQUEST_TRACE_ID={request}\n");
    let lines = match extent {
        Extent::Steps { count, round_up } => format!(
            "PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP={round_up}\nACTIVITIES_ITERATIONS={}\n",
            // A whole step lies between the ends of two.
            count.saturating_add(1)
        ),
        Extent::Seconds(seconds) => format!(
            "ACTIVITIES_WARMUP_PERIOD_SECS=0\nACTIVITIES_DURATION_MSECS={}\n",
            u64::from(seconds) * 1000
        ),
    };
    text.push_str(&lines);
    if detail == Detail::Detailed {
        for key in ["PROFILE_REPORT_INPUT_SHAPES", "PROFILE_WITH_STACK"] {
            writeln!(text, "{key}=true").ok();
        }
    }
    text
}

/// The number of steps whose multiples all ranks recognise as the same one, although each hears of a request up to a second
/// later than another: 20 times the steps of a second, and at most 30 seconds of steps.
pub fn round_up(step_seconds: Option<f64>, ranks: usize) -> u32 {
    const UNKNOWN: u32 = 100;
    if ranks < 2 {
        return 1;
    }
    let Some(seconds) = step_seconds.filter(|it| it.is_finite() && *it > 0.0) else {
        return UNKNOWN;
    };
    let wanted = (20.0 / seconds).max(2.0);
    let most = (30.0 / seconds).max(2.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float to an integer saturates, and both bounds are positive"
    )]
    let rounded = wanted.min(most).min(1e9) as u32;
    rounded
}

/// Whether clients of this `PyTorch`, such as `2.11.0+cu130`, are switched on without being asked for.
pub fn is_safe_torch(version: &str) -> bool {
    let mut parts = version.split(['.', '+', 'a', 'b', 'r']);
    let mut number = || parts.next()?.parse::<u32>().ok();
    match (number(), number()) {
        (Some(major), Some(minor)) => (major, minor) >= SAFE_TORCH,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kinds: i32, pids: &[i32]) -> Vec<u8> {
        let mut payload = kinds.to_le_bytes().to_vec();
        payload.extend_from_slice(&i32::try_from(pids.len()).unwrap().to_le_bytes());
        payload.extend_from_slice(&0_i64.to_le_bytes());
        for pid in pids {
            payload.extend_from_slice(&pid.to_le_bytes());
        }
        message("req", &payload)
    }

    #[test]
    fn messages_byte_for_byte() {
        let mut want = vec![4, 0, 0, 0, 0, 0, 0, 0];
        want.extend_from_slice(b"ctxt");
        want.extend_from_slice(&[0; 28]);
        want.extend_from_slice(&[2, 0, 0, 0]);
        assert_eq!(context_answer(2), want);
        let nothing = request_answer("");
        assert_eq!(
            (nothing.len(), &nothing[..12]),
            (40, &b"\0\0\0\0\0\0\0\0req\0"[..])
        );
        assert_eq!(&request_answer("A=1")[40..], b"A=1");
    }

    #[test]
    fn requests_of_clients() {
        let cases: [(&str, Vec<u8>, Result<Message, MessageError>); 9] = [
            (
                "free, 2.6",
                request(3, &[7, 1]),
                Ok(Message::Request {
                    free: true,
                    pids: vec![7, 1],
                }),
            ),
            (
                "free, 2.15",
                request(2, &[7]),
                Ok(Message::Request {
                    free: true,
                    pids: vec![7],
                }),
            ),
            (
                "busy",
                request(1, &[7]),
                Ok(Message::Request {
                    free: false,
                    pids: vec![7],
                }),
            ),
            ("registers", message("ctxt", &[0; 16]), Ok(Message::Context)),
            ("short", vec![0; 39], Err(MessageError::Size(39))),
            (
                "another type",
                message("kick", &[]),
                Err(MessageError::Kind),
            ),
            (
                "too many parents",
                request(2, &[1; 17]),
                Err(MessageError::Size(124)),
            ),
            (
                "huge",
                message("req", &[0; 5000]),
                Err(MessageError::Size(5040)),
            ),
            (
                "cut",
                request(2, &[7, 1])[..60].to_vec(),
                Err(MessageError::Size(60)),
            ),
        ];
        for (name, datagram, want) in cases {
            assert_eq!(Message::read(&datagram), want, "{name}");
        }
    }

    #[test]
    fn configurations_fit_into_a_message() {
        let file = format!("/{}.json", "x".repeat(2000));
        let steps = Extent::Steps {
            count: 5,
            round_up: 20,
        };
        let text = configuration(&file, steps, Detail::Detailed, u64::MAX);
        assert!(request_answer(&text).len() <= MOST_MESSAGE);
        assert!(
            text.contains("\nPROFILE_START_ITERATION_ROUNDUP=20\nACTIVITIES_ITERATIONS=6\n"),
            "{text}"
        );
        let text = configuration("/a.json", Extent::Seconds(2), Detail::Plain, 1);
        assert_eq!(
            text,
            "ACTIVITIES_LOG_FILE=/a.json\nREQUEST_TRACE_ID=1\nACTIVITIES_WARMUP_PERIOD_SECS=0\nACTIVITIES_DURATION_MSECS=2000\n"
        );
    }

    #[test]
    fn multiples_of_steps() {
        let cases = [
            (None, 1, 1),
            (None, 2, 100),
            (Some(1.0), 2, 20),
            (Some(0.005), 2, 4000),
            (Some(20.0), 2, 2),
            (Some(0.0), 2, 100),
            (Some(f64::NAN), 2, 100),
        ];
        for (seconds, ranks, want) in cases {
            assert_eq!(round_up(seconds, ranks), want, "{seconds:?} {ranks}");
        }
    }

    #[test]
    fn versions_that_are_safe() {
        for safe in ["2.10.0", "2.11.0+cu130", "2.15.0a0", "3.0", "2.10rc1"] {
            assert!(is_safe_torch(safe), "{safe}");
        }
        for old in ["2.9.1", "2.6.0+cpu", "1.13.1", "", "x", "2"] {
            assert!(!is_safe_torch(old), "{old}");
        }
    }
}
