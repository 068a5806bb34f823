//! `place` and `nodes` on the cluster of `examples/placement`.

use std::{fs, path::PathBuf};

use crate::{call::Call, golden};

fn example(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/placement");
    fs::read_to_string(folder.join(name)).expect("an example can be read")
}

fn call(words: &[&str]) -> Call {
    let mut call = Call::new(words);
    for name in ["nodes.yaml", "job.yaml", "waits.yaml"] {
        call = call.file(name, example(name));
    }
    call
}

#[test]
fn where_the_examples_go() {
    let calls: [&[&str]; 4] = [
        &["place", "job.yaml", "--nodes", "nodes.yaml"],
        &["place", "waits.yaml", "--nodes", "nodes.yaml"],
        &[
            "place",
            "waits.yaml",
            "--nodes",
            "nodes.yaml",
            "--format",
            "json",
        ],
        &["nodes", "--nodes", "nodes.yaml"],
    ];
    let outcomes: Vec<_> = calls.iter().map(|words| call(words).run()).collect();
    golden::check("placement", &outcomes);
}

#[test]
fn what_is_no_cluster_is_refused() {
    let calls = [
        call(&["place", "job.yaml", "--nodes", "job.yaml"]),
        call(&["nodes", "--nodes", "missing.yaml"]),
        call(&["nodes", "--nodes", "bad.yaml"]).file("bad.yaml", "a: [\n"),
        call(&["nodes", "--nodes", "bad.json"]).file("bad.json", "{\"kind\":\"Node\""),
        call(&["nodes", "--nodes", "odd.yaml"]).file(
            "odd.yaml",
            "kind: Node\napiVersion: v1\nmetadata: {name: node-1, labels: 3}\n",
        ),
        call(&["place", "bad.yaml", "--nodes", "nodes.yaml"]).file("bad.yaml", "kind: Job\n"),
        call(&["nodes", "--nodes", "nodes.yaml", "--cluster"]),
    ];
    let outcomes: Vec<_> = calls.iter().map(Call::run).collect();
    golden::check("placement-refusals", &outcomes);
}

#[test]
fn a_topology_of_ones_own_and_a_drawing() {
    let call = call(&[
        "nodes",
        "--nodes",
        "nodes.yaml",
        "--topology",
        "cloud.provider.com/topology-rack",
        "--svg",
        "harness.svg",
        "--format",
        "json",
    ]);
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let document: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(
        document["cluster"]["areas"].as_array().map(Vec::len),
        Some(5)
    );
    let total = &document["cluster"]["accelerators"];
    assert_eq!(total["total"], 128);
    let drawing = fs::read_to_string(call.folder().join("harness.svg")).unwrap();
    assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"));
    // Every accelerator is one square, and each kind of square has one more in the legend.
    let squares = drawing.matches("<title>").count();
    assert_eq!(squares, 128);
}

#[test]
fn devices_of_a_fabric_are_counted() {
    let on_fabric = example("job.yaml").replacen(
        "  annotations:\n",
        "  annotations:\n    trainyard.dev/fabric: roce-a\n",
        1,
    );
    let fabric = "---\napiVersion: trainyard.dev/v1alpha1\nkind: Fabric\nmetadata: {name: roce-a}\nspec:\n  rdma: {resource: rdma/hca_a}\n";
    let words = ["place", "fabric.yaml", "--nodes", "nodes.yaml"];
    let whole = format!("{}\n{fabric}", on_fabric.trim_end());
    let calls = [
        call(&words).file("fabric.yaml", whole),
        call(&words).file("fabric.yaml", on_fabric),
    ];
    let outcomes: Vec<_> = calls.iter().map(Call::run).collect();
    golden::check("placement-fabric", &outcomes);
}

/// The files of `examples/capacity` beside the cluster of `examples/placement`.
fn with_capacity(words: &[&str]) -> Call {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/capacity");
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("an example can be read");
    call(words)
        .file("three.yaml", read("job.yaml"))
        .file("capacity.yaml", read("capacity.yaml"))
        .file(
            "empty.json",
            "{\"kind\": \"NodeList\", \"apiVersion\": \"v1\", \"items\": []}",
        )
}

#[test]
fn now_after_a_scale_up_or_never() {
    let on = |nodes: &'static str, more: &[&'static str]| {
        let mut words = vec!["place", "three.yaml", "--capacity", "capacity.yaml"];
        words.extend(["--nodes", nodes]);
        words.extend(more);
        with_capacity(&words).run()
    };
    let outcomes = [
        on("nodes.yaml", &[]),
        on("empty.json", &[]),
        on("nodes.yaml", &["--format", "json"]),
    ];
    golden::check("capacity", &outcomes);
}

#[test]
fn what_is_no_capacity_is_refused() {
    let refused = |name: &str, text: &str| {
        let words = [
            "place",
            "job.yaml",
            "--nodes",
            "nodes.yaml",
            "--capacity",
            name,
        ];
        let call = with_capacity(&words);
        if text.is_empty() {
            call
        } else {
            call.file(name, text)
        }
        .run()
    };
    let head = "apiVersion: trainyard.dev/v1alpha1\nkind: Capacity\n";
    let outcomes = [
        refused("missing.yaml", ""),
        refused("job.yaml", ""),
        refused("bad.yaml", "pools: [\n"),
        refused(
            "field.yaml",
            &format!("{head}pools: [{{name: a, price: 3}}]\n"),
        ),
        refused(
            "nan.yaml",
            &format!(
                "{head}pools: [{{name: a, shapes: [{{name: s, allocatable: {{cpu: 1}}, pricePerHour: .nan}}]}}]\n"
            ),
        ),
        with_capacity(&["place", "job.yaml", "--nodes", "empty.json"]).run(),
    ];
    golden::check("capacity-refusals", &outcomes);
}
