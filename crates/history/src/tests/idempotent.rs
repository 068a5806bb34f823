//! The same facts twice, in other parts, or again after a crash, are the same rows.

use proptest::prelude::*;
use trainyard_core::{
    chronicle::{Booked, Fact, What},
    ledger::Phase,
};

use super::*;
use crate::{BATCH, Written, export};

#[test]
fn facts_twice_are_facts_once() {
    let (once, twice) = (Place::new(), Place::new());
    write_whole(&mut once.open(), "a");
    let mut store = twice.open();
    let (run, facts) = (run("a"), two_attempts());
    // Part by part, each part twice, and a store that is opened again between them.
    for until in 0..facts.len() {
        store.write(&run, &facts[..until], START).unwrap();
        if until == 5 {
            drop(store);
            store = twice.open();
        }
    }
    let written = store.write(&run, &facts, START).unwrap();
    let known = u64::try_from(facts.len()).unwrap() - 1;
    assert_eq!(
        written,
        Written {
            new: 1,
            known,
            ..Written::default()
        }
    );
    store
        .end(&run, &succeeded(START + 30 * HOUR), START)
        .unwrap();
    assert_eq!(dump(&once), dump(&twice));
    // After its end nothing is added, whatever number it has.
    let mut late = facts[3].clone();
    late.seq = 1_000;
    assert_eq!(store.write(&run, &[late], START).unwrap().known, 1);
    sums_hold(&twice);
}

/// Spans and resets at random.
fn arbitrary() -> impl Strategy<Value = Vec<Fact>> {
    let phases = prop::sample::select(Phase::ALL.to_vec());
    let step = (0_i64..40 * HOUR, phases, 0_u8..10, 1_u32..4);
    prop::collection::vec(step, 1..60).prop_map(|steps| {
        let mut at = START;
        let mut whats = vec![(START, What::Began)];
        for (millis, phase, kind, attempt) in steps {
            let to = at + millis;
            match kind {
                0 => {
                    at = START;
                    whats.push((START, What::Began));
                    continue;
                }
                1 | 2 => {
                    let whole = u64::try_from(millis).unwrap();
                    let part = |phase, millis| Booked {
                        attempt: Some(attempt),
                        phase,
                        millis,
                    };
                    let half = whole / 2;
                    let booked = vec![part(phase, half), part(Phase::Saving, whole - half)];
                    whats.push((
                        to,
                        What::Unseen {
                            from: at,
                            to,
                            booked,
                        },
                    ));
                }
                _ => whats.push(span(at, to, attempt, phase)),
            }
            at = to;
        }
        facts(whats)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn sums_are_those_of_spans(one in arbitrary(), other in arbitrary(), cut in 0_usize..60) {
        let place = Place::new();
        let mut store = place.open();
        let (first, second) = (run("a"), run("b"));
        let cut = cut.min(one.len());
        store.write(&first, &one[..cut], START).unwrap();
        store.write(&second, &other, START).unwrap();
        store.write(&first, &one, START).unwrap();
        sums_hold(&place);
        let chronicle = trainyard_core::chronicle::Chronicle::of_facts(&one);
        let mut totals = chronicle.totals(jiff::Timestamp::UNIX_EPOCH);
        totals.retain(|_, millis| *millis > 0);
        prop_assert_eq!(store.totals("a").unwrap(), totals);
    }
}

#[test]
fn many_facts_are_many_transactions() {
    let place = Place::new();
    let mut store = place.open();
    let count = i64::try_from(BATCH).unwrap() * 3 + 7;
    let mut whats = vec![(START, What::Began)];
    whats.extend((0..count).map(|at| span(START + at, START + at + 1, 1, Phase::Training)));
    let written = store.write(&run("a"), &facts(whats), START).unwrap();
    assert_eq!(written.new, u64::try_from(count).unwrap() + 1);
    assert_eq!(number(&place, "SELECT COUNT(*) FROM span"), count);
    sums_hold(&place);
}

fn exported(place: &Place) -> String {
    let mut bytes = Vec::new();
    export(&place.reader(), &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn export_and_import_are_equal() {
    let (one, other) = (Place::new(), Place::new());
    let mut store = one.open();
    for uid in ["c", "a", "b"] {
        write_whole(&mut store, uid);
    }
    let live = run("live");
    store.write(&live, &two_attempts()[..4], START).unwrap();
    let text = exported(&one);
    let mut into = other.open();
    let imported = into.import(&mut text.as_bytes()).unwrap();
    assert_eq!((imported.runs, imported.known), (4, 0));
    assert_eq!(exported(&other), text);
    sums_hold(&other);
    let again = into.import(&mut text.as_bytes()).unwrap();
    assert_eq!((again.runs, again.updated, again.known), (0, 0, 4));
    assert_eq!(exported(&other), text);
    // It went on at home: the next export brings the rest.
    store.write(&live, &two_attempts(), START).unwrap();
    store
        .end(&live, &succeeded(START + 30 * HOUR), START)
        .unwrap();
    let later = exported(&one);
    let again = into.import(&mut later.as_bytes()).unwrap();
    assert_eq!((again.runs, again.updated, again.known), (0, 1, 3));
    assert_eq!(exported(&other), later);
    sums_hold(&other);
    // An older export changes nothing.
    let again = into.import(&mut text.as_bytes()).unwrap();
    assert_eq!((again.runs, again.updated, again.known), (0, 0, 4));
    assert_eq!(exported(&other), later);
}

#[test]
fn a_bad_export_adds_no_half_run() {
    let one = Place::new();
    write_whole(&mut one.open(), "a");
    let text = exported(&one);
    let (head, rest) = text.split_once('\n').unwrap();
    let (first, _) = rest.split_once('\n').unwrap();
    let long = format!("{head}\n{}\n", "x".repeat(2 << 20));
    let cases = [
        ("empty", String::new(), "line 0", "the file is empty"),
        (
            "no export",
            "{\"a\":1}\n".to_owned(),
            "line 1",
            "missing field `format`",
        ),
        (
            "other",
            "{\"format\":\"x\",\"version\":1}\n".to_owned(),
            "line 1",
            "its format is `x`",
        ),
        (
            "newer",
            head.replace(":1}", ":99}") + "\n",
            "line 1",
            "it has version 99",
        ),
        (
            "cut",
            text.get(..text.len() - 5).unwrap().to_owned(),
            "",
            "the file ends within it",
        ),
        (
            "binary",
            format!("{head}\n\u{0}\u{1}\n"),
            "line 2",
            "expected value",
        ),
        (
            "cut between two lines",
            text.trim_end().rsplit_once('\n').unwrap().0.to_owned() + "\n",
            "",
            "it was cut off",
        ),
        ("too long", long, "line 2", "it is too long"),
        (
            "no run",
            format!("{head}\n{}\n", first.replace("\"run\"", "\"gap\"")),
            "line 2",
            "without its run",
        ),
        (
            "unknown table",
            format!("{head}\n{first}\n{}\n", first.replace("\"run\"", "\"x\"")),
            "line 3",
            "unknown table `x`",
        ),
        (
            "no uid",
            format!("{head}\n{}\n", first.replace("\"uid\"", "\"other\"")),
            "line 2",
            "uid",
        ),
        (
            "a list",
            format!("{head}\n{}\n", first.replace("\"mnist\"", "[1]")),
            "line 2",
            "`name` of `run` cannot be `[1]`",
        ),
        (
            "text for a number",
            format!(
                "{head}\n{}\n",
                first.replace("\"ranks\":8", "\"ranks\":\"8\"")
            ),
            "line 2",
            "`ranks` of `run` cannot be `\"8\"`",
        ),
        (
            "a number beyond what sums hold",
            text.replace("\"gpu_ms\":0", "\"gpu_ms\":9000000000000000000"),
            "",
            "`gpu_ms` of `run_day` cannot be",
        ),
        (
            "a day that is longer than one",
            text.replace("\"ms\":3600000,\"gpu_ms\"", "\"ms\":90000000,\"gpu_ms\""),
            "",
            "`ms` of `run_day` cannot be `90000000`",
        ),
        (
            "before all time",
            format!("{head}\n{}\n", first.replace("\"seen\":1", "\"seen\":-1")),
            "line 2",
            "`seen` of `run` cannot be",
        ),
    ];
    for (name, text, line, reason) in cases {
        let place = Place::new();
        let error = place
            .open()
            .import(&mut text.as_bytes())
            .map_err(|error| error.to_string())
            .expect_err(name);
        assert!(
            error.contains(line) && error.contains(reason),
            "{name}: {error}"
        );
        assert_eq!(number(&place, "SELECT COUNT(*) FROM run"), 0, "{name}");
    }
}

/// An export of runs with a row of the longest time for each of these days.
fn export_of(runs: &[&str], days: &[String]) -> String {
    let mut lines = vec![serde_json::json!({"format": "trainyard-history", "version": 1})];
    for uid in runs {
        lines.push(serde_json::json!({"table": "run", "row": {"uid": uid, "source": "s", "cluster": "", "namespace": "n",
            "name": "j", "kind": "PyTorchJob", "team": "t", "ranks": 1, "accelerators": 1_000_000, "created": 1, "seen": 1,
            "attempts": 1, "next_seq": 1, "complete": 1, "detail": 0, "excerpts": 0, "ended": 1}}));
        for day in days {
            lines.push(serde_json::json!({"table": "run_day", "row": {"day": day, "phase": "training", "ms": 86_400_000,
                "gpu_ms": 86_400_000_000_000_i64}}));
        }
    }
    lines.push(serde_json::json!({"table": "end", "row": {"runs": runs.len()}}));
    let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    lines.concat()
}

#[test]
fn an_import_never_fills_the_sums() {
    let import = |place: &Place, text: &str| {
        let error = place.open().import(&mut text.as_bytes());
        error.map_err(|error| error.to_string()).unwrap_err()
    };
    // Each line is one that a store writes, and there are many of one day.
    let place = Place::new();
    let twice = ["2026-01-01".to_owned(), "2026-01-01".to_owned()];
    let error = import(&place, &export_of(&["a"], &twice));
    assert!(error.contains("more time than a day"), "{error}");
    assert_eq!(number(&place, "SELECT COUNT(*) FROM phase_day"), 0);

    // So many runs that their sum does not fit.
    let place = Place::new();
    let days: Vec<String> = (0..2_000).map(|at| format!("day-{at:04}")).collect();
    let error = import(&place, &export_of(&["a", "b"], &days));
    assert!(error.contains("more than sums hold"), "{error}");
    let sums = "SELECT SUM(gpu_ms) FROM phase_day";
    assert!(number(&place, sums) <= 1 << 58);
    place.reader().report(crate::By::Team, 0, START).unwrap();
    // What was taken before counts.
    let error = import(&place, &export_of(&["c"], &days));
    assert!(error.contains("more than sums hold"), "{error}");
}
