//! Programs that a `ConfigMap` of the files holds and a pod runs, line by line.
//!
//! Owns how such a program is found and whether only one rank runs a line. It does not parse a language: a line
//! counts as one rank's where an `if` around it, by its indentation, asks for a rank.

use super::{
    companions::at,
    scene::{Pod, Scene},
};
use crate::spec::is_within;

/// A program in a `ConfigMap`.
#[derive(Debug)]
pub(super) struct Script<'a> {
    pub(super) map: &'a str,
    pub(super) key: String,
    pub(super) text: &'a str,
    /// The item of the command that names it.
    pub(super) item: usize,
}

/// What a word of a command finds in a `ConfigMap` of the files.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// The program.
    Script(Script<'a>),
    /// The map, the key that it lacks, and the item of the command.
    Missing(&'a str, String, usize),
}

/// Every file of a `ConfigMap` that the command of `pod` names.
pub(super) fn files<'a>(scene: &Scene<'a>, pod: &Pod<'a>) -> Vec<Found<'a>> {
    let command = pod.command();
    let namespace = scene.job.namespace.as_str();
    let mut found = Vec::new();
    for word in &command.words {
        let path = word.text.rsplit('=').next().unwrap_or(word.text);
        if !path.starts_with('/') {
            continue;
        }
        let Some((mount, _, Some(volume))) = pod.mount_of(path) else {
            continue;
        };
        let Some(map) = volume.config_map.as_ref() else {
            continue;
        };
        // Renamed keys and parts of a folder are rare, and not followed.
        if map.items.is_some() || mount.sub_path.is_some() || map.optional == Some(true) {
            continue;
        }
        let folder = mount.mount_path.trim_end_matches('/');
        let key = path.strip_prefix(folder).unwrap_or_default();
        let key = key.trim_start_matches('/').to_owned();
        let object = scene.companions.find("ConfigMap", namespace, &map.name);
        let Some(object) = object.filter(|_| is_within(path, folder)) else {
            continue;
        };
        let in_data = |part: &str| at(object, &[part, &key]).and_then(|node| node.as_str());
        let binary = at(object, &["binaryData", &key]).is_some();
        let is_file = !key.is_empty() && !key.contains('/') && key.contains('.');
        match in_data("data") {
            Some(text) => found.push(Found::Script(Script {
                map: &map.name,
                key,
                text,
                item: word.item,
            })),
            None if is_file && !binary => found.push(Found::Missing(&map.name, key, word.item)),
            None => {}
        }
    }
    found
}

/// Lines of `text` that every rank runs, with their numbers from 1. Comments are left out.
pub(super) fn lines_of_all_ranks(text: &str) -> Vec<(usize, &str)> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    // The `if`s around a line that ask for a rank.
    let mut guards: Vec<usize> = Vec::new();
    // Whether a decorator above the line asks for one, which is about the function below it.
    let mut decorated = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let depth = indent(line);
        guards.retain(|guard| *guard < depth);
        if guards.is_empty() {
            found.push((index + 1, line));
        }
        let asks = asks_for_rank(trimmed);
        if asks || decorated {
            guards.push(depth);
        }
        decorated = trimmed.starts_with('@') && (asks || decorated);
    }
    found
}

fn asks_for_rank(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let is_condition = ["if ", "elif ", "if(", "with ", "@"]
        .iter()
        .any(|start| lower.starts_with(start));
    let words = [
        "rank",
        "main_process",
        "is_master",
        "is_main",
        "is_chief",
        "global_zero",
    ];
    is_condition && words.iter().any(|word| lower.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_one_rank_runs_are_left_out() {
        let text = "import os\nif rank == 0:\n    save('/a')\n    if x:\n        save('/b')\nsave('/c')\n# save('/d')\nif dist.get_rank() == 0:\n    save('/e')\nelse:\n    load('/f')\n@rank_zero_only\ndef keep():\n    save('/g')\nsave('/h')\n";
        let found: Vec<usize> = lines_of_all_ranks(text)
            .into_iter()
            .map(|(number, _)| number)
            .collect();
        assert_eq!(found, [1, 2, 6, 8, 10, 11, 12, 13, 15]);
    }
}
