//! The full output of every kind and role, compared with `testdata/launch/<case>.json`.
//!
//! `UPDATE=1 cargo test -p trainyard-core golden` writes the files; read the difference before it
//! is committed.

use std::{collections::BTreeSet, path::PathBuf};

use k8s_openapi::{api::autoscaling::v2::MetricSpec, apimachinery::pkg::api::resource::Quantity};
use serde_json::{Value, json};

use super::super::{Cluster, Object, render, slot_of};
use super::build::{bounds, job};
use crate::spec::{
    Compat, Elastic, GangBy, Job, Kind, MpiImplementation, RestartPolicy, RestartScope, Role,
};

/// The cluster of a case: one whose administrator stated the domain, or gave an image of the agent,
/// for cases named so.
fn cluster(case: &str) -> Cluster {
    Cluster {
        domain: case
            .ends_with("-domain")
            .then(|| "cluster.example".to_owned()),
        agent_image: case.contains("-agent").then(|| "trainyard:1".to_owned()),
        ..Cluster::default()
    }
}

/// Every case by name.
pub(super) fn cases() -> Vec<(&'static str, Job)> {
    let mut cases = pytorch();
    cases.extend(tensorflow());
    cases.extend(others());
    cases.extend(mpi_v1());
    cases.extend(mpi_v2());
    cases.extend(mpi_by_agent());
    cases.extend(by_other_schedulers());
    cases
}

fn pytorch() -> Vec<(&'static str, Job)> {
    let plain = || {
        job(Kind::PyTorch)
            .role(Role::Master, 1)
            .role(Role::Worker, 2)
    };
    let workers = || job(Kind::PyTorch).role(Role::Worker, 2);
    vec![
        ("pytorch", plain().uid().done()),
        ("pytorch-processes", plain().processes("4").done()),
        ("pytorch-workers", workers().done()),
        ("pytorch-elastic", workers().elastic(bounds(1, 3)).done()),
        (
            "pytorch-elastic-master",
            plain().elastic(bounds(1, 3)).done(),
        ),
        (
            "pytorch-elastic-every-field",
            workers().elastic(every_elastic_field()).uid().done(),
        ),
        (
            "pytorch-compat",
            plain()
                .compat(Compat::InitContainer)
                .compat(Compat::ReadyOnlyServices)
                .scope(RestartScope::Pod)
                .done(),
        ),
    ]
}

fn every_elastic_field() -> Elastic {
    let metric = json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    });
    Elastic {
        rdzv_backend: "etcd-v2".to_owned(),
        rdzv_port: Some(2379),
        rdzv_host: Some("etcd.infra".to_owned()),
        rdzv_id: Some("run-7".to_owned()),
        rdzv_conf: vec![
            ("timeout".to_owned(), "900".to_owned()),
            ("last_call_timeout".to_owned(), "30".to_owned()),
        ],
        standalone: true,
        nproc_per_node: Some(8),
        max_restarts: Some(100),
        metrics: vec![serde_json::from_value::<MetricSpec>(metric).unwrap()],
        ..bounds(1, 3)
    }
}

fn tensorflow() -> Vec<(&'static str, Job)> {
    let all = || {
        job(Kind::Tf)
            .role(Role::Chief, 1)
            .role(Role::Ps, 2)
            .role(Role::Worker, 2)
            .role(Role::Evaluator, 1)
    };
    vec![
        ("tensorflow", all().uid().done()),
        ("tensorflow-domain", all().done()),
        ("tensorflow-dynamic", all().dynamic_worker().done()),
        (
            "tensorflow-single",
            job(Kind::Tf).role(Role::Worker, 1).done(),
        ),
    ]
}

fn others() -> Vec<(&'static str, Job)> {
    vec![
        (
            "xgboost",
            job(Kind::XgBoost)
                .role(Role::Master, 1)
                .role(Role::Worker, 2)
                .uid()
                .done(),
        ),
        (
            "xgboost-single",
            job(Kind::XgBoost).role(Role::Master, 1).done(),
        ),
        (
            "paddle-collective",
            job(Kind::Paddle).role(Role::Worker, 2).uid().done(),
        ),
        (
            "paddle-ps",
            job(Kind::Paddle)
                .role(Role::Master, 2)
                .role(Role::Worker, 2)
                .done(),
        ),
        ("jax", job(Kind::Jax).role(Role::Worker, 2).uid().done()),
    ]
}

fn mpi_v1() -> Vec<(&'static str, Job)> {
    let plain = || {
        job(Kind::MpiV1)
            .role(Role::Launcher, 1)
            .role(Role::Worker, 2)
            .container(Role::Launcher, |container| {
                container.command = Some(vec!["mpirun".to_owned(), "train".to_owned()]);
            })
    };
    vec![
        ("mpi-v1", plain().uid().done()),
        (
            "mpi-v1-gpu-launcher",
            plain()
                .mpi_v1(|own| own.slots_per_worker = 8)
                .container(Role::Launcher, |container| {
                    let limits = [("nvidia.com/gpu".to_owned(), Quantity("8".to_owned()))];
                    container.resources.get_or_insert_default().limits = Some(limits.into());
                })
                .done(),
        ),
        (
            "mpi-v1-main-container",
            plain()
                .mpi_v1(|own| own.main_container = Some("mpi".to_owned()))
                .container(Role::Worker, |container| {
                    container.command = Some(vec!["hold".to_owned()]);
                    container.args = Some(vec!["still".to_owned()]);
                })
                .pod(Role::Launcher, |spec| {
                    spec.service_account_name = Some("trainer".to_owned());
                })
                .scope(RestartScope::Pod)
                .policy(Role::Worker, RestartPolicy::OnFailure)
                .done(),
        ),
    ]
}

fn mpi_v2() -> Vec<(&'static str, Job)> {
    let plain = || {
        job(Kind::MpiV2)
            .role(Role::Launcher, 1)
            .role(Role::Worker, 2)
            .mpi_v2(|own| own.slots_per_worker = 4)
            .container(Role::Launcher, |container| {
                container.command = Some(vec!["mpirun".to_owned(), "train".to_owned()]);
            })
    };
    let of = |implementation| plain().mpi_v2(|own| own.implementation = implementation);
    vec![
        ("mpi-v2", plain().uid().done()),
        ("mpi-v2-intel-domain", of(MpiImplementation::Intel).done()),
        ("mpi-v2-mpich", of(MpiImplementation::Mpich).done()),
        (
            "mpi-v2-launcher-as-worker",
            plain()
                .mpi_v2(|own| own.run_launcher_as_worker = true)
                .done(),
        ),
        (
            "mpi-v2-other-home",
            plain()
                .mpi_v2(|own| own.ssh_auth_mount_path = "/home/mpiuser/.ssh".to_owned())
                .done(),
        ),
        (
            "mpi-v2-host-network",
            plain()
                .pod(Role::Launcher, |spec| spec.host_network = Some(true))
                .pod(Role::Worker, |spec| spec.host_network = Some(true))
                .done(),
        ),
        (
            "mpi-v2-compat-domain",
            plain()
                .compat(Compat::ClusterLocalSearch)
                .scope(RestartScope::Pod)
                .run_policy(|policy| {
                    policy.backoff_limit = Some(3);
                    policy.active_deadline_seconds = Some(3600);
                    policy.ttl_seconds_after_finished = Some(60);
                    policy.suspend = true;
                })
                .done(),
        ),
    ]
}

fn mpi_by_agent() -> Vec<(&'static str, Job)> {
    let plain = |kind| {
        job(kind)
            .role(Role::Launcher, 1)
            .role(Role::Worker, 2)
            .container(Role::Launcher, |container| {
                container.command = Some(vec!["mpirun".to_owned(), "train".to_owned()]);
            })
    };
    let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    vec![
        ("mpi-v1-agent", plain(Kind::MpiV1).uid().done()),
        (
            "mpi-v1-agent-main-container-domain",
            plain(Kind::MpiV1)
                .mpi_v1(|own| own.main_container = Some("ranks".to_owned()))
                .pod(Role::Launcher, |spec| {
                    spec.service_account_name = Some("trainer".to_owned());
                })
                .pod(Role::Worker, |spec| {
                    let mut second = spec.containers[0].clone();
                    second.name = "ranks".to_owned();
                    second.command = words(&["hold"]);
                    second.args = words(&["still"]);
                    spec.containers.push(second);
                })
                .done(),
        ),
        ("mpi-v2-agent", plain(Kind::MpiV2).uid().done()),
        (
            // A worker that serves ssh, with a probe that asks for it, as another user.
            "mpi-v2-agent-sshd-mpich",
            plain(Kind::MpiV2)
                .mpi_v2(|own| own.implementation = MpiImplementation::Mpich)
                .container(Role::Worker, |container| {
                    container.command = words(&["/usr/sbin/sshd"]);
                    container.args = words(&["-De", "-f", "/home/mpiuser/.sshd_config"]);
                    let probe = json!({"tcpSocket": {"port": 2222}});
                    container.readiness_probe = Some(serde_json::from_value(probe).unwrap());
                    let user = json!({"runAsUser": 1000, "runAsNonRoot": true});
                    container.security_context = Some(serde_json::from_value(user).unwrap());
                })
                .done(),
        ),
        (
            // Written for ssh: stays with ssh although the cluster has an image of the agent.
            "mpi-v2-agent-needs-ssh",
            plain(Kind::MpiV2)
                .container(Role::Worker, |container| {
                    container.command = words(&["sh", "-c", "prepare && exec /usr/sbin/sshd -De"]);
                })
                .done(),
        ),
    ]
}

fn by_other_schedulers() -> Vec<(&'static str, Job)> {
    let mpi = |kind| job(kind).role(Role::Launcher, 1).role(Role::Worker, 2);
    vec![
        (
            "pytorch-volcano",
            job(Kind::PyTorch)
                .role(Role::Master, 1)
                .role(Role::Worker, 2)
                .container(Role::Worker, |container| {
                    let resources = json!({"limits": {"nvidia.com/gpu": "8"}});
                    container.resources = Some(serde_json::from_value(resources).unwrap());
                })
                .gang(GangBy::Volcano)
                .uid()
                .done(),
        ),
        (
            "mpi-v1-coscheduling",
            mpi(Kind::MpiV1).gang(GangBy::Coscheduling).uid().done(),
        ),
        (
            "mpi-v2-volcano",
            mpi(Kind::MpiV2).gang(GangBy::Volcano).uid().done(),
        ),
    ]
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../testdata/launch"
    ))
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "golden files are read and written by this test only"
)]
fn golden_files_hold_what_every_job_becomes() {
    let update = std::env::var_os("UPDATE").is_some_and(|value| value == "1");
    let mut wanted = BTreeSet::new();
    let mut wrong = Vec::new();
    for (case, job) in cases() {
        let objects = render(&job, &cluster(case)).unwrap();
        let values: Vec<Value> = objects.iter().map(Object::to_value).collect();
        let got = serde_json::to_string_pretty(&values).unwrap() + "\n";
        let path = folder().join(format!("{case}.json"));
        if update {
            std::fs::write(&path, &got).unwrap();
        }
        match std::fs::read_to_string(&path) {
            Ok(want) if want == got => {}
            Ok(_) => wrong.push(format!("{case} differs")),
            Err(error) => wrong.push(format!("{case} cannot be read: {error}")),
        }
        wanted.insert(format!("{case}.json"));
    }
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !wanted.contains(&name) {
            wrong.push(format!("{name} belongs to no case"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}; UPDATE=1 writes the files");
}

#[test]
fn objects_have_usual_order_and_no_nulls() {
    fn check(case: &str, value: &Value) {
        match value {
            Value::Null => panic!("{case}: a null is written"),
            Value::Array(items) => items.iter().for_each(|item| check(case, item)),
            Value::Object(fields) => {
                assert!(!fields.contains_key("creationTimestamp"), "{case}");
                fields.values().for_each(|item| check(case, item));
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    for (case, job) in cases() {
        for object in render(&job, &cluster(case)).unwrap() {
            let value = object.to_value();
            let keys: Vec<&String> = value.as_object().unwrap().keys().take(3).collect();
            assert_eq!(keys, ["apiVersion", "kind", "metadata"], "{case}");
            check(case, &value);
            let text = serde_json::to_string(&object).unwrap();
            assert_eq!(text, value.to_string(), "{case}");
        }
    }
}

#[test]
fn every_object_has_its_own_name_and_every_pod_its_slot() {
    for (case, job) in cases() {
        let objects = render(&job, &cluster(case)).unwrap();
        let mut names = BTreeSet::new();
        let mut slots = Vec::new();
        for object in &objects {
            let value = object.to_value();
            let name = (value["kind"].to_string(), object.name().to_owned());
            assert!(names.insert(name.clone()), "{case}: {name:?} twice");
            let labels = match object {
                Object::Pod(pod) => &pod.metadata.labels,
                Object::Job(job) => {
                    let template = &job.spec.as_ref().unwrap().template;
                    &template.metadata.as_ref().unwrap().labels
                }
                _ => continue,
            };
            slots.push(slot_of(&job, labels.as_ref().unwrap()).unwrap());
        }
        slots.sort_unstable();
        assert_eq!(slots, job.slots().collect::<Vec<_>>(), "{case}");
    }
}
