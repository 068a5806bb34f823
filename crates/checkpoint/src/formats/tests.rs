//! Small checkpoints made by hand: read, compared, converted through every format, damaged.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};

use serde_json::{Map, json};
use trainyard_core::checkpoint::{Axis, Dtype, Entry, Layout, Policy, Region, Split, header};

use super::{
    convert::{Converted, Options, convert},
    diff::{Diff, diff},
    *,
};
use crate::{
    Files, Session, Store,
    clock::SystemClock,
    save::{Image, Limits, State},
};

/// The tensors of the tests: several types, a scalar, an empty one.
fn values() -> Vec<(&'static str, Dtype, Vec<u64>, Vec<u8>)> {
    let bytes = |count: u8| (0..count).collect::<Vec<u8>>();
    vec![
        ("model.w", Dtype::F32, vec![3, 4], bytes(48)),
        ("model.b", Dtype::BF16, vec![3], bytes(6)),
        ("model.f8", Dtype::F8_E4M3, vec![5], bytes(5)),
        ("model.u", Dtype::U16, vec![2, 1], bytes(4)),
        ("step", Dtype::I64, vec![], bytes(8)),
        ("empty", Dtype::F64, vec![0, 3], Vec::new()),
        ("mask", Dtype::BOOL, vec![2, 2], vec![0, 1, 1, 0]),
    ]
}

fn safetensors_file(path: &Path) {
    let mut header = Map::new();
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in values() {
        let start = data.len();
        data.extend(bytes);
        let value = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(name.into(), value);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend(data);
    fs::write(path, file).unwrap();
}

fn to(
    contents: Contents,
    source: &Path,
    target: &Path,
    format: Format,
) -> Result<Converted, FormatError> {
    let options = Options {
        to: format,
        max_shard_bytes: 40,
        step: 7,
        force: false,
    };
    convert(
        &Arc::new(contents),
        source,
        target,
        &options,
        &Arc::new(AtomicU64::new(0)),
    )
}

fn compared(a: &Path, b: &Path) -> Diff {
    let (a, b) = (open(a, None).unwrap(), open(b, None).unwrap());
    diff(&a, &b, &AtomicU64::new(0)).unwrap()
}

fn whole(contents: &Contents, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; bytes_of(contents.tensors[name].bytes())];
    contents.read(name, 0, &mut bytes).unwrap();
    bytes
}

/// A store of two ranks: `w` divided by columns, `b` by rows with an uneven end, `r` replicated.
fn store(root: &Path, fill: u8) {
    let files = Files::open(root).unwrap();
    let clock = SystemClock::start();
    let store =
        Arc::new(Store::create(Arc::new(files), Arc::clone(&clock), Some("run"), 1).unwrap());
    let id = store.fence(Some(1), "test", |_| None).unwrap();
    let mut workers = Vec::new();
    for rank in 0..2_u32 {
        let rows = if rank == 0 { 2 } else { 1 };
        let entry = |name: &str, dtype, shape: Vec<u64>, local: Vec<u64>, split, start| Entry {
            local,
            split,
            ..Entry::whole(name, dtype, shape, start)
        };
        let split = |dim| vec![Split { dim, axis: 0 }];
        let layout = Layout {
            version: 1,
            mesh: vec![Axis {
                name: "dp".into(),
                size: 2,
            }],
            tensors: vec![
                entry("w", Dtype::U8, vec![3, 4], vec![3, 2], split(1), 0),
                entry("b", Dtype::U8, vec![3, 2], vec![rows, 2], split(0), 6),
                entry("r", Dtype::U8, vec![2], vec![2], Vec::new(), 6 + rows * 2),
            ],
            other: Map::new(),
        };
        let mut image = header(&layout, &[rank], 0).unwrap();
        let data = image.len() as u64;
        // The value of an element of `w` is its number, plus `fill` for the last one.
        for row in 0..3_u8 {
            for column in 0..2_u8 {
                let number = row * 4 + u8::try_from(rank).unwrap() * 2 + column;
                image.push(if number == 11 { number + fill } else { number });
            }
        }
        let first = u8::try_from(rank).unwrap() * 4;
        image.extend((0..u8::try_from(rows * 2).unwrap()).map(|place| first + place));
        image.extend([8, 9]);
        let session = Session {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            id,
            rank,
            world: 2,
            limits: Limits {
                chunk_bytes: 4_096,
                ..Limits::default()
            },
            keep: Policy::default(),
        };
        let state =
            json!({"model": {"w": {"$tensor": "w"}}, "step": 3, "rate": {"$float": "1e-05"}});
        let state = State {
            images: vec![Image {
                source: Arc::new(image),
                data,
            }],
            layout: Some(layout),
            at: vec![rank],
            objects: Some(Map::from_iter([("state".to_owned(), state)])),
            ..State::default()
        };
        workers.push(std::thread::spawn(move || {
            session.save(3, &state).map(drop)
        }));
    }
    for worker in workers {
        worker.join().unwrap().unwrap();
    }
}

#[test]
fn every_format_has_the_same_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut last = at("a.safetensors");
    safetensors_file(&last);
    let steps = [
        ("b-dcp", Format::Dcp),
        ("c-ours", Format::Trainyard),
        ("d-hf", Format::Hf),
        ("e-ours", Format::Trainyard),
        ("f-dcp", Format::Dcp),
        ("g-dcp", Format::Dcp),
        ("h.safetensors", Format::Safetensors),
    ];
    for (name, format) in steps {
        let target = at(name);
        let converted = to(open(&last, None).unwrap(), &last, &target, format).unwrap();
        assert_eq!((converted.tensors, converted.bytes), (7, 75), "{name}");
        assert_eq!(open::format(&target).unwrap(), format);
        let contents = open(&target, None).unwrap();
        for (tensor, dtype, shape, bytes) in values() {
            let found = &contents.tensors[tensor];
            assert_eq!(
                (found.dtype, &found.shape),
                (dtype, &shape),
                "{name} {tensor}"
            );
            assert_eq!(whole(&contents, tensor), bytes, "{name} {tensor}");
        }
        assert!(compared(&at("a.safetensors"), &target).is_same(), "{name}");
        last = target;
    }
    // Shards of at most 40 bytes, unless a single tensor has more.
    let shards = fs::read_dir(at("d-hf")).unwrap().count();
    assert_eq!(shards, 4, "three shards and the index");
    // Nothing else is left.
    let names: Vec<PathBuf> = fs::read_dir(folder.path())
        .unwrap()
        .map(|one| one.unwrap().path())
        .collect();
    assert_eq!(names.len(), 8, "{names:?}");
}

#[test]
fn sharded_step_and_small_state() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    store(&one, 0);
    store(&two, 100);
    let contents = open(&one, Some("3")).unwrap();
    assert_eq!(whole(&contents, "w"), (0..12).collect::<Vec<u8>>());
    assert_eq!(whole(&contents, "b"), [0, 1, 2, 3, 4, 5]);
    assert_eq!(whole(&contents, "r"), [8, 9]);
    let mut part = [0; 5];
    contents.read("w", 3, &mut part).unwrap();
    assert_eq!(part, [3, 4, 5, 6, 7]);

    let found = compared(&one, &two);
    assert_eq!(found.differing.len(), 1);
    let (name, difference) = &found.differing[0];
    assert_eq!(
        (name.as_str(), difference.differing, difference.at),
        ("w", 1, 11)
    );
    assert_eq!((difference.max_abs, found.equal), (100.0, 2));
    let same = compared(&one, &one);
    assert!(same.is_same() && same.has_state);
    assert_eq!((same.equal, same.equal_by_checksum), (3, 3));

    // Small state goes through DCP and back.
    let dcp = folder.path().join("dcp");
    let converted = to(contents, &one, &dcp, Format::Dcp).unwrap();
    assert_eq!(converted.left_out.len(), 1, "{converted:?}");
    let back = open(&dcp, None).unwrap();
    let wanted = json!({"b": {"$tensor": "b"}, "model.w": {"$tensor": "w"}});
    let state = back.state.as_ref().unwrap();
    assert_eq!(state["step"], 3);
    assert_eq!(state["rate"], json!({"$float": "1e-5"}));
    assert_eq!(state["b"], wanted["b"]);
    let found = diff(&open(&one, None).unwrap(), &back, &AtomicU64::new(0)).unwrap();
    assert!(found.is_same() && found.has_state, "{found:?}");
    let safetensors = folder.path().join("s");
    let converted = to(
        open(&one, None).unwrap(),
        &one,
        &safetensors,
        Format::Safetensors,
    )
    .unwrap();
    assert!(
        converted.left_out[0].starts_with("small state"),
        "{converted:?}"
    );
    assert!(
        !diff(
            &back,
            &open(&safetensors, None).unwrap(),
            &AtomicU64::new(0)
        )
        .unwrap()
        .has_state
    );
}

#[test]
fn damaged_step_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    store(&root, 0);
    let contents = open(&root, None).unwrap();
    let path = PathBuf::from(&contents.files[1].name);
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 8;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    let mut buffer = [0; 12];
    let error = contents.read("w", 0, &mut buffer).unwrap_err();
    assert!(error.why.starts_with("it is damaged in chunk 1"), "{error}");
    // Nothing is left of a conversion that failed.
    let target = folder.path().join("target");
    assert!(to(contents, &root, &target, Format::Dcp).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn names_are_selected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    safetensors_file(&path);
    let mut contents = open(&path, None).unwrap();
    contents.select(Some("model."), Some("model.")).unwrap();
    let names: Vec<&str> = contents.tensors.keys().map(String::as_str).collect();
    assert_eq!(names, ["b", "f8", "u", "w"]);
    let mut contents = open(&path, None).unwrap();
    assert!(contents.select(None, Some("step")).is_err());
}

#[test]
fn existing_destination() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    safetensors_file(&at("a"));
    let mut options = Options {
        to: Format::Safetensors,
        max_shard_bytes: 1,
        step: 0,
        force: false,
    };
    let run = |target: &str, options: &Options| {
        let contents = Arc::new(open(&at("a"), None).unwrap());
        let done = Arc::new(AtomicU64::new(0));
        convert(&contents, &at("a"), &at(target), options, &done)
    };
    fs::write(at("notes"), "mine").unwrap();
    fs::create_dir(at("home")).unwrap();
    fs::write(at("home/notes"), "mine").unwrap();
    let why = run("notes", &options).unwrap_err().why;
    assert_eq!(why, "it exists already; `--force` replaces it");
    options.force = true;
    for target in ["notes", "home"] {
        let why = run(target, &options).unwrap_err().why;
        assert!(why.starts_with("it is not a checkpoint"), "{why}");
    }
    let why = run("a", &options).unwrap_err().why;
    assert!(why.starts_with("it is the source"), "{why}");
    run("b", &options).unwrap();
    options.to = Format::Dcp;
    run("b", &options).unwrap();
    assert!(compared(&at("a"), &at("b")).is_same());
    assert_eq!(fs::read(at("home/notes")).unwrap(), b"mine");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    assert!(run("missing/b", &options).is_err());
}

#[test]
fn bad_safetensors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let with = |header: &str, data: usize| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    };
    let cases = [
        (
            b"short".to_vec(),
            "it is not a safetensors file: it has fewer than 8 bytes",
        ),
        (
            u64::MAX.to_le_bytes().to_vec(),
            "it is not a safetensors file, or it is truncated",
        ),
        (with("[]", 0), "the header is not JSON"),
        (
            with(
                r#"{"w":{"dtype":"F7","shape":[1],"data_offsets":[0,4]}}"#,
                4,
            ),
            "tensor `w`: unknown type \"F7\"",
        ),
        (
            with(
                r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#,
                7,
            ),
            "tensor `w`: its bytes 0 to 8 do not fit",
        ),
        (
            with(
                r#"{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#,
                8,
            ),
            "tensor `w`: its bytes 0 to 8 do not fit",
        ),
        (
            with(
                r#"{"w":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,8]}}"#,
                8,
            ),
            "tensor `w`: its bytes 0 to 8 do not fit",
        ),
        (
            with(
                r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#,
                8,
            ),
            "tensor `w`: its bytes 8 to 0",
        ),
        (
            with(r#"{"w":{"dtype":"F32","shape":[2]}}"#, 8),
            "tensor `w`: it has no `data_offsets`",
        ),
    ];
    for (bytes, wanted) in cases {
        fs::write(&path, bytes).unwrap();
        let why = open(&path, None).unwrap_err().why;
        assert!(why.starts_with(wanted), "{why} / {wanted}");
    }
    let index = folder.path().join("hf");
    fs::create_dir(&index).unwrap();
    for (text, wanted) in [
        (
            r#"{"weight_map":{"w":"../a"}}"#,
            "the shard of `w` is not a file of the folder",
        ),
        (
            r#"{"weight_map":{"w":"missing"}}"#,
            "no such file or folder",
        ),
        ("{}", "it has no `weight_map`"),
        ("{", "it is not JSON"),
    ] {
        fs::write(index.join(hf::INDEX), text).unwrap();
        let why = open(&index, None).unwrap_err().why;
        assert!(why.starts_with(wanted), "{why}");
    }
    assert!(open(&folder.path().join("none"), None).unwrap_err().why == "no such file or folder");
    let why = open(folder.path(), None).unwrap_err().why;
    assert!(why.starts_with("unknown format"), "{why}");
}

/// Every byte of a DCP folder is cut off, and some are changed: an error or the same tensors, never a panic.
#[test]
fn bad_dcp() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    safetensors_file(&at("a"));
    to(
        open(&at("a"), None).unwrap(),
        &at("a"),
        &at("dcp"),
        Format::Dcp,
    )
    .unwrap();
    for name in [".metadata", "__0_0.distcp"] {
        let path = at("dcp").join(name);
        let good = fs::read(&path).unwrap();
        for length in (0..good.len()).step_by(37) {
            fs::write(&path, &good[..length]).unwrap();
            assert!(open(&at("dcp"), None).is_err(), "{name} {length}");
        }
        for place in (0..good.len()).step_by(11) {
            let mut bytes = good.clone();
            bytes[place] ^= 0xff;
            fs::write(&path, &bytes).unwrap();
            if let Ok(contents) = open(&at("dcp"), None) {
                for tensor in contents.tensors.keys() {
                    let mut bytes =
                        vec![0; bytes_of(contents.tensors[tensor].bytes().min(1 << 20))];
                    drop(contents.read(tensor, 0, &mut bytes));
                }
            }
        }
        fs::write(&path, &good).unwrap();
    }
    fs::remove_file(at("dcp/__0_0.distcp")).unwrap();
    assert_eq!(
        open(&at("dcp"), None).unwrap_err().why,
        "no such file or folder"
    );
}

#[test]
fn foreign_metadata() {
    let item = dcp::Written {
        name: "w".into(),
        tensor: Some((Dtype::F32, vec![2])),
        path: vec![tree::Key::Name("w".into())],
        start: 0,
        length: 1,
    };
    let bytes = |file: &str| {
        let items = [item.clone()];
        dcp::MetadataWriter {
            file,
            items: &items,
        }
        .bytes()
    };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(".metadata"), bytes("../secret")).unwrap();
    let why = open(folder.path(), None).unwrap_err().why;
    assert!(
        why.starts_with("`../secret` is not a file of the folder"),
        "{why}"
    );
    let read = dcp::Metadata::read(&bytes("f")).unwrap();
    assert_eq!(read.tensors["w"].chunks, [Region::whole(&[2])]);
    assert_eq!(read.paths["w"], [tree::Key::Name("w".into())]);
    for (pickle, wanted) in [
        (&b"\x80\x04}."[..], "an object of class Metadata is missing"),
        (b"\x80\x04cos\nsystem\n.", "the pickle names `os.system`"),
        (
            b"\x80\x04ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}b.",
            "the member `state_dict_metadata` is missing",
        ),
    ] {
        let why = dcp::Metadata::read(pickle).unwrap_err();
        assert!(why.starts_with(wanted), "{why}");
    }
}

#[test]
fn missing_and_overlapping_parts() {
    let part = |offset: u64, size: u64| Part {
        file: 0,
        start: 0,
        region: Region {
            offsets: vec![offset],
            sizes: vec![size],
        },
        strides: None,
    };
    let with = |parts: Vec<Part>| {
        let tensor = Tensor {
            dtype: Dtype::U8,
            shape: vec![4],
            parts,
        };
        let tensors = BTreeMap::from([("w".to_owned(), tensor)]);
        Contents::new(Format::Dcp, tensors, Vec::new()).map(drop)
    };
    assert!(with(vec![part(0, 2), part(1, 3)]).is_ok());
    let error = with(vec![part(0, 2)]).unwrap_err();
    assert_eq!(error.to_string(), "`w`: the part [2:4] is missing");
    assert_eq!(
        with(vec![part(0, 5)]).unwrap_err().why,
        "the part [0:5] is not inside it"
    );
}

/// An archive with a storage beyond 4 GiB, without writing one: only its directory is read.
#[test]
fn large_archive() {
    #[derive(Debug)]
    struct Sparse(Vec<u8>, u64, Vec<u8>);
    impl Input for Sparse {
        fn size(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64 + self.1 + self.2.len() as u64)
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            let (head, gap) = (self.0.len() as u64, self.1);
            for (at, byte) in (offset..).zip(buffer.iter_mut()) {
                *byte = if at < head {
                    self.0[bytes_of(at)]
                } else if at < head + gap {
                    0
                } else {
                    self.2[bytes_of(at - head - gap)]
                };
            }
            Ok(())
        }
    }
    let length = 5 << 30;
    let item = torch::Item::new(Dtype::U8, &[length], length);
    let head = item.head.clone();
    let file = Sparse(head.clone(), length, item.tail(1));
    let window = zip::Window {
        input: &file,
        start: 0,
        length: file.size().unwrap(),
    };
    let found = torch::tensor(&window).unwrap();
    assert_eq!(
        (found.start, found.shape),
        (head.len() as u64, vec![length])
    );
    assert!(found.start.is_multiple_of(64));
}
