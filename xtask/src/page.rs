//! The page of the dashboard: its sources in `web/`, and what is built of them in `crates/web/assets`.
//!
//! The built files are stored in the tree, so whoever builds the program needs no Node. Without Node, [`is_fresh`] finds a page that was
//! built from other sources; with it, [`suite`] builds the page again, compares the bytes, and tries it in a browser.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Failure,
    cache::{cannot, fnv, variable},
    frameworks, generate, layers, report, step,
};

/// The sources.
const SOURCES: &str = "web";
/// What is built of them.
const ASSETS: &str = "crates/web/assets";
/// What a person runs after a change of the sources.
const HINT: &str = "hint: run `cargo xtask page`, and commit what it writes";

/// Builds the page.
pub(crate) fn run() -> Result<(), Failure> {
    install()?;
    step::run(npm(&["run", "build"]).stdout(Stdio::inherit()))
}

/// Whether the page in the tree was built from the sources in the tree, and its packages come under allowed licences.
pub(crate) fn is_fresh() -> Result<(), Failure> {
    let root = step::root();
    let stored = root.join(ASSETS).join("SOURCES");
    let stored = fs::read_to_string(&stored).map_err(cannot("read", &stored))?;
    let found = format!("fnv1a64 {:016x}", hash_of(&root.join(SOURCES))?);
    if stored.trim() != found {
        return Err(Failure::Failed(format!(
            "the page in `{ASSETS}` was built from other sources: `SOURCES` has `{}`, `{SOURCES}/` has `{found}`\n\n{HINT}",
            stored.trim()
        )));
    }
    let lock = root.join(SOURCES).join("package-lock.json");
    let lock = fs::read_to_string(&lock).map_err(cannot("read", &lock))?;
    let refused = refused_licences(&lock);
    if refused.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(refused.join("\n")))
}

/// The page in a browser: checked, built again and compared, its own tests, and its tests with the program.
pub(crate) fn suite() -> Result<String, Failure> {
    let browser = browser()?;
    install()?;
    for chore in ["check", "test"] {
        step::run(&mut npm(&["run", chore]))?;
    }
    step::run(&mut npm(&["run", "build", "--", "--check"]))?;
    let program = step::sibling("trainyard")?;
    for tests in ["browser", "browser:real"] {
        step::run(
            npm(&["run", tests])
                .env("TRAINYARD_CHROMIUM", &browser)
                .env("TRAINYARD_PROGRAM", &program),
        )?;
    }
    Ok("types, units, bytes, fixtures and the program in Chromium".to_owned())
}

/// Draws the pictures of the guide of the dashboard: real runs of the program of this build, as Chromium shows them.
pub(crate) fn pictures() -> Result<(), Failure> {
    let browser = browser()?;
    install()?;
    let program = step::sibling("trainyard")?;
    step::run(
        npm(&["run", "pictures"])
            .env("TRAINYARD_CHROMIUM", &browser)
            .env("TRAINYARD_PROGRAM", &program)
            .stdout(Stdio::inherit()),
    )
}

/// The packages, as the lock file names them.
fn install() -> Result<(), Failure> {
    let has_node = Command::new("npm").arg("--version").output();
    if !has_node.is_ok_and(|output| output.status.success()) {
        return Err(Failure::CouldNotRun(
            "`npm` is not installed, and the page of the dashboard is built with it\n\nhint: install Node 20 or later".to_owned(),
        ));
    }
    let locked = step::root().join(SOURCES).join("package-lock.json");
    let locked = fs::read(&locked).map_err(cannot("read", &locked))?;
    let mark = step::root().join(SOURCES).join("node_modules/.trainyard");
    let wanted = format!("{:016x}", fnv(&locked));
    if fs::read_to_string(&mark).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    report::progress("installing the packages of the page");
    step::run(&mut npm(&[
        "ci",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
    ]))?;
    fs::write(&mark, wanted).map_err(cannot("write", &mark))
}

fn npm(words: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(words).current_dir(step::root().join(SOURCES));
    command
}

/// The browser of this machine; installed where there is none and we may.
fn browser() -> Result<PathBuf, Failure> {
    let named = variable("TRAINYARD_CHROMIUM").map(PathBuf::from);
    let usual = || {
        let path = variable("PATH").unwrap_or_default();
        let mut folders = std::env::split_paths(&path).collect::<Vec<_>>().into_iter();
        folders.find_map(|folder| Some(folder.join("chromium")).filter(|path| path.is_file()))
    };
    if let Some(found) = named.or_else(usual) {
        return Ok(found);
    }
    frameworks::debian("a browser", &["chromium"])?;
    usual().ok_or_else(|| {
        Failure::CouldNotRun(
            "`chromium` is installed and not on the path\n\nhint: set `TRAINYARD_CHROMIUM` to the program".to_owned(),
        )
    })
}

/// The hash of the sources, by the rule of `web/README.md`: for each file in the order of its path (as bytes), the path, a zero, the content, a zero.
fn hash_of(web: &Path) -> Result<u64, Failure> {
    let mut paths = generate::files(&web.join("src"))?;
    paths.extend(["build.mjs", "package-lock.json"].map(|name| web.join(name)));
    let mut named = Vec::new();
    for path in paths {
        let name = path.strip_prefix(web).unwrap_or(&path);
        let name = name.to_string_lossy().replace('\\', "/");
        named.push((name, fs::read(&path).map_err(cannot("read", &path))?));
    }
    named.sort();
    let mut all = Vec::new();
    for (name, content) in named {
        all.extend_from_slice(name.as_bytes());
        all.push(0);
        all.extend_from_slice(&content);
        all.push(0);
    }
    Ok(fnv(&all))
}

/// One sentence for each package in the page whose licence is not allowed or not named. What only builds and tests it is not handed on.
///
/// The file is written by npm: one key a line, and each package in an object below `"node_modules/NAME"`.
fn refused_licences(lock: &str) -> Vec<String> {
    let mut refused = Vec::new();
    let mut package = None;
    for line in lock.lines().chain(["\"node_modules/\": {"]) {
        let line = line.trim().trim_end_matches(',');
        let key = line.strip_prefix("\"node_modules/");
        if let Some(name) = key.and_then(|rest| rest.strip_suffix("\": {"))
            && let Some((before, false)) = package.replace((name, false))
        {
            refused.push(format!(
                    "package `{before}` of the page names no licence, or one that is not allowed\n  rule: only the licences of \
                     xtask/src/layers/licence.rs\n  hint: choose another package, or write those lines ourselves"
                ));
        }
        let licence = line.strip_prefix("\"license\": \"");
        let is_allowed = licence.is_some_and(|it| layers::allows(it.trim_end_matches('"')));
        if let Some((_, is_fine)) = &mut package
            && (is_allowed || line == "\"dev\": true")
        {
            *is_fine = true;
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_of_packages_are_read() {
        let lock = r#"
  "packages": {
    "": { "license": "Apache-2.0" },
    "node_modules/preact": {
      "version": "1",
      "license": "MIT"
    },
    "node_modules/bad": {
      "license": "GPL-3.0"
    },
    "node_modules/tool": {
      "dev": true,
      "license": "MPL-2.0"
    },
    "node_modules/silent": {
      "version": "1"
    }
"#;
        let refused = refused_licences(lock);
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].starts_with("package `bad`"), "{refused:?}");
        assert!(refused[1].starts_with("package `silent`"), "{refused:?}");
    }

    #[test]
    fn order_of_files_does_not_matter() {
        let folder = std::env::temp_dir().join(format!("trainyard-page-{}", std::process::id()));
        fs::create_dir_all(folder.join("src/a")).unwrap();
        for name in ["src/b.ts", "src/a/c.ts", "build.mjs", "package-lock.json"] {
            fs::write(folder.join(name), name).unwrap();
        }
        let mut all = Vec::new();
        for name in ["build.mjs", "package-lock.json", "src/a/c.ts", "src/b.ts"] {
            all.extend_from_slice(format!("{name}\0{name}\0").as_bytes());
        }
        let found = hash_of(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.unwrap(), fnv(&all));
    }
}
