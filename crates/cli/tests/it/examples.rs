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
