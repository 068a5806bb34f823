//! The transport that each rank uses, as far as it logged it.
//!
//! Owns the fact; what follows from it is `job::transport`'s.

use std::collections::BTreeSet;

use super::{Doctor, group::Group};

/// What one rank logged about its channels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransportSeen {
    /// Its number, where that is known.
    pub rank: Option<u32>,
    /// The host that it names, a pod in a cluster.
    pub host: Option<String>,
    /// The source that it stands in.
    pub source: String,
    /// Its world size, where it logged it.
    pub world: Option<u32>,
    /// The transports of its channels as NCCL names them, without devices: `NET/IB/GDRDMA`, `P2P/CUMEM`.
    pub transports: BTreeSet<String>,
}

impl Doctor {
    /// The transports of all ranks that logged their world or their channels, by rank.
    pub fn transports(&self) -> Vec<TransportSeen> {
        let ranks = Group::nccl_ranks(&self.sources).into_iter();
        ranks
            .map(|facts| TransportSeen {
                rank: facts.rank,
                host: facts.node,
                source: facts.file,
                world: facts.world,
                transports: facts.nccl.transports.into_keys().collect(),
            })
            .collect()
    }

    /// How many lines about channels and worlds were read so far: [`Doctor::transports`] can only have changed when this
    /// has.
    pub fn transport_lines(&self) -> u64 {
        let members = self.sources.iter().flat_map(|source| source.members.iter());
        let lines = members.map(|member| {
            let channels = member.nccl.channels_via(|_| true);
            u64::from(channels) + member.nccl.inits.len() as u64
        });
        lines.sum()
    }
}
