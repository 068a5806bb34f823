use super::*;
use crate::{
    chronicle::What,
    gang::{survey, testing},
    view::testing::{chronicle, seated, worker},
};

#[test]
fn nodes_are_in_the_order_of_the_topology() {
    let mut snapshot = testing::cluster(2, 2, 1);
    snapshot.nodes.get_mut("b0r1h0").unwrap().ready = false;
    let area = survey(&snapshot);
    let state = PodState::Failed;
    let chronicle = chronicle(vec![
        seated(1, 1, 0, 8, "b1r0h0"),
        seated(1, 1, 1, 8, "b0r0h0"),
        (
            2,
            What::Pod {
                attempt: 1,
                slot: worker(1),
                state,
            },
        ),
        seated(3, 2, 1, 8, "gone-7"),
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
    assert_eq!(last[2], row("b1r0h0", NodeState::Empty, &[]));
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
fn slots_beyond_the_last_attempt_sit_nowhere() {
    let chronicle = chronicle([
        seated(1, 1, 0, 8, "a"),
        seated(1, 1, 1, 8, "b"),
        seated(2, 2, 0, 8, "a"),
    ]);
    let names = |attempt| {
        let nodes = seats(&chronicle, None, attempt).nodes.into_iter();
        nodes.map(|it| it.node).collect::<Vec<String>>()
    };
    assert_eq!(names(Some(1)), ["a", "b"]);
    assert_eq!(names(None), ["a"]);
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
