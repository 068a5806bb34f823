//! Checkpoints from somebody who wants to hang us or to fill our memory, and values that look alike.

use std::sync::atomic::Ordering;

use rustix::fs::{CWD, FileType, Mode};

use super::*;

/// Metadata that names one item of a file, as somebody may write it.
fn metadata(file: &str, path: Vec<tree::Key>) -> Vec<u8> {
    let items = [dcp::Written {
        name: "w".into(),
        tensor: Some((Dtype::F32, vec![2])),
        path,
        start: 0,
        length: 1,
    }];
    dcp::MetadataWriter {
        file,
        items: &items,
    }
    .bytes()
}

/// Nobody ever writes into the pipe: a reader that waits would hang.
#[test]
fn pipes_do_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = |path: &Path| {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    };
    let hf = folder.path().join("hf");
    fs::create_dir(&hf).unwrap();
    fs::write(hf.join(hf::INDEX), r#"{"weight_map":{"w":"shard"}}"#).unwrap();
    pipe(&hf.join("shard"));
    let dcp = folder.path().join("dcp");
    fs::create_dir(&dcp).unwrap();
    fs::write(
        dcp.join(dcp::METADATA),
        metadata("items", vec![tree::Key::Name("w".into())]),
    )
    .unwrap();
    pipe(&dcp.join("items"));
    for path in [&hf, &dcp] {
        assert_eq!(
            open(path, None).unwrap_err().why,
            "it is not a regular file"
        );
    }
    let shard = hf.join("shard");
    assert!(open::read_file(&shard, 10).is_err());
    assert!(Reopened(shard).read_at(0, &mut [0]).is_err());
}

#[test]
fn long_names_in_metadata() {
    let name = |length: usize| vec![tree::Key::Name("x".repeat(length))];
    let file = dcp::Metadata::read(&metadata(&"f".repeat(256), name(1)));
    assert_eq!(file.unwrap_err(), "a name has 256 bytes; expected 1 to 255");
    for (length, paths) in [(4_096, 1), (4_097, 0)] {
        let read = dcp::Metadata::read(&metadata("f", name(length))).unwrap();
        assert_eq!(read.paths.len(), paths, "{length}");
    }
}

/// Every second element of a matrix, so that each part opens new gaps.
#[test]
fn parts_with_many_gaps() {
    let side = 256;
    let cells =
        (0..side).flat_map(|row| (row % 2..side).step_by(2).map(move |column| (row, column)));
    let parts = cells.map(|(row, column)| Part {
        file: 0,
        start: 0,
        region: Region {
            offsets: vec![row, column],
            sizes: vec![1, 1],
        },
        strides: None,
    });
    let tensor = Tensor {
        dtype: Dtype::U8,
        shape: vec![side, side],
        parts: parts.collect(),
    };
    let tensors = BTreeMap::from([("w".to_owned(), tensor)]);
    let error = Contents::new(Format::Dcp, tensors, Vec::new()).unwrap_err();
    assert_eq!(error.why, "its parts leave too many gaps to compare");
}

/// Parts of an honest checkpoint are accepted in any order, however many there are.
#[test]
fn many_parts_in_any_order() {
    let (rows, columns) = (64, 256);
    let mut regions = Vec::new();
    for place in 0..rows * columns {
        // 5,003 has no factor in common with the number of parts, so each comes once.
        let place = place * 5_003 % (rows * columns);
        regions.push(Region {
            offsets: vec![place / columns * 2, place % columns * 3],
            sizes: vec![2, 3],
        });
    }
    let parts = regions.into_iter().map(|region| Part {
        file: 0,
        start: 0,
        region,
        strides: None,
    });
    let tensor = Tensor {
        dtype: Dtype::U8,
        shape: vec![rows * 2, columns * 3],
        parts: parts.collect(),
    };
    let tensors = BTreeMap::from([("w".to_owned(), tensor)]);
    Contents::new(Format::Dcp, tensors, Vec::new()).unwrap();
}

#[derive(Debug)]
struct Counted(Vec<u8>, AtomicU64);

impl Input for Counted {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.1.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.0.read_at(offset, buffer)
    }
}

/// Opening an item reads its directory, and not the 64 KiB that a comment could have. One with a comment is found all the same.
#[test]
fn items_are_opened_with_few_bytes() {
    let length = 200_000;
    let item = torch::Item::new(Dtype::U8, &[length], length);
    let mut bytes = item.head.clone();
    bytes.resize(bytes.len() + bytes_of(length), 7);
    bytes.extend(item.tail(1));
    let mut commented = bytes.clone();
    let last = commented.len() - 2;
    commented[last] = 100;
    commented.extend([b'c'; 100]);
    for (bytes, most) in [(bytes, 2_000), (commented, 70_000)] {
        let file = Counted(bytes, AtomicU64::new(0));
        let window = zip::Window {
            input: &file,
            start: 0,
            length: file.size().unwrap(),
        };
        assert_eq!(torch::tensor(&window).unwrap().shape, [length]);
        let read = file.1.load(Ordering::Relaxed);
        assert!(read < most, "{read} bytes were read");
    }
}

/// State that is nested too deep for DCP is named, and so is a tensor that has another name than its place.
#[test]
fn left_out_of_dcp_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    safetensors_file(&at("a"));
    let mut contents = open(&at("a"), None).unwrap();
    let mut deep = json!(1);
    for _ in 0..70 {
        deep = json!({"d": deep});
    }
    contents.state = Some(json!({
        "deep": deep, "step": {"$tensor": "step"}, "moved": {"$tensor": "mask"},
    }));
    let converted = to(contents, &at("a"), &at("dcp"), Format::Dcp).unwrap();
    let [moved, deep] = converted.left_out.as_slice() else {
        panic!("{converted:?}");
    };
    assert!(moved.contains("(first: `mask` at `moved`)"), "{moved}");
    assert!(
        deep.starts_with("1 values that are nested deeper than 64 levels (first: `deep.d."),
        "{deep}"
    );
}

#[test]
fn values_that_look_alike_differ() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    safetensors_file(&path);
    let with = |state: Value| {
        let mut contents = open(&path, None).unwrap();
        contents.state = Some(state);
        contents
    };
    let mut deep = [json!(1), json!(2)];
    for _ in 0..70 {
        deep = deep.map(|inner| json!({"d": inner}));
    }
    let [deep_one, deep_two] = deep;
    for (one, two, paths) in [
        (
            json!({"a.b": 1, "a": {"b": 2}}),
            json!({"a.b": 3, "a": {"b": 2}}),
            vec!["a\\.b"],
        ),
        (
            json!({"a.b": 1, "a": {"b": 2}}),
            json!({"a.b": 2, "a": {"b": 1}}),
            vec!["a.b", "a\\.b"],
        ),
        (
            json!({"x": {"$bytes": "eA=="}}),
            json!({"x": "eA=="}),
            vec!["x"],
        ),
        (
            json!({"x": {"$bytes": "eA=="}}),
            json!({"x": {"$opaque": "eA=="}}),
            vec!["x"],
        ),
        (json!({"x": {"$int": "5"}}), json!({"x": 5}), vec![]),
        (
            json!({"x": {"$float": "1e-05"}}),
            json!({"x": {"$float": "1e-5"}}),
            vec![],
        ),
    ] {
        let found = diff(&with(one), &with(two), &AtomicU64::new(0)).unwrap();
        let differing: Vec<&str> = found.state.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(differing, paths, "{found:?}");
    }
    let found = diff(&with(deep_one), &with(deep_two), &AtomicU64::new(0)).unwrap();
    assert_eq!(found.state.len(), 1, "below the deepest level, too");
}
