//! ELF files made by hand, and the ones of this machine.

use super::*;
use crate::memory::{Blob, FileMemory};

/// A file of 64-bit headers: one loaded segment, a section of names, `.dynsym` with `_PyRuntime`, and `.PyRuntime`.
pub(crate) fn sample() -> Vec<u8> {
    let names = b"\0.PyRuntime\0_PyRuntime\0other\0";
    let mut bytes = vec![0u8; 64];
    bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    let put = |bytes: &mut Vec<u8>, at: usize, value: &[u8]| {
        bytes[at..at + value.len()].copy_from_slice(value);
    };
    let segments_at = 64u64;
    let names_at = segments_at + 56;
    let symbols_at = names_at + names.len() as u64;
    let sections_at = symbols_at + 3 * 24;
    put(&mut bytes, 32, &segments_at.to_le_bytes());
    put(&mut bytes, 40, &sections_at.to_le_bytes());
    for (at, value) in [(54, 56u16), (56, 1), (58, 64), (60, 4), (62, 1)] {
        put(&mut bytes, at, &value.to_le_bytes());
    }
    let mut segment = vec![0u8; 56];
    put(&mut segment, 0, &1u32.to_le_bytes());
    put(&mut segment, 16, &0x40_0000u64.to_le_bytes());
    bytes.extend(segment);
    bytes.extend(names);
    let symbol = |name: u32, defined_in: u16, address: u64| {
        let mut row = vec![0u8; 24];
        row[..4].copy_from_slice(&name.to_le_bytes());
        row[6..8].copy_from_slice(&defined_in.to_le_bytes());
        row[8..16].copy_from_slice(&address.to_le_bytes());
        row
    };
    bytes.extend(symbol(12, 0, 0x1));
    bytes.extend(symbol(23, 3, 0x40_2000));
    bytes.extend(symbol(12, 3, 0x40_1000));
    let section = |name: u32, kind: u32, address: u64, offset: u64, size: u64, link: u32| {
        let mut row = vec![0u8; 64];
        row[..4].copy_from_slice(&name.to_le_bytes());
        row[4..8].copy_from_slice(&kind.to_le_bytes());
        row[16..24].copy_from_slice(&address.to_le_bytes());
        row[24..32].copy_from_slice(&offset.to_le_bytes());
        row[32..40].copy_from_slice(&size.to_le_bytes());
        row[40..44].copy_from_slice(&link.to_le_bytes());
        row
    };
    bytes.extend(section(0, 0, 0, 0, 0, 0));
    bytes.extend(section(0, 3, 0, names_at, names.len() as u64, 0));
    bytes.extend(section(0, 11, 0, symbols_at, 72, 1));
    bytes.extend(section(1, 1, 0x40_3000, 0, 0, 0));
    bytes
}

fn blob(bytes: Vec<u8>) -> Blob {
    Blob { base: 0, bytes }
}

#[test]
fn symbols_sections_and_bias() {
    let file = blob(sample());
    let elf = Elf::read(&file).unwrap();
    let symbols = elf
        .symbols(&file, &["_PyRuntime", "other", "absent"])
        .unwrap();
    assert_eq!(
        symbols.get("_PyRuntime"),
        Some(&0x40_1000),
        "the defined one"
    );
    assert_eq!(symbols.get("other"), Some(&0x40_2000));
    assert_eq!(symbols.get("absent"), None);
    assert_eq!(elf.section(".PyRuntime"), Some(0x40_3000));
    assert_eq!(elf.section(".text"), None);
    assert_eq!(elf.bias(0x40_0000), Some(0), "not position independent");
    assert_eq!(elf.bias(0x7f00_0040_0000), Some(0x7f00_0000_0000));
}

#[test]
fn refused_files() {
    let with = |at: usize, value: &[u8]| {
        let mut bytes = sample();
        bytes[at..at + value.len()].copy_from_slice(value);
        Elf::read(&blob(bytes)).err()
    };
    let outside = Some(ElfError::Outside(Fault::Unmapped));
    assert_eq!(with(0, b"#!/b"), Some(ElfError::Form), "a script");
    assert_eq!(with(4, &[1]), Some(ElfError::Form), "32 bits");
    assert_eq!(with(5, &[2]), Some(ElfError::Form), "big endian");
    assert_eq!(
        with(54, &[1, 0]),
        Some(ElfError::Form),
        "small program headers"
    );
    assert_eq!(
        with(58, &[0, 0]),
        Some(ElfError::Form),
        "small section headers"
    );
    assert_eq!(
        with(60, &[0xff, 0xff]),
        Some(ElfError::TooLarge),
        "many sections"
    );
    assert_eq!(
        with(40, &[0xff; 8]),
        outside,
        "sections outside of the file"
    );
    assert_eq!(
        with(32, &[0xff; 8]),
        outside,
        "segments outside of the file"
    );
}

#[test]
fn every_cut_file_is_an_error_or_a_file() {
    let whole = sample();
    let mut read = 0;
    for length in 0..=whole.len() {
        let file = blob(whole[..length].to_vec());
        if let Ok(elf) = Elf::read(&file) {
            elf.symbols(&file, &["_PyRuntime"]).unwrap();
            read += 1;
        }
    }
    assert_eq!(
        read, 1,
        "the section headers are last, so only the whole file is one"
    );
}

#[test]
fn this_program_has_no_python() {
    let file = FileMemory(std::fs::File::open("/proc/self/exe").unwrap());
    let elf = Elf::read(&file).unwrap();
    assert!(elf.symbols(&file, &["_PyRuntime"]).unwrap().is_empty());
    assert!(elf.section(".text").is_some());
    assert!(elf.bias(0x1000).is_some());
}
