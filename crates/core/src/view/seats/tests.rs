use super::*;
use crate::{
    chronicle::{Fact, What},
    gang::{survey, testing},
    spec::Role,
};

fn worker(index: u32) -> Slot {
    Slot::new(Role::Worker, index)
}

fn seated(at: i64, attempt: u32, index: u32, node: &str) -> (i64, What) {
    let what = What::Seated {
        attempt,
        slot: worker(index),
        first_rank: Some(index * 8),
        ranks: 8,
        node: node.to_owned(),
    };
    (at, what)
}

fn chronicle(whats: Vec<(i64, What)>) -> Chronicle {
    let facts: Vec<Fact> = (0..)
        .zip(whats)
        .map(|(seq, (at, what))| Fact {
            version: 1,
            seq,
            at,
            what,
        })
        .collect();
    Chronicle::of_facts(&facts)
}

#[test]
fn nodes_are_in_the_order_of_the_topology() {
    let mut snapshot = testing::cluster(2, 2, 1);
    snapshot.nodes.get_mut("b0r1h0").unwrap().ready = false;
    let area = survey(&snapshot);
    let state = PodState::Failed;
    let chronicle = chronicle(vec![
        seated(1, 1, 0, "b1r0h0"),
        seated(1, 1, 1, "b0r0h0"),
        (
            2,
            What::Pod {
                attempt: 1,
                slot: worker(1),
                state,
            },
        ),
        seated(3, 2, 1, "gone-7"),
    ]);
    let rows = |attempt| {
        let seats = seats(&chronicle, Some(&area), attempt);
        assert_eq!(seats.levels, ["block", "rack"]);
        let nodes = seats.nodes.into_iter();
        let row = |it: SeatNode| {
            (
                it.node,
                it.state,
                it.pods.iter().filter_map(|pod| pod.first_rank).collect(),
            )
        };
        nodes
            .map(row)
            .collect::<Vec<(String, NodeState, Vec<u32>)>>()
    };
    let row = |node: &str, state, ranks: &[u32]| (node.to_owned(), state, ranks.to_vec());
    let want = [
        row("b0r0h0", NodeState::Used, &[8]),
        row("b0r1h0", NodeState::Bad, &[]),
        row("b1r0h0", NodeState::Used, &[0]),
        row("b1r1h0", NodeState::Empty, &[]),
    ];
    assert_eq!(rows(Some(1)), want);
    let last = rows(None);
    assert_eq!(last[0], row("b0r0h0", NodeState::Empty, &[]));
    assert_eq!(last[4], row("gone-7", NodeState::Missing, &[8]));
    let first = &seats(&chronicle, Some(&area), Some(1)).nodes[0];
    assert_eq!(
        (first.path.join("/"), first.pods[0].state),
        ("b0/b0r0".to_owned(), Some(state))
    );
    // Without a cluster, the nodes that pods were on.
    let alone = seats(&chronicle, None, Some(1));
    assert!(
        alone
            .nodes
            .iter()
            .all(|it| it.state == NodeState::Used && it.accelerators.is_none())
    );
    assert_eq!(alone.nodes.len(), 2);
}

#[test]
fn empty_nodes_are_left_out_first() {
    let node = |name: &str, state, pods: usize| SeatNode {
        node: name.to_owned(),
        path: Vec::new(),
        state,
        why: None,
        accelerators: None,
        blamed: 0,
        pods: vec![
            SeatedPod {
                slot: String::new(),
                first_rank: None,
                ranks: 1,
                state: None,
            };
            pods
        ],
    };
    let all = vec![
        node("a", NodeState::Empty, 0),
        node("b", NodeState::Used, 1),
        node("c", NodeState::Bad, 0),
        node("d", NodeState::Bad, 1),
        node("e", NodeState::Empty, 0),
    ];
    for (most, want) in [(9, "abcde"), (4, "abcd"), (3, "bcd"), (2, "bd"), (1, "b")] {
        let mut nodes = all.clone();
        let left = leave_out(&mut nodes, most);
        let names: String = nodes.iter().map(|it| it.node.as_str()).collect();
        assert_eq!((names.as_str(), left), (want, 5_usize.saturating_sub(most)));
    }
}
