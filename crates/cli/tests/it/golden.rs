//! Snapshots: what a call printed, compared with a file beside the tests.

use std::{fmt::Write as _, fs, path::PathBuf};

use crate::call::Outcome;

/// Compares the outcomes with `testdata/<name>.txt`, or writes it where `UPDATE` is set.
pub(crate) fn check(name: &str, outcomes: &[Outcome]) {
    let got = text(outcomes);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/testdata")
        .join(format!("{name}.txt"));
    #[expect(
        clippy::disallowed_methods,
        reason = "whether snapshots are rewritten is the caller's word to the test, not the program's"
    )]
    let update = std::env::var_os("UPDATE").is_some();
    if update {
        fs::write(&path, &got).expect("testdata can be written");
        return;
    }
    let want = fs::read_to_string(&path).unwrap_or_default();
    let differs = got
        .lines()
        .zip(want.lines())
        .position(|(got, want)| got != want)
        .unwrap_or_else(|| got.lines().count().min(want.lines().count()));
    assert!(
        got == want,
        "`{name}` differs from its snapshot on line {}\n--- wanted\n{want}\n--- got\n{got}\n\
         hint: if this is right, run `UPDATE=1 cargo test -p trainyard` and look at the diff",
        differs + 1
    );
}

fn text(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let code = outcome
            .code
            .map_or_else(|| "killed".to_owned(), |code| code.to_string());
        write!(text, "$ {}\nexit code: {code}\n", outcome.line).expect("a string takes all");
        for (name, stream) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
            if !stream.is_empty() {
                write!(text, "----- {name}\n{stream}").expect("a string takes all");
                if !stream.ends_with('\n') {
                    text.push_str("(no newline at the end)\n");
                }
            }
        }
        text.push('\n');
    }
    text
}
