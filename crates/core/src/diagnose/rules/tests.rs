use regex_syntax::hir::{Hir, HirKind};

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
    let file = parse(RULES).unwrap();
    for set in [&file.anchors, &file.anchors_of_ends] {
        assert!(set.len() <= anchors::SET, "{} anchors", set.len());
        for anchor in set {
            assert!(anchor.len() >= 4, "`{anchor}` makes its set slow");
        }
    }
}

/// Whether every text that matches contains an anchor, as far as the fixed parts of the pattern show it.
fn holds_anchor(pattern: &Hir, anchors: &[String]) -> bool {
    let has = |text: &[u8]| {
        let mut anchors = anchors.iter();
        anchors.any(|anchor| memchr::memmem::find(text, anchor.as_bytes()).is_some())
    };
    match pattern.kind() {
        HirKind::Literal(literal) => has(&literal.0),
        HirKind::Capture(group) => holds_anchor(&group.sub, anchors),
        HirKind::Repetition(part) => part.min > 0 && holds_anchor(&part.sub, anchors),
        HirKind::Alternation(ways) => ways.iter().all(|way| holds_anchor(way, anchors)),
        HirKind::Concat(parts) => parts.iter().any(|part| holds_anchor(part, anchors)),
        HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) => false,
    }
}

#[test]
fn every_rule_has_an_anchor() {
    let rules = Rules::builtin();
    let anchors = &rules.anchors().literals;
    let mut missing = Vec::new();
    for rule in rules
        .rules()
        .iter()
        .filter(|rule| !rule.sample && !rule.short)
    {
        let bare: Vec<&String> = rule
            .any
            .iter()
            .filter(|literal| {
                !anchors
                    .iter()
                    .any(|anchor| literal.contains(anchor.as_str()))
            })
            .collect();
        let pattern = rule.regex().map(|regex| {
            let mut parser = regex_syntax::ParserBuilder::new();
            let parser = parser.utf8(false).unicode(false);
            parser.build().parse(regex.as_str()).unwrap()
        });
        if !bare.is_empty() && !pattern.is_some_and(|hir| holds_anchor(&hir, anchors)) {
            missing.push(format!("{}: {bare:?}", rule.id));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn block_search_equals_line_search() {
    let rules = Rules::builtin();
    let lines = [
        "a step",
        "GPU is lost",
        "loss: nan",
        "",
        "Broken pipe, Traceback",
        "step",
        "NCCL",
    ];
    for repeats in 0..4 {
        let text = (lines.join("\n") + "\n" + &"step\n".repeat(repeats * 40)).repeat(3);
        let mut walk = rules.anchors().walk(text.as_bytes(), Part::End);
        let (mut from, mut found) = (0, Vec::new());
        while let Some(at) = walk.hit(from) {
            let number = memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count();
            found.push(number);
            from = at + memchr::memchr(b'\n', &text.as_bytes()[at..]).unwrap() + 1;
        }
        let each = text.lines().enumerate();
        let want: Vec<usize> = each
            .filter(|(_, line)| rules.anchors().is_match(line.as_bytes()))
            .map(|(number, _)| number)
            .collect();
        assert_eq!(found, want);
        assert!(!want.is_empty());
    }
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
        "launcher_missing",
        "rendezvous_store_stale",
        "rerun_requested",
    ];
    // Found by the watch or by the decider, which read no logs.
    let watched = [
        "hang_cpu_side",
        "hang_stopped",
        "hang_disk_wait",
        "hang_in_collective",
        "hang_all_alike",
        "hang_silent_log",
        "loss_spike",
        "straggler",
        "job_slower",
        "no_progress_across_attempts",
    ];
    let concluded: Vec<&str> = concluded.into_iter().chain(watched).collect();
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
    assert!(rules.anchors().is_match(b"FLEXlm says -15"));

    let cases = [
        ("no TOML", "cannot read the rules"),
        (
            "[[rule]]\nid = 'a'\nany = ['abc']\npattern = '('\nstage = 'note'",
            "invalid pattern in rule `a`",
        ),
        (
            "[[rule]]\nid = 'a'\nany = []\nstage = 'note'",
            "rule `a` needs at least one literal",
        ),
        (
            "[[rule]]\nid = 'a'\nany = ['abc']\nlabel = 'x'\nstage = 'cause'",
            "rule `a` has unknown label `x`",
        ),
    ];
    for (text, want) in cases {
        let error = Rules::with(&[text]).unwrap_err().to_string();
        assert!(error.starts_with(want), "{error}");
    }
}

#[test]
fn a_rule_of_a_user_reads_steps() {
    let added = r#"
        [[rule]]
        id = "our-trainer"
        any = ["tick"]
        pattern = 'tick #(?<step>\d+)/(?<last_step>\d+) cost=(?<loss>\S+) in (?<step_ms>[\d.]+)'
        unless = 'dry run'
        stage = "progress"
    "#;
    let rules = Rules::with(&[added]).unwrap();
    let mut reader = crate::progress::Reader::with_rules(Arc::clone(rules.progress()));
    let reading = reader.line(b"tick #5/10 cost=NaN in 250").unwrap();
    assert_eq!((reading.step, reading.last_step), (Some(5), Some(10)));
    assert!(reading.loss.unwrap().is_nan());
    assert_eq!(reading.step_seconds, Some(0.25));
    assert_eq!(reader.line(b"dry run: tick #5/10 cost=1 in 250"), None);
    assert_eq!(reader.line(b"step 6 loss 0.5").unwrap().step, Some(6));
    assert!(Rules::builtin().progress().is_empty());

    let mut doctor = crate::diagnose::Doctor::new(Arc::new(rules));
    let source = doctor.source("rank0.log");
    doctor.bytes(source, b"tick #7/10 cost=0.5 in 250\n");
    let facts = doctor.finish().facts;
    assert_eq!(facts.ranks[0].fields["step"], "7");
}

#[derive(Deserialize)]
struct Example {
    catches: Vec<String>,
    leaves: Vec<String>,
}

/// The rules that match `line`, after the first stage or, for sampled rules and those of short logs, without it.
fn taken<'a>(rules: &'a Rules, line: &str) -> Vec<&'a str> {
    let mut scratch = Vec::new();
    let text = crate::line::read(line.as_bytes(), &mut scratch).text;
    let mut ids = Vec::new();
    let mut found = Vec::new();
    let anchored = rules.anchors().is_match(line.as_bytes());
    rules.finder.rules_in(text, &mut found);
    ids.extend(
        found
            .iter()
            .filter(|index| anchored || rules.rule(**index).short),
    );
    rules.samples.rules_in(text, &mut found);
    ids.extend(found);
    ids.into_iter()
        .map(|index| rules.rule(index))
        .filter(|rule| rule.matches(text))
        .map(|rule| rule.id.as_str())
        .collect()
}

#[test]
fn rules_match_examples_but_not_near_misses() {
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
