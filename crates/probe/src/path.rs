//! The paths between machines: one leader, peers that join it, and what they measure together.
//!
//! Owns sockets, the protocol and the order of the whole: join, read, clocks, pairs in rounds, the
//! ring, volumes, external programs. Which pairs, and what slow ones mean, is `core::probe`.
//!
//! # Flow
//!
//! Every pod is a peer, the leader's own too: a peer connects to the leader, says hello with the token,
//! and answers requests one by one until the goodbye. The leader sends requests; it measures nothing itself.
//! Peers measure over connections of their own, bound to the named interface.
//!
//! # Guarantees
//!
//! Each wait has a bound and each message a largest size. A peer that dies, hangs or talks nonsense
//! is dropped at its next request, and the others continue; a peer whose leader is gone ends.
//!
//! # Caveats
//!
//! One stream of TCP does not fill a fast link: numbers are compared between nodes first, and held
//! against the fabric's expectation only up to what one stream can do.

mod error;
mod frame;
mod leader;
mod limit;
mod message;
mod peer;
mod ring;
mod serve;
mod socket;
mod stream;
mod tools;
mod volume;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use trainyard_core::probe::Needs;

pub use self::{
    leader::{Conducted, run_leader},
    peer::{PeerError, join},
    serve::{ServeError, serve},
    socket::SocketError,
    stream::{Received, receive, send},
};

/// What all members of a preflight are given.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the machine must have.
    pub needs: Needs,
    /// The name of this node.
    pub node: String,
    /// The shared token of leader and peers. It is compared in constant time and never printed.
    pub token: String,
    /// Below which `/proc`, `/sys` and `/dev` are read.
    pub root: PathBuf,
    /// The limit on the whole.
    pub timeout: Duration,
    /// How long one direction of a pair is measured.
    pub measure: Duration,
    /// The search path for external programs, in order.
    pub programs: Vec<PathBuf>,
}

impl Settings {
    /// How long an answer is waited for that should come at once. Not less than two seconds: a busy
    /// machine is not a dead one.
    fn patience(&self) -> Duration {
        (self.measure * 2).clamp(Duration::from_secs(2), Duration::from_secs(5))
    }
}

/// What only the leader is given.
#[derive(Clone, Debug, Default)]
pub struct Conduct {
    /// How many members there are, the leader included.
    pub gang: usize,
    /// The port it listens on.
    pub port: u16,
    /// The names of the nodes that should join, where they are known.
    pub nodes: Vec<String>,
    /// The domains of each node, outermost first, where they are known.
    pub domains: BTreeMap<String, Vec<String>>,
}

#[cfg(test)]
mod tests;
