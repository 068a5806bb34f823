//! Any bytes are what a peer sends to a supervisor: reading ends within its bounds, however they are cut.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| trainyard_agent::feed::feed(bytes));
