//! The contract's conformance vectors that concern launch.

use super::{build::bounds, build::job, env_of, label_of, pod_of};
use crate::{
    launch::{Cluster, render, service},
    spec::{Compat, Job, Kind, Role, Slot},
};

const MASTER: Slot = Slot {
    role: Role::Master,
    index: 0,
};

fn worker(index: u32) -> Slot {
    Slot::new(Role::Worker, index)
}

fn master_and_workers() -> super::build::Build {
    job(Kind::PyTorch)
        .role(Role::Master, 1)
        .role(Role::Worker, 2)
}

/// The variables whose names are among `names`, in their order in the pod.
fn pick(job: &Job, slot: Slot, names: &[&str]) -> Vec<String> {
    let is_wanted = |line: &String| {
        names
            .iter()
            .any(|name| line.split('=').next() == Some(name))
    };
    env_of(&pod_of(job, slot), 0)
        .into_iter()
        .filter(is_wanted)
        .collect()
}

#[test]
fn pytorch_master_and_workers() {
    let job = master_and_workers().done();
    let names: Vec<String> = render(&job, &Cluster::default())
        .unwrap()
        .iter()
        .map(|object| format!("{} {}", object.to_value()["kind"], object.name()))
        .collect();
    assert_eq!(
        names,
        [
            "\"Service\" j-master-0",
            "\"Pod\" j-master-0",
            "\"Service\" j-worker-0",
            "\"Pod\" j-worker-0",
            "\"Service\" j-worker-1",
            "\"Pod\" j-worker-1",
        ]
    );
    assert_eq!(
        env_of(&pod_of(&job, worker(1)), 0),
        [
            "PYTHONUNBUFFERED=1",
            "MASTER_PORT=23456",
            "PET_MASTER_PORT=23456",
            "MASTER_ADDR=j-master-0",
            "PET_MASTER_ADDR=j-master-0",
            "WORLD_SIZE=3",
            "RANK=2",
            "PET_NODE_RANK=2",
            "PET_NPROC_PER_NODE=auto",
            "PET_NNODES=3",
        ]
    );
    assert_eq!(
        pick(&job, MASTER, &["RANK", "PET_NODE_RANK", "MASTER_ADDR"]),
        ["MASTER_ADDR=j-master-0", "RANK=0", "PET_NODE_RANK=0"]
    );
    let port = &service(&job, worker(0))
        .unwrap()
        .spec
        .unwrap()
        .ports
        .unwrap()[0];
    assert_eq!(
        (port.name.as_deref(), port.port),
        (Some("pytorchjob-port"), 23456)
    );
    for (slot, want) in [
        (MASTER, Some("master")),
        (worker(0), None),
        (worker(1), None),
    ] {
        let pod = pod_of(&job, slot);
        assert_eq!(
            label_of(&pod, "training.kubeflow.org/job-role"),
            want,
            "{slot}"
        );
    }
}

#[test]
fn pytorch_init_container_is_on_workers_only() {
    let job = master_and_workers().compat(Compat::InitContainer).done();
    let init_containers = |slot| {
        let containers = pod_of(&job, slot).spec.unwrap().init_containers;
        containers
            .unwrap_or_default()
            .into_iter()
            .map(|container| container.name)
            .collect::<Vec<_>>()
    };
    assert!(init_containers(MASTER).is_empty());
    assert_eq!(init_containers(worker(0)), ["init-pytorch"]);
    assert_eq!(init_containers(worker(1)), ["init-pytorch"]);
}

#[test]
fn pytorch_processes_multiply_world_not_rank() {
    let job = master_and_workers().processes("4").done();
    assert_eq!(
        pick(
            &job,
            worker(1),
            &["WORLD_SIZE", "RANK", "PET_NPROC_PER_NODE"]
        ),
        ["WORLD_SIZE=12", "RANK=2", "PET_NPROC_PER_NODE=4"]
    );
}

#[test]
fn pytorch_elastic_workers() {
    let job = job(Kind::PyTorch)
        .role(Role::Worker, 2)
        .elastic(bounds(1, 3))
        .compat(Compat::InitContainer)
        .done();
    let pod = pod_of(&job, worker(0));
    assert_eq!(
        env_of(&pod, 0),
        [
            "PYTHONUNBUFFERED=1",
            "PET_NPROC_PER_NODE=auto",
            "PET_RDZV_ENDPOINT=j-worker-0:23456",
            "PET_RDZV_BACKEND=c10d",
            "PET_NNODES=1:3",
        ]
    );
    assert_eq!(pod.spec.as_ref().unwrap().init_containers, None);
    let role = "training.kubeflow.org/job-role";
    assert_eq!(label_of(&pod, role), Some("master"));
    assert_eq!(label_of(&pod_of(&job, worker(1)), role), None);
}

#[test]
fn tf_config_in_both_forms() {
    let pair = || job(Kind::Tf).role(Role::Ps, 1).role(Role::Worker, 1);
    let no_servers = || job(Kind::Tf).role(Role::Worker, 2).dynamic_worker();
    let with_chief = || pair().role(Role::Chief, 1).dynamic_worker();
    let cases = [
        (
            "dense",
            pair().done(),
            worker(0),
            r#"{"cluster":{"ps":["j-ps-0.n.svc:2222"],"worker":["j-worker-0.n.svc:2222"]},"task":{"type":"worker","index":0},"environment":"cloud"}"#,
        ),
        (
            "sparse worker",
            pair().dynamic_worker().done(),
            worker(0),
            r#"{"cluster":{"worker":{"0":"j-worker-0.n.svc:2222"},"ps":["j-ps-0.n.svc:2222"]},"task":{"type":"worker","index":0}}"#,
        ),
        (
            "sparse worker without servers",
            no_servers().done(),
            worker(1),
            r#"{"cluster":{"worker":{"1":"j-worker-1.n.svc:2222"},"ps":null},"task":{"type":"worker","index":1}}"#,
        ),
        (
            "sparse server",
            pair().dynamic_worker().done(),
            Slot::new(Role::Ps, 0),
            r#"{"cluster":{"worker":{},"ps":["j-ps-0.n.svc:2222"]},"task":{"type":"ps","index":0}}"#,
        ),
        (
            "sparse chief",
            with_chief().done(),
            Slot::new(Role::Chief, 0),
            r#"{"cluster":{"worker":{},"ps":[]},"task":{"type":"chief","index":0}}"#,
        ),
    ];
    for (name, job, slot, want) in cases {
        let got = env_of(&pod_of(&job, slot), 0);
        assert_eq!(got, [format!("TF_CONFIG={want}")], "{name}");
    }
}

#[test]
fn tf_single_worker_has_no_config() {
    let job = job(Kind::Tf).role(Role::Worker, 1).done();
    assert!(env_of(&pod_of(&job, worker(0)), 0).is_empty());
}

#[test]
fn tf_master_role_is_chief_else_first_worker() {
    let chief = job(Kind::Tf).role(Role::Chief, 1).role(Role::Worker, 1);
    let legacy = job(Kind::Tf).role(Role::Master, 1).role(Role::Worker, 1);
    let none = job(Kind::Tf).role(Role::Ps, 1).role(Role::Worker, 2);
    let cases = [
        (chief.done(), Slot::new(Role::Chief, 0)),
        (legacy.done(), MASTER),
        (none.done(), worker(0)),
    ];
    for (job, want) in cases {
        let masters: Vec<Slot> = job
            .slots()
            .filter(|slot| {
                let pod = pod_of(&job, *slot);
                label_of(&pod, "training.kubeflow.org/job-role") == Some("master")
            })
            .collect();
        assert_eq!(masters, [want]);
    }
}

#[test]
fn xgboost_worker() {
    let job = job(Kind::XgBoost)
        .role(Role::Master, 1)
        .role(Role::Worker, 2)
        .done();
    assert_eq!(
        env_of(&pod_of(&job, worker(0)), 0),
        [
            "MASTER_PORT=9999",
            "MASTER_ADDR=j-master-0",
            "WORLD_SIZE=3",
            "RANK=1",
            "PYTHONUNBUFFERED=1",
            "WORKER_PORT=9999",
            "WORKER_ADDRS=j-worker-0,j-worker-1",
        ]
    );
}

#[test]
fn paddle_workers() {
    let collective = job(Kind::Paddle).role(Role::Worker, 2).done();
    let servers = job(Kind::Paddle)
        .role(Role::Master, 2)
        .role(Role::Worker, 1)
        .done();
    let own = [
        "POD_IP_DUMMY<-status.podIP",
        "PADDLE_MASTER=$(POD_IP_DUMMY):36543",
    ];
    let cases: [(&str, &Job, Slot, Vec<&str>); 5] = [
        ("collective 0", &collective, worker(0), own.to_vec()),
        (
            "collective 1",
            &collective,
            worker(1),
            vec!["PADDLE_MASTER=j-worker-0:36543"],
        ),
        (
            "server 0",
            &servers,
            MASTER,
            vec![own[0], own[1], "PADDLE_SERVER_NUM=1"],
        ),
        (
            "server 1",
            &servers,
            Slot::new(Role::Master, 1),
            vec!["PADDLE_MASTER=j-master-0:36543", "PADDLE_SERVER_NUM=1"],
        ),
        (
            "trainer",
            &servers,
            worker(0),
            vec!["PADDLE_MASTER=j-master-0:36543", "PADDLE_TRAINER_NUM=1"],
        ),
    ];
    for (name, job, slot, want) in cases {
        let got = env_of(&pod_of(job, slot), 0);
        let nodes = format!("PADDLE_NNODES={}", job.total_replicas());
        assert_eq!(
            got[..3],
            ["PYTHONUNBUFFERED=1", "PADDLE_JOB_ID=j", nodes.as_str()],
            "{name}"
        );
        assert_eq!(got[3..], want, "{name}");
    }
}

#[test]
fn jax_worker() {
    let job = job(Kind::Jax).role(Role::Worker, 2).done();
    assert_eq!(
        env_of(&pod_of(&job, worker(1)), 0),
        [
            "PYTHONUNBUFFERED=1",
            "COORDINATOR_PORT=6666",
            "COORDINATOR_ADDRESS=j-worker-0",
            "NUM_PROCESSES=2",
            "PROCESS_ID=1",
        ]
    );
}

#[test]
fn tensorflow_local_pods_have_own_ports() {
    let job = job(Kind::Tf).role(Role::Ps, 1).role(Role::Worker, 2).done();
    let cluster = Cluster {
        ports: [(worker(1), 3001)].into(),
        ..Cluster::default()
    };
    let pod = crate::launch::pod(&job, worker(0), 1, &cluster).unwrap();
    let crate::launch::LaunchedPod::Pod(pod) = pod else {
        panic!("a pod is a pod");
    };
    let config = env_of(&pod, 0).pop().unwrap();
    assert!(
        config.contains(r#""worker":["j-worker-0.n.svc:2222","j-worker-1.n.svc:3001"]"#),
        "{config}"
    );
}
