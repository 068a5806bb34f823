//! What the program is made of: the crates of `Cargo.lock` that are linked into it, and the scripts of the dashboard's page.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use crate::{Failure, cache::cannot, step};

/// One crate or script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression; empty where there is none.
    pub(super) licence: String,
    /// SHA-256 in hexadecimal digits, as the lock file has it; nothing for crates of this tree.
    pub(super) checksum: Option<String>,
    /// The parts that it needs, by their names and versions.
    pub(super) needs: BTreeSet<(String, String)>,
}

/// Where a part comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A crate of this tree.
    Own,
    /// A crate of crates.io.
    Crate,
    /// A package of npm.
    Script,
}

/// Every part of the program as it is built for `target`, in order.
pub(super) fn of_program(target: &str) -> Result<Vec<Part>, Failure> {
    let mut tree = step::cargo(&[
        "tree",
        "--quiet",
        "--locked",
        "--offline",
        "--prefix",
        "none",
    ]);
    tree.args(["--package", "trainyard", "--target", target])
        // Without what runs only while it is built.
        .args(["--edges", "normal,no-proc-macro", "--format", "{p}|{l}"]);
    let tree = step::capture(&mut tree)?;
    let mut parts = crates(&linked(&tree), &locked(&read("Cargo.lock")?))?;
    let scripts = scripts(&read("web/package-lock.json")?);
    if scripts.is_empty() {
        return Err(Failure::Failed(
            "no script is found in `web/package-lock.json`, whose form may have changed".to_owned(),
        ));
    }
    parts.extend(scripts);
    Ok(parts)
}

fn read(file: &str) -> Result<String, Failure> {
    let path = step::root().join(file);
    fs::read_to_string(&path).map_err(cannot("read", &path))
}

type Named<T> = BTreeMap<(String, String), T>;

/// The licence of each package in the lines of `cargo tree`.
fn linked(tree: &str) -> Named<String> {
    tree.lines()
        .filter_map(|line| {
            let (package, licence) = line.split_once('|')?;
            let mut words = package.split_whitespace();
            let name = words.next()?.to_owned();
            let version = words.next()?.strip_prefix('v')?.to_owned();
            let licence = licence.trim_end_matches(" (*)").trim();
            // The form that crates had before SPDX.
            Some((
                (name, version),
                licence.replace('/', " OR ").replace("  ", " "),
            ))
        })
        .collect()
}

/// What the lock file has of a package.
#[derive(Debug, Default, PartialEq, Eq)]
struct Locked {
    checksum: Option<String>,
    /// A name, followed by a version where there are several.
    needs: Vec<String>,
}

/// The packages of a lock file.
fn locked(text: &str) -> Named<Locked> {
    let mut all = BTreeMap::new();
    for block in text.split("[[package]]\n").skip(1) {
        let value = |key: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.strip_prefix(" = ")?.trim_matches('"').to_owned())
        };
        let (Some(name), Some(version)) = (value("name"), value("version")) else {
            continue;
        };
        let needs = block
            .lines()
            .filter_map(|line| line.strip_prefix(" \"")?.strip_suffix("\","))
            .map(str::to_owned)
            .collect();
        let checksum = value("checksum");
        all.insert((name, version), Locked { checksum, needs });
    }
    all
}

/// The crates among `linked`, with what the lock file has of them.
fn crates(linked: &Named<String>, locked: &Named<Locked>) -> Result<Vec<Part>, Failure> {
    let mut parts = Vec::new();
    for ((name, version), licence) in linked {
        let entry = locked
            .get(&(name.clone(), version.clone()))
            .ok_or_else(|| {
                Failure::Failed(format!("`Cargo.lock` does not have `{name}` {version}"))
            })?;
        // The lock file knows features and targets that are not built here.
        let is_needed = |other: &&(String, String)| {
            entry.needs.iter().any(|need| match need.split_once(' ') {
                Some((name, version)) => (name, version) == (&other.0, &other.1),
                None => *need == other.0,
            })
        };
        parts.push(Part {
            kind: if entry.checksum.is_some() {
                Kind::Crate
            } else {
                Kind::Own
            },
            name: name.clone(),
            version: version.clone(),
            licence: licence.clone(),
            checksum: entry.checksum.clone(),
            needs: linked.keys().filter(is_needed).cloned().collect(),
        });
    }
    Ok(parts)
}

/// The packages of npm that are in the page, not those that only build and try it.
fn scripts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut blocks = text.split("\n    \"node_modules/");
    blocks.next();
    for block in blocks {
        let value = |key: &str| {
            let line = block
                .lines()
                .find_map(|line| line.strip_prefix(&format!("      \"{key}\": ")))?;
            Some(line.trim_end_matches(',').trim_matches('"').to_owned())
        };
        let name = block.split('"').next().unwrap_or_default();
        let Some(version) = value("version").filter(|_| value("dev").is_none()) else {
            continue;
        };
        parts.push(Part {
            kind: Kind::Script,
            name: name.to_owned(),
            version,
            licence: value("license").unwrap_or_default(),
            checksum: None,
            needs: BTreeSet::new(),
        });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_those_linked() {
        let tree = "trainyard v0.1.0 (/x/crates/cli)|Apache-2.0\na v1.0.0|MIT/Apache-2.0\nb v2.0.0|MIT\na v1.0.0|MIT/Apache-2.0 (*)\n";
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"x\"\nchecksum = \"aa\"\ndependencies = [\n \"b 2.0.0\",\n \"c\",\n]\n\n\
                    [[package]]\nname = \"b\"\nversion = \"1.0.0\"\nchecksum = \"b1\"\n\n[[package]]\nname = \"b\"\nversion = \"2.0.0\"\nchecksum = \"b2\"\n\n\
                    [[package]]\nname = \"trainyard\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n";
        let parts = crates(&linked(tree), &locked(lock)).expect("all are locked");
        let shown: Vec<String> = parts
            .iter()
            .map(|part| {
                let needs: Vec<&str> = part.needs.iter().map(|it| it.0.as_str()).collect();
                format!(
                    "{} {} {:?} {} {:?} {needs:?}",
                    part.name, part.version, part.kind, part.licence, part.checksum
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                r#"a 1.0.0 Crate MIT OR Apache-2.0 Some("aa") ["b"]"#,
                r#"b 2.0.0 Crate MIT Some("b2") []"#,
                r#"trainyard 0.1.0 Own Apache-2.0 None ["a"]"#,
            ]
        );
        let unknown = linked("z v9.0.0|MIT\n");
        assert!(crates(&unknown, &locked(lock)).is_err());
    }

    #[test]
    fn scripts_are_those_of_the_page() {
        let found = scripts(&read("web/package-lock.json").expect("it is read"));
        let names: Vec<&str> = found.iter().map(|part| part.name.as_str()).collect();
        let package = read("web/package.json").expect("it is read");
        let (_, needed) = package
            .split_once("\"dependencies\": {")
            .expect("it has some");
        let (needed, _) = needed.split_once('}').expect("they end");
        let direct: Vec<&str> = needed.split('"').skip(1).step_by(4).collect();
        assert!(direct.len() >= 3, "{direct:?}");
        for name in direct {
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
        assert!(!names.contains(&"esbuild"), "it only builds the page");
        assert!(found.iter().all(|part| !part.licence.is_empty()));
    }
}
