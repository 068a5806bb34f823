//! The ways in which pairs are measured, and what a pair finds.

use std::time::Duration;

use crate::probe::{
    Check,
    catalogue::{Entry, PATH_BANDWIDTH, RDMA_BANDWIDTH},
    pairs::Pair,
    search::Measurement,
    tools::Port,
};

/// The part of segments sent again from which a path loses packets. Links of a fabric lose one in
/// millions; TCP that fills a long queue loses one in thousands.
pub(super) const LOSSY_FROM: f64 = 0.02;
/// Bits in a second above which pairs are not compared: there a stream is as fast as its processors
/// are, and says nothing of links. A link of 10 Gb/s among faster ones is still reported.
const COMPARED_UP_TO: f64 = 16e9;

/// How pairs are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// One stream of TCP in each direction.
    Streams,
    /// `ib_write_bw`, over these RDMA ports, one of each node by number.
    Rdma(Vec<Port>),
}

/// What a pair found when it was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairFound {
    /// Who, by number.
    pub pair: Pair,
    /// Bits in a second in the slower direction; 0 where nothing got through.
    pub bandwidth: f64,
    /// The median time of a small message there and back.
    pub round_trip_micros: Option<u64>,
    /// The part of segments that were sent again, in the worse direction.
    pub sent_again: f64,
    /// Small messages passed, large ones did not.
    pub stalled: bool,
    /// Why it did not finish.
    pub trouble: Option<String>,
}

impl PairFound {
    pub(super) fn is_lossy(&self) -> bool {
        self.sent_again >= LOSSY_FROM
    }

    pub(super) fn has(&self, node: usize) -> bool {
        self.pair.0 == node || self.pair.1 == node
    }
}

impl Method {
    pub(super) fn entry(&self) -> &'static Entry {
        match self {
            Self::Streams => &PATH_BANDWIDTH,
            Self::Rdma(_) => &RDMA_BANDWIDTH,
        }
    }

    /// The input of the search: a path that loses packets is not usable, however fast it is at times.
    pub fn measurement(&self, found: &PairFound) -> Measurement {
        let usable = !found.is_lossy() && !found.stalled;
        let bandwidth = match self {
            _ if !usable => 0.0,
            Self::Streams => found.bandwidth.min(COMPARED_UP_TO),
            Self::Rdma(_) => found.bandwidth,
        };
        Measurement {
            pair: found.pair,
            bandwidth,
        }
    }

    /// The check of a node that could not be measured with. Every node must have a stream; a program or a device for
    /// RDMA may be missing.
    pub fn not_measured(&self, why: &str) -> Check {
        match self {
            Self::Streams => PATH_BANDWIDTH.fail(
                format!("not measured: {why}"),
                "measures with the others",
                "the interface that gradients travel on is missing, or has no address",
                "look at the network attachment of the pod and at the interfaces of the node",
            ),
            Self::Rdma(_) => RDMA_BANDWIDTH.skip("not measured", why),
        }
    }

    /// The check of rounds for which no time was left of `timeout`.
    pub fn out_of_time(&self, timeout: Duration) -> Check {
        let (needed, cause, next) = match self {
            Self::Streams => (
                format!("all rounds within {} s", timeout.as_secs()),
                "peers that did not answer used up the time",
                "give it more time, or leave out the nodes that failed",
            ),
            Self::Rdma(_) => (
                "all rounds within the time".to_owned(),
                "other measurements, or programs that hang, used up the time",
                "leave out the nodes that failed, and measure again",
            ),
        };
        let found = "not every round was measured";
        self.entry().warn(found, needed, cause, next)
    }
}
