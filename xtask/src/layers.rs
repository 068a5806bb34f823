//! `cargo xtask layers`: the arrows between crates and between their modules, and what may stand below them.
//!
//! Reads `cargo tree` and `Cargo.lock`, so it sees what is really built and not what the
//! manifests intend; arrows between modules are read from the sources ([`modules`]). Every refusal names the arrow, the rule and what to do.

mod licence;
mod modules;

use std::{collections::BTreeSet, fs};

use crate::{Failure, step};

/// Every crate of the workspace with the crates of the workspace it may depend on.
///
/// A crate that is missing here is refused: a new crate is a decision, and is drawn here first.
const ARROWS: &[(&str, &[&str])] = &[
    ("trainyard-core", &[]),
    (
        "trainyard-agent",
        &[
            "trainyard-checkpoint-engine",
            "trainyard-core",
            "trainyard-probe",
            "trainyard-stacks",
        ],
    ),
    ("trainyard-checkpoint-engine", &["trainyard-core"]),
    ("trainyard-sim", &["trainyard-core"]),
    ("trainyard-history", &["trainyard-core"]),
    (
        "trainyard-host",
        &[
            "trainyard-checkpoint-engine",
            "trainyard-core",
            "trainyard-probe",
            "trainyard-profile",
            "trainyard-stacks",
        ],
    ),
    ("trainyard-kube", &["trainyard-core", "trainyard-serve"]),
    ("trainyard-probe", &["trainyard-core"]),
    ("trainyard-profile", &[]),
    // The border to Python, beside the binary: it joins nothing.
    (
        "trainyard-python",
        &["trainyard-checkpoint-engine", "trainyard-core"],
    ),
    ("trainyard-serve", &[]),
    ("trainyard-smoke", &[]),
    ("trainyard-stacks", &[]),
    ("trainyard-tui", &["trainyard-core"]),
    ("trainyard-web", &["trainyard-serve"]),
    (
        "trainyard",
        &[
            "trainyard-agent",
            "trainyard-checkpoint-engine",
            "trainyard-core",
            "trainyard-sim",
            "trainyard-history",
            "trainyard-host",
            "trainyard-kube",
            "trainyard-probe",
            "trainyard-profile",
            "trainyard-smoke",
            "trainyard-stacks",
            "trainyard-tui",
            "trainyard-web",
        ],
    ),
    (
        "trainyard-tools",
        &[
            "trainyard-checkpoint-engine",
            "trainyard-core",
            "trainyard-sim",
            "trainyard-kube",
            "trainyard-probe",
        ],
    ),
    ("xtask", &[]),
];

/// Crates that nothing may bring in, with the reason.
const BANNED: &[(&str, &str)] = &[
    (
        "aws-lc-rs",
        "one TLS provider, `ring`: this one takes minutes to build",
    ),
    (
        "aws-lc-sys",
        "one TLS provider, `ring`: this one takes minutes to build",
    ),
    (
        "openssl-sys",
        "it needs a system library, and TLS is `rustls`",
    ),
    (
        "native-tls",
        "it needs a system library, and TLS is `rustls`",
    ),
    (
        "serde_yaml",
        "it is no longer maintained; YAML is read by `granit-parser`",
    ),
];

/// What `core` may not stand on, at any depth: it decides, others act.
const IMPURE: &[&str] = &[
    "async-std",
    "async-trait",
    "crossbeam",
    "futures",
    "futures-core",
    "futures-util",
    "getrandom",
    "hyper",
    "kube",
    "kube-client",
    "kube-core",
    "kube-runtime",
    "log",
    "mio",
    "rand",
    "rayon",
    "reqwest",
    "smol",
    "socket2",
    "tokio",
    "tokio-util",
    "tracing",
    "tracing-core",
];

/// Crates of which two versions are built, with the reason; each goes when the reason does.
const TWICE: &[(&str, &str)] = &[
    (
        "base64",
        "`kube-client` has moved to the next version, `k8s-openapi` has not",
    ),
    ("crypto-common", "as `digest`, which it comes with"),
    (
        "digest",
        "`object_store` takes its two checksums from crates of different age: `md-5` has moved, `crc-fast` has not",
    ),
    (
        "getrandom",
        "`ring` is still on the version before; `object_store` brings the next one with `rand`",
    ),
    (
        "itertools",
        "`object_store` has moved to the next version, `ratatui-core` has not",
    ),
    (
        "syn",
        "derive macros are moving to the next version one by one; none of it is in the binary",
    ),
    (
        "thiserror",
        "`nvml-wrapper` is still on the version before; it is the only way to NVML without `unsafe` of ours",
    ),
    ("thiserror-impl", "as `thiserror`"),
];

/// The only place crates may come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks every rule and returns all refusals at once.
pub(crate) fn run() -> Result<(), Failure> {
    let mut refusals = Vec::new();
    for member in members()? {
        refusals.extend(arrows(&member)?);
    }
    refusals.extend(purity()?);
    refusals.extend(third_parties()?);
    refusals.extend(duplicates()?);
    refusals.extend(sources()?);
    refusals.extend(panics()?);
    refusals.extend(modules::check()?);
    if refusals.is_empty() {
        Ok(())
    } else {
        Err(Failure::Failed(refusals.join("\n\n")))
    }
}

/// The licences and the banned crates, with the reason of each, as `deny.toml` lists them.
#[cfg(test)]
pub(crate) fn lists() -> (
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
) {
    (licence::ALLOWED, BANNED)
}

/// Whether a dependency may come under this licence.
pub(crate) fn allows(licence: &str) -> bool {
    licence::allowed(licence)
}

/// The packages of the workspace.
fn members() -> Result<Vec<String>, Failure> {
    let text = tree(&["--workspace", "--depth", "0", "--format", "{p}"])?;
    Ok(packages(&text).into_iter().map(|(name, _)| name).collect())
}

fn arrows(member: &str) -> Result<Vec<String>, Failure> {
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == member) else {
        return Ok(vec![format!(
            "crate `{member}` is in no layer\n  rule: a crate exists only where a dependency must \
             not leak\n  hint: add it to `ARROWS` in xtask/src/layers.rs and to ARCHITECTURE.md, \
             with the reason, or make it a module"
        )]);
    };
    let text = tree(&[
        "--package",
        member,
        "--depth",
        "1",
        "--edges",
        "normal,build,dev",
        "--format",
        "{p}",
    ])?;
    Ok(packages(&text)
        .iter()
        .filter(|(name, _)| name != member && ARROWS.iter().any(|(known, _)| known == name))
        .filter(|(name, _)| !allowed.contains(&name.as_str()))
        .map(|(name, _)| {
            format!(
                "arrow `{member}` -> `{name}` is not drawn\n  rule: `core` stands on no other \
                 crate, adapters stand on `core` only and never on each other\n  hint: move what \
                 both need into `core`, or let `trainyard` (cli) join the two"
            )
        })
        .collect())
}

fn purity() -> Result<Vec<String>, Failure> {
    let text = tree(&[
        "--package",
        "trainyard-core",
        "--edges",
        "normal,build",
        "--format",
        "{p}",
    ])?;
    let found: BTreeSet<String> = packages(&text).into_iter().map(|(name, _)| name).collect();
    Ok(IMPURE
        .iter()
        .filter(|name| found.contains(**name))
        .map(|name| {
            format!(
                "arrow `trainyard-core` -> `{name}` is forbidden, at any depth\n  rule: `core` has \
                 no IO, clock, randomness, async, threads or logging\n  hint: run `cargo tree -p \
                 trainyard-core -i {name}` to see who brings it, and move that to an adapter"
            )
        })
        .collect())
}

fn third_parties() -> Result<Vec<String>, Failure> {
    let text = tree(&[
        "--workspace",
        "--edges",
        "normal,build,dev",
        "--format",
        "{p}|{l}",
    ])?;
    let mut refusals = BTreeSet::new();
    for line in text.lines() {
        let Some((package, terms)) = line.split_once('|') else {
            continue;
        };
        let name = package.split_whitespace().next().unwrap_or_default();
        let terms = terms.trim_end_matches(" (*)").trim();
        if let Some((_, reason)) = BANNED.iter().find(|(banned, _)| *banned == name) {
            refusals.insert(format!(
                "crate `{name}` is banned\n  rule: {reason}\n  hint: run `cargo tree -i {name}` to \
                 see which feature brings it, and turn that off"
            ));
        }
        if !licence::allowed(terms) {
            let shown = if terms.is_empty() {
                "no licence"
            } else {
                terms
            };
            refusals.insert(format!(
                "crate `{name}` comes under `{shown}`\n  rule: only the licences of \
                 xtask/src/layers/licence.rs, none of them copyleft\n  hint: choose another crate, \
                 or write those lines ourselves"
            ));
        }
    }
    Ok(refusals.into_iter().collect())
}

fn duplicates() -> Result<Vec<String>, Failure> {
    let text = tree(&["--workspace", "--edges", "normal,build", "--format", "{p}"])?;
    let all: BTreeSet<(String, String)> = packages(&text).into_iter().collect();
    let versions = |name: &String| -> Vec<&str> {
        all.iter()
            .filter(|(other, _)| other == name)
            .map(|(_, version)| version.as_str())
            .collect()
    };
    let names: BTreeSet<&String> = all.iter().map(|(name, _)| name).collect();
    Ok(names
        .into_iter()
        .map(|name| (name, versions(name)))
        .filter(|(name, versions)| {
            let borne = TWICE.iter().any(|(twice, _)| twice == name);
            versions.len() > if borne { 2 } else { 1 }
        })
        .map(|(name, versions)| {
            format!(
                "crate `{name}` is built {} times: {}\n  rule: one version of each crate in the \
                 binary\n  hint: run `cargo tree --duplicates` and align the versions",
                versions.len(),
                versions.join(", ")
            )
        })
        .collect())
}

fn sources() -> Result<Vec<String>, Failure> {
    let lock = step::root().join("Cargo.lock");
    let text = fs::read_to_string(&lock)
        .map_err(|error| Failure::CouldNotRun(format!("cannot read `Cargo.lock`: {error}")))?;
    let foreign: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("source = \""))
        .map(|line| line.trim_end_matches('"'))
        .filter(|source| *source != REGISTRY)
        .collect();
    Ok(foreign
        .into_iter()
        .map(|source| {
            format!(
                "a crate comes from `{source}`\n  rule: every crate comes from crates.io\n  hint: \
                 depend on a published version"
            )
        })
        .collect())
}

/// Files that decide how the program is built.
const BUILT_BY: &[&str] = &[
    "Cargo.toml",
    ".cargo/config.toml",
    "deploy/image/Containerfile",
];

fn panics() -> Result<Vec<String>, Failure> {
    let mut refusals = Vec::new();
    for file in BUILT_BY {
        let text = fs::read_to_string(step::root().join(file))
            .map_err(|error| Failure::CouldNotRun(format!("cannot read `{file}`: {error}")))?;
        refusals.extend(aborts(&text).into_iter().map(|line| {
            format!(
                "`{file}` line {line}: a panic would end the process\n  rule: a pass that panics costs one job, in the \
                 image as in tests\n  hint: leave `panic` at `unwind`"
            )
        }));
    }
    Ok(refusals)
}

/// The lines, from 1, that make a panic end the process.
fn aborts(text: &str) -> Vec<usize> {
    let says_so = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        let bare: String = line
            .chars()
            .filter(|letter| !letter.is_whitespace() && !"\"'".contains(*letter))
            .collect();
        bare.contains("panic=abort") || bare.contains("panic=immediate-abort")
    };
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| says_so(line))
        .map(|(at, _)| at + 1)
        .collect()
}

fn tree(arguments: &[&str]) -> Result<String, Failure> {
    let mut words = vec!["tree", "--quiet", "--locked", "--prefix", "none"];
    words.extend(arguments);
    step::capture(&mut step::cargo(&words))
}

/// Name and version of each line of `cargo tree --prefix none`.
fn packages(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            let version = words.next()?.strip_prefix('v')?;
            Some((name.to_owned(), version.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cargo_tree_are_packages() {
        let text = "trainyard-core v0.1.0 (/some where/crates/core)\n\nserde v1.0.229 (*)\n\
                    serde_derive v1.0.229 (proc-macro)\n[dev-dependencies]\n";
        let want = [
            ("trainyard-core", "0.1.0"),
            ("serde", "1.0.229"),
            ("serde_derive", "1.0.229"),
        ];
        assert_eq!(
            packages(text),
            want.map(|(name, version)| (name.to_owned(), version.to_owned()))
        );
    }

    #[test]
    fn no_profile_aborts_on_panic() {
        let cases = [
            ("[profile.dist]\npanic = \"abort\"", vec![2]),
            ("panic='abort'", vec![1]),
            ("rustflags = [\"-C\", \"panic=abort\"]", vec![1]),
            ("RUN RUSTFLAGS=-Cpanic=abort cargo build", vec![1]),
            ("panic = \"unwind\"\n# never panic = \"abort\"", vec![]),
        ];
        for (text, lines) in cases {
            assert_eq!(aborts(text), lines, "{text}");
        }
        assert_eq!(panics().unwrap(), [] as [String; 0]);
    }

    #[test]
    fn every_crate_with_an_arrow_exists() {
        let members = include_str!("../../Cargo.toml");
        for (name, _) in ARROWS {
            let folder = match *name {
                "xtask" => "xtask".to_owned(),
                "trainyard" => "crates/cli".to_owned(),
                "trainyard-tools" => "tools/programs".to_owned(),
                // The package `trainyard-checkpoint` is that for Python.
                "trainyard-checkpoint-engine" => "crates/checkpoint".to_owned(),
                name => name.replace("trainyard-", "crates/"),
            };
            assert!(members.contains(&format!("\"{folder}\"")), "{name}");
        }
    }

    #[test]
    fn only_the_binary_and_the_tools_join_adapters() {
        for (name, allowed) in ARROWS {
            let most: &[&str] = match *name {
                "trainyard" | "trainyard-tools" => continue,
                "trainyard-core" | "trainyard-profile" | "trainyard-serve" | "trainyard-smoke"
                | "trainyard-stacks" | "xtask" => &[],
                // A server knows of no job.
                "trainyard-kube" => &["trainyard-core", "trainyard-serve"],
                "trainyard-web" => &["trainyard-serve"],
                // What reads stacks, GPUs and recorders is no adapter: it reads machines or files, and knows of no job.
                "trainyard-agent" => &[
                    "trainyard-checkpoint-engine",
                    "trainyard-core",
                    "trainyard-probe",
                    "trainyard-stacks",
                ],
                // What speaks with profilers is values in and values out.
                "trainyard-host" => &[
                    "trainyard-checkpoint-engine",
                    "trainyard-core",
                    "trainyard-probe",
                    "trainyard-profile",
                    "trainyard-stacks",
                ],
                "trainyard-python" => &["trainyard-checkpoint-engine", "trainyard-core"],
                _ => &["trainyard-core"],
            };
            assert_eq!(*allowed, most, "{name}");
        }
    }
}
