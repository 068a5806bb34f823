//! The seeds of the fuzz target: what they are, and that all of them are read.

use std::{fs, path::PathBuf};

use serde_json::json;
use trainyard_core::checkpoint::Dtype;

use super::*;
use crate::formats::pickle::{MAX_DEPTH, Pickle, Writer};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds")
}

fn small_state() -> Vec<u8> {
    let node = json!({
        "step": 5, "rate": {"$float": "0.5"}, "bytes": {"$bytes": "AAH/"}, "large": {"$int": "18446744073709551616"},
        "nested": [{"$tuple": [true, null]}, {"$set": [1]}, {"$dict": [[1, "one"]]}, {"$complex": ["1.0", "2.0"]}],
    });
    let mut out = Writer::new(2);
    tree::write(&mut out, &node, MAX_DEPTH).unwrap();
    out.finish()
}

fn tensor() -> Vec<u8> {
    let item = torch::Item::new(Dtype::F32, &[2, 3], 24);
    let mut bytes = item.head.clone();
    bytes.extend([1; 24]);
    bytes.extend(item.tail(crc32fast::hash(&[1; 24])));
    bytes
}

fn metadata() -> Vec<u8> {
    let name = |name: &str| tree::Key::Name(name.into());
    let items = [
        dcp::Written {
            name: "model.w".into(),
            tensor: Some((Dtype::F32, vec![2, 3])),
            path: vec![name("model"), name("w")],
            start: 0,
            length: 800,
        },
        dcp::Written {
            name: "step".into(),
            tensor: None,
            path: vec![name("step"), tree::Key::Place(0)],
            start: 800,
            length: 400,
        },
    ];
    dcp::MetadataWriter {
        file: "__0_0.distcp",
        items: &items,
    }
    .bytes()
}

fn safetensors_file() -> Vec<u8> {
    let header = br#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  "#;
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], header, &[1; 8]].concat()
}

/// The seeds by name.
fn made() -> [(&'static str, Vec<u8>); 5] {
    [
        ("checkpoints-metadata.bin", metadata()),
        ("checkpoints-object.bin", torch::object_item(&small_state())),
        ("checkpoints-pickle.bin", small_state()),
        ("checkpoints-safetensors.bin", safetensors_file()),
        ("checkpoints-tensor.bin", tensor()),
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

/// A seed that its reader refuses would start a fuzzer nowhere.
#[test]
fn seeds_are_what_their_names_say() {
    let seed = |name: &str| fs::read(folder().join(format!("checkpoints-{name}.bin"))).unwrap();
    let read = dcp::Metadata::read(&seed("metadata")).unwrap();
    assert_eq!(
        (read.tensors.len(), read.items.len(), read.paths.len()),
        (1, 2, 2)
    );
    let state = tree::node(&Pickle::read(&seed("pickle")).unwrap()).unwrap();
    assert_eq!(state["step"], 5);
    for name in ["object", "tensor"] {
        let file = seed(name);
        let window = zip::Window {
            input: &file,
            start: 0,
            length: file.len() as u64,
        };
        if name == "tensor" {
            assert_eq!(torch::tensor(&window).unwrap().shape, [2, 3]);
        } else {
            assert_eq!(torch::object(&window).unwrap(), state);
        }
    }
    let header = safetensors::header(&seed("safetensors"), 0).unwrap();
    assert_eq!(header["w"].shape, [2]);
}

#[test]
fn all_seeds_are_read() {
    let mut count = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        feed(&fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 20, "{count} seeds");
}

#[test]
fn spoilt_seeds_are_read() {
    for (_, seed) in made() {
        for place in 0..seed.len() {
            for value in [0, 0x7f, 0x80, 0xff] {
                let mut bytes = seed.clone();
                bytes[place] = value;
                feed(&bytes);
            }
            feed(&seed[..place]);
        }
    }
}
