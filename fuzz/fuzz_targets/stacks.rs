//! Any bytes are an ELF file, a table of lines, a file of `/proc` or the memory of a Python: each reader ends within its bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| trainyard_stacks::feed::feed(bytes));
