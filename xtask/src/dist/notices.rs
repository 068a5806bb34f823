//! The terms of everything that is linked into the program, which its authors ask to be handed on with it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::parts::{Kind, Part};
use crate::{Failure, cache::cannot, static_program};

/// How names of files with terms begin, in capitals.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];

/// The text of `THIRD-PARTY.txt`: a list of all parts with their licences, then each text once.
pub(super) fn text(parts: &[Part]) -> Result<String, Failure> {
    let registries = static_program::cargo_home()?.join("registry/src");
    let mut terms: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = String::new();
    for part in parts.iter().filter(|part| part.kind != Kind::Own) {
        let shown = format!("{} {}", part.name, part.version);
        list.extend([format!("{shown}: {}\n", part.licence)]);
        if part.kind == Kind::Crate {
            let folder = source(&registries, part)?;
            for text in texts(&folder)? {
                terms.entry(text).or_default().push(shown.clone());
            }
        }
    }
    // By the first part that has each, so that a change of one text moves nothing else.
    let mut blocks: Vec<(Vec<String>, String)> =
        terms.into_iter().map(|(text, who)| (who, text)).collect();
    blocks.sort();
    let mut all = format!(
        "The program `trainyard` comes under the Apache License 2.0. It contains these packages of others,\n\
         each under the terms that follow its name.\n\n{list}"
    );
    for (who, text) in blocks {
        all.extend([format!(
            "\n{}\n{}\n\n{text}\n",
            "-".repeat(72),
            who.join(", ")
        )]);
    }
    Ok(all)
}

/// Where cargo has the source of a crate.
fn source(registries: &Path, part: &Part) -> Result<PathBuf, Failure> {
    let name = format!("{}-{}", part.name, part.version);
    let found = fs::read_dir(registries)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join(&name)))
        .find(|path| path.is_dir());
    found.ok_or_else(|| {
        Failure::CouldNotRun(format!(
            "the source of `{}` {} is not in `{}`, and its licence is handed on with the program\n\nhint: run `cargo fetch --locked`",
            part.name,
            part.version,
            registries.display()
        ))
    })
}

/// The terms in a folder, in the order of the names of the files.
fn texts(folder: &Path) -> Result<Vec<String>, Failure> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .map_err(cannot("list", folder))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .to_uppercase();
            path.is_file() && NAMES.iter().any(|start| name.starts_with(start))
        })
        .collect();
    paths.sort();
    let mut texts = Vec::new();
    for path in paths {
        let bytes = fs::read(&path).map_err(cannot("read", &path))?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        texts.push(lines.join("\n").trim_matches('\n').to_owned());
    }
    Ok(texts)
}
