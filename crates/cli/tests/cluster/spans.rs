//! Spans, as a collector receives them.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::Value;

use crate::{job, namespace::on_cluster, operator::May};

/// A collector of OTLP over HTTP that keeps what it is sent.
struct Collector {
    port: u16,
    spans: Arc<Mutex<Vec<Value>>>,
}

impl Collector {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let spans = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&spans);
        // It ends with the tests.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let sent = receive(&stream);
                // Before the answer: who has it may end, and ask for what is kept.
                kept.lock().unwrap().extend(sent);
                answer(&stream);
            }
        });
        Self { port, spans }
    }

    fn spans(&self) -> Vec<Value> {
        self.spans.lock().unwrap().clone()
    }
}

/// Reads one request; the spans that it brought.
fn receive(stream: &TcpStream) -> Vec<Value> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let head = head.to_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(
        head.contains("content-type: application/json\r\n"),
        "{head}"
    );
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let resource = &body["resourceSpans"][0];
    let service = &resource["resource"]["attributes"][0];
    assert_eq!(service["key"], "service.name", "{body:#}");
    assert_eq!(service["value"]["stringValue"], "trainyard", "{body:#}");
    resource["scopeSpans"][0]["spans"]
        .as_array()
        .unwrap()
        .clone()
}

fn answer(mut stream: &TcpStream) {
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    stream.write_all(answer.as_bytes()).unwrap();
}

/// The value of an attribute.
fn attribute<'a>(span: &'a Value, name: &str) -> Option<&'a Value> {
    let attributes = span["attributes"].as_array()?;
    let found = attributes.iter().find(|one| one["key"] == name)?;
    found["value"].as_object()?.values().next()
}

#[test]
fn passes_and_their_calls_are_sent_to_a_collector() {
    on_cluster("spans", |fixture| {
        let collector = Collector::new();
        let endpoint = format!("--otlp-endpoint=http://127.0.0.1:{}", collector.port);
        let operator = fixture.operator_with(May::Act, &["--no-leader-elect", &endpoint]);
        fixture.put(&job("seen"));
        fixture.until_status("seen", |status| status["state"] == "Running");
        // What was not sent yet is sent at the end.
        operator.stop();
        let spans = collector.spans();
        let name = format!("PyTorchJob {}/seen", fixture.namespace);
        let passes: Vec<&Value> = spans
            .iter()
            .filter(|span| attribute(span, "job").is_some_and(|job| *job == name))
            .collect();
        assert!(!passes.is_empty(), "{spans:#?}");
        let calls: Vec<&Value> = spans
            .iter()
            .filter(|span| attribute(span, "verb").is_some_and(|verb| verb == "create"))
            .filter(|span| attribute(span, "resource").is_some_and(|it| it == "pods"))
            .collect();
        assert_eq!(calls.len(), 3, "{calls:#?}");
        for call in calls {
            let pass = passes
                .iter()
                .find(|pass| pass["spanId"] == call["parentSpanId"])
                .unwrap_or_else(|| panic!("no pass made {call:#}"));
            assert_eq!(pass["traceId"], call["traceId"]);
            assert_eq!(attribute(call, "code").unwrap(), "200", "{call:#}");
            let time = |span: &Value, field: &str| -> u128 {
                span[field].as_str().unwrap().parse().unwrap()
            };
            let (began, ended) = ("startTimeUnixNano", "endTimeUnixNano");
            assert!(time(pass, began) <= time(call, began), "{pass:#} {call:#}");
            assert!(time(call, began) <= time(call, ended), "{call:#}");
            assert!(time(call, ended) <= time(pass, ended), "{pass:#} {call:#}");
        }
    });
}
