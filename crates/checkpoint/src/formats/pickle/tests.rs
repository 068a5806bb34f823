//! Pickles made by hand, good and bad.

use super::*;
use crate::formats::tree;

fn error(bytes: &[u8]) -> String {
    Pickle::read(bytes).unwrap_err()
}

#[test]
fn plain_values() {
    // {"a": [1, -5, 2**40, 1.5, None, True], "b": (b"x",)}, with a memo, frames and a text that is used twice.
    let mut bytes =
        b"\x80\x04\x95\x40\0\0\0\0\0\0\0}(\x8c\x01a\x94](K\x01J\xfb\xff\xff\xff".to_vec();
    bytes.extend(b"\x8a\x06\0\0\0\0\0\x01G\x3f\xf8\0\0\0\0\0\0N\x88h\0eX\x01\0\0\0bC\x01x\x85u.");
    let pickle = Pickle::read(&bytes).unwrap();
    let node = tree::node(&pickle).unwrap();
    let wanted = serde_json::json!({
        "a": [1, -5, 1_099_511_627_776_i64, {"$float": "1.5"}, null, true, "a"],
        "b": {"$tuple": [{"$bytes": "eA=="}]},
    });
    assert_eq!(node, wanted);
}

#[test]
fn written_values_are_read() {
    let node = serde_json::json!({
        "step": 5, "negative": -7, "large": 4_294_967_296_u64, "huge": {"$int": "-170141183460469231731687303715884105728"},
        "rate": {"$float": "0.0001"}, "inf": {"$float": "inf"}, "bytes": {"$bytes": "AAH/gA=="},
        "nested": [[], {}, {"$tuple": []}, {"$set": [1, 2]}, {"x": null, "y": [true, false]}],
        "keys": {"$dict": [[1, "one"], [{"$tuple": [1, 2]}, "two"]]},
        "complex": {"$complex": ["1.0", "-2.0"]},
    });
    for protocol in [2, 4] {
        let mut out = Writer::new(protocol);
        tree::write(&mut out, &node, MAX_DEPTH).unwrap();
        let pickle = Pickle::read(&out.finish()).unwrap();
        assert_eq!(tree::node(&pickle).unwrap(), node);
    }
}

#[test]
fn memo_beyond_256() {
    let texts: Vec<String> = (0..600).map(|number| format!("text {number}")).collect();
    let twice: Vec<&String> = texts.iter().chain(&texts).collect();
    let node = serde_json::json!(twice);
    let mut out = Writer::new(4);
    tree::write(&mut out, &node, MAX_DEPTH).unwrap();
    let bytes = out.finish();
    assert_eq!(tree::node(&Pickle::read(&bytes).unwrap()).unwrap(), node);
}

/// Every cut of a good pickle is an error and no panic.
#[test]
fn truncated() {
    let mut out = Writer::new(4);
    out.class("torch", "Size")
        .counts(&[1, 300, 70_000])
        .code(0x85)
        .code(b'R');
    let bytes = out.finish();
    assert!(Pickle::read(&bytes).is_ok());
    for length in 0..bytes.len() {
        assert_eq!(
            error(&bytes[..length]),
            "the pickle is truncated",
            "{length}"
        );
    }
}

#[test]
fn refused() {
    let cases: [(&[u8], &str); 14] = [
        (
            b"\x80\x04cos\nsystem\n.",
            "the pickle names `os.system`, which is not one of the classes of a checkpoint",
        ),
        (
            b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.",
            "the pickle names `builtins.eval`",
        ),
        (b"\x80\x06.", "pickle protocol 6 is not supported"),
        (
            b"\x80\x04i.",
            "unknown pickle instruction 0x69 (instruction at byte 2 of the pickle)",
        ),
        (
            b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.",
            "the pickle is truncated",
        ),
        (b"\x80\x04X\xff\xff\xff\xff.", "the pickle is truncated"),
        (b"\x80\x04\x8b\xff\xff\xff\xff.", "the pickle is truncated"),
        (b"\x80\x04.", "the stack of the pickle is empty"),
        (b"\x80\x04K\x01(a.", "the stack of the pickle is empty"),
        (b"\x80\x04t.", "a mark of the pickle is missing"),
        (
            b"\x80\x04K\x01K\x02a.",
            "something is added to what is not a list or a set",
        ),
        (b"\x80\x04}(K\x01u.", "a key has no value"),
        (
            b"\x80\x04Nr\xff\xff\xff\xff.",
            "value 4294967295 of the memo is set out of order",
        ),
        (
            b"\x80\x04K\x01)R.",
            "something is called that is not a class",
        ),
    ];
    for (bytes, wanted) in cases {
        let found = error(bytes);
        assert!(found.starts_with(wanted), "{found} / {wanted}");
    }
    assert!(error(b"\x80\x04h\x07.").starts_with("value 7 of the memo was never set"));
    assert!(error(b"\x80\x04\x8c\x01\xff.").starts_with("a text is not UTF-8"));
}

/// A list in itself, and lists that contain each other 2^60 times, end in a sentence.
#[test]
fn cycles_and_bombs() {
    let cycle = Pickle::read(b"\x80\x04]\x94h\0a.").unwrap();
    let why = tree::node(&cycle).unwrap_err();
    assert_eq!(why, "it is nested deeper than 64 levels");
    let mut bomb = b"\x80\x04]\x94".to_vec();
    for level in 0..60_u8 {
        bomb.extend([b']', 0x94, b'(', b'h', level, b'h', level, b'e']);
    }
    bomb.push(b'.');
    let why = tree::node(&Pickle::read(&bomb).unwrap()).unwrap_err();
    assert_eq!(why, "the pickle expands to many more values than it has");
}
