//! The arrows between the top-level modules of each crate, which may form no cycle.
//!
//! A module that uses a name of another stands on it. An arrow to a name that the root of the crate only passes on
//! (`pub use`) goes to the module that has the name; what the root itself defines is below all modules.

mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use self::source::Source;
use crate::{Failure, cache::cannot, generate, step};

/// The crate whose arrows ARCHITECTURE.md draws, and the lines around the drawing.
const DRAWN: &str = "crates/core";
const DRAWING_BEGINS: &str = "<!-- modules of core: checked by `cargo xtask layers` -->\n```text\n";
const DRAWING_ENDS: &str = "```\n";

/// Where each arrow is found, by its two modules.
type Arrows = BTreeMap<(String, String), Vec<String>>;

/// Every refusal, of all crates.
pub(super) fn check() -> Result<Vec<String>, Failure> {
    let root = step::root();
    let mut refusals = Vec::new();
    for folder in folders(&root)? {
        let (modules, arrows) = read(&root, &folder)?;
        let cycles = cycles(&folder, &arrows);
        if folder == DRAWN && cycles.is_empty() {
            let path = root.join("ARCHITECTURE.md");
            let text = fs::read_to_string(&path).map_err(cannot("read", &path))?;
            refusals.extend(misdrawn(&text, &drawing(&modules, &arrows)));
        }
        refusals.extend(cycles);
    }
    Ok(refusals)
}

/// The folders of the crates, from the root of the repository.
fn folders(root: &Path) -> Result<Vec<String>, Failure> {
    let crates = root.join("crates");
    let mut found = vec!["tools/programs".to_owned(), "xtask".to_owned()];
    for entry in fs::read_dir(&crates).map_err(cannot("list", &crates))? {
        let entry = entry.map_err(cannot("list", &crates))?;
        found.push(format!("crates/{}", entry.file_name().display()));
    }
    found.sort();
    Ok(found)
}

/// The top-level modules of a crate, and the arrows between them.
fn read(root: &Path, folder: &str) -> Result<(BTreeSet<String>, Arrows), Failure> {
    let sources = root.join(folder).join("src");
    let mut files = BTreeMap::new();
    for path in generate::files(&sources)? {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(cannot("read", &path))?;
        let name = path.strip_prefix(&sources).unwrap_or(&path);
        files.insert(name.display().to_string(), text);
    }
    Ok(arrows(&format!("{folder}/src"), &files))
}

/// The same from the texts of the files, by their path below `sources`.
fn arrows(sources: &str, files: &BTreeMap<String, String>) -> (BTreeSet<String>, Arrows) {
    let read: Vec<(&String, Vec<&str>, Source)> = files
        .iter()
        .map(|(file, text)| {
            let path = module_path(file);
            let source = Source::read(text, &path);
            (file, path, source)
        })
        .collect();
    let for_tests: BTreeSet<Vec<&str>> = read
        .iter()
        .flat_map(|(_, path, source)| {
            let names = source.for_tests.iter().map(String::as_str);
            names.map(|name| path.iter().copied().chain([name]).collect())
        })
        .collect();
    let is_test = |path: &[&str]| {
        path.contains(&"tests") || (1..=path.len()).any(|end| for_tests.contains(&path[..end]))
    };
    let root = read.iter().find(|(_, path, _)| path.is_empty());
    let modules = root.map_or_else(BTreeSet::new, |(_, _, source)| source.modules.clone());
    // Names that the root passes on, by the module that has them.
    let passed_on: BTreeMap<&str, &str> = root
        .iter()
        .flat_map(|(_, _, source)| &source.imports)
        .filter_map(|(name, path)| {
            let mut parts = path.iter().map(String::as_str);
            let module = parts.find(|part| !matches!(*part, "crate" | "self"))?;
            modules.contains(module).then_some((name.as_str(), module))
        })
        .collect();
    let mut arrows = Arrows::new();
    for (file, path, source) in &read {
        let Some(from) = path.first().filter(|_| !is_test(path)) else {
            continue;
        };
        for found in &source.uses {
            let name = found.name.as_str();
            let to = modules.get(name).map(String::as_str);
            let Some(to) = to.or_else(|| passed_on.get(name).copied()) else {
                continue;
            };
            if to != *from {
                let places: &mut Vec<String> = arrows
                    .entry(((*from).to_owned(), to.to_owned()))
                    .or_default();
                places.push(format!("{sources}/{file}:{}", found.line));
            }
        }
    }
    (modules, arrows)
}

/// The module of a file: `job/status.rs` is `job::status`, and `lib.rs` the root.
fn module_path(file: &str) -> Vec<&str> {
    let file = file.trim_end_matches(".rs");
    if matches!(file, "lib" | "main") {
        return Vec::new();
    }
    let mut path: Vec<&str> = file.split('/').collect();
    path.pop_if(|last| *last == "mod");
    path
}

/// Whether `from` stands on `to`, by any number of arrows.
fn reaches(arrows: &Arrows, from: &str, to: &str) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        let onward = arrows.keys().filter(|(from, _)| from == module);
        for (_, target) in onward {
            if target == to {
                return true;
            }
            if seen.insert(target) {
                next.push(target);
            }
        }
    }
    false
}

/// The cycles between the modules of a crate.
fn cycles(folder: &str, arrows: &Arrows) -> Vec<String> {
    let mut by_members: BTreeMap<BTreeSet<&str>, Vec<(usize, String)>> = BTreeMap::new();
    for ((from, to), places) in arrows {
        if !reaches(arrows, to, from) {
            continue;
        }
        let both = |module: &str| {
            module == from || reaches(arrows, from, module) && reaches(arrows, module, from)
        };
        let modules = arrows.keys().map(|(module, _)| module.as_str());
        let members = modules.filter(|module| both(module)).collect();
        let shown: Vec<&str> = places.iter().take(3).map(String::as_str).collect();
        let more = match places.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let line = format!("  arrow `{from}` -> `{to}`: {}{more}", shown.join(", "));
        by_members
            .entry(members)
            .or_default()
            .push((places.len(), line));
    }
    let refusals = by_members.into_iter().map(|(members, mut lines)| {
        // The arrow that is used least is likely the one to remove.
        lines.sort();
        let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
        let members: Vec<&str> = members.into_iter().collect();
        format!(
            "modules of `{folder}` form a cycle: {}\n{}\n  rule: top-level modules of a crate stand on each other in one \
             direction\n  hint: move what the arrow with the fewest uses needs to the lower module, or to a module below \
             both",
            members.join(", "),
            lines.join("\n")
        )
    });
    refusals.collect()
}

/// The modules by levels, highest first. A module stands on modules of lower levels only; an arrow that follows from
/// two others is not drawn. There is no cycle.
fn drawing(modules: &BTreeSet<String>, arrows: &Arrows) -> String {
    let mut levels: BTreeMap<&str, usize> = BTreeMap::new();
    while levels.len() < modules.len() {
        for module in modules {
            let mut below = arrows.keys().filter(|(from, _)| from == module);
            let level = below.try_fold(0, |level, (_, to)| {
                levels.get(to.as_str()).map(|below| level.max(below + 1))
            });
            if let Some(level) = level {
                levels.insert(module, level);
            }
        }
    }
    let highest = levels.values().max().copied().unwrap_or_default();
    let mut lines = Vec::new();
    for level in (0..=highest).rev() {
        let mut on_nothing = Vec::new();
        for (module, _) in levels.iter().filter(|(_, other)| **other == level) {
            let on: Vec<&str> = arrows
                .keys()
                .filter(|(from, _)| from == module)
                .map(|(_, to)| to.as_str())
                .collect();
            let follows = |to: &str| {
                on.iter()
                    .any(|other| *other != to && reaches(arrows, other, to))
            };
            let direct: Vec<&str> = on.iter().copied().filter(|to| !follows(to)).collect();
            if direct.is_empty() {
                on_nothing.push(*module);
            } else {
                lines.push(format!(
                    "{level:>2}  {module:<12} ─▶ {}\n",
                    direct.join(", ")
                ));
            }
        }
        if !on_nothing.is_empty() {
            lines.push(format!("{level:>2}  {}\n", on_nothing.join(", ")));
        }
    }
    lines.concat()
}

/// What is wrong with the drawing in `document`.
fn misdrawn(document: &str, drawing: &str) -> Option<String> {
    let drawn = document.split_once(DRAWING_BEGINS);
    let drawn = drawn.and_then(|(_, after)| after.split_once(DRAWING_ENDS));
    (drawn.map(|(drawn, _)| drawn) != Some(drawing)).then(|| {
        format!(
            "ARCHITECTURE.md draws the modules of `{DRAWN}` otherwise than they are\n  rule: the drawing is true\n  \
             hint: if the new arrow is meant, write these lines there:\n{DRAWING_BEGINS}{drawing}{DRAWING_ENDS}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> (BTreeSet<String>, Arrows) {
        let files = files
            .iter()
            .map(|(file, text)| ((*file).to_owned(), (*text).to_owned()));
        arrows("src", &files.collect())
    }

    const CYCLE: &[(&str, &str)] = &[
        (
            "lib.rs",
            "mod a; mod b; mod c; pub use b::B; pub const ROOT: u8 = 0;",
        ),
        ("a.rs", "use crate::{B, ROOT};\n#[cfg(test)]\nmod testing;"),
        ("a/testing.rs", "use crate::c;"),
        ("b.rs", "use super::c::C;"),
        ("b/tests/more.rs", "use crate::a;"),
        ("c/mod.rs", "mod d;"),
        (
            "c/d.rs",
            "// crate::b\nfn f() { crate::a::f(); super::super::a::g() }",
        ),
    ];

    #[test]
    fn arrows_between_modules() {
        let (modules, arrows) = read(CYCLE);
        assert_eq!(modules.len(), 3);
        let found: Vec<String> = arrows
            .iter()
            .map(|((from, to), places)| format!("{from} {to} {}", places.join(" ")))
            .collect();
        let want = [
            "a b src/a.rs:1",
            "b c src/b.rs:1",
            "c a src/c/d.rs:2 src/c/d.rs:2",
        ];
        assert_eq!(found, want);
    }

    #[test]
    fn a_cycle_is_refused_with_its_arrows() {
        let (_, arrows) = read(CYCLE);
        let refusals = cycles("x", &arrows);
        let [refusal] = refusals.as_slice() else {
            panic!("{refusals:?}");
        };
        for part in [
            "form a cycle: a, b, c",
            "`b` -> `c`: src/b.rs:1",
            "`c` -> `a`: src/c/d.rs:2, ",
        ] {
            assert!(refusal.contains(part), "{part}: {refusal}");
        }
        let (_, arrows) = read(&CYCLE[..5]);
        assert_eq!(cycles("x", &arrows), [] as [String; 0]);
    }

    #[test]
    fn drawing_has_levels() {
        let files = [
            ("lib.rs", "mod top; mod middle; mod low; mod alone;"),
            ("top.rs", "use crate::{low, middle};"),
            ("middle.rs", "use crate::low;"),
        ];
        let (modules, arrows) = read(&files);
        let drawn = drawing(&modules, &arrows);
        let want = " 2  top          ─▶ middle\n 1  middle       ─▶ low\n 0  alone, low\n";
        assert_eq!(drawn, want);
        let document = format!("a\n{DRAWING_BEGINS}{want}{DRAWING_ENDS}b\n```text\n```\n");
        assert_eq!(misdrawn(&document, want), None);
        let refusal = misdrawn(&document.replace("alone, ", ""), want);
        assert!(refusal.is_some_and(|refusal| refusal.contains(want)));
    }
}
