//! Upstream's own end-to-end tests, with its Python SDK, against the installed chart.
//!
//! The files are the ones of upstream's module, where they lie; a plugin for pytest gives the containers an image that
//! the real nodes have. See `tools/upstream`.

mod examples;
mod objects;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    hooks,
    installed::{install_chart, uninstall_chart},
    namespace::{alone_on_real_nodes, suite_folder},
};

/// The plugin, and what it is called.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/upstream");
const PLUGIN: &str = "fixture_images";
/// The image that every container of the tests runs.
const IMAGE: &str = "trainyard.test/upstream:test";
/// The files of upstream's tests, and how many of each file's tests are for clusters without a gang scheduler.
const FILES: &[(&str, usize)] = &[
    ("test_e2e_pytorchjob.py", 4),
    ("test_e2e_tfjob.py", 1),
    ("test_e2e_xgboostjob.py", 1),
    ("test_e2e_paddlejob.py", 1),
    ("test_e2e_jaxjob.py", 1),
    ("test_e2e_mpijob.py", 1),
];

/// Starts the tests of one file.
fn start(folder: &Path, namespace: &str, file: &str) -> std::process::Child {
    Command::new(folder.join("sdk/bin/python"))
        .args(["-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider"])
        .args(["--color=no", "--namespace", namespace])
        .arg(format!("test/e2e/{file}"))
        .current_dir(folder)
        .env("PYTHONPATH", TOOLS)
        // The module lies in Go's cache, where nothing is to be written.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TRAINYARD_IMAGE", IMAGE)
        .env_remove("HTTP_PROXY")
        .env_remove("HTTPS_PROXY")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

#[test]
fn upstream_sdk_and_e2e_tests_pass() {
    alone_on_real_nodes("upstream", |fixture| {
        let _hooks = hooks::alone(fixture);
        let folder: PathBuf = suite_folder().join("upstream");
        // As upstream installs its webhooks: what they are not asked about is not written.
        install_chart(
            fixture,
            &[
                "--set=webhook.failurePolicy=Fail",
                "--set=webhook.timeoutSeconds=30",
            ],
        );
        let people = fixture.beside("people");
        hooks::until_asked(&people);
        // All kinds at once, as upstream's own pipeline does; the SDK looks at a job every 15 s.
        let children: Vec<_> = FILES
            .iter()
            .map(|(file, tests)| (file, tests, start(&folder, &people.namespace, file)))
            .collect();
        let mut failed = Vec::new();
        for (file, tests, child) in children {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            let last = said.lines().last().unwrap_or_default();
            eprintln!("{file}: {last}");
            if !output.status.success() || !last.contains(&format!(" {tests} passed")) {
                failed.push(format!("{file}:\n{said}"));
            }
        }
        assert!(failed.is_empty(), "{}", failed.join("\n"));
        uninstall_chart(fixture);
        people.clear();
    });
}
