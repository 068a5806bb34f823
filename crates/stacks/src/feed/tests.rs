//! The seeds of the fuzz target: what they are, and that all of them are read.

use std::{fs, path::PathBuf};

use super::*;
use crate::{elf, python};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds")
}

/// The seeds that are made here, by name.
fn made() -> Vec<(&'static str, Vec<u8>)> {
    let with = |head: &[u8], bytes: &[u8]| [head, bytes].concat();
    vec![
        ("stacks-elf.bin", with(&[0], &elf::sample())),
        (
            "stacks-lines.bin",
            vec![1, 10, 1, 0xd9, 0, 5, 0xf0, 0x42, 1, 0, 1, 1, 0xf8, 0xe8, 7],
        ),
        (
            "stacks-maps.bin",
            with(&[2], b"7f00-7f10 r--p 00000000 fe:01 9 /a b\n"),
        ),
        (
            "stacks-stat.bin",
            with(
                &[3],
                b"4 (a) b) S 1 7 7 0 -1 0 1 2 3 4 150 25 0 0 20 0 9 0 77001 1\0RANK=3\0",
            ),
        ),
        (
            "stacks-python-3.12.bin",
            with(&[4, 3], &python::sample().bytes),
        ),
        (
            "stacks-python-3.14.bin",
            with(&[5], &python::sample_described().bytes),
        ),
    ]
}

#[test]
fn made_seeds_are_committed() {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test has no cli that could pass it"
    )]
    let update = std::env::var("UPDATE").is_ok();
    for (name, bytes) in made() {
        let path = folder().join(name);
        if update {
            fs::write(&path, &bytes).unwrap();
        }
        assert_eq!(
            fs::read(&path).ok(),
            Some(bytes),
            "`fuzz/seeds/{name}` differs; run with UPDATE=1"
        );
    }
}

/// A seed that is refused at its first byte would start a fuzzer nowhere.
#[test]
fn python_seeds_hold_a_stack() {
    let layouts = [
        (python::sample(), Layout::known((3, 12)).unwrap()),
        (python::sample_described(), {
            let memory = python::sample_described();
            let start = Reads::new(&memory, 1)
                .window(BASE, DESCRIPTION_SIZE)
                .unwrap();
            Layout::described(&start).unwrap()
        }),
    ];
    for (memory, layout) in layouts {
        let runtime = Runtime {
            address: BASE,
            layout,
            types: Types::default(),
        };
        let stacks = runtime.stacks(&memory).unwrap();
        let functions: Vec<&str> = stacks[0]
            .frames
            .iter()
            .map(|frame| frame.function.as_str())
            .collect();
        assert_eq!(functions, ["Trainer.step", "main"]);
        assert!(!stacks[0].torn);
    }
}

#[test]
fn all_seeds_are_read() {
    let mut count = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        feed(&bytes);
        // Those of the other targets too, as each kind.
        for kind in 0..6 {
            feed(&[&[kind], bytes.as_slice()].concat());
        }
        count += 1;
    }
    assert!(count > 10, "{count} seeds");
}

#[test]
fn spoilt_seeds_are_read() {
    for (_, seed) in made() {
        for index in 0..seed.len() {
            for value in [0, 0x7f, 0x80, 0xff] {
                let mut bytes = seed.clone();
                bytes[index] = value;
                feed(&bytes);
            }
            // Every length, up to where a large one takes long.
            feed(&seed[..index]);
        }
    }
}
