//! The manifests of `testdata/lint` that prove the rules, for tests.

use std::path::{Path, PathBuf};

use super::advice;

/// Four pods of eight GPUs, with a claim and a secondary network.
pub(crate) const PYTORCH: &str = include_str!("../../../../testdata/lint/base/pytorch.yaml");
/// Two to four workers of four GPUs, without a master.
pub(crate) const ELASTIC: &str = include_str!("../../../../testdata/lint/base/elastic.yaml");
/// A launcher and two workers of eight GPUs.
pub(crate) const MPI: &str = include_str!("../../../../testdata/lint/base/mpi.yaml");

/// One manifest of a rule.
#[derive(Debug)]
pub(crate) struct Example {
    /// The rule.
    pub(crate) code: &'static str,
    /// Whether the rule must find something in it.
    pub(crate) caught: bool,
    /// The file, below `testdata/lint`.
    pub(crate) file: String,
    /// Its content.
    pub(crate) text: String,
}

/// Every manifest of every rule that looks at jobs, and a sentence for each file that is missing.
#[expect(
    clippy::disallowed_methods,
    reason = "a test reads its data; nothing of the library does"
)]
pub(super) fn read() -> (Vec<Example>, Vec<String>) {
    let (mut examples, mut missing) = (Vec::new(), Vec::new());
    for advice in advice::all() {
        let code = advice.rule.code;
        for (what, caught, sentence) in [
            ("catches", true, "a job that the rule must find"),
            ("spares", false, "a near miss that it must not find"),
        ] {
            let before = examples.len();
            for name in names(&folder().join(code)) {
                if name.starts_with(what) {
                    let file = format!("{code}/{name}");
                    let text = std::fs::read_to_string(folder().join(&file)).unwrap();
                    examples.push(Example {
                        code,
                        caught,
                        file,
                        text,
                    });
                }
            }
            if examples.len() == before {
                let file = format!("testdata/lint/{code}/{what}.yaml");
                missing.push(format!("add `{file}`, {sentence}"));
            }
        }
    }
    (examples, missing)
}

/// Every manifest of every rule that looks at jobs.
pub(crate) fn all() -> Vec<Example> {
    read().0
}

/// The names in `path`, in order; none where there is no such folder.
pub(super) fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/lint")
}
