//! Why a machine allows only root to create namespaces, and what to do about it.
//!
//! Owns the settings by which distributions forbid it. Whether it is forbidden is tried, not
//! guessed: these only explain a refusal.

use std::{fs, path::Path};

/// A setting of the kernel that forbids namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    name: &'static str,
    /// The value that forbids.
    forbids: &'static str,
    /// The value that lets.
    lets: &'static str,
}

const SETTINGS: [Setting; 3] = [
    // Debian, and what is made from it.
    Setting {
        name: "kernel.unprivileged_userns_clone",
        forbids: "0",
        lets: "1",
    },
    // Ubuntu from 23.10 on: namespaces can be made, but give no rights in them.
    Setting {
        name: "kernel.apparmor_restrict_unprivileged_userns",
        forbids: "1",
        lets: "0",
    },
    // Red Hat Enterprise Linux 7, and hardened machines.
    Setting {
        name: "user.max_user_namespaces",
        forbids: "0",
        lets: "15000",
    },
];

/// The settings of this machine that forbid namespaces, each as `sysctl` takes what would let
/// them.
pub(crate) fn cures() -> Vec<String> {
    cures_under(Path::new("/proc/sys"))
}

fn cures_under(root: &Path) -> Vec<String> {
    let forbids = |setting: &Setting| {
        let path = root.join(setting.name.replacen('.', "/", 1));
        fs::read_to_string(path).is_ok_and(|value| value.trim() == setting.forbids)
    };
    let found = SETTINGS.iter().filter(|setting| forbids(setting));
    found
        .map(|setting| format!("{}={}", setting.name, setting.lets))
        .collect()
}

/// What the reader can do.
pub(crate) fn hint(cures: &[String]) -> String {
    if cures.is_empty() {
        // No setting forbids it, so what surrounds this process does.
        return "no sysctl of this machine forbids it, so the container around this shell does: \
                start it with `--security-opt seccomp=unconfined --security-opt \
                apparmor=unconfined`, or with `--privileged`; or run as root outside of it"
            .to_owned();
    }
    let cures = cures.join(" ");
    format!(
        "ask the machine's administrator for `sudo sysctl -w {cures}` (and for the same in \
         `/etc/sysctl.d/` to keep it), or run as root"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_that_forbids_is_named_with_its_cure() {
        type Files<'a> = &'a [(&'a str, &'a str)];
        let cases: [(&str, Files<'_>, &[&str]); 5] = [
            (
                "Debian",
                &[("kernel/unprivileged_userns_clone", "0\n")],
                &["kernel.unprivileged_userns_clone=1"],
            ),
            (
                "Ubuntu",
                &[
                    ("kernel/unprivileged_userns_clone", "1\n"),
                    ("kernel/apparmor_restrict_unprivileged_userns", "1\n"),
                    ("user/max_user_namespaces", "127181\n"),
                ],
                &["kernel.apparmor_restrict_unprivileged_userns=0"],
            ),
            (
                "Red Hat",
                &[("user/max_user_namespaces", "0\n")],
                &["user.max_user_namespaces=15000"],
            ),
            (
                "two at once",
                &[
                    ("kernel/unprivileged_userns_clone", "0\n"),
                    ("user/max_user_namespaces", "0\n"),
                ],
                &[
                    "kernel.unprivileged_userns_clone=1",
                    "user.max_user_namespaces=15000",
                ],
            ),
            ("a container", &[], &[]),
        ];
        for (name, files, want) in cases {
            let root = tempfile::tempdir().unwrap();
            for folder in ["kernel", "user"] {
                fs::create_dir(root.path().join(folder)).unwrap();
            }
            for (path, value) in files {
                fs::write(root.path().join(path), value).unwrap();
            }
            let cures = cures_under(root.path());
            assert_eq!(cures, want, "{name}");
            let hint = hint(&cures);
            let command = format!("`sudo sysctl -w {}`", want.join(" "));
            assert_eq!(hint.contains(&command), !want.is_empty(), "{name}: {hint}");
            assert_eq!(
                hint.contains("seccomp=unconfined"),
                want.is_empty(),
                "{name}"
            );
        }
    }
}
