//! The certificate of the webhooks: where it comes from, and that the API server trusts it.
//!
//! # Flow
//! Issued: the Secret [`crate::rights::CERTIFICATE`] holds one certificate for all replicas. Whoever
//! finds it missing or near its end writes another; the API server lets one of several win. Each
//! replica first makes sure that the authority is in the configurations of the webhooks and then serves
//! the certificate.
//!
//! Given: the files of a folder are served as they are, and read again when they change.
//!
//! # Guarantees
//! - A certificate is replaced only after the API server trusts its successor, and the old authority
//!   stays trusted beside the new one, so that no call fails while replicas change over.
//! - A replica whose certificate is seen not to be trusted is not ready. One that cannot look stays what it was.
//! - The key of an issued authority is forgotten at once: nobody can sign with it later.
//! - Keys are in no log and in no error.

pub(crate) mod browsers;
pub(crate) mod clients;
mod folder;
mod issue;
mod secret;
#[cfg(test)]
mod tests;
mod trust;

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert, danger::ClientCertVerifier},
    sign::CertifiedKey,
};
use thiserror::Error;
use tokio::time::Instant;
use tracing::{info, warn};

use self::{folder::FolderError, issue::IssueError};
use crate::{
    api::{CallError, Caller},
    backoff::Backoff,
};

/// How often the Secret is read.
const SECRET_EVERY: Duration = Duration::from_secs(30);
/// How often the folder is read, which needs no API call.
const FOLDER_EVERY: Duration = Duration::from_secs(5);
/// How often the webhook configurations are read: they are large.
const TRUST_EVERY: Duration = Duration::from_mins(5);

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// The operator issues it, and keeps it in a Secret of this namespace, which is its own.
    Issued {
        /// The namespace, also of the Service that the certificate is for.
        namespace: String,
    },
    /// Files of a folder: `tls.crt`, `tls.key`, and `ca.crt` where the operator is to have it trusted.
    Folder(PathBuf),
}

/// Certificate, key and authority, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Bundle {
    pub(crate) certificate: String,
    pub(crate) key: String,
    /// Whom the API server is to trust; empty where that is not our business.
    pub(crate) authority: String,
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").finish_non_exhaustive()
    }
}

/// Why there is no certificate.
#[derive(Debug, Error)]
pub(crate) enum CertificateError {
    #[error("cannot {tried}: {error}")]
    Call { tried: String, error: CallError },
    #[error(
        "the API server does not trust the webhook certificate by `{name}`, and that cannot be changed: {error}"
    )]
    Untrusted { name: String, error: CallError },
    #[error("cannot issue a certificate: {0}")]
    Issue(IssueError),
    #[error("{0}")]
    Folder(FolderError),
    #[error("the certificate cannot be used: {0}")]
    Unusable(String),
    #[error("another replica has just written the certificate")]
    Raced,
}

/// The certificate that is served, and whether it can be.
#[derive(Debug)]
pub(crate) struct Certificate {
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    served: Option<(Bundle, Arc<CertifiedKey>)>,
    trusted: bool,
    trouble: String,
}

impl Default for Certificate {
    fn default() -> Self {
        Self {
            state: RwLock::new(State {
                served: None,
                trusted: false,
                trouble: "the webhooks have no certificate yet".to_owned(),
            }),
        }
    }
}

impl Certificate {
    /// Whether the API server can call; else why not.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        let state = self.read();
        if state.served.is_some() && state.trusted {
            Ok(())
        } else {
            Err(state.trouble.clone())
        }
    }

    /// The authority that clients need to trust what is served now, where it is known.
    pub(crate) fn authority(&self) -> Option<String> {
        let state = self.read();
        let (bundle, _) = state.served.as_ref()?;
        Some(bundle.authority.clone()).filter(|authority| !authority.is_empty())
    }

    /// How connections are secured with whatever is served at the time. Where there is a `verifier`, it judges the certificates
    /// that clients show.
    pub(crate) fn server_config(
        self: &Arc<Self>,
        verifier: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<ServerConfig, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?;
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        Ok(builder.with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>))
    }

    /// The same for clients that are this program, too: no certificate is asked for, and only TLS 1.3 is spoken.
    pub(crate) fn own_clients_config(self: &Arc<Self>) -> Result<ServerConfig, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth();
        Ok(builder.with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>))
    }

    /// Keeps the certificate fresh; never returns.
    pub(crate) async fn keep(self: Arc<Self>, caller: Caller, source: CertificateSource) {
        let every = match source {
            CertificateSource::Issued { .. } => SECRET_EVERY,
            CertificateSource::Folder(_) => FOLDER_EVERY,
        };
        let mut backoff = Backoff::new(Duration::from_millis(500), every);
        let mut trust_seen: Option<Instant> = None;
        let mut said = String::new();
        loop {
            let check_trust = trust_seen.is_none_or(|at| at.elapsed() >= TRUST_EVERY);
            match self.look(&caller, &source, check_trust).await {
                Ok(()) => {
                    if check_trust {
                        trust_seen = Some(Instant::now());
                    }
                    said.clear();
                    backoff.reset();
                    tokio::time::sleep(every).await;
                }
                Err(CertificateError::Raced) => tokio::time::sleep(backoff.next()).await,
                Err(error) => {
                    trust_seen = None;
                    let sentence = error.to_string();
                    if sentence != said {
                        warn!(error = sentence, "Cannot serve the webhooks as configured");
                        self.write().trouble.clone_from(&sentence);
                        said = sentence;
                    }
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        }
    }

    /// One look: what there is, that it is trusted, and then that it is served.
    async fn look(
        &self,
        caller: &Caller,
        source: &CertificateSource,
        check_trust: bool,
    ) -> Result<(), CertificateError> {
        let bundle = match source {
            CertificateSource::Issued { namespace } => {
                secret::read_or_issue(caller, namespace, Timestamp::now()).await?
            }
            CertificateSource::Folder(path) => {
                folder::read(path).map_err(CertificateError::Folder)?
            }
        };
        let served = self.serves(&bundle);
        if served && self.read().trusted && !check_trust {
            return Ok(());
        }
        // What cannot be used is not made to be trusted either.
        let key = if served {
            None
        } else {
            Some(certified(&bundle)?)
        };
        let trust = if bundle.authority.is_empty() {
            Ok(())
        } else {
            trust::put(caller, &bundle.authority).await
        };
        let mut state = self.write();
        if let Some(key) = key
            && (trust.is_ok() || state.served.is_none())
        {
            info!("Loaded the webhook certificate");
            state.served = Some((bundle, Arc::new(key)));
        }
        match trust {
            Ok(()) => state.trusted = true,
            Err(CertificateError::Untrusted { .. }) if served => state.trusted = false,
            // What could not be read may be as it was, and a predecessor is served until its successor is trusted.
            Err(_) => {}
        }
        trust
    }

    fn serves(&self, bundle: &Bundle) -> bool {
        let state = self.read();
        state
            .served
            .as_ref()
            .is_some_and(|(served, _)| served == bundle)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// As if `look` had gone well.
    #[cfg(test)]
    pub(crate) fn take_for_test(&self, bundle: Bundle) {
        let key = certified(&bundle).unwrap();
        let mut state = self.write();
        state.served = Some((bundle, Arc::new(key)));
        state.trusted = true;
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.read().served.as_ref().map(|(_, key)| Arc::clone(key))
    }
}

/// A bundle for `names` that is valid from `now` on, as tests need one.
#[cfg(test)]
pub(crate) fn issue_for_test(names: &[String]) -> Bundle {
    issue::issue(names, Timestamp::now(), None).unwrap().bundle
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The certificate and its key, which must belong together.
fn certified(bundle: &Bundle) -> Result<CertifiedKey, CertificateError> {
    let unusable = |what: &str| CertificateError::Unusable(what.to_owned());
    let chain = CertificateDer::pem_slice_iter(bundle.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| unusable("it is not PEM"))?;
    if chain.is_empty() {
        return Err(unusable("it holds no certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(bundle.key.as_bytes())
        .map_err(|_| unusable("its key is not a private key in PEM"))?;
    CertifiedKey::from_der(chain, key, &provider())
        .map_err(|error| CertificateError::Unusable(error.to_string()))
}
