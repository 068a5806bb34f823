//! The ranks of all sources side by side: who is there, who is late, what they disagree about.
//!
//! Owns what follows from comparing ranks. Does not rank conclusions; that is [`super::verdict`].
//!
//! Invariant: what is said of a group rests on ranks that reported it, never on ranks that are absent from
//! the files alone: excerpts and single files are read too.

mod waits;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    flight::Dump,
    known::{End, Known},
    nccl::NcclFacts,
    report::{Collective, RankEnd, RankFacts, RankNccl, RankWork},
    source::{Member, Source},
    steps::{SlowRank, slowest},
};
use crate::pod::exit;

/// All ranks, and what comparing them shows.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) ranks: Vec<RankFacts>,
    pub(super) nodes: BTreeSet<String>,
    pub(super) world: Option<u32>,
    pub(super) missing: Vec<u32>,
    pub(super) disagreements: Vec<String>,
    pub(super) slowest: Option<SlowRank>,
    pub(super) net: Transports,
    pub(super) starts: Starts,
    pub(super) wait: Wait,
    /// Two or more processes were requested, and each is a world of its own.
    pub(super) separate_worlds: bool,
    /// A Flight Recorder dump is among what was read.
    pub(super) recorded: bool,
}

/// Channels of all ranks by what they go over.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a sign of its own; any may hold with any"
)]
pub(super) struct Transports {
    pub(super) verbs: u32,
    pub(super) verbs_direct: u32,
    pub(super) other_net: u32,
    pub(super) other_net_direct: u32,
    pub(super) socket: u32,
    pub(super) peer: u32,
    pub(super) shared_memory: u32,
    pub(super) gdr_enabled: u32,
    pub(super) gdr_disabled: u32,
    pub(super) infiniband: bool,
    pub(super) roce: bool,
    pub(super) verbs_network: bool,
    pub(super) several_nodes: bool,
    /// Signs that RDMA was meant to be used.
    pub(super) rdma_meant: bool,
    pub(super) bad_interface: Option<String>,
}

/// Communicators that were begun and are not complete.
#[derive(Debug, Default)]
pub(super) struct Starts {
    pub(super) complete: u32,
    /// Ranks that wait, by communicator id.
    pub(super) pending: BTreeMap<u64, BTreeSet<u32>>,
    pub(super) pending_ranks: u32,
    pub(super) retries: u32,
    pub(super) retry_at: Option<(usize, u64)>,
    pub(super) desync: bool,
}

/// Who waits for whom in a collective.
#[derive(Debug, Default)]
pub(super) struct Wait {
    /// The earliest collective that somebody waits in.
    pub(super) collective: Option<Collective>,
    pub(super) waiting: BTreeSet<u32>,
    /// Known not to have entered it.
    pub(super) late: BTreeSet<u32>,
    /// Of the world, but no line or dump mentions them.
    pub(super) silent: BTreeSet<u32>,
    /// Different operation or size under the same number.
    pub(super) mismatch: Option<String>,
    pub(super) mismatch_ranks: BTreeSet<u32>,
}

impl Group {
    pub(super) fn new(sources: &[Source], dumps: &[Dump]) -> Self {
        let mut group = Self::default();
        let members: Vec<(usize, &Member)> = members_of(sources).collect();
        group.collect(sources, &members);
        group.transports(&members);
        group.starts(&members);
        group.collectives(&members, dumps);
        group.separate_worlds = separate_worlds(sources);
        let known = members.iter();
        let known = known.filter_map(|(index, member)| Some((sources.get(*index)?, *member)));
        group.slowest = slowest(known);
        group.recorded = !dumps.is_empty();
        group
    }

    /// What is known of each rank that logged an NCCL communicator, without what comparing ranks shows.
    pub(super) fn nccl_ranks(sources: &[Source]) -> Vec<RankFacts> {
        let mut group = Self::default();
        let has_nccl = |nccl: &NcclFacts| !nccl.transports.is_empty() || !nccl.inits.is_empty();
        let members: Vec<(usize, &Member)> = members_of(sources)
            .filter(|(_, member)| has_nccl(&member.nccl))
            .collect();
        if !members.is_empty() {
            group.collect(sources, &members);
        }
        let is_known =
            |facts: &RankFacts| facts.world.is_some() || !facts.nccl.transports.is_empty();
        group.ranks.into_iter().filter(is_known).collect()
    }

    fn collect(&mut self, sources: &[Source], members: &[(usize, &Member)]) {
        for (index, member) in members {
            let file = sources.get(*index).map(|source| source.name.clone());
            let facts = facts(member, file.unwrap_or_default());
            let same = self.ranks.iter_mut().find(|known| {
                known.rank.is_some()
                    && known.rank == facts.rank
                    && (known.node.is_none() || facts.node.is_none() || known.node == facts.node)
            });
            match same {
                Some(known) => merge(known, facts),
                None => self.ranks.push(facts),
            }
        }
        for source in sources {
            for exit in &source.exits {
                let Some(rank) = exit.rank else { continue };
                let known = self.ranks.iter_mut().find(|known| known.rank == Some(rank));
                let known = if let Some(known) = known {
                    known
                } else {
                    self.ranks.push(RankFacts {
                        rank: Some(rank),
                        node: exit.evidence.node.clone(),
                        file: source.name.clone(),
                        ..RankFacts::default()
                    });
                    self.ranks.last_mut().expect("one was just added")
                };
                let word = match (exit.signal, exit.code) {
                    (Some(signal), _) => format!("signal {signal}"),
                    (None, Some(code)) => format!("code {code}"),
                    (None, None) => "aborted".to_owned(),
                };
                known.end.exit.get_or_insert(word);
            }
        }
        // A rank without a number and without facts is the file itself.
        self.ranks.retain(|facts| {
            facts.rank.is_some()
                || facts.node.is_some()
                || facts.nccl.version.is_some()
                || facts.end.exception.is_some()
                || !facts.fields.is_empty()
        });
        self.ranks.sort_by(|a, b| {
            (a.rank.is_none(), a.rank, &a.node, &a.file).cmp(&(
                b.rank.is_none(),
                b.rank,
                &b.node,
                &b.file,
            ))
        });
        self.nodes = self
            .ranks
            .iter()
            .filter_map(|facts| facts.node.clone())
            .collect();
        self.world = self.ranks.iter().filter_map(|facts| facts.world).max();
        self.missing = missing(&self.ranks, self.world);
        self.disagreements = disagreements(&self.ranks);
    }

    /// Adds to each rank how it ended, where the runtime reported it: that outranks what a log says.
    pub(super) fn ended(&mut self, known: &[Known]) {
        for known in known {
            let Some(rank) = known.rank else { continue };
            let word = match &known.end {
                End::OutOfMemory(_) => "out of memory".to_owned(),
                End::Exit(code) => match exit::signal_of(*code) {
                    Some(signal) => format!("signal {}", signal.number),
                    None => format!("code {code}"),
                },
                End::NodeDeleted | End::NodeSilent => "node lost".to_owned(),
                End::Disrupted(_) => "disrupted".to_owned(),
                End::NotStarted(_) => "not started".to_owned(),
                End::Unknown => continue,
            };
            let same = self.ranks.iter_mut().find(|facts| facts.rank == Some(rank));
            if let Some(facts) = same {
                facts.end.exit = Some(word);
            }
        }
    }

    fn transports(&mut self, members: &[(usize, &Member)]) {
        let net = &mut self.net;
        let is_verbs = |name: &str| name.starts_with("NET/IB");
        for (_, member) in members {
            let nccl = &member.nccl;
            let count = |wanted: &dyn Fn(&str) -> bool| nccl.channels_via(wanted);
            let direct = |name: &str| name.ends_with("GDRDMA");
            net.verbs += count(&|name| is_verbs(name));
            net.verbs_direct += count(&|name| is_verbs(name) && direct(name));
            net.socket += count(&|name| name.starts_with("NET/Socket"));
            let other = |name: &str| {
                name.starts_with("NET/") && !is_verbs(name) && !name.starts_with("NET/Socket")
            };
            net.other_net += count(&other);
            net.other_net_direct += count(&|name| other(name) && direct(name));
            net.peer += count(&|name| name.starts_with("P2P"));
            net.shared_memory += count(&|name| name == "SHM");
            net.gdr_enabled += nccl.gdr_enabled;
            net.gdr_disabled += nccl.gdr_disabled;
            net.infiniband |= nccl.infiniband;
            net.roce |= nccl.roce;
            net.verbs_network |= nccl
                .network
                .as_deref()
                .is_some_and(|name| name.starts_with("IB"));
            net.several_nodes |= nccl.nodes > 1;
            net.rdma_meant |= nccl.infiniband || nccl.roce;
            if let Some(interface) = &nccl.interface {
                let fabric = ["ib", "hsn", "roce", "rdma", "mlx"];
                net.rdma_meant |= fabric.iter().any(|prefix| interface.starts_with(prefix));
                let local = interface == "lo"
                    || ["docker", "virbr", "br-", "cni", "veth"]
                        .iter()
                        .any(|prefix| interface.starts_with(prefix));
                if local {
                    net.bad_interface.get_or_insert_with(|| interface.clone());
                }
            }
        }
        net.several_nodes |= self.nodes.len() > 1;
    }

    fn starts(&mut self, members: &[(usize, &Member)]) {
        let starts = &mut self.starts;
        for (source, member) in members {
            for init in &member.nccl.inits {
                if init.complete {
                    starts.complete += 1;
                    continue;
                }
                starts.pending_ranks = starts.pending_ranks.max(init.ranks);
                if let Some(id) = init.id {
                    starts.pending.entry(id).or_default().insert(init.rank);
                }
            }
            if member.nccl.retries > 0 {
                starts.retries += member.nccl.retries;
                starts
                    .retry_at
                    .get_or_insert((*source, member.nccl.retry_line));
            }
        }
        // Different ids are groups of their own where they are full, and where a rank waits in two at
        // once; ranks of one world that wait apart from each other are out of step.
        let mut seen = BTreeSet::new();
        let apart = starts
            .pending
            .values()
            .all(|ranks| ranks.iter().all(|rank| seen.insert(*rank)));
        let short = starts
            .pending
            .values()
            .all(|ranks| ranks.len() < starts.pending_ranks as usize);
        starts.desync = starts.pending.len() > 1
            && apart
            && short
            && seen.len() >= starts.pending_ranks as usize;
    }

    fn collectives(&mut self, members: &[(usize, &Member)], dumps: &[Dump]) {
        self.wait = match super::flight::compare(dumps) {
            Some(wait) => wait,
            None => waits::compare(members, self.world),
        };
    }

    /// The node of a rank.
    pub(super) fn node_of(&self, rank: u32) -> Option<&str> {
        let facts = self.ranks.iter().find(|facts| facts.rank == Some(rank))?;
        facts.node.as_deref()
    }
}

/// Every process and rank with the index of its source.
fn members_of(sources: &[Source]) -> impl Iterator<Item = (usize, &Member)> {
    let numbered = sources.iter().enumerate();
    numbered.flat_map(|(index, source)| source.members.iter().map(move |member| (index, member)))
}

fn separate_worlds(sources: &[Source]) -> bool {
    if sources.iter().any(|source| source.first_ranks.is_several()) {
        return true;
    }
    let asked = sources
        .iter()
        .filter_map(|source| source.asked_processes)
        .max();
    let mut alone = 0;
    for member in sources.iter().flat_map(|source| source.members.iter()) {
        if member.nccl.inits.iter().any(|init| init.ranks > 1) {
            return false;
        }
        if member
            .nccl
            .inits
            .iter()
            .any(|init| init.ranks == 1 && init.rank == 0)
        {
            alone += 1;
        }
    }
    alone > 0 && asked.is_some_and(|asked| asked > 1)
}

fn facts(member: &Member, file: String) -> RankFacts {
    let nccl = &member.nccl;
    let count = |complete: bool| {
        let found = nccl
            .inits
            .iter()
            .filter(|init| init.complete == complete)
            .count();
        u32::try_from(found).unwrap_or(u32::MAX)
    };
    let mut fields = member.fields.clone();
    let world = fields.remove("world").and_then(|word| word.parse().ok());
    fields.remove("own_rank");
    let waits = member.waits.iter();
    RankFacts {
        rank: member.rank,
        node: member.node.clone(),
        file,
        world: nccl.world().map(|(_, world)| world).or(world),
        gpu: member.device,
        bus: nccl.bus.clone(),
        nccl: RankNccl {
            version: nccl.version.clone(),
            network: nccl.network.clone(),
            interface: nccl.interface.clone(),
            transports: nccl.transport_counts(),
            channels: nccl.channels,
            communicators: count(true),
            communicators_pending: count(false),
        },
        work: RankWork {
            collective: waits.clone().find_map(waits::collective),
            last_enqueued: waits.clone().find_map(|wait| wait.enqueued),
            last_completed: waits.clone().find_map(|wait| wait.completed),
        },
        end: RankEnd {
            exception: member.raised.as_ref().map(|raised| raised.text.clone()),
            frame: member
                .raised
                .as_ref()
                .and_then(|raised| raised.frame.clone()),
            exit: None,
        },
        first_millis: member.first.map(|stamp| stamp.millis),
        last_millis: member.last.map(|stamp| stamp.millis),
        fields,
    }
}

fn merge(known: &mut RankFacts, other: RankFacts) {
    macro_rules! fill {
        ($($($part:ident).+),*) => { $( if known.$($part).+.is_none() { known.$($part).+ = other.$($part).+; } )* };
    }
    fill!(
        node,
        world,
        gpu,
        bus,
        nccl.version,
        nccl.network,
        nccl.interface,
        nccl.channels,
        work.collective,
        work.last_enqueued,
        work.last_completed,
        end.exception,
        end.frame,
        end.exit,
        first_millis,
        last_millis
    );
    for (name, count) in other.nccl.transports {
        *known.nccl.transports.entry(name).or_default() += count;
    }
    known.nccl.communicators += other.nccl.communicators;
    known.nccl.communicators_pending += other.nccl.communicators_pending;
    for (name, value) in other.fields {
        known.fields.entry(name).or_insert(value);
    }
}

/// Ranks that no line mentions, where lines mention at least three quarters.
fn missing(ranks: &[RankFacts], world: Option<u32>) -> Vec<u32> {
    let Some(world) = world.filter(|world| (2..=65_536).contains(world)) else {
        return Vec::new();
    };
    let there: BTreeSet<u32> = ranks.iter().filter_map(|facts| facts.rank).collect();
    if there.len() * 4 < world as usize * 3 {
        return Vec::new();
    }
    (0..world).filter(|rank| !there.contains(rank)).collect()
}

fn disagreements(ranks: &[RankFacts]) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: &str, value: &dyn Fn(&RankFacts) -> Option<String>| {
        let mut values: BTreeMap<String, u32> = BTreeMap::new();
        for facts in ranks {
            if let Some(value) = value(facts) {
                *values.entry(value).or_default() += 1;
            }
        }
        if values.len() > 1 {
            let counts: Vec<String> = values
                .iter()
                .map(|(value, count)| format!("`{value}` on {count}"))
                .collect();
            found.push(format!("{what}: {}", counts.join(", ")));
        }
    };
    compare("NCCL version", &|facts| facts.nccl.version.clone());
    compare("network", &|facts| facts.nccl.network.clone());
    compare("channels", &|facts| Some(facts.nccl.channels?.to_string()));
    compare("world size", &|facts| Some(facts.world?.to_string()));
    found
}
