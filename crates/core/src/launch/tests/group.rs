//! The objects that describe gangs to other schedulers.

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use serde_json::{Value, json};

use super::{
    super::{Cluster, GangScheduler, Group, NativeApi, Object, Plan},
    build::{Build, bounds, job},
    label_of, pod_of,
};
use crate::spec::{Compat, GangBy, Job, Kind, LauncherCreation, Role, SchedulingPolicy, Slot};

fn resources(requests: &Value, limits: &Value) -> ResourceRequirements {
    serde_json::from_value(json!({"requests": requests, "limits": limits})).unwrap()
}

/// A role of pods with a CPU and eight GPUs, these only as a limit.
fn devices(build: Build, role: Role, replicas: u32) -> Build {
    build.role(role, replicas).container(role, |container| {
        container.resources = Some(resources(
            &json!({"cpu": "1"}),
            &json!({"nvidia.com/gpu": "8"}),
        ));
    })
}

fn group(job: &Job, cluster: &Cluster) -> Group {
    let plan = Plan::new(job, cluster).unwrap();
    plan.group().expect("another scheduler starts the gang")
}

fn policy(edit: impl FnOnce(&mut SchedulingPolicy)) -> SchedulingPolicy {
    let mut policy = SchedulingPolicy::default();
    edit(&mut policy);
    policy
}

/// `minMember` and `minResources` of every way to count a gang.
#[test]
fn a_gang_is_counted_as_it_is_started() {
    let pytorch = || {
        devices(
            devices(job(Kind::PyTorch), Role::Master, 1),
            Role::Worker,
            3,
        )
    };
    let mpi = |kind| devices(job(kind).role(Role::Launcher, 1), Role::Worker, 2);
    let launcher = |build: Build| {
        build.container(Role::Launcher, |container| {
            container.resources = Some(resources(
                &json!({"cpu": "500m", "memory": "1Gi"}),
                &json!({}),
            ));
        })
    };
    let four = json!({"cpu": "4", "nvidia.com/gpu": "32"});
    let ranks = json!({"cpu": "2500m", "memory": "1Gi", "nvidia.com/gpu": "16"});
    // The init container that brings `kubectl` asks for room on the disk.
    let ranks_v1 = json!({"cpu": "2500m", "ephemeral-storage": "5Gi", "memory": "1Gi",
        "nvidia.com/gpu": "16"});
    let mut cases = vec![
        ("every pod", pytorch(), 4, four.clone()),
        (
            "the elastic minimum",
            pytorch().elastic(bounds(1, 4)),
            2,
            json!({"cpu": "2", "nvidia.com/gpu": "16"}),
        ),
        (
            "as stated",
            pytorch().run_policy(|own| {
                own.scheduling = Some(policy(|policy| policy.min_available = Some(3)));
            }),
            3,
            json!({"cpu": "3", "nvidia.com/gpu": "24"}),
        ),
        (
            "never more than there are",
            pytorch().run_policy(|own| {
                own.scheduling = Some(policy(|policy| policy.min_available = Some(9)));
            }),
            4,
            four,
        ),
        (
            "what it needs is stated",
            pytorch().run_policy(|own| {
                let stated = json!({"cpu": "7"});
                let stated = serde_json::from_value(stated).unwrap();
                own.scheduling = Some(policy(|policy| policy.min_resources = Some(stated)));
            }),
            4,
            json!({"cpu": "7"}),
        ),
        (
            "an init container that needs more",
            devices(job(Kind::Jax), Role::Worker, 2).pod(Role::Worker, |spec| {
                spec.init_containers = Some(vec![Container {
                    name: "fetch".to_owned(),
                    resources: Some(resources(&json!({"memory": "3Mi", "cpu": "2"}), &json!({}))),
                    ..Container::default()
                }]);
                spec.host_network = Some(true);
            }),
            2,
            json!({"cpu": "4", "memory": "6Mi", "nvidia.com/gpu": "16"}),
        ),
        (
            "nothing asked for",
            job(Kind::XgBoost).role(Role::Master, 1),
            1,
            Value::Null,
        ),
    ];
    cases.extend([
        (
            "a launcher that waits for its workers",
            launcher(mpi(Kind::MpiV1)),
            2,
            ranks_v1.clone(),
        ),
        (
            "a launcher that does not",
            launcher(mpi(Kind::MpiV1)).compat(Compat::LauncherEarly),
            3,
            ranks_v1,
        ),
        (
            "a launcher of v2beta1",
            launcher(mpi(Kind::MpiV2)),
            3,
            ranks.clone(),
        ),
        (
            "a launcher of v2beta1 that waits",
            launcher(mpi(Kind::MpiV2)).mpi_v2(|own| {
                own.launcher_creation = LauncherCreation::WaitForWorkersReady;
            }),
            2,
            ranks,
        ),
        (
            "a launcher and some workers",
            launcher(mpi(Kind::MpiV2)).run_policy(|own| {
                own.scheduling = Some(policy(|policy| policy.min_available = Some(2)));
            }),
            2,
            json!({"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "8"}),
        ),
    ]);
    for (name, build, members, needs) in cases {
        for by in [GangBy::Volcano, GangBy::Coscheduling] {
            let mut job = build.clone().done();
            job.settings.gang = Some(by);
            let group = group(&job, &Cluster::default());
            assert_eq!(group.spec["minMember"], members, "{name}");
            let found = group.spec.get("minResources").cloned().unwrap_or_default();
            assert_eq!(found, needs, "{name}");
        }
    }
}

#[test]
fn each_scheduler_gets_its_own_fields() {
    let stated = |build: Build| {
        build.run_policy(|own| {
            own.scheduling = Some(policy(|policy| {
                policy.queue = Some("research".to_owned());
                policy.priority_class = Some("high".to_owned());
                policy.schedule_timeout_seconds = Some(90);
            }));
        })
    };
    let jax = || job(Kind::Jax).role(Role::Worker, 1);
    let mpi = || {
        job(Kind::MpiV2)
            .role(Role::Launcher, 1)
            .role(Role::Worker, 1)
            .pod(Role::Worker, |spec| {
                spec.priority_class_name = Some("low".to_owned());
            })
    };
    let mut queued = mpi().done();
    queued.annotations.insert(
        "scheduling.volcano.sh/queue-name".to_owned(),
        "nightly".to_owned(),
    );
    let cases = [
        (
            "Volcano",
            stated(jax()).done(),
            GangBy::Volcano,
            json!({"minMember": 1, "queue": "research", "priorityClassName": "high"}),
        ),
        (
            "Volcano, nothing stated",
            jax().done(),
            GangBy::Volcano,
            json!({"minMember": 1, "queue": "default"}),
        ),
        (
            "Volcano, v2beta1",
            queued,
            GangBy::Volcano,
            json!({"minMember": 2, "queue": "nightly", "priorityClassName": "low"}),
        ),
        (
            "coscheduling",
            stated(jax()).done(),
            GangBy::Coscheduling,
            json!({"minMember": 1, "scheduleTimeoutSeconds": 90}),
        ),
    ];
    for (name, mut job, by, want) in cases {
        job.settings.gang = Some(by);
        assert_eq!(group(&job, &Cluster::default()).spec, want, "{name}");
    }
}

#[test]
fn a_group_is_the_jobs_and_carries_its_annotations() {
    let mut job = job(Kind::Jax).role(Role::Worker, 1).uid().done();
    for key in [
        "scheduling.volcano.sh/group-min-member",
        "trainyard.dev/gang",
        "kubectl.kubernetes.io/last-applied-configuration",
    ] {
        job.annotations.insert(key.to_owned(), "x".to_owned());
    }
    job.settings.gang = Some(GangBy::Volcano);
    let value = Object::Group(Box::new(group(&job, &Cluster::default()))).to_value();
    assert_eq!(value["apiVersion"], "scheduling.volcano.sh/v1beta1");
    assert_eq!(value["metadata"]["name"], "j");
    assert_eq!(value["metadata"]["ownerReferences"][0]["kind"], "JAXJob");
    let annotations = json!({"scheduling.volcano.sh/group-min-member": "x", "team": "vision"});
    assert_eq!(value["metadata"]["annotations"], annotations);
}

#[test]
fn who_starts_a_gang() {
    let plugin = |name: &str| Some(GangScheduler::Coscheduling(name.to_owned()));
    let volcano = || Some(GangScheduler::Volcano);
    for (name, want) in [
        ("", None),
        ("None", None),
        ("none", None),
        ("volcano", volcano()),
        ("Volcano", volcano()),
        ("native", Some(GangScheduler::Native(NativeApi::Workload))),
        ("default-scheduler", plugin("default-scheduler")),
    ] {
        assert_eq!(GangScheduler::named(name), want, "`{name}`");
    }
    let standard = plugin(GangScheduler::COSCHEDULING);
    let cases = [
        ("nobody says", None, None, None),
        ("the cluster says", None, volcano(), volcano()),
        ("the job says on", Some(GangBy::Seats), volcano(), None),
        ("the job says off", Some(GangBy::Nobody), volcano(), None),
        (
            "the job says another",
            Some(GangBy::Volcano),
            plugin("own"),
            volcano(),
        ),
        (
            "the job says the plugin",
            Some(GangBy::Coscheduling),
            volcano(),
            standard,
        ),
        (
            "the cluster names it",
            Some(GangBy::Coscheduling),
            plugin("own"),
            plugin("own"),
        ),
    ];
    for (name, by, gang_scheduler, want) in cases {
        let mut job = job(Kind::Jax).role(Role::Worker, 1).done();
        job.settings.gang = by;
        let cluster = Cluster {
            gang_scheduler,
            ..Cluster::default()
        };
        assert_eq!(GangScheduler::of(&job, &cluster), want, "{name}");
    }
}

#[test]
fn a_pod_is_led_to_its_scheduler() {
    let worker = Slot::new(Role::Worker, 0);
    let mut own = job(Kind::Jax).role(Role::Worker, 1).done();
    own.settings.gang = Some(GangBy::Coscheduling);
    let pod = pod_of(&own, worker);
    assert_eq!(label_of(&pod, "scheduling.x-k8s.io/pod-group"), Some("j"));
    let scheduler = |pod: &k8s_openapi::api::core::v1::Pod| {
        let spec = pod.spec.as_ref().unwrap();
        spec.scheduler_name.clone()
    };
    assert_eq!(
        scheduler(&pod).as_deref(),
        Some("scheduler-plugins-scheduler")
    );
    let named = job(Kind::Jax)
        .role(Role::Worker, 1)
        .pod(Role::Worker, |spec| {
            spec.scheduler_name = Some("mine".to_owned());
        });
    let mut named = named.done();
    named.settings.gang = Some(GangBy::Volcano);
    let pod = pod_of(&named, worker);
    assert_eq!(scheduler(&pod).as_deref(), Some("mine"));
    let annotations = pod.metadata.annotations.unwrap();
    assert_eq!(annotations["scheduling.k8s.io/group-name"], "j");
    assert_eq!(annotations["volcano.sh/task-spec"], "worker");
}

#[test]
fn kubernetes_own_api_knows_a_gang_by_its_workload() {
    let mut mpi = job(Kind::MpiV2)
        .role(Role::Launcher, 1)
        .role(Role::Worker, 2)
        .done();
    mpi.settings.gang = Some(GangBy::Native);
    let cluster = Cluster::default();
    let plan = Plan::new(&mpi, &cluster).unwrap();
    let group = plan.group().expect("it has a group");
    let want = json!({
        "controllerRef": {"apiGroup": "kubeflow.org", "kind": "MPIJob", "name": "j"},
        "podGroups": [{"name": "gang", "policy": {"gang": {"minCount": 3}}}],
    });
    assert_eq!(group.spec, want);
    let reference = json!({"name": "j", "podGroup": "gang"});
    for object in plan.objects() {
        let value = plan.written(&object);
        let spec = match value["kind"].as_str() {
            Some("Pod") => &value["spec"],
            Some("Job") => &value["spec"]["template"]["spec"],
            _ => {
                assert_eq!(value, object.to_value());
                continue;
            }
        };
        assert_eq!(spec["workloadRef"], reference, "{}", object.name());
        assert!(spec.get("schedulerName").is_none(), "{}", object.name());
    }
}

#[test]
fn native_gangs_in_every_api_version() {
    let cases = [
        (
            vec!["v1", "v1alpha1"],
            "Workload",
            "podGroups",
            json!({"workloadRef": {"name": "j", "podGroup": "gang"}}),
        ),
        (
            vec!["v1", "v1alpha2"],
            "PodGroup",
            "schedulingPolicy",
            json!({"schedulingGroup": {"podGroupName": "j"}}),
        ),
        (
            vec!["v1alpha3", "v1", "v1alpha2"],
            "PodGroup",
            "schedulingPolicy",
            json!({"schedulingGroup": {"podGroupName": "j"}}),
        ),
    ];
    for (served, kind, field, refers) in cases {
        let cluster = Cluster {
            native: NativeApi::newest(served.iter().copied()),
            ..Cluster::default()
        };
        let mut own = job(Kind::Jax).role(Role::Worker, 3).done();
        own.settings.gang = Some(GangBy::Native);
        let group = group(&own, &cluster);
        let value = Object::Group(Box::new(group)).to_value();
        assert_eq!(value["kind"], kind, "{served:?}");
        assert!(value["spec"].get(field).is_some(), "{served:?}: {value:#}");
        let mut pod = json!({"kind": "Pod", "spec": {}});
        GangScheduler::of(&own, &cluster)
            .unwrap()
            .refer(&own, &mut pod);
        assert_eq!(pod["spec"], refers, "{served:?}");
    }
    assert_eq!(
        NativeApi::newest(["v1"]),
        NativeApi::Workload,
        "which is then said not to be served"
    );
}
