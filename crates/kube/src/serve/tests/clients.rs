//! Clients that must show a certificate.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::*;
use crate::process::{ProcessError, unsecured};

const VALIDATE: &str = "/validate-kubeflow-org-v1-pytorchjob";
const REVIEW: &[u8] = br#"{"request":{"uid":"u","operation":"DELETE"}}"#;
const PAGE: &[u8] =
    br#"{"request":{"uid":"u","desiredAPIVersion":"kubeflow.org/v1","objects":[]}}"#;

/// An authority, and a client that it vouches for.
struct Client {
    authority: String,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

fn client() -> Client {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let signed = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let mut leaf = CertificateParams::new(Vec::new()).unwrap();
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = leaf.signed_by(&key, &issuer).unwrap();
    Client {
        authority: pem::encode(&pem::Pem::new("CERTIFICATE", signed.der().to_vec())),
        certificate: certificate.der().clone(),
        key: key.serialized_der().to_vec(),
    }
}

/// Sends a request with the certificate of `client`; nothing where the handshake fails.
async fn post(
    address: SocketAddr,
    trusted: &Bundle,
    client: Option<&Client>,
    path: &str,
    body: &[u8],
) -> Option<(u16, String)> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(trusted.authority.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        None => config.with_no_client_auth(),
        Some(client) => {
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(client.key.clone()));
            config
                .with_client_auth_cert(vec![client.certificate.clone()], key)
                .unwrap()
        }
    };
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("trainyard.test.svc").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .ok()?;
    // A client sees that its certificate was refused only when it reads.
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    drop(stream.write_all(head.as_bytes()).await);
    drop(stream.write_all(body).await);
    let mut answer = Vec::new();
    drop(
        timeout(PATIENCE, stream.read_to_end(&mut answer))
            .await
            .unwrap(),
    );
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((
        head.split(' ').nth(1).unwrap().parse().unwrap(),
        body.to_owned(),
    ))
}

#[tokio::test]
async fn client_ca_requires_a_client_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    let (known, unknown) = (client(), client());
    fs::write(&file, &known.authority).unwrap();

    let certificate = Arc::new(Certificate::default());
    let trusted = issue_for_test(&["trainyard.test.svc".to_owned()]);
    certificate.take_for_test(trusted.clone());
    let security = Security::new(&certificate, Some(file.clone())).unwrap();
    let mut server = webhooks(&certificate);
    server.tls = Some(security.acceptors());
    server.admit = webhook::admits(webhook::Callers::Verified, server.traffic.clone());
    let traffic = server.traffic.clone();
    let address = start(server);
    let ask = |client, path, body| post(address, &trusted, client, path, body);

    let (status, answer) = ask(Some(&known), VALIDATE, REVIEW).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let (status, answer) = ask(None, VALIDATE, REVIEW).await.unwrap();
    assert_eq!(status, 403);
    assert!(
        answer.starts_with("a client certificate is required here"),
        "{answer}"
    );
    assert_eq!(traffic.refused_so_far(webhook::NAME, "no_certificate"), 1);
    // The API server has none to show for conversions.
    assert_eq!(ask(None, "/convert", PAGE).await.unwrap().0, 200);
    let refused = ask(Some(&unknown), VALIDATE, REVIEW).await;
    assert!(refused.is_none(), "{refused:?}");

    // Another authority takes over without a restart; what cannot be read changes nothing.
    fs::write(&file, "nonsense").unwrap();
    assert!(security.reload_now().is_err());
    assert_eq!(ask(Some(&known), VALIDATE, REVIEW).await.unwrap().0, 200);
    fs::write(&file, &unknown.authority).unwrap();
    security.reload_now().unwrap();
    assert_eq!(ask(Some(&unknown), VALIDATE, REVIEW).await.unwrap().0, 200);
    assert!(ask(Some(&known), VALIDATE, REVIEW).await.is_none());
}

#[test]
fn client_ca_file_without_certificate_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Arc::new(Certificate::default());
    let cases = [
        ("missing.crt", None, "cannot read it: "),
        ("empty.crt", Some(""), "it holds no certificate in PEM"),
    ];
    for (name, text, want) in cases {
        let file = folder.path().join(name);
        if let Some(text) = text {
            fs::write(&file, text).unwrap();
        }
        let made = Security::new(&certificate, Some(file)).map_err(unsecured);
        let Err(error @ ProcessError::ClientCa { .. }) = made else {
            panic!("{name} was taken");
        };
        let sentence = error.to_string();
        assert!(
            sentence.contains(name) && sentence.contains(want),
            "{sentence}"
        );
    }
}
