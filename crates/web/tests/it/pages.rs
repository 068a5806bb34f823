//! The page, its files, and paths that are none.

use super::*;

#[tokio::test]
async fn the_page_is_served_compressed_and_tagged() {
    let served = start().await;
    let plain = served.send("GET", "/", &[]).await;
    assert_eq!(plain.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(plain.header("cache-control"), "no-cache");
    assert_eq!(plain.header("vary"), "accept-encoding");
    let page = plain.text();
    let script = page
        .split('"')
        .find(|part| part.starts_with("app.js?v="))
        .unwrap();
    let answer = served.send("GET", &format!("/{script}"), &[]).await;
    assert!(
        answer.header("cache-control").contains("immutable"),
        "{answer:?}"
    );
    let other = served.send("GET", "/app.js?v=HASH", &[]).await;
    assert_eq!(other.header("cache-control"), "no-cache");

    let tag = plain.header("etag");
    let again = served.send("GET", "/", &[("if-none-match", tag)]).await;
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert_eq!(again.header("etag"), tag);
    let gzip = served
        .send("GET", "/", &[("accept-encoding", "gzip, br")])
        .await;
    assert_eq!(gzip.header("content-encoding"), "gzip");
    assert_eq!(unzipped(&gzip.body), plain.body);
    assert_eq!(served.send("HEAD", "/", &[]).await.header("etag"), tag);
}

pub(crate) fn unzipped(bytes: &[u8]) -> Vec<u8> {
    use std::io::Read as _;
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut plain)
        .unwrap();
    plain
}

#[tokio::test]
async fn paths_lead_to_no_other_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("app.js"), "1").unwrap();
    std::fs::write(folder.path().join("secret"), "s").unwrap();
    let options = Options {
        assets: Some(folder.path().to_owned()),
        ..Options::default()
    };
    let served = start_with(options).await;
    assert_eq!(served.send("GET", "/app.js", &[]).await.text(), "1");
    let paths = [
        "/secret",
        "/../secret",
        "/./app.js",
        "//app.js",
        "/app.js/..",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/..\\secret",
        "/app.js%00",
        "/assets/app.js",
        "/%61pp.js",
        "/%61pi/v1/jobs",
    ];
    for path in paths {
        let answer = served.send("GET", path, &[]).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (404, "notFound"),
            "{path}"
        );
    }
    for path in [
        "/api/v1/runs/..%2f..%2fx/spec",
        "/api/v1/jobs/%2e%2e/x",
        "/api/v1/runs/.x/spec",
    ] {
        let answer = served.get(path, &[]).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (400, "badRequest"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_base_path_moves_everything() {
    let options = Options {
        base_path: "/ml/yard".to_owned(),
        ..Options::default()
    };
    let served = start_with(options).await;
    for path in ["/ml/yard/", "/ml/yard/app.js", "/ml/yard/api/v1/jobs"] {
        assert_eq!(served.get(path, &[]).await.status, 200, "{path}");
    }
    for path in ["/", "/app.js", "/api/v1/jobs", "/ml/yardx", "/ml"] {
        assert_eq!(served.get(path, &[]).await.status, 404, "{path}");
    }
    assert_eq!(
        served.send("GET", "/ml/yard/api/v1/jobs", &[]).await.status,
        401
    );
    let cases = [
        ("", "/ml/yard/"),
        ("/proxy", "/proxy/ml/yard/"),
        ("//evil.example", "/ml/yard/"),
    ];
    for (prefix, want) in cases {
        let answer = served
            .send("GET", "/ml/yard", &[("x-forwarded-prefix", prefix)])
            .await;
        assert_eq!(
            (answer.status, answer.header("location")),
            (308, want),
            "{prefix}"
        );
    }
}

#[tokio::test]
async fn what_is_malformed_gets_an_error_document() {
    let served = start().await;
    let field = format!(
        "GET / HTTP/1.1\r\nhost: {}\r\nx: {}\r\n\r\n",
        served.address,
        "x".repeat(100_000)
    );
    let query = format!(
        "GET /api/v1/jobs?q={} HTTP/1.1\r\nhost: x\r\n\r\n",
        "x".repeat(1 << 20)
    );
    let body = format!(
        "GET / HTTP/1.1\r\nhost: {}\r\ncontent-length: 5\r\n\r\nhello",
        served.address
    );
    let cases = [
        (b"nonsense\r\n\r\n".to_vec(), 400),
        (field.into_bytes(), 431),
        (query.into_bytes(), 431),
        (body.into_bytes(), 413),
    ];
    for (request, want) in cases {
        let answer = served.raw(&request).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (want, "badRequest")
        );
        assert_eq!(
            answer.header("content-type"),
            "application/json; charset=utf-8"
        );
    }
}

#[tokio::test]
async fn many_connections_are_bounded() {
    let served = start().await;
    let traffic = served.dashboard.traffic();
    let mut silent = Vec::new();
    // With those of the server, fewer than the 1,024 descriptors that many systems allow.
    for _ in 0..500 {
        silent.push(TcpStream::connect(served.address).await.unwrap());
    }
    // Who asks is answered all the same.
    assert_eq!(served.get("/api/v1/jobs", &[]).await.status, 200);
    assert!(traffic.open_now(trainyard_web::NAME) <= 256);
    assert!(traffic.closed_so_far(trainyard_web::NAME, "room") >= 200);
}
