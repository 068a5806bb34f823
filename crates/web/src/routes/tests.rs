use super::*;

fn question(path: &str, query: &str) -> Question {
    match parse(path, Some(query)) {
        Ok(Route::Ask(question)) => question,
        other => panic!("{path}?{query}: {other:?}"),
    }
}

fn part(path: &str, query: &str) -> RunPart {
    match question(&format!("v1/runs/r-1/{path}"), query) {
        Question::Run { run, part } if run == "r-1" => part,
        other => panic!("{path}?{query}: {other:?}"),
    }
}

#[test]
fn every_path_is_a_question() {
    let job = |run: Option<&str>| Question::Job {
        namespace: "team-a".to_owned(),
        name: "llama.70b".to_owned(),
        run: run.map(str::to_owned),
    };
    let days = |days: u64| Question::Failures {
        window_millis: days * 86_400_000,
    };
    let cases = [
        ("about", "", Question::About),
        ("nodes", "", Question::Nodes),
        ("queue", "", Question::Queue),
        ("jobs/team-a/llama.70b", "", job(None)),
        ("jobs/team-a/llama%2E70b", "run=r%2D1", job(Some("r-1"))),
        ("failures", "", days(30)),
        ("failures", "window=7d", days(7)),
        ("failures", "window=48h", days(2)),
        ("failures", "window=1440m", days(1)),
        ("failures", "window=9999d", days(400)),
    ];
    for (path, query, want) in cases {
        assert_eq!(
            question(&format!("v1/{path}"), query),
            want,
            "{path}?{query}"
        );
    }
    let cases = [
        ("ledger", RunPart::Ledger),
        ("verdicts", RunPart::Verdicts),
        ("seats", RunPart::Seats { attempt: None }),
        ("logs/folded", RunPart::FoldedLogs { attempt: None }),
        ("events", RunPart::Events { cursor: None }),
        ("checkpoints", RunPart::Checkpoints),
        ("spec", RunPart::Spec),
        ("trace.json", RunPart::Trace),
    ];
    for (path, want) in cases {
        assert_eq!(part(path, ""), want, "{path}");
    }
    assert_eq!(
        part("seats", "attempt=3"),
        RunPart::Seats { attempt: Some(3) }
    );
    assert_eq!(parse("v1/login", None), Ok(Route::Login));
}

#[test]
fn queries_have_defaults_and_limits() {
    let jobs = |limit: u32| JobsAsk {
        limit,
        ..JobsAsk::default()
    };
    for (query, want) in [
        ("", 50),
        ("limit=7", 7),
        ("limit=201", 200),
        ("limit=99999999999", 200),
    ] {
        assert_eq!(
            question("v1/jobs", query),
            Question::Jobs(jobs(want)),
            "{query}"
        );
    }
    let found = question(
        "v1/jobs",
        "q=a+b%20c%25&state=stalled&sort=-startedAt&kind=PyTorchJob&cursor=x",
    );
    let want = JobsAsk {
        text: Some("a b c%".to_owned()),
        state: Some("stalled".to_owned()),
        kind: Some("PyTorchJob".to_owned()),
        sort: Some("-startedAt".to_owned()),
        cursor: Some("x".to_owned()),
        ..jobs(50)
    };
    assert_eq!(found, Question::Jobs(want));

    let strip = |from, to, columns, rows, by_node| {
        RunPart::Strip(StripQuery {
            from,
            to,
            columns,
            rows,
            by_node,
        })
    };
    assert_eq!(part("strip", ""), strip(None, None, 800, 512, false));
    let found = part("strip", "from=5&to=9&columns=5000&rows=9999&by=node");
    assert_eq!(found, strip(Some(5), Some(9), 2000, 512, true));

    let found = part("series", "names=loss,stepSeconds&points=1");
    let RunPart::Series(series) = found else {
        panic!("{found:?}");
    };
    assert_eq!((series.names.len(), series.points), (2, 1));

    let logs = |query| match part("logs", query) {
        RunPart::Logs(logs) => (
            logs.backwards,
            logs.lines,
            logs.offset,
            logs.line,
            logs.search,
        ),
        other => panic!("{other:?}"),
    };
    let text = Some("CUDA error".to_owned());
    assert_eq!(logs(""), (true, 500, None, None, None));
    assert_eq!(logs("offset=0"), (false, 500, Some(0), None, None));
    assert_eq!(logs("offset=9&dir=back"), (true, 500, Some(9), None, None));
    assert_eq!(
        logs("line=3&lines=9999"),
        (false, 2000, None, Some(3), None)
    );
    assert_eq!(
        logs("q=CUDA+error&rank=&pod="),
        (true, 500, None, None, text)
    );
}

#[test]
fn what_is_not_known_is_refused_with_the_nearest() {
    let cases = [
        ("v1/jobz", "", 404, "`jobs`"),
        ("v1/runs/r/stripe", "", 404, "`strip`"),
        ("v1/runs/r", "", 404, "`runs`"),
        ("v2/jobs", "", 404, "`jobs`"),
        ("", "", 404, "below `api/v1/`"),
        ("v1/", "", 404, "below `api/v1/`"),
        ("v1/jobs/", "", 404, "below `api/v1/`"),
        ("v1//jobs", "", 404, "below `api/v1/`"),
        ("v1/jobs", "stat=running", 400, "`state`"),
        ("v1/jobs", "state=runing", 400, "`running`"),
        ("v1/jobs", "sort=-startdAt", 400, "`startedAt`"),
        ("v1/jobs", "limit=0", 400, "`limit` is 0"),
        ("v1/jobs", "limit=-1", 400, "not a whole number"),
        ("v1/jobs", "limit=+1", 400, "not a whole number"),
        ("v1/jobs", "limit=1&limit=2", 400, "more than once"),
        ("v1/about", "x=1", 400, "takes none"),
        ("v1/about", "x", 400, "takes none"),
        ("v1/runs/r/strip", "by=rack", 400, "`rank`"),
        ("v1/runs/r/strip", "from=9&to=9", 400, "the window is empty"),
        (
            "v1/runs/r/logs",
            "pod=a&rank=1",
            400,
            "both `pod` and `rank`",
        ),
        (
            "v1/runs/r/logs",
            "offset=1&line=1",
            400,
            "both `offset` and `line`",
        ),
        ("v1/runs/r/logs", "line=0", 400, "counted from 1"),
        (
            "v1/runs/r/logs",
            "rank=4294967296",
            400,
            "not a whole number",
        ),
        ("v1/failures", "window=30", 400, "a time such as `30d`"),
        ("v1/failures", "window=0d", 400, "a time such as `30d`"),
        ("v1/stream", "topics=job", 400, "`jobs`"),
        ("v1/stream", "topics=", 200, ""),
        ("v1/stream", "since=x", 400, "not a whole number"),
    ];
    for (path, query, status, part) in cases {
        let problem = match parse(path, Some(query)) {
            Ok(_) if status == 200 => continue,
            Ok(route) => panic!("{path}?{query}: {route:?}"),
            Err(problem) => problem,
        };
        let code = if status == 404 {
            ProblemCode::NotFound
        } else {
            ProblemCode::BadRequest
        };
        assert_eq!(problem.code, code, "{path}?{query}: {}", problem.message);
        assert!(
            problem.message.contains(part),
            "{path}?{query}: {}",
            problem.message
        );
        assert!(!problem.hint.is_empty());
    }
}

#[test]
fn names_never_leave_their_folder() {
    let long = "a".repeat(400);
    let names = [
        "..", ".", ".hidden", "%2e%2e", "a%2fb", "a%2Fb", "a%5cb", "a%00b", "a%0ab", "a%20b",
        "%ff", "%c3%28", "%", "%2", "%zz", "é", "a'b", "a`b", "<b>", &long,
    ];
    for name in names {
        for path in [
            format!("v1/jobs/{name}/x"),
            format!("v1/jobs/x/{name}"),
            format!("v1/runs/{name}/strip"),
        ] {
            let problem = parse(&path, None).unwrap_err();
            assert_eq!(
                problem.code,
                ProblemCode::BadRequest,
                "{path}: {}",
                problem.message
            );
        }
        for query in [format!("pod={name}"), format!("container={name}")] {
            assert!(parse("v1/runs/r/logs", Some(&query)).is_err(), "{query}");
        }
    }
    for path in ["v1/jobs/../jobs", "v1/runs/r/../../about", "v1/runs//strip"] {
        assert!(parse(path, None).is_err(), "{path}");
    }
}

#[test]
fn messages_repeat_little_and_only_what_is_visible() {
    let hostile = format!("{}=1", "%1b%5b31m%3cimg%3e\u{202e}x".repeat(500));
    let problem = parse("v1/jobs", Some(&hostile)).unwrap_err();
    assert!(problem.message.len() < 300, "{}", problem.message);
    let visible = |found: char| !found.is_control() && found != '\u{202e}';
    assert!(problem.message.chars().all(visible), "{}", problem.message);
    let long = format!("q={}", "a".repeat(513));
    assert!(parse("v1/jobs", Some(&long)).is_err());
    assert!(parse("v1/jobs", Some("q=a%0ab")).is_err());
}

#[test]
fn streams_have_topics() {
    let stream = |query| match parse("v1/stream", Some(query)) {
        Ok(Route::Stream(ask)) => ask,
        other => panic!("{query}: {other:?}"),
    };
    assert_eq!(stream("").topics, [Topic::Jobs].into());
    let ask = stream("topics=jobs,run%3Ar-1&since=7");
    assert_eq!(
        ask.topics,
        [Topic::Jobs, Topic::Run("r-1".to_owned())].into()
    );
    assert_eq!(ask.since, Some(7));
    let many = format!("topics={}", vec!["jobs"; 17].join(","));
    assert!(parse("v1/stream", Some(&many)).is_err());
    assert!(parse("v1/stream", Some("topics=run:../x")).is_err());
}
