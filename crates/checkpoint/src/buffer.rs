//! Buffers that start at a multiple of the block size, as direct I/O needs them, without `unsafe`.

use std::ops::{Deref, DerefMut};

/// What direct I/O is aligned to: memory, offsets and lengths.
pub const BLOCK: usize = 4096;

/// Bytes at an address that is a multiple of [`BLOCK`].
///
/// The allocation has one block more than asked for, and the buffer begins at the first aligned address within it. The
/// allocation never grows, so it never moves.
#[derive(Debug)]
pub struct Aligned {
    store: Box<[u8]>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// A buffer of zeros.
    pub fn new(length: usize) -> Self {
        let store = vec![0; length + BLOCK].into_boxed_slice();
        // `align_offset` may give up and answer `usize::MAX`; the buffer is then only unaligned, which costs speed.
        let start = match store.as_ptr().align_offset(BLOCK) {
            start if start < BLOCK => start,
            _ => 0,
        };
        Self {
            store,
            start,
            length,
        }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.store[self.start..self.start + self.length]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.store[self.start..self.start + self.length]
    }
}

/// Whether the bytes begin at a multiple of [`BLOCK`].
pub fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_buffers() {
        for length in [0, 1, 511, BLOCK, BLOCK + 1, 1 << 20] {
            let mut buffer = Aligned::new(length);
            assert_eq!(buffer.len(), length);
            assert!(is_aligned(&buffer), "{length}");
            buffer.fill(7);
            assert!(buffer.iter().all(|byte| *byte == 7));
        }
    }
}
