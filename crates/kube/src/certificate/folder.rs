//! A certificate that somebody else puts into a folder, such as a mounted Secret.

use std::{fs, io, io::Read as _, path::Path};

use thiserror::Error;

use super::Bundle;

/// A larger file is not a certificate.
const MOST_BYTES: u64 = 1024 * 1024;

/// Why a folder gives no certificate.
#[derive(Debug, Error)]
pub(crate) enum FolderError {
    #[error("cannot read `{path}`: {error}")]
    Read { path: String, error: io::Error },
    #[error("`{path}` has more than {MOST_BYTES} bytes, too many for a certificate")]
    TooLarge { path: String },
}

/// What the files of `folder` hold.
pub(super) fn read(folder: &Path) -> Result<Bundle, FolderError> {
    let authority = match file(folder, "ca.crt") {
        Err(FolderError::Read { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            String::new()
        }
        authority => authority?,
    };
    Ok(Bundle {
        certificate: file(folder, "tls.crt")?,
        key: file(folder, "tls.key")?,
        authority,
    })
}

fn file(folder: &Path, name: &str) -> Result<String, FolderError> {
    let path = folder.join(name);
    let shown = path.display().to_string();
    let mut text = String::new();
    let read = fs::File::open(&path).and_then(|file| {
        let mut bounded = file.take(MOST_BYTES + 1);
        bounded.read_to_string(&mut text)
    });
    match read {
        Err(error) => Err(FolderError::Read { path: shown, error }),
        Ok(_) if text.len() as u64 > MOST_BYTES => Err(FolderError::TooLarge { path: shown }),
        Ok(_) => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_folder_gives() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        put("tls.crt", "certificate");
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("tls.key"), "{error}");
        put("tls.key", "key");
        assert_eq!(read(folder.path()).unwrap().authority, "");
        put("ca.crt", "authority");
        let bundle = read(folder.path()).unwrap();
        assert_eq!(bundle.certificate, "certificate");
        assert_eq!(bundle.authority, "authority");
        put("tls.crt", &"a".repeat(1024 * 1024 + 1));
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("more than"), "{error}");
    }
}
