//! Requests that the server refuses by itself.

use super::*;

/// Whether an answer has the form that the caller gave.
fn assert_ours(answer: &str, status: u16, sentence: &str) {
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "{answer}"
    );
    let field = "x-content-type-options: nosniff\r\n";
    assert!(answer.contains(field), "{answer}");
    assert!(
        answer.contains("content-type: application/json\r\n"),
        "{answer}"
    );
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert!(answer.contains(sentence), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let length = format!("content-length: {}", body.len());
    assert!(head.contains(&length), "{answer}");
}

#[tokio::test]
async fn malformed_requests_get_our_headers() {
    let server = server(|_| Reply::text(StatusCode::OK, "ok"));
    let traffic = server.traffic.clone();
    let address = start(server);
    let parsed = "{the request cannot be parsed as HTTP/1.1}";
    for request in [
        "nonsense\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "G\0T / HTTP/1.1\r\n\r\n",
    ] {
        assert_ours(&ask(address, request).await, 400, parsed);
    }
    let long = format!(
        "GET / HTTP/1.1\r\nhost: test\r\na: {}\r\n\r\n",
        "a".repeat(100_000)
    );
    assert_ours(&ask(address, &long).await, 431, "32768 bytes");
    let fields = "a: b\r\n".repeat(200);
    let many = format!("GET / HTTP/1.1\r\nhost: test\r\n{fields}\r\n");
    assert_ours(&ask(address, &many).await, 431, "100 fields");
    assert_eq!(traffic.refused_so_far("test", "malformed"), 5);

    // On a connection that was answered before, too.
    let mut stream = connect(address, "GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert!(
        read_until(&mut stream, "ok\n")
            .await
            .contains("HTTP/1.1 200")
    );
    stream.write_all(b"nonsense\r\n\r\n").await.unwrap();
    assert_ours(&rest(&mut stream).await, 400, parsed);
}

#[tokio::test]
async fn large_and_slow_bodies_get_our_headers() {
    let mut server = server(|_| Reply::text(StatusCode::OK, ""));
    server.bounds.body = Duration::from_millis(30);
    let address = start(server);
    let head = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length:";
    let answer = ask(address, &format!("{head} 17\r\n\r\n")).await;
    assert_ours(&answer, 413, "more than 16 bytes");
    let answer = ask(address, &format!("{head} 9\r\n\r\na")).await;
    assert_ours(&answer, 408, "did not arrive within 30ms");
}

#[tokio::test]
async fn half_a_request_is_closed() {
    let mut server = server(|_| Reply::text(StatusCode::OK, ""));
    server.bounds.first = Duration::from_millis(30);
    let traffic = server.traffic.clone();
    let address = start(server);
    assert_eq!(ask(address, "GET / HTTP/1.1\r\nhost:").await, "");
    assert_eq!(traffic.closed_so_far("test", "silent"), 1);
}

#[tokio::test]
async fn slow_answers_are_given_up() {
    let mut server = server(|_| Reply::text(StatusCode::OK, ""));
    server.bounds.request = Duration::from_millis(30);
    server.answer = Arc::new(|_| Box::pin(std::future::pending()));
    let address = start(server);
    let answer = ask(address, "GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert_ours(&answer, 408, "not done within 30ms");
}
