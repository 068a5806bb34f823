//! TLS and HTTP in a few lines.

use std::{fs, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Nobody whose certificate matters is talked to.
#[derive(Debug)]
struct Anybody(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// How connections are secured.
pub(crate) fn connector() -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let anybody = Anybody(provider.signature_verification_algorithms);
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(anybody))
        .with_no_client_auth();
    // Every handshake is a whole one.
    config.resumption = rustls::client::Resumption::disabled();
    TlsConnector::from(Arc::new(config))
}

/// A certificate for an operator that reads one from a folder.
pub(crate) fn put_certificate(folder: &Path) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()])
        .and_then(|params| params.self_signed(&key))
        .unwrap();
    fs::create_dir_all(folder).unwrap();
    for (name, tag, der) in [
        ("tls.crt", "CERTIFICATE", certificate.der().to_vec()),
        ("tls.key", "PRIVATE KEY", key.serialized_der().to_vec()),
    ] {
        let text = pem::encode(&pem::Pem::new(tag, der));
        fs::write(folder.join(name), text).unwrap();
    }
}

/// A connection, secured.
pub(crate) async fn connect(
    address: SocketAddr,
    secure: &TlsConnector,
) -> Option<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await.ok()?;
    let name = ServerName::try_from("localhost").ok()?;
    secure.connect(name, stream).await.ok()
}

/// The head of a request.
pub(crate) fn head(path: &str, bytes: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: attack\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {bytes}\r\n\r\n"
    )
}

/// Sends a request; the status of the answer and its body.
pub(crate) async fn post(
    address: SocketAddr,
    secure: &TlsConnector,
    path: &str,
    body: &[u8],
) -> Option<(u16, Vec<u8>)> {
    let mut stream = connect(address, secure).await?;
    stream
        .write_all(head(path, body.len()).as_bytes())
        .await
        .ok()?;
    // A server that refuses the body may answer before all of it is sent.
    let sent = stream.write_all(body).await;
    drop(sent.and(stream.flush().await));
    answer(&mut stream).await
}

/// Reads an answer to the end of the connection, at most a mebibyte of it.
pub(crate) async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> Option<(u16, Vec<u8>)> {
    let mut text = Vec::new();
    drop(stream.take(1 << 20).read_to_end(&mut text).await);
    let end = text.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(text.get(..end)?);
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding");
    assert!(!chunked, "an answer in chunks is not read here");
    Some((status, text.get(end + 4..)?.to_vec()))
}

/// Asks for a path without TLS.
pub(crate) async fn get(address: SocketAddr, path: &str, limit: Duration) -> Option<u16> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: attack\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        Some(answer(&mut stream).await?.0)
    };
    timeout(limit, asked).await.ok().flatten()
}
