//! Any bytes end in a file or in one finding, and any file in findings; the places of all of them
//! lie in the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trainyard_core::{
    finding::Finding,
    launch::{self, Cluster},
    lint, spec,
};

/// Larger jobs only make the same objects more often.
const MOST_PODS: u32 = 64;

fuzz_target!(|bytes: &[u8]| {
    let text = spec::source_text(bytes);
    match spec::read(bytes) {
        Err(finding) => placed(&finding, &text),
        Ok(file) => {
            for finding in lint::lint(&file) {
                placed(&finding, &file.text);
            }
            for document in &file.documents {
                let checked = spec::check(document);
                if let Some(job) = checked.job
                    && job.total_replicas() <= MOST_PODS
                {
                    launch::render(&job, &Cluster::default())
                        .expect("a job that passed the checks can be launched");
                }
            }
        }
    }
});

fn placed(finding: &Finding, text: &str) {
    let span = finding.span;
    assert!(span.line >= 1 && span.column >= 1, "{finding:?}");
    assert!(span.start <= span.end, "{finding:?}");
    assert!(span.start <= text.len(), "{finding:?}");
}
