//! The certificate that this pod shows, and the authority that the other side's must come from.
//!
//! Invariant: both sides authenticate, by TLS 1.3, and trust the job's own authority and no other.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::Resumption,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _},
    server::WebPkiClientVerifier,
    version::TLS13,
};
use thiserror::Error;
use trainyard_core::launch::agent::file;

/// Why an identity cannot be used.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// A file of it cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// Its parts do not fit together.
    #[error("cannot use the certificate in `{folder}`: {message}")]
    Unusable {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        message: String,
    },
}

/// Certificate, key and authority.
#[derive(Debug)]
pub(crate) struct Identity {
    folder: PathBuf,
    authority: Arc<RootCertStore>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    pub(crate) fn read(folder: &Path) -> Result<Self, IdentityError> {
        let certificate = |name: &str| {
            let path = folder.join(name);
            CertificateDer::from_pem_file(&path)
                .map_err(|source| IdentityError::Read { path, source })
        };
        let mut authority = RootCertStore::empty();
        authority
            .add(certificate(file::AUTHORITY)?)
            .map_err(unusable(folder))?;
        let path = folder.join(file::KEY);
        let key = PrivateKeyDer::from_pem_file(&path)
            .map_err(|source| IdentityError::Read { path, source })?;
        Ok(Self {
            folder: folder.to_owned(),
            authority: Arc::new(authority),
            certificate: certificate(file::CERTIFICATE)?,
            key,
        })
    }

    pub(crate) fn server(&self) -> Result<Arc<ServerConfig>, IdentityError> {
        let roots = Arc::clone(&self.authority);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(unusable(&self.folder))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable(&self.folder))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
            .map_err(unusable(&self.folder))?;
        // Each connection carries one command, so session tickets are useless.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>, IdentityError> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable(&self.folder))?
            .with_root_certificates(Arc::clone(&self.authority))
            .with_client_auth_cert(vec![self.certificate.clone()], self.key.clone_key())
            .map_err(unusable(&self.folder))?;
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// What a leader needs for the operator: it authenticates it by `authority`, and shows no certificate.
pub(crate) fn operator_config(authority: &Path) -> Result<Arc<ClientConfig>, IdentityError> {
    let read = |source| IdentityError::Read {
        path: authority.to_owned(),
        source,
    };
    let mut roots = RootCertStore::empty();
    // Two while the operator's authority is replaced.
    for certificate in CertificateDer::pem_file_iter(authority).map_err(read)? {
        roots
            .add(certificate.map_err(read)?)
            .map_err(unusable(authority))?;
    }
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable(authority))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn unusable<E: std::fmt::Display>(folder: &Path) -> impl FnOnce(E) -> IdentityError {
    let folder = folder.to_owned();
    move |error| IdentityError::Unusable {
        folder,
        message: error.to_string(),
    }
}
