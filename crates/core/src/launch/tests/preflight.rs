//! The pods of preflights, compared with `testdata/preflight/<case>.json`; `UPDATE=1` writes the files.

use std::{collections::BTreeMap, path::PathBuf};

use k8s_openapi::{
    api::core::v1::{Container, Pod},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::OwnerReference},
};
use serde_json::{Value, json};

use super::super::{
    Cluster, LaunchError,
    preflight::{self, Flight, Labelled, variable_name},
};
use super::build::job;
use crate::{
    probe::Needs,
    spec::{Job, Kind, Role, Slot},
};

const FLIGHT: Flight<'_> = Flight {
    of: "0b5d",
    round: 2,
    token: "secret",
    report_bytes: 262_144,
};

fn cluster() -> Cluster {
    Cluster {
        agent_image: Some("trainyard:1".to_owned()),
        ..Cluster::default()
    }
}

/// A job with everything that a pod may have and most of which a preflight must not.
fn rich() -> Job {
    let job = job(Kind::PyTorch)
        .role(Role::Master, 1)
        .role(Role::Worker, 1);
    job.template(Role::Worker, |template| {
        *template = serde_json::from_value(json!({
            "metadata": {
                "labels": {"app": "trainer"},
                "annotations": {"k8s.v1.cni.cncf.io/networks": "roce-a"},
            },
            "spec": {
                "serviceAccountName": "trainer",
                "hostname": "rank-1",
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule"}],
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname"}]}},
                "initContainers": [{"name": "fetch", "image": "fetch:1"}],
                "volumes": [
                    {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "unused", "emptyDir": {}},
                ],
                "containers": [
                    {"name": "sidecar", "image": "side:1"},
                    {
                        "name": "pytorch",
                        "image": "trainer:1",
                        "command": ["python", "train.py"],
                        "env": [
                            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"},
                            {"name": "WANDB_API_KEY", "valueFrom":
                                {"secretKeyRef": {"name": "wandb", "key": "key"}}},
                        ],
                        "envFrom": [{"secretRef": {"name": "wandb"}}],
                        "ports": [{"containerPort": 23456}],
                        "livenessProbe": {"exec": {"command": ["true"]}},
                        "resources": {"limits": {"nvidia.com/gpu": "8", "rdma/hca": "1"}},
                        "securityContext": {"runAsUser": 1000, "capabilities": {"add": ["IPC_LOCK"]}},
                        "volumeMounts": [
                            {"name": "shm", "mountPath": "/dev/shm"},
                            {"name": "data", "mountPath": "/data"},
                        ],
                    },
                ],
            },
        }))
        .unwrap();
    })
    .uid()
    .done()
}

fn seats(nodes: &[(&str, Slot)]) -> BTreeMap<String, Slot> {
    nodes
        .iter()
        .map(|(node, slot)| ((*node).to_owned(), *slot))
        .collect()
}

fn both() -> BTreeMap<String, Slot> {
    seats(&[
        ("a", Slot::new(Role::Master, 0)),
        ("b", Slot::new(Role::Worker, 0)),
    ])
}

fn pods(case: &str) -> Vec<Pod> {
    let mut made = if case == "job" {
        preflight::of_job(&rich(), None, &cluster(), FLIGHT, &both()).unwrap()
    } else {
        let gpus = [("nvidia.com/gpu".to_owned(), Quantity("4".to_owned()))];
        let nodes = [
            ("a".to_owned(), gpus.into()),
            ("b".to_owned(), BTreeMap::new()),
        ];
        preflight::of_nodes("trainyard", "trainyard:1", FLIGHT, &nodes.into(), true)
    };
    made[0].domains = ["zone-1", "rack-1"].map(str::to_owned).into();
    let mut leader = made[0].pod.clone();
    preflight::make_leader(&mut leader, &made);
    made[0].pod = leader;
    preflight::join(&mut made[1].pod, "10.0.0.7");
    made.into_iter().map(|one| one.pod).collect()
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "golden files are read and written by this test only"
)]
fn golden_files_hold_the_pods_of_a_preflight() {
    let update = std::env::var_os("UPDATE").is_some_and(|value| value == "1");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/preflight");
    for case in ["job", "nodes"] {
        let got = serde_json::to_string_pretty(&pods(case)).unwrap() + "\n";
        let path = folder.join(format!("{case}.json"));
        if update {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &got).unwrap();
        }
        let want = std::fs::read_to_string(&path).unwrap();
        assert_eq!(got, want, "{case}; UPDATE=1 writes the file");
    }
}

fn only(pod: &Pod) -> &Container {
    let containers = &pod.spec.as_ref().unwrap().containers;
    assert_eq!(containers.len(), 1);
    &containers[0]
}

#[test]
fn preflight_pod_keeps_only_node_fields() {
    let pods = pods("job");
    let worker = serde_json::to_value(&pods[1]).unwrap();
    assert_eq!(
        worker["metadata"]["labels"],
        json!({"trainyard.dev/preflight": "2", "trainyard.dev/preflight-of": "0b5d"}),
        "no Service and no controller takes it for a rank"
    );
    let spec = &worker["spec"];
    assert_eq!(spec["automountServiceAccountToken"], false);
    for field in ["hostname", "topologySpreadConstraints"] {
        assert_eq!(spec[field], Value::Null, "{field}");
    }
    assert_eq!(spec["affinity"]["podAntiAffinity"], Value::Null);
    let volumes = spec["volumes"].as_array().unwrap().iter();
    let volumes: Vec<&str> = volumes
        .map(|volume| volume["name"].as_str().unwrap())
        .collect();
    assert_eq!(volumes, ["shm", "data", "trainyard-agent"]);
    let container = only(&pods[1]);
    let names = container.env.iter().flatten().map(|var| var.name.as_str());
    assert!(
        !names.clone().any(|name| name == "WANDB_API_KEY"),
        "no secret"
    );
    assert!(
        names
            .clone()
            .any(|name| name == "NVIDIA_DRIVER_CAPABILITIES")
    );
    assert!(container.env_from.is_none() && container.liveness_probe.is_none());
    let limits = container.resources.as_ref().unwrap().limits.as_ref();
    assert_eq!(limits.unwrap()["nvidia.com/gpu"].0, "8");
}

#[test]
fn only_leader_gets_all_nodes() {
    let pods = pods("nodes");
    let value = |at: usize, name: &str| {
        let mut env = only(&pods[at]).env.iter().flatten();
        env.find(|var| var.name == name)
            .and_then(|var| var.value.clone())
    };
    assert_eq!(
        value(0, "TRAINYARD_PREFLIGHT_NODES").as_deref(),
        Some("a,b")
    );
    assert_eq!(value(0, "TRAINYARD_PREFLIGHT_LEAD").as_deref(), Some(""));
    assert_eq!(value(1, "TRAINYARD_PREFLIGHT_NODES").as_deref(), Some(""));
    let leader = value(1, "TRAINYARD_PREFLIGHT_LEAD");
    assert_eq!(leader.as_deref(), Some("10.0.0.7:29400"));
    let mut sixth = pods[1].clone();
    preflight::join(&mut sixth, "fd00::7");
    let env = only(&sixth).env.as_ref().unwrap();
    assert_eq!(
        env.last().unwrap().value.as_deref(),
        Some("[fd00::7]:29400")
    );
}

#[test]
fn image_cannot_set_a_variable() {
    for case in ["job", "nodes"] {
        for pod in pods(case) {
            let env: Vec<&str> = only(&pod)
                .env
                .iter()
                .flatten()
                .filter(|var| var.name.starts_with("TRAINYARD_PREFLIGHT_"))
                .map(|var| {
                    assert!(var.value.is_some(), "{case}: `{}` has a value", var.name);
                    var.name.as_str()
                })
                .collect();
            for name in variable_name::ALL {
                let count = env.iter().filter(|known| **known == name).count();
                assert_eq!(count, 1, "{case}: `{name}` is set once");
            }
            assert_eq!(env.len(), variable_name::ALL.len(), "{case}: {env:?}");
        }
    }
}

#[test]
fn devices_are_held_to_a_job_only_in_a_trial() {
    let gpus = BTreeMap::from([("nvidia.com/gpu".to_owned(), Quantity("4".to_owned()))]);
    let nodes = BTreeMap::from([("a".to_owned(), gpus), ("b".to_owned(), BTreeMap::new())]);
    for (trial, want) in [(true, [Some(1), None]), (false, [None, None])] {
        let made = preflight::of_nodes("trainyard", "trainyard:1", FLIGHT, &nodes, trial);
        let gpus = made.iter().map(|one| {
            let mut env = only(&one.pod).env.iter().flatten();
            let needs = env.find(|var| var.name == variable_name::NEEDS).unwrap();
            let needs: Needs = serde_json::from_str(needs.value.as_ref().unwrap()).unwrap();
            needs.gpus
        });
        assert_eq!(gpus.collect::<Vec<_>>(), want, "trial: {trial}");
    }
}

#[test]
fn labels_alone_make_no_pod_ours() {
    let owner = |kind: &str, uid: &str| OwnerReference {
        api_version: if kind == "PyTorchJob" {
            "kubeflow.org/v1".to_owned()
        } else {
            "apps/v1".to_owned()
        },
        kind: kind.to_owned(),
        name: "j".to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let (job, set) = (owner("PyTorchJob", "u"), owner("ReplicaSet", "u"));
    let pod = |namespace, name, of, owner, ended| Labelled {
        namespace,
        name,
        of,
        round: "2",
        owner,
        ended,
    };
    let cases = [
        (
            "a job's",
            pod("team", "j-preflight-2-0", "u", Some(&job), false),
            true,
        ),
        (
            "of another job",
            pod("team", "k-preflight-2-0", "u", Some(&job), true),
            false,
        ),
        (
            "of a Deployment",
            pod("team", "j-preflight-2-0", "u", Some(&set), true),
            false,
        ),
        (
            "a rank with the label",
            pod("team", "j-worker-0", "u", Some(&job), true),
            false,
        ),
        (
            "a trial",
            pod("own", "preflight-trial-2-0", "trial", None, false),
            true,
        ),
        (
            "a person's, that runs",
            pod("team", "preflight-0b5d-2-0", "0b5d", None, false),
            false,
        ),
        (
            "a person's, that has ended",
            pod("team", "preflight-0b5d-2-0", "0b5d", None, true),
            true,
        ),
        (
            "a web server with the label",
            pod("team", "nginx", "u", None, true),
            false,
        ),
        (
            "the same in our namespace",
            pod("own", "nginx", "u", None, false),
            false,
        ),
    ];
    for (name, pod, want) in cases {
        assert_eq!(preflight::is_left_over(pod, "own"), want, "{name}");
    }
}

#[test]
fn without_an_image_there_is_none() {
    let made = preflight::of_job(&rich(), None, &Cluster::default(), FLIGHT, &both());
    assert_eq!(made, Err(LaunchError::NoPreflightImage));
}

#[test]
fn jobs_that_need_the_same_share_what_is_known() {
    let covers = |job: &Job| preflight::covers(job, None);
    let one = rich();
    let mut other = rich();
    other.name = crate::spec::JobName::parse("other").unwrap();
    assert_eq!(covers(&one), covers(&other), "whatever it is called");
    let worker = other.roles.get_mut(&Role::Worker).unwrap();
    let spec = worker.template.spec.as_mut().unwrap();
    spec.volumes.as_mut().unwrap()[1].name = "other".to_owned();
    assert_ne!(covers(&one), covers(&other), "another volume");
}
