//! What the user wrote in a template survives; what is missing is an error, never a panic.

use k8s_openapi::{
    api::core::v1::{
        Container, EmptyDirVolumeSource, PodDNSConfig, PodTemplateSpec, Toleration, Volume,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    build::{Build, job},
    env_of, label_of, pod_of,
};
use crate::{
    launch::{Cluster, LaunchError, LaunchedPod, env::variable, render},
    spec::{Job, Kind, RestartPolicy, RestartScope, Role, Slot, annotation},
};

const WORKER: Slot = Slot {
    role: Role::Worker,
    index: 0,
};

/// One job of each kind, each with a worker.
fn one_of_each() -> Vec<Build> {
    Kind::ALL
        .into_iter()
        .map(|kind| {
            let first = match kind {
                Kind::MpiV1 | Kind::MpiV2 => Some(Role::Launcher),
                Kind::XgBoost | Kind::PyTorch => Some(Role::Master),
                Kind::Tf | Kind::Paddle | Kind::Jax | Kind::Train => None,
            };
            let build = job(kind).role(Role::Worker, 2);
            match first {
                Some(role) => build.role(role, 1),
                None => build,
            }
        })
        .collect()
}

fn fill(template: &mut PodTemplateSpec) {
    let pair = |key: &str, value: &str| Some([(key.to_owned(), value.to_owned())].into());
    template.metadata = Some(ObjectMeta {
        labels: pair("team", "vision"),
        annotations: pair("sidecar.istio.io/inject", "false"),
        finalizers: Some(vec!["example.com/keep".to_owned()]),
        ..ObjectMeta::default()
    });
    let spec = template.spec.as_mut().unwrap();
    spec.scheduler_name = Some("binpack".to_owned());
    spec.host_ipc = Some(true);
    spec.tolerations = Some(vec![Toleration {
        key: Some("gpu".to_owned()),
        ..Toleration::default()
    }]);
    spec.init_containers = Some(vec![Container {
        name: "fetch".to_owned(),
        ..Container::default()
    }]);
    spec.volumes = Some(vec![Volume {
        name: "shm".to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }]);
    spec.dns_config = Some(PodDNSConfig {
        searches: Some(vec!["corp.example".to_owned()]),
        ..PodDNSConfig::default()
    });
    spec.containers[0].env = Some(vec![
        variable("B", "1"),
        variable("A", "$(B)"),
        variable("RANK", "9"),
    ]);
    spec.containers.push(Container {
        name: "sidecar".to_owned(),
        ..Container::default()
    });
}

#[test]
fn templates_pass_through() {
    for build in one_of_each() {
        let job = build.template(Role::Worker, fill).done();
        let kind = (job.kind, job.kind.api_version());
        let written = job.roles[&Role::Worker].template.clone();
        let (metadata, written) = (written.metadata.unwrap(), written.spec.unwrap());
        let pod = pod_of(&job, WORKER);
        let spec = pod.spec.as_ref().unwrap();

        assert_eq!(label_of(&pod, "team"), Some("vision"), "{kind:?}");
        assert_eq!(pod.metadata.annotations, metadata.annotations, "{kind:?}");
        let kept = metadata.finalizers.filter(|_| !job.kind.is_mpi());
        assert_eq!(pod.metadata.finalizers, kept, "{kind:?}");
        assert_eq!(spec.scheduler_name, written.scheduler_name, "{kind:?}");
        assert_eq!(spec.host_ipc, written.host_ipc, "{kind:?}");
        assert_eq!(spec.tolerations, written.tolerations, "{kind:?}");
        assert_eq!(spec.init_containers, written.init_containers, "{kind:?}");
        let volumes = spec.volumes.as_ref().unwrap();
        assert_eq!(volumes[0].name, "shm", "{kind:?}");
        let searches = spec.dns_config.as_ref().unwrap().searches.as_ref().unwrap();
        assert_eq!(searches[0], "corp.example", "{kind:?}");
        assert_eq!(
            env_of(&pod, 0)[..3],
            ["B=1", "A=$(B)", "RANK=9"],
            "{kind:?}"
        );
        assert_eq!(spec.containers[1].name, "sidecar", "{kind:?}");
    }
}

#[test]
fn the_job_s_own_annotations_stay_on_the_job() {
    for build in one_of_each() {
        let job = build.done();
        assert!(!job.annotations.is_empty());
        assert_eq!(pod_of(&job, WORKER).metadata.annotations, None);
    }
}

#[test]
fn variables_reach_contract_containers() {
    let cases = [
        (Kind::PyTorch, true),
        (Kind::Tf, false),
        (Kind::MpiV1, false),
        (Kind::MpiV2, false),
        (Kind::XgBoost, true),
        (Kind::Paddle, true),
        (Kind::Jax, true),
    ];
    for build in one_of_each() {
        let job = build.template(Role::Worker, fill).done();
        let (_, want) = cases.iter().find(|(kind, _)| *kind == job.kind).unwrap();
        let reaches_sidecar = !env_of(&pod_of(&job, WORKER), 1).is_empty();
        assert_eq!(reaches_sidecar, *want, "{:?}", job.kind);
    }
}

#[test]
fn operator_labels_win_and_the_attempt_fences() {
    let job = job(Kind::PyTorch)
        .role(Role::Worker, 1)
        .template(Role::Worker, |template| {
            let wrong = ["training.kubeflow.org/job-name", annotation::ATTEMPT]
                .map(|key| (key.to_owned(), "wrong".to_owned()));
            template.metadata.get_or_insert_default().labels = Some(wrong.into());
        })
        .done();
    let LaunchedPod::Pod(pod) = crate::launch::pod(&job, WORKER, 4, &Cluster::default()).unwrap()
    else {
        panic!("a worker is a bare pod");
    };
    assert_eq!(label_of(&pod, "training.kubeflow.org/job-name"), Some("j"));
    assert_eq!(label_of(&pod, annotation::ATTEMPT), Some("4"));
}

#[test]
fn owner_is_the_job_once_it_has_an_identity() {
    for build in one_of_each() {
        let job = build.uid().done();
        for object in render(&job, &Cluster::default()).unwrap() {
            let owners = object.metadata().owner_references.clone().unwrap();
            assert_eq!(owners.len(), 1);
            assert_eq!(owners[0].api_version, job.kind.api_version());
            assert_eq!(owners[0].kind, job.kind.name());
            assert_eq!(owners[0].name, "j");
            assert_eq!(Some(&owners[0].uid), job.uid.as_ref());
            assert_eq!(owners[0].controller, Some(true));
            assert_eq!(owners[0].block_owner_deletion, Some(true));
        }
    }
    for build in one_of_each() {
        for object in render(&build.done(), &Cluster::default()).unwrap() {
            assert_eq!(object.metadata().owner_references, None);
        }
    }
}

#[test]
fn restart_policy_of_the_pod() {
    use RestartPolicy::{Always, ExitCode, Never, OnFailure};
    let cases = [
        (RestartScope::Pod, Always, "Always"),
        (RestartScope::Pod, OnFailure, "OnFailure"),
        (RestartScope::Pod, Never, "Never"),
        (RestartScope::Pod, ExitCode, "Never"),
        (RestartScope::Gang, Always, "Never"),
        (RestartScope::Gang, OnFailure, "Never"),
        (RestartScope::Gang, Never, "Never"),
        (RestartScope::Gang, ExitCode, "Never"),
    ];
    for (scope, policy, want) in cases {
        for build in one_of_each() {
            let job = build
                .pod(Role::Worker, |spec| {
                    spec.restart_policy = Some("Sometimes".to_owned());
                })
                .policy(Role::Worker, policy)
                .scope(scope)
                .done();
            let got = pod_of(&job, WORKER).spec.unwrap().restart_policy;
            assert_eq!(got.as_deref(), Some(want), "{:?} {scope:?}", job.kind);
        }
    }
}

#[test]
fn what_is_missing_is_an_error() {
    let pytorch = || job(Kind::PyTorch).role(Role::Worker, 1);
    let cases: Vec<(&str, Job, LaunchError)> = vec![
        (
            "xgboost without master",
            job(Kind::XgBoost).role(Role::Worker, 1).done(),
            LaunchError::UndeclaredRole { role: Role::Master },
        ),
        (
            "no container",
            job(Kind::MpiV2)
                .role(Role::Launcher, 1)
                .pod(Role::Launcher, |spec| spec.containers.clear())
                .done(),
            LaunchError::NoContainer {
                role: Role::Launcher,
            },
        ),
    ];
    for (name, job, want) in cases {
        assert_eq!(render(&job, &Cluster::default()), Err(want), "{name}");
    }
    assert_eq!(
        crate::launch::pod(
            &pytorch().done(),
            Slot::new(Role::Ps, 0),
            1,
            &Cluster::default()
        ),
        Err(LaunchError::UndeclaredRole { role: Role::Ps })
    );
}

#[test]
fn ports_have_a_fallback() {
    let bare = |kind| {
        job(kind)
            .role(Role::Worker, 2)
            .container(Role::Worker, |container| container.ports = None)
            .done()
    };
    let tf = env_of(&pod_of(&bare(Kind::Tf), WORKER), 0).join("\n");
    assert!(tf.contains("j-worker-1.n.svc:2222"), "{tf}");
    let paddle = env_of(&pod_of(&bare(Kind::Paddle), Slot::new(Role::Worker, 1)), 0);
    assert_eq!(paddle[3], "PADDLE_MASTER=j-worker-0:36543");
    let jax = env_of(&pod_of(&bare(Kind::Jax), WORKER), 0);
    assert!(jax.contains(&"COORDINATOR_PORT=6666".to_owned()), "{jax:?}");
}
