//! Real servers on loopback, asked by a client of a few lines.

mod attack;
mod clients;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::StatusCode;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::*;
use crate::{
    Operator, Options,
    certificate::{Bundle, Certificate, clients::Security, issue_for_test},
    health, webhook,
};

const LOOPBACK: Bind = Bind::At {
    host: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    port: 0,
};
const PATIENCE: Duration = Duration::from_mins(1);

/// Starts a server of a test.
fn start(server: Server) -> SocketAddr {
    let listener = LOOPBACK.listen().unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, server));
    address
}

/// A plain server, as the operator starts them.
fn plain(answer: Answer) -> Server {
    Server {
        name: "test",
        bounds: health::BOUNDS,
        tls: None,
        admit: health::admits(),
        answer,
        rules: ReplyRules::default(),
        traffic: Traffic::default(),
    }
}

/// A plain server that takes bodies of so many bytes and says how many came.
fn echo(bytes: usize) -> Server {
    let intake = Intake {
        bytes,
        values: None,
    };
    Server {
        admit: Arc::new(move |_| Ok(intake)),
        ..plain(Arc::new(|request| {
            Box::pin(async move { Reply::text(StatusCode::OK, request.body.len().to_string()) })
        }))
    }
}

/// The webhooks, as the operator starts them.
fn webhooks(certificate: &Arc<Certificate>) -> Server {
    let traffic = Traffic::default();
    let security = Security::new(certificate, None).unwrap();
    Server {
        name: webhook::NAME,
        bounds: webhook::BOUNDS,
        tls: Some(security.acceptors()),
        admit: webhook::admits(webhook::Callers::Anybody, traffic.clone()),
        answer: webhook::reviews(
            webhook::TURNS,
            Arc::default(),
            Arc::new(|_, _| None),
            traffic.clone(),
        ),
        rules: ReplyRules::default(),
        traffic,
    }
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

/// Waits until the server has closed the connection.
async fn ends(mut stream: impl AsyncRead + Unpin) {
    let mut rest = Vec::new();
    drop(
        timeout(PATIENCE, stream.read_to_end(&mut rest))
            .await
            .unwrap(),
    );
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

/// Sends a request and returns the status and the body of the answer.
async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    path: &str,
    body: &[u8],
) -> (u16, String) {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that refuses the body may answer and close before all of it is sent.
    drop(stream.write_all(body).await);
    let mut answer = Vec::new();
    drop(
        timeout(PATIENCE, stream.read_to_end(&mut answer))
            .await
            .unwrap(),
    );
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

async fn ask(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> (u16, String) {
    let stream = TcpStream::connect(address).await.unwrap();
    exchange(stream, method, path, body).await
}

fn connector(bundle: &Bundle) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.authority.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

async fn handshake(
    address: SocketAddr,
    trusted: &Bundle,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("trainyard.test.svc").unwrap();
    connector(trusted).connect(name, stream).await
}

/// An operator of a cluster that is not there.
fn operator() -> Operator {
    drop(rustls::crypto::ring::default_provider().install_default());
    let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    Operator::new(kube::Client::try_from(config).unwrap(), Options::default())
}

#[test]
fn what_users_write() {
    let at = |host: Option<&str>, port| Bind::At {
        host: host.map(|host| host.parse().unwrap()),
        port,
    };
    let cases = [
        ("", Ok(Bind::Off)),
        ("0", Ok(Bind::Off)),
        (":8080", Ok(at(None, 8080))),
        ("127.0.0.1:8080", Ok(at(Some("127.0.0.1"), 8080))),
        ("[::1]:9443", Ok(at(Some("::1"), 9443))),
        ("8080", Err(BindError)),
        (":", Err(BindError)),
        (":65536", Err(BindError)),
        ("localhost:8080", Err(BindError)),
    ];
    for (text, want) in cases {
        let found = text.parse::<Bind>();
        assert_eq!(found, want, "{text}");
        if let Ok(bind) = found {
            assert_eq!(bind.to_string().parse(), Ok(bind), "{text}");
        }
    }
}

#[tokio::test]
async fn metrics_and_health_are_served() {
    let metrics = start(plain(health::metrics(operator())));
    let (status, body) = ask(metrics, "GET", "/metrics", b"").await;
    assert_eq!(status, 200);
    assert!(body.ends_with("# EOF\n"), "{body}");
    assert!(
        body.contains("# TYPE trainyard_queue_length gauge"),
        "{body}"
    );

    let certificate = Arc::new(Certificate::default());
    let answer = health::health(operator(), Some(Arc::clone(&certificate)));
    let health = start(plain(answer));
    assert_eq!(
        ask(health, "GET", "/healthz", b"").await,
        (200, "ok\n".to_owned())
    );
    let want = (503, "the webhooks have no certificate yet\n".to_owned());
    assert_eq!(ask(health, "GET", "/readyz", b"").await, want);
    certificate.take_for_test(issue_for_test(&["trainyard.test.svc".to_owned()]));
    assert_eq!(
        ask(health, "GET", "/readyz", b"").await,
        (200, "ok\n".to_owned())
    );
    assert_eq!(ask(health, "POST", "/readyz", b"").await.0, 405);
    assert_eq!(ask(health, "GET", "/metrics", b"").await.0, 404);
}

#[tokio::test]
async fn webhooks_answer_over_tls_with_the_newest_certificate() {
    let names = ["trainyard.test.svc".to_owned()];
    let certificate = Arc::new(Certificate::default());
    let address = start(webhooks(&certificate));
    let first = issue_for_test(&names);
    assert!(
        handshake(address, &first).await.is_err(),
        "there is no certificate yet"
    );

    certificate.take_for_test(first.clone());
    let object = json!({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob",
        "metadata": {"name": "j"}, "spec": {"sshAuthMountPath": "/keys"}});
    let body = json!({"request": {"uid": "u", "desiredAPIVersion": "kubeflow.org/v1",
        "objects": [object]}});
    let stream = handshake(address, &first).await.unwrap();
    let (status, answer) = exchange(stream, "POST", "/convert", body.to_string().as_bytes()).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(status, 200);
    let converted = &answer["response"]["convertedObjects"][0];
    assert_eq!(converted["apiVersion"], "kubeflow.org/v1", "{answer}");

    let body = json!({"request": {"uid": "u", "operation": "CREATE", "object": {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"},
    }}});
    let path = "/validate-kubeflow-org-v1-pytorchjob";
    let stream = handshake(address, &first).await.unwrap();
    let (status, answer) = exchange(stream, "POST", path, body.to_string().as_bytes()).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        (status, &answer["response"]["allowed"]),
        (200, &json!(false))
    );

    let second = issue_for_test(&names);
    certificate.take_for_test(second.clone());
    assert!(
        handshake(address, &first).await.is_err(),
        "the first is no longer served"
    );
    let stream = handshake(address, &second).await.unwrap();
    assert_eq!(exchange(stream, "POST", "/elsewhere", b"").await.0, 404);
    let stream = handshake(address, &second).await.unwrap();
    assert_eq!(exchange(stream, "GET", path, b"").await.0, 405);
}

#[tokio::test]
async fn port_in_use_is_reported() {
    let taken = LOOPBACK.listen().unwrap().unwrap();
    let bind = Bind::At {
        host: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        port: taken.local_addr().unwrap().port(),
    };
    let error = bind.listen().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(Bind::Off.listen().unwrap().is_none());
}
