//! The messages between leader and peers.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use trainyard_core::probe::{
    Reading,
    tools::{Collective, Port},
};

/// The version of the protocol. Pods of one preflight run one image; with a tag that was moved meanwhile they may not,
/// and the leader refuses those of another version.
pub(super) const VERSION: u32 = 2;

/// The largest first message of a connection, before it is known who sends it.
pub(super) const LARGEST_HELLO: usize = 4096;

/// The first message of a peer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u32,
    pub(super) token: String,
    pub(super) node: String,
    /// Where other peers reach it; the address that the leader sees it at, unless it is bound to an
    /// interface.
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
    /// Why it cannot be measured with.
    pub(super) trouble: Option<String>,
}

/// What the leader asks a peer for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// A reading of the machine.
    Read,
    /// The time.
    Clock,
    /// A part in a measurement.
    Measure(Part),
    /// A file on a volume: write, check or remove it.
    Volume(VolumeStep),
    /// Which external programs are here.
    Programs,
    /// Nothing more.
    Goodbye,
    /// This peer cannot take part, and why. It is the first message, or none.
    Refused(String),
}

/// A peer's part in a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Part {
    /// Which connections belong to it.
    pub(super) id: u64,
    /// Whom of a pair to connect to; the other side waits for that.
    pub(super) to: Option<SocketAddr>,
    /// How long it may take.
    pub(super) limit: Duration,
    pub(super) measure: Measure,
}

/// What is measured, and by what.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Measure {
    /// A pair, by streams of TCP.
    Streams,
    /// A pair, by `ib_write_bw`.
    Rdma(RdmaPart),
    /// All nodes at once, by an all-reduce around a ring.
    Ring(RingPart),
    /// The GPUs of this pod, so many, by `all_reduce_perf`.
    Collective(u32),
}

/// One side of a pair that is measured over RDMA.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RdmaPart {
    /// The port of this side.
    pub(super) port: Port,
    /// How long each direction is measured.
    pub(super) seconds: u64,
}

/// One part in a ring.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RingPart {
    pub(super) rank: usize,
    pub(super) size: usize,
    /// The next one around.
    pub(super) next: SocketAddr,
    pub(super) bytes: usize,
    pub(super) repeats: u32,
}

/// What to do on a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct VolumeStep {
    pub(super) path: String,
    pub(super) action: VolumeAction,
}

/// One of the three steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum VolumeAction {
    /// Write a file with this name and text.
    Write { name: String, text: String },
    /// Look for files with these names and texts.
    Look { files: Vec<(String, String)> },
    /// Remove the file with this name.
    Remove { name: String },
}

/// What a peer answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Read(Box<Reading>),
    /// Microseconds since 1970.
    Clock(i64),
    Pair(Side),
    Ring(Ringed),
    Collective(Collective),
    /// The names of files that are not as they should be, each with the reason.
    Volume(Vec<(String, String)>),
    /// Their names.
    Programs(BTreeSet<String>),
    Goodbye,
}

/// What one side of a pair saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Side {
    /// The median of small messages there and back; of the side that connects.
    pub(super) round_trip_micros: Option<u64>,
    /// Bits in a second: of a stream those that arrived at this side, over RDMA those that it sent.
    pub(super) rate: Option<f64>,
    /// Of the segments that this side sent, the part that it had to send again.
    pub(super) sent_again: Option<f64>,
    /// Small messages passed, large ones did not.
    pub(super) stalled: bool,
    /// Why it did not finish.
    pub(super) trouble: Option<String>,
    /// Whether that is because the program of the other side was not there.
    pub(super) found_nobody: bool,
    /// What went wrong with the program by which this side received.
    pub(super) serving_trouble: Option<String>,
}

/// What one part of a ring saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ringed {
    /// Of the fastest repeat.
    pub(super) micros: Option<u64>,
    /// Whether every sum was right.
    pub(super) right: bool,
    pub(super) trouble: Option<String>,
}

/// The first message of a connection between peers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Opening {
    pub(super) token: String,
    pub(super) id: u64,
    pub(super) purpose: Purpose,
}

/// What a connection between peers is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// Small messages, then large ones from the side that connected.
    Forward,
    /// Large ones to the side that connected.
    Backward,
    /// A step of the ring.
    Ring,
    /// Agreement about a measurement over RDMA.
    Rdma,
}

/// Whether two tokens are the same, in a time that does not depend on where they differ.
pub(super) fn same_token(own: &str, other: &str) -> bool {
    let (own, other) = (own.as_bytes(), other.as_bytes());
    let differences = own.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    !own.is_empty() && own.len() == other.len() && std::hint::black_box(differences) == 0
}
