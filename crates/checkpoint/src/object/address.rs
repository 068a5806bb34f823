//! Where checkpoints are: `s3://bucket/prefix`.

use std::{fmt, str::FromStr};

use object_store::path::Path;

/// Longest address that is accepted; keys of S3 have at most 1,024 bytes, and our names below a root need about 100.
const MAX_BYTES: usize = 800;

/// A bucket and the prefix of a root in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    bucket: String,
    prefix: Path,
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// Another scheme.
    #[error("the address must begin with `s3://`")]
    Scheme,
    /// The bucket.
    #[error(
        "the bucket of `s3://bucket/prefix` must have 3 to 63 lower-case letters, digits, dots and hyphens"
    )]
    Bucket,
    /// The prefix.
    #[error(
        "the prefix of `s3://bucket/prefix` must have names of printable ASCII without `?` and `#`, and none that is empty, `.` or `..`"
    )]
    Prefix,
    /// Too long.
    #[error("the address has more than {MAX_BYTES} bytes")]
    Long,
}

impl Address {
    /// The bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The key of a name below the root; `None` for a name that leaves it.
    pub(super) fn key(&self, name: &str) -> Option<Path> {
        let is_plain = |part: &str| {
            !matches!(part, "" | "." | "..") && part.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if name.is_empty() {
            return Some(self.prefix.clone());
        }
        if !name.split('/').all(is_plain) {
            return None;
        }
        let text = match self.prefix.as_ref() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        };
        Path::parse(text).ok()
    }

    /// The beginning of all keys below a folder.
    pub(super) fn below(&self, folder: &str) -> Option<String> {
        let key = self.key(folder)?;
        Some(match key.as_ref() {
            "" => String::new(),
            key => format!("{key}/"),
        })
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        if text.len() > MAX_BYTES {
            return Err(BadAddress::Long);
        }
        let rest = text.strip_prefix("s3://").ok_or(BadAddress::Scheme)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_letter = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-')
        };
        let ends_well = |end: Option<u8>| end.is_some_and(|byte| byte.is_ascii_alphanumeric());
        let is_bucket = (3..=63).contains(&bucket.len())
            && bucket.bytes().all(is_letter)
            && ends_well(bucket.bytes().next())
            && ends_well(bucket.bytes().last());
        if !is_bucket {
            return Err(BadAddress::Bucket);
        }
        let is_part = |part: &str| {
            !matches!(part, "" | "." | "..")
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'\\'))
        };
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if !prefix.is_empty() && !prefix.split('/').all(is_part) {
            return Err(BadAddress::Prefix);
        }
        Ok(Self {
            bucket: bucket.to_owned(),
            prefix: Path::parse(prefix).map_err(|_| BadAddress::Prefix)?,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "s3://{}", self.bucket)?;
        match self.prefix.as_ref() {
            "" => Ok(()),
            prefix => write!(out, "/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let cases = [
            ("s3://abc", Ok("s3://abc")),
            ("s3://abc/", Ok("s3://abc")),
            ("s3://my.bucket-1/runs/7/", Ok("s3://my.bucket-1/runs/7")),
            ("gs://abc", Err(BadAddress::Scheme)),
            ("s3://ab", Err(BadAddress::Bucket)),
            ("s3://Abc", Err(BadAddress::Bucket)),
            ("s3://-abc", Err(BadAddress::Bucket)),
            ("s3://key:secret@abc/x", Err(BadAddress::Bucket)),
            ("s3://abc//x", Err(BadAddress::Prefix)),
            ("s3://abc/../x", Err(BadAddress::Prefix)),
            ("s3://abc/x?versionId=1", Err(BadAddress::Prefix)),
            ("s3://abc/a b", Err(BadAddress::Prefix)),
        ];
        for (text, wanted) in cases {
            let found = text.parse::<Address>().map(|address| address.to_string());
            assert_eq!(found, wanted.map(str::to_owned), "{text}");
        }
        let long = format!("s3://abc/{}", "x".repeat(MAX_BYTES));
        assert_eq!(long.parse::<Address>(), Err(BadAddress::Long));
    }

    #[test]
    fn keys_stay_below_the_root() {
        let root: Address = "s3://abc/run".parse().unwrap();
        let key = |name: &str| root.key(name).map(|key| key.to_string());
        assert_eq!(key("steps/1").as_deref(), Some("run/steps/1"));
        assert_eq!(key("").as_deref(), Some("run"));
        for bad in ["../x", "a//b", "a/./b", "a\nb", "/a"] {
            assert_eq!(key(bad), None, "{bad}");
        }
        assert_eq!(root.below("").as_deref(), Some("run/"));
        let whole: Address = "s3://abc".parse().unwrap();
        assert_eq!(whole.below("").as_deref(), Some(""));
        assert_eq!(whole.below("steps").as_deref(), Some("steps/"));
    }
}
