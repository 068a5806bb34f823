//! Real servers on loopback, asked by a client of a few lines.

mod refusals;
mod streams;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::{HeaderName, HeaderValue, StatusCode, header};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    Bind, Bounds, Intake, Phase, Reply, ReplyRules, Request, Room, Server, Size, Traffic, channel,
    serve,
};

const LOOPBACK: Bind = Bind::At {
    host: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    port: 0,
};
const PATIENCE: Duration = Duration::from_mins(1);
const BOUNDS: Bounds = Bounds {
    size: Size {
        connections: 8,
        bytes: 1 << 20,
        free_bytes: 1024,
        bytes_a_second: 100_000_000,
    },
    first: Duration::from_secs(30),
    idle: Duration::from_secs(30),
    body: Duration::from_secs(30),
    request: Duration::from_secs(30),
    answer: Duration::from_secs(30),
};

fn start(server: Server) -> SocketAddr {
    let listener = LOOPBACK.listen().unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, server));
    address
}

/// A server that answers with `answer`, and refuses as a caller with its own words does.
fn server(answer: impl Fn(Request) -> Reply + Send + Sync + 'static) -> Server {
    let nosniff = HeaderValue::from_static("nosniff");
    Server {
        name: "test",
        bounds: BOUNDS,
        tls: None,
        admit: Arc::new(|_| {
            Ok(Intake {
                bytes: 16,
                values: None,
            })
        }),
        answer: Arc::new(move |request| Box::pin(std::future::ready(answer(request)))),
        rules: ReplyRules {
            headers: vec![(header::X_CONTENT_TYPE_OPTIONS, nosniff)],
            refusal: Some(Arc::new(|status, sentence| {
                Reply::new(status, "application/json", format!("{{{sentence}}}").into())
            })),
        },
        traffic: Traffic::default(),
    }
}

async fn connect(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Sends a request and reads until the server closes the connection.
async fn ask(address: SocketAddr, request: &str) -> String {
    rest(&mut connect(address, request).await).await
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    drop(read.expect("the server closes the connection"));
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads until `text` has arrived.
async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut found = String::new();
    let mut buffer = [0; 4096];
    while !found.contains(text) {
        let read = timeout(PATIENCE, stream.read(&mut buffer)).await;
        let read = read.expect("the text arrives").unwrap();
        assert!(read > 0, "the connection ended: {found}");
        found.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    found
}

/// Polls until a condition holds that has no event.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let waited = timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test]
async fn query_and_headers_reach_the_answer() {
    let name = HeaderName::from_static("x-test");
    let address = start(server(move |request| {
        let header = request.headers.one(&name).unwrap().unwrap_or("-");
        let query = request.query.as_deref().unwrap_or("-");
        let text = format!("{} {} {query} {header}", request.method, request.path);
        Reply::text(StatusCode::OK, text).with(header::ETAG, HeaderValue::from_static("\"e\""))
    }));
    let head = "host: test\r\nconnection: close\r\nx-test: v\r\n\r\n";
    let answer = ask(address, &format!("GET /a?b=c&d HTTP/1.1\r\n{head}")).await;
    assert!(answer.contains("GET /a b=c&d v\n"), "{answer}");
    assert!(answer.contains("etag: \"e\"\r\n"), "{answer}");
    let fields = "x-content-type-options: nosniff\r\n";
    assert!(answer.contains(fields), "{answer}");
    // Of a HEAD all but the body is sent.
    let answer = ask(address, &format!("HEAD /a HTTP/1.1\r\n{head}")).await;
    assert!(answer.contains("content-length: 12\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn the_host_is_named_once() {
    let mut server = server(|_| Reply::text(StatusCode::OK, ""));
    server.admit = Arc::new(|head| {
        let host = head.host.as_deref().unwrap_or("none");
        Err(Reply::text(StatusCode::OK, format!("host {host}")))
    });
    let address = start(server);
    let cases = [
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", "host a\n"),
        ("GET http://a/ HTTP/1.1\r\nhost: a\r\n\r\n", "host a\n"),
        ("GET http://b/ HTTP/1.1\r\nhost: a\r\n\r\n", "host none\n"),
        (
            "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
            "host none\n",
        ),
        ("GET / HTTP/1.0\r\n\r\n", "host none\n"),
    ];
    for (request, want) in cases {
        let answer = ask(address, request).await;
        assert!(answer.ends_with(want), "{request} {answer}");
    }
}
