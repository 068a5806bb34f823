//! Compressed logs and traces: what they expand to is bounded.
//!
//! A few MB can expand to terabytes. Reading costs time in proportion to what comes out, so that is bounded for each
//! file, and what comes out beyond any honest ratio is bounded for the whole call: 100,000 such files in a folder cost no
//! more than one.

use std::{
    cell::Cell,
    error::Error,
    fmt,
    io::{self, Read},
    sync::atomic::{AtomicU64, Ordering},
};

/// Bounds on what is read of compressed files.
#[derive(Debug)]
pub(super) struct Bounds {
    /// The most that one file expands to.
    pub(super) most: u64,
    /// How many bytes come of one, in logs: repetitive ones reach a hundred.
    pub(super) ratio: u64,
    /// Bytes beyond that ratio that are still read, in all files together. A log that was cut while it was written
    /// begins with a hole of this kind.
    pub(super) beyond: AtomicU64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            most: 16 << 30,
            ratio: 256,
            beyond: AtomicU64::new(4 << 30),
        }
    }
}

impl Bounds {
    /// Takes `bytes` of what may be read beyond the ratio.
    fn charge(&self, bytes: u64) -> bool {
        let take = |left: u64| left.checked_sub(bytes);
        self.beyond
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    }
}

/// Why the rest of a file was not read.
#[derive(Debug)]
pub(super) struct TooLarge {
    read: u64,
    written: u64,
    most: u64,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            read,
            written,
            most,
        } = self;
        if written > most {
            write!(
                f,
                "it expands to more than {} GiB; the rest was not read",
                most >> 30
            )
        } else {
            write!(
                f,
                "its first {} KiB expand {} times, to {} MiB; the rest was not read",
                (read >> 10).max(1),
                written / (*read).max(1),
                written >> 20
            )
        }
    }
}

impl Error for TooLarge {}

/// The bound that an error is about, where it is about one.
pub(super) fn too_large(error: &io::Error) -> Option<&TooLarge> {
    error.get_ref()?.downcast_ref()
}

/// Counts what is read of the compressed file.
pub(super) struct Counted<'a, R> {
    pub(super) inner: R,
    pub(super) count: &'a Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count.set(self.count.get() + count as u64);
        Ok(count)
    }
}

/// What comes out of a decoder, as long as that is within bounds.
pub(super) struct Expanded<'a, R> {
    decoder: R,
    read: &'a Cell<u64>,
    bounds: &'a Bounds,
    written: u64,
    charged: u64,
}

impl<'a, R> Expanded<'a, R> {
    /// `read` is how much the decoder has taken.
    pub(super) fn new(decoder: R, read: &'a Cell<u64>, bounds: &'a Bounds) -> Self {
        Self {
            decoder,
            read,
            bounds,
            written: 0,
            charged: 0,
        }
    }
}

impl<R: Read> Read for Expanded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(buffer)?;
        self.written += count as u64;
        let bounds = self.bounds;
        let expected = self.read.get().saturating_mul(bounds.ratio);
        let beyond = self.written.saturating_sub(expected);
        let more = beyond.saturating_sub(self.charged);
        if self.written > bounds.most || (more > 0 && !bounds.charge(more)) {
            return Err(io::Error::other(TooLarge {
                read: self.read.get(),
                written: self.written,
                most: bounds.most,
            }));
        }
        self.charged += more;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(most: u64, ratio: u64, beyond: u64) -> Bounds {
        Bounds {
            most,
            ratio,
            beyond: beyond.into(),
        }
    }

    /// Reads `length` bytes that come of `read`.
    fn expand(length: u64, read: u64, bounds: &Bounds) -> Result<u64, String> {
        let read = Cell::new(read);
        let mut expanded = Expanded::new(io::repeat(b'x').take(length), &read, bounds);
        let count = io::copy(&mut expanded, &mut io::sink());
        count.map_err(|error| too_large(&error).expect("it is about a bound").to_string())
    }

    #[test]
    fn what_comes_out_is_bounded() {
        let own = bounds(1 << 30, 100, 1 << 20);
        assert_eq!(expand(100_000, 1_000, &own), Ok(100_000), "an honest ratio");
        assert_eq!(own.beyond.load(Ordering::Relaxed), 1 << 20, "costs nothing");
        assert_eq!(expand(1 << 20, 0, &own), Ok(1 << 20), "up to the bound");
        let error = expand(200_000, 1_024, &own).unwrap_err();
        assert!(error.starts_with("its first 1 KiB expand 1"), "{error}");
        assert!(error.ends_with("the rest was not read"), "{error}");
        assert_eq!(expand(100_000, 1_000, &own), Ok(100_000), "others are read");

        let most = bounds(1 << 20, 1_000_000, 0);
        assert_eq!(expand(1 << 20, 1_000, &most), Ok(1 << 20));
        let error = expand((1 << 20) + 1, 1_000, &most).unwrap_err();
        assert!(error.starts_with("it expands to more than"), "{error}");
    }

    #[test]
    fn a_folder_of_bombs_costs_no_more_than_one() {
        let bounds = bounds(1 << 40, 100, 1 << 20);
        let mut read = 0;
        for _ in 0..1_000 {
            read += expand(1 << 20, 0, &bounds).unwrap_or_default();
        }
        assert!(read <= 1 << 20, "{read}");
    }
}
