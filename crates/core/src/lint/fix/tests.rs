use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::{super::examples, *};

#[test]
fn runtimes_of_other_files_are_not_lost() {
    let job = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec:\n  runtimeRef: {name: r}\n  trainer:\n    numNodes: \"2\"\n";
    let runtime = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {name: r}\nspec: {mlPolicy: {torch: {}}, template: {spec: {replicatedJobs: [{name: node, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {template: {spec: {containers: [{name: node, image: 'a/b:1'}]}}}}}]}}}\n";
    let mut job = spec::read(job.as_bytes()).unwrap();
    let mut runtime = spec::read(runtime.as_bytes()).unwrap();
    let both = job.documents.iter_mut().chain(&mut runtime.documents);
    spec::share_runtimes(both);
    let fixed = fix(&job, &[&runtime], None).unwrap();
    assert!(fixed.text.contains("numNodes: 2\n"), "{}", fixed.text);
}

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
    let mut texts: Vec<String> = examples::all().into_iter().map(|it| it.text).collect();
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
                // The volume of a mount is added to the pod.
                let volume = finding.code == "TY201" && path.ends_with(".template.spec.volumes");
                found == path
                    || volume
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

const BARE: &str = "\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: j}
spec:
  # one pod for each node
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
          - name: pytorch
            image: i:1
            command: [torchrun, t.py]
            env: [{name: NCCL_DEBUG, value: WARN}]
            resources:
              requests: {cpu: \"8\", memory: 64Gi}
              limits:
                memory: 64Gi
                nvidia.com/gpu: 2
                rdma/hca: 1
";

const COMPLETED: &str = "\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: j}
spec:
  # one pod for each node
  runPolicy:
    backoffLimit: 3
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          tolerations:
          - key: nvidia.com/gpu
            operator: Exists
          volumes:
          - name: shm
            emptyDir:
              medium: Memory
              sizeLimit: 16Gi
          containers:
          - name: pytorch
            image: i:1
            command: [torchrun, t.py]
            env: [{name: NCCL_DEBUG, value: WARN}]
            volumeMounts:
            - name: shm
              mountPath: /dev/shm
            securityContext:
              capabilities:
                add:
                - IPC_LOCK
            resources:
              requests: {cpu: \"8\", memory: 64Gi}
              limits:
                memory: 64Gi
                nvidia.com/gpu: 2
                rdma/hca: 1
";

fn fixed_for_production(text: &str) -> Option<String> {
    let file = spec::read(text.as_bytes()).unwrap();
    fix(&file, &[], Some(Profile::Production)).map(|fixed| fixed.text)
}

#[test]
fn missing_parts_are_added() {
    let text = fixed_for_production(BARE).unwrap();
    assert_eq!(text, COMPLETED);
    assert_eq!(
        fixed_for_production(&text),
        None,
        "fixing twice is fixing once"
    );
    let listed = BARE
        .replace(
            "          containers:\n",
            "          tolerations:\n          - key: pool\n            operator: Exists\n          containers:\n",
        )
        .replace("spec:\n  #", "spec:\n  runPolicy:\n    cleanPodPolicy: Running\n  #");
    let text = fixed_for_production(&listed).unwrap();
    assert!(
        text.contains("tolerations:\n          - key: nvidia.com/gpu\n            operator: Exists\n          - key: pool\n"),
        "{text}"
    );
    assert!(
        text.contains("  runPolicy:\n    backoffLimit: 3\n    cleanPodPolicy: Running\n"),
        "{text}"
    );
}

#[test]
fn a_short_ttl_is_raised() {
    let text = COMPLETED.replace(
        "    backoffLimit: 3\n",
        "    backoffLimit: 3\n    ttlSecondsAfterFinished: 60\n",
    );
    let want = text.replace("AfterFinished: 60\n", "AfterFinished: 86400\n");
    assert_eq!(fixed_for_production(&text), Some(want));
}

#[test]
fn parts_in_flow_style_are_left_alone() {
    let flow = "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: j}, spec: {pytorchReplicaSpecs: {Worker: {restartPolicy: OnFailure, template: {spec: {containers: [{name: pytorch, image: \"i:1\", resources: {limits: {nvidia.com/gpu: 2}}}]}}}}}}\n";
    assert_eq!(fixed_for_production(flow), None);
}
