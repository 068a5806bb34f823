//! The certificate of a folder, such as a mounted Secret, for connections of browsers; read again as it changes.
//!
//! Guarantee: files that cannot be read later change nothing; what was read last is served, and a log line says so.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use super::{Certificate, CertificateError, FOLDER_EVERY, certified, folder};
use crate::serve::Secure;

/// Why connections of browsers cannot be secured.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve TLS with the files of `{folder}`: {why}")]
pub struct TlsError {
    folder: String,
    why: String,
}

/// Secures connections with `tls.crt` and `tls.key` of `folder`.
pub fn tls_of(folder: PathBuf) -> Result<Secure, TlsError> {
    let refused = |why: String| TlsError {
        folder: folder.display().to_string(),
        why,
    };
    let certificate = Arc::new(Certificate::default());
    take(&certificate, &folder).map_err(|error| refused(error.to_string()))?;
    let config = certificate.server_config(None);
    let config = Arc::new(config.map_err(|error| refused(error.to_string()))?);
    let state = Mutex::new((Instant::now() + FOLDER_EVERY, String::new()));
    Ok(Arc::new(move || {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if Instant::now() >= state.0 {
            state.0 = Instant::now() + FOLDER_EVERY;
            match take(&certificate, &folder) {
                Ok(()) => state.1.clear(),
                Err(error) => {
                    let sentence = error.to_string();
                    if sentence != state.1 {
                        warn!(
                            error = sentence,
                            "Cannot reload the certificate, keeping the previous one"
                        );
                        state.1 = sentence;
                    }
                }
            }
        }
        TlsAcceptor::from(Arc::clone(&config))
    }))
}

/// Serves what the files hold now.
fn take(certificate: &Certificate, folder: &Path) -> Result<(), CertificateError> {
    let bundle = folder::read(folder).map_err(CertificateError::Folder)?;
    if certificate.serves(&bundle) {
        return Ok(());
    }
    let key = certified(&bundle)?;
    certificate.write().served = Some((bundle, Arc::new(key)));
    info!("Loaded the certificate");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;
    use crate::certificate::{Bundle, issue_for_test};

    fn put(folder: &Path, bundle: &Bundle) {
        fs::write(folder.join("tls.crt"), &bundle.certificate).unwrap();
        fs::write(folder.join("tls.key"), &bundle.key).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_is_read_again_and_never_lost() {
        let folder = tempfile::tempdir().unwrap();
        let missing = tls_of(folder.path().to_owned()).err().unwrap().to_string();
        assert!(missing.contains("tls.crt"), "{missing}");
        let names = ["dashboard.test".to_owned()];
        // The folder has no `ca.crt`.
        let issue = || Bundle {
            authority: String::new(),
            ..issue_for_test(&names)
        };
        let (one, other) = (issue(), issue());
        let broken = Bundle {
            key: "no key".to_owned(),
            ..one.clone()
        };
        put(folder.path(), &broken);
        let refused = tls_of(folder.path().to_owned()).err().unwrap().to_string();
        assert!(
            refused.contains("key") && !refused.contains("no key"),
            "{refused}"
        );
        put(folder.path(), &one);
        let certificate = Certificate::default();
        take(&certificate, folder.path()).unwrap();
        assert!(certificate.serves(&one));
        put(folder.path(), &other);
        take(&certificate, folder.path()).unwrap();
        assert!(certificate.serves(&other));
        put(folder.path(), &broken);
        take(&certificate, folder.path()).unwrap_err();
        assert!(certificate.serves(&other), "the last good one stays");
        // Connections are secured all the same while the files are bad.
        put(folder.path(), &one);
        let secure = tls_of(folder.path().to_owned()).unwrap();
        put(folder.path(), &broken);
        tokio::time::advance(FOLDER_EVERY + Duration::from_secs(1)).await;
        drop(secure());
    }
}
