//! Objects that are no jobs, jobs inside of them, parts of manifests, and jobs with errors.

use super::*;

fn review_text(text: &str) -> Vec<Finding> {
    let file = read(text.as_bytes()).unwrap_or_else(|finding| panic!("{finding:?}\n{text}"));
    review(&[&file], Some(Profile::Production)).concat()
}

fn codes(text: &str) -> Vec<&'static str> {
    review_text(text)
        .iter()
        .map(|finding| finding.code)
        .collect()
}

fn indented(text: &str, by: &str) -> String {
    format!(
        "{by}{}\n",
        text.trim_end().replace('\n', &format!("\n{by}"))
    )
}

#[test]
fn job_inside_another_object_is_linted() {
    let job = examples::PYTORCH.split("---\n").next().unwrap();
    let wrong = job.replacen("train:1.4.0", "train:latest", 1);
    let wrapped = format!(
        "apiVersion: workload.codeflare.dev/v1beta2\nkind: AppWrapper\nmetadata: {{name: w}}\nspec:\n  components:\n  - template:\n{}",
        indented(&wrong, "      ")
    );
    let found = review_text(&wrapped);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].code, "TY601");
    assert!(
        found[0]
            .path
            .starts_with("spec.components[0].template.spec.pytorchReplicaSpecs.Master"),
        "{}",
        found[0].path
    );
    let line = wrapped.lines().nth(found[0].span.line - 1).unwrap();
    assert!(line.contains("train:latest"), "{line}");
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n-\n{}",
        indented(&wrong, "  ")
    );
    assert_eq!(codes(&list), ["TY102", "TY601"]);
    let workflow = format!(
        "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  templates:\n  - name: train\n    resource:\n      action: create\n      manifest: |\n{}",
        indented(
            &wrong.replace("&rank", "").replace("*rank", "{}"),
            "        "
        )
    );
    assert!(
        codes(&workflow).contains(&"TY601"),
        "{:?}",
        codes(&workflow)
    );
}

#[test]
fn kinds_of_other_projects_are_no_misspelled_jobs() {
    let ray = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {generateName: r-}\nspec:\n  rayClusterSpec:\n    headGroupSpec:\n      template: {spec: {containers: [{name: head, image: 'a:latest'}]}}\n";
    assert_eq!(codes(ray), ["TY601"]);
    let misspelled = ray.replace("ray.io/v1", "kubeflow.org/v1");
    assert_eq!(codes(&misspelled), ["TY101"]);
    assert_eq!(codes(&ray.replace("ray.io/v1", "v1")), ["TY101"]);
}

#[test]
fn steps_of_workflows_are_linted() {
    let workflow = "apiVersion: argoproj.io/v1alpha1\nkind: WorkflowTemplate\nmetadata: {name: w}\nspec:\n  volumes: [{name: data, persistentVolumeClaim: {claimName: d}}]\n  templates:\n  - name: train\n    inputs: {parameters: [{name: tag}]}\n    container:\n      image: IMAGE\n      command: [python, train.py]\n      resources: {limits: {nvidia.com/gpu: '{{inputs.parameters.gpus}}'}}\n";
    assert_eq!(
        codes(&workflow.replace("IMAGE", "'team/train:latest'")),
        ["TY601"]
    );
    assert_eq!(
        codes(&workflow.replace(
            "IMAGE",
            "'{{inputs.parameters.image}}:{{inputs.parameters.tag}}'"
        )),
        [""; 0]
    );
    let made = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  templates:\n  - resource:\n      manifest: |\n        apiVersion: v1\n        kind: Pod\n        metadata: {name: 'p-{{workflow.name}}'}\n        spec: {containers: [{name: c, image: '{{inputs.parameters.image}}'}]}\n";
    assert_eq!(codes(made), [""; 0]);
}

#[test]
fn templates_of_trials_are_jobs_that_get_a_name() {
    let job = examples::PYTORCH
        .split("---\n")
        .next()
        .unwrap()
        .replace("metadata:\n  name: train\n  namespace: team\n", "")
        .replacen("train:1.4.0", "train:latest", 1);
    let experiment = format!(
        "apiVersion: kubeflow.org/v1beta1\nkind: Experiment\nmetadata: {{name: e}}\nspec:\n  trialTemplate:\n    trialSpec:\n{}",
        indented(&job, "      ")
    );
    assert_eq!(codes(&experiment), ["TY601"], "{experiment}");
    let map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: trials}}\ndata:\n  a.txt: 'apiVersion: v1, PyTorchJob'\n  job.yaml: |\n{}",
        indented(&job.replace("&rank", "").replace("*rank", "{}"), "    ")
    );
    assert!(codes(&map).contains(&"TY601"), "{:?}", codes(&map));
    assert!(!codes(&map).contains(&"TY107"), "{:?}", codes(&map));
}

#[test]
fn train_jobs_are_judged_by_what_they_say() {
    let job = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec:\n  runtimeRef: {name: torch-distributed}\n  trainer:\n    numNodes: 2\n    image: IMAGE\n    env: [{name: NCCL_P2P_DISABLE, value: \"1\"}]\n    resourcesPerNode: {requests: {nvidia.com/gpu: 1}}\n";
    assert_eq!(
        codes(&job.replace("IMAGE", "team/train:latest")),
        ["TY205", "TY601", "TY317"]
    );
    let runtime = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {name: r}\nspec:\n  template:\n    spec:\n      replicatedJobs:\n      - name: node\n        template: {spec: {template: {spec: {containers: [{name: node, image: 'pytorch/pytorch:2.7.0'}]}}}}\n";
    assert_eq!(
        codes(runtime),
        [""; 0],
        "the command is that of the TrainJob"
    );
}

#[test]
fn train_jobs_in_other_objects_are_judged_as_alone() {
    let runtime = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {name: r}\nspec: {mlPolicy: {torch: {}}, template: {spec: {replicatedJobs: [{name: node, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {template: {spec: {containers: [{name: node, image: 'team/train:1.0'}]}}}}}]}}}\n";
    let job = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec:\n  runtimeRef: {name: r}\n  trainer: {numNodes: 2, image: 'team/train:latest'}\n";
    let alone = codes(&format!("{job}---\n{runtime}"));
    assert_eq!(alone, ["TY601"]);
    let item = |text: &str| format!("- {}", indented(text, "  ").trim_start());
    let cases = [
        (
            "beside",
            format!(
                "apiVersion: workload.codeflare.dev/v1beta2\nkind: AppWrapper\nmetadata: {{name: w}}\nspec:\n  components:\n  - template:\n{}---\n{runtime}",
                indented(job, "      ")
            ),
        ),
        (
            "in the same",
            format!(
                "apiVersion: workload.codeflare.dev/v1beta2\nkind: AppWrapper\nmetadata: {{name: w}}\nspec:\n  components:\n  - template:\n{}  - template:\n{}",
                indented(runtime, "      "),
                indented(job, "      ")
            ),
        ),
        (
            "list",
            format!(
                "apiVersion: v1\nkind: List\nitems:\n{}{}",
                item(runtime),
                item(job)
            ),
        ),
        (
            "text",
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata:\n  job.yaml: |\n{}---\n{runtime}",
                indented(job, "    ")
            ),
        ),
        (
            "text with its runtime",
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata:\n  job.yaml: |\n{}    ---\n{}",
                indented(job, "    "),
                indented(runtime, "    ")
            ),
        ),
    ];
    for (name, text) in cases {
        let found = codes(&text);
        let found: Vec<&str> = found.into_iter().filter(|code| *code != "TY102").collect();
        assert_eq!(found, ["TY601"], "{name}: {text}");
    }
}

#[test]
fn a_service_may_select_the_pods_of_a_train_job() {
    let job = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec:\n  runtimeRef: {name: torch-distributed}\n";
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {clusterIP: None, selector: {jobset.sigs.k8s.io/jobset-name: t}}\n";
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: 'a:1', command: [a]}]}\n";
    let codes = codes(&format!("{job}{service}{pod}"));
    assert!(!codes.contains(&"TY901"), "{codes:?}");
}

#[test]
fn every_role_of_a_job_in_a_text_is_linted() {
    let role = "replicas: 1, template: {spec: {containers: [{name: pytorch, image: 'a:latest'}]}}";
    let workflow = format!(
        "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  templates:\n  - resource:\n      manifest: |\n        apiVersion: kubeflow.org/v1\n        kind: PyTorchJob\n        metadata: {{name: j}}\n        spec:\n          pytorchReplicaSpecs:\n            Master: {{{role}}}\n            Worker: {{{role}}}\n"
    );
    let codes = codes(&workflow);
    let images = codes.iter().filter(|code| **code == "TY601").count();
    assert_eq!(images, 2, "{codes:?}");
}

#[test]
fn objects_alone_are_judged_for_what_they_are() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    image: registry.example.com/a:1\n    command: [a]\n    env: [{name: HF_TOKEN, value: abc}]\n";
    let cases: [(&str, &str, &[&str]); 8] = [
        ("pod", pod, &["TY602"]),
        (
            "claim",
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\nspec:\n  accessModes: [ReadWriteMany]\n  storageClassName: gp3\n  resources: {requests: {storage: 1Gi}}\n",
            &["TY906"],
        ),
        (
            "service",
            "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {selector: {a: b}, ports: [{port: 1}]}\n",
            &[],
        ),
        (
            "other kind",
            "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: c}\nspec: {driver: {enabled: true}}\n",
            &[],
        ),
        (
            "variables",
            "env:\n- {name: NCCL_TREE_THRESHOLD, value: \"0\"}\n",
            &["TY311"],
        ),
        (
            "spread",
            "spec:\n  topologySpreadConstraints:\n  - maxSkew: 1\n    topologyKey: topology.kubernetes.io/zone\n    whenUnsatisfiable: DoNotSchedule\n",
            &["TY509"],
        ),
        (
            "host network",
            "spec: {template: {spec: {hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet}}}\n",
            &[],
        ),
        (
            "DeepSpeed",
            "{\"train_batch_size\": 10, \"train_micro_batch_size_per_gpu\": 4}\n",
            &["TY705"],
        ),
    ];
    for (name, text, want) in cases {
        assert_eq!(codes(text), want, "{name}");
    }
}

#[test]
fn one_error_hides_no_other_finding() {
    let text = examples::PYTORCH
        .replacen("- name: pytorch", "- name: trainer", 1)
        .replacen("train:1.4.0", "train:latest", 1)
        .replacen("    backoffLimit: 3\n", "", 1);
    assert_eq!(codes(&text), ["TY412", "TY125", "TY125", "TY601"]);
    let named = examples::PYTORCH
        .replacen("name: train\n", "name: Train_1\n", 1)
        .replacen("train:1.4.0", "train:latest", 1);
    assert_eq!(codes(&named), ["TY107", "TY601"]);
    let counted = examples::PYTORCH
        .replacen("replicas: 3", "replicas: -3", 1)
        .replacen(
            "[torchrun, train.py]",
            "[torchrun, --nnodes=4, train.py]",
            1,
        );
    assert_eq!(codes(&counted), ["TY115"], "pods cannot be counted");
}

#[test]
fn placeholders_are_one_finding() {
    let text = examples::PYTORCH
        .replacen(
            "registry.example.com/team/train:1.4.0",
            "${REGISTRY}/train:${TAG}",
            1,
        )
        .replacen("replicas: 3", "replicas: ${NODES}", 1);
    let found = review_text(&text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].code, "TY148");
    assert!(found[0].message.starts_with("2 values"), "{found:?}");
    let moving = text.replacen("${TAG}", "latest", 1);
    assert_eq!(codes(&moving), ["TY601", "TY148"], "the tag is written");
    let option = text.replacen(
        "[torchrun, train.py]",
        "[torchrun, --nnodes=$NODES, train.py]",
        1,
    );
    assert_eq!(
        codes(&option),
        ["TY148"],
        "what fills in the others fills in this one"
    );
    let everywhere = examples::PYTORCH.replace("namespace: team", "namespace: ${NAMESPACE}");
    assert_eq!(codes(&everywhere), ["TY148"], "no object is elsewhere");
}

#[test]
fn services_select_what_other_objects_make() {
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {selector: {app: web}, ports: [{port: 1}]}\n---\n";
    let deployment = |label: &str| {
        format!(
            "{service}apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\nspec:\n  template:\n    metadata: {{labels: {{app: {label}}}}}\n    spec: {{containers: [{{name: c, image: 'a:1', resources: {{requests: {{cpu: 1}}}}}}]}}\n"
        )
    };
    assert_eq!(codes(&deployment("web")), [""; 0]);
    assert_eq!(codes(&deployment("wob")), ["TY901"]);
    let open = format!(
        "{service}apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {{name: r}}\nspec:\n  headGroupSpec:\n    template:\n      spec: {{containers: [{{name: c, image: 'a:1'}}]}}\n"
    );
    assert_eq!(codes(&open), [""; 0], "a controller adds labels of its own");
}
