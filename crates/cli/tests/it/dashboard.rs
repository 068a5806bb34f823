//! `trainyard dashboard`, asked over its own connection while jobs run beside it.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::{
    call::Call,
    run::{job, run},
};

/// How long a change may take until a page shows it; the goal of a second is for a machine that does nothing else.
const SHOWN_WITHIN: Duration = Duration::from_secs(30);

/// A dashboard that runs.
struct Served {
    child: Child,
    host: String,
    token: String,
}

impl Served {
    fn start(call: &Call) -> Self {
        let mut child = call
            .command()
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh can be started");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut text = String::new();
        // The object ends with the first line that begins with `}`.
        for line in BufReader::new(stdout).lines() {
            let line = line.expect("stdout is UTF-8");
            text.push_str(&line);
            if line.starts_with('}') {
                break;
            }
        }
        let address: Value = serde_json::from_str(&text).expect("JSON");
        let word = |name: &str| address[name].as_str().unwrap_or_default().to_owned();
        let url = word("url");
        let host = url.trim_start_matches("http://").trim_end_matches('/');
        Self {
            child,
            host: host.to_owned(),
            token: word("token"),
        }
    }

    /// Sends a request; the status and the body.
    fn send(&self, first: &str, host: &str, more: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.host).expect("it listens");
        let request =
            format!("{first} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut reply = String::new();
        stream
            .read_to_string(&mut reply)
            .expect("it answers in UTF-8");
        let status = reply.split(' ').nth(1).and_then(|it| it.parse().ok());
        let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status.expect("a status"), body.to_owned())
    }

    fn authorized(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.token)
    }

    /// A document of the API.
    fn get(&self, path: &str) -> Value {
        let first = format!("GET /api/v1/{path}");
        let (status, body) = self.send(&first, &self.host, &self.authorized());
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).expect("JSON")
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process");
        kill(Pid::from_raw(pid), signal).expect("it runs");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_failed_run_is_shown_as_status_has_it() {
    let call = run(&["-q"], &job(2, "echo step 1; echo boom >&2; exit 3"));
    assert_eq!(call.run().code, Some(1));
    let served = Served::start(&call.again(&["dashboard", "--format", "json"]));
    let jobs = served.get("jobs");
    assert_eq!(jobs["total"], 1, "{jobs}");
    let row = &jobs["rows"][0];
    assert_eq!(
        (&row["job"], &row["state"]),
        (&"j".into(), &"failed".into()),
        "{row}"
    );
    let job = served.get("jobs/default/j");
    let status = call.again(&["status", "j", "--format", "json"]).run();
    let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
    assert_eq!(job["status"]["ledger"], status["ledger"], "{job}");
    let id = row["id"].as_str().expect("an id");
    let ledger = served.get(&format!("runs/{id}/ledger"));
    for phase in ledger["phases"].as_array().expect("phases") {
        let name = phase["phase"].as_str().expect("a name");
        let millis = status["ledger"].get(name).cloned().unwrap_or(0.into());
        assert_eq!(phase["millis"], millis, "{ledger} {status}");
    }
    let folded = served.get(&format!("runs/{id}/logs/folded"));
    assert!(folded.to_string().contains("boom"), "{folded}");
    let logs = served.get(&format!("runs/{id}/logs"));
    assert!(logs.to_string().contains("step 1"), "{logs}");
}

#[test]
fn data_needs_the_token_and_the_right_host() {
    let call = Call::new(&["dashboard", "--format", "json"]);
    let served = Served::start(&call);
    let (host, token) = (served.host.clone(), served.authorized());
    let jobs = "GET /api/v1/jobs";
    let foreign = format!("{token}Sec-Fetch-Site: cross-site\r\n");
    let cases = [
        (jobs, host.as_str(), "", 401),
        (jobs, &host, "Authorization: Bearer wrong\r\n", 401),
        (jobs, &host, &token, 200),
        (jobs, "attacker.example", &token, 421),
        (jobs, &host, &foreign, 403),
        ("POST /api/v1/jobs", &host, &token, 405),
        ("DELETE /api/v1/jobs", &host, &token, 405),
        ("GET /api/v1/jobs?sate=failed", &host, &token, 400),
        ("GET /api/v1/runs/..%2f..%2fetc/spec", &host, &token, 400),
        ("GET /", &host, "", 200),
    ];
    for (first, host, more, want) in cases {
        let (status, body) = served.send(first, host, more);
        assert_eq!(status, want, "{first} {host} {more}: {body}");
        let is_page = first == "GET /";
        assert!(is_page || !body.contains(&served.token), "{first}: {body}");
    }
}

#[test]
fn a_signal_ends_it_well() {
    let call = Call::new(&["dashboard", "--format", "json"]);
    let mut served = Served::start(&call);
    served.signal(Signal::SIGTERM);
    let ended = served.child.wait().expect("it ends");
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn other_addresses_need_a_secret_token() {
    let open = Call::new(&["dashboard", "--bind", "0.0.0.0:0"]).run();
    assert_eq!(open.code, Some(2), "{}", open.stderr);
    assert!(open.stderr.contains("--token-file"), "{}", open.stderr);
    let words = ["dashboard", "--token-file", "token"];
    let call = Call::new(&words).file("token", "0123456789abcdef0123456789abcdef\n");
    let token = call.folder().join("token");
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o644)).expect("it is ours");
    let shared = call.run();
    assert_eq!(shared.code, Some(2), "{}", shared.stderr);
    assert!(shared.stderr.contains("mode 644"), "{}", shared.stderr);
    let short = Call::new(&words).file("token", "short");
    let path = short.folder().join("token");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("it is ours");
    let short = short.run();
    assert_eq!(short.code, Some(2), "{}", short.stderr);
    assert!(!short.stderr.contains("`short`"), "{}", short.stderr);
}

#[test]
fn a_stream_shows_a_run_that_begins() {
    let call = run(&["-q"], &job(1, "echo step 1; echo step 2"));
    let served = Served::start(&call.again(&["dashboard", "--format", "json"]));
    let mut stream = TcpStream::connect(&served.host).expect("it listens");
    stream
        .set_read_timeout(Some(SHOWN_WITHIN))
        .expect("a limit");
    let request = format!(
        "GET /api/v1/stream?topics=jobs HTTP/1.1\r\nHost: {}\r\n{}\r\n",
        served.host,
        served.authorized()
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(
        lines.any(|line| line == "event: hello"),
        "the stream greets"
    );
    assert_eq!(call.run().code, Some(0));
    let began = Instant::now();
    // Signs of life come all the time, so the limit on a line alone would end nothing.
    let mut lines = lines.take_while(|_| began.elapsed() < SHOWN_WITHIN);
    let shown = lines.find(|line| line.contains("\"state\":\"succeeded\""));
    assert!(shown.is_some(), "no row after {:?}", began.elapsed());
}
