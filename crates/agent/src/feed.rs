//! Any bytes given to what reads frames of a supervisor: what the fuzz target and a test of its seeds call.
//!
//! It is in the crate so that seeds are fed by an ordinary test as well, without a nightly compiler.

use crate::supervise::feed_frames;

/// Reads `bytes` as what a peer sends, whole and cut into pieces.
///
/// # Panics
///
/// Where a bound is not kept, or what is read depends on how the bytes are cut, which is what a fuzzer looks for.
pub fn feed(bytes: &[u8]) {
    let whole = feed_frames(bytes, bytes.len().max(1));
    for piece in [1, 3, 64] {
        // Byte by byte costs the square of the length.
        if piece * 4096 > bytes.len() {
            assert_eq!(feed_frames(bytes, piece), whole, "in pieces of {piece}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;

    #[test]
    fn every_seed_is_read() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
        let mut count = 0;
        for entry in fs::read_dir(folder).unwrap() {
            feed(&fs::read(entry.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count > 20, "{count} seeds");
        let frames: [&[u8]; 5] = [
            b"\0\0\0\x03H{}\0\0\0\x01Z",
            b"\0\0\0\x48G{\"job\":\"j\",\"attempt\":1,\"first\":0,\"count\":1,\"signs\":[{\"r\":0,\"output\":null}]}",
            b"\0\0\0\x2aQ{\"number\":1,\"attempt\":1,\"stacks\":true}   \0\0",
            b"\0\0\0\x05T1234\0\0\0\x05O{{{{",
            b"\xff\xff\xff\xffS",
        ];
        for frame in frames {
            feed(frame);
        }
    }
}
