//! The files of `examples/`: free of findings, and every one becomes objects.

use std::{fs, path::PathBuf};

use crate::call::Call;

fn examples() -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut files: Vec<(String, String)> = fs::read_dir(folder)
        .expect("the examples can be listed")
        .map(|entry| entry.expect("the examples can be listed").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .map(|path| {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            (
                name,
                fs::read_to_string(path).expect("an example can be read"),
            )
        })
        .collect();
    files.sort();
    files
}

/// Every file of `examples/` and its folders, by its path in there.
fn all_examples() -> Vec<(String, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut folders = vec![root.clone()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the examples can be listed") {
            let path = entry.expect("the examples can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "yaml")
            {
                let name = path.strip_prefix(&root).expect("it is in there");
                let text = fs::read_to_string(&path).expect("an example can be read");
                files.push((name.display().to_string(), text));
            }
        }
    }
    files.sort();
    files
}

/// Nothing is found in an example, in either profile. What is meant is allowed in the file, with its reason, and
/// a file that is not a job says so.
#[test]
fn examples_pass_lint_in_both_profiles() {
    let files = all_examples();
    assert!(files.len() > 20, "{}", files.len());
    let mut wrong = Vec::new();
    for (name, text) in files {
        if text.starts_with("# Not a job file") {
            continue;
        }
        for profile in ["demo", "production"] {
            let lint = Call::new(&["lint", "-", "--profile", profile])
                .stdin(text.clone())
                .run();
            if lint.code != Some(0) || !lint.stdout.is_empty() {
                wrong.push(format!("{name} for {profile}:\n{}", lint.stdout));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One of each kind runs to its end here, as it is, without a framework. That of MPI needs `mpirun`.
#[test]
fn one_example_of_each_kind_trains_here() {
    let files = all_examples();
    let smoke = files.iter().filter(|(name, _)| name.starts_with("smoke/"));
    let mut kinds = Vec::new();
    for (name, text) in smoke {
        let kind = text
            .lines()
            .filter_map(|line| line.strip_prefix("kind: "))
            .find(|kind| kind.ends_with("Job"))
            .expect("it is a job");
        kinds.push(kind);
        let has_mpi = || {
            let mut found = std::process::Command::new("mpirun");
            found.arg("--version").output().is_ok()
        };
        if kind == "MPIJob" && !has_mpi() {
            eprintln!("not run: {name} needs `mpirun`, which is not on the PATH");
            continue;
        }
        // Its limits on memory and time are not for runs of Open MPI.
        let call = Call::new(&[]).file("job.yaml", text);
        let run = std::process::Command::new(env!("CARGO_BIN_EXE_trainyard"))
            .args(["run", "job.yaml"])
            .current_dir(call.folder())
            .output()
            .expect("the program can be started");
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(
            run.status.success() && said.contains("done: test accuracy"),
            "{name}: {said}\n{}",
            String::from_utf8_lossy(&run.stderr)
        );
    }
    kinds.sort_unstable();
    let all = [
        "JAXJob",
        "MPIJob",
        "PaddleJob",
        "PyTorchJob",
        "TFJob",
        "XGBoostJob",
    ];
    assert_eq!(kinds, all);
}

#[test]
fn there_is_one_for_every_kind() {
    let texts: String = examples().into_iter().map(|(_, text)| text).collect();
    for kind in [
        "PyTorchJob",
        "TFJob",
        "MPIJob",
        "XGBoostJob",
        "PaddleJob",
        "JAXJob",
    ] {
        assert!(
            texts.contains(&format!("\nkind: {kind}\n")),
            "an example of {kind}"
        );
    }
    for version in ["kubeflow.org/v1\n", "kubeflow.org/v2beta1\n"] {
        assert!(texts.contains(version), "an example of {version}");
    }
    assert!(texts.contains("\n  elasticPolicy:\n"), "an elastic example");
}

#[test]
fn each_has_no_error_and_renders() {
    for (name, text) in examples() {
        let lint = Call::new(&["lint", &name]).file(&name, &text).run();
        // What a demo skips is warned of; that an example is wrong would be an error.
        assert_eq!(lint.code, Some(0), "{name}: {}", lint.stdout);
        let render = Call::new(&["render", "--format", "json", &name])
            .file(&name, &text)
            .run();
        assert_eq!(
            (render.code, render.stderr.as_str()),
            (Some(0), ""),
            "{name}"
        );
        let objects: serde_json::Value = serde_json::from_str(&render.stdout).unwrap();
        let pods = objects["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|object| object["kind"] == "Pod");
        assert!(pods.count() > 0, "{name} has pods");
    }
}

#[test]
fn what_is_rendered_can_be_read_again() {
    for (name, text) in examples() {
        let yaml = Call::new(&["render", &name])
            .file(&name, &text)
            .run()
            .stdout;
        let json = Call::new(&["render", "--format", "json", &name])
            .file(&name, &text)
            .run()
            .stdout;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let read = trainyard_core::spec::read(yaml.as_bytes()).unwrap();
        let again: Vec<serde_json::Value> = read
            .documents
            .iter()
            .map(|document| document.tree.to_json())
            .collect();
        assert_eq!(json["items"].as_array().unwrap(), &again, "{name}");
    }
}
