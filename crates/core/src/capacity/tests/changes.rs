//! The smallest change, each of which is tried.

use serde_json::json;

use super::{ask, gang, offer, pool, shape, with};
use crate::{
    capacity::{Answer, Change, Changes},
    gang::{Gang, Snapshot, testing::GPU},
};

fn changes(gang: &Gang, pools: serde_json::Value) -> Vec<Changes> {
    let answer = ask(&Snapshot::default(), gang, &offer(pools));
    match answer {
        Answer::NeverFits(never) => never.changes,
        other => panic!("{}", other.message()),
    }
}

fn first(gang: &Gang, pools: serde_json::Value) -> Vec<Change> {
    let all = changes(gang, pools);
    let first = all.into_iter().next();
    first.map(|own| own.all).unwrap_or_default()
}

#[test]
fn the_smallest_change_comes_first() {
    let gpus = || vec![shape("p5", 8, 1.0)];
    let tainted = with(
        pool("gpu", gpus()),
        json!({"taints": [{"key": "team", "value": "ml", "effect": "NoSchedule"}]}),
    );
    let labelled = with(pool("gpu", gpus()), json!({"labels": {"tier": "spot"}}));
    let limited = with(pool("gpu", gpus()), json!({"atMost": {GPU: 32}}));
    let mut selects = gang("j", 2, 8);
    selects.shapes[0].constraints.node_selector = [("tier".to_owned(), "gold".to_owned())].into();

    let tolerate = Change::Tolerate {
        key: "team".to_owned(),
        value: "ml".to_owned(),
        effect: "NoSchedule",
    };
    let unselect = Change::Unselect {
        key: "tier".to_owned(),
        value: "gold".to_owned(),
    };
    let raise = Change::RaiseLimit {
        pool: "gpu".to_owned(),
        shape: None,
        resource: GPU.to_owned(),
        from: 32,
        to: 64,
    };
    let less = Change::AskForLess {
        resource: GPU.to_owned(),
        from: 16,
        to: 8,
    };
    let fewer = Change::FewerPods { from: 8, to: 4 };
    assert_eq!(
        first(&gang("j", 2, 8), json!([tainted])),
        std::slice::from_ref(&tolerate)
    );
    assert_eq!(
        first(&selects, json!([labelled])),
        std::slice::from_ref(&unselect)
    );
    assert_eq!(
        first(&gang("j", 2, 16), json!([pool("gpu", gpus())])),
        [less]
    );
    let all = changes(&gang("j", 8, 8), json!([limited]));
    let all: Vec<_> = all.into_iter().map(|own| own.all).collect();
    assert_eq!(all, [vec![raise.clone()], vec![fewer]]);

    // One change at a pool of two obstacles is less than two at another.
    let both = with(
        pool("a", gpus()),
        json!({"labels": {"tier": "spot"}, "taints": [{"key": "team", "effect": "NoSchedule"}]}),
    );
    let one = with(pool("b", gpus()), json!({"labels": {"tier": "spot"}}));
    assert_eq!(
        first(&selects, json!([both, one])),
        std::slice::from_ref(&unselect)
    );

    // Several that only help together.
    let mut selects = gang("j", 8, 8);
    selects.shapes[0].constraints.node_selector = [("tier".to_owned(), "gold".to_owned())].into();
    let both = with(
        limited,
        json!({"taints": [{"key": "team", "value": "ml", "effect": "NoSchedule"}]}),
    );
    assert_eq!(first(&selects, json!([both])), [tolerate, unselect, raise]);
}

#[test]
fn what_no_change_helps_says_so() {
    assert_eq!(first(&gang("j", 2, 8), json!([])), []);
    let cpus = json!([pool("cpu", vec![shape("c6", 0, 1.0)])]);
    assert_eq!(first(&gang("j", 2, 8), cpus), []);
}

#[test]
fn a_level_is_wished_for_instead() {
    let in_rack = |rack: &str| {
        with(
            pool(rack, vec![shape("p5", 8, 1.0)]),
            json!({"labels": {super::RACK: rack}, "atMost": {"nodes": 2}}),
        )
    };
    let job = gang("j", 4, 8).wishing("required=rack");
    let prefer = Change::Prefer {
        level: "rack".to_owned(),
    };
    assert_eq!(first(&job, json!([in_rack("r1"), in_rack("r2")])), [prefer]);
}
