//! Which programs are prepared for being recorded.
//!
//! The variable that switches Kineto's client on ends `import torch` of versions before 2.10 with `SIGABRT` now and then (2 of 20 starts
//! of 2.6.0), so the version is read from the file system before the program starts. Unknown means no.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use trainyard_profile::kineto::{VARIABLES, is_safe_torch};

use super::{Folders, PREFIX, ROOT};

/// `on` or `off`; without it, the version of `PyTorch` decides.
const CHOICE: &str = "TRAINYARD_PROFILE";
/// Programs that start an interpreter of an environment which they choose themselves.
const LAUNCHERS: [&str; 11] = [
    "conda",
    "hatch",
    "mamba",
    "micromamba",
    "pdm",
    "pipenv",
    "pixi",
    "poetry",
    "rye",
    "uv",
    "uvx",
];
/// Entries of a folder of packages that are looked at.
const MOST_PACKAGES: usize = 20_000;

/// The variables that prepare a program with this environment and this command; none where it is not prepared.
pub(crate) fn variables(
    folders: &Folders,
    environment: &BTreeMap<String, String>,
    command: &[String],
) -> Vec<(&'static str, String)> {
    // A user who set one of them has a daemon of their own.
    if VARIABLES.iter().any(|name| environment.contains_key(*name)) {
        return Vec::new();
    }
    let wanted = match environment.get(CHOICE).map(String::as_str) {
        Some("on") => true,
        Some("off") => false,
        _ => has_safe_torch(environment, command),
    };
    if !wanted {
        return Vec::new();
    }
    let [switch, configuration, sockets, traces] = VARIABLES;
    vec![
        (switch, "1".to_owned()),
        (configuration, folders.configuration().display().to_string()),
        (sockets, folders.sockets.display().to_string()),
        (traces, folders.traces.display().to_string()),
    ]
}

/// Forgets the variables that a run started in a pod of another run inherits: they lead to the engine of that run.
pub(crate) fn forget_inherited(environment: &mut BTreeMap<String, String>) {
    let [_, _, sockets, _] = VARIABLES;
    let of_a_run = format!("{ROOT}/{PREFIX}");
    let sockets = environment.get(sockets);
    if sockets.is_some_and(|folder| folder.starts_with(&of_a_run)) {
        for name in VARIABLES {
            environment.remove(name);
        }
    }
}

/// Whether every `PyTorch` that the program may import is new enough, and there is one.
fn has_safe_torch(environment: &BTreeMap<String, String>, command: &[String]) -> bool {
    let mut any = false;
    for folder in package_folders(environment, command) {
        for version in torch_versions(&folder) {
            if !is_safe_torch(&version) {
                return false;
            }
            any = true;
        }
    }
    any
}

/// Where the interpreter of a command looks for packages; nowhere where it is not known which interpreter that is.
fn package_folders(environment: &BTreeMap<String, String>, command: &[String]) -> Vec<PathBuf> {
    let path = environment
        .get("PATH")
        .map_or("/usr/bin:/bin", String::as_str);
    let mut interpreters = Vec::new();
    let first = command.first().map(Path::new);
    // `venv/bin/python` is relative to a folder that the program may have anywhere.
    let is_unknown = |program: &Path| {
        let name = program.file_name().and_then(|name| name.to_str());
        program.is_relative() && program.components().count() != 1
            || name.is_some_and(|name| LAUNCHERS.contains(&name))
    };
    if first.is_some_and(is_unknown) {
        return Vec::new();
    }
    if let Some(program) = first.filter(|program| program.is_absolute()) {
        // `torchrun` lies beside the interpreter that it names.
        interpreters.extend(program.parent().map(|folder| folder.join("python3")));
        interpreters.push(program.to_owned());
    }
    // Also of a program such as `torchrun`, which lies beside its interpreter.
    let on_path = first.filter(|program| program.is_relative());
    for name in on_path
        .into_iter()
        .chain([Path::new("python3"), Path::new("python")])
    {
        let mut found = path.split(':').map(|folder| Path::new(folder).join(name));
        interpreters.extend(found.find(|file| file.is_file()));
    }
    let mut prefixes = Vec::new();
    for interpreter in interpreters {
        let real = fs::canonicalize(&interpreter).unwrap_or_default();
        for file in [interpreter, real] {
            // `PREFIX/bin/python3`
            prefixes.extend(file.parent().and_then(Path::parent).map(Path::to_owned));
        }
    }
    prefixes.extend(environment.get("VIRTUAL_ENV").map(PathBuf::from));
    // What `pip install --user` writes, which comes before the packages of the system.
    prefixes.extend(
        environment
            .get("HOME")
            .map(|home| Path::new(home).join(".local")),
    );
    prefixes.extend(environment.get("PYTHONUSERBASE").map(PathBuf::from));
    prefixes.push(PathBuf::from("/usr/local"));
    prefixes.sort();
    prefixes.dedup();
    let mut folders: Vec<PathBuf> = Vec::new();
    for prefix in prefixes {
        for library in ["lib", "lib64"] {
            let versions = fs::read_dir(prefix.join(library));
            for entry in versions.into_iter().flatten().take(MOST_PACKAGES).flatten() {
                if entry.file_name().to_string_lossy().starts_with("python3") {
                    folders.push(entry.path().join("site-packages"));
                    folders.push(entry.path().join("dist-packages"));
                }
            }
        }
    }
    let listed = environment.get("PYTHONPATH").map_or("", String::as_str);
    folders.extend(
        listed
            .split(':')
            .filter(|it| !it.is_empty())
            .map(PathBuf::from),
    );
    folders
}

/// The versions of `PyTorch` in a folder of packages, from the names of their folders (`torch-2.11.0+cu130.dist-info`).
fn torch_versions(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let names = entries
        .take(MOST_PACKAGES)
        .flatten()
        .filter_map(|it| it.file_name().into_string().ok());
    names
        .filter_map(|name| {
            let version = name.strip_prefix("torch-")?;
            let version = version
                .strip_suffix(".dist-info")
                .or_else(|| version.strip_suffix(".egg-info"))?;
            Some(version.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its name, folders of packages, more variables, whether the program is prepared.
    type Case = (
        &'static str,
        &'static [&'static str],
        Vec<(String, String)>,
        bool,
    );

    #[test]
    fn programs_are_prepared_by_version_and_choice() {
        let folders = Folders {
            sockets: "/tmp/s".into(),
            traces: "/t".into(),
        };
        let own = |name: &str| vec![(name.to_owned(), "x".to_owned())];
        let choice = |value: &str| vec![(CHOICE.to_owned(), value.to_owned())];
        let cases: [Case; 8] = [
            ("none", &[], vec![], false),
            ("new", &["torch-2.11.0+cu130.dist-info"], vec![], true),
            ("old", &["torch-2.6.0.dist-info"], vec![], false),
            (
                "new and old",
                &["torch-2.15.0.dist-info", "torch-2.6.0.dist-info"],
                vec![],
                false,
            ),
            (
                "another package",
                &["torchvision-2.15.0.dist-info"],
                vec![],
                false,
            ),
            ("old and on", &["torch-2.6.0.dist-info"], choice("on"), true),
            (
                "new and off",
                &["torch-2.15.0.dist-info"],
                choice("off"),
                false,
            ),
            (
                "the user's own daemon",
                &["torch-2.15.0.dist-info"],
                own("KINETO_CONFIG"),
                false,
            ),
        ];
        for (name, packages, more, want) in cases {
            let root = tempfile::tempdir().unwrap();
            let site = root.path().join("lib/python3.12/site-packages");
            for package in packages {
                fs::create_dir_all(site.join(package)).unwrap();
            }
            fs::create_dir_all(root.path().join("bin")).unwrap();
            let python = root.path().join("bin/python3");
            fs::write(&python, "").unwrap();
            let mut environment: BTreeMap<String, String> = more.into_iter().collect();
            let path = python.parent().unwrap().display().to_string();
            environment.insert("PATH".to_owned(), path);
            let command = ["python3".to_owned(), "train.py".to_owned()];
            let found = variables(&folders, &environment, &command);
            assert_eq!(!found.is_empty(), want, "{name}");
            if !environment.contains_key(CHOICE) {
                for program in ["venv/bin/python", "./train", "conda", "/opt/bin/uv"] {
                    let command = [program.to_owned()];
                    let found = variables(&folders, &environment, &command);
                    assert!(found.is_empty(), "{name}: {program}");
                }
                let user = tempfile::tempdir().unwrap();
                let packages = user.path().join(".local/lib/python3.12/site-packages");
                fs::create_dir_all(packages.join("torch-2.6.0.dist-info")).unwrap();
                let mut environment = environment.clone();
                let home = user.path().display().to_string();
                environment.insert("HOME".to_owned(), home);
                let found = variables(&folders, &environment, &command);
                assert!(found.is_empty(), "{name}: an old one of the user");
            }
            if want {
                assert_eq!(
                    found[2],
                    ("KINETO_IPC_SOCKET_DIR", "/tmp/s".to_owned()),
                    "{name}"
                );
            }
        }
    }
}
