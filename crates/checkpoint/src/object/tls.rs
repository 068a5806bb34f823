//! Whom to trust: the authorities of this machine, or those of a file.

use std::{
    fs,
    sync::{Arc, OnceLock},
};

use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};

use super::settings::{BadSettings, Settings};

/// Largest file with certificates.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The authorities of this machine: a hundred and more, so they are read once.
static MACHINE: OnceLock<RootCertStore> = OnceLock::new();

/// TLS with the one provider of the tree. A machine without authorities can still use an endpoint of plain HTTP.
pub(super) fn config(settings: &Settings) -> Result<ClientConfig, BadSettings> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = settings.authorities() {
        let is_small = fs::metadata(path).is_ok_and(|file| file.len() <= MAX_FILE_BYTES);
        let text = if is_small { fs::read(path).ok() } else { None };
        let text = text.ok_or(BadSettings::Authorities)?;
        let blocks = pem::parse_many(text).map_err(|_| BadSettings::Authorities)?;
        let blocks = blocks
            .into_iter()
            .filter(|block| block.tag() == "CERTIFICATE");
        let certificates = blocks.map(|block| CertificateDer::from(block.into_contents()));
        let (added, _) = roots.add_parsable_certificates(certificates);
        if added == 0 {
            return Err(BadSettings::Authorities);
        }
    } else {
        let found = MACHINE.get_or_init(|| {
            let mut roots = RootCertStore::empty();
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            roots
        });
        roots = found.clone();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| BadSettings::Refused)?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}
