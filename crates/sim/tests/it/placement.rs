//! The placer of core in a cluster that does not hold still, and placers that are wrong on purpose.

use jiff::Timestamp;
use trainyard_core::gang::{Gang, Placement, Refusal, Seat, Seating, Snapshot, place};
use trainyard_sim::placement::{Counts, Place, check, drawn, optimum, run, small};

/// As many as it takes to meet everything; the program `placement-hunt` runs more. Without optimization a seed
/// takes half a second.
const SEEDS: u64 = 1_000;

#[test]
fn seeds_break_nothing() {
    let mut met = Counts::default();
    for seed in 0..SEEDS {
        let outcome = run(seed, place);
        if let Some(violation) = outcome.violation {
            panic!("seed {seed} breaks {violation}");
        }
        let counts = outcome.counts;
        met.ended += counts.ended;
        met.losses += counts.losses;
        met.mended += counts.mended;
        met.races += counts.races;
        met.stale += counts.stale;
        met.promises += counts.promises;
        met.evictions += counts.evictions;
        met.partial += counts.partial;
        met.unadmitted += counts.unadmitted;
        met.out_of_scope += counts.out_of_scope;
    }
    let all = [
        met.ended,
        met.losses,
        met.mended,
        met.races,
        met.stale,
        met.promises,
        met.evictions,
        met.partial,
        met.unadmitted,
        met.out_of_scope,
    ];
    assert!(all.iter().all(|count| *count > 2), "hardly met: {met:?}");
}

#[test]
fn same_seed_same_result() {
    for seed in 0..5 {
        assert_eq!(
            run(seed, place).digest,
            run(seed, place).digest,
            "seed {seed}"
        );
    }
}

#[test]
fn one_pass_over_many_clusters_breaks_nothing() {
    for seed in 0..1_000 {
        let (snapshot, gangs) = drawn(seed);
        let placement = place(&snapshot, &gangs, Timestamp::UNIX_EPOCH);
        if let Err(violation) = check(&snapshot, &gangs, &placement) {
            panic!("seed {seed} breaks {violation}");
        }
    }
}

#[test]
fn small_gangs_are_seated_nearly_as_well_as_possible() {
    let (mut ours, mut least) = (0, 0);
    for seed in 0..100 {
        let (snapshot, gang) = small(seed);
        let best = optimum::best(&snapshot, &gang);
        let placement = place(
            &snapshot,
            std::slice::from_ref(&gang),
            Timestamp::UNIX_EPOCH,
        );
        let seating = placement.seated.get(&gang.key);
        assert_eq!(seating.is_some(), best.is_some(), "seed {seed}");
        let (Some(seating), Some(best)) = (seating, best) else {
            continue;
        };
        let nodes: Vec<&str> = seating
            .seats
            .iter()
            .map(|seat| seat.node.as_str())
            .collect();
        let cost = optimum::cost(&snapshot, &gang, &nodes);
        assert!(
            cost >= best,
            "seed {seed}: {cost} is less than the least, {best}"
        );
        ours += cost;
        least += best;
    }
    assert!(
        ours * 100 <= least * 105,
        "{ours} is more than 1.05 of {least}"
    );
}

/// Seats as the pods come, wherever `allowed` says.
fn naive(
    snapshot: &Snapshot,
    gangs: &[Gang],
    allowed: fn(&Snapshot, &str) -> bool,
    partly: bool,
) -> Placement {
    let mut placement = Placement::default();
    for gang in gangs.iter().filter(|gang| !gang.is_seated()) {
        let mut seats = Vec::new();
        let mut nodes = snapshot.nodes.keys().filter(|name| allowed(snapshot, name));
        for at in gang.unseated() {
            let Some(node) = nodes.next() else {
                break;
            };
            seats.push(Seat {
                pod: gang.pods[at].name.clone(),
                node: node.clone(),
            });
        }
        let missing = gang.unseated().count() - seats.len();
        if missing > 0 && !partly || seats.is_empty() {
            placement.refused.insert(
                gang.key.clone(),
                Refusal {
                    message: "no".to_owned(),
                    changes: Vec::new(),
                    fits_when_empty: true,
                },
            );
            continue;
        }
        placement.seated.insert(
            gang.key.clone(),
            Seating {
                seats,
                unseated: missing,
                domain: None,
                spans: Vec::new(),
                cost: 0,
                warnings: Vec::new(),
            },
        );
    }
    placement
}

fn anywhere(_: &Snapshot, _: &str) -> bool {
    true
}

fn blind(snapshot: &Snapshot, gangs: &[Gang], _: Timestamp) -> Placement {
    naive(snapshot, gangs, anywhere, false)
}

fn partial(snapshot: &Snapshot, gangs: &[Gang], _: Timestamp) -> Placement {
    naive(snapshot, gangs, anywhere, true)
}

fn idle(snapshot: &Snapshot, gangs: &[Gang], _: Timestamp) -> Placement {
    naive(snapshot, gangs, |_, _| false, false)
}

/// Right, but promises are forgotten, and with them who waits.
fn forgetful(snapshot: &Snapshot, gangs: &[Gang], now: Timestamp) -> Placement {
    let mut placement = Placement::default();
    for gang in gangs {
        let alone = place(snapshot, std::slice::from_ref(gang), now);
        placement.seated.extend(alone.seated);
        placement.refused.extend(alone.refused);
    }
    placement
}

#[test]
fn wrong_placers_are_caught() {
    let cases: &[(&str, Place, &[&str])] = &[
        (
            "blind",
            blind,
            &[
                "no constraint is violated",
                "no node is given more than it has",
                "a required level holds",
                "tensor-parallel groups stay together",
            ],
        ),
        ("idle", idle, &["every gang that fits is seated"]),
        ("partial", partial, &["never a part of a gang"]),
        (
            "forgetful",
            forgetful,
            &["no node is given more than it has"],
        ),
    ];
    for (name, wrong, want) in cases {
        let mut caught: Vec<&str> = (0..40)
            .filter_map(|seed| run(seed, *wrong).violation)
            .map(|violation| violation.invariant)
            .collect();
        caught.sort_unstable();
        caught.dedup();
        for invariant in *want {
            assert!(caught.contains(invariant), "{name} is caught by {caught:?}");
        }
    }
}
