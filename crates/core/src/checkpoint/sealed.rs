//! The checksum at the end of every JSON file: found at once if a file is truncated, torn or changed.
//!
//! A sealed file is a JSON object whose last member is `"crc32c":"9d21abcd"`, the CRC-32C of all bytes before the comma in front of it,
//! and a line feed. The end has a fixed length, so the checksum is verified before anything is parsed.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A CRC-32C, written as 8 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Crc32c(pub u32);

impl Crc32c {
    /// The checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(crc32c::crc32c(bytes))
    }
}

impl fmt::Display for Crc32c {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:08x}", self.0)
    }
}

impl FromStr for Crc32c {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u32::from_str_radix(text, 16)
            .ok()
            .map(Self)
            .filter(|crc| crc.to_string() == text)
            .ok_or("a checksum must be 8 lower-case hexadecimal digits")
    }
}

impl TryFrom<String> for Crc32c {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Crc32c> for String {
    fn from(crc: Crc32c) -> Self {
        crc.to_string()
    }
}

/// Why bytes are not a sealed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SealError {
    /// Nothing in it.
    #[error("the file is empty")]
    Empty,
    /// The end is not the member `crc32c`.
    #[error(
        "the file is truncated or was not written by trainyard: it does not end with the member `crc32c`"
    )]
    NoSeal,
    /// The bytes are not those that were written.
    #[error("the file is damaged: its checksum is {computed}, and {stored} was recorded")]
    Checksum {
        /// What the file says.
        stored: Crc32c,
        /// What its bytes give.
        computed: Crc32c,
    },
    /// There is no JSON object to seal.
    #[error("only a JSON object with at least one member can be sealed")]
    NotAnObject,
}

const OPENING: &[u8] = b",\"crc32c\":\"";
const CLOSING: &[u8] = b"\"}\n";
const TAIL: usize = OPENING.len() + 8 + CLOSING.len();

/// `object` with its checksum as the last member. It must end with `}`, without white space behind it.
pub fn seal(mut object: Vec<u8>) -> Result<Vec<u8>, SealError> {
    if object.len() < 3 || object.first() != Some(&b'{') || object.pop() != Some(b'}') {
        return Err(SealError::NotAnObject);
    }
    let crc = Crc32c::of(&object);
    object.extend_from_slice(OPENING);
    object.extend_from_slice(crc.to_string().as_bytes());
    object.extend_from_slice(CLOSING);
    Ok(object)
}

/// The object that was sealed, and its checksum.
pub fn open(sealed: &[u8]) -> Result<(Vec<u8>, Crc32c), SealError> {
    if sealed.is_empty() {
        return Err(SealError::Empty);
    }
    let body = sealed.len().checked_sub(TAIL).ok_or(SealError::NoSeal)?;
    let (body, tail) = sealed.split_at(body);
    let stored = tail
        .strip_prefix(OPENING)
        .and_then(|rest| rest.strip_suffix(CLOSING))
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse::<Crc32c>().ok())
        .ok_or(SealError::NoSeal)?;
    let computed = Crc32c::of(body);
    if stored != computed {
        return Err(SealError::Checksum { stored, computed });
    }
    let mut object = body.to_vec();
    object.push(b'}');
    Ok((object, stored))
}
