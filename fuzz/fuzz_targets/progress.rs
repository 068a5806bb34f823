//! Any bytes, cut anywhere, are the output of a program: the reader ends, and reads the same however they were cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trainyard_core::progress::{Reader, Reading};

fuzz_target!(|bytes: &[u8]| {
    let Some((size, text)) = bytes.split_first() else {
        return;
    };
    let size = usize::from(*size).max(1);
    assert_eq!(read(text, size), read(text, Reader::WINDOW));
});

fn read(text: &[u8], size: usize) -> String {
    let mut readings: Vec<Reading> = Vec::new();
    let mut reader = Reader::new();
    for piece in text.chunks(size) {
        reader.bytes(piece, |reading| readings.push(reading));
    }
    reader.end(|reading| readings.push(reading));
    // NaN does not equal itself; its text does.
    format!("{readings:?}")
}
