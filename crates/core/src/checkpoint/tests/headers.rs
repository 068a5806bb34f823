//! The header of a shard, as a reader of safetensors sees it.

use serde_json::{Value, json};

use super::*;

fn layout() -> Layout {
    let entry = |name: &str, key: Option<&str>, start, within| Entry {
        name: name.into(),
        key: key.map(str::to_owned),
        dtype: Dtype::BF16,
        shape: vec![8, 3],
        local: vec![2, 3],
        within: Some(within),
        split: vec![Split { dim: 0, axis: 0 }],
        file: 0,
        shared: None,
        start,
    };
    let half = |offset| Region {
        offsets: vec![offset, 0],
        sizes: vec![4, 3],
    };
    Layout {
        version: VERSION,
        mesh: vec![Axis {
            name: "dp".into(),
            size: 2,
        }],
        tensors: vec![
            entry("w", None, 0, half(0)),
            entry("w", Some("w#1"), 12, half(4)),
        ],
        other: Other::new(),
    }
}

#[test]
fn header_is_safetensors() {
    let bytes = header(&layout(), &[1], 0).unwrap();
    assert_eq!(bytes.len(), 4_096);
    let (length, json) = bytes.split_at(8);
    assert_eq!(u64::from_le_bytes(length.try_into().unwrap()), 4_088);
    let value: Value = serde_json::from_slice(json).unwrap();
    assert_eq!(
        value["w#1"],
        json!({"dtype": "BF16", "shape": [2, 3], "data_offsets": [12, 24]})
    );
    let boxes = value["__metadata__"][BOXES_KEY].as_str().unwrap();
    let boxes: Value = serde_json::from_str(boxes).unwrap();
    assert_eq!(
        boxes,
        json!({
            "w": {"name": "w", "shape": [8, 3], "offsets": [2, 0]},
            "w#1": {"name": "w", "shape": [8, 3], "offsets": [6, 0]},
        })
    );
}

type Change = fn(&mut Layout);

#[test]
fn header_is_refused_with_a_reason() {
    let cases: [(Change, &str); 4] = [
        (
            |layout| layout.tensors[1].start = 13,
            "tensor `w#1` begins at byte 13, and the one before ends at 12",
        ),
        (
            |layout| layout.tensors[1].key = None,
            "the key `w` is taken",
        ),
        (
            |layout| layout.tensors[0].key = Some("__metadata__".into()),
            "the key `__metadata__` is taken",
        ),
        (
            |layout| layout.tensors[0].local = vec![1, 3],
            "tensor `w`: the layout stores [1, 3], and the coordinates give [2:4, 0:3]",
        ),
    ];
    for (change, sentence) in cases {
        let mut layout = layout();
        change(&mut layout);
        assert_eq!(header(&layout, &[1], 0).unwrap_err(), sentence);
    }
    assert_eq!(
        header(&layout(), &[2], 0).unwrap_err(),
        "coordinates [2] are not in the mesh of the layout"
    );
    // Nothing of this layout is in a second file.
    assert_eq!(header(&layout(), &[0], 1).unwrap().len(), 4_096);
}
