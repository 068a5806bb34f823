//! What clients that mean harm can do, and what honest ones see of it.

use std::time::Instant;

use futures::future::join_all;

use super::*;

const VALIDATE: &str = "/validate-kubeflow-org-v1-pytorchjob";
const SVC: &str = "trainyard.test.svc";

fn certificate() -> (Arc<Certificate>, Bundle) {
    let certificate = Arc::new(Certificate::default());
    let bundle = issue_for_test(&[SVC.to_owned()]);
    certificate.take_for_test(bundle.clone());
    (certificate, bundle)
}

/// A review that a user's `kubectl apply` causes.
fn honest() -> Vec<u8> {
    let object = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "j", "namespace": "n"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "OnFailure",
            "template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}}}}});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "operation": "CREATE", "object": object}});
    review.to_string().into_bytes()
}

async fn post(address: SocketAddr, bundle: &Bundle, path: &str, body: &[u8]) -> (u16, String) {
    let stream = handshake(address, bundle).await.unwrap();
    exchange(stream, "POST", path, body).await
}

/// Honest reviews are answered, and at least half of them in less than a second; a machine with much else to do may hold up one.
async fn assert_answered(address: SocketAddr, bundle: &Bundle) {
    let mut times = Vec::new();
    for _ in 0..9 {
        let began = Instant::now();
        let (status, answer) = post(address, bundle, VALIDATE, &honest()).await;
        times.push(began.elapsed());
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(status, 200);
        assert_eq!(answer["response"]["allowed"], true, "{answer}");
    }
    times.sort();
    assert!(times[4] < Duration::from_secs(1), "{times:?}");
}

#[tokio::test]
async fn idle_tls_connections_keep_nobody_out() {
    let (certificate, bundle) = certificate();
    let server = webhooks(&certificate);
    let traffic = server.traffic.clone();
    let address = start(server);
    // More than fit, none of which ever asks; the first ones are closed for the last ones.
    let connections = webhook::BOUNDS.size.connections;
    let mut idle = Vec::new();
    for _ in 0..6 {
        let some = (0..connections / 4).map(|_| handshake(address, &bundle));
        idle.extend(join_all(some).await.into_iter().flatten());
    }
    assert!(idle.len() > connections, "{}", idle.len());
    assert_answered(address, &bundle).await;
    assert!(traffic.closed_so_far(webhook::NAME, "room") > 0);
}

#[tokio::test]
async fn idle_handshakes_block_no_client() {
    let (certificate, bundle) = certificate();
    let address = start(webhooks(&certificate));
    let silent = (0..webhook::BOUNDS.size.connections + 50).map(|_| TcpStream::connect(address));
    let silent: Vec<TcpStream> = join_all(silent).await.into_iter().flatten().collect();
    assert!(silent.len() > webhook::BOUNDS.size.connections);
    assert_answered(address, &bundle).await;
}

#[tokio::test]
async fn silent_connections_do_not_fail_the_probe() {
    let mut server = plain(health::health(operator(), None));
    server.bounds.first = PATIENCE;
    let address = start(server);
    let silent = (0..health::BOUNDS.size.connections * 2).map(|_| TcpStream::connect(address));
    let silent: Vec<TcpStream> = join_all(silent).await.into_iter().flatten().collect();
    assert_eq!(silent.len(), health::BOUNDS.size.connections * 2);
    // Before the first of them is closed for its silence.
    let answer = timeout(PATIENCE / 2, ask(address, "GET", "/healthz", b"")).await;
    assert_eq!(answer, Ok((200, "ok\n".to_owned())));
}

#[tokio::test]
async fn whoever_is_silent_is_closed() {
    let mut server = echo(0);
    server.bounds.first = Duration::from_millis(20);
    let traffic = server.traffic.clone();
    let address = start(server);
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
    ends(TcpStream::connect(address).await.unwrap()).await;
    ends(half).await;
    assert_eq!(traffic.closed_so_far("test", "silent"), 2);
}

#[tokio::test]
async fn an_idle_connection_stays_until_its_time() {
    let mut server = echo(0);
    // A machine with much else to do may not run this thread for a while between the connection and its request.
    server.bounds.first = Duration::from_secs(1);
    server.bounds.idle = Duration::from_millis(1_500);
    let traffic = server.traffic.clone();
    let address = start(server);
    let mut stream = TcpStream::connect(address).await.unwrap();
    let began = Instant::now();
    let request = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    drop(
        timeout(PATIENCE, stream.read_to_end(&mut answer))
            .await
            .unwrap(),
    );
    assert!(began.elapsed() >= Duration::from_millis(1_500));
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    assert_eq!(traffic.closed_so_far("test", "idle"), 1);
}

#[tokio::test]
async fn a_large_body_is_refused() {
    let server = echo(1000);
    let traffic = server.traffic.clone();
    let address = start(server);
    assert_eq!(
        ask(address, "POST", "/", &[b'a'; 1000]).await,
        (200, "1000\n".to_owned())
    );
    let want = (
        413,
        "the body has more than 1000 bytes, the maximum\n".to_owned(),
    );
    assert_eq!(ask(address, "POST", "/", &[b'a'; 1001]).await, want);
    // One that is announced is refused before it comes.
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 1000000000\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // One whose size nobody announced is refused when it is too large.
    let mut stream = TcpStream::connect(address).await.unwrap();
    let chunk = format!("400\r\n{}\r\n", "a".repeat(0x400));
    let head = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(chunk.as_bytes()).await.unwrap();
    let mut answer = String::new();
    drop(
        timeout(PATIENCE, stream.read_to_string(&mut answer))
            .await
            .unwrap(),
    );
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(traffic.refused_so_far("test", "too_large"), 3);
}

#[tokio::test]
async fn a_slow_body_is_refused() {
    let mut server = echo(1000);
    server.bounds.body = Duration::from_millis(30);
    let traffic = server.traffic.clone();
    let address = start(server);
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\na";
    stream.write_all(head).await.unwrap();
    let mut answer = String::new();
    drop(
        timeout(PATIENCE, stream.read_to_string(&mut answer))
            .await
            .unwrap(),
    );
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(
        answer.ends_with("the body did not arrive within 30ms\n"),
        "{answer}"
    );
    assert_eq!(traffic.refused_so_far("test", "too_slow"), 1);
}

#[tokio::test]
async fn bodies_share_one_budget() {
    let mut server = echo(5000);
    server.bounds.size.bytes = 2000;
    server.bounds.size.free_bytes = 100;
    let traffic = server.traffic.clone();
    let address = start(server);
    let (status, answer) = ask(address, "POST", "/", &[b'a'; 3000]).await;
    assert_eq!(status, 503);
    assert_eq!(
        answer,
        "requests in progress hold 2000 bytes, the maximum; retry later\n"
    );
    assert_eq!(traffic.refused_so_far("test", "no_room"), 1);
    // Whoever sends slowly makes room for who sends at all.
    let mut slow = TcpStream::connect(address).await.unwrap();
    let head = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2000\r\n\r\n";
    slow.write_all(head).await.unwrap();
    slow.write_all(&[b'a'; 1900]).await.unwrap();
    // Charged once it has been read; a small request is answered meanwhile, and takes nothing from anybody.
    assert_eq!(ask(address, "POST", "/", &[b'a'; 100]).await.0, 200);
    assert_eq!(traffic.closed_so_far("test", "room"), 0);
    assert_eq!(ask(address, "POST", "/", &[b'a'; 2000]).await.0, 200);
    ends(slow).await;
    assert_eq!(traffic.closed_so_far("test", "room"), 1);
}

#[tokio::test]
async fn body_with_too_many_values_is_refused_unparsed() {
    let (certificate, bundle) = certificate();
    let server = webhooks(&certificate);
    let traffic = server.traffic.clone();
    let address = start(server);
    let hostile = |piece: &str, bytes: usize, before: &str| {
        let mut body = before.to_owned();
        body.push_str(&piece.repeat((bytes - before.len()) / piece.len()));
        body.into_bytes()
    };
    let review = r#"{"request":{"uid":"u","operation":"CREATE","object":{"spec":{"x":["#;
    let page = r#"{"request":{"uid":"u","desiredAPIVersion":"kubeflow.org/v1","objects":[["#;
    let mebibytes = 1024 * 1024;
    let cases = [
        (VALIDATE, hostile("[],", 3 * mebibytes, review)),
        (VALIDATE, hostile("[0],", 3 * mebibytes, review)),
        (VALIDATE, hostile(r#"{"":0},"#, 3 * mebibytes, review)),
        (webhook::DEFAULT_PATH, hostile("0,", 3 * mebibytes, review)),
        ("/convert", hostile("[],", 16 * mebibytes, page)),
    ];
    for (count, (path, body)) in (1..).zip(cases) {
        let (status, answer) = post(address, &bundle, path, &body).await;
        assert_eq!(status, 413, "{path} {answer}");
        assert!(answer.contains("values, the maximum"), "{answer}");
        let refused = traffic.refused_so_far(webhook::NAME, "too_many_values");
        assert_eq!(refused, count, "{path}");
    }
    assert_answered(address, &bundle).await;
}

#[tokio::test]
async fn whoever_does_not_read_the_answer_is_closed() {
    let mut server = echo(0);
    server.bounds.answer = Duration::from_millis(30);
    server.bounds.size.bytes = 1 << 30;
    server.answer =
        Arc::new(|_| Box::pin(async { Reply::text(StatusCode::OK, "a".repeat(64 * 1024 * 1024)) }));
    let traffic = server.traffic.clone();
    let address = start(server);
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    stream.write_all(request).await.unwrap();
    until("the connection was not closed", || {
        traffic.closed_so_far("test", "slow_reader") == 1
    })
    .await;
}
