use super::*;
use crate::probe::{Owner, judge};

const HOUR: Duration = Duration::from_hours(1);

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn check(name: &str, outcome: Outcome, layer: Layer, owner: Owner) -> Check {
    Check {
        name: name.to_owned(),
        layer,
        subject: String::new(),
        outcome,
        found: "3 uncorrected".to_owned(),
        needed: "none".to_owned(),
        cause: String::new(),
        next: String::new(),
        owner,
    }
}

fn broken() -> Check {
    check("gpu-ecc", Outcome::Fail, Layer::Devices, Owner::Platform)
}

fn well() -> Check {
    check("gpu-ecc", Outcome::Pass, Layer::Devices, Owner::Platform)
}

fn small() -> Check {
    check("shm", Outcome::Fail, Layer::Host, Owner::MlTeam)
}

fn report(nodes: &[(&str, Vec<Check>)]) -> Report {
    let nodes = nodes.iter().map(|(name, checks)| {
        let checks = checks.clone();
        ((*name).to_owned(), NodeReport { checks })
    });
    Report {
        nodes: nodes.collect(),
        ..Report::default()
    }
}

fn names(nodes: &[&str]) -> BTreeSet<String> {
    nodes.iter().map(|node| (*node).to_owned()).collect()
}

fn follows(source: Source, report: &Report, nodes: &BTreeSet<String>) -> Consequences {
    let judgement = judge(report, nodes).unwrap();
    consequences(source, report, &judgement, nodes, "f", (now(), HOUR))
}

#[test]
fn what_may_follow_from_whose_report() {
    type Case<'a> = (
        &'a str,
        Source,
        Vec<(&'a str, Vec<Check>)>,
        // Remembered by the job, suspects, records on nodes, on probation.
        [&'a [&'a str]; 4],
    );
    let cases: [Case<'_>; 6] = [
        (
            "a job's nodes pass",
            Source::Job,
            vec![("a", vec![well()]), ("b", vec![well()])],
            [&["a", "b"], &[], &[], &[]],
        ),
        (
            "a job blames a node",
            Source::Job,
            vec![("a", vec![well()]), ("b", vec![broken()])],
            [&["a", "b"], &["b"], &[], &[]],
        ),
        (
            "a job fails by what it brings",
            Source::Job,
            vec![("a", vec![well()]), ("b", vec![small()])],
            [&["a", "b"], &[], &[], &[]],
        ),
        (
            "a trial passes",
            Source::Operator,
            vec![("a", vec![well()])],
            [&[], &[], &["a"], &[]],
        ),
        (
            "a trial finds a broken node",
            Source::Operator,
            vec![("a", vec![well()]), ("b", vec![broken()])],
            [&[], &[], &["a", "b"], &["b"]],
        ),
        (
            "a trial fails by what no node is to blame for",
            Source::Operator,
            vec![("a", vec![well()]), ("b", vec![small()])],
            [&[], &[], &["a"], &[]],
        ),
    ];
    for (name, source, nodes, want) in cases {
        let all = names(&nodes.iter().map(|(node, _)| *node).collect::<Vec<_>>());
        let found = follows(source, &report(&nodes), &all);
        let marks = &found.marks;
        let found = [
            found.own.keys().cloned().collect(),
            found.suspects.clone(),
            marks.records().keys().cloned().collect(),
            marks.unfit().keys().cloned().collect(),
        ];
        assert_eq!(found, want.map(names), "{name}");
    }
}

#[test]
fn forged_names_never_reach_a_node() {
    let bad = "n05/status?dryRun=All&";
    let asked = names(&["n01"]);
    let many: Vec<String> = (1..=20).map(|node| format!("n{node:02}")).collect();
    let many: Vec<(&str, Vec<Check>)> = many
        .iter()
        .map(|node| (node.as_str(), vec![broken()]))
        .collect();
    for (name, forged, node) in [
        ("20 nodes, one assigned", report(&many), "n02"),
        (
            "a path",
            report(&[("n01", vec![well()]), (bad, vec![well()])]),
            bad,
        ),
        (
            "nothing",
            report(&[("n01", vec![well()]), ("", vec![well()])]),
            "",
        ),
    ] {
        let rejected = accept(forged, &asked).unwrap_err();
        let want = Rejected::WrongNode {
            node: node.to_owned(),
            assigned: 1,
        };
        assert_eq!(rejected, want, "{name}");
        assert_eq!(rejected.label(), "wrong_node");
    }
    // A trial is asked about names that the API server gave us; one that is none is still not written to.
    let odd = names(&[bad]);
    let found = follows(Source::Operator, &report(&[(bad, vec![broken()])]), &odd);
    assert_eq!(found, Consequences::default());
}

#[test]
fn texts_are_cleaned_and_cut() {
    let mut long = broken();
    long.name = "A".repeat(100_000);
    long.found = format!("\u{9b}31m\u{202e}{}\nx", "B".repeat(100_000));
    let mut forged = report(&[("n01", vec![long; 1_000])]);
    forged.leave = names(&["n01", "n02"]);
    let accepted = accept(forged, &names(&["n01"])).unwrap();
    assert_eq!(accepted.leave, names(&["n01"]));
    let checks = &accepted.nodes["n01"].checks;
    assert_eq!((checks.len(), checks[0].name.len()), (CHECKS, NAME));
    assert_eq!(checks[0].found.chars().count(), TEXT);
    assert!(checks[0].found.starts_with(" 31mBB"), "{}", checks[0].found);
    let found = follows(Source::Job, &accepted, &names(&["n01"]));
    let text = found.own["n01"].text();
    assert!(text.len() < 1_000, "{} bytes are kept of it", text.len());
}

#[test]
fn records_of_jobs_are_for_nobody_else() {
    let found = |source| {
        let report = report(&[("a", vec![broken()]), ("b", vec![well()])]);
        follows(source, &report, &names(&["a", "b"]))
    };
    let by_job = found(Source::Job).own;
    for (node, record) in &by_job {
        assert!(!record.is_for("f") && !record.is_for("g"), "{node}");
    }
    let trial = found(Source::Operator).marks;
    let (bad, good) = (&trial.records()["a"], &trial.records()["b"]);
    assert!(bad.is_for("f") && bad.is_for("g"), "bad is bad for all");
    assert!(
        good.is_for("f") && !good.is_for("g"),
        "measured for the same"
    );
    // An old version wrote what jobs reported, and not who did.
    let mut old: serde_json::Value = serde_json::from_str(&bad.text()).unwrap();
    old.as_object_mut().unwrap().remove("by");
    let old = NodeRecord::parse(&old.to_string()).unwrap();
    assert!(!old.is_for("f"));
}

#[test]
fn trial_without_gpu_proves_nothing() {
    let count = || check("gpu-count", Outcome::Fail, Layer::Devices, Owner::Platform);
    let model = || check("gpu-model", Outcome::Pass, Layer::Devices, Owner::Platform);
    let driver = || check("nvidia-driver", Outcome::Fail, Layer::Host, Owner::Platform);
    let clock = || check("clock-skew", Outcome::Fail, Layer::Host, Owner::Platform);
    let cases = [
        ("no GPU is seen", vec![driver(), count()], Outcome::Warn),
        (
            "one is seen, and broken",
            vec![model(), broken()],
            Outcome::Fail,
        ),
        (
            "what is not about GPUs",
            vec![count(), clock()],
            Outcome::Fail,
        ),
    ];
    for (name, checks, want) in cases {
        let seen = downgrade_unseen_gpus(report(&[("a", checks)]));
        assert_eq!(seen.nodes["a"].outcome(), want, "{name}");
    }
}
