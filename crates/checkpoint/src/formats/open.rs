//! Which format something is, and opening it.

use std::{fs, io::Read as _, path::Path};

use trainyard_core::checkpoint::{COMMIT_FILE, ROOT_FILE, STEPS, StepName};

use super::{Contents, Format, FormatError, dcp, hf, ours, safetensors};

/// Whether a name is that of a file in the same folder.
pub(super) fn is_plain(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0'])
}

/// A whole file of at most `limit` bytes.
pub(super) fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, FormatError> {
    let cannot = |error: &std::io::Error| FormatError::io(path, error);
    let file = fs::File::open(path).map_err(|error| cannot(&error))?;
    let found = file.metadata().map_err(|error| cannot(&error))?;
    if !found.is_file() || found.len() > limit {
        let why = format!(
            "it is not a regular file of at most {limit} bytes; it has {}",
            found.len()
        );
        return Err(FormatError::new(path.display().to_string(), why));
    }
    let mut bytes = Vec::new();
    file.take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| cannot(&error))?;
    Ok(bytes)
}

/// The format of a path by what is there.
pub fn format(path: &Path) -> Result<Format, FormatError> {
    let found = fs::metadata(path).map_err(|error| FormatError::io(path, &error))?;
    let has = |name: &str| path.join(name).is_file();
    let single = path.join("model.safetensors").is_file();
    if found.is_file() {
        Ok(Format::Safetensors)
    } else if has(dcp::METADATA) {
        Ok(Format::Dcp)
    } else if has(hf::INDEX) || single {
        Ok(Format::Hf)
    } else if has(ROOT_FILE) || is_step(path) {
        Ok(Format::Trainyard)
    } else {
        Err(FormatError::new(
            path.display().to_string(),
            "unknown format; expected a safetensors file, or a folder with `trainyard.json`, `COMMIT.json`, \
             `.metadata` or `model.safetensors.index.json`",
        ))
    }
}

/// Whether a folder is that of a step.
fn is_step(path: &Path) -> bool {
    path.join(COMMIT_FILE).is_file() && step_of(path).is_some()
}

/// The root and the folder name of a step folder.
fn step_of(path: &Path) -> Option<(std::path::PathBuf, String)> {
    let path = fs::canonicalize(path).ok()?;
    let name = path.file_name()?.to_str()?.to_owned();
    name.parse::<StepName>().ok()?;
    let steps = path.parent().filter(|folder| folder.ends_with(STEPS))?;
    Some((steps.parent()?.to_owned(), name))
}

/// Opens a file or folder of any format. `step` is for a root of ours: a number or the name of a folder; without it, the newest
/// complete step is opened.
pub fn open(path: &Path, step: Option<&str>) -> Result<Contents, FormatError> {
    let format = format(path)?;
    let is_root = format == Format::Trainyard && path.join(ROOT_FILE).is_file();
    if step.is_some() && !is_root {
        return Err(FormatError::new(
            path.display().to_string(),
            "a step can be chosen only in a folder with `trainyard.json`",
        ));
    }
    match format {
        Format::Safetensors => safetensors::open(path),
        Format::Hf if path.join(hf::INDEX).is_file() => hf::open(path),
        Format::Hf => safetensors::open(&path.join("model.safetensors")),
        Format::Dcp => dcp::open(path),
        Format::Trainyard if is_root => ours::open(path, step),
        Format::Trainyard => match step_of(path) {
            Some((root, name)) => ours::open(&root, Some(&name)),
            None => Err(FormatError::new(
                path.display().to_string(),
                "it is not a step folder below `steps`",
            )),
        },
    }
}
