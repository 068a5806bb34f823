//! Pods with a supervisor, and jobs that get none.

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, Pod, PodOS, PodSpec, Probe, Volume, VolumeMount,
};
use serde_json::{Value, json};

use super::{
    build::{Build, bounds, job},
    env_of, golden,
};
use crate::{
    job::SharedInputs,
    launch::{
        AgentIdentity, Cluster, Keys, LaunchedPod, NetworkPolicyMode, Object, Plan, agent, shared,
        supervise::{
            GangServer, SuperviseSettings, SupervisedRanks, WORDS, audience, audience_job,
            leading_slot, obstacle,
        },
    },
    spec::{Compat, Framework, Job, Kind, OnNan, RestartScope, Role, Slot, Supervise, annotation},
};

const PEM: &str = "-----BEGIN CERTIFICATE-----\n";
const MASTER: Slot = Slot {
    role: Role::Master,
    index: 0,
};

fn cluster() -> Cluster {
    Cluster {
        agent_image: Some("trainyard:1".to_owned()),
        gang: Some(GangServer {
            address: "trainyard.trainyard-system.svc:10444".to_owned(),
            server_name: "trainyard.trainyard-system.svc".to_owned(),
            authority: Some(PEM.to_owned()),
        }),
        ..Cluster::default()
    }
}

fn commanded(build: Build, role: Role) -> Build {
    build.container(role, |container| {
        container.command = Some(vec!["python".to_owned()]);
        container.args = Some(vec!["train.py".to_owned(), "$(LR)".to_owned()]);
    })
}

fn gang() -> Build {
    let build = job(Kind::PyTorch)
        .uid()
        .role(Role::Master, 1)
        .role(Role::Worker, 2);
    commanded(commanded(build, Role::Master), Role::Worker)
}

fn pod(job: &Job, slot: Slot, waits: bool) -> Pod {
    let cluster = cluster();
    let plan = Plan::new(job, &cluster).unwrap();
    let pod = if waits {
        plan.waiting_pod(slot, 3)
    } else {
        plan.pod(slot, 3)
    };
    match pod.unwrap() {
        LaunchedPod::Pod(pod) => *pod,
        LaunchedPod::Job(job) => panic!("a batch Job: {job:?}"),
    }
}

fn settings(pod: &Pod) -> SuperviseSettings {
    let variables = env_of(pod, 0);
    let mut texts = variables
        .iter()
        .filter_map(|line| line.strip_prefix("TRAINYARD_SUPERVISE="));
    serde_json::from_str(texts.next().unwrap()).unwrap()
}

#[test]
fn leader_and_member_pods() {
    let job = gang().done();
    assert_eq!(obstacle(&job, &cluster()), None);
    assert_eq!(leading_slot(&job), Some(MASTER));
    for (slot, leads) in [(MASTER, true), (Slot::new(Role::Worker, 1), false)] {
        let pod = pod(&job, slot, false);
        let value = serde_json::to_value(&pod).unwrap();
        let container = &value["spec"]["containers"][0];
        assert_eq!(
            container["command"],
            json!(["/opt/trainyard/trainyard", "supervise"])
        );
        assert_eq!(
            container["args"],
            json!(["--", "python", "train.py", "$(LR)"])
        );
        assert_eq!(
            value["spec"]["initContainers"][0]["name"],
            "trainyard-agent"
        );
        let names = |list: &Value| {
            let items = list.as_array().unwrap().iter();
            items
                .map(|item| item["name"].as_str().unwrap().to_owned())
                .collect::<Vec<String>>()
        };
        let mut want = vec![
            "trainyard-agent",
            "trainyard-agent-identity",
            "trainyard-run",
        ];
        want.extend(leads.then_some("trainyard-gang"));
        assert_eq!(names(&value["spec"]["volumes"]), want, "{slot}");
        assert_eq!(names(&container["volumeMounts"]), want, "{slot}");
        let env = env_of(&pod, 0);
        for line in [
            "TRAINYARD_BEAT=/run/trainyard/beat",
            "TRAINYARD_POD_UID<-metadata.uid",
            "TRAINYARD_ATTEMPT<-metadata.labels['trainyard.dev/attempt']",
        ] {
            assert!(env.iter().any(|known| known == line), "{line}: {env:?}");
        }
        let settings = settings(&pod);
        assert_eq!(settings.slot, slot);
        assert_eq!(settings.leader, "j-master-0.n.svc:28023");
        assert!(settings.exits_on_success && !settings.waits);
        assert_eq!(settings.network, !leads);
        assert_eq!(settings.evidence.as_deref(), Some("/run/trainyard"));
        let rank = if leads { 0 } else { 2 };
        let ranks = SupervisedRanks {
            first: rank,
            count: 1,
            all: 3,
        };
        assert_eq!(settings.ranks, ranks);
        let authority = &value["metadata"]["annotations"][annotation::GANG_CA];
        assert_eq!(authority.as_str(), leads.then_some(PEM));
        let operator = settings.operator.map(|operator| operator.token);
        let token = "/var/run/secrets/trainyard/gang/token".to_owned();
        assert_eq!(operator, leads.then_some(token));
        if leads {
            let sources = &value["spec"]["volumes"][3]["projected"]["sources"];
            let audience = &sources[0]["serviceAccountToken"]["audience"];
            assert_eq!(audience, "trainyard.dev/gangs/n/pytorchjob/j");
        }
    }
}

#[test]
fn replaced_pods_wait() {
    let job = gang().done();
    let pod = pod(&job, Slot::new(Role::Worker, 0), true);
    assert!(settings(&pod).waits);
}

#[test]
fn nothing_changes_without_a_server() {
    let off = Cluster {
        gang: None,
        ..cluster()
    };
    for (name, job) in golden::cases() {
        if obstacle(&job, &cluster()).is_none() {
            continue;
        }
        let [with, without] = [&cluster(), &off].map(|cluster| {
            let plan = Plan::new(&job, cluster).unwrap();
            plan.objects()
                .map(|object| object.to_value())
                .collect::<Vec<Value>>()
        });
        assert_eq!(with, without, "{name}");
    }
    let job = gang().done();
    let plan = Plan::new(&job, &off).unwrap();
    assert_eq!(plan.pod(MASTER, 1), plan.waiting_pod(MASTER, 1));
}

#[test]
fn shared_objects_of_a_gang() {
    let job = gang().done();
    let identity = || AgentIdentity {
        authority: "a".to_owned(),
        certificate: "c".to_owned(),
        key: "k".to_owned(),
    };
    let cluster = Cluster {
        network_policy: NetworkPolicyMode::Ports,
        ..cluster()
    };
    let made = |cluster: &Cluster| {
        let keys = Keys::Agent(identity());
        shared(&job, &SharedInputs::default(), Some(&keys), cluster).unwrap()
    };
    let objects = made(&cluster);
    let [Object::Secret(secret), Object::NetworkPolicy(policy)] = &objects[..] else {
        panic!("{objects:?}");
    };
    let volumes = pod(&job, MASTER, false).spec.unwrap().volumes.unwrap();
    let mounted = volumes[1].secret.as_ref().unwrap().secret_name.clone();
    assert_eq!(secret.metadata.name, mounted);
    assert_eq!(policy.metadata.name.as_deref(), Some("j-gang"));
    let closed = serde_json::to_value(policy).unwrap();
    let ports = &closed["spec"]["ingress"][1]["ports"];
    assert_eq!(ports[0]["endPort"], 28_022);
    assert_eq!(ports[1]["port"], 28_024);
    let off = Cluster {
        gang: None,
        ..cluster
    };
    assert_eq!(made(&off), []);
}

#[test]
fn obstacles() {
    type Change = fn(&mut Job, &mut Cluster);
    type ChangeContainer = fn(&mut Container);
    let cases: [(&str, Change); 12] = [
        ("`--gang-bind` is not set", |_, cluster| cluster.gang = None),
        ("`--agent-image` is not set", |_, cluster| {
            cluster.agent_image = None;
        }),
        ("no certificate for leaders", |_, cluster| {
            cluster.gang.as_mut().unwrap().authority = None;
        }),
        ("`trainyard.dev/supervise` is `off`", |job, _| {
            job.settings.supervise = Supervise::Off;
        }),
        ("`trainyard.dev/compat` is set", |job, _| {
            job.settings.compat.insert(Compat::IgnoreVerdicts);
        }),
        ("restart alone", |job, _| {
            job.settings.restart_scope = Some(RestartScope::Pod);
        }),
        ("the job is elastic", |job, _| {
            job.settings.restart_scope = Some(RestartScope::Gang);
            if let Framework::PyTorch(own) = &mut job.framework {
                own.elastic = Some(bounds(1, 3));
            }
        }),
        ("the shared memory of its node (`hostIPC`)", |job, _| {
            change(job, Role::Worker, |spec| spec.host_ipc = Some(true));
        }),
        ("the job has no uid", |job, _| job.uid = None),
        ("16384 is the most", |job, _| {
            job.roles.get_mut(&Role::Worker).unwrap().replicas = 16_384;
        }),
        ("the template of Worker is for Windows", |job, _| {
            change(job, Role::Worker, |spec| {
                spec.os = Some(PodOS {
                    name: "windows".to_owned(),
                });
            });
        }),
        (
            "the template of Master uses the network of its node",
            |job, _| {
                change(job, Role::Master, |spec| spec.host_network = Some(true));
            },
        ),
    ];
    for (words, change) in cases {
        let (mut job, mut cluster) = (gang().done(), cluster());
        change(&mut job, &mut cluster);
        let why = obstacle(&job, &cluster).unwrap_or_default();
        assert!(why.contains(words), "{words}: {why}");
    }
    let containers: [(&str, ChangeContainer); 6] = [
        ("has no `command` in container `pytorch`", |container| {
            container.command = None;
        }),
        (
            "has a `livenessProbe` in container `pytorch`",
            |container| {
                container.liveness_probe = Some(Probe::default());
            },
        ),
        ("has a `startupProbe` in container `pytorch`", |container| {
            container.startup_probe = Some(Probe::default());
        }),
        (
            "mounts volume `shm`, which is no `emptyDir`, at `/dev/shm`",
            |container| container.volume_mounts = Some(vec![shared_memory()]),
        ),
        ("sets `stdin` or `tty`", |container| {
            container.tty = Some(true);
        }),
        (
            "mounts a volume of its own at `/opt/trainyard/`",
            |container| {
                container.volume_mounts = Some(vec![VolumeMount {
                    mount_path: "/opt/trainyard/".to_owned(),
                    ..VolumeMount::default()
                }]);
            },
        ),
    ];
    for (words, change) in containers {
        let job = gang().container(Role::Worker, change).done();
        let why = obstacle(&job, &cluster()).unwrap_or_default();
        assert!(why.contains(words), "{words}: {why}");
    }
    let mpi = job(Kind::MpiV1).uid().role(Role::Launcher, 1).done();
    let why = obstacle(&mpi, &cluster()).unwrap_or_default();
    assert_eq!(why, "an MPIJob has no supervisors");
    let mut own = gang().done();
    change(&mut own, Role::Worker, |spec| {
        spec.volumes = Some(vec![Volume {
            name: "trainyard-agent".to_owned(),
            ..Volume::default()
        }]);
    });
    let why = obstacle(&own, &cluster()).unwrap_or_default();
    assert_eq!(
        why,
        "the template of Worker has a volume `trainyard-agent` of its own"
    );
}

/// The leader watches as the annotations say. The default of `on-nan` is not written, so that pods of earlier versions stay equal.
#[test]
fn pods_carry_on_nan() {
    for on_nan in OnNan::ALL {
        let mut job = gang().done();
        job.settings.on_nan = on_nan;
        let pod = pod(&job, MASTER, false);
        assert_eq!(settings(&pod).watch.on_nan, on_nan);
        let text = env_of(&pod, 0).join("\n");
        assert_eq!(text.contains("onNan"), on_nan != OnNan::Report, "{text}");
    }
}

fn change(job: &mut Job, role: Role, change: fn(&mut PodSpec)) {
    let template = &mut job.roles.get_mut(&role).unwrap().template;
    change(template.spec.get_or_insert_default());
}

fn shared_memory() -> VolumeMount {
    VolumeMount {
        name: "shm".to_owned(),
        mount_path: "/dev/shm".to_owned(),
        ..VolumeMount::default()
    }
}

#[test]
fn shared_memory_of_the_pod_itself_is_no_obstacle() {
    let mut own = gang()
        .container(Role::Worker, |container| {
            container.volume_mounts = Some(vec![shared_memory()]);
        })
        .done();
    assert!(obstacle(&own, &cluster()).is_some(), "an unknown volume");
    change(&mut own, Role::Worker, |spec| {
        spec.volumes = Some(vec![Volume {
            name: "shm".to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        }]);
    });
    assert_eq!(obstacle(&own, &cluster()), None);
}

#[test]
fn audiences_are_read_as_they_are_made() {
    for kind in [
        Kind::PyTorch,
        Kind::Tf,
        Kind::Jax,
        Kind::XgBoost,
        Kind::Paddle,
    ] {
        let made = audience("team-a", kind.name(), "llama");
        assert_eq!(audience_job(&made), Some(("team-a", kind, "llama")));
    }
    for bad in [
        "",
        "trainyard.dev/gangs/n/pytorchjob/",
        "trainyard.dev/gangs/n/pytorchjob/a/b",
        "trainyard.dev/gangs/n/job/a",
        "x/n/pytorchjob/a",
    ] {
        assert_eq!(audience_job(bad), None, "{bad}");
    }
}

#[test]
fn supervisor_is_the_program_of_the_agent_volume() {
    let program = format!("{}/{}", agent::FOLDER, agent::PROGRAM);
    assert_eq!(WORDS, [program.as_str(), "supervise"]);
}
