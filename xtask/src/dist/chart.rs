//! The Helm chart as an archive, from `deploy/helm/trainyard` as `helm package` would take it.

use std::{fs, path::Path};

use super::{
    Release,
    entry::{FILE, Files, gzip},
    tar,
};
use crate::{Failure, cache::cannot, generate, step};

/// The folder of the chart.
pub(super) const FOLDER: &str = "deploy/helm/trainyard";

/// The file name and the bytes of the archive.
pub(super) fn pack(release: &Release) -> Result<(String, Vec<u8>), Failure> {
    let files = files()?;
    let archive = tar::archive(&files, "trainyard/", release.time).map_err(Failure::Failed)?;
    // As `helm package` names it.
    Ok((format!("trainyard-{}.tgz", release.version), gzip(&archive)))
}

/// The files of the chart by their path in it; links to folders beside it are followed.
pub(super) fn files() -> Result<Files, Failure> {
    let folder = step::root().join(FOLDER);
    let ignored = folder.join(".helmignore");
    let text = fs::read_to_string(&ignored).map_err(cannot("read", &ignored))?;
    let patterns: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let mut files = Files::default();
    for path in generate::files(&folder)? {
        let name = path.strip_prefix(&folder).unwrap_or(&path);
        if patterns.iter().any(|pattern| matches(pattern, name)) {
            continue;
        }
        let name = name.to_str().ok_or_else(|| {
            Failure::Failed(format!("`{}` is not a name in UTF-8", name.display()))
        })?;
        files.add(name, FILE, fs::read(&path).map_err(cannot("read", &path))?);
    }
    Ok(files)
}

/// Whether a line of `.helmignore` leaves out a file: folders (`name/`) and endings (`*.name`), which is all that ours has.
fn matches(pattern: &str, name: &Path) -> bool {
    if let Some(folder) = pattern.strip_suffix('/') {
        return name
            .parent()
            .is_some_and(|parents| parents.iter().any(|part| part == folder));
    }
    let ending = pattern.strip_prefix('*').unwrap_or(pattern);
    name.to_str().is_some_and(|name| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_holds_what_its_templates_read() {
        let files = files().expect("the chart is read");
        let names: Vec<&str> = files.iter().map(|(name, _)| name).collect();
        for name in [
            "Chart.yaml",
            "values.yaml",
            "values.schema.json",
            "templates/deployment.yaml",
            "crds-files/kubeflow.org_pytorchjobs.yaml",
            "alerts-files/trainyard-rules.yaml",
        ] {
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
        let text =
            fs::read_to_string(step::root().join(FOLDER).join(".helmignore")).expect("it is there");
        for pattern in text.lines() {
            let is_known = pattern.ends_with('/') || pattern.starts_with("*.");
            assert!(is_known, "`{pattern}` has a form that is not read here");
        }
    }

    #[test]
    fn ignored_files_stay_out() {
        for (pattern, name, want) in [
            (".git/", ".git/config", true),
            (".git/", "templates/.git", false),
            ("*.tgz", "charts/a.tgz", true),
            ("*.tgz", "templates/a.yaml", false),
        ] {
            assert_eq!(matches(pattern, Path::new(name)), want, "{pattern} {name}");
        }
    }
}
