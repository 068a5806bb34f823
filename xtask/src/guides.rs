//! `cargo xtask guides`: the guides for contributors, followed word for word in a copy of the tree.
//!
//! Owns the form of a step ([`steps`]) and how it is carried out. A test of this crate carries out all steps except the
//! commands, in memory, so that a guide that no longer fits the tree fails in the ordinary suite.
//!
//! Invariant: every code block of a guide is part of a step, or is marked as `text`; nothing in a guide is unchecked.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::{Failure, cache::cannot, generate, report, step, step::harness::counted};

/// Where the guides are.
const FOLDER: &str = "docs/contributing";

/// Folders that are not copied.
const NOT_COPIED: &[&str] = &["target", ".git"];

/// One thing that a guide asks its reader to do.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// A new file.
    Create { path: String, text: String },
    /// Lines at the end of a file.
    Append { path: String, text: String },
    /// A copy of a file.
    Copy { from: String, to: String },
    /// Lines before or after the only line that is `anchor`: as it stands, or else apart from its indentation.
    Insert {
        path: String,
        after: bool,
        anchor: String,
        text: String,
    },
    /// The only place with `old` becomes `new`.
    Replace {
        path: String,
        old: String,
        new: String,
    },
    /// A command, in the root of the repository.
    Run { command: String },
}

/// Follows every guide, or the one called `only`.
pub(crate) fn run(only: Option<&str>) -> Result<(), Failure> {
    let work = step::root().join("target/xtask/guides");
    let mut followed = 0_usize;
    for (name, text) in guides()? {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let began = Instant::now();
        report::progress(&format!("guide {name}"));
        let steps = steps(&text).map_err(|why| Failure::Failed(format!("{name}: {why}")))?;
        let tree = Tree::copied(&step::root(), &work.join("tree"))?;
        for step in &steps {
            let done = match step {
                Step::Run { command } => run_command(command, &tree.root, &work.join("build")),
                edit => tree
                    .edited(edit)
                    .and_then(|(path, text)| tree.write(&path, &text)),
            };
            done.map_err(|failure| in_guide(&name, failure))?;
        }
        let time = report::seconds(began.elapsed());
        println!("{name}: {} steps in {time}", steps.len());
        followed += 1;
    }
    if followed == 0 {
        let wanted = only.unwrap_or("any name");
        return Err(Failure::CouldNotRun(format!(
            "no guide `{wanted}` in {FOLDER}"
        )));
    }
    Ok(())
}

/// Every guide: its name, which is that of its file, and its text.
fn guides() -> Result<BTreeMap<String, String>, Failure> {
    let mut found = BTreeMap::new();
    for path in generate::files(&step::root().join(FOLDER))? {
        let text = fs::read_to_string(&path).map_err(cannot("read", &path))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        found.insert(name.into_owned(), text);
    }
    Ok(found)
}

/// The steps of a guide in their order.
///
/// A step is a line of its own, in one of these forms; those that end with a colon are followed by a code block:
///
/// ```text
/// Create `PATH`:
/// Append to `PATH`:
/// Copy `PATH` to `PATH`.
/// In `PATH`, insert before `LINE`:
/// In `PATH`, insert after `LINE`:
/// In `PATH`, replace `OLD` with `NEW`.
/// Run:
/// ```
fn steps(guide: &str) -> Result<Vec<Step>, String> {
    let mut found = Vec::new();
    let mut lines = guide.lines().enumerate();
    // The last line that announces a block.
    let mut announced: Option<&str> = None;
    while let Some((at, line)) = lines.next() {
        let bad = |why: &str| format!("line {}: {why}: {line}", at + 1);
        if let Some(language) = line.strip_prefix("```") {
            let mut is_closed = false;
            let inside = lines.by_ref().map(|(_, line)| line);
            let block: Vec<&str> = inside
                .take_while(|line| {
                    is_closed = *line == "```";
                    !is_closed
                })
                .collect();
            if !is_closed {
                return Err(bad("the code block does not end"));
            }
            match announced.take() {
                Some("Run:") => found.extend(block.iter().map(|line| Step::Run {
                    command: (*line).to_owned(),
                })),
                Some(line) => found.push(with_block(line, block.join("\n") + "\n")?),
                None if language == "text" => {}
                None => return Err(bad("no step before a code block")),
            }
        } else if announced.is_some() && !line.is_empty() {
            return Err(bad("expected a code block"));
        } else if line == "Run:" || is_edit(line) && line.ends_with(':') {
            announced = Some(line);
        } else if is_edit(line) {
            found.push(without_block(line).ok_or_else(|| bad("unknown step"))?);
        }
    }
    match announced {
        Some(line) => Err(format!("no code block after: {line}")),
        None => Ok(found),
    }
}

fn is_edit(line: &str) -> bool {
    ["Create `", "Append to `", "Copy `", "In `"]
        .iter()
        .any(|start| line.starts_with(start))
}

/// The text of a line, and what stands between backticks, in turn. Two backticks enclose code that contains one.
fn parts(line: &str) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), line);
    while let Some((text, behind)) = rest.split_once('`') {
        let (fence, code) = match behind.strip_prefix('`') {
            Some(code) => ("``", code),
            None => ("`", behind),
        };
        let Some((code, behind)) = code.split_once(fence) else {
            break;
        };
        parts.extend([text, code.trim_matches(' ')]);
        rest = behind;
    }
    parts.push(rest);
    parts
}

/// The step that `line` announces, with its code block.
fn with_block(line: &str, text: String) -> Result<Step, String> {
    let parts = parts(line);
    let step = match parts[..] {
        ["Create ", path, ":"] => Step::Create {
            path: path.to_owned(),
            text,
        },
        ["Append to ", path, ":"] => Step::Append {
            path: path.to_owned(),
            text,
        },
        ["In ", path, ", insert before ", anchor, ":"] => Step::Insert {
            path: path.to_owned(),
            after: false,
            anchor: anchor.to_owned(),
            text,
        },
        ["In ", path, ", insert after ", anchor, ":"] => Step::Insert {
            path: path.to_owned(),
            after: true,
            anchor: anchor.to_owned(),
            text,
        },
        _ => return Err(format!("unknown step: {line}")),
    };
    Ok(step)
}

/// The step that `line` is.
fn without_block(line: &str) -> Option<Step> {
    let parts = parts(line);
    match parts[..] {
        ["Copy ", from, " to ", to, "."] => Some(Step::Copy {
            from: from.to_owned(),
            to: to.to_owned(),
        }),
        ["In ", path, ", replace ", old, " with ", new, "."] => Some(Step::Replace {
            path: path.to_owned(),
            old: old.to_owned(),
            new: new.to_owned(),
        }),
        _ => None,
    }
}

/// The repository or a copy of it.
#[derive(Debug)]
struct Tree {
    root: PathBuf,
    /// Files that a check in memory has changed.
    changed: BTreeMap<String, String>,
}

impl Tree {
    /// A copy of the repository at `source`. What is the same already is not written, so that nothing is built again for it.
    fn copied(source: &Path, root: &Path) -> Result<Self, Failure> {
        let wanted = files(source)?;
        for path in files(root)? {
            if !wanted.contains(&path) {
                let left = root.join(&path);
                fs::remove_file(&left).map_err(cannot("remove", &left))?;
            }
        }
        let tree = Self {
            root: root.to_owned(),
            changed: BTreeMap::new(),
        };
        for path in wanted {
            let (from, to) = (source.join(&path), root.join(&path));
            let bytes = fs::read(&from).map_err(cannot("read", &from))?;
            if fs::read(&to).is_ok_and(|there| there == bytes) {
                continue;
            }
            let folder = to.parent().unwrap_or(&to);
            fs::create_dir_all(folder).map_err(cannot("make", folder))?;
            fs::write(&to, bytes).map_err(cannot("write", &to))?;
        }
        Ok(tree)
    }

    fn read(&self, path: &str) -> Result<String, Failure> {
        if let Some(text) = self.changed.get(path) {
            return Ok(text.clone());
        }
        let full = self.root.join(path);
        fs::read_to_string(&full).map_err(cannot("read", &full))
    }

    fn write(&self, path: &str, text: &str) -> Result<(), Failure> {
        let full = self.root.join(path);
        let folder = full.parent().unwrap_or(&full);
        fs::create_dir_all(folder).map_err(cannot("make", folder))?;
        fs::write(&full, text).map_err(cannot("write", &full))
    }

    /// The file that `step` writes, and what it holds then.
    fn edited(&self, step: &Step) -> Result<(String, String), Failure> {
        match step {
            Step::Create { path, text } => self.fresh(path, text.clone()),
            Step::Append { path, text } => Ok((path.clone(), self.read(path)? + text)),
            Step::Copy { from, to } => self.fresh(to, self.read(from)?),
            Step::Insert {
                path,
                after,
                anchor,
                text,
            } => {
                let old = self.read(path)?;
                let lines: Vec<&str> = old.lines().collect();
                // A line without indentation goes before indented ones with the same text.
                let is_bare = lines.contains(&anchor.as_str());
                let found = lines.iter().enumerate().filter(|(_, line)| {
                    let line = if is_bare { line } else { line.trim() };
                    line == anchor
                });
                let at = only_one(found.map(|(at, _)| at), path, anchor)? + usize::from(*after);
                let (before, behind) = lines.split_at(at);
                let joined = |lines: &[&str]| -> String {
                    lines.iter().flat_map(|line| [*line, "\n"]).collect()
                };
                Ok((path.clone(), joined(before) + text + &joined(behind)))
            }
            Step::Replace { path, old, new } => {
                let text = self.read(path)?;
                only_one(text.match_indices(old.as_str()), path, old)?;
                Ok((path.clone(), text.replacen(old, new, 1)))
            }
            Step::Run { command } => unreachable!("`{command}` is not an edit"),
        }
    }

    fn fresh(&self, path: &str, text: String) -> Result<(String, String), Failure> {
        if self.changed.contains_key(path) || self.root.join(path).exists() {
            return Err(Failure::Failed(format!("`{path}` exists already")));
        }
        Ok((path.to_owned(), text))
    }
}

/// The only item of `found`; `what` of the file `path` is searched for.
fn only_one<T>(found: impl Iterator<Item = T>, path: &str, what: &str) -> Result<T, Failure> {
    let mut found: Vec<T> = found.collect();
    match (found.pop(), found.len()) {
        (Some(one), 0) => Ok(one),
        (Some(_), more) => Err(Failure::Failed(format!(
            "`{path}` has `{what}` {} times, expected once",
            more + 1
        ))),
        (None, _) => Err(Failure::Failed(format!("`{path}` does not have `{what}`"))),
    }
}

/// Every file below `root` that is copied, from `root` on.
fn files(root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop().filter(|folder| folder.exists()) {
        for entry in fs::read_dir(&folder).map_err(cannot("list", &folder))? {
            let path = entry.map_err(cannot("list", &folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                if !NOT_COPIED.contains(&&*name) {
                    folders.push(path);
                }
            } else if let Ok(path) = path.strip_prefix(root) {
                found.push(path.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A test command must run at least one test, any other must succeed.
fn run_command(command: &str, tree: &Path, build: &Path) -> Result<(), Failure> {
    report::progress(command);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", build);
    if command.contains("cargo test") {
        counted(&mut shell).map(|ran| report::progress(&ran))
    } else {
        step::run(&mut shell)
    }
}

fn in_guide(name: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Failed(why) => Failure::Failed(format!(
            "{FOLDER}/{name}.md cannot be followed: {why}\n\nhint: change the guide, or the code if the guide is right"
        )),
        other => other,
    }
}
