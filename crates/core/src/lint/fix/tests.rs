use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::{super::advice, *};

const JOB: &str = "\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: j}
spec:
  runPolicy:
    cleanPodPolicy: running  # as always
  pytorchReplicaSpecs:
    Master:
      replicas: \"1\"
      template:
        spec:
          # ranks use the host's network
          hostNetwork: true  # RoCE
          restartPolicy: Never
          containers:
          - name: pytorch
            image: i:1
            command:
            - torchrun
            - --nnodes 1
            - t.py
            env:
            - {name: A, value: 1}
            - name: B
              value: yes
            - name: NCCL_MIN_NRINGS
              value: '4'
";

const FIXED: &str = "\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: j}
spec:
  runPolicy:
    cleanPodPolicy: Running  # as always
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          # ranks use the host's network
          hostNetwork: true  # RoCE
          dnsPolicy: ClusterFirstWithHostNet
          containers:
          - name: pytorch
            image: i:1
            command:
            - torchrun
            - --nnodes
            - \"1\"
            - t.py
            env:
            - {name: A, value: \"1\"}
            - name: B
              value: \"yes\"
            - name: NCCL_MIN_NCHANNELS
              value: '4'
";

fn fixed(text: &str) -> Option<String> {
    let file = spec::read(text.as_bytes()).unwrap_or_else(|finding| panic!("{finding:?}\n{text}"));
    fix(&file, &[], None).map(|fixed| fixed.text)
}

#[test]
fn comments_and_order_are_kept() {
    let text = fixed(JOB).unwrap();
    assert_eq!(text, FIXED);
    assert_eq!(fixed(&text), None, "fixing twice is fixing once");
    let with_returns = JOB.replace('\n', "\r\n");
    assert_eq!(fixed(&with_returns).unwrap(), FIXED.replace('\n', "\r\n"));
}

#[test]
fn fixes_keep_the_layout() {
    let job = |pod: &str| {
        format!(
            "{{\"apiVersion\": \"kubeflow.org/v1\", \"kind\": \"JAXJob\", \"metadata\": {{\"name\": \"j\"}}, \"spec\": {{\"jaxReplicaSpecs\": {{\"Worker\": {{\"template\": {{\"spec\": {pod}}}}}}}}}}}\n"
        )
    };
    let containers = "\"containers\": [{\"name\": \"jax\", \"image\": \"i:1\"}]";
    let cases = [
        (
            "an entry is added to JSON",
            format!("{{{containers}, \"hostNetwork\": true}}"),
            Some(format!(
                "{{{containers}, \"hostNetwork\": true, \"dnsPolicy\": \"ClusterFirstWithHostNet\"}}"
            )),
        ),
        (
            "and to a flow map",
            format!("{{hostNetwork: true, {containers}}}"),
            Some(format!(
                "{{hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet, {containers}}}"
            )),
        ),
        (
            "and over several lines",
            format!("{{\n\"hostNetwork\": true # why\n, {containers}}}"),
            Some(format!(
                "{{\n\"hostNetwork\": true, \"dnsPolicy\": \"ClusterFirstWithHostNet\" # why\n, {containers}}}"
            )),
        ),
        (
            "an entry is not removed from a flow map",
            format!("{{\"restartPolicy\": \"Never\", {containers}}}"),
            None,
        ),
        (
            "a policy of somebody's own stays",
            format!("{{\"hostNetwork\": true, \"dnsPolicy\": \"None\", {containers}}}"),
            None,
        ),
        (
            "the one that means the other does not",
            format!("{{\"hostNetwork\": true, \"dnsPolicy\": \"ClusterFirst\", {containers}}}"),
            Some(format!(
                "{{\"hostNetwork\": true, \"dnsPolicy\": \"ClusterFirstWithHostNet\", {containers}}}"
            )),
        ),
    ];
    for (name, pod, want) in cases {
        assert_eq!(fixed(&job(&pod)), want.map(|pod| job(&pod)), "{name}");
    }
    let block = |pod: &str| {
        format!(
            "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {{name: j}}\nspec:\n  jaxReplicaSpecs:\n    Worker:\n      template:\n        spec:\n{pod}          containers:\n          - {{name: jax, image: \"i:1\"}}\n"
        )
    };
    let kept = [
        (
            "a line with a comment",
            "          restartPolicy: Never # why\n",
        ),
        (
            "the text of an alias that others need",
            "          priority: &n 1\n          nodeName: *n\n",
        ),
    ];
    for (name, pod) in kept {
        assert_eq!(fixed(&block(pod)), None, "{name}");
    }
    let lower = block("").replace("Worker:", "worker:");
    assert_eq!(fixed(&lower), Some(block("")), "the name of a role");
}

/// The paths at which two documents differ.
fn changed(path: &str, before: &Json, after: &Json, paths: &mut BTreeSet<String>) {
    match (before, after) {
        (Json::Object(left), Json::Object(right)) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let mut below = path.to_owned();
                spec::push_key(&mut below, key);
                let of =
                    |map: &serde_json::Map<String, Json>| map.get(key).cloned().unwrap_or_default();
                changed(&below, &of(left), &of(right), paths);
            }
        }
        (Json::Array(left), Json::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                changed(&format!("{path}[{index}]"), left, right, paths);
            }
        }
        _ if before == after => {}
        _ => {
            paths.insert(path.to_owned());
        }
    }
}

#[test]
fn what_is_not_fixed_keeps_its_meaning() {
    let mut texts: Vec<String> = advice::all()
        .flat_map(|advice| [advice.catches.text(), advice.spares.text()])
        .collect();
    // Each manifest also with all that can be fixed in it broken.
    let broken: Vec<String> = texts
        .iter()
        .map(|text| {
            text.replace("cleanPodPolicy: Running", "cleanPodPolicy: running")
                .replace("replicas: 1", "replicas: '1'")
                .replace("    Worker:", "    worker:")
                .replace(
                    "          containers:",
                    "          hostNetwork: true\n          containers:",
                )
        })
        .collect();
    texts.extend(broken);
    let mut count = 0;
    for text in texts {
        // Some have the network of the host already, and would have it twice.
        let Ok(file) = spec::read(text.as_bytes()) else {
            continue;
        };
        let Some(fixed) = fix(&file, &[], None) else {
            continue;
        };
        count += 1;
        let after = spec::read(fixed.text.as_bytes()).unwrap();
        assert_eq!(
            fix(&after, &[], None),
            None,
            "fixing twice is fixing once\n{text}"
        );
        let comments = |text: &str| text.lines().filter(|line| line.contains('#')).count();
        assert_eq!(comments(&text), comments(&fixed.text));
        let mut paths = BTreeSet::new();
        for (before, after) in file.documents.iter().zip(&after.documents) {
            changed(
                "",
                &before.tree.to_json(),
                &after.tree.to_json(),
                &mut paths,
            );
        }
        // The roles share one template by an alias, and a finding of it is reported once.
        let shared = |path: &str| {
            path.replace(".Worker.", ".Master.")
                .replace(".worker.", ".Master.")
        };
        // A policy is added beside, and an item beside another: reported at the entry or list around.
        let reported = |path: &str| {
            let parent = |path: &str| {
                path.rsplit_once(['.', '['])
                    .map(|(parent, _)| parent.to_owned())
            };
            fixed.findings.iter().any(|finding| {
                let (path, found) = (shared(path), shared(&finding.path));
                found == path
                    || parent(&found) == parent(&path)
                    || parent(&found).as_deref() == Some(path.as_str())
            })
        };
        for path in &paths {
            let role = path.to_ascii_lowercase().ends_with(".worker");
            assert!(
                role || reported(path),
                "{path} was changed\n{text}\n---\n{}",
                fixed.text
            );
        }
    }
    assert!(count > 100, "only {count} manifests had something to fix");
}
