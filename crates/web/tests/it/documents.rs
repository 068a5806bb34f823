//! Documents and error documents.

use super::{pages::unzipped, *};

#[tokio::test]
async fn documents_are_tagged_and_compressed() {
    let served = start().await;
    let plain = served.get("/api/v1/jobs?limit=7", &[]).await;
    assert_eq!(plain.json()["limit"], 7);
    assert_eq!(
        plain.header("content-type"),
        "application/json; charset=utf-8"
    );
    assert_eq!(plain.header("cache-control"), "private, no-cache");
    assert_eq!(plain.header("content-encoding"), "");
    let tag = plain.header("etag");
    let gzip = served
        .get("/api/v1/jobs?limit=7", &[("accept-encoding", "gzip")])
        .await;
    assert_eq!(gzip.header("content-encoding"), "gzip");
    assert_eq!(gzip.header("vary"), "accept-encoding");
    assert_eq!(gzip.header("etag"), tag);
    assert!(gzip.body.len() < plain.body.len() / 4);
    assert_eq!(unzipped(&gzip.body), plain.body);

    let known = served
        .get("/api/v1/jobs?limit=7", &[("if-none-match", tag)])
        .await;
    assert_eq!((known.status, known.body.len()), (304, 0));
    let other = served
        .get("/api/v1/jobs?limit=8", &[("if-none-match", tag)])
        .await;
    assert_eq!(other.status, 200);
    // A small document is not worth it.
    let small = served
        .get("/api/v1/about", &[("accept-encoding", "gzip")])
        .await;
    assert_eq!(
        (
            small.header("content-encoding"),
            small.json()["version"].as_u64()
        ),
        ("", Some(1))
    );
}

#[tokio::test]
async fn a_trace_is_a_file() {
    let served = start().await;
    let answer = served.get("/api/v1/runs/r-1/trace.json", &[]).await;
    let want = "attachment; filename=\"r-1.trace.json\"";
    assert_eq!(answer.header("content-disposition"), want);
}

#[tokio::test]
async fn problems_are_error_documents() {
    let served = start().await;
    let long = format!("/api/v1/jobs?q={}", "x".repeat(9000));
    let cases = [
        ("/api/v1/nodes", 404, "notHere"),
        ("/api/v1/nothing", 404, "notFound"),
        ("/api/v2/jobs", 404, "notFound"),
        ("/api/v1/jobs?stat=x", 400, "badRequest"),
        ("/api/v1/runs/r/ledger", 500, "internal"),
        (long.as_str(), 400, "badRequest"),
    ];
    for (path, status, code) in cases {
        let answer = served.get(path, &[]).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (status, code),
            "{path}"
        );
        assert_eq!(answer.header("cache-control"), "no-store");
    }
    // After a panic, others are answered.
    assert_eq!(served.get("/api/v1/about", &[]).await.status, 200);
}

#[tokio::test]
async fn one_connection_is_used_again() {
    let served = start().await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let request = format!(
        "GET /api/v1/about HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\n\r\n",
        served.address
    );
    for _ in 0..3 {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut found = Vec::new();
        while !found.ends_with(br#"{"version":1}"#) {
            let read = timeout(PATIENCE, stream.read_buf(&mut found)).await;
            assert!(read.unwrap().unwrap() > 0);
        }
        assert_eq!(parsed(&found).status, 200);
    }
}
