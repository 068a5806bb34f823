//! Prints how long `gang::place` takes and how good its seatings are; `cargo xtask bench placement` reads it.
//!
//! One line per figure, with tabs between its fields; the first is its name:
//! Times are processor time. `large` milliseconds · `mixed` pods seated, milliseconds, gangs refused · `memory` MB at the highest ·
//! `capacity` milliseconds of an answer for an empty cluster · `curve` nodes, milliseconds · `quality` clusters, our cost, the least cost, the scheduler's cost, worst ratio,
//! clusters seated at the least cost.
#![expect(clippy::print_stdout, reason = "the figures are the program's output")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
    time::Instant,
};

use jiff::Timestamp;
use trainyard_core::{
    capacity::{Answer, Bound, NodeShape, Offer, Pool, Price, Source, answer},
    gang::{Gang, GangKey, Member, Node, Placement, Resources, Shape, Snapshot, place},
    spec::{Kind, Parallelism, Role},
};
use trainyard_sim::placement::{optimum, small};

const GPU: &str = "nvidia.com/gpu";
/// Hosts of a rack, racks of a block, blocks of a spine.
const HOSTS: usize = 16;
const RACKS: usize = 8;
const BLOCKS: usize = 4;

fn main() {
    let (milliseconds, placement) = fastest(5, &cluster(12_500), &[large(2_048)]);
    assert_eq!(placement.refused.len(), 0, "the large gang fits");
    println!("large\t{milliseconds:.2}");

    let snapshot = cluster(5_000);
    let (milliseconds, placement) = fastest(3, &snapshot, &mixed());
    let pods: usize = placement
        .seated
        .values()
        .map(|seating| seating.seats.len())
        .sum();
    println!(
        "mixed\t{pods}\t{milliseconds:.2}\t{}",
        placement.refused.len()
    );
    if let Some(megabytes) = most_memory() {
        println!("memory\t{megabytes}");
    }

    println!("capacity\t{:.2}", scale_up());

    quality(500);

    for nodes in [3_125, 6_250, 12_500, 25_000, 50_000, 100_000] {
        let (milliseconds, _) = fastest(3, &cluster(nodes), &[large(nodes / 6)]);
        println!("curve\t{nodes}\t{milliseconds:.2}");
    }
}

/// Milliseconds of processor time of this thread, where the kernel reports it: on a shared machine the wall clock measures
/// the neighbours.
fn clock() -> f64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds: Option<f64> =
        text.and_then(|text| text.split_whitespace().next()?.parse().ok());
    match nanoseconds {
        Some(nanoseconds) if nanoseconds > 0.0 => nanoseconds / 1e6,
        _ => BEGIN.get_or_init(Instant::now).elapsed().as_secs_f64() * 1e3,
    }
}

/// The least time of `runs`.
fn fastest(runs: usize, snapshot: &Snapshot, gangs: &[Gang]) -> (f64, Placement) {
    let mut least = f64::MAX;
    let mut placement = Placement::default();
    for _ in 0..runs {
        let start = clock();
        placement = place(snapshot, gangs, Timestamp::UNIX_EPOCH);
        least = least.min(clock() - start);
    }
    (least, placement)
}

/// The least time of an answer: a gang of 16,384 GPUs, a cluster without nodes, 50 shapes of nodes that could be added.
fn scale_up() -> f64 {
    let shapes = (0..50_u64).map(|at| {
        let gpus = [1, 2, 4, 8, 8][usize::try_from(at % 5).unwrap_or(0)];
        let amounts = [
            ("cpu", gpus * 24_000),
            ("memory", gpus << 38),
            ("pods", 110),
            (GPU, gpus),
        ];
        NodeShape {
            name: format!("shape-{at}"),
            allocatable: self::amounts(&amounts),
            price: Some(Price::of_micros(80_000_000 + at * 1_000_000)),
            ready_seconds: Some(300),
            ..NodeShape::default()
        }
    });
    let zones = ["a", "b", "c"].map(str::to_owned).to_vec();
    let offer = Offer {
        pools: vec![Pool {
            name: "gpu".to_owned(),
            source: Source::File,
            weight: 0,
            labels: BTreeMap::new(),
            choices: [("topology.kubernetes.io/zone".to_owned(), zones)].into(),
            open_labels: BTreeMap::new(),
            taints: Vec::new(),
            shapes: shapes.collect(),
            has_unknown_shapes: false,
            limits: [(
                GPU.to_owned(),
                Bound {
                    limit: 20_000,
                    used: 0,
                },
            )]
            .into(),
            halt: None,
            members: BTreeSet::new(),
            starting: 0,
            min_values: BTreeMap::new(),
        }],
        ..Offer::default()
    };
    let (empty, gang) = (Snapshot::default(), large(2_048));
    let mut least = f64::MAX;
    for _ in 0..5 {
        let start = clock();
        let answer = answer(&empty, &gang, &offer, Timestamp::UNIX_EPOCH);
        least = least.min(clock() - start);
        assert!(
            matches!(answer, Answer::FitsAfterScaleUp { .. }),
            "{}",
            answer.message()
        );
    }
    least
}

/// `nodes` hosts of 8 GPUs under zones, spines, blocks and racks.
fn cluster(nodes: usize) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for at in 0..nodes {
        let (rack, block, spine) = (at / HOSTS, at / HOSTS / RACKS, at / HOSTS / RACKS / BLOCKS);
        let labels = [
            ("topology.kubernetes.io/zone", format!("zone-{}", spine / 8)),
            (
                "topology.k8s.aws/network-node-layer-1",
                format!("nn-1-{spine}"),
            ),
            (
                "topology.k8s.aws/network-node-layer-2",
                format!("nn-2-{block}"),
            ),
            (
                "topology.k8s.aws/network-node-layer-3",
                format!("nn-3-{rack}"),
            ),
            ("kubernetes.io/hostname", format!("node-{at}")),
            ("kubernetes.io/arch", "amd64".to_owned()),
            ("node.kubernetes.io/instance-type", "p5.48xlarge".to_owned()),
        ];
        let labels: BTreeMap<String, String> = labels
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        snapshot.nodes.insert(
            format!("node-{at}"),
            Node {
                labels,
                ready: true,
                allocatable: amounts(&[
                    ("cpu", 192_000),
                    ("memory", 2 << 40),
                    ("pods", 110),
                    (GPU, 8),
                ]),
                ..Node::default()
            },
        );
    }
    snapshot.detect_topology();
    assert_eq!(snapshot.topology.levels.len(), 4);
    snapshot
}

fn large(pods: usize) -> Gang {
    let mut gang = gang("large", pods / 8 * 8, 8);
    gang.parallelism = Parallelism::parse("tp=8,pp=8").ok();
    gang
}

/// 2,000 gangs of 1 to 128 pods with 1 to 8 GPUs each, a third of them with axes: nine tenths of the cluster.
fn mixed() -> Vec<Gang> {
    let sizes = [1, 2, 4, 4, 8, 8, 16, 16, 32, 64];
    let gpus = [1, 2, 1, 1, 4, 1, 1, 1, 1, 1];
    (0..2_000)
        .map(|at| {
            let pick = at * 7 % 10;
            let mut gang = gang(
                &format!("gang-{at}"),
                sizes[pick],
                gpus[(pick + at / 10) % 10],
            );
            if at % 3 == 0 {
                gang.parallelism = Parallelism::parse("tp=1").ok();
            }
            gang
        })
        .collect()
}

fn gang(name: &str, pods: usize, gpus: i64) -> Gang {
    Gang {
        key: GangKey {
            kind: Kind::PyTorch,
            namespace: "bench".to_owned(),
            name: name.to_owned(),
        },
        created: Timestamp::UNIX_EPOCH,
        priority: 0,
        claim: 0,
        admitted: true,
        classes: BTreeSet::new(),
        shapes: vec![Shape {
            requests: amounts(&[
                ("cpu", gpus * 20_000),
                ("memory", gpus << 35),
                ("pods", 1),
                (GPU, gpus),
            ]),
            ranks: u32::try_from(gpus).unwrap_or(1),
            ..Shape::default()
        }],
        pods: (0..pods)
            .map(|at| Member {
                name: format!("{name}-worker-{at}"),
                role: Role::Worker,
                shape: 0,
            })
            .collect(),
        minimum: pods,
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

fn amounts(amounts: &[(&str, i64)]) -> Resources {
    amounts
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), *amount))
        .collect()
}

/// Compares with the best seating on that many clusters which have room.
fn quality(clusters: u64) {
    let (mut ours, mut least, mut theirs) = (0, 0, 0);
    let (mut worst, mut exact, mut compared) = (1.0_f64, 0, 0);
    let mut seed = 0;
    while compared < clusters {
        seed += 1;
        let (snapshot, gang) = small(seed);
        let Some(best) = optimum::best(&snapshot, &gang) else {
            continue;
        };
        // A gang on one host costs nothing, however it is placed.
        let Some(other) = optimum::scheduler(&snapshot, &gang, seed) else {
            continue;
        };
        let placement = place(
            &snapshot,
            std::slice::from_ref(&gang),
            Timestamp::UNIX_EPOCH,
        );
        let seating = placement
            .seated
            .get(&gang.key)
            .expect("what can be seated is");
        let nodes: Vec<&str> = seating
            .seats
            .iter()
            .map(|seat| seat.node.as_str())
            .collect();
        let cost = optimum::cost(&snapshot, &gang, &nodes);
        compared += 1;
        ours += cost;
        least += best;
        theirs += optimum::cost(&snapshot, &gang, &other);
        exact += u64::from(cost == best);
        worst = worst.max(ratio(cost, best));
    }
    println!("quality\t{clusters}\t{ours}\t{least}\t{theirs}\t{worst:.3}\t{exact}");
}

fn ratio(cost: u64, best: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "costs of small gangs are far below 2^52"
    )]
    let (cost, best) = (cost as f64, best as f64);
    if best > 0.0 { cost / best } else { 1.0 + cost }
}

/// The most memory that this process had, in MB.
fn most_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes / 1000)
}
