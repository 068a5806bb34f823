//! Any file can be reviewed and fixed; what is fixed can be read, is better than before, cannot be fixed
//! again, and means the same everywhere but at the places of the fixes.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use trainyard_core::{
    lint::{self, Profile},
    spec::{self, Node, Value},
};

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = spec::read(bytes) else { return };
    for profile in [None, Some(Profile::Demo), Some(Profile::Production)] {
        for finding in lint::review(&[&file], profile).concat() {
            assert!(finding.span.start <= finding.span.end, "{finding:?}");
            assert!(finding.span.start <= file.text.len(), "{finding:?}");
        }
    }
    if let Some(fixed) = lint::fix(&file, &[], None) {
        let after = spec::read(fixed.text.as_bytes()).expect("what is fixed can be read");
        assert_eq!(file.documents.len(), after.documents.len());
        assert!(!fixed.findings.is_empty());
        assert_eq!(lint::fix(&after, &[], None), None, "fixing twice is fixing once");
        // The text of an anchor is changed once, for all places that share it; paths name only the first.
        if !file.text.contains('*') {
            let places = fixed.findings.iter().map(|finding| finding.path.as_str());
            let places = Places(places.collect());
            for (before, after) in file.documents.iter().zip(&after.documents) {
                places.compare(&before.tree, &after.tree, "");
            }
        }
    }
});

/// The fields that were fixed.
struct Places<'a>(BTreeSet<&'a str>);

impl Places<'_> {
    /// Whether `path` was fixed, or lies in what was.
    fn cover(&self, path: &str) -> bool {
        self.0.iter().any(|place| {
            path.strip_prefix(place)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    /// Whether something right in `path` was fixed: an entry that was added, removed or split.
    fn cover_part_of(&self, path: &str) -> bool {
        self.0.iter().any(|place| {
            let rest = place.strip_prefix(path);
            rest.is_some_and(|rest| {
                let rest = rest.trim_start_matches('.');
                !rest.is_empty() && !rest.get(1..).unwrap_or_default().contains(['.', '['])
            })
        })
    }

    fn compare(&self, before: &Node, after: &Node, path: &str) {
        if self.cover(path) {
            return;
        }
        match (&before.value, &after.value) {
            (Value::Map(left), Value::Map(right)) => {
                for entry in left {
                    let path = join(path, &entry.key);
                    match right.iter().find(|other| other.key == entry.key) {
                        Some(other) => self.compare(&entry.value, &other.value, &path),
                        None => assert!(self.cover(&path) || self.cover_part_of(parent(&path)), "`{path}` is gone"),
                    }
                }
                for entry in right {
                    let is_new = left.iter().all(|other| other.key != entry.key);
                    assert!(!is_new || self.cover_part_of(path), "`{path}` has a new `{}`", entry.key);
                }
            }
            (Value::List(left), Value::List(right)) if left.len() == right.len() => {
                for (at, (left, right)) in left.iter().zip(right).enumerate() {
                    self.compare(left, right, &format!("{path}[{at}]"));
                }
            }
            (Value::List(left), Value::List(right)) => {
                let words = |list: &[Node]| -> Vec<String> {
                    let texts = list.iter().filter_map(Node::as_str);
                    texts.flat_map(|text| text.split_whitespace().map(str::to_owned)).collect()
                };
                assert!(self.cover_part_of(path), "`{path}` has other items");
                assert_eq!(words(left), words(right), "`{path}` has other words");
            }
            _ => assert_eq!(before.to_json(), after.to_json(), "`{path}` means something else"),
        }
    }
}

/// As findings write the path of a field.
fn join(path: &str, key: &str) -> String {
    if key.is_empty() || key.contains(['.', '/', '[', ']', ' ', '\n']) {
        format!("{path}[{key}]")
    } else if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

fn parent(path: &str) -> &str {
    path.rfind(['.', '[']).map_or("", |at| path.get(..at).unwrap_or_default())
}
