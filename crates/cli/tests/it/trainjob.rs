//! A `TrainJob` in a file: started, printed as objects, placed, refused.

use crate::call::Call;

const EXAMPLE: &str = include_str!("../../../../examples/trainer/nodes.yaml");

#[test]
fn example_trains_with_its_nodes() {
    let outcome = Call::new(&["run", "job.yaml"])
        .file("job.yaml", EXAMPLE)
        .run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for line in ["node 0 met nodes 1", "node 1 met node 0"] {
        assert!(outcome.stdout.contains(line), "{line}: {}", outcome.stdout);
    }
}

#[test]
fn nodes_wait_for_initializers() {
    let text = r#"apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t}
spec:
  runtimeRef: {name: fetching}
  initializer: {dataset: {storageUri: 'hf://a/b'}}
  trainer: {numNodes: 2, command: [sh, -c, 'cat /workspace/got; echo $PET_NNODES']}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: fetching}
spec:
  mlPolicy: {torch: {}}
  template:
    spec:
      volumeClaimPolicies:
      - templates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
      replicatedJobs:
      - name: dataset-initializer
        template:
          spec:
            template:
              spec:
                containers:
                - name: dataset-initializer
                  image: none
                  command: [sh, -c, 'sleep 0.2; echo "fetched $STORAGE_URI" > /workspace/got']
                  volumeMounts: [{name: data, mountPath: /workspace}]
      - name: node
        dependsOn: [{name: dataset-initializer, status: Complete}]
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              spec:
                containers:
                - name: node
                  image: none
                  volumeMounts: [{name: data, mountPath: /workspace}]
"#;
    let outcome = Call::new(&["run", "job.yaml"]).file("job.yaml", text).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome.stdout.contains("fetched hf://a/b"),
        "{}",
        outcome.stdout
    );
}

#[test]
fn renders_pods_and_service() {
    let outcome = Call::new(&["render", "job.yaml"])
        .file("job.yaml", EXAMPLE)
        .run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for part in [
        "kind: Service",
        "name: nodes-node-0-1",
        "value: nodes-node-0-0.nodes",
    ] {
        assert!(outcome.stdout.contains(part), "{part}: {}", outcome.stdout);
    }
}

#[test]
fn render_passes_runtimes_that_no_job_uses() {
    let runtime = |name: &str| {
        format!(
            "---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {{name: {name}}}\nspec: {{template: {{spec: {{replicatedJobs: [{{name: node, template: {{metadata: {{labels: {{trainer.kubeflow.org/trainjob-ancestor-step: trainer}}}}, spec: {{template: {{spec: {{containers: [{{name: node, image: i}}]}}}}}}}}}}]}}}}}}\n"
        )
    };
    let text = EXAMPLE.replace("name: torch-distributed", "name: ours");
    let text = format!("{}{}{}", text, runtime("ours"), runtime("theirs"));
    let outcome = Call::new(&["render", "job.yaml"])
        .file("job.yaml", &text)
        .run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(
        outcome
            .stdout
            .matches("kind: ClusterTrainingRuntime")
            .count(),
        1
    );
    assert!(
        outcome.stdout.contains("name: theirs"),
        "{}",
        outcome.stdout
    );
}

#[test]
fn failed_initializers_run_again_alone() {
    let text = r"apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t}
spec:
  runtimeRef: {name: fetching}
  trainer: {command: [sh, -c, 'cat /workspace/runs']}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: fetching}
spec:
  mlPolicy: {torch: {}}
  template:
    spec:
      failurePolicy: {maxRestarts: 0}
      volumeClaimPolicies:
      - templates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
      replicatedJobs:
      - name: dataset-initializer
        template:
          spec:
            template:
              spec:
                containers:
                - name: dataset-initializer
                  image: none
                  command: [sh, -c, 'echo dataset >> /workspace/runs; test $(grep -c dataset /workspace/runs) = 2']
                  volumeMounts: [{name: data, mountPath: /workspace}]
      - name: model-initializer
        template:
          spec:
            template:
              spec:
                containers:
                - name: model-initializer
                  image: none
                  command: [sh, -c, 'echo model >> /workspace/runs; sleep 1']
                  volumeMounts: [{name: data, mountPath: /workspace}]
      - name: node
        dependsOn: [{name: dataset-initializer, status: Complete}, {name: model-initializer, status: Complete}]
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              spec:
                containers:
                - name: node
                  image: none
                  volumeMounts: [{name: data, mountPath: /workspace}]
";
    let outcome = Call::new(&["run", "job.yaml"]).file("job.yaml", text).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let runs = |name: &str| {
        let lines = outcome.stdout.lines();
        lines.filter(|line| line.trim_end().ends_with(name)).count()
    };
    assert_eq!(
        (runs("dataset"), runs("model")),
        (2, 1),
        "{}",
        outcome.stdout
    );
}

#[test]
fn missing_runtime_is_one_sentence() {
    let text = EXAMPLE.replace("name: torch-distributed", "name: ours");
    for command in ["run", "render", "lint"] {
        let outcome = Call::new(&[command, "job.yaml"])
            .file("job.yaml", &text)
            .run();
        assert_ne!(outcome.code, Some(0), "{outcome:?}");
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert_eq!(
            said.matches("the ClusterTrainingRuntime `ours` is missing")
                .count(),
            1,
            "{command}: {said}"
        );
    }
}
