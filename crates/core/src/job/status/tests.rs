use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::{
    job::{Observed, ObservedPod, PodPhase, decide, has_ended, testing},
    ledger::Phase,
    reason::{Code, Reason, StoredReason},
    spec::Kind,
};

/// A status with something in every field.
fn full() -> Value {
    json!({
        "conditions": [
            {"type": "Created", "status": "True", "reason": "PyTorchJobCreated", "message": "created",
             "lastUpdateTime": "2027-01-15T08:00:00Z", "lastTransitionTime": "2027-01-15T08:00:00Z"},
            {"type": "Degraded", "status": "False", "reason": "PyTorchJobDegraded", "message": "2 of 3",
             "lastUpdateTime": "2027-01-15T08:01:00Z", "lastTransitionTime": "2027-01-15T08:01:00Z"},
            {"type": "Running", "status": "True", "reason": "PyTorchJobRunning", "message": "running",
             "lastUpdateTime": "2027-01-15T08:02:00Z", "lastTransitionTime": "2027-01-15T08:02:00Z"},
        ],
        "replicaStatuses": {"Master": {"active": 1, "selector": "a=b"}, "Worker": {"active": 2}},
        "startTime": "2027-01-15T08:00:00Z",
        "trainyard": {
            "attempt": 3, "seen": 17, "formed": true,
            "replicas": {"Master": 1, "Worker": 2},
            "succeeded": {"Worker": [[0, 0]]},
            "spent": {"user": 1, "platform": 0, "infrastructure": 1, "preemption": 0},
            "dismissed": ["u-1"], "restarts": {"u-2": 1},
            "lastEnds": {"j-worker-0": {"uid": "u-2", "ends": 1, "failure": "cbf29ce484222325", "step": 40,
                "at": "2027-01-15T08:01:00Z"}},
            "lastFailure": {
                "attempt": 2, "pod": "j-worker-1", "account": "infrastructure", "message": "its node is gone",
                "step": 40,
                "verdict": {"attempt": 2, "label": "gpu_lost", "sentence": "GPU 3 fell off the bus", "ranks": [1],
                    "nodes": ["node-1"], "account": "infrastructure", "retry": "helps", "confidence": "high",
                    "depth": "cause", "next": "drain the node"},
            },
            "quickFailures": 1, "retryAt": "2027-01-15T08:02:30Z", "seatedAt": "2027-01-15T08:01:30Z",
            "heldFirst": true, "released": 2, "givenBack": 1, "restart": "now",
            "preflight": {"round": 2, "passed": ["node-0"]},
            "waiting": {"code": "WaitingForPods", "message": "1 pod is not there yet"},
            "ledger": {
                "began": "2027-01-15T08:00:00Z",
                "open": {"attempt": 3, "phase": "creating", "since": "2027-01-15T08:02:00Z"},
                "attempts": [
                    {"attempt": 1, "millis": {"creating": 1000, "training": 59000}},
                    {"attempt": 2, "millis": {"training": 60000}},
                ],
                "earlier": {"queued": 5}, "bestStep": 40,
            },
        },
    })
}

fn put(status: &mut Value, at: &str, value: Value) {
    let (parent, key) = at.rsplit_once('/').unwrap();
    match status.pointer_mut(parent).unwrap() {
        Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
        other => other[key] = value,
    }
}

fn written(status: &JobStatus) -> Value {
    serde_json::to_value(status).unwrap()
}

#[test]
fn everything_known_is_understood() {
    let status = read(&full()).unwrap();
    assert!(status.kept.is_empty());
    assert_eq!(written(&status), full());
    assert_eq!(read(&Value::Null).unwrap(), JobStatus::default());
    assert!(read(&json!({})).unwrap().is_new());
}

#[test]
fn unknown_content_is_kept() {
    let foreign = json!({"type": "QuotaReserved", "status": "True", "extra": [1, {"a": null}]});
    let cases: &[(&str, Value)] = &[
        ("/newField", json!({"a": [1, 2]})),
        ("/lastReconcileTime", json!("2027-01-15T08:00:00Z")),
        ("/conditions/1", foreign),
        ("/conditions/1", json!("not a condition")),
        ("/conditions/1/type", json!("Throttled")),
        ("/conditions/1/observedGeneration", json!(4)),
        ("/conditions/1/lastUpdateTime", json!("yesterday")),
        ("/conditions/1/lastTransitionTime", json!(5)),
        ("/conditions/1/status", json!("Perhaps")),
        ("/conditions/1/message", Value::Null),
        ("/replicaStatuses/Reviewer", json!({"active": 1})),
        (
            "/replicaStatuses/Worker/labelSelector",
            json!({"matchLabels": {}}),
        ),
        ("/replicaStatuses/Worker/active", json!("two")),
        ("/replicaStatuses", json!([])),
        ("/trainyard/newField", json!("x")),
        ("/trainyard/restart", Value::Null),
        ("/trainyard/replicas/Reviewer", json!(1)),
        ("/trainyard/succeeded/Reviewer", json!("all")),
        ("/trainyard/spent/vendor", json!(3)),
        ("/trainyard/waiting/code", json!("WaitingForPower")),
        ("/trainyard/waiting", json!("power")),
        ("/trainyard/lastFailure/account", json!("vendor")),
        ("/trainyard/lastFailure/verdict/depth", json!("root")),
        ("/trainyard/lastFailure/verdict/newField", json!(1)),
        ("/trainyard/failedBy", json!("PowerLost")),
        ("/trainyard/failedBy", json!({"kind": "powerLost"})),
        ("/trainyard/lastEnds", json!("none")),
        ("/trainyard/lastEnds/j-worker-0/at", json!("late")),
        ("/trainyard/preflight/newField", json!(1)),
        ("/trainyard/ledger/newField", json!(1)),
        ("/trainyard/ledger/open/phase", json!("cooling")),
        ("/trainyard/ledger/open/newField", json!(1)),
        ("/trainyard/ledger/attempts/0/millis/cooling", json!(70)),
        ("/trainyard/ledger/attempts/0/newField", json!(1)),
        ("/trainyard/ledger/earlier/cooling", json!(70)),
    ];
    for (at, value) in cases {
        let mut stored = full();
        put(&mut stored, at, value.clone());
        let status = read(&stored).unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_eq!(written(&status), stored, "{at} = {value}");
        assert_eq!(
            (status.trainyard.attempt, status.trainyard.spent.user),
            (3, 1),
            "{at}: the rest is understood"
        );
    }
}

#[test]
fn hold_is_read_without_what_is_unknown_of_its_failure() {
    let cause = json!({"kind": "exited", "code": 1, "outOfMemory": false});
    let cases = [
        (
            json!({"slot": {"role": "Worker", "index": 1}, "cause": cause}),
            true,
        ),
        (
            json!({"slot": {"role": "Worker", "index": 1}, "cause": {"kind": "unplugged"}}),
            false,
        ),
        (json!("power"), false),
        (Value::Null, false),
    ];
    for (failure, known) in cases {
        let mut stored = full();
        let hold = json!({"attempt": 3, "since": "2027-01-15T08:02:10Z", "why": "it ended", "failure": failure});
        put(&mut stored, "/trainyard/hold", hold);
        let status = read(&stored).unwrap();
        assert_eq!(written(&status), stored);
        let hold = status.trainyard.hold.unwrap();
        assert_eq!((hold.failure.is_some(), hold.ended), (known, false));
    }
}

#[test]
fn garbage_is_refused_with_its_field() {
    let cases: &[(&str, Value, &str)] = &[
        ("/conditions", json!("none"), "status.conditions"),
        ("/startTime", json!("yesterday"), "status.startTime"),
        ("/completionTime", json!(12), "status.completionTime"),
        ("/trainyard", json!([1]), "status.trainyard"),
        (
            "/trainyard/attempt",
            json!("three"),
            "status.trainyard.attempt",
        ),
        ("/trainyard/attempt", json!(-1), "status.trainyard.attempt"),
        (
            "/trainyard/attempt",
            json!(4_000_000_000_u32),
            "status.trainyard.attempt",
        ),
        ("/trainyard/seen", json!({}), "status.trainyard.seen"),
        ("/trainyard/formed", json!("yes"), "status.trainyard.formed"),
        ("/trainyard/whole", json!("yes"), "status.trainyard.whole"),
        (
            "/trainyard/seatedAt",
            json!("soon"),
            "status.trainyard.seatedAt",
        ),
        (
            "/trainyard/givenBack",
            json!(u32::MAX),
            "status.trainyard.givenBack",
        ),
        ("/trainyard/spent", json!("all"), "status.trainyard.spent"),
        (
            "/trainyard/spent/user",
            json!("all"),
            "status.trainyard.spent",
        ),
        (
            "/trainyard/spent/user",
            json!(u32::MAX),
            "status.trainyard.spent.user",
        ),
        (
            "/trainyard/replicas/Worker",
            json!("two"),
            "status.trainyard.replicas",
        ),
        (
            "/trainyard/succeeded/Worker",
            json!([[5, 2]]),
            "status.trainyard.succeeded",
        ),
        (
            "/trainyard/succeeded/Worker",
            json!([[0, 3], [2, 4]]),
            "status.trainyard.succeeded",
        ),
        (
            "/trainyard/dismissed",
            json!({}),
            "status.trainyard.dismissed",
        ),
        (
            "/trainyard/retryAt",
            json!("soon"),
            "status.trainyard.retryAt",
        ),
        ("/trainyard/fabric", json!("ib"), "status.trainyard.fabric"),
        (
            "/trainyard/preflight/round",
            json!("two"),
            "status.trainyard.preflight",
        ),
        ("/trainyard/ledger", json!(1), "status.trainyard.ledger"),
        (
            "/trainyard/ledger/open/since",
            json!("now"),
            "status.trainyard.ledger",
        ),
        (
            "/trainyard/ledger/earlier/queued",
            json!(u64::MAX),
            "status.trainyard.ledger",
        ),
    ];
    for (at, value, field) in cases {
        let mut stored = full();
        put(&mut stored, at, value.clone());
        let error = read(&stored).expect_err(at);
        assert_eq!(error.field, *field, "{at} = {value}");
        assert!(!error.has_ended(), "{at}");
        assert_eq!(written(&error.shown), stored, "{at}: shown as it is stored");
        assert!(
            error
                .to_string()
                .starts_with(&format!("`{field}` cannot be read (")),
            "{error}"
        );
    }
    for garbage in [json!("done"), json!(3), json!([]), json!(true)] {
        assert_eq!(read(&garbage).unwrap_err().field, "status", "{garbage}");
    }
}

#[test]
fn terminal_condition_survives_garbage() {
    for kind in ["Succeeded", "Failed"] {
        let stored = json!({
            "conditions": [null, 5, {"type": kind, "status": "True"}, {"type": 7}],
            "startTime": [], "replicaStatuses": "x", "trainyard": "gone",
        });
        let error = read(&stored).unwrap_err();
        assert!(error.has_ended(), "{kind}");
        assert!(has_ended(&error.shown), "{kind}");
    }
    // Whether it has ended is what a decision depends on most.
    let stored = json!({"conditions": [{"type": "Succeeded", "status": "Perhaps"}]});
    let error = read(&stored).unwrap_err();
    assert_eq!(error.field, "status.conditions[type=Succeeded].status");
    assert!(!error.has_ended());
}

#[test]
fn ended_job_with_foreign_condition_stays_ended() {
    let foreign = json!({"type": "QuotaReserved", "status": "True"});
    let ended = json!({"type": "Succeeded", "status": "True", "reason": "PyTorchJobSucceeded",
        "message": "done", "lastUpdateTime": "2027-01-15T08:09:00Z",
        "lastTransitionTime": "2027-01-15T08:09:00Z"});
    let mut stored = full();
    stored["conditions"] = json!([full()["conditions"][0], ended, foreign]);
    stored["completionTime"] = json!("2027-01-15T08:09:00Z");
    let observed = Observed {
        version: 20,
        status: read(&stored).unwrap(),
        ..Observed::default()
    };
    let decision = decide(&testing::job(Kind::PyTorch), &observed, testing::at(3_600));
    assert_eq!(decision.actions, []);
    assert_eq!(written(&decision.status), stored);
}

#[test]
fn decision_leaves_foreign_conditions_in_place() {
    let kinds = |status: &Value| -> String {
        let list = status["conditions"].as_array().unwrap().iter();
        let names: Vec<&str> = list.map(|it| it["type"].as_str().unwrap_or("-")).collect();
        names.join(",")
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True", "by": "somebody"});
    // What is stored, what is decided of ours, what is written.
    let cases = [
        ("Created,A", "Created,Running", "Created,A,Running"),
        ("A,Created", "Created,Running", "A,Created,Running"),
        (
            "Created,A,Restarting,B",
            "Created,Running",
            "Created,A,B,Running",
        ),
        (
            "Created,Running,A",
            "Created,Running,Succeeded",
            "Created,Running,A,Succeeded",
        ),
        (
            "Created,A,Running,B",
            "Created,Degraded,Running",
            "Created,A,B,Degraded,Running",
        ),
        ("A", "Created", "A,Created"),
        ("Created,A,Running", "Created,Running", "Created,A,Running"),
    ];
    for (stored, decided, want) in cases {
        let list: Vec<Value> = stored.split(',').map(condition).collect();
        let stored = json!({ "conditions": list });
        let mut status = read(&stored).unwrap();
        let ours: Vec<Condition> = decided
            .split(',')
            .map(|kind| {
                let kept = status.conditions.iter().find(|it| it.kind.name() == kind);
                kept.cloned().unwrap_or_else(|| {
                    let own = json!({"conditions": [{"type": kind, "status": "True"}]});
                    read(&own).unwrap().conditions.remove(0)
                })
            })
            .collect();
        status.conditions = ours;
        let after = written(&status);
        assert_eq!(kinds(&after), want, "{stored}");
        for foreign in list
            .iter()
            .filter(|it| it["type"].as_str().unwrap().len() == 1)
        {
            assert!(
                after["conditions"].as_array().unwrap().contains(foreign),
                "{after}"
            );
        }
        for condition in after["conditions"].as_array().unwrap() {
            let was = list.iter().any(|it| it["type"] == condition["type"]);
            assert_eq!(condition.get("by").is_some(), was, "{condition}");
        }
    }
}

#[test]
fn time_in_unknown_phases_is_counted_once() {
    let mut stored = full();
    put(
        &mut stored,
        "/trainyard/ledger/attempts/1/millis/cooling",
        json!(70),
    );
    put(
        &mut stored,
        "/trainyard/ledger/attempts/1/millis/warming",
        json!(30),
    );
    put(
        &mut stored,
        "/trainyard/ledger/open",
        json!({
            "attempt": 2, "phase": "cooling", "since": "2027-01-15T08:02:00Z",
        }),
    );
    let mut status = read(&stored).unwrap();
    let now: Timestamp = "2027-01-15T08:02:04Z".parse().unwrap();
    let ledger = &mut status.trainyard.ledger;
    assert_eq!(ledger.totals(now)[&Phase::Other], 4_100);
    ledger.enter(3, Phase::Training, now);
    let after = written(&status);
    let millis = &after["trainyard"]["ledger"]["attempts"][1]["millis"];
    assert_eq!(
        *millis,
        json!({"training": 60000, "cooling": 70, "warming": 30, "other": 4000})
    );
    let again = read(&after).unwrap();
    assert_eq!(
        again.trainyard.ledger.totals(now),
        status.trainyard.ledger.totals(now)
    );
    // An attempt that is no longer kept by itself takes its time along.
    for attempt in 4..40 {
        status.trainyard.ledger.enter(attempt, Phase::Training, now);
    }
    let after = written(&status);
    assert_eq!(
        after["trainyard"]["ledger"]["earlier"]["other"],
        json!(4_100)
    );
}

#[test]
fn time_stored_as_hanging_is_counted_once() {
    let mut stored = full();
    let millis = "/trainyard/ledger/attempts/1/millis/hanging";
    put(&mut stored, millis, json!(500));
    put(
        &mut stored,
        "/trainyard/ledger/open",
        json!({"attempt": 2, "phase": "hanging", "since": "2027-01-15T08:02:00Z"}),
    );
    let mut status = read(&stored).unwrap();
    assert_eq!(
        written(&status),
        stored,
        "without a decision nothing changes"
    );
    let now: Timestamp = "2027-01-15T08:02:04Z".parse().unwrap();
    let ledger = &mut status.trainyard.ledger;
    assert_eq!(ledger.totals(now)[&Phase::Stalled], 4_500);
    ledger.enter(2, Phase::Training, now);
    let after = written(&status);
    let again = read(&after).unwrap();
    assert_eq!(
        again.trainyard.ledger.totals(now),
        status.trainyard.ledger.totals(now)
    );
    let millis = &after["trainyard"]["ledger"]["attempts"][1]["millis"];
    assert_eq!(
        (&millis["stalled"], millis.get("hanging")),
        (&json!(4_500), None)
    );
}

#[test]
fn what_was_said_of_another_moment_goes_with_it() {
    let mut stored = full();
    put(
        &mut stored,
        "/trainyard/waiting/code",
        json!("WaitingForPower"),
    );
    put(&mut stored, "/trainyard/waiting/meter", json!(7));
    put(&mut stored, "/trainyard/preflight/meter", json!(7));
    let mut status = read(&stored).unwrap();
    assert_eq!(status.trainyard.waiting.as_ref().unwrap().code, Code::Other);
    let reason = Reason::AllPodsExist { pods: 3 };
    status.trainyard.waiting = Some(StoredReason::from(&reason));
    status.trainyard.preflight = None;
    let after = written(&status);
    let waiting = json!({"code": "Training", "message": "all 3 pods exist",
        "params": {"kind": "allPodsExist", "pods": 3}});
    assert_eq!(after["trainyard"]["waiting"], waiting);
    assert_eq!(after["trainyard"].get("preflight"), None);
    status.trainyard.waiting = None;
    assert_eq!(written(&status)["trainyard"].get("waiting"), None);
}

/// Any JSON.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[A-Za-z:.0-9-]{0,12}".prop_map(Value::from),
        Just(json!("True")),
        Just(json!("2027-01-15T08:02:00Z")),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z]{1,8}", inner, 0..4)
                .prop_map(|map| Value::Object(Map::from_iter(map))),
        ]
    })
}

/// Every place in a value: where it can be replaced, and where something can be added.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                places(value, &format!("{at}/{key}"), found);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                places(value, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// The full status with values added to its objects and replaced in it.
fn changed(changes: &[(prop::sample::Index, bool, Value)]) -> Value {
    let mut stored = full();
    for (place, adds, value) in changes {
        let mut all = Vec::new();
        places(&stored, "", &mut all);
        let at = place.get(&all);
        match stored.pointer_mut(at).unwrap() {
            Value::Object(fields) if *adds => {
                fields.insert("zz".to_owned() + &fields.len().to_string(), value.clone());
            }
            Value::Array(list) if *adds => list.push(value.clone()),
            _ if *adds || at.is_empty() => {}
            other => *other = value.clone(),
        }
    }
    stored
}

fn changes(adds: impl Strategy<Value = bool> + Clone) -> impl Strategy<Value = Value> {
    let change = (any::<prop::sample::Index>(), adds, any_value());
    prop::collection::vec(change, 0..4).prop_map(|changes| changed(&changes))
}

/// What the second value holds of the names that were added to the first.
fn added(value: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    places(value, "", &mut all);
    all.retain(|at| {
        at.rsplit('/')
            .next()
            .is_some_and(|key| key.starts_with("zz"))
    });
    let at = |at: String| {
        let value = value.pointer(&at).cloned().unwrap_or_default();
        (at, value)
    };
    all.into_iter().map(at).collect()
}

proptest! {
    #[test]
    fn reading_and_writing_changes_nothing(stored in changes(any::<bool>())) {
        if let Ok(status) = read(&stored) {
            prop_assert_eq!(written(&status), stored);
        }
    }

    #[test]
    fn any_json_is_read_or_refused(stored in any_value()) {
        if let Ok(status) = read(&stored) {
            prop_assert_eq!(written(&status).is_null(), false);
        }
    }

    #[test]
    fn decisions_keep_what_they_do_not_know(stored in changes(any::<bool>()), running in any::<bool>()) {
        let Ok(status) = read(&stored) else {
            return Ok(());
        };
        let pods = running.then(|| ObservedPod::in_phase(PodPhase::Running));
        let observed = Observed {
            version: u64::MAX,
            pods: pods.into_iter().collect(),
            status,
            ..Observed::default()
        };
        let decision = decide(&testing::job(Kind::PyTorch), &observed, testing::at(10));
        let after = written(&decision.status);
        for (at, value) in added(&stored) {
            // Below an object that is about one moment it goes with that moment, and a list has other numbers then.
            let moves = ["waiting", "lastFailure", "open", "fabric", "conditions", "attempts",
                "preflight", "lastEnds"];
            if !at.split('/').any(|key| moves.contains(&key)) {
                prop_assert_eq!(after.pointer(&at), Some(&value), "{}", at);
            }
        }
        let again = read(&after);
        prop_assert!(again.is_ok(), "{:?}", again);
        let again = again.unwrap();
        prop_assert_eq!(&again.trainyard, &decision.status.trainyard);
        prop_assert_eq!(&again.conditions, &decision.status.conditions);
    }
}
