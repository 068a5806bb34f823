//! Who is answered.

use super::*;

const JOBS: &str = "/api/v1/jobs";

#[tokio::test]
async fn documents_need_the_token() {
    let served = start().await;
    let good = format!("Bearer {TOKEN}");
    let wrong = format!("Bearer {TOKEN}0");
    let basic = format!("Basic {TOKEN}");
    for path in [
        JOBS,
        "/api/v1/about",
        "/api/v1/stream",
        "/api/v1/nothing",
        "/api",
        "/api/",
    ] {
        for sent in [
            None,
            Some(""),
            Some("Bearer"),
            Some(TOKEN),
            Some(&wrong),
            Some(&basic),
        ] {
            let fields: Vec<_> = sent
                .map(|sent| ("authorization", sent))
                .into_iter()
                .collect();
            let answer = served.send("GET", path, &fields).await;
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (401, "unauthorized"),
                "{path}"
            );
            assert_eq!(answer.header("www-authenticate"), "Bearer");
        }
    }
    let answer = served.send("GET", JOBS, &[("authorization", &good)]).await;
    assert_eq!(answer.status, 200);
    // A token in the query or in a cookie is none.
    let query = format!("{JOBS}?token={TOKEN}");
    let cookie = format!("token={TOKEN}");
    let answer = served.send("GET", &query, &[("cookie", &cookie)]).await;
    assert_eq!(answer.status, 401);
    assert!(!format!("{:?}", served.dashboard).contains(TOKEN));
}

#[tokio::test]
async fn a_foreign_host_gets_nothing() {
    let served = start().await;
    let port = served.address.port();
    let foreign = [
        format!("evil.example:{port}"),
        "127.0.0.1".to_owned(),
        format!("127.0.0.1:{}", port ^ 1),
        format!("localhost.evil.example:{port}"),
        String::new(),
    ];
    for host in &foreign {
        for path in ["/", "/app.js", JOBS, "/api/v1/login"] {
            let answer = served.get(path, &[("host", host)]).await;
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (421, "wrongHost"),
                "{host}{path}"
            );
        }
    }
    for host in [format!("localhost:{port}"), format!("[::1]:{port}")] {
        assert_eq!(served.get(JOBS, &[("host", &host)]).await.status, 200);
    }
    let twice = format!(
        "GET / HTTP/1.1\r\nhost: {0}\r\nhost: {0}\r\n\r\n",
        served.address
    );
    assert_eq!(served.raw(twice.as_bytes()).await.status, 421);
    let absolute = format!(
        "GET http://evil.example/ HTTP/1.1\r\nhost: {}\r\n\r\n",
        served.address
    );
    assert_eq!(served.raw(absolute.as_bytes()).await.status, 421);
    assert_eq!(served.raw(b"GET / HTTP/1.0\r\n\r\n").await.status, 421);
}

#[tokio::test]
async fn a_page_of_another_origin_gets_no_document() {
    let served = start().await;
    let cases = [
        ("same-origin", 200),
        ("none", 200),
        ("same-site", 403),
        ("cross-site", 403),
        ("x", 403),
    ];
    for (site, want) in cases {
        let answer = served.get(JOBS, &[("sec-fetch-site", site)]).await;
        assert_eq!(answer.status, want, "{site}");
        // The page itself may be opened by a link from anywhere.
        let answer = served.send("GET", "/", &[("sec-fetch-site", site)]).await;
        assert_eq!(answer.status, 200, "{site}");
    }
    let twice = [("sec-fetch-site", "none"), ("sec-fetch-site", "none")];
    let answer = served.get(JOBS, &twice).await;
    assert_eq!((answer.status, answer.code().as_str()), (403, "forbidden"));
}

#[tokio::test]
async fn every_method_is_on_the_list() {
    let served = start().await;
    let bearer = format!("Bearer {TOKEN}");
    let fields = [("authorization", bearer.as_str())];
    let others = ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"];
    for path in ["/", "/app.js", JOBS, "/api/v1/stream", "/nothing"] {
        for method in others {
            let answer = served.send(method, path, &fields).await;
            assert_eq!(answer.status, 405, "{method} {path}");
            assert_eq!(answer.header("allow"), "GET, HEAD");
        }
        let answer = served.send("HEAD", path, &fields).await;
        let want = if path == "/nothing" { 404 } else { 200 };
        assert_eq!((answer.status, answer.body.len()), (want, 0), "{path}");
    }
    for method in ["GET", "HEAD", "PUT", "OPTIONS"] {
        let answer = served.send(method, "/api/v1/login", &fields).await;
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, "POST"),
            "{method}"
        );
    }
}

#[tokio::test]
async fn a_code_is_exchanged_once() {
    let served = start().await;
    let login = async |code: &str, content_type: &str, site: &str| {
        let body = format!("{{\"code\":\"{code}\"}}");
        let request = format!(
            "POST /api/v1/login HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nsec-fetch-site: {site}\r\n\
             content-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
            served.address,
            body.len()
        );
        served.raw(request.as_bytes()).await
    };
    let code = served.dashboard.one_time_code().unwrap();
    let (json, own) = ("application/json", "same-origin");
    assert_eq!(login("wrong", json, own).await.code(), "unauthorized");
    assert_eq!(login(&code, "text/plain", own).await.status, 400);
    assert_eq!(login(&code, json, "cross-site").await.status, 403);
    let answer = login(&code, json, own).await;
    assert_eq!(
        (answer.status, &answer.json()["token"]),
        (200, &TOKEN.into())
    );
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(login(&code, json, own).await.status, 401, "it was used");
    let large = "x".repeat(2000);
    assert_eq!(login(&large, json, own).await.status, 413);
}
