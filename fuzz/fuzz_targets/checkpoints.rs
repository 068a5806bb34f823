//! Any bytes are a pickle of torch, the metadata of a checkpoint, a zip archive of a tensor or the header of a safetensors file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| trainyard_checkpoint_engine::formats::feed(bytes));
