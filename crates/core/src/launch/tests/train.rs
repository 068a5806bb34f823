//! The vectors of `TrainJob`: what its pods and the objects beside them are.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, Pod};

use crate::{
    launch::{Cluster, LaunchedPod, Object, Plan, slot_of},
    spec::{Job, Role, Slot, check, read},
};

fn job_named(name: &str, spec: &str) -> Job {
    let text = format!(
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {{name: {name}}}\nspec:\n{spec}"
    );
    let file = read(text.as_bytes()).unwrap();
    let checked = check(&file.documents[0]);
    checked
        .job
        .unwrap_or_else(|| panic!("{:?}", checked.findings))
}

fn pod(job: &Job, role: Role, index: u32) -> Pod {
    let cluster = Cluster::default();
    match Plan::new(job, &cluster)
        .unwrap()
        .pod(Slot::new(role, index), 2)
        .unwrap()
    {
        LaunchedPod::Pod(pod) => *pod,
        LaunchedPod::Job(_) => panic!("a pod"),
    }
}

/// The variables of the first container, in their order; a field of the pod as `@` and its path.
fn variables(pod: &Pod) -> Vec<(String, String)> {
    let env = pod.spec.as_ref().unwrap().containers[0]
        .env
        .clone()
        .unwrap_or_default();
    let text = |variable: &EnvVar| {
        let from = variable
            .value_from
            .as_ref()
            .and_then(|from| from.field_ref.as_ref());
        let field = from.map(|field| format!("@{}", field.field_path));
        variable.value.clone().or(field).unwrap_or_default()
    };
    env.iter()
        .map(|variable| (variable.name.clone(), text(variable)))
        .collect()
}

fn value(pod: &Pod, name: &str) -> Option<String> {
    variables(pod)
        .into_iter()
        .find(|(known, _)| known == name)
        .map(|(_, value)| value)
}

#[test]
fn without_trainer_nothing_is_wired() {
    let job = job_named("t", "  runtimeRef: {name: torch-distributed}\n");
    let pod = pod(&job, Role::Node, 0);
    assert_eq!(pod.metadata.name.as_deref(), Some("t-node-0-0"));
    let names: Vec<String> = variables(&pod).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["JOB_COMPLETION_INDEX"]);
    assert_eq!(pod.spec.unwrap().containers[0].ports, None);
}

#[test]
fn torch_variables() {
    let spec = "  runtimeRef: {name: torch-distributed}\n  trainer: {numNodes: 3, resourcesPerNode: {limits: {nvidia.com/gpu: 4}}}\n";
    let job = job_named("t", spec);
    let pod = pod(&job, Role::Node, 2);
    let rank = "@metadata.annotations['batch.kubernetes.io/job-completion-index']";
    let want = [
        ("PET_NNODES", "3"),
        ("PET_NPROC_PER_NODE", "auto"),
        ("PET_NODE_RANK", rank),
        ("PET_MASTER_ADDR", "t-node-0-0.t"),
        ("PET_MASTER_PORT", "29500"),
    ];
    let want: Vec<(String, String)> = want.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    assert_eq!(variables(&pod)[..5], want);
    let annotations = pod.metadata.annotations.unwrap();
    assert_eq!(annotations["batch.kubernetes.io/job-completion-index"], "2");
    let labels = pod.metadata.labels.unwrap();
    for (key, want) in [
        ("jobset.sigs.k8s.io/jobset-name", "t"),
        ("jobset.sigs.k8s.io/replicatedjob-name", "node"),
        ("jobset.sigs.k8s.io/restart-attempt", "1"),
        ("jobset.sigs.k8s.io/global-replicas", "1"),
        ("batch.kubernetes.io/job-name", "t-node-0"),
        ("batch.kubernetes.io/job-completion-index", "2"),
        ("trainyard.dev/attempt", "2"),
    ] {
        assert_eq!(labels[key], want, "{key}");
    }
    assert_eq!(slot_of(&job, &labels), Some(Slot::new(Role::Node, 2)));
    let spec = pod.spec.unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("t-node-0-2"));
    assert_eq!(spec.subdomain.as_deref(), Some("t"));
    assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
}

#[test]
fn processes_per_node() {
    let gpus = "---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {name: r}\nspec: {mlPolicy: {torch: {}}, template: {spec: {replicatedJobs: [{name: node, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {template: {spec: {containers: [{name: node, image: i, resources: {limits: {nvidia.com/gpu: 4}}}]}}}}}]}}}\n";
    let cases = [
        (
            "half a processor",
            "torch-distributed",
            "{resourcesPerNode: {requests: {cpu: 500m}}}",
            "1",
        ),
        (
            "limits of processors",
            "torch-distributed",
            "{resourcesPerNode: {limits: {cpu: 2500m}}}",
            "3",
        ),
        (
            "stated",
            "torch-distributed",
            "{numProcPerNode: 2, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}",
            "2",
        ),
        (
            "GPUs of the runtime",
            "r",
            "{resourcesPerNode: {requests: {memory: 1Gi}}}",
            "auto",
        ),
        ("nothing", "torch-distributed", "{}", "1"),
    ];
    for (name, runtime, trainer, want) in cases {
        let job = job_named(
            "t",
            &format!("  runtimeRef: {{name: {runtime}}}\n  trainer: {trainer}\n{gpus}"),
        );
        let found = value(&pod(&job, Role::Node, 0), "PET_NPROC_PER_NODE");
        assert_eq!(found.as_deref(), Some(want), "{name}");
    }
}

#[test]
fn variables_of_other_policies() {
    let jax = job_named(
        "t",
        "  runtimeRef: {name: jax-distributed}\n  trainer: {numNodes: 2, env: [{name: A, value: '1'}]}\n",
    );
    let names: Vec<String> = variables(&pod(&jax, Role::Node, 1))
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let want = [
        "JAX_NUM_PROCESSES",
        "JAX_PROCESS_ID",
        "JAX_COORDINATOR_ADDRESS",
        "A",
        "JOB_COMPLETION_INDEX",
    ];
    assert_eq!(names, want);
    let found = value(&pod(&jax, Role::Node, 1), "JAX_COORDINATOR_ADDRESS");
    assert_eq!(found.as_deref(), Some("t-node-0-0.t:29500"));
    let xgboost = job_named(
        "t",
        "  runtimeRef: {name: xgboost-distributed}\n  trainer: {numNodes: 2, resourcesPerNode: {limits: {nvidia.com/gpu: 2}}}\n",
    );
    let pod = pod(&xgboost, Role::Node, 0);
    for (name, want) in [
        ("DMLC_NUM_WORKER", "4"),
        ("DMLC_TRACKER_URI", "t-node-0-0.t"),
        ("DMLC_TRACKER_PORT", "29500"),
    ] {
        assert_eq!(value(&pod, name).as_deref(), Some(want), "{name}");
    }
}

#[test]
fn hosts_of_mpi() {
    let cases = [
        (
            3,
            "ds-node-0-0.ds slots=2\nds-node-0-1.ds slots=2\nds-launcher-0-0.ds slots=2\n",
        ),
        (1, "ds-launcher-0-0.ds slots=2\n"),
    ];
    for (nodes, want) in cases {
        let job = job_named(
            "ds",
            &format!(
                "  runtimeRef: {{name: deepspeed-distributed}}\n  trainer: {{numNodes: {nodes}, resourcesPerNode: {{limits: {{nvidia.com/gpu: 2}}}}}}\n"
            ),
        );
        let cluster = Cluster::default();
        let plan = Plan::new(&job, &cluster).unwrap();
        let hosts = plan.objects().find_map(|object| match object {
            Object::ConfigMap(map) => map.data,
            _ => None,
        });
        assert_eq!(
            hosts,
            Some(BTreeMap::from([("hostfile".to_owned(), want.to_owned())]))
        );
        let slots = value(
            &pod(&job, Role::Launcher, 0),
            "OMPI_MCA_orte_set_default_slots",
        );
        assert_eq!(slots.as_deref(), Some("2"));
    }
}

#[test]
fn tune_is_given_its_command_line() {
    let job = job_named(
        "t",
        "  runtimeRef: {name: torchtune-llama3.2-1b}\n  trainer: {command: [tune, run]}\n  initializer: {dataset: {storageUri: 's3://b/d', env: [{name: X, value: '1'}], secretRef: {name: s}}}\n",
    );
    let command = pod(&job, Role::Node, 0).spec.unwrap().containers[0]
        .command
        .clone()
        .unwrap();
    let want = "tune run --rdzv_endpoint=t-node-0-0.t:29500 full_finetune_distributed --config llama3_2/1B_full \
                output_dir=/workspace/output tokenizer.path=/workspace/model/original/tokenizer.model \
                checkpointer.checkpoint_dir=/workspace/model";
    assert_eq!(command.join(" "), want);
    let first = pod(&job, Role::DatasetInitializer, 0);
    assert_eq!(value(&first, "STORAGE_URI").as_deref(), Some("s3://b/d"));
    assert_eq!(value(&first, "X").as_deref(), Some("1"));
    let from = first.spec.unwrap().containers[0].env_from.clone().unwrap();
    assert_eq!(
        from[0]
            .secret_ref
            .as_ref()
            .map(|secret| secret.name.as_str()),
        Some("s")
    );
    let cluster = Cluster::default();
    let plan = Plan::new(&job, &cluster).unwrap();
    let claims: Vec<String> = plan
        .objects()
        .filter(|it| matches!(it, Object::Claim(_)))
        .map(|it| it.name().to_owned())
        .collect();
    assert_eq!(claims, ["initializer-t"]);
}

#[test]
fn labels_and_subdomain_of_the_runtime() {
    let runtime = "---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {name: r}\nspec: {mlPolicy: {torch: {}}, template: {metadata: {labels: {team: a}}, spec: {network: {subdomain: net}, replicatedJobs: [{name: node, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {template: {spec: {containers: [{name: node, image: i}]}}}}}]}}}\n";
    let patch = "  runtimePatches: [{manager: a.b/c, trainingRuntimeSpec: {template: {metadata: {labels: {team: b}}}}}]\n";
    let job = job_named(
        "t",
        &format!("  runtimeRef: {{name: r}}\n  trainer: {{}}\n{patch}{runtime}"),
    );
    let pod = pod(&job, Role::Node, 0);
    assert_eq!(
        value(&pod, "PET_MASTER_ADDR").as_deref(),
        Some("t-node-0-0.net")
    );
    assert_eq!(pod.metadata.labels.unwrap()["team"], "b");
    let cluster = Cluster::default();
    let plan = Plan::new(&job, &cluster).unwrap();
    let service = plan
        .objects()
        .find(|object| matches!(object, Object::Service(_)));
    assert_eq!(service.unwrap().name(), "net");
}

#[test]
fn groups_and_the_service_follow_the_template() {
    let text = "  runtimeRef: {name: r}\n---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {name: r}\nspec: {template: {metadata: {labels: {team: a}, annotations: {note: b}}, spec: {replicatedJobs: [{name: model-initializer, template: {spec: {template: {spec: {containers: [{name: model-initializer, image: i}]}}}}}, {name: node, groupName: gpus, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {template: {spec: {containers: [{name: node, image: i}]}}}}}]}}}\n";
    let job = job_named("t", text);
    let labels = pod(&job, Role::Node, 0).metadata.labels.unwrap();
    for (label, want) in [
        ("group-name", "gpus"),
        ("group-replicas", "1"),
        ("job-group-index", "0"),
        ("job-global-index", "1"),
    ] {
        assert_eq!(
            labels[&format!("jobset.sigs.k8s.io/{label}")],
            want,
            "{label}"
        );
    }
    let cluster = Cluster::default();
    let plan = Plan::new(&job, &cluster).unwrap();
    let service = plan.objects().find_map(|object| match object {
        Object::Service(service) => Some(service.metadata.clone()),
        _ => None,
    });
    let service = service.unwrap();
    assert_eq!(service.labels.unwrap()["team"], "a");
    assert_eq!(service.annotations.unwrap()["note"], "b");
}

#[test]
fn a_pod_of_a_launcher_keeps_its_index() {
    let job = job_named(
        "t",
        "  runtimeRef: {name: deepspeed-distributed}\n  trainer: {numNodes: 2}\n",
    );
    for index in [0, 1] {
        let mut labels = pod(&job, Role::Launcher, 0).metadata.labels.unwrap();
        let key = "batch.kubernetes.io/job-completion-index";
        labels.insert(key.to_owned(), index.to_string());
        let slot = slot_of(&job, &labels);
        assert_eq!(slot, Some(Slot::new(Role::Launcher, index)));
    }
}

#[test]
fn claims_that_are_retained_have_no_owner() {
    let text = |word: &str| {
        format!(
            "  runtimeRef: {{name: r}}\n  trainer: {{}}\n---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {{name: r}}\nspec: {{mlPolicy: {{torch: {{}}}}, template: {{spec: {{volumeClaimPolicies: [{{templates: [{{metadata: {{name: data}}}}], retentionPolicy: {{whenDeleted: {word}}}}}], replicatedJobs: [{{name: node, template: {{metadata: {{labels: {{trainer.kubeflow.org/trainjob-ancestor-step: trainer}}}}, spec: {{template: {{spec: {{containers: [{{name: node, image: i}}]}}}}}}}}}}]}}}}}}\n"
        )
    };
    for (word, owned) in [("Delete", true), ("Retain", false)] {
        let mut job = job_named("t", &text(word));
        job.uid = Some("u".to_owned());
        let cluster = Cluster::default();
        let plan = Plan::new(&job, &cluster).unwrap();
        let claim = plan.objects().find_map(|object| match object {
            Object::Claim(claim) => Some(claim.metadata.clone()),
            _ => None,
        });
        let claim = claim.unwrap();
        assert_eq!(claim.name.as_deref(), Some("data-t"));
        assert_eq!(claim.owner_references.is_some(), owned, "{word}");
    }
}
