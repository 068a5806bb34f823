//! The dashboard over real connections, with a function that answers from memory.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "functions of tests, not of the program"
)]

mod documents;
mod pages;
mod streams;
mod who;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use trainyard_web::{
    Ask, Dashboard, Document, Hub, Options, Problem, ProblemCode, Question, RunPart, Token,
    local_hosts, serve,
};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const PATIENCE: Duration = Duration::from_mins(2);

/// A dashboard that is being served.
struct Served {
    address: SocketAddr,
    dashboard: Dashboard,
    hub: Arc<Hub>,
    serving: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Answers from memory.
fn fake() -> Ask {
    Arc::new(|question, _| {
        Box::pin(async move {
            match question {
                Question::About => Ok(Document::json(br#"{"version":1}"#.to_vec())),
                Question::Jobs(jobs) => {
                    let rows = vec!["row"; 1000];
                    let json = serde_json::json!({"version": 1, "limit": jobs.limit, "rows": rows});
                    Ok(Document::json(json.to_string().into_bytes()))
                }
                Question::Run { run, part } => match part {
                    RunPart::Trace => Ok(Document {
                        json: b"[]".to_vec(),
                        file_name: Some(format!("{run}.trace.json")),
                    }),
                    RunPart::Ledger => panic!("a defect"),
                    part => {
                        let json = serde_json::json!({"run": run, "part": format!("{part:?}")});
                        Ok(Document::json(json.to_string().into_bytes()))
                    }
                },
                _ => Err(Problem {
                    code: ProblemCode::NotHere,
                    message: "not on this machine".to_owned(),
                    hint: "use `--cluster`".to_owned(),
                }),
            }
        })
    })
}

async fn start() -> Served {
    start_with(Options::default()).await
}

/// Serves a dashboard on loopback, under the names of its port.
async fn start_with(mut options: Options) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    options.hosts = local_hosts(address.port());
    let (hub, token) = (Arc::new(Hub::new()), Token::parse(TOKEN).unwrap());
    let dashboard = Dashboard::new(fake(), Arc::clone(&hub), token, options).unwrap();
    Served {
        address,
        dashboard: dashboard.clone(),
        hub,
        serving: tokio::spawn(serve(listener, dashboard)),
    }
}

/// An answer, read to its end.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", self.text()))
    }

    /// The code of its error document.
    fn code(&self) -> String {
        let document = self.json();
        assert_eq!(document["version"], 1);
        for key in ["message", "hint"] {
            assert!(
                !document["error"][key].as_str().unwrap().is_empty(),
                "{document}"
            );
        }
        document["error"]["code"].as_str().unwrap().to_owned()
    }
}

impl Served {
    /// Sends bytes, and reads until the connection is closed. Every answer has the headers that keep a page safe.
    async fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        drop(stream.write_all(bytes).await);
        let mut found = Vec::new();
        let read = timeout(PATIENCE, stream.read_to_end(&mut found)).await;
        drop(read.expect("the server closes the connection"));
        let answer = parsed(&found);
        assert_safe(&answer);
        answer
    }

    /// Sends a request with these header fields, and no others but the host.
    async fn send(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !fields.iter().any(|(name, _)| *name == "host") {
            head.extend(["host: ", &self.address.to_string(), "\r\n"]);
        }
        for (name, value) in fields {
            head.extend([name, ": ", value, "\r\n"]);
        }
        self.raw(format!("{head}\r\n").as_bytes()).await
    }

    /// Asks with the token.
    async fn get(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let bearer = format!("Bearer {TOKEN}");
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend_from_slice(fields);
        self.send("GET", path, &all).await
    }
}

fn parsed(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no head: {}", String::from_utf8_lossy(bytes)));
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let (status, fields) = head.split_once("\r\n").unwrap();
    let mut headers = BTreeMap::new();
    for field in fields.split("\r\n") {
        let (name, value) = field.split_once(": ").unwrap();
        let before = headers.insert(name.to_owned(), value.to_owned());
        assert!(before.is_none(), "`{name}` is there twice");
    }
    Answer {
        status: status.split(' ').nth(1).unwrap().parse().unwrap(),
        headers,
        body: bytes[end + 4..].to_vec(),
    }
}

fn assert_safe(answer: &Answer) {
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
        connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
        require-trusted-types-for 'script'";
    let wanted = [
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ];
    for (name, value) in wanted {
        assert_eq!(answer.header(name), value, "{answer:?}");
    }
    for name in ["access-control-allow-origin", "set-cookie"] {
        assert_eq!(answer.header(name), "", "{answer:?}");
    }
}
