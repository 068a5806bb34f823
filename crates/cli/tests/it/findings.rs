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
    for code in ["TY001", "ty001", "001"] {
        let outcome = Call::new(&["lint", "--explain", code]).run();
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(outcome.stdout.starts_with("TY001: "), "{}", outcome.stdout);
    }
}

#[test]
fn rules_are_listed() {
    let list = |words: &[&str]| {
        let outcome = Call::new(&[&["lint", "--list"], words].concat()).run();
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        outcome.stdout
    };
    let line = |text: &str, code: &str| {
        text.lines()
            .find(|line| line.starts_with(code))
            .map(str::to_owned)
    };
    let all = list(&[]);
    assert_eq!(
        line(&all, "TY401").as_deref(),
        Some("TY401  warning/error    nowhere to keep checkpoints")
    );
    assert_eq!(
        line(&all, "TY206").as_deref(),
        Some("TY206  -/warning        no toleration for GPU nodes")
    );
    assert_eq!(line(&list(&["--profile", "demo"]), "TY206"), None);
    let json: serde_json::Value = serde_json::from_str(&list(&["--format", "json"])).unwrap();
    let rules = json["rules"].as_array().unwrap();
    assert_eq!(rules.len(), all.lines().count());
    let refused = Call::new(&["lint", "--list", "--format", "sarif"]).run();
    assert_eq!(refused.code, Some(2), "{refused:?}");
}

/// Valid, and still a job that will go wrong.
pub(crate) const RISKY: &str = "\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: risky
spec:
  nprocPerNode: \"8\"
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: example.com/train
              command: [torchrun, --nnodes=4, train.py]
              env:
                # copied from the last cluster
                - {name: NCCL_MIN_NRINGS, value: 4}
              resources:
                requests: {cpu: \"4\", memory: 64Gi}
                limits: {nvidia.com/gpu: 8}
";

#[test]
fn a_profile_decides_how_bad_a_finding_is() {
    let call = |words: &[&str]| {
        let risky = RISKY.replace("value: 4", "value: \"4\"");
        Call::new(words).file("risky.yaml", risky).run()
    };
    golden::check(
        "lint-profiles",
        &[
            call(&["lint", "risky.yaml"]),
            call(&[
                "lint",
                "risky.yaml",
                "--profile",
                "production",
                "--format",
                "github",
            ]),
            call(&["lint", "--explain", "TY316"]),
        ],
    );
}

#[test]
fn a_folder_is_all_its_manifests_judged_together() {
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n";
    let job = GOOD.replace(
        "          containers:\n",
        "          volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]\n          containers:\n",
    );
    let call = Call::new(&["lint", "."])
        .file("claim.yml", claim)
        .file("job.yaml", &job)
        .file("README.md", "not a manifest")
        .file(".hidden.txt", "neither");
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome.stdout.contains("warning[TY402]"),
        "{}",
        outcome.stdout
    );
    assert!(
        outcome.stderr.contains("1 warning in 2 files"),
        "{}",
        outcome.stderr
    );
    let alone = call.again(&["lint", "job.yaml"]).run();
    assert_eq!(
        (alone.code, alone.stdout.as_str()),
        (Some(0), ""),
        "{alone:?}"
    );
    let empty = Call::new(&["lint", "."]).run();
    assert_eq!(empty.code, Some(2), "{empty:?}");
    assert!(
        empty.stderr.contains("no manifests in `.`"),
        "{}",
        empty.stderr
    );
}

#[test]
fn the_rest_of_a_chart_is_passed_over() {
    let chart =
        format!("apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\n---\n{GOOD}");
    let outcome = Call::new(&["lint", "-"]).stdin(chart).run();
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (Some(0), ""),
        "{outcome:?}"
    );
}

#[test]
fn safe_fixes_are_written_into_the_file() {
    let marked = format!("\u{feff}{RISKY}");
    let call = Call::new(&["lint", "risky.yaml", "--fix"]).file("risky.yaml", &marked);
    let content = || std::fs::read_to_string(call.folder().join("risky.yaml")).unwrap();
    let outcome = call.run();
    assert_eq!(
        outcome.code,
        Some(1),
        "what cannot be fixed is still reported: {outcome:?}"
    );
    assert!(
        outcome.stderr.starts_with("4 fixed, 1 error"),
        "{}",
        outcome.stderr
    );
    let want = marked
        .replace(
            "{name: NCCL_MIN_NRINGS, value: 4}",
            "{name: NCCL_MIN_NCHANNELS, value: \"4\"}",
        )
        .replace(
            "  pytorchReplicaSpecs:\n",
            "  runPolicy:\n    backoffLimit: 3\n  pytorchReplicaSpecs:\n",
        )
        .replace(
            "          containers:\n",
            "          volumes:\n          - name: shm\n            emptyDir:\n              medium: Memory\n              sizeLimit: 64Gi\n          containers:\n",
        )
        .replace(
            "              resources:\n",
            "              volumeMounts:\n              - name: shm\n                mountPath: /dev/shm\n              resources:\n",
        );
    assert_eq!(content(), want);
    let again = call.again(&["lint", "risky.yaml", "--fix"]).run();
    assert!(again.stderr.starts_with("1 error"), "{}", again.stderr);
    assert_eq!(content(), want);
    let stdin = Call::new(&["lint", "-", "--fix"]).stdin(RISKY).run();
    assert_eq!(stdin.code, Some(2), "{stdin:?}");
}

/// The parts of SARIF 2.1.0 that its schema requires of what is written here: each named property has
/// the type that the schema gives it, and there is none besides.
#[test]
fn sarif_has_the_properties_that_its_schema_names() {
    let outcome = Call::new(&["lint", "--format", "sarif", "risky.yaml", "broken.yaml"])
        .file("risky.yaml", RISKY.replace("value: 4", "value: \"4\""))
        .file("broken.yaml", "a: [")
        .run();
    let log: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let keys = |value: &serde_json::Value| -> Vec<String> {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&log), ["$schema", "runs", "version"]);
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    assert_eq!(keys(run), ["columnKind", "results", "tool"]);
    assert_eq!(run["columnKind"], "unicodeCodePoints");
    let driver = &run["tool"]["driver"];
    assert_eq!(keys(driver), ["name", "rules", "semanticVersion"]);
    let rules = driver["rules"].as_array().unwrap();
    for rule in rules {
        assert_eq!(
            keys(rule),
            [
                "defaultConfiguration",
                "fullDescription",
                "help",
                "id",
                "shortDescription"
            ]
        );
        for text in ["fullDescription", "help", "shortDescription"] {
            assert_eq!(keys(&rule[text]), ["text"]);
            assert!(rule[text]["text"].is_string());
        }
        assert_eq!(keys(&rule["defaultConfiguration"]), ["level"]);
    }
    let results = run["results"].as_array().unwrap();
    assert!(results.len() > 4, "{results:?}");
    let mut files = Vec::new();
    for result in results {
        assert_eq!(
            keys(result),
            ["level", "locations", "message", "ruleId", "ruleIndex"]
        );
        assert!(["error", "warning"].contains(&result["level"].as_str().unwrap()));
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        let place = &result["locations"][0]["physicalLocation"];
        files.push(
            place["artifactLocation"]["uri"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
        for number in ["startLine", "startColumn"] {
            assert!(place["region"][number].as_u64().unwrap() >= 1, "{result}");
        }
    }
    files.dedup();
    assert_eq!(files, ["risky.yaml", "broken.yaml"]);
}
