//! The kinds of others, as their makers define them: of schedulers, and of network attachments; and
//! Kueue, which tests start.
//!
//! The kinds are read from the makers' Go modules, which `tools/cluster` pins. Go keeps those in its
//! own cache, outside of this checkout; a cluster gets links to what is needed there.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{binaries, state::State};
use crate::{Failure, cache::cannot, step};

/// The name of each file or folder in the folder `kinds` of a cluster, the folder of `tools/cluster` that pins its
/// module, the module, and where it lies there.
const KINDS: &[(&str, &str, &str, &str)] = &[
    (
        "volcano.yaml",
        "schedulers",
        "volcano.sh/volcano",
        "config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml",
    ),
    (
        "coscheduling.yaml",
        "schedulers",
        "sigs.k8s.io/scheduler-plugins",
        "config/crd/bases/scheduling.x-k8s.io_podgroups.yaml",
    ),
    (
        "network-attachments.yaml",
        "multus",
        "github.com/k8snetworkplumbingwg/network-attachment-definition-client",
        "artifacts/networks-crd.yaml",
    ),
    // The manifests that its makers install it with: kinds, webhooks, conversion.
    ("kueue", "kueue", "sigs.k8s.io/kueue", "config"),
];

/// The operator that ours takes the place of: the folder that pins it, and its module.
const UPSTREAM: (&str, &str) = ("peer", "github.com/kubeflow/training-operator");

/// The module of the operator that ours takes the place of, in Go's cache.
pub(super) fn upstream() -> Result<PathBuf, Failure> {
    download(UPSTREAM.0, UPSTREAM.1)
}

/// Whether that module is there already.
pub(super) fn upstream_is_there() -> bool {
    let source = step::root().join("tools/cluster").join(UPSTREAM.0);
    let folder = step::capture(
        Command::new("go")
            .args(["list", "-m", "-f", "{{.Dir}}", UPSTREAM.1])
            .current_dir(source)
            .env("GOWORK", "off")
            .env("GOPROXY", "off"),
    );
    folder.is_ok_and(|folder| !folder.trim().is_empty())
}

/// Gives a cluster the definitions of the kinds, and the program. It does not teach it any kind, and
/// starts nothing: tests do.
pub(super) fn provide(state: &State) -> Result<(), Failure> {
    binaries::provide(binaries::KUEUE, &state.file("bin"))?;
    let folder = state.file("kinds");
    fs::create_dir_all(&folder).map_err(cannot("make", &folder))?;
    for (name, source, module, file) in KINDS {
        let path = download(source, module)?.join(file);
        if !path.exists() {
            return Err(Failure::Failed(format!(
                "module `{module}` has no `{file}`"
            )));
        }
        let link = folder.join(name);
        drop(fs::remove_file(&link));
        std::os::unix::fs::symlink(&path, &link).map_err(cannot("make", &link))?;
    }
    Ok(())
}

/// Brings the modules that hold the kinds into Go's cache.
pub(super) fn fetch() -> Result<(), Failure> {
    for (_, source, module, _) in KINDS {
        download(source, module)?;
    }
    Ok(())
}

/// The folder of a module in Go's cache, fetched if it is not there.
fn download(source: &str, module: &str) -> Result<PathBuf, Failure> {
    let source = step::root().join("tools/cluster").join(source);
    let version = pinned(&source, module)?;
    let output = Command::new("go")
        .args(["mod", "download", "-json", &format!("{module}@{version}")])
        .current_dir(&source)
        .env("GOWORK", "off")
        .output()
        .map_err(|error| Failure::CouldNotRun(format!("cannot start `go`: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match field(&text, "Dir") {
        Some(folder) if output.status.success() => Ok(PathBuf::from(folder)),
        _ => {
            let why = field(&text, "Error").map_or_else(
                || String::from_utf8_lossy(&output.stderr).trim().to_owned(),
                str::to_owned,
            );
            Err(Failure::CouldNotRun(format!(
                "cannot fetch `{module}@{version}`: {why}"
            )))
        }
    }
}

/// The version of `module` in the `go.mod` of `source`.
fn pinned(source: &Path, module: &str) -> Result<String, Failure> {
    let path = source.join("go.mod");
    let text = fs::read_to_string(&path).map_err(cannot("read", &path))?;
    let mut lines = text
        .lines()
        .map(|line| line.trim().trim_start_matches("require "));
    lines
        .find_map(|line| line.strip_prefix(module)?.strip_prefix(' '))
        .and_then(|rest| rest.split_whitespace().next())
        .map(str::to_owned)
        .ok_or_else(|| Failure::Failed(format!("`{}` pins no `{module}`", path.display())))
}

/// The text of a field in what `go` writes: one field to a line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mark = format!("\"{name}\": \"");
    text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix(&mark)?;
        rest.trim_end_matches(',').strip_suffix('"')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_is_pinned_with_its_sum() {
        for (_, source, module, _) in KINDS {
            let source = step::root().join("tools/cluster").join(source);
            let sums = fs::read_to_string(source.join("go.sum")).expect("the sums are there");
            let version = pinned(&source, module).expect("it is pinned");
            let sum = format!("{module} {version} h1:");
            assert!(sums.lines().any(|line| line.starts_with(&sum)), "{module}");
        }
    }

    #[test]
    fn a_field_is_found() {
        let text = "{\n\t\"Path\": \"a.b/c\",\n\t\"Dir\": \"/cache/c@v1\"\n}\n";
        assert_eq!(field(text, "Dir"), Some("/cache/c@v1"));
        assert_eq!(field(text, "Path"), Some("a.b/c"));
        assert_eq!(field(text, "Error"), None);
    }
}
