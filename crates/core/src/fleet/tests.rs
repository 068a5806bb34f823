use jiff::Timestamp;

use super::*;
use crate::{
    gang::{Taint, TaintEffect},
    probe::{
        Check, Fault, Found, Judgement, Layer, NodeRecord, NodeReport, Outcome, Owner, PROBATION,
        Report, Source, consequences,
    },
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn settings(percent: u8) -> Settings {
    Settings {
        cap: Cap::percent(percent),
        probation_lasts: Duration::from_hours(1),
    }
}

fn open() -> Node {
    Node {
        ready: true,
        ..Node::default()
    }
}

fn on_probation(until: Option<i64>) -> Node {
    Node {
        taints: vec![Taint {
            key: PROBATION.to_owned(),
            value: "link-speed".to_owned(),
            effect: TaintEffect::NoSchedule,
        }],
        probation_until: until.map(at),
        ..open()
    }
}

fn with_record(outcome: Outcome, by: Source) -> Node {
    Node {
        preflight: Some(Box::new(NodeRecord {
            outcome,
            check: String::new(),
            why: String::new(),
            at: at(0),
            until: at(0),
            covers: String::new(),
            by,
        })),
        ..open()
    }
}

fn nodes(all: impl IntoIterator<Item = (&'static str, Node)>) -> BTreeMap<String, Node> {
    let all = all.into_iter();
    all.map(|(name, node)| (name.to_owned(), node)).collect()
}

fn names(set: &BTreeSet<String>) -> Vec<&str> {
    set.iter().map(String::as_str).collect()
}

/// The result of a trial of the operator in which `unfit` failed and `fit` passed.
fn found(unfit: &[&str], fit: &[&str]) -> Found {
    let fault = Fault {
        check: "link-speed".to_owned(),
        why: "`link-speed` found 10 Gbit/s, needs 100 Gbit/s".to_owned(),
        blamed: true,
    };
    let check = |outcome| Check {
        name: "link-speed".to_owned(),
        layer: Layer::Network,
        subject: String::new(),
        outcome,
        found: "10 Gbit/s".to_owned(),
        needed: "100 Gbit/s".to_owned(),
        cause: String::new(),
        next: String::new(),
        owner: Owner::Network,
    };
    let report = |names: &[&str], outcome: Outcome| -> Vec<(String, NodeReport)> {
        let checks = || vec![check(outcome)];
        let one = |name: &&str| ((*name).to_owned(), NodeReport { checks: checks() });
        names.iter().map(one).collect()
    };
    let failed = report(unfit, Outcome::Fail);
    let report = Report {
        nodes: failed
            .into_iter()
            .chain(report(fit, Outcome::Pass))
            .collect(),
        ..Report::default()
    };
    let judgement = Judgement {
        unfit: unfit
            .iter()
            .map(|name| ((*name).to_owned(), fault.clone()))
            .collect(),
        fit: fit.iter().map(|name| (*name).to_owned()).collect(),
        ..Judgement::default()
    };
    let all = report.nodes.keys().cloned().collect();
    let hour = Duration::from_hours(1);
    let follows = consequences(
        Source::Operator,
        &report,
        &judgement,
        &all,
        "all",
        (at(0), hour),
    );
    Found { judgement, follows }
}

/// A state in which a trial of these nodes runs.
fn running(purpose: Purpose, tried: &[&str]) -> State {
    State {
        running: Some(Trial {
            purpose,
            nodes: tried.iter().map(|name| (*name).to_owned()).collect(),
            beside: BTreeSet::new(),
        }),
        ..State::default()
    }
}

#[test]
fn nodes_are_tried_when_probation_is_over() {
    let dead = Node {
        ready: false,
        ..on_probation(Some(5))
    };
    let nodes = nodes([
        ("over", on_probation(Some(10))),
        ("not-yet", on_probation(Some(11))),
        ("no-time", on_probation(None)),
        ("untainted", open()),
        ("dead", dead),
    ]);
    let observed = Observed { nodes: &nodes };
    let decision = decide(&observed, &State::default(), at(10));
    let trial = decision.trial.unwrap();
    assert_eq!(trial.purpose, Purpose::Probation);
    assert_eq!(names(&trial.nodes), ["no-time", "over"]);
    let again = decide(&observed, &decision.state, at(10));
    assert_eq!(again.trial, None, "one at a time");
    assert_eq!(again.wake_at, None, "the result wakes it");
}

#[test]
fn wakes_for_the_first_node_that_is_due() {
    let nodes = nodes([
        ("b", on_probation(Some(70))),
        ("a", on_probation(Some(90))),
        ("c", open()),
    ]);
    let decision = decide(&Observed { nodes: &nodes }, &State::default(), at(10));
    assert_eq!((decision.trial, decision.wake_at), (None, Some(at(70))));
}

#[test]
fn nodes_that_wait_longest_are_tried_first() {
    let names: Vec<String> = (0..20).map(|number| format!("n{number:02}")).collect();
    let all: BTreeMap<String, Node> = names
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let until = 20 - i64::try_from(number).unwrap();
            (name.clone(), on_probation(Some(until)))
        })
        .collect();
    let decision = decide(&Observed { nodes: &all }, &State::default(), at(100));
    let tried = decision.trial.unwrap().nodes;
    assert_eq!(tried.len(), 16);
    assert!(!tried.contains("n00") && tried.contains("n19"), "{tried:?}");
}

#[test]
fn purposes_take_turns() {
    let mut nodes = nodes([("p", on_probation(None)), ("x", open()), ("y", open())]);
    let mut state = State::default();
    for node in ["x", "y", "gone"] {
        state.blame(&settings(10), node, "team", &BTreeSet::new(), at(0));
    }
    let mut order = Vec::new();
    for turn in 0..5 {
        let decision = decide(&Observed { nodes: &nodes }, &state, at(turn));
        let trial = decision.trial.unwrap();
        order.extend(trial.nodes);
        state = decision.state;
        state.running = None;
        // A cluster where a node on probation is always due.
        nodes.insert("p".to_owned(), on_probation(None));
    }
    assert_eq!(order, ["p", "x", "p", "y", "p"]);
}

#[test]
fn paths_are_measured_with_nodes_that_passed() {
    let own = |outcome| with_record(outcome, Source::Operator);
    let cordoned = Node {
        unschedulable: true,
        ..own(Outcome::Pass)
    };
    let cases = [
        ("by the job, and open", "a", open(), true, true),
        ("by nobody", "a", open(), false, false),
        ("by a trial", "a", own(Outcome::Warn), false, true),
        ("failed a trial", "a", own(Outcome::Fail), true, false),
        (
            "by an old version",
            "a",
            with_record(Outcome::Pass, Source::Job),
            false,
            false,
        ),
        ("cordoned", "a", cordoned, true, false),
        ("tried itself", "n", own(Outcome::Pass), true, false),
    ];
    for (name, called, node, passed, want) in cases {
        let mut all = nodes([("n", open())]);
        all.insert(called.to_owned(), node);
        let passed = passed.then(|| called.to_owned()).into_iter().collect();
        let mut state = State::default();
        state.blame(&settings(10), "n", "team", &passed, at(0));
        let trial = decide(&Observed { nodes: &all }, &state, at(1)).trial;
        assert_eq!(!trial.unwrap().beside.is_empty(), want, "{name}");
    }
}

#[test]
fn cap_counts_taints_that_are_being_written() {
    let all: BTreeMap<String, Node> = (0..20).map(|n| (format!("n{n:02}"), open())).collect();
    let observed = Observed { nodes: &all };
    let tried = ["n00", "n01", "n02"];
    let state = running(Purpose::Blamed, &tried);
    let settings = settings(10);
    let first = conclude(
        &observed,
        &state,
        &settings,
        Some(&found(&tried, &["n03"])),
        at(0),
    );
    let tainted = |conclusion: &Conclusion| {
        let changes = conclusion.changes.iter();
        let tainted = changes.filter(|(_, change)| matches!(change, Change::Taint(..)));
        tainted.map(|(node, _)| node.clone()).collect::<Vec<_>>()
    };
    assert_eq!(tainted(&first), ["n00", "n01"]);
    assert_eq!(
        first.refused["n02"].to_string(),
        "2 of 20 nodes are on probation, the maximum is 2 (`--probation-cap`)"
    );
    let next = |state: &State, second| {
        let mut state = state.clone();
        state.running = running(Purpose::Blamed, &["n05"]).running;
        let found = found(&["n05"], &[]);
        tainted(&conclude(
            &observed,
            &state,
            &settings,
            Some(&found),
            at(second),
        ))
    };
    assert!(next(&first.state, 10).is_empty(), "they are not seen yet");
    let mut refused = first.state.clone();
    refused.tainting.remove("n00");
    assert_eq!(next(&refused, 10), ["n05"], "the API server refused one");
    assert_eq!(next(&first.state, 60), ["n05"], "they never came");
}

#[test]
fn probation_ends_only_by_passing() {
    let all = nodes([
        ("good", on_probation(None)),
        ("bad", on_probation(None)),
        ("other", open()),
    ]);
    let observed = Observed { nodes: &all };
    let state = running(Purpose::Probation, &["bad", "good"]);
    let settings = settings(100);
    let found = found(&["bad"], &["good"]);
    let ends = |conclusion: &Conclusion| {
        let changes = conclusion.changes.iter();
        let ends = changes.filter(|(_, change)| !matches!(change, Change::Record(_)));
        ends.cloned().collect::<Vec<_>>()
    };
    let passed = conclude(&observed, &state, &settings, Some(&found), at(0));
    let hour = Change::Extend(at(3_600));
    assert_eq!(
        ends(&passed),
        [
            ("bad".to_owned(), hour),
            ("good".to_owned(), Change::Untaint)
        ]
    );
    assert_eq!(passed.outcomes["good"], NodeOutcome::Fit);
    assert_eq!(passed.outcomes["bad"].label(), "unfit");

    let none = conclude(&observed, &state, &settings, None, at(0));
    let soon = Change::Extend(at(300));
    assert_eq!(
        ends(&none),
        [("bad".to_owned(), soon.clone()), ("good".to_owned(), soon)]
    );
    assert_eq!(none.outcomes["good"], NodeOutcome::NoResult);
    assert!(none.state.running.is_none());

    let late = conclude(&observed, &none.state, &settings, Some(&found), at(0));
    assert!(late.changes.is_empty(), "no such trial runs any more");
}

#[test]
fn a_node_that_was_not_tried_may_be_blamed_again() {
    let down = Node::default();
    let nodes = nodes([("n", down)]);
    let fit = BTreeSet::new();
    let mut state = State::default();
    state.blame(&settings(10), "n", "team", &fit, at(0));
    let mut decision = decide(&Observed { nodes: &nodes }, &state, at(1));
    assert_eq!(decision.trial, None);
    let again = decision
        .state
        .blame(&settings(10), "n", "team", &fit, at(2));
    assert_eq!(again, Some(Blamed::Queued));
}

#[test]
fn a_cap_of_zero_queues_no_trial() {
    let mut state = State::default();
    let fit = BTreeSet::new();
    assert_eq!(state.blame(&settings(0), "n", "team", &fit, at(0)), None);
    let queued = state.blame(&settings(10), "n", "team", &fit, at(0));
    assert_eq!(queued, Some(Blamed::Queued));
}

#[test]
fn forgotten_trial_changes_no_node() {
    let mut fleet = Fleet::default();
    fleet.queue.update_node("n", on_probation(None));
    let trial = fleet.decide(at(0)).trial.unwrap();
    assert_eq!(fleet.running(), Some(&trial));
    fleet.forget_decisions();
    assert_eq!(fleet.running(), None);
    let found = found(&[], &["n"]);
    let late = fleet.conclude(&settings(100), Some(&found), at(1));
    assert!(late.changes.is_empty(), "another operator led meanwhile");
    assert_eq!(fleet.decide(at(2)).trial, Some(trial), "the node is known");
    let passed = fleet.conclude(&settings(100), Some(&found), at(3));
    let mut changes = passed.changes.iter();
    assert!(changes.any(|(node, change)| node == "n" && *change == Change::Untaint));
}
