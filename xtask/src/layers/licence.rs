//! Which licences a dependency may come under.
//!
//! Reads the SPDX expressions that manifests carry: `OR`, `AND`, `WITH`, brackets, and the old
//! `/` for `OR`.

/// Licences that permit use in a closed or open binary without further duties than a notice.
pub(super) const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "WTFPL",
    "Zlib",
];

/// Whether the expression can be met with allowed licences alone. One that cannot be read is not.
pub(super) fn allowed(expression: &str) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let verdict = any_of(&mut rest);
    verdict.unwrap_or(false) && rest.is_empty()
}

/// `a OR b`, which binds weakest. `None` where the words are not an expression.
fn any_of(words: &mut &[&str]) -> Option<bool> {
    let mut verdict = all_of(words)?;
    while let [first, rest @ ..] = *words
        && first.eq_ignore_ascii_case("OR")
    {
        *words = rest;
        verdict |= all_of(words)?;
    }
    Some(verdict)
}

/// `a AND b`.
fn all_of(words: &mut &[&str]) -> Option<bool> {
    let mut verdict = one(words)?;
    while let [first, rest @ ..] = *words
        && first.eq_ignore_ascii_case("AND")
    {
        *words = rest;
        verdict &= one(words)?;
    }
    Some(verdict)
}

/// A licence, with its exception where it has one, or a bracket.
fn one(words: &mut &[&str]) -> Option<bool> {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let verdict = any_of(words)?;
            let [")", rest @ ..] = *words else {
                return None;
            };
            *words = rest;
            Some(verdict)
        }
        [name, with, exception, rest @ ..] if with.eq_ignore_ascii_case("WITH") => {
            *words = rest;
            Some(ALLOWED.contains(&format!("{name} WITH {exception}").as_str()))
        }
        [name, rest @ ..] if *name != ")" => {
            *words = rest;
            Some(ALLOWED.contains(name))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let cases = [
            ("MIT", true),
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0", false),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND AGPL-3.0", false),
            ("GPL-2.0 WITH Classpath-exception-2.0", false),
            ("MIT OR", false),
            ("(MIT", false),
            ("MIT)", false),
            ("", false),
        ];
        for (expression, want) in cases {
            assert_eq!(allowed(expression), want, "{expression:?}");
        }
    }
}
