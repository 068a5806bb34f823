//! Clusters and gangs from a seed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{PodAffinityTerm, Toleration, TopologySpreadConstraint},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use trainyard_core::{
    gang::{
        Constraints, Gang, GangKey, Member, Node, PodKey, PreemptionScope, QUARANTINED, Resident,
        Resources, Shape, Snapshot, Taint, TaintEffect,
    },
    spec::{Kind, Parallelism, Role, Wish},
};

use crate::dice::Dice;

pub(super) const GPU: &str = "nvidia.com/gpu";
const BLOCK: &str = "cloud.provider.com/topology-block";
const RACK: &str = "cloud.provider.com/topology-rack";
const CLIQUE: &str = "nvidia.com/gpu.clique";
const HOSTNAME: &str = "kubernetes.io/hostname";
const NAMESPACE: &str = "team";
const OTHER_NAMESPACE: &str = "other-team";
/// The stream of the dice that draws the cluster and its gangs.
const STREAM: u64 = 1;

/// A cluster with everything that can be wrong with one, and gangs that ask for all there is to ask for.
pub fn drawn(seed: u64) -> (Snapshot, Vec<Gang>) {
    let mut dice = Dice::new(seed, STREAM);
    let mut snapshot = cluster(&mut dice);
    snapshot.preemption = dice.pick(&[
        PreemptionScope::Off,
        PreemptionScope::Namespace,
        PreemptionScope::Namespace,
        PreemptionScope::Cluster,
        PreemptionScope::Cluster,
    ]);
    let count = 2 + dice.below(9);
    let gangs = (0..count).map(|at| gang(&mut dice, at)).collect();
    (snapshot, gangs)
}

/// A small cluster and one gang that needs nothing but room, for comparison with the best seating.
pub fn small(seed: u64) -> (Snapshot, Gang) {
    let mut dice = Dice::new(seed, STREAM);
    let mut snapshot = Snapshot::default();
    let gpus = dice.pick(&[2, 4, 8]);
    for block in 0..=dice.below(2) {
        for rack in 0..=dice.below(3) {
            for host in 0..=dice.below(3) {
                let rack = format!("b{block}r{rack}");
                let labels = labels(&[(BLOCK, &format!("b{block}")), (RACK, &rack)]);
                let name = format!("{rack}h{host}");
                let held = i64::from(dice.below(u32::try_from(gpus).unwrap_or(1) + 1));
                if held > 0 && dice.chance(60) {
                    lodge(&mut snapshot, &name, held);
                }
                snapshot.nodes.insert(name, node(labels, gpus));
            }
        }
    }
    snapshot.detect_topology();
    let mut gang = plain(0, 2 + dice.below(5), dice.pick(&[1, 1, 2, 4]).min(gpus));
    gang.parallelism = axes(&mut dice, &gang);
    (snapshot, gang)
}

fn cluster(dice: &mut Dice) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let gpus = dice.pick(&[2, 4, 8]);
    let has_cliques = dice.chance(25);
    for block in 0..=dice.below(2) {
        for rack in 0..=dice.below(3) {
            for host in 0..=dice.below(4) {
                let (block, rack) = (format!("b{block}"), format!("b{block}r{rack}"));
                let name = format!("{rack}h{host}");
                let mut own = labels(&[(BLOCK, &block), (HOSTNAME, &name)]);
                let pool = dice.pick(&["train", "train", "serve"]);
                own.insert("pool".to_owned(), pool.to_owned());
                if dice.chance(92) {
                    own.insert(RACK.to_owned(), rack.clone());
                }
                if has_cliques {
                    own.insert(CLIQUE.to_owned(), format!("{rack}-{}", host / 2));
                }
                let mut node = node(own, gpus);
                node.unschedulable = dice.chance(6);
                if dice.chance(5) {
                    node.taints.push(taint(QUARANTINED));
                }
                if dice.chance(10) {
                    node.taints.push(taint("dedicated"));
                }
                if dice.chance(15) {
                    lodge(&mut snapshot, &name, dice.within(1..=gpus));
                }
                snapshot.nodes.insert(name, node);
            }
        }
    }
    snapshot.detect_topology();
    snapshot
}

fn gang(dice: &mut Dice, at: u32) -> Gang {
    let pods = if dice.chance(12) {
        8 + dice.below(6)
    } else {
        1 + dice.below(6)
    };
    let mut gang = plain(at, pods, dice.pick(&[1, 2, 2, 4, 4, 8]));
    gang.priority = dice.pick(&[-1, -1, 0, 0, 1, 2]);
    gang.claim = gang.priority;
    gang.preempts = dice.chance(30);
    gang.never_preempts = dice.chance(5);
    if dice.chance(40) {
        OTHER_NAMESPACE.clone_into(&mut gang.key.namespace);
    }
    gang.created = Timestamp::from_second(i64::from(dice.below(100))).unwrap_or_default();
    if dice.chance(40) {
        gang.parallelism = axes(dice, &gang);
    }
    if dice.chance(30) {
        let level = dice.pick(&["rack", "rack", "block", "host"]);
        gang.wish = Some(if dice.chance(60) {
            Wish::Required(level.to_owned())
        } else {
            Wish::Preferred(level.to_owned())
        });
    }
    constrain(dice, &mut gang.shapes[0]);
    if dice.chance(15) {
        let mut shape = Shape {
            requests: requests(0),
            ..gang.shapes[0].clone()
        };
        shape.ranks = 0;
        shape.constraints = Constraints::default();
        gang.shapes.push(shape);
        gang.pods.push(Member {
            name: format!("{}-launcher", gang.key.name),
            role: Role::Launcher,
            shape: 1,
        });
        gang.minimum += 1;
    } else if dice.chance(20) {
        gang.minimum = 1 + gang.pods.len() / 2;
    }
    gang
}

fn constrain(dice: &mut Dice, shape: &mut Shape) {
    let own = LabelSelector {
        match_labels: Some(shape.labels.clone()),
        ..LabelSelector::default()
    };
    let constraints = &mut shape.constraints;
    if dice.chance(15) {
        let pool = dice.pick(&["train", "serve"]);
        constraints.node_selector = labels(&[("pool", pool)]);
    }
    if dice.chance(30) {
        constraints.tolerations.push(Toleration {
            key: Some("dedicated".to_owned()),
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        });
    }
    if dice.chance(10) {
        constraints.anti_affinity.push(PodAffinityTerm {
            label_selector: Some(own.clone()),
            topology_key: dice.pick(&[HOSTNAME, HOSTNAME, RACK]).to_owned(),
            ..PodAffinityTerm::default()
        });
    }
    if dice.chance(10) {
        constraints.spread.push(TopologySpreadConstraint {
            label_selector: Some(own),
            max_skew: 1 + i32::try_from(dice.below(2)).unwrap_or(0),
            topology_key: dice.pick(&[HOSTNAME, RACK, BLOCK]).to_owned(),
            when_unsatisfiable: "DoNotSchedule".to_owned(),
            ..TopologySpreadConstraint::default()
        });
    }
}

/// Axes that the ranks of a gang divide into.
fn axes(dice: &mut Dice, gang: &Gang) -> Option<Parallelism> {
    let ranks = u32::try_from(gang.pods.len()).ok()? * gang.shapes[0].ranks;
    let divisor = |dice: &mut Dice, of: u32| {
        let divisors: Vec<u32> = (1..=of.min(8)).filter(|n| of.is_multiple_of(*n)).collect();
        dice.pick(&divisors)
    };
    let tensor = divisor(dice, ranks);
    let pipeline = divisor(dice, ranks / tensor);
    let data = ranks / tensor / pipeline;
    let text = if dice.chance(70) {
        format!("tp={tensor},pp={pipeline},dp={data}")
    } else {
        format!("tp={tensor},dp={data},pp={pipeline}")
    };
    Parallelism::parse(&text).ok()
}

/// A gang of `pods` workers with `gpus` GPUs each.
fn plain(at: u32, pods: u32, gpus: i64) -> Gang {
    let name = format!("gang-{at}");
    let pods = (0..pods).map(|pod| Member {
        name: format!("{name}-worker-{pod}"),
        role: Role::Worker,
        shape: 0,
    });
    let pods: Vec<Member> = pods.collect();
    Gang {
        key: GangKey {
            kind: Kind::PyTorch,
            namespace: NAMESPACE.to_owned(),
            name: name.clone(),
        },
        created: Timestamp::UNIX_EPOCH,
        priority: 0,
        claim: 0,
        admitted: true,
        classes: BTreeSet::new(),
        shapes: vec![Shape {
            requests: requests(gpus),
            ranks: u32::try_from(gpus).unwrap_or(1).max(1),
            labels: labels(&[("job", &name)]),
            constraints: Constraints::default(),
        }],
        minimum: pods.len(),
        pods,
        parallelism: None,
        wish: None,
        held: BTreeMap::new(),
        remembered: BTreeMap::new(),
        reserved: BTreeMap::new(),
        preempts: false,
        never_preempts: false,
        leaving: false,
        safe_at: None,
        runs_since: None,
    }
}

fn node(labels: BTreeMap<String, String>, gpus: i64) -> Node {
    Node {
        labels,
        ready: true,
        allocatable: amounts(&[("cpu", gpus * 12_000 + 3_000), ("pods", 20), (GPU, gpus)]),
        ..Node::default()
    }
}

/// CPUs go with GPUs, as people write it, so that either may run out.
fn requests(gpus: i64) -> Resources {
    amounts(&[("cpu", 2_000 + gpus * 10_000), ("pods", 1), (GPU, gpus)])
}

/// A pod of no gang.
pub(super) fn lodge(snapshot: &mut Snapshot, node: &str, gpus: i64) {
    let key = PodKey {
        namespace: "other".to_owned(),
        name: format!("other-{}", snapshot.pods.len()),
    };
    let resident = Resident {
        node: node.to_owned(),
        requests: amounts(&[("cpu", 1_000), ("pods", 1), (GPU, gpus)]),
        ..Resident::default()
    };
    snapshot.pods.insert(key, resident);
}

fn taint(key: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        value: String::new(),
        effect: TaintEffect::NoSchedule,
    }
}

fn amounts(amounts: &[(&str, i64)]) -> Resources {
    amounts
        .iter()
        .map(|(name, n)| ((*name).to_owned(), *n))
        .collect()
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}
