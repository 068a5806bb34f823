//! Opens a place that keeps checkpoints, whatever it is: a folder, or an address such as `s3://bucket/prefix`.

use std::{io, path::Path, sync::Arc};

#[cfg(feature = "object")]
use crate::object::{Address, BadAddress, Objects, Patience, Settings};
use crate::{
    files::{Files, probe},
    storage::Shared,
};

/// Why a place cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A folder that cannot keep checkpoints.
    #[error(transparent)]
    Folder(#[from] probe::Refused),
    /// A folder that cannot be read.
    #[error(transparent)]
    Existing(#[from] io::Error),
    /// An address of a kind that is not known.
    #[error("`{0}://` is not supported; give a folder, or `s3://bucket/prefix`")]
    Scheme(String),
    /// An address that is none.
    #[cfg(feature = "object")]
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// A bucket that cannot be used.
    #[cfg(feature = "object")]
    #[error(transparent)]
    Bucket(#[from] crate::object::Refused),
}

/// The scheme of an address; `None` for the path of a folder.
pub fn scheme(place: &Path) -> Option<&str> {
    let (scheme, _) = place.to_str()?.split_once("://")?;
    let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_scheme && !scheme.is_empty()).then_some(scheme)
}

/// Opens a place for saving: creates what is missing, and tries out what it can do.
pub fn for_saving(place: &Path) -> Result<Shared, OpenError> {
    match scheme(place) {
        None => Ok(Arc::new(Files::open(place)?)),
        #[cfg(feature = "object")]
        Some("s3") => {
            let (settings, patience) = (Settings::from_environment(), Patience::default());
            Ok(Arc::new(Objects::open(
                &address(place)?,
                &settings,
                patience,
            )?))
        }
        Some(other) => Err(OpenError::Scheme(other.to_owned())),
    }
}

/// Opens a place for reading and removing; nothing is created or tried out.
pub fn existing(place: &Path) -> Result<Shared, OpenError> {
    match scheme(place) {
        None => Ok(Arc::new(Files::existing(place)?)),
        #[cfg(feature = "object")]
        Some("s3") => {
            let (settings, patience) = (Settings::from_environment(), Patience::default());
            Ok(Arc::new(Objects::existing(
                &address(place)?,
                &settings,
                patience,
            )?))
        }
        Some(other) => Err(OpenError::Scheme(other.to_owned())),
    }
}

#[cfg(feature = "object")]
fn address(place: &Path) -> Result<Address, BadAddress> {
    place.to_str().ok_or(BadAddress::Prefix)?.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let cases = [
            ("/data/run", None),
            ("run", None),
            ("s3://bucket/run", Some("s3")),
            ("gs://bucket", Some("gs")),
            ("a b://x", None),
            ("://x", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(scheme(Path::new(text)), wanted, "{text}");
        }
    }

    #[test]
    fn unknown_schemes_are_named() {
        for place in ["gs://bucket/run", "file:///run"] {
            let error = existing(Path::new(place)).unwrap_err().to_string();
            assert!(error.contains("is not supported"), "{error}");
            assert!(for_saving(Path::new(place)).is_err());
        }
        assert!(existing(Path::new("s3://x")).is_err());
    }
}
