//! How the JSON files of a store are written, and how files from anybody are read.
//!
//! Every file is version 1 and sealed ([`mod@super::sealed`]). A file of a newer version is refused before its members are looked at.
//! Sizes are bounded, and a value that cannot be true is one sentence ([`ManifestError`]).

use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use thiserror::Error;

use super::{
    limits::MAX_TEXT,
    sealed::{Crc32c, SealError, open, seal},
};

/// The version that is written, and the newest one that is read.
pub const VERSION: u64 = 1;

/// Why a file was refused. The caller names the file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ManifestError {
    /// More bytes than any valid file of its kind has.
    #[error("the file has {bytes} bytes, and at most {limit} are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit of its kind.
        limit: usize,
    },
    /// Truncated, damaged or foreign.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A newer trainyard wrote it. It must not be overwritten or removed.
    #[error(
        "the file has format version {found}, and this trainyard reads version {VERSION}; use the newer trainyard that wrote it"
    )]
    Newer {
        /// Its version.
        found: u64,
    },
    /// Sealed, but not what its kind must hold.
    #[error("{0}")]
    Invalid(String),
}

/// A file that was read: what it says and the checksum that others know it by.
#[derive(Clone, Debug, PartialEq)]
pub struct Sealed<D> {
    /// What it says.
    pub document: D,
    /// The checksum at its end.
    pub crc32c: Crc32c,
    /// Its size.
    pub bytes: u64,
}

/// One kind of file.
pub trait Document: Serialize + DeserializeOwned {
    /// The most bytes that are read of one.
    const MAX_BYTES: usize;

    /// The first value that cannot be true, as a sentence.
    fn check(&self) -> Result<(), String>;
}

/// The bytes of a file, or why it must not be written.
pub fn encode<D: Document>(document: &D) -> Result<Vec<u8>, ManifestError> {
    document.check().map_err(ManifestError::Invalid)?;
    let object = serde_json::to_vec(document).map_err(|error| invalid(&error))?;
    let bytes = seal(object)?;
    within::<D>(&bytes)?;
    Ok(bytes)
}

/// A document with the checksum and size that its file will have.
pub fn sealed<D: Document>(document: D) -> Result<Sealed<D>, ManifestError> {
    let bytes = encode(&document)?;
    let (_, crc32c) = open(&bytes)?;
    Ok(Sealed {
        document,
        crc32c,
        bytes: bytes.len() as u64,
    })
}

/// What the bytes of a file say.
pub fn decode<D: Document>(bytes: &[u8]) -> Result<Sealed<D>, ManifestError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u64,
        crc32c: Option<IgnoredAny>,
    }
    within::<D>(bytes)?;
    let (object, crc32c) = open(bytes)?;
    let head: Versioned = serde_json::from_slice(&object).map_err(|error| invalid(&error))?;
    if head.version > VERSION {
        return Err(ManifestError::Newer {
            found: head.version,
        });
    }
    if head.crc32c.is_some() {
        let twice = "the member `crc32c` is there twice";
        return Err(ManifestError::Invalid(twice.into()));
    }
    if head.version == 0 {
        return Err(ManifestError::Invalid("version 0 does not exist".into()));
    }
    let document: D = serde_json::from_slice(&object).map_err(|error| invalid(&error))?;
    document.check().map_err(ManifestError::Invalid)?;
    Ok(Sealed {
        document,
        crc32c,
        bytes: bytes.len() as u64,
    })
}

fn within<D: Document>(bytes: &[u8]) -> Result<(), ManifestError> {
    if bytes.len() > D::MAX_BYTES {
        return Err(ManifestError::TooLarge {
            bytes: bytes.len(),
            limit: D::MAX_BYTES,
        });
    }
    Ok(())
}

fn invalid(error: &serde_json::Error) -> ManifestError {
    let text: String = error.to_string().chars().take(MAX_TEXT).collect();
    ManifestError::Invalid(format!("the file is not what it should be: {text}"))
}
