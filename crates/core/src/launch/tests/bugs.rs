//! One test for each old bug that concerns launch, named after its number in
//! `docs/differences.md`: the decision taken, and the switch back where there is one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerPort, PodSpec};

use super::{
    build::{Build, bounds, job},
    env_of, pod_of,
};
use crate::{
    job::SharedInputs,
    launch::{
        Cluster, Existing, Keys, LaunchedPod, Object, Plan, SshKey, autoscaler, pod, render,
        service, shared, slot_of,
    },
    spec::{Compat, Elastic, Framework, Job, Kind, RestartScope, Role, Slot},
};

const WORKER: Slot = Slot {
    role: Role::Worker,
    index: 0,
};

fn mpi_v2(workers: u32) -> Build {
    job(Kind::MpiV2)
        .role(Role::Launcher, 1)
        .role(Role::Worker, workers)
}

fn with_domain(domain: &str) -> Cluster {
    Cluster {
        domain: Some(domain.to_owned()),
        ..Cluster::default()
    }
}

fn spec_on(job: &Job, slot: Slot, cluster: &Cluster) -> PodSpec {
    match pod(job, slot, 1, cluster).unwrap() {
        LaunchedPod::Pod(pod) => pod.spec.unwrap(),
        LaunchedPod::Job(job) => job.spec.unwrap().template.spec.unwrap(),
    }
}

/// The files of the job's `ConfigMap`.
fn files(job: &Job, inputs: &SharedInputs) -> BTreeMap<String, String> {
    shared(job, inputs, None, &Cluster::default())
        .unwrap()
        .into_iter()
        .find_map(|object| match object {
            Object::ConfigMap(map) => map.data,
            _ => None,
        })
        .unwrap()
}

fn inputs(job: &Job, running: &[u32]) -> SharedInputs {
    SharedInputs {
        replicas: job.replicas(),
        running_workers: running.iter().copied().collect(),
    }
}

#[test]
fn bug_6_no_replicas_become_no_objects() {
    let job = job(Kind::Jax).role(Role::Worker, 0).done();
    assert_eq!(render(&job, &Cluster::default()), Ok(vec![]));
}

#[test]
fn bug_7_invalid_index_label_has_no_slot() {
    let job = job(Kind::PyTorch).role(Role::Worker, 2).done();
    let slot = |role: &str, index: &str| {
        let labels = [("replica-type", role), ("replica-index", index)]
            .map(|(key, value)| (format!("training.kubeflow.org/{key}"), value.to_owned()));
        slot_of(&job, &labels.into())
    };
    assert_eq!(slot("worker", "1"), Some(Slot::new(Role::Worker, 1)));
    assert_eq!(slot("worker", "7"), Some(Slot::new(Role::Worker, 7)));
    for (role, index) in [
        ("worker", "-1"),
        ("worker", "one"),
        ("worker", ""),
        ("worker", "4294967296"),
        ("Worker", "1"),
        ("", "1"),
    ] {
        assert_eq!(slot(role, index), None, "{role} {index}");
    }
    assert_eq!(slot_of(&job, &BTreeMap::new()), None);
}

#[test]
fn bug_13_empty_rendezvous_settings_are_ignored() {
    let job = job(Kind::PyTorch)
        .role(Role::Worker, 1)
        .elastic(Elastic {
            rdzv_conf: vec![],
            ..bounds(1, 1)
        })
        .done();
    let env = env_of(&pod_of(&job, WORKER), 0);
    assert!(!env.iter().any(|line| line.starts_with("PET_RDZV_CONF")));
}

#[test]
fn bug_24_services_name_pods_that_are_not_ready() {
    let plain = || {
        job(Kind::PyTorch)
            .role(Role::Master, 1)
            .role(Role::Worker, 1)
    };
    let publishes = |job: &Job| {
        let spec = service(job, WORKER).unwrap().spec.unwrap();
        spec.publish_not_ready_addresses
    };
    assert_eq!(publishes(&plain().done()), Some(true));
    let old = plain().compat(Compat::ReadyOnlyServices).done();
    assert_eq!(publishes(&old), None);
}

#[test]
fn bug_24_no_init_container_unless_asked() {
    let plain = || {
        job(Kind::PyTorch)
            .role(Role::Master, 1)
            .role(Role::Worker, 1)
    };
    assert_eq!(
        pod_of(&plain().done(), WORKER)
            .spec
            .unwrap()
            .init_containers,
        None
    );
    let cluster = Cluster {
        init_container_image: "mirror/wait:<2>".to_owned(),
        init_container_tries: 7,
        ..Cluster::default()
    };
    let old = plain().compat(Compat::InitContainer).done();
    let added = spec_on(&old, WORKER, &cluster).init_containers.unwrap();
    assert_eq!(added[0].image.as_deref(), Some("mirror/wait:<2>"));
    let script = &added[0].command.as_ref().unwrap()[2];
    assert!(script.contains("nslookup j-master-0;"), "{script}");
    assert!(script.contains("-ge 7 ]"), "{script}");
}

#[test]
fn bug_26_the_kubelet_restarts_nothing_in_a_gang() {
    let policy = |build: Build| pod_of(&build.done(), WORKER).spec.unwrap().restart_policy;
    let plain = || job(Kind::PyTorch).role(Role::Worker, 2);
    assert_eq!(policy(plain()).as_deref(), Some("Never"));
    let old = plain().scope(RestartScope::Pod);
    assert_eq!(policy(old).as_deref(), Some("OnFailure"));
    let elastic = plain().elastic(bounds(1, 2));
    assert_eq!(policy(elastic).as_deref(), Some("OnFailure"));
}

#[test]
fn bug_31_world_size_keeps_its_old_meaning() {
    let elastic = Elastic {
        nproc_per_node: Some(8),
        ..bounds(1, 2)
    };
    let job = job(Kind::PyTorch)
        .role(Role::Master, 1)
        .role(Role::Worker, 2)
        .elastic(elastic)
        .done();
    let env = env_of(&pod_of(&job, WORKER), 0);
    for want in ["WORLD_SIZE=3", "RANK=1", "PET_NPROC_PER_NODE=8"] {
        assert!(env.iter().any(|line| line == want), "{want} in {env:?}");
    }
}

#[test]
fn bug_32_the_domain_may_be_given_with_or_without_svc() {
    let job = job(Kind::Tf).role(Role::Worker, 2).done();
    let config = |cluster: &Cluster| {
        let spec = spec_on(&job, WORKER, cluster);
        spec.containers[0].env.clone().unwrap()[0]
            .value
            .clone()
            .unwrap()
    };
    let want = "j-worker-1.n.svc.cluster.local:2222";
    assert!(config(&with_domain("cluster.local")).contains(want));
    assert!(config(&with_domain("svc.cluster.local")).contains(want));
    assert!(config(&with_domain("")).contains("j-worker-1.n.svc:2222"));
}

#[test]
fn bug_33_elastic_paddle_changes_nothing() {
    let mut elastic = job(Kind::Paddle).role(Role::Worker, 2).done();
    let plain = render(&elastic, &Cluster::default());
    elastic.framework = Framework::Paddle(Some(bounds(1, 4)));
    assert_eq!(render(&elastic, &Cluster::default()), plain);
    assert_eq!(autoscaler(&elastic), None);
}

#[test]
fn bug_34_service_ports() {
    type Port = (Option<&'static str>, i32, Option<&'static str>);
    let cases: &[(&str, &[Port], &[Port])] = &[
        ("none", &[], &[]),
        (
            "one without a name",
            &[(None, 80, None)],
            &[(None, 80, None)],
        ),
        (
            "order and protocol are kept",
            &[
                (Some("z"), 9, Some("UDP")),
                (Some("a"), 10, None),
                (Some("m"), 9, Some("TCP")),
            ],
            &[
                (Some("z"), 9, Some("UDP")),
                (Some("a"), 10, None),
                (Some("m"), 9, Some("TCP")),
            ],
        ),
        (
            "several without a name get one",
            &[(None, 80, None), (Some(""), 53, Some("UDP"))],
            &[
                (Some("tcp-80"), 80, None),
                (Some("udp-53"), 53, Some("UDP")),
            ],
        ),
        (
            "a made name avoids a given one",
            &[(None, 80, None), (Some("tcp-80"), 81, None)],
            &[(Some("port-tcp-80"), 80, None), (Some("tcp-80"), 81, None)],
        ),
        (
            "a shared name stays with the first",
            &[(Some("a"), 1, None), (Some("a"), 2, None)],
            &[(Some("a"), 1, None), (Some("tcp-2"), 2, None)],
        ),
        (
            "a repeated number is left out",
            &[
                (Some("mine"), 23456, None),
                (Some("pytorchjob-port"), 23456, Some("TCP")),
            ],
            &[(Some("mine"), 23456, None)],
        ),
    ];
    for (name, written, want) in cases {
        let ports = written
            .iter()
            .map(|(name, number, protocol)| ContainerPort {
                name: name.map(str::to_owned),
                container_port: *number,
                protocol: protocol.map(str::to_owned),
                ..ContainerPort::default()
            });
        let job = job(Kind::PyTorch)
            .role(Role::Worker, 1)
            .container(Role::Worker, |container| {
                container.ports = Some(ports.collect());
            })
            .done();
        let got = service(&job, WORKER).unwrap().spec.unwrap().ports;
        let got = got.unwrap_or_default();
        let got: Vec<_> = got
            .iter()
            .map(|port| (port.name.as_deref(), port.port, port.protocol.as_deref()))
            .collect();
        assert_eq!(got, *want, "{name}");
    }
}

#[test]
fn bug_34_ports_are_those_of_the_training_container() {
    let job = job(Kind::PyTorch)
        .role(Role::Worker, 1)
        .pod(Role::Worker, |spec| {
            let mut sidecar = spec.containers[0].clone();
            sidecar.name = "sidecar".to_owned();
            sidecar.ports.as_mut().unwrap()[0].container_port = 1;
            spec.containers.insert(0, sidecar);
        })
        .done();
    let ports = service(&job, WORKER).unwrap().spec.unwrap().ports.unwrap();
    assert_eq!(ports[0].port, 23456);
}

#[test]
fn bug_35_a_plan_is_made_once_for_all_pods() {
    let job = job(Kind::Tf)
        .role(Role::Ps, 50)
        .role(Role::Worker, 1000)
        .done();
    let cluster = Cluster::default();
    let plan = Plan::new(&job, &cluster).unwrap();
    let LaunchedPod::Pod(last) = plan.pod(Slot::new(Role::Worker, 999), 1).unwrap() else {
        panic!("a worker is a bare pod");
    };
    let env = env_of(&last, 0);
    let (_, config) = env[0].split_once('=').unwrap();
    let config: serde_json::Value = serde_json::from_str(config).unwrap();
    assert_eq!(config["cluster"]["worker"].as_array().unwrap().len(), 1000);
    assert_eq!(config["cluster"]["ps"].as_array().unwrap().len(), 50);
    assert_eq!(config["task"]["index"], 999);
}

#[test]
fn bug_39_the_shifted_index_is_shifted_back() {
    for (as_worker, want) in [(false, "1"), (true, "2")] {
        let job = mpi_v2(2)
            .mpi_v2(|own| own.run_launcher_as_worker = as_worker)
            .done();
        let last = Slot::new(Role::Worker, 1);
        let labels = pod_of(&job, last).metadata.labels.unwrap();
        assert_eq!(labels["training.kubeflow.org/replica-index"], want);
        assert_eq!(slot_of(&job, &labels), Some(last));
    }
    let job = mpi_v2(2)
        .mpi_v2(|own| own.run_launcher_as_worker = true)
        .done();
    let mut labels = pod_of(&job, WORKER).metadata.labels.unwrap();
    labels.insert(
        "training.kubeflow.org/replica-index".to_owned(),
        "0".to_owned(),
    );
    assert_eq!(slot_of(&job, &labels), None, "index 0 is the launcher's");
}

#[test]
fn bug_40_limits_of_the_launcher_are_ours_in_a_gang() {
    let launcher = |build: Build| {
        let job = build
            .run_policy(|policy| {
                policy.backoff_limit = Some(3);
                policy.active_deadline_seconds = Some(60);
                policy.ttl_seconds_after_finished = Some(5);
            })
            .done();
        let slot = Slot::new(Role::Launcher, 0);
        let LaunchedPod::Job(job) = pod(&job, slot, 1, &Cluster::default()).unwrap() else {
            panic!("the launcher is a batch Job");
        };
        let spec = job.spec.unwrap();
        let restart_policy = spec.template.spec.unwrap().restart_policy.unwrap();
        (
            spec.backoff_limit,
            spec.active_deadline_seconds,
            spec.ttl_seconds_after_finished,
            restart_policy,
        )
    };
    assert_eq!(
        launcher(mpi_v2(1)),
        (Some(0), None, None, "Never".to_owned())
    );
    assert_eq!(
        launcher(mpi_v2(1).scope(RestartScope::Pod)),
        (Some(3), Some(60), Some(5), "OnFailure".to_owned())
    );
}

#[test]
fn bug_41_workers_search_the_cluster_s_own_domain() {
    let searches = |job: &Job, cluster: &Cluster| {
        let config = spec_on(job, WORKER, cluster).dns_config.unwrap();
        config.searches.unwrap().join(" ")
    };
    let job = mpi_v2(1).done();
    let own = with_domain("corp.example");
    assert_eq!(searches(&job, &Cluster::default()), "j.n.svc.cluster.local");
    assert_eq!(searches(&job, &own), "j.n.svc.corp.example");
    let old = mpi_v2(1).compat(Compat::ClusterLocalSearch).done();
    assert_eq!(searches(&old, &own), "j.n.svc.cluster.local");
}

#[test]
fn bug_42_keys_are_made_once_and_kept() {
    let job = mpi_v2(1).done();
    let key = Keys::Ssh(SshKey {
        private: "private".to_owned(),
        public: "public".to_owned(),
    });
    let secrets = |key| {
        let objects = shared(&job, &inputs(&job, &[]), key, &Cluster::default()).unwrap();
        objects
            .into_iter()
            .filter(|object| matches!(object, Object::Secret(_)))
            .collect::<Vec<_>>()
    };
    assert!(secrets(None).is_empty());
    let made = secrets(Some(&key));
    assert_eq!(made[0].existing(), Existing::Keep);
    let value = made[0].to_value();
    assert_eq!(value["data"]["ssh-privatekey"], "cHJpdmF0ZQ==");
    assert_eq!(value["data"]["ssh-publickey"], "cHVibGlj");
    assert!(!format!("{key:?}").contains("private"), "{key:?}");
}

#[test]
fn mpi_running_workers_are_sorted_by_name() {
    let many = mpi_v2(12).done();
    let script = &files(&many, &inputs(&many, &[2, 10, 0]))["discover_hosts.sh"];
    assert_eq!(
        script,
        "#!/bin/sh\necho j-worker-0.j.n.svc\necho j-worker-10.j.n.svc\necho j-worker-2.j.n.svc\n"
    );
    let first = job(Kind::MpiV1)
        .role(Role::Launcher, 1)
        .role(Role::Worker, 12)
        .done();
    let script = &files(&first, &inputs(&first, &[2, 10]))["discover_hosts.sh"];
    assert_eq!(script, "#!/bin/sh\necho j-worker-10:1\necho j-worker-2:1");
    let none = &files(&first, &inputs(&first, &[]))["discover_hosts.sh"];
    assert_eq!(none, "#!/bin/sh");
}

#[test]
fn mpi_v1_launcher_without_workers_may_enter_no_pod() {
    let job = job(Kind::MpiV1).role(Role::Launcher, 1).done();
    let rules = shared(&job, &inputs(&job, &[]), None, &Cluster::default())
        .unwrap()
        .into_iter()
        .find_map(|object| match object {
            Object::Role(role) => role.rules,
            _ => None,
        })
        .unwrap();
    let resources: Vec<_> = rules
        .iter()
        .filter_map(|rule| rule.resources.clone())
        .collect();
    assert_eq!(resources, [["pods"]]);
}

#[test]
fn mpi_v1_bootstrap_of_the_user_is_kept() {
    let job = job(Kind::MpiV1)
        .role(Role::Launcher, 1)
        .container(Role::Launcher, |container| {
            let own = crate::launch::env::variable("I_MPI_HYDRA_BOOTSTRAP", "ssh");
            container.env = Some(vec![own]);
        })
        .done();
    let env = env_of(&pod_of(&job, Slot::new(Role::Launcher, 0)), 0);
    let bootstrap: Vec<_> = env
        .iter()
        .filter(|line| line.starts_with("I_MPI_HYDRA"))
        .collect();
    assert_eq!(
        bootstrap,
        [
            "I_MPI_HYDRA_BOOTSTRAP=ssh",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC=/etc/mpi/kubexec.sh"
        ]
    );
}
