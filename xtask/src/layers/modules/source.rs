//! One Rust source as far as its paths go: which names of the crate's root it uses, and where.
//!
//! Reads tokens, not grammar. Comments, text and whatever is compiled only for tests are left out. Paths that a macro
//! of another crate writes are not seen.

use std::collections::BTreeSet;

/// A word or a sign, and its line from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// A use of a name of the crate's root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) name: String,
    pub(super) line: usize,
}

/// What is kept of a source.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Source {
    /// Modules that it declares, with those only for tests left out.
    pub(super) modules: BTreeSet<String>,
    /// Modules that it declares only for tests.
    pub(super) for_tests: BTreeSet<String>,
    /// Names of the root that it uses, by `crate::`, `super::` or a `use` of either.
    pub(super) uses: Vec<Use>,
    /// Names that it imports, each with the path that it stands for.
    pub(super) imports: Vec<(String, Vec<String>)>,
}

impl Source {
    /// Reads the text of the module at `path`, which is empty for the root.
    pub(super) fn read(text: &str, path: &[&str]) -> Self {
        let mut source = Self::default();
        let tokens = source.leave_out_tests(&tokens(text));
        let word = |at: usize| tokens.get(at).map_or("", |token| token.text);
        let mut inside: Vec<&str> = path.to_vec();
        // The depths of braces at which modules within the file began.
        let mut began = Vec::new();
        let (mut depth, mut at) = (0_usize, 0);
        while at < tokens.len() {
            match word(at) {
                "mod" if word(at + 2) == "{" => {
                    source.modules.insert(word(at + 1).to_owned());
                    inside.push(word(at + 1));
                    began.push(depth);
                }
                "mod" if word(at + 2) == ";" => {
                    source.modules.insert(word(at + 1).to_owned());
                }
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    if began.pop_if(|began| *began == depth).is_some() {
                        inside.pop();
                    }
                }
                "use" => {
                    let (found, end) = paths(&tokens, at + 1, &[]);
                    source.import(&found, &inside);
                    at = end;
                    continue;
                }
                "crate" | "super" if word(at + 1) == "::" && !is_visibility(&tokens, at) => {
                    let (found, end) = paths(&tokens, at, &[]);
                    source.note(&found, &inside);
                    at = end;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        source
    }

    fn import(&mut self, found: &[Path<'_>], inside: &[&str]) {
        self.note(found, inside);
        for path in found {
            let parts = path.parts.iter().map(|part| (*part).to_owned());
            self.imports.push((path.name.to_owned(), parts.collect()));
        }
    }

    /// Notes the paths that lead to the root, from the module `inside`.
    fn note(&mut self, found: &[Path<'_>], inside: &[&str]) {
        for path in found {
            let mut base = inside.len();
            let mut parts = path.parts.iter().peekable();
            let absolute = matches!(path.parts.first(), Some(&("crate" | "super" | "self")));
            while let Some(part) =
                parts.next_if(|part| matches!(**part, "crate" | "super" | "self"))
            {
                match *part {
                    "crate" => base = 0,
                    "super" => base = base.saturating_sub(1),
                    _ => {}
                }
            }
            if let Some(name) = parts.next().filter(|_| absolute && base == 0) {
                self.uses.push(Use {
                    name: (*name).to_owned(),
                    line: path.line,
                });
            }
        }
    }

    /// The tokens without items under `#[cfg(test)]`.
    fn leave_out_tests<'a>(&mut self, tokens: &[Token<'a>]) -> Vec<Token<'a>> {
        const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
        let mut left = Vec::new();
        let mut rest = tokens;
        while let Some((first, after)) = rest.split_first() {
            let begins = rest.iter().map(|token| token.text);
            if !begins.take(ATTRIBUTE.len()).eq(ATTRIBUTE) {
                left.push(*first);
                rest = after;
                continue;
            }
            let (item, after) = rest.split_at(item_length(rest));
            if let [.., word, name, end] = item
                && word.text == "mod"
                && end.text == ";"
            {
                self.for_tests.insert(name.text.to_owned());
            }
            rest = after;
        }
        left
    }
}

/// A path as it is written, without the arguments of generics.
struct Path<'a> {
    parts: Vec<&'a str>,
    /// The name that it has where it is imported.
    name: &'a str,
    line: usize,
}

/// The paths of the tree that begins at `at`, each behind `front`, and where the tree ends.
fn paths<'a>(tokens: &[Token<'a>], mut at: usize, front: &[&'a str]) -> (Vec<Path<'a>>, usize) {
    let word = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let mut parts = front.to_vec();
    if word(at) == "::" {
        at += 1;
    }
    while let Some(token) = tokens.get(at) {
        if token.text == "{" {
            let mut found = Vec::new();
            at += 1;
            while !matches!(word(at), "}" | "") {
                let (more, end) = paths(tokens, at, &parts);
                found.extend(more);
                at = end.max(at + usize::from(end == at));
                at += usize::from(word(at) == ",");
            }
            return (found, at + 1);
        }
        if !is_word(token.text) && token.text != "*" {
            break;
        }
        parts.push(token.text);
        at += 1;
        if word(at) != "::" {
            let renamed = word(at) == "as";
            let name = if renamed { word(at + 1) } else { token.text };
            let line = token.line;
            return (
                vec![Path { parts, name, line }],
                at + 2 * usize::from(renamed),
            );
        }
        at += 1;
    }
    // Behind the last `::` come the arguments of a generic.
    let line = tokens.get(at).map_or(0, |token| token.line);
    let name = parts.last().copied().unwrap_or_default();
    (vec![Path { parts, name, line }], at)
}

/// Whether the path at `at` says who sees an item: `pub(in crate::a)`.
fn is_visibility(tokens: &[Token<'_>], at: usize) -> bool {
    let before = tokens.get(at.saturating_sub(3)..at).unwrap_or_default();
    matches!(before, [word, open, within] if (word.text, open.text, within.text) == ("pub", "(", "in"))
}

/// Words that begin an item. Whatever else has an attribute (a field, an arm) ends with a comma.
const ITEMS: [&str; 11] = [
    "const",
    "enum",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "static",
    "struct",
    "trait",
    "type",
    "use",
];

/// How many of `tokens` belong to the item at their beginning, its attributes included.
fn item_length(tokens: &[Token<'_>]) -> usize {
    let (mut depth, mut item) = (0_usize, "");
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => return at,
            ")" | "]" | "}" => {
                depth -= 1;
                if depth == 0 && token.text == "}" && item != "use" {
                    return at + 1;
                }
            }
            ";" if depth == 0 => return at + 1,
            "," if depth == 0 && item.is_empty() => return at + 1,
            word if depth == 0 && item.is_empty() && ITEMS.contains(&word) => item = word,
            _ => {}
        }
    }
    tokens.len()
}

fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// The words and signs of `text`; `::` is one sign, and text and numbers are left out.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (length, is_token) = token(rest);
        let taken = rest.get(..length).unwrap_or(rest);
        if is_token {
            found.push(Token { text: taken, line });
        }
        line += taken.matches('\n').count();
        at += taken.len();
    }
    found
}

/// The length of what `rest` begins with, and whether it is a token.
fn token(rest: &str) -> (usize, bool) {
    let first = rest.chars().next().unwrap_or_default();
    let until = |end: &str, from: usize| {
        let after = rest.get(from..).unwrap_or_default();
        after
            .find(end)
            .map_or(rest.len(), |at| from + at + end.len())
    };
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), false);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), false);
    }
    if let Some(hashes) = raw_text(rest) {
        let open = rest.find('"').unwrap_or_default() + 1;
        return (until(&format!("\"{}", "#".repeat(hashes)), open), false);
    }
    match first {
        '"' => (quoted(rest, '"'), false),
        '\'' => {
            let mut after = rest.chars().skip(1);
            let is_letter = after.next() == Some('\\') || after.next() == Some('\'');
            (if is_letter { quoted(rest, '\'') } else { 1 }, false)
        }
        _ if first.is_alphanumeric() || first == '_' => {
            let ends = |letter: char| !letter.is_alphanumeric() && letter != '_';
            let length = rest.find(ends).unwrap_or(rest.len());
            (length, !first.is_numeric())
        }
        _ if rest.starts_with("::") => (2, true),
        _ => (first.len_utf8(), !first.is_whitespace()),
    }
}

/// How many `#` the raw text that `rest` begins with has, where it begins with one.
fn raw_text(rest: &str) -> Option<usize> {
    let after = ["r", "br", "cr"]
        .iter()
        .find_map(|mark| rest.strip_prefix(mark))?;
    let quoted = after.trim_start_matches('#');
    quoted.starts_with('"').then(|| after.len() - quoted.len())
}

/// The length of text in quotes, with its escapes.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if letter == quote => return at + letter.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// The length of a comment that may hold others.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(tail) = rest.get(at..).filter(|tail| !tail.is_empty()) {
        if tail.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if tail.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += tail.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(text: &str, path: &[&str]) -> Vec<(String, usize)> {
        let uses = Source::read(text, path).uses.into_iter();
        uses.map(|found| (found.name, found.line)).collect()
    }

    #[test]
    fn uses_of_the_root() {
        /// A text, its module, and the names with their lines.
        type Case = (
            &'static str,
            &'static [&'static str],
            &'static [(&'static str, usize)],
        );
        let cases: &[Case] = &[
            ("use crate::spec::Job;", &["job"], &[("spec", 1)]),
            (
                "use crate::{\n    reason::{self, Code},\n    spec as other,\n};",
                &["job"],
                &[("reason", 2), ("reason", 2), ("spec", 3)],
            ),
            ("use super::spec::Job;", &["job"], &[("spec", 1)]),
            ("use super::spec::Job;", &["job", "pass"], &[]),
            ("use super::super::spec;", &["job", "pass"], &[("spec", 1)]),
            (
                "use super::{super::spec, pass};",
                &["job", "a"],
                &[("spec", 1)],
            ),
            (
                "fn f() -> crate::spec::Job { super::x() }",
                &["job"],
                &[("spec", 1), ("x", 1)],
            ),
            (
                "mod a {\n    use super::super::spec;\n}\nuse super::gang;",
                &["job"],
                &[("spec", 2), ("gang", 4)],
            ),
            ("mod a { mod b {} use super::x; }", &["job"], &[]),
            (
                "pub(in crate::lint) fn f() {} pub(super) fn g() {}",
                &["lint", "a"],
                &[],
            ),
            (
                "use std::fmt; use serde::Serialize; use self::a::B;",
                &["job"],
                &[],
            ),
            (
                "fn f() -> impl Fn() + use<> { crate::a::<u8>::b() }",
                &["job"],
                &[("a", 1)],
            ),
            (
                "macro_rules! m { () => { $crate::spec::x() } }",
                &["job"],
                &[("spec", 1)],
            ),
        ];
        for (text, path, want) in cases {
            let want: Vec<_> = want
                .iter()
                .map(|(name, line)| ((*name).to_owned(), *line))
                .collect();
            assert_eq!(uses(text, path), want, "{text}");
        }
    }

    #[test]
    fn comments_and_text_are_left_out() {
        let cases = [
            "// crate::spec\n/// [`crate::spec`]\n//! crate::spec",
            "/* crate::a /* crate::b */ crate::c */",
            r#"let a = "crate::spec \" crate::spec";"#,
            "let a = r#\"crate::spec \" crate::spec\"#; let b = br\"crate::spec\";",
            "let a = ('\"', b'\\'', '\\u{22}'); fn f<'a>(b: &'a str) {} // crate::spec",
        ];
        for text in cases {
            assert_eq!(uses(text, &["job"]), [], "{text}");
            let more = format!("{text}\ncrate::gang::place()");
            assert_eq!(uses(&more, &["job"]).len(), 1, "{more}");
        }
    }

    #[test]
    fn tests_are_left_out() {
        let text = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\npub(crate) mod testing;\nmod pass;\n\
                    #[cfg(test)]\n#[expect(a, reason = \"b\")]\nmod c { use crate::a; }\n\
                    #[cfg(test)]\npub(crate) use crate::a::{B, c};\n\
                    #[cfg(test)]\nfn f<A, B>(a: crate::a::A) { crate::a::f() }\n\
                    struct S { #[cfg(test)] a: crate::a::A, b: crate::b::B }";
        let source = Source::read(text, &["job"]);
        assert_eq!(source.modules, BTreeSet::from(["pass".to_owned()]));
        let for_tests = ["testing", "tests"].map(str::to_owned);
        assert_eq!(source.for_tests, BTreeSet::from(for_tests));
        assert_eq!(uses(text, &["job"]), [("b".to_owned(), 13)]);
    }

    #[test]
    fn names_that_the_root_imports() {
        let text = "mod a; pub use a::{B, c::D as E}; pub use crate::{f::G, h};";
        let imports = Source::read(text, &[]).imports;
        let shown: Vec<String> = imports
            .iter()
            .map(|(name, path)| format!("{name}={}", path.join("::")))
            .collect();
        assert_eq!(
            shown,
            ["B=a::B", "E=a::c::D", "G=crate::f::G", "h=crate::h"]
        );
    }
}
