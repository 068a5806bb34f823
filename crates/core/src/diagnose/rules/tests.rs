use super::*;

#[test]
fn every_builtin_rule_can_be_used() {
    let rules = Rules::builtin();
    for rule in rules.rules() {
        rule.check().unwrap();
        let speaks = matches!(rule.stage, Stage::Cause | Stage::Symptom | Stage::Fact);
        assert_eq!(rule.label.is_some(), speaks, "label of `{}`", rule.id);
        assert!(!rule.reference.is_empty(), "reference of `{}`", rule.id);
    }
    assert!(
        rules.anchor_count() <= MAX_ANCHORS,
        "{} anchors",
        rules.anchor_count()
    );
}

#[test]
fn every_label_can_be_reached() {
    let rules = Rules::builtin();
    // Concluded from several lines or ranks, by code.
    let concluded = [
        "healthy",
        "inconclusive",
        "ib_ok",
        "gdr_ok",
        "gdr_disabled",
        "socket_fallback",
        "rank_desync",
        "mpi_world_size_one",
        "worker_exit_nonzero",
    ];
    for label in rules.labels() {
        let spoken_for = rules
            .rules()
            .iter()
            .any(|rule| rule.label.as_ref() == Some(&label.name));
        assert!(
            spoken_for != concluded.contains(&label.name.as_str()),
            "`{}`",
            label.name
        );
    }
}

#[test]
fn rules_of_a_user() {
    let added = r#"
        [[label]]
        name = "licence_server_down"
        kind = "problem"
        account = "platform"
        retry = "helps"
        sentence = "the licence server does not answer"
        refuted_by = "a licence that was given later"
        next = "ask the owners of the server"

        [[rule]]
        id = "licence"
        label = "licence_server_down"
        any = ["FLEXlm"]
        pattern = 'FLEXlm .* (?<code>-?\d+)'
        stage = "cause"
    "#;
    let rules = Rules::with(&[added]).unwrap();
    assert!(rules.label("licence_server_down").is_some());
    let mut found = Vec::new();
    rules.finder.rules_in(b"FLEXlm says -15", &mut found);
    assert_eq!(found.len(), 1);
    assert!(rules.anchors().is_match("FLEXlm says -15"));

    let cases = [
        ("no TOML", "rules cannot be read"),
        (
            "[[rule]]\nid = 'a'\nany = ['abc']\npattern = '('\nstage = 'note'",
            "pattern of rule `a` cannot be used",
        ),
        (
            "[[rule]]\nid = 'a'\nany = []\nstage = 'note'",
            "rule `a` needs at least one literal",
        ),
        (
            "[[rule]]\nid = 'a'\nany = ['abc']\nlabel = 'x'\nstage = 'cause'",
            "rule `a` speaks for label `x`",
        ),
    ];
    for (text, want) in cases {
        let error = Rules::with(&[text]).unwrap_err().to_string();
        assert!(error.starts_with(want), "{error}");
    }
}

#[derive(Deserialize)]
struct Example {
    catches: Vec<String>,
    leaves: Vec<String>,
}

/// The rules that take `line`, behind the first stage or, for those that are sampled, without it.
fn taken<'a>(rules: &'a Rules, line: &str) -> Vec<&'a str> {
    let mut scratch = Vec::new();
    let text = crate::diagnose::line::read(line.as_bytes(), &mut scratch).text;
    let mut ids = Vec::new();
    let mut found = Vec::new();
    if rules.anchors().is_match(line) {
        rules.finder.rules_in(text, &mut found);
        ids.extend(found.clone());
    }
    rules.samples.rules_in(text, &mut found);
    ids.extend(found);
    ids.into_iter()
        .map(|index| rules.rule(index))
        .filter(|rule| rule.takes(text))
        .map(|rule| rule.id.as_str())
        .collect()
}

#[test]
fn every_rule_takes_its_lines_and_leaves_near_misses() {
    let text = include_str!("../../../../../testdata/doctor/examples.toml");
    let examples: std::collections::BTreeMap<String, Example> = toml::from_str(text).unwrap();
    let rules = Rules::builtin();
    let mut wrong = Vec::new();
    for rule in rules.rules() {
        let Some(example) = examples.get(&rule.id) else {
            wrong.push(format!("`{}` has no example", rule.id));
            continue;
        };
        assert!(!example.catches.is_empty() && !example.leaves.is_empty());
        for line in &example.catches {
            if !taken(&rules, line).contains(&rule.id.as_str()) {
                wrong.push(format!("`{}` passes over: {line}", rule.id));
            }
        }
        for line in &example.leaves {
            if taken(&rules, line).contains(&rule.id.as_str()) {
                wrong.push(format!("`{}` takes: {line}", rule.id));
            }
        }
    }
    for id in examples.keys() {
        if !rules.rules().iter().any(|rule| rule.id == *id) {
            wrong.push(format!("no rule `{id}`"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
