//! How an `MPIJob` starts its ranks: which of the ways, and what the agent finds in a pod.

use k8s_openapi::api::core::v1::{Container, VolumeMount};

use super::build::{Build, job};
use super::{env_of, pod_of};
use crate::{
    launch::{
        AgentIdentity, Cluster, Keys, LaunchError, LaunchedPod, Object, given_volumes, pod, shared,
        transport,
    },
    spec::{Job, Kind, MpiTransport, Role, Slot},
};

fn cluster() -> Cluster {
    Cluster {
        agent_image: Some("trainyard:1".to_owned()),
        ..Cluster::default()
    }
}

fn mpi(kind: Kind) -> Build {
    job(kind).role(Role::Launcher, 1).role(Role::Worker, 2)
}

fn stating(kind: Kind, transport: MpiTransport) -> Job {
    let mut job = mpi(kind).done();
    job.settings.mpi_transport = Some(transport);
    job
}

fn running(kind: Kind, role: Role, words: &[&str]) -> Job {
    mpi(kind)
        .container(role, |container| {
            container.command = Some(words.iter().map(|word| (*word).to_owned()).collect());
        })
        .done()
}

/// A job whose launcher has an init container that `edit` describes.
fn before_launcher(kind: Kind, edit: impl FnOnce(&mut Container)) -> Job {
    let mut job = mpi(kind).done();
    let mut container = Container {
        name: "wait".to_owned(),
        ..Container::default()
    };
    edit(&mut container);
    let launcher = job.roles.get_mut(&Role::Launcher).unwrap();
    let spec = launcher.template.spec.as_mut().unwrap();
    spec.init_containers = Some(vec![container]);
    job
}

fn mounting(volume: &str) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: "/mnt".to_owned(),
        ..VolumeMount::default()
    }
}

/// Whatever a container may mount without stating it is there when the pod is made the old way.
#[test]
fn the_volumes_that_pods_are_given_are_in_them() {
    for kind in [Kind::MpiV1, Kind::MpiV2] {
        let job = mpi(kind).done();
        for role in [Role::Launcher, Role::Worker] {
            let spec = match pod(&job, Slot::new(role, 0), 1, &Cluster::default()).unwrap() {
                LaunchedPod::Pod(pod) => pod.spec,
                LaunchedPod::Job(job) => job.spec.unwrap().template.spec,
            };
            let volumes = spec.unwrap().volumes.unwrap_or_default();
            let mut names: Vec<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
            let mut given = given_volumes(kind, role).to_vec();
            names.sort_unstable();
            given.sort_unstable();
            assert_eq!(names, given, "{kind:?} {role}");
        }
    }
}

#[test]
fn the_agent_unless_the_job_says_or_needs_otherwise() {
    use Kind::{MpiV1, MpiV2, PyTorch};
    use MpiTransport::{Agent, Kubectl, Ssh};
    use Role::{Launcher, Worker};
    let cases = [
        ("v1", mpi(MpiV1).done(), Ok(Some(Kubectl)), Ok(Some(Agent))),
        ("v2", mpi(MpiV2).done(), Ok(Some(Ssh)), Ok(Some(Agent))),
        (
            "v1 that says kubectl",
            stating(MpiV1, Kubectl),
            Ok(Some(Kubectl)),
            Ok(Some(Kubectl)),
        ),
        (
            "v2 that says ssh",
            stating(MpiV2, Ssh),
            Ok(Some(Ssh)),
            Ok(Some(Ssh)),
        ),
        (
            "v2 that says agent",
            stating(MpiV2, Agent),
            Err(LaunchError::NoAgentImage),
            Ok(Some(Agent)),
        ),
        (
            "a worker that is sshd",
            running(MpiV2, Worker, &["/usr/sbin/sshd", "-De"]),
            Ok(Some(Ssh)),
            Ok(Some(Agent)),
        ),
        (
            "a worker that starts sshd in a script",
            running(MpiV2, Worker, &["sh", "-c", "service ssh start; sleep 1d"]),
            Ok(Some(Ssh)),
            Ok(Some(Ssh)),
        ),
        (
            "a launcher with words for ssh",
            running(
                MpiV2,
                Launcher,
                &["mpirun", "--mca", "plm_rsh_args", "-p 22"],
            ),
            Ok(Some(Ssh)),
            Ok(Some(Ssh)),
        ),
        (
            "an init container that calls ssh",
            before_launcher(MpiV2, |container| {
                container.command = Some(vec!["ssh".to_owned(), "j-worker-0".to_owned()]);
            }),
            Ok(Some(Ssh)),
            Ok(Some(Ssh)),
        ),
        (
            "an init container that mounts the keys",
            before_launcher(MpiV2, |container| {
                container.volume_mounts = Some(vec![mounting("ssh-auth")]);
            }),
            Ok(Some(Ssh)),
            Ok(Some(Ssh)),
        ),
        (
            "an init container that mounts the hostfile",
            before_launcher(MpiV2, |container| {
                container.volume_mounts = Some(vec![mounting("mpi-job-config")]);
            }),
            Ok(Some(Ssh)),
            Ok(Some(Agent)),
        ),
        (
            "a launcher that calls kubectl",
            running(MpiV1, Launcher, &["sh", "-c", "kubectl get pods; mpirun x"]),
            Ok(Some(Kubectl)),
            Ok(Some(Kubectl)),
        ),
        (
            "a launcher that calls the script",
            running(MpiV1, Launcher, &["run", "/etc/mpi/kubexec.sh"]),
            Ok(Some(Kubectl)),
            Ok(Some(Agent)),
        ),
        (
            "no MPIJob",
            job(PyTorch).role(Worker, 1).done(),
            Ok(None),
            Ok(None),
        ),
    ];
    for (name, job, without, with) in cases {
        assert_eq!(transport(&job, &Cluster::default()), without, "{name}");
        assert_eq!(transport(&job, &cluster()), with, "{name}, with an image");
    }
}

#[test]
fn without_an_image_nothing_of_the_agent_is_there() {
    for kind in [Kind::MpiV1, Kind::MpiV2] {
        let job = mpi(kind).done();
        let env = env_of(&pod_of(&job, Slot::new(Role::Worker, 0)), 0);
        assert!(
            !env.iter().any(|line| line.contains("TRAINYARD")),
            "{env:?}"
        );
    }
    let job = stating(Kind::MpiV1, MpiTransport::Agent);
    let slot = Slot::new(Role::Worker, 0);
    let error = pod(&job, slot, 1, &Cluster::default()).unwrap_err();
    assert!(error.to_string().contains("`--agent-image`"), "{error}");
}

#[test]
fn pods_read_attempt_from_their_label() {
    for kind in [Kind::MpiV1, Kind::MpiV2] {
        let job = mpi(kind).done();
        for slot in [Slot::new(Role::Launcher, 0), Slot::new(Role::Worker, 1)] {
            let (labels, spec) = match pod(&job, slot, 7, &cluster()).unwrap() {
                LaunchedPod::Pod(pod) => (pod.metadata.labels, pod.spec),
                LaunchedPod::Job(job) => {
                    let template = job.spec.unwrap().template;
                    (template.metadata.unwrap().labels, template.spec)
                }
            };
            assert_eq!(labels.unwrap()["trainyard.dev/attempt"], "7");
            let env = spec.unwrap().containers[0].env.clone().unwrap();
            let attempt = env.iter().find(|one| one.name == "TRAINYARD_ATTEMPT");
            let source = attempt.unwrap().value_from.clone().unwrap();
            let path = source.field_ref.unwrap().field_path;
            assert_eq!(path, "metadata.labels['trainyard.dev/attempt']", "{slot}");
        }
    }
}

#[test]
fn each_job_has_its_own_secret() {
    let identity = AgentIdentity {
        authority: "authority".to_owned(),
        certificate: "certificate".to_owned(),
        key: "hidden".to_owned(),
    };
    assert!(!format!("{identity:?}").contains("hidden"), "{identity:?}");
    let keys = Keys::Agent(identity);
    for kind in [Kind::MpiV1, Kind::MpiV2] {
        let job = mpi(kind).uid().done();
        let inputs = crate::job::SharedInputs {
            replicas: job.replicas(),
            running_workers: (0..2).collect(),
        };
        let names = |keys| -> Vec<String> {
            let objects = shared(&job, &inputs, keys, &cluster()).unwrap();
            let kind = |object: &Object| object.to_value()["kind"].as_str().unwrap().to_owned();
            objects
                .iter()
                .map(|object| format!("{} {}", kind(object), object.name()))
                .collect()
        };
        assert_eq!(
            names(Some(&keys)),
            ["Service j", "ConfigMap j-config", "Secret j-agent-5c1a7f0e"]
        );
        assert_eq!(names(None), ["Service j", "ConfigMap j-config"]);
    }
}
