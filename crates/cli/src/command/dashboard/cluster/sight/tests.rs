use serde_json::json;

use super::*;

fn sight(namespaces: &[&str], nodes: bool) -> Sight {
    let mut answers: BTreeMap<Sees, Answer> = namespaces
        .iter()
        .map(|it| {
            (
                Sees::Jobs(Kind::PyTorch, Some((*it).to_owned())),
                Answer::Allowed,
            )
        })
        .collect();
    let answer = if nodes {
        Answer::Allowed
    } else {
        Answer::Denied
    };
    answers.insert(Sees::Nodes, answer);
    let mut sight = Sight::default();
    sight.add(&answers);
    sight
}

/// Team `a` has `own` and `both`; team `b` has `secret` and `both`; team `a` has a job of a kind that may not be listed.
fn existing() -> Vec<Existing> {
    let job = |kind, namespace: &str, name: &str| (kind, namespace.to_owned(), name.to_owned());
    vec![
        job(Kind::PyTorch, "a", "own"),
        job(Kind::PyTorch, "a", "both"),
        job(Kind::PyTorch, "b", "secret"),
        job(Kind::PyTorch, "b", "both"),
        job(Kind::Jax, "a", "other-kind"),
    ]
}

fn covered(sight: &Sight, mut document: Value) -> Value {
    let nodes = ["gpu-1".to_owned(), "gpu-12".to_owned()].into();
    let veil = Veil::new(sight, &existing(), &nodes);
    veil.cover_holders(&mut document);
    veil.cover(&mut document, &RandomState::new());
    document
}

#[test]
fn sentences_name_nobody_elses_jobs() {
    let cases = [
        (
            "needs 4 nodes; best rack `r1` has 3; 2 more are held by `b/secret`",
            "needs 4 nodes; best rack `r1` has 3; 2 more are held by `another team's gang`",
        ),
        (
            "3 are reserved for `secret`, which waits longer",
            "3 are reserved for `another team's gang`, which waits longer",
        ),
        ("held by `own`", "held by `own`"),
        ("held by `a/own`", "held by `a/own`"),
        ("held by `both`", "held by `both`"),
        ("held by `b/both`", "held by `another team's gang`"),
        ("held by `a/other-kind`", "held by `another team's gang`"),
        ("held by `gone/job`", "held by `another team's gang`"),
        ("b/secret fails.", "another team's gang fails."),
        ("in namespace `b`", "in namespace `another namespace`"),
        ("a job, b job: 1/2 of 3", "a job, b job: 1/2 of 3"),
        (
            "run `trainyard explain pytorchjob/own -n a`",
            "run `trainyard explain pytorchjob/own -n a`",
        ),
        ("`pytorchjob/own`", "`pytorchjob/own`"),
        (
            "`nvidia.com/gpu` and /dev/shm/x",
            "`nvidia.com/gpu` and /dev/shm/x",
        ),
        ("the secret is out", "the secret is out"),
        ("é `b/secret` ü", "é `another team's gang` ü"),
    ];
    for (text, want) in cases {
        let found = covered(&sight(&["a"], true), json!({ "line": text }));
        assert_eq!(found["line"], want, "{text}");
    }
}

#[test]
fn members_of_one_word_are_left() {
    let document = json!({"confidence": "secret", "queue": "b", "unit": "both"});
    assert_eq!(covered(&sight(&["a"], true), document.clone()), document);
}

#[test]
fn nodes_have_other_names_for_who_may_not_list_them() {
    let document = json!({
        "nodes": [{"node": "gpu-1", "pods": [{"slot": "worker-0"}]}, {"node": "gpu-99"}],
        "swaps": [{"from": "gpu-old", "to": "gpu-12"}],
        "evidence": [{"from": "event", "says": "pod on gpu-old, gpu-99 and gpu-1."}],
        "byNode": {"gpu-1": 3},
        "job": "gpu-1", "pod": "gpu-12", "from": 5,
    });
    let found = covered(&sight(&["a"], false), document.clone());
    let text = found.to_string();
    for name in ["gpu-old", "gpu-99"] {
        assert!(!text.contains(name), "{name}: {found:#}");
    }
    assert_eq!(
        (&found["job"], &found["pod"]),
        (&json!("gpu-1"), &json!("gpu-12"))
    );
    assert_eq!(found["evidence"][0]["from"], "event");
    let one = found["nodes"][0]["node"].as_str().unwrap();
    assert!(one.starts_with("hidden-node-"), "{one}");
    assert_eq!(
        found["byNode"][one], 3,
        "the same node has the same name: {found:#}"
    );
    let says = found["evidence"][0]["says"].as_str().unwrap();
    assert!(says.ends_with(&format!("{one}.")), "{says}");
    assert_eq!(covered(&sight(&["a"], true), document.clone()), document);
}

#[test]
fn holders_of_others_are_one_sum() {
    let document = json!({"cluster": {"hosts": [{"name": "gpu-1", "holders": [
        {"gang": "b/secret", "accelerators": 4}, {"gang": "a/own", "accelerators": 2},
        {"gang": "gone/x", "accelerators": 1}, {"gang": "a/other-kind", "accelerators": 1}]}]}});
    let found = covered(&sight(&["a"], true), document);
    let want = json!([{"gang": "a/own", "accelerators": 2}, {"gang": ANOTHER, "accelerators": 6}]);
    assert_eq!(found["cluster"]["hosts"][0]["holders"], want);
}

#[test]
fn reviews_that_failed_allow_nothing() {
    let what = |kind| Sees::Jobs(kind, Some("a".to_owned()));
    let mut sight = Sight::default();
    sight.add(&[(what(Kind::PyTorch), Answer::Unknown)].into());
    assert!(sight.is_blind() && !sight.sees("PyTorchJob", "a"));
    sight.add(&[(what(Kind::Jax), Answer::Allowed)].into());
    assert!(!sight.is_blind() && sight.is_unreviewed && sight.sees("JAXJob", "a"));
    let mut all = Sight::default();
    for kind in kinds() {
        assert!(!all.sees_all());
        all.add(&[(Sees::Jobs(kind, None), Answer::Allowed)].into());
    }
    assert!(all.sees_all() && all.sees("MPIJob", "anything") && !all.reads_logs("a"));
}
