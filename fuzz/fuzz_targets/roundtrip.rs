//! What is read, written and read again is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trainyard_core::spec;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = spec::read(bytes) else {
        return;
    };
    for document in &file.documents {
        let first = document.tree.to_json();
        let text = spec::to_yaml(&first);
        let again = spec::read(text.as_bytes())
            .unwrap_or_else(|finding| panic!("cannot read what was written: {finding:?}\n{text}"));
        let values: Vec<_> = again.documents.iter().map(|document| document.tree.to_json()).collect();
        assert_eq!(values, [first], "{text}");
    }
});
