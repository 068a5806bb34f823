//! Labels of excerpts with a known cause.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use super::super::Figure;
use crate::{Failure, cache, report};

/// Labels that may stand beside `healthy`.
const FACTS: [&str; 7] = [
    "ib_ok",
    "gdr_ok",
    "gdr_disabled",
    "nvlink_p2p_disabled",
    "sharp_unavailable",
    "ib_device_inaccessible",
    "socket_fallback",
];

#[derive(Default)]
struct Tally {
    problems: u32,
    first: u32,
    within_two: u32,
    facts: u32,
    facts_found: u32,
    healthy: u32,
    alarms: u32,
}

/// Measures, and prints what was taken for what.
pub(super) fn figures(binary: &Path, folder: &Path) -> Result<Vec<Figure>, Failure> {
    let index = folder.join("index.jsonl");
    let text = fs::read_to_string(&index).map_err(cache::cannot("read", &index))?;
    let mut tally = Tally::default();
    let mut taken: BTreeMap<(String, String), u32> = BTreeMap::new();
    for line in text.lines() {
        let Some(file) = between(line, "\"file\": \"", "\"") else {
            continue;
        };
        let expected: Vec<&str> =
            strings(between(line, "\"expected\": [", "]").unwrap_or_default());
        let output = Command::new(binary)
            .args(["doctor", "--format", "json"])
            .arg(folder.join(file))
            .output()
            .map_err(|error| {
                Failure::CouldNotRun(format!("cannot start `{}`: {error}", binary.display()))
            })?;
        let json = String::from_utf8_lossy(&output.stdout);
        let (verdicts, facts) = json.split_once("\"facts\": {").unwrap_or((&json, ""));
        let labels: Vec<&str> = verdicts
            .split("\"label\": \"")
            .skip(1)
            .filter_map(|part| part.split('"').next())
            .collect();
        let facts: BTreeSet<&str> =
            strings(between(facts, "\"labels\": [", "]").unwrap_or_default());
        count(&mut tally, &expected, &labels, &facts);
        let problem = expected.iter().find(|label| !FACTS.contains(label));
        let want = if expected.contains(&"healthy") {
            "healthy"
        } else {
            problem.or(expected.first()).copied().unwrap_or_default()
        };
        let have = labels
            .iter()
            .find(|label| expected.contains(label))
            .filter(|label| labels.first() == Some(*label))
            .map_or(labels.first().copied().unwrap_or_default(), |_| want);
        *taken.entry((want.to_owned(), have.to_owned())).or_default() += 1;
    }
    print(&taken);
    let share = |part: u32, whole: u32| f64::from(part) / f64::from(whole.max(1)) * 100.0;
    let figure = |name: &str, part: u32, whole: u32, bound: f64| Figure {
        name: name.to_owned(),
        measured: format!("{:.1} % ({part} of {whole})", share(part, whole)),
        bound: format!("≥ {bound} %"),
        met: share(part, whole) >= bound,
    };
    Ok(vec![
        figure("expected problem first", tally.first, tally.problems, 90.0),
        figure(
            "expected problem among two",
            tally.within_two,
            tally.problems,
            97.0,
        ),
        figure("expected facts", tally.facts_found, tally.facts, 95.0),
        Figure {
            name: "problem on a healthy log".to_owned(),
            measured: format!("{} of {}", tally.alarms, tally.healthy),
            bound: "0".to_owned(),
            met: tally.alarms == 0,
        },
    ])
}

fn count(tally: &mut Tally, expected: &[&str], labels: &[&str], facts: &BTreeSet<&str>) {
    let wanted: Vec<&&str> = expected
        .iter()
        .filter(|label| FACTS.contains(label))
        .collect();
    tally.facts += u32::try_from(wanted.len()).unwrap_or(0);
    let found = wanted
        .iter()
        .filter(|label| facts.contains(***label))
        .count();
    tally.facts_found += u32::try_from(found).unwrap_or(0);
    if expected.contains(&"healthy") {
        tally.healthy += 1;
        tally.alarms += u32::from(labels.first() != Some(&"healthy"));
        return;
    }
    let is_problem = |label: &&str| expected.contains(label);
    tally.problems += 1;
    tally.first += u32::from(labels.iter().take(1).any(is_problem));
    tally.within_two += u32::from(labels.iter().take(2).any(is_problem));
}

/// The confusion table: what was expected, what came first, how often; and the precision of each label.
fn print(taken: &BTreeMap<(String, String), u32>) {
    let mut rows = vec![
        [
            "expected",
            "first verdict",
            "excerpts",
            "precision of the verdict",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for ((want, have), count) in taken {
        let said: u32 = taken
            .iter()
            .filter(|((_, other), _)| other == have)
            .map(|(_, count)| count)
            .sum();
        let right = taken
            .get(&(have.clone(), have.clone()))
            .copied()
            .unwrap_or(0);
        rows.push(vec![
            want.clone(),
            have.clone(),
            count.to_string(),
            format!("{right} of {said}"),
        ]);
    }
    println!("{}", report::table(&rows));
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    let (inside, _) = rest.split_once(end)?;
    Some(inside)
}

/// The strings of a list as JSON writes it.
fn strings<'a, T: FromIterator<&'a str>>(list: &'a str) -> T {
    list.split('"').skip(1).step_by(2).collect()
}
