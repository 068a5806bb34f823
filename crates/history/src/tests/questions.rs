//! Lists and reports.

use trainyard_core::{
    chronicle::{Fact, KeptVerdict, What},
    diagnose::VerdictSummary,
    ledger::Phase,
};

use super::*;
use crate::{By, Filter, HistoryError};

fn filter() -> Filter {
    Filter {
        limit: 100,
        ..Filter::default()
    }
}

fn verdict(seq: u64, at: i64, attempt: u32, label: &str, nodes: &[&str]) -> Fact {
    let summary: VerdictSummary = serde_json::from_value(serde_json::json!({
        "attempt": attempt, "label": label, "sentence": "a device failed", "ranks": [3], "nodes": nodes,
        "account": "infrastructure", "retry": "helps", "confidence": "high", "depth": "cause", "next": "drain it", "signature": "Xid #",
    }))
    .unwrap();
    let mut kept = KeptVerdict::from(summary);
    kept.evidence = vec![trainyard_core::chronicle::EvidenceLine {
        file: "worker-1.log".to_owned(),
        line: 7,
        text: "Xid 79".to_owned(),
        rank: Some(3),
    }];
    Fact {
        version: 1,
        seq,
        at,
        what: What::Verdict(Box::new(kept)),
    }
}

/// Three teams: one trains, one fails on a node, one lives.
pub(super) fn filled(place: &Place) {
    let mut store = place.open();
    write_whole(&mut store, "vision");
    let failing = crate::Run {
        team: "speech".to_owned(),
        name: "asr".to_owned(),
        kind: "TFJob".to_owned(),
        accelerators: None,
        created: START + HOUR,
        ..run("speech")
    };
    let mut facts = two_attempts();
    facts.push(verdict(
        50,
        START + 20 * HOUR,
        1,
        "gpu_lost",
        &["node-a", "node-c"],
    ));
    store.write(&failing, &facts, START).unwrap();
    let end = End {
        outcome: "failed".to_owned(),
        cause: Some("gpu_lost".to_owned()),
        ..succeeded(START + 30 * HOUR)
    };
    store.end(&failing, &end, START).unwrap();
    let live = crate::Run {
        team: "live".to_owned(),
        name: "llm".to_owned(),
        created: START + 2 * HOUR,
        ..run("live")
    };
    let whats = vec![
        (START + 2 * HOUR, What::Began),
        span(START + 2 * HOUR, START + 3 * HOUR, 1, Phase::Starting),
        (
            START + 3 * HOUR,
            What::Phase {
                attempt: 1,
                phase: Phase::Training,
            },
        ),
    ];
    store
        .write(&live, &crate::testing::facts(whats), START + 12 * HOUR)
        .unwrap();
}

#[test]
fn lists_are_filtered() {
    let place = Place::new();
    filled(&place);
    let reader = place.reader();
    let is = |text: &str| Some(text.to_owned());
    let cases = [
        (
            "all, the newest first",
            filter(),
            vec!["live", "speech", "vision"],
        ),
        (
            "outcome",
            Filter {
                outcome: is("failed"),
                ..filter()
            },
            vec!["speech"],
        ),
        (
            "live",
            Filter {
                outcome: is("live"),
                ..filter()
            },
            vec!["live"],
        ),
        (
            "team",
            Filter {
                team: is("vision"),
                ..filter()
            },
            vec!["vision"],
        ),
        (
            "kind",
            Filter {
                kind: is("TFJob"),
                ..filter()
            },
            vec!["speech"],
        ),
        (
            "job",
            Filter {
                job: is("llm"),
                ..filter()
            },
            vec!["live"],
        ),
        (
            "none",
            Filter {
                job: is("' OR 1=1"),
                ..filter()
            },
            vec![],
        ),
        (
            "since their end",
            Filter {
                since: Some(START + 29 * HOUR),
                ..filter()
            },
            vec!["live", "speech", "vision"],
        ),
        (
            "after their end",
            Filter {
                since: Some(START + 31 * HOUR),
                ..filter()
            },
            vec!["live"],
        ),
        (
            "limited",
            Filter {
                limit: 1,
                ..filter()
            },
            vec!["live"],
        ),
    ];
    for (name, filter, want) in cases {
        let listing = reader.list(&filter).unwrap();
        let found: Vec<&str> = listing.runs.iter().map(|run| run.uid.as_str()).collect();
        assert_eq!(found, want, "{name}");
        if name == "limited" {
            assert_eq!(listing.total, 3);
        }
    }
    let all = reader.list(&filter()).unwrap();
    assert_eq!(all.runs[0].phase.as_deref(), Some("training"));
    assert_eq!(all.runs[2].trained_ratio, Some(27.0 / 30.0));
}

#[test]
fn reports_add_up() {
    let place = Place::new();
    filled(&place);
    let reader = place.reader();
    let now = START + 40 * HOUR;
    let by_team = reader.report(By::Team, START, now).unwrap();
    let team = |key: &str| by_team.groups.iter().find(|it| it.key == key).unwrap();
    assert_eq!(team("vision").sums.trained_ratio, Some(0.9));
    // 3 of 30 hours did not train, one of which held no accelerators.
    assert!((team("vision").sums.lost_gpu_hours - 8.0).abs() < 1e-9);
    assert!(
        (team("speech").sums.gpu_hours).abs() < 1e-9,
        "not known is not counted"
    );
    // The open phase counts until the run was last seen.
    assert_eq!(team("live").sums.phases["training"].millis, 9 * 3_600_000);
    assert_eq!(by_team.live, 1);
    for by in [By::Kind, By::Day, By::Node] {
        let report = reader.report(by, START, now).unwrap();
        assert_eq!(report.total, by_team.total, "{by:?}");
        let millis: u64 = report.groups.iter().map(|it| it.sums.wall_millis).sum();
        let whole = if by == By::Node {
            0
        } else {
            report.total.wall_millis
        };
        assert_eq!(millis, whole, "{by:?}");
    }
    let days = reader.report(By::Day, START, now).unwrap();
    let days: Vec<&str> = days.groups.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(days, ["2026-01-02", "2026-01-03"]);
    // The second day alone.
    let second = reader.report(By::Team, START + 25 * HOUR, now).unwrap();
    assert_eq!(second.since, "2026-01-03");
    assert_eq!(second.total.wall_millis, 2 * 6 * 3_600_000);
    assert_eq!(second.total.failed_attempts, 0);
    let labels: Vec<_> = by_team
        .restarts
        .iter()
        .map(|it| (it.label.as_deref(), it.times))
        .collect();
    assert_eq!(labels, [(None, 1), (Some("gpu_lost"), 1)]);
    let nodes: Vec<_> = (by_team.nodes.iter())
        .map(|it| (it.node.as_str(), it.failed_attempts, it.blamed, it.jobs))
        .collect();
    assert_eq!(nodes, [("node-a", 2, 1, 2), ("node-c", 1, 1, 1)]);
    assert_eq!(by_team.nodes[0].labels, ["gpu_lost"]);
}

#[test]
fn the_last_verdict_on_an_attempt_counts() {
    let place = Place::new();
    let mut store = place.open();
    let mut facts = two_attempts();
    facts.push(verdict(50, START + 20 * HOUR, 1, "guess", &["node-x"]));
    facts.push(verdict(51, START + 20 * HOUR, 1, "gpu_lost", &["node-a"]));
    store.write(&run("a"), &facts, START).unwrap();
    assert_eq!(
        number(
            &place,
            "SELECT COUNT(*) FROM v1_node_fact WHERE node = 'node-x'"
        ),
        0
    );
    assert_eq!(
        number(
            &place,
            "SELECT COUNT(*) FROM v1_attempt WHERE label = 'gpu_lost' AND rank = 3"
        ),
        1
    );
    // Lines of logs are apart from what is kept for long.
    assert_eq!(
        number(
            &place,
            "SELECT COUNT(*) FROM v1_attempt WHERE verdict LIKE '%Xid 79%'"
        ),
        0
    );
    assert_eq!(
        number(&place, "SELECT COUNT(*) FROM excerpt WHERE text = 'Xid 79'"),
        2
    );
}

#[test]
fn a_query_that_takes_too_long_is_ended() {
    let place = Place::new();
    filled(&place);
    let reader = place.reader();
    reader.allow(std::time::Duration::ZERO);
    let forever =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n";
    let error = reader
        .connection()
        .query_row(forever, [], |row| row.get::<_, i64>(0));
    let error = HistoryError::of(&place.path, "count", error.unwrap_err());
    assert!(matches!(error, HistoryError::TooSlow { .. }), "{error:?}");
    // The next one has its own time.
    assert_eq!(reader.list(&filter()).unwrap().total, 3);
}
