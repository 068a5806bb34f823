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
    use crate::supervise::Fed;

    #[test]
    fn every_seed_is_read() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
        let mut count = 0;
        for entry in fs::read_dir(folder).unwrap() {
            feed(&fs::read(entry.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count > 20, "{count} seeds");
    }

    /// The seeds of frames are what they are named for, or a fuzzer starts from nothing.
    #[test]
    fn seeds_of_frames_are_decoded() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
        // File, whole frames, messages in them, whether the last is refused.
        let cases = [
            ("hello", 2, 2, false),
            ("command", 1, 1, false),
            ("signs", 1, 1, false),
            ("question", 1, 1, false),
            ("evidence", 1, 1, false),
            ("token", 1, 0, false),
            ("order", 1, 1, false),
            ("cut", 1, 1, false),
            ("not-json", 1, 0, false),
            ("unknown-kind", 1, 1, true),
            ("too-long", 0, 0, true),
        ];
        for (name, frames, messages, refused) in cases {
            let bytes = fs::read(folder.join(format!("frames-{name}.bin"))).unwrap();
            let want = Fed {
                frames,
                messages,
                refused,
            };
            assert_eq!(feed_frames(&bytes, bytes.len()), want, "{name}");
        }
    }
}
