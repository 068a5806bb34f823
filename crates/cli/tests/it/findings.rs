//! `lint`: all findings of all files at once.

use crate::{call::Call, golden};

/// One job with several mistakes of different kinds.
const SEVERAL: &str = "\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: Several_Mistakes
spec:
  nprocPerNod: 8
  runPolicy:
    cleanPodPolicy: Sometimes
    backoffLimit: -3
  pytorchReplicaSpecs:
    Master:
      replicas: 2
      template:
        spec:
          containers:
            - name: main
              image: example.com/train:1
    Wroker:
      replicas: 4
";

const GOOD: &str = "\
apiVersion: kubeflow.org/v1
kind: JAXJob
metadata:
  name: good
spec:
  jaxReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - {name: jax, image: example.com/train:1}
";

/// Only something to warn of.
const ODD: &str = "\
apiVersion: kubeflow.org/v1
kind: JAXJob
metadata:
  name: odd
spec:
  runPolcy: {}
  jaxReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - {name: jax, image: example.com/train:1}
";

#[test]
fn everything_is_found_at_once() {
    let call = |words: &[&str]| {
        Call::new(words)
            .file("several.yaml", SEVERAL)
            .file("good.yaml", GOOD)
            .file("odd.yaml", ODD)
            .run()
    };
    golden::check(
        "lint-several",
        &[
            call(&["lint", "several.yaml"]),
            call(&["lint", "good.yaml"]),
            call(&["lint", "odd.yaml"]),
            call(&[
                "lint",
                "good.yaml",
                "missing.yaml",
                "odd.yaml",
                "several.yaml",
            ]),
        ],
    );
    golden::check(
        "lint-json",
        &[
            call(&["lint", "--format", "json", "good.yaml"]),
            call(&[
                "lint",
                "--format",
                "json",
                "odd.yaml",
                "several.yaml",
                "missing.yaml",
            ]),
        ],
    );
}

#[test]
fn stdin_is_a_file_too() {
    let outcome = Call::new(&["lint", "-"]).stdin(ODD).run();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("<stdin>:6:3"), "{}", outcome.stdout);
}

#[test]
fn a_place_far_to_the_right_is_shown_in_part() {
    let long = format!("{}, \"metadata\": {{\"name\": \"Bad_Name\"}}}}", {
        let filler: Vec<String> = (0..2_000).map(|at| format!("\"k{at}\": \"v\"")).collect();
        format!(
            "{{\"apiVersion\": \"kubeflow.org/v1\", \"kind\": \"JAXJob\", \"spec\": {{\"jaxReplicaSpecs\": {{}}}}, \
             \"status\": {{{}}}",
            filler.join(", ")
        )
    });
    let outcome = Call::new(&["lint", "job.json"])
        .file("job.json", long)
        .run();
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let longest = outcome
        .stdout
        .lines()
        .map(|line| line.chars().count())
        .max();
    assert!(
        longest.is_some_and(|longest| longest < 300),
        "{}",
        outcome.stdout
    );
}

#[test]
fn every_rule_has_a_page() {
    let outcome = Call::new(&["lint", "--explain", "ty001"]).run();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.starts_with("TY001: "), "{}", outcome.stdout);
}
