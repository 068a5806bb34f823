//! The levels of a cluster, from wide to narrow, by the labels of its nodes.
//!
//! A level is a label key: nodes with the same value there, and at all wider levels, are together in one
//! domain. The node itself is the narrowest level and needs no label.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// The name of the level that every cluster has: the node itself.
pub const HOST: &str = "host";
/// The name of the level whose hosts are joined by `NVLink`, or by what is as fast.
pub const NVLINK: &str = "nvlink";

/// One level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Level {
    /// What people call it, such as `rack`.
    pub name: String,
    /// The label key, such as `cloud.provider.com/topology-rack`.
    pub key: String,
}

/// The levels of a cluster, from wide to narrow, without the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Topology {
    /// The levels.
    pub levels: Vec<Level>,
}

/// A family of labels that one vendor sets, from wide to narrow.
struct Family {
    vendor: &'static str,
    levels: &'static [(&'static str, &'static str)],
}

/// Labels that stand above every family.
const WIDEST: &[(&str, &str)] = &[
    ("topology.kubernetes.io/region", "region"),
    ("topology.kubernetes.io/zone", "zone"),
];

/// Labels of networks. At most one family is used: two would describe the same cables twice.
const FAMILIES: &[Family] = &[
    Family {
        vendor: "Google Cloud",
        levels: &[
            ("cloud.google.com/gce-topology-block", "block"),
            ("cloud.google.com/gce-topology-subblock", "rack"),
        ],
    },
    Family {
        vendor: "AWS",
        levels: &[
            ("topology.k8s.aws/network-node-layer-1", "spine"),
            ("topology.k8s.aws/network-node-layer-2", "block"),
            ("topology.k8s.aws/network-node-layer-3", "rack"),
        ],
    },
    Family {
        vendor: "Oracle Cloud",
        levels: &[
            ("oci.oraclecloud.com/rdma.hpc_island_id", "island"),
            ("oci.oraclecloud.com/rdma.network_block_id", "block"),
            ("oci.oraclecloud.com/rdma.local_block_id", "rack"),
        ],
    },
    Family {
        vendor: "CoreWeave",
        levels: &[
            ("ib.coreweave.cloud/fabric", "fabric"),
            ("ib.coreweave.cloud/superpod", "block"),
            ("ib.coreweave.cloud/leafgroup", "leaf"),
            ("node.coreweave.cloud/rack", "rack"),
        ],
    },
    Family {
        vendor: "topograph",
        levels: &[
            ("fabric.topograph.run/tier-2", "core"),
            ("fabric.topograph.run/tier-1", "spine"),
            ("fabric.topograph.run/tier-0", "rack"),
        ],
    },
    Family {
        vendor: "topograph before 1.0",
        levels: &[
            ("network.topology.nvidia.com/core", "core"),
            ("network.topology.nvidia.com/datacenter", "core"),
            ("network.topology.nvidia.com/spine", "spine"),
            ("network.topology.nvidia.com/leaf", "rack"),
            ("network.topology.nvidia.com/block", "rack"),
        ],
    },
    Family {
        vendor: "Kueue's examples",
        levels: &[
            ("cloud.provider.com/topology-block", "block"),
            ("cloud.provider.com/topology-rack", "rack"),
        ],
    },
    Family {
        vendor: "the cluster",
        levels: &[
            ("topology.kubernetes.io/block", "block"),
            ("topology.kubernetes.io/rack", "rack"),
        ],
    },
];

/// Labels of hosts that share an accelerator's own network. The first that any node has is used.
const FASTEST: &[(&str, &str)] = &[
    ("nvidia.com/gpu.clique", NVLINK),
    ("accelerator.topograph.run/domain", NVLINK),
    ("network.topology.nvidia.com/accelerator", NVLINK),
];

impl Topology {
    /// A topology of these label keys, from wide to narrow. A key that is well known has its usual name,
    /// another one is called by what follows its last `/`, without `topology-`.
    pub fn of_keys<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        let mut levels: Vec<Level> = Vec::new();
        for key in keys {
            if key == "kubernetes.io/hostname" || levels.iter().any(|level| level.key == key) {
                continue;
            }
            let short = key.rsplit('/').next().unwrap_or(key);
            let short = short.strip_prefix("topology-").unwrap_or(short);
            let mut name = well_known(key).unwrap_or(short).to_owned();
            if name == HOST || levels.iter().any(|level| level.name == name) {
                key.clone_into(&mut name);
            }
            levels.push(Level {
                name,
                key: key.to_owned(),
            });
        }
        Self { levels }
    }

    /// The levels that the labels of the nodes show, and their inconsistencies.
    pub fn detect<'a>(
        nodes: impl IntoIterator<Item = &'a BTreeMap<String, String>>,
    ) -> (Self, Vec<String>) {
        let nodes: Vec<&BTreeMap<String, String>> = nodes.into_iter().collect();
        let labelled = |key: &str| {
            nodes
                .iter()
                .filter(|labels| labels.contains_key(key))
                .count()
        };
        let present = |levels: &'static [(&str, &str)]| -> Vec<&'static str> {
            levels
                .iter()
                .map(|(key, _)| *key)
                .filter(|key| labelled(key) > 0)
                .collect()
        };
        let mut warnings = Vec::new();
        let mut keys = present(WIDEST);
        let mut families: Vec<(usize, &Family)> = FAMILIES
            .iter()
            .map(|family| {
                let most = family.levels.iter().map(|(key, _)| labelled(key)).max();
                (most.unwrap_or(0), family)
            })
            .filter(|(most, _)| *most > 0)
            .collect();
        families.sort_by_key(|(most, _)| std::cmp::Reverse(*most));
        if let Some((most, chosen)) = families.first() {
            keys.extend(present(chosen.levels));
            for (count, other) in families.iter().skip(1) {
                warnings.push(format!(
                    "{most} nodes have the topology labels of {}, and {count} those of {}; the \
                     latter are ignored",
                    chosen.vendor, other.vendor
                ));
            }
        }
        keys.extend(present(FASTEST).first());
        let topology = Self::of_keys(keys);
        warnings.extend(topology.disagreements(&nodes));
        (topology, warnings)
    }

    /// Where the labels of the nodes do not make one tree.
    pub fn disagreements(&self, nodes: &[&BTreeMap<String, String>]) -> Vec<String> {
        let mut warnings = Vec::new();
        for (at, level) in self.levels.iter().enumerate() {
            let mut parents: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
            let mut without = 0;
            for labels in nodes {
                let Some(value) = labels.get(&level.key) else {
                    without += 1;
                    continue;
                };
                let above = at.checked_sub(1).map(|above| &self.levels[above].key);
                if let Some(parent) = above.and_then(|key| labels.get(key)) {
                    parents.entry(value).or_default().insert(parent);
                }
            }
            // Accelerators are seldom in every node, so a fast network need not be either.
            if without > 0 && level.name != NVLINK {
                warnings.push(format!(
                    "{without} of {} nodes have no label `{}`, so they are in no {}",
                    nodes.len(),
                    level.key,
                    level.name
                ));
            }
            let twice = parents.iter().find(|(_, parents)| parents.len() > 1);
            if let (Some((value, parents)), Some(above)) = (twice, at.checked_sub(1)) {
                let parents: Vec<String> =
                    parents.iter().take(3).map(|p| format!("`{p}`")).collect();
                warnings.push(format!(
                    "{} `{value}` lies under {} {}; each is taken as a {} of its own",
                    level.name,
                    plural(&self.levels[above].name),
                    parents.join(" and "),
                    level.name
                ));
            }
        }
        warnings
    }

    /// The level that is called `name`, or whose label key it is.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.levels
            .iter()
            .position(|level| level.name == name || level.key == name)
    }

    /// The level whose hosts are joined by `NVLink`, where there is one.
    pub fn nvlink(&self) -> Option<usize> {
        self.find(NVLINK)
    }
}

/// The word for several domains of a level.
pub(super) fn plural(name: &str) -> String {
    format!("{name}s")
}

fn well_known(key: &str) -> Option<&'static str> {
    let families = FAMILIES.iter().flat_map(|family| family.levels);
    families
        .chain(WIDEST)
        .chain(FASTEST)
        .find(|(own, _)| *own == key)
        .map(|(_, name)| *name)
}

#[cfg(test)]
mod tests;
