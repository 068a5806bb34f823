//! A 64-bit checksum (FNV-1a): detects torn files, different settings and different weights.
//!
//! It guards against accidents, not against forgery.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// A checksum in the making.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn new() -> Self {
        Self(OFFSET)
    }

    /// The checksum of `bytes` alone.
    pub(crate) fn of(bytes: &[u8]) -> u64 {
        Self::new().bytes(bytes).finish()
    }

    /// The checksum of `values`, bit for bit.
    pub(crate) fn of_values(values: &[f32]) -> u64 {
        let sum = values
            .iter()
            .fold(Self::new(), |sum, value| sum.bytes(&value.to_le_bytes()));
        sum.finish()
    }

    #[must_use]
    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(PRIME)
        }))
    }

    #[must_use]
    pub(crate) fn number(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    pub(crate) fn finish(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_published_vectors() {
        assert_eq!(Digest::of(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Digest::of(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Digest::of(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn digest_depends_on_every_bit() {
        assert_ne!(Digest::of_values(&[0.0]), Digest::of_values(&[-0.0]));
    }
}
