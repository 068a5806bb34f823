//! Any file can be reviewed and fixed; what is fixed can be read, is better than before, and cannot be
//! fixed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trainyard_core::{
    lint::{self, Profile},
    spec,
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
    }
});
