//! What `--force` may replace: a checkpoint and nothing else, since all of it is deleted.

use std::{collections::BTreeSet, fs, path::Path};

use trainyard_core::checkpoint::{
    ATTEMPTS, AttemptId, LATEST, ROOT_FILE, STEPS, StepFile, StepName,
};

use crate::{
    formats::{Format, dcp, hf, open, open::format},
    publish::{is_unfinished, unfinished_base},
};

/// The most files of a folder that is replaced.
const MAX_ENTRIES: usize = 1 << 20;
/// The deepest folder of a checkpoint: `steps/STEP/objects`.
const MAX_DEPTH: usize = 3;

/// Whether everything at a path is one checkpoint; where not, a sentence.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let is_empty = fs::read_dir(path).is_ok_and(|mut list| list.next().is_none());
    if is_empty {
        return Ok(());
    }
    let unknown = || "it is not a checkpoint of a known format, so it is not replaced".to_owned();
    match format(path).map_err(|_| unknown())? {
        // Any file would count as one.
        Format::Safetensors => open(path, None).map(drop).map_err(|_| unknown()),
        Format::Trainyard if !path.join(ROOT_FILE).is_file() => {
            Err("it is one step of a folder of checkpoints, so it is not replaced".into())
        }
        Format::Trainyard => {
            let names = names(path)?;
            let steps = names
                .iter()
                .filter_map(|name| step_of(name).map(|(step, _)| step));
            let steps = steps.collect::<BTreeSet<_>>().len();
            if steps > 1 {
                return Err(format!("it has {steps} steps, so it is not replaced"));
            }
            only(&names, is_ours)
        }
        found @ (Format::Hf | Format::Dcp) => {
            let contents = open(path, None).map_err(|error| {
                format!("it is not replaced, because it cannot be read: {error}")
            })?;
            let files = contents.files.iter();
            let files = files.filter_map(|file| Path::new(&file.name).file_name()?.to_str());
            let index = if found == Format::Hf {
                hf::INDEX
            } else {
                dcp::METADATA
            };
            let known: BTreeSet<&str> = files.chain([index]).collect();
            only(&names(path)?, |name| known.contains(name))
        }
    }
}

fn only(names: &[String], is_part: impl Fn(&str) -> bool) -> Result<(), String> {
    let mut others = names.iter().filter(|name| !is_part(name));
    match (others.next(), others.count()) {
        (None, _) => Ok(()),
        (Some(first), more) => Err(format!(
            "{} of its files are not part of the checkpoint (first: `{}`), so it is not replaced",
            more + 1,
            first.escape_debug()
        )),
    }
}

/// The files of a folder by their relative names. A folder that is deeper than those of a checkpoint counts as a file.
fn names(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut folders = vec![(String::new(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let cannot = |error: std::io::Error| format!("it cannot be listed: {error}");
        for entry in fs::read_dir(root.join(&folder)).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let name = format!("{folder}{}", entry.file_name().to_string_lossy());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && depth < MAX_DEPTH {
                folders.push((format!("{name}/"), depth + 1));
            } else {
                found.push(name);
            }
            if found.len() + folders.len() > MAX_ENTRIES {
                return Err(format!("it has more than {MAX_ENTRIES} files"));
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The step folder that a file is in, and its name there.
fn step_of(name: &str) -> Option<(&str, &str)> {
    let within = name.strip_prefix(STEPS)?.strip_prefix('/')?;
    let (folder, file) = within.split_once('/')?;
    folder.parse::<StepName>().is_ok().then_some((folder, file))
}

/// Whether a file of a root is one that the engine writes.
fn is_ours(name: &str) -> bool {
    let base = unfinished_base(name).unwrap_or(name);
    if let Some((_, file)) = step_of(name) {
        return file.parse::<StepFile>().is_ok() || is_unfinished(file);
    }
    match base.split_once('/') {
        None => matches!(base, ROOT_FILE | LATEST),
        Some((ATTEMPTS, file)) => AttemptId::from_file(file).is_ok(),
        Some(_) => false,
    }
}
