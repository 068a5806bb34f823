//! Which clients the webhooks trust: a file with authorities, read again when it changes.
//!
//! Guarantee: a file that cannot be read later changes nothing; the authorities that were read last stay, and a log line says so.
//!
//! Caveat: a client without a certificate gets through the handshake, and it is up to each path whether it needs one: the
//! API server shows none for conversions.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use super::{Certificate, provider};
use crate::serve::Secure;

/// How often the file is read.
const EVERY: Duration = Duration::from_secs(5);
/// A larger file is not a list of CA certificates.
const MOST_BYTES: u64 = 1024 * 1024;

/// Why a file does not say whom to trust.
#[derive(Debug, Error)]
pub enum ClientsError {
    /// It cannot be read.
    #[error("cannot read it: {0}")]
    Read(std::io::Error),
    /// It is too large.
    #[error("it has more than {MOST_BYTES} bytes")]
    TooLarge,
    /// It holds none.
    #[error("it holds no certificate in PEM")]
    None,
    /// It holds something that cannot be an authority.
    #[error("{0}")]
    Unusable(String),
}

/// Why connections cannot be secured.
#[derive(Debug)]
pub(crate) enum SecurityError {
    Tls(rustls::Error),
    ClientCa { path: PathBuf, error: ClientsError },
}

/// How connections to the webhooks are secured now.
pub(crate) struct Security {
    certificate: Arc<Certificate>,
    client_ca: Option<PathBuf>,
    state: RwLock<State>,
}

struct State {
    /// What was read last.
    text: Vec<u8>,
    config: Arc<ServerConfig>,
}

impl Security {
    pub(crate) fn new(
        certificate: &Arc<Certificate>,
        client_ca: Option<PathBuf>,
    ) -> Result<Arc<Self>, SecurityError> {
        let mut text = Vec::new();
        let mut trusted = None;
        if let Some(path) = &client_ca {
            let read = read(path).and_then(|text| Ok((verifier(&text)?, text)));
            let (verifier, found) = read.map_err(|error| SecurityError::ClientCa {
                path: path.clone(),
                error,
            })?;
            text = found;
            trusted = Some(verifier);
        }
        let config = certificate
            .server_config(trusted)
            .map_err(SecurityError::Tls)?;
        Ok(Arc::new(Self {
            certificate: Arc::clone(certificate),
            client_ca,
            state: RwLock::new(State {
                text,
                config: Arc::new(config),
            }),
        }))
    }

    /// How each new connection is secured.
    pub(crate) fn acceptors(self: &Arc<Self>) -> Secure {
        let security = Arc::clone(self);
        Arc::new(move || {
            let state = security.state.read();
            let state = state.unwrap_or_else(PoisonError::into_inner);
            TlsAcceptor::from(Arc::clone(&state.config))
        })
    }

    /// Reads the file again and again.
    pub(crate) async fn keep(self: Arc<Self>) {
        let Some(path) = self.client_ca.clone() else {
            return;
        };
        let mut logged = String::new();
        loop {
            tokio::time::sleep(EVERY).await;
            match self.look(&path) {
                Ok(()) => logged.clear(),
                Err(error) => {
                    let sentence = error.to_string();
                    if sentence != logged {
                        let path = path.display();
                        warn!(%path, error = sentence, "Cannot reload webhook client CAs, keeping the previous ones");
                        logged = sentence;
                    }
                }
            }
        }
    }

    fn look(&self, path: &Path) -> Result<(), ClientsError> {
        let text = read(path)?;
        let same = {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            state.text == text
        };
        if same {
            return Ok(());
        }
        let config = self
            .certificate
            .server_config(Some(verifier(&text)?))
            .map_err(|error| ClientsError::Unusable(error.to_string()))?;
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        // Sessions of before are not resumed: they are in the configuration of before.
        *state = State {
            text,
            config: Arc::new(config),
        };
        info!("Loaded webhook client CAs");
        Ok(())
    }

    /// As if `keep` had looked just now.
    #[cfg(test)]
    pub(crate) fn reload_now(&self) -> Result<(), ClientsError> {
        self.look(self.client_ca.as_deref().unwrap())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ClientsError> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(ClientsError::Read)?;
    file.take(MOST_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(ClientsError::Read)?;
    if u64::try_from(text.len()).is_ok_and(|size| size > MOST_BYTES) {
        return Err(ClientsError::TooLarge);
    }
    Ok(text)
}

fn verifier(text: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, ClientsError> {
    let unusable = |error: &dyn std::fmt::Display| ClientsError::Unusable(error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text) {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        return Err(ClientsError::None);
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map(|verifier| verifier as Arc<dyn ClientCertVerifier>)
        .map_err(|error| unusable(&error))
}
