//! Any bytes, cut anywhere, are a log: the doctor ends, and reports the same however they were cut.
#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use trainyard_core::diagnose::{Doctor, Report, Rules};

static RULES: OnceLock<Arc<Rules>> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    let rules = RULES.get_or_init(|| Arc::new(Rules::builtin()));
    let (cut, text) = match bytes.split_first() {
        Some((cut, text)) => (usize::from(*cut), text),
        None => return,
    };
    let whole = read(rules, &[text]);
    let (one, two) = text.split_at(cut.min(text.len()));
    let parts = read(rules, &[one, two]);
    assert_eq!(whole.facts.lines, parts.facts.lines);
    let labels = |report: &Report| -> Vec<String> {
        let verdicts = report.verdicts.iter();
        verdicts.map(|verdict| verdict.label.clone()).collect()
    };
    // Lines that are too long are cut where the bytes were.
    if text.split(|byte| *byte == b'\n').all(|line| line.len() < 8192) {
        assert_eq!(labels(&whole), labels(&parts));
    }
    for verdict in &whole.verdicts {
        for evidence in &verdict.evidence {
            assert!(evidence.line >= 1 && evidence.line <= whole.facts.lines);
        }
    }
});

fn read(rules: &Arc<Rules>, parts: &[&[u8]]) -> Report {
    let mut doctor = Doctor::new(Arc::clone(rules));
    let id = doctor.source("rank0.log");
    for part in parts {
        doctor.bytes(id, part);
    }
    doctor.finish()
}
