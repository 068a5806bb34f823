//! `cargo xtask words`: retired words in documents and sources, and names of functions that are too long to search for.
//!
//! The section Words of CONTRIBUTING.md is the standard. Lines are scanned as they stand. A retired word counts only as
//! a whole word, and `_` is a letter, so names that contain one as a part pass.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{Failure, cache::cannot, generate, step};

/// Each retired word or phrase, in lower case, and what to write instead.
const RETIRED: &[(&str, &str)] = &[
    ("told", "reported, logged, printed or shown"),
    ("tells", "reports, logs, prints or shows"),
    ("untold", "not reported, or no result"),
    ("knob", "setting"),
    ("knobs", "settings"),
    ("anew", "again"),
    ("for ever", "forever, or the bound"),
    ("looks after", "manages or runs"),
    ("sitter", "member, or pod of the gang"),
    ("sitters", "members, or pods of the gang"),
    ("unhurried", "the interval or the limit"),
];

/// The longest name of a function, of tests above all, in characters.
const NAME_MAX: usize = 52;

/// Lines that may contain a retired word: the file, and a part of the line. An empty part allows the whole file.
const ALLOWED: &[(&str, &str)] = &[
    ("xtask/src/words.rs", ""),
    // The former value of a metric label.
    ("CHANGELOG.md", "instead of `untold`"),
];

/// Documents in the root of the repository.
const DOCUMENTS: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
];

/// Scans every file and reports all retired words at once.
pub(crate) fn run() -> Result<(), Failure> {
    let root = step::root();
    let mut found = Vec::new();
    for path in files(&root)? {
        let text = fs::read_to_string(&path).map_err(cannot("read", &path))?;
        let file = path.strip_prefix(&root).unwrap_or(&path);
        let file = file.display().to_string();
        if !has_extension(&path, "md") {
            found.extend(long_names(&file, &text));
            if is_source(&file) {
                found.extend(refusals(&file, &numbered(&text)));
            }
        } else if !is_generated(&text) {
            found.extend(refusals(&file, &prose(&text)));
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "{}\n\nhint: see the section Words of CONTRIBUTING.md; a quote of another program goes into `ALLOWED` in \
         xtask/src/words.rs",
        found.join("\n")
    )))
}

/// Every file to scan, sorted.
fn files(root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found: Vec<PathBuf> = DOCUMENTS.iter().map(|name| root.join(name)).collect();
    for (folder, extension) in [
        ("docs", "md"),
        ("xtask/src", "rs"),
        ("crates", "rs"),
        ("tools/programs", "rs"),
    ] {
        let files = generate::files(&root.join(folder))?;
        found.extend(
            files
                .into_iter()
                .filter(|path| has_extension(path, extension)),
        );
    }
    found.sort();
    Ok(found)
}

/// Whether retired words of a Rust file count: tests and examples quote.
fn is_source(file: &str) -> bool {
    file.starts_with("xtask/") || file.split('/').nth(2) == Some("src")
}

/// Whether `cargo xtask gen` wrote the page, from sources that are scanned.
fn is_generated(page: &str) -> bool {
    let first = page.lines().next().unwrap_or_default();
    first.starts_with("<!-- ") && first.contains("`cargo xtask gen`")
}

/// One sentence for each function of a Rust file whose name is too long.
fn long_names(file: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in numbered(text) {
        let Some((_, rest)) = line.split_once("fn ") else {
            continue;
        };
        let is_end = |letter: char| !letter.is_alphanumeric() && letter != '_';
        let name = rest.split(is_end).next().unwrap_or_default();
        if name.len() > NAME_MAX {
            found.push(format!(
                "{file}:{number}: `{name}` has {} characters; a name has at most {NAME_MAX}",
                name.len()
            ));
        }
    }
    found
}

fn has_extension(path: &Path, want: &str) -> bool {
    path.extension().is_some_and(|extension| extension == want)
}

/// All lines with their numbers from 1.
fn numbered(text: &str) -> Vec<(usize, &str)> {
    let lines = text.lines().enumerate();
    lines.map(|(at, line)| (at + 1, line)).collect()
}

/// The lines of a document without code blocks, which quote, and without the section Words, which lists retired words.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let (mut in_code, mut in_words) = (false, false);
    let mut lines = Vec::new();
    for (number, line) in numbered(text) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code && line.starts_with("## ") {
            in_words = line == "## Words";
        }
        if !in_code && !in_words {
            lines.push((number, line));
        }
    }
    lines
}

/// One sentence for each retired word in `lines` of `file`.
fn refusals(file: &str, lines: &[(usize, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in lines {
        if is_allowed(file, line) {
            continue;
        }
        for (word, better) in retired_words(line) {
            found.push(format!(
                "{file}:{number}: `{word}` is retired; write {better}"
            ));
        }
    }
    found
}

fn is_allowed(file: &str, line: &str) -> bool {
    let mut allowed = ALLOWED.iter();
    allowed.any(|(path, part)| *path == file && line.contains(*part))
}

/// The retired words in a line, each with what to write instead.
fn retired_words(line: &str) -> Vec<(&'static str, &'static str)> {
    let line = line.to_lowercase();
    let words: Vec<&str> = line
        .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
        .collect();
    let mut found = Vec::new();
    for (retired, better) in RETIRED {
        let phrase: Vec<&str> = retired.split(' ').collect();
        let is_phrase = |window: &[&str]| window == phrase.as_slice();
        if line.contains(*retired) && words.windows(phrase.len()).any(is_phrase) {
            found.push((*retired, *better));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_are_found() {
        let cases = [
            ("/// What users are Told.", vec!["told"]),
            ("`a` waits for ever, and tells", vec!["tells", "for ever"]),
            ("Trainyard runs for every job", vec![]),
            ("untoldx, stall_told, knobbly", vec![]),
        ];
        for (line, want) in cases {
            let found = retired_words(line).into_iter();
            let words: Vec<&str> = found.map(|(word, _)| word).collect();
            assert_eq!(words, want, "{line}");
        }
    }

    #[test]
    fn code_blocks_and_the_standard_are_skipped() {
        let text = "told\n```\ntold\n```\n## Words\ntold\n## Code\nknobs\n";
        assert_eq!(
            refusals("a.md", &prose(text)),
            [
                "a.md:1: `told` is retired; write reported, logged, printed or shown",
                "a.md:8: `knobs` is retired; write settings",
            ]
        );
    }

    #[test]
    fn long_function_names_are_found() {
        let (longest, longer) = ("a".repeat(NAME_MAX), "b".repeat(NAME_MAX + 1));
        let text = format!("    fn {longest}() {{\npub async fn {longer}<T>(\n");
        assert_eq!(
            long_names("a.rs", &text),
            [format!(
                "a.rs:2: `{longer}` has 53 characters; a name has at most 52"
            )]
        );
    }

    #[test]
    fn only_hand_written_pages_and_sources_count() {
        assert!(is_generated(
            "<!-- Written by `cargo xtask gen`. Do not edit. -->\n# Rules\n"
        ));
        assert!(!is_generated("# JSON output\n"));
        assert!(is_source("crates/core/src/job/tests.rs") && is_source("xtask/src/words.rs"));
        assert!(!is_source("crates/cli/tests/it/run.rs"));
    }

    #[test]
    fn this_file_is_allowed() {
        assert!(refusals("xtask/src/words.rs", &[(1, "told")]).is_empty());
    }
}
