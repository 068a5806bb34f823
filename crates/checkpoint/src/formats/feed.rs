//! Any bytes given to every reader of checkpoints of other programs: what the fuzz target and a test of its seeds call.

#[cfg(test)]
mod tests;

use super::{dcp, pickle, safetensors, torch, tree, zip};

/// Gives bytes from anybody to every reader. Nothing may panic.
pub fn feed(bytes: &[u8]) {
    if let Ok(pickle) = pickle::Pickle::read(bytes) {
        drop(tree::node(&pickle));
    }
    drop(dcp::Metadata::read(bytes));
    let file = bytes.to_vec();
    let window = zip::Window {
        input: &file,
        start: 0,
        length: bytes.len() as u64,
    };
    drop(torch::tensor(&window));
    drop(torch::object(&window));
    drop(safetensors::header(&file, 0));
    drop(safetensors::parse(bytes, 0, bytes.len() as u64, 0));
}
