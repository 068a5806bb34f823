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
        let ruled = rules
            .rules()
            .iter()
            .any(|rule| rule.label.as_ref() == Some(&label.name));
        assert!(
            ruled != concluded.contains(&label.name.as_str()),
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
