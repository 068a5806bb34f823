//! `trainyard preflight`: this machine, and a node that was written down as a tree of files.

use std::{fs, path::PathBuf};

use crate::{
    call::{Call, Outcome},
    golden,
    node::Node,
};

fn example() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/fabric/job.yaml");
    fs::read_to_string(path).expect("the example can be read")
}

/// A call beside a job file, with the tree of a node changed by `change`.
fn on_node(words: &[&str], change: impl FnOnce(&Node)) -> Outcome {
    let call = Call::new(words).file("job.yaml", example());
    change(&Node::below(&call.folder().join("node"), 8));
    call.run()
}

#[test]
fn a_node_is_held_to_what_the_job_and_its_fabric_need() {
    let words = ["preflight", "--root", "node", "--job", "job.yaml"];
    let well = on_node(&words, |_| {});
    let broken = on_node(&words, |node| {
        node.remove("proc/driver/nvidia/gpus/0000:43:00.0");
        node.write("sys/class/net/net1/mtu", "1500\n");
        node.write(
            "proc/self/mounts",
            "shm /dev/shm tmpfs rw,size=65536k 0 0\n",
        );
        node.write(
            "proc/self/limits",
            "Max open files  1024  1024  files\nMax locked memory  unlimited  unlimited  bytes\n",
        );
    });
    let alone = on_node(&["preflight", "--root", "node"], |_| {});
    golden::check("preflight", &[well, broken, alone]);
}

#[test]
fn the_same_as_json() {
    let words = [
        "preflight",
        "--root",
        "node",
        "--job",
        "job.yaml",
        "--format",
        "json",
    ];
    let outcome = on_node(&words, |node| {
        node.write("sys/class/net/net1/operstate", "down\n");
    });
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    golden::check("preflight-json", &[outcome]);
}

#[test]
fn what_cannot_be_found_out_is_refused() {
    let job = example();
    let (alone, _) = job
        .split_once("---\n")
        .expect("the fabric is a document of its own");
    let two = format!(
        "{alone}---\n{}",
        alone.replace("name: pretrain", "name: other")
    );
    let call = |words: &[&str]| {
        Call::new(words)
            .file("job.yaml", &job)
            .file("alone.yaml", alone)
            .file(
                "two.yaml",
                two.replace("    trainyard.dev/fabric: roce-a\n", ""),
            )
            .file("bad.yaml", "kind: [")
            .run()
    };
    golden::check(
        "preflight-refused",
        &[
            call(&["preflight", "--job", "alone.yaml"]),
            call(&["preflight", "--job", "two.yaml"]),
            call(&["preflight", "--job", "bad.yaml"]),
            call(&["preflight", "--job", "job.yaml", "--role", "Master"]),
            call(&["preflight", "--role", "Worker"]),
            call(&["preflight", "--root", "nowhere"]),
        ],
    );
}

#[test]
fn preflight_of_this_machine_changes_nothing() {
    let call = Call::new(&["preflight", "--format", "json", "--volume", "."]);
    let outcome = call.run();
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("it is JSON");
    assert_eq!(report["version"], 1);
    let failed = report["outcome"] == "fail";
    assert_eq!(outcome.code, Some(i32::from(failed)), "{}", outcome.stdout);
    let nodes = report["nodes"].as_object().expect("there are nodes");
    assert_eq!(nodes.len(), 1);
    let checks = nodes
        .values()
        .next()
        .and_then(|node| node["checks"].as_array());
    let checks = checks.expect("there are checks");
    let outcome_of = |name: &str| {
        let check = checks.iter().find(|check| check["name"] == name);
        check.map_or("none", |check| check["outcome"].as_str().unwrap_or("none"))
    };
    assert_eq!(outcome_of("cpu-count"), "pass");
    assert_eq!(outcome_of("volume-writable"), "pass");
    assert_eq!(outcome_of("volume-rename"), "pass");
    assert_eq!(
        fs::read_dir(call.folder())
            .expect("the folder is there")
            .count(),
        0
    );
}
