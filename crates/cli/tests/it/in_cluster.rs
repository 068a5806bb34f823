//! `trainyard dashboard --in-cluster` with an API server of this test: who sees what, on every path.

pub(crate) mod api;

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use self::api::{Api, job, pod};
use crate::call::Call;

/// A change is noticed within this time, or the test fails.
const WITHIN: Duration = Duration::from_mins(2);

/// A dashboard that runs.
struct Served {
    child: Child,
    host: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// An answer: status, head and body.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a document of JSON")
    }

    fn tag(&self) -> String {
        let mut lines = self.head.lines();
        let line = lines.find(|line| line.to_lowercase().starts_with("etag: "));
        line.expect("an ETag").to_owned()
    }
}

impl Served {
    fn start(api: &Api, words: &[&str]) -> Self {
        let fixed = [
            "dashboard",
            "--in-cluster",
            "--format",
            "json",
            "--kubeconfig",
            "kubeconfig",
        ];
        let call = Call::new(&[&fixed, words].concat()).file("kubeconfig", api.kubeconfig());
        let mut command = call.command();
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh can be started");
        let mut text = String::new();
        // The object ends with the first line that begins with `}`.
        for line in BufReader::new(child.stdout.take().expect("stdout is piped")).lines() {
            let line = line.expect("stdout is UTF-8");
            text.push_str(&line);
            if line.starts_with('}') {
                break;
            }
        }
        let address: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(address["token"], Value::Null, "{address}");
        let url = address["url"].as_str().expect("a URL");
        let host = url.trim_start_matches("http://").trim_end_matches('/');
        Self {
            child,
            host: host.to_owned(),
        }
    }

    fn open(&self, path: &str, fields: &[(&str, &str)]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.host).expect("it listens");
        stream.set_read_timeout(Some(WITHIN)).expect("a socket");
        let mut head = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n");
        if !fields.iter().any(|(name, _)| *name == "Host") {
            head.extend(["Host: ", &self.host, "\r\n"]);
        }
        for (name, value) in fields {
            head.extend([name, ": ", value, "\r\n"]);
        }
        stream
            .write_all(format!("{head}\r\n").as_bytes())
            .expect("it reads");
        stream
    }

    fn send(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let mut reply = String::new();
        let mut stream = self.open(path, fields);
        stream
            .read_to_string(&mut reply)
            .expect("it answers in UTF-8");
        let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
        Answer {
            status: status.expect("a status"),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    /// What a user gets of the API.
    fn get(&self, user: &str, path: &str) -> Answer {
        let bearer = format!("Bearer token-{user}");
        self.send(&format!("/api/v1/{path}"), &[("Authorization", &bearer)])
    }

    /// Waits until a user sees so many jobs.
    fn until_jobs(&self, user: &str, count: usize) -> Value {
        let end = Instant::now() + WITHIN;
        loop {
            let answer = self.get(user, "jobs");
            if answer.status == 200 && answer.json()["total"] == count {
                return answer.json();
            }
            assert!(
                Instant::now() < end,
                "{user} does not see {count} jobs: {answer:?}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A cluster in which team `a` and team `b` each have a job on a node of its own.
fn two_teams() -> Api {
    let api = Api::start();
    for team in ["a", "b"] {
        let (namespace, name, node) = (
            format!("team-{team}"),
            format!("job-{team}"),
            format!("gpu-{team}"),
        );
        api.put("/apis/kubeflow.org/v1/pytorchjobs", &job(&namespace, &name));
        api.put("/api/v1/pods", &pod(&namespace, &name, &node));
        api.put(
            "/api/v1/nodes",
            &json!({"metadata": {"name": node, "uid": node},
            "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "8", "memory": "8Gi"},
                "conditions": [{"type": "Ready", "status": "True"}]}}),
        );
    }
    api.log("line of job-a");
    api
}

/// Every path with the status that each gets: `a` and `b` may list and read logs in their namespace, `list` may only list jobs in that of `a`, `nodes` may
/// only list nodes, `all` may everything. `RUN` is the run of team `a`.
const TABLE: &[(&str, [u16; 5])] = &[
    ("about", [200; 5]),
    ("jobs", [200; 5]),
    ("jobs/team-a/job-a", [200, 404, 200, 404, 200]),
    ("runs/RUN/strip", [200, 404, 200, 404, 200]),
    ("runs/RUN/ledger", [200, 404, 200, 404, 200]),
    ("runs/RUN/verdicts", [200, 404, 200, 404, 200]),
    ("runs/RUN/seats", [200, 404, 200, 404, 200]),
    ("runs/RUN/series", [200, 404, 200, 404, 200]),
    ("runs/RUN/logs", [200, 404, 404, 404, 200]),
    ("runs/RUN/logs/folded", [200, 404, 404, 404, 200]),
    ("runs/RUN/events", [200, 404, 200, 404, 200]),
    ("runs/RUN/checkpoints", [200, 404, 200, 404, 200]),
    ("runs/RUN/spec", [200, 404, 200, 404, 200]),
    ("runs/RUN/trace.json", [200, 404, 200, 404, 200]),
    ("failures", [200; 5]),
    ("nodes", [404, 404, 404, 200, 200]),
    ("queue", [200; 5]),
    // Whoever is known; what he learns is asked in a test of its own.
    ("stream", [200; 5]),
    ("login", [405; 5]),
];
const USERS: [&str; 5] = ["a", "b", "list", "nodes", "all"];

/// The paths that the reference names, as the table writes them.
fn documented() -> Vec<String> {
    let text = include_str!("../../../../docs/reference/dashboard-api.md");
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("| path |"))
        .skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let paths = rows.map(|row| {
        let path = row.split('`').nth(1).expect("a path");
        path.replace("NAMESPACE", "team-a")
            .replace("NAME", "job-a")
            .replace("ID", "RUN")
    });
    paths.collect()
}

#[test]
fn every_path_is_answered_as_each_may_see() {
    let api = two_teams();
    let served = Served::start(&api, &[]);
    served.until_jobs("all", 2);
    let table: Vec<&str> = TABLE.iter().map(|(path, _)| *path).collect();
    assert_eq!(
        documented(),
        table,
        "a path of the API is missing in the table of this test"
    );
    for (path, wanted) in TABLE {
        let of = |uid: &str| path.replace("RUN", uid);
        for (user, want) in USERS.into_iter().zip(wanted) {
            if *path == "stream" {
                continue;
            }
            let answer = served.get(user, &of("uid-job-a"));
            assert_eq!(answer.status, *want, "{user} {path}: {answer:?}");
            let text = answer.body.clone();
            // Nobody finds anything of the other team.
            let hidden: &[&str] = match user {
                "a" | "list" => &["team-b", "job-b", "gpu-b", "gpu-a"],
                "b" => &["gpu-a", "gpu-b"],
                "nodes" => &["team-", "job-b"],
                _ => &[],
            };
            for word in hidden {
                // What was asked for is repeated.
                let is_asked = path.contains(word);
                assert!(
                    is_asked || !text.contains(word),
                    "{user} {path} has {word}: {text}"
                );
            }
        }
        // A job that is not there, and one that may not be seen.
        if path.contains("RUN") {
            let of_nobody = served.get("b", &of("uid-nobody"));
            let of_a = served.get("b", &of("uid-job-a"));
            let same = of_a.body.replace("uid-job-a", "uid-nobody");
            assert_eq!(
                (of_a.status, same),
                (of_nobody.status, of_nobody.body),
                "{path}"
            );
        }
        for (token, want) in [
            (None, 401),
            (Some("Bearer nobodys"), 401),
            (Some("Basic token-a"), 401),
        ] {
            let fields: Vec<_> = token
                .map(|token| ("Authorization", token))
                .into_iter()
                .collect();
            let answer = served.send(&format!("/api/v1/{}", of("uid-job-a")), &fields);
            let want = if *path == "login" { 405 } else { want };
            assert_eq!(answer.status, want, "{token:?} {path}: {answer:?}");
        }
    }
    let hidden = served
        .get("b", "jobs/team-a/job-a")
        .body
        .replace("job-a", "none");
    let missing = served.get("b", "jobs/team-a/none").body;
    assert_eq!(hidden, missing);
    let other = served
        .get("b", "jobs/none/job-a")
        .body
        .replace("`none`", "`team-a`");
    assert_eq!(hidden, other.replace("job-a", "none"));
    // The page holds no data, and needs no token.
    assert_eq!(served.send("/", &[]).status, 200);
}

#[test]
fn lists_count_and_find_only_what_may_be_seen() {
    let api = two_teams();
    let served = Served::start(&api, &[]);
    served.until_jobs("all", 2);
    let jobs = served.get("a", "jobs").json();
    assert_eq!(
        (&jobs["total"], jobs["rows"].as_array().map(Vec::len)),
        (&json!(1), Some(1))
    );
    let sum: u64 = jobs["counts"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(_, it)| it.as_u64())
        .sum();
    assert_eq!(sum, 1, "{jobs}");
    for query in ["q=job-b", "namespace=team-b", "q=team-b"] {
        assert_eq!(
            served.get("a", &format!("jobs?{query}")).json()["total"],
            0,
            "{query}"
        );
    }
    assert_eq!(served.get("a", "queue").json()["rows"], json!([]));
    let nodes = served.get("nodes", "nodes").json().to_string();
    assert!(
        nodes.contains("gpu-a") && nodes.contains("another team's gang"),
        "{nodes}"
    );
    let seats = served.get("a", "runs/uid-job-a/seats").json().to_string();
    assert!(seats.contains("hidden-node-"), "{seats}");
    // What changes elsewhere changes no answer, not even its ETag.
    let paths = ["jobs", "queue", "failures"];
    let tags = || paths.map(|path| served.get("a", path).tag());
    let before = tags();
    api.put(
        "/apis/kubeflow.org/v1/pytorchjobs",
        &job("team-b", "job-b2"),
    );
    served.until_jobs("all", 3);
    assert_eq!(tags(), before);
    api.put(
        "/apis/kubeflow.org/v1/pytorchjobs",
        &job("team-a", "job-a2"),
    );
    served.until_jobs("a", 2);
    assert_ne!(tags()[0], before[0]);
}

#[test]
fn logs_are_read_with_the_token_of_whoever_asks() {
    let api = two_teams();
    let served = Served::start(
        &api,
        &["--trusted-proxy-header", "X-Forwarded-Access-Token"],
    );
    served.until_jobs("all", 2);
    for path in ["logs", "logs/folded"] {
        let answer = served.get("a", &format!("runs/uid-job-a/{path}"));
        assert!(answer.body.contains("line of job-a"), "{answer:?}");
    }
    let read = api.calls("/log");
    assert!(
        read.len() >= 2 && read.iter().all(|call| call.ends_with("Bearer token-a")),
        "{read:?}"
    );
    assert!(
        api.calls("/pytorchjobs")
            .iter()
            .all(|call| call.ends_with("the-dashboards-own"))
    );
    // The same token from a proxy; two of them are none.
    let header = "X-Forwarded-Access-Token";
    let jobs = "/api/v1/jobs";
    assert_eq!(served.send(jobs, &[(header, "token-a")]).json()["total"], 1);
    assert_eq!(
        served
            .send(jobs, &[(header, "token-a"), (header, "token-all")])
            .status,
        401
    );
    let mixed = [(header, "token-a"), ("Authorization", "Bearer token-all")];
    assert_eq!(served.send(jobs, &mixed).json()["total"], 1);
    // Reviews are kept: a page of requests is one.
    let reviews = api.calls("tokenreviews").len();
    assert!(reviews <= 3, "{reviews}");
    assert!(
        !api.calls("")
            .iter()
            .any(|call| call.contains("impersonate"))
    );
}

#[test]
fn nobody_is_let_in_while_nothing_is_reviewed() {
    let api = two_teams();
    let served = Served::start(&api, &[]);
    served.until_jobs("all", 2);
    api.fail_reviews();
    for path in [
        "jobs",
        "jobs/team-a/job-a",
        "runs/uid-job-a/ledger",
        "nodes",
        "stream",
    ] {
        let answer = served.get("a", path);
        assert_eq!(answer.status, 503, "{path}: {answer:?}");
        let message = answer.json()["error"]["message"].to_string();
        assert!(message.contains("did not review the token"), "{message}");
    }
}

#[test]
fn a_stream_tells_of_nobody_elses_jobs() {
    let api = two_teams();
    let served = Served::start(&api, &[]);
    served.until_jobs("all", 2);
    // Somebody looks at both, so that changes of both are published.
    for run in ["uid-job-a", "uid-job-b"] {
        assert_eq!(served.get("all", &format!("runs/{run}/ledger")).status, 200);
    }
    let open = |user: &str| {
        let bearer = format!("Bearer token-{user}");
        let path = "/api/v1/stream?topics=jobs,queue,nodes,run:uid-job-a,run:uid-job-b";
        (
            served.open(path, &[("Authorization", &bearer)]),
            String::new(),
        )
    };
    let until = |(stream, text): &mut (TcpStream, String), word: &str| {
        let mut buffer = [0; 4096];
        while !text.contains(word) {
            let count = stream.read(&mut buffer).expect("it goes on");
            assert!(count > 0, "the stream ended without {word}: {text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    let (mut all, mut own) = (open("all"), open("a"));
    until(&mut all, "event: hello");
    until(&mut own, "event: hello");
    let changed = |name: &str| {
        let mut job = job(&name.replace("job-", "team-"), name);
        job["metadata"]["labels"] = json!({"changed": "yes"});
        api.put("/apis/kubeflow.org/v1/pytorchjobs", &job);
    };
    changed("job-b");
    until(&mut all, "uid-job-b");
    changed("job-a");
    until(&mut own, "uid-job-a");
    assert!(
        !own.1.contains("uid-job-b") && !own.1.contains("id: "),
        "{}",
        own.1
    );
}

#[test]
fn a_forwarded_port_needs_no_token() {
    let api = two_teams();
    let served = Served::start(&api, &["--auth", "port-forward"]);
    let jobs = "/api/v1/jobs";
    let end = Instant::now() + WITHIN;
    while served.send(jobs, &[]).status != 200 || served.send(jobs, &[]).json()["total"] != 2 {
        assert!(Instant::now() < end, "{:?}", served.send(jobs, &[]));
        thread::sleep(Duration::from_millis(20));
    }
    for (host, want) in [
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("evil.example", 421),
    ] {
        assert_eq!(served.send(jobs, &[("Host", host)]).status, want, "{host}");
    }
    let foreign = [("Sec-Fetch-Site", "cross-site")];
    assert_eq!(served.send(jobs, &foreign).status, 403);
    let log = served.send("/api/v1/runs/uid-job-a/logs", &[]);
    assert!(log.body.contains("line of job-a"), "{log:?}");
    assert!(
        api.calls("/log")
            .iter()
            .all(|call| call.ends_with("the-dashboards-own"))
    );
    assert!(api.calls("reviews").is_empty());
    let refused = Call::new(&[
        "dashboard",
        "--in-cluster",
        "--auth",
        "port-forward",
        "--bind",
        "0.0.0.0:0",
    ])
    .run();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("--auth port-forward"),
        "{refused:?}"
    );
}
