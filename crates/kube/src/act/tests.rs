//! Names that somebody else has: never changed, owned or deleted, and said on the job; with the real operator against
//! a scripted API server.

use serde_json::{Value, json};
use trainyard_core::{
    launch::{Account, GangScheduler, NetworkPolicyMode},
    spec::Kind,
};

use crate::{
    Options,
    scripted::{
        Server, Verb, job, job_name, options, pod_name, running,
        world::{Name, World, text},
    },
};

const CONFIG_MAPS: &str = "/api/v1/configmaps";
const SERVICES: &str = "/api/v1/services";
const AUTOSCALERS: &str = "/apis/autoscaling/v2/horizontalpodautoscalers";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/roles";
const POD_GROUPS: &str = "/apis/scheduling.volcano.sh/v1beta1/podgroups";
const POLICIES: &str = "/apis/networking.k8s.io/v1/networkpolicies";

fn object(resource: &str, name: &str) -> Name {
    (resource.to_owned(), "n".to_owned(), name.to_owned())
}

/// Adds an object of a user, and returns it as it is stored.
fn add(server: &Server, resource: &str, name: &str, body: Value) -> Value {
    let (group, plural) = resource.rsplit_once('/').unwrap();
    let mut body = body;
    body["metadata"]["name"] = name.into();
    server.add(&format!("{group}/namespaces/n/{plural}"), body)
}

fn by_agent() -> Options {
    let mut options = options();
    options.cluster.agent_image = Some("trainyard:1".to_owned());
    options
}

/// An elastic job with an autoscaler.
fn elastic(name: &str) -> Value {
    let mut job = job(Kind::PyTorch, name, 2);
    job["spec"]["elasticPolicy"] = json!({"minReplicas": 1, "maxReplicas": 4, "metrics": [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
    ]});
    job
}

fn deployment() -> Value {
    json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
        "uid": "u-web", "controller": true}]}})
}

/// What the job waits for, in words.
fn waits<'a>(world: &'a World, job: &Name) -> &'a str {
    let job = world.objects.get(job);
    job.map_or("", |job| text(job, "/status/trainyard/waiting/message"))
}

fn owner(world: &World, name: &Name) -> String {
    let object = world.objects.get(name);
    object.map_or_else(String::new, |object| {
        text(object, "/metadata/ownerReferences/0/name").to_owned()
    })
}

fn remove(server: &Server, name: &Name) {
    server.with(|world| world.remove(name, &json!({}))).unwrap();
}

/// Nobody but its user has touched `theirs`.
fn assert_untouched(server: &Server, what: &str, name: &Name, theirs: &Value) {
    server.see(|world| {
        let there = world.objects.get(name).map(|there| Value::clone(there));
        assert_eq!(there.as_ref(), Some(theirs), "{what}");
        let path = format!("/{}", name.2);
        for verb in [Verb::Patch, Verb::Update, Verb::Delete] {
            let plural = name.0.rsplit('/').next().unwrap();
            let mut calls = world.calls.iter();
            let touched = calls.find(|call| {
                call.verb == verb && call.path.contains(plural) && call.path.ends_with(&path)
            });
            assert!(touched.is_none(), "{what}: {touched:?}");
        }
    });
}

#[tokio::test(start_paused = true)]
async fn names_of_others_are_left_alone() {
    let cases = [
        (
            "a ConfigMap",
            job(Kind::MpiV2, "bert", 2),
            CONFIG_MAPS,
            "bert-config",
            json!({"data": {"hparams.yaml": "x"}}),
            3,
            "cannot create ConfigMap `bert-config`: it exists and belongs to no job; rename the job, or delete this ConfigMap if it is not needed",
        ),
        (
            "a Service",
            job(Kind::MpiV2, "bert", 2),
            SERVICES,
            "bert",
            json!({"spec": {"selector": {"app": "web"}}}),
            3,
            "cannot create Service `bert`: it exists and belongs to no job; rename",
        ),
        (
            "a Service of a rank",
            job(Kind::PyTorch, "bert", 2),
            SERVICES,
            "bert-worker-1",
            deployment(),
            2,
            "cannot create Service `bert-worker-1`: it exists and belongs to Deployment `web`; rename",
        ),
        (
            "a Role",
            job(Kind::MpiV1, "bert", 2),
            ROLES,
            "bert-launcher",
            deployment(),
            3,
            "cannot create Role `bert-launcher`: it exists and belongs to Deployment `web`; rename",
        ),
    ];
    for (what, job, resource, name, body, pods, sentence) in cases {
        let server = Server::new();
        let theirs = add(&server, resource, name, body);
        let name = object(resource, name);
        let operator = server.operator(options());
        let kind = Kind::find(text(&job, "/apiVersion"), text(&job, "/kind")).unwrap();
        let key = job_name(kind, "bert");
        server.add_job(job);
        server
            .wait(what, |world| waits(world, &key).starts_with(sentence))
            .await;
        server.see(|world| {
            assert_eq!(world.pods().count(), 0, "{what}: no pod starts without it");
            let events: Vec<_> = world.asked(Verb::Create, "/events").collect();
            let said = events
                .iter()
                .any(|call| text(&call.body, "/message").starts_with(sentence));
            assert!(said, "{what}: {events:?}");
        });
        let metrics = operator.operator.metrics().text();
        assert!(
            metrics.contains("trainyard_refusals_total{cause=\"name_taken\"}"),
            "{what}: {metrics}"
        );
        assert_untouched(&server, what, &name, &theirs);
        remove(&server, &name);
        server.wait(what, |world| running(world) == pods).await;
        server.see(|world| assert_eq!(owner(world, &name), "bert", "{what}"));
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_autoscaler_is_left_alone() {
    let server = Server::new();
    let name = object(AUTOSCALERS, "el");
    let theirs = add(
        &server,
        AUTOSCALERS,
        "el",
        json!({"spec": {"maxReplicas": 9, "scaleTargetRef": {"kind": "Deployment", "name": "el"}}}),
    );
    let operator = server.operator(options());
    let key = job_name(Kind::PyTorch, "el");
    server.add_job(elastic("el"));
    server
        .wait("the status says whose it is", |world| {
            waits(world, &key).starts_with(
                "cannot create HorizontalPodAutoscaler `el`: it exists and belongs to no job",
            )
        })
        .await;
    server
        .wait("it trains all the same", |world| running(world) == 2)
        .await;
    for worker in ["el-worker-0", "el-worker-1"] {
        server.with(|world| world.end_pod(&pod_name(worker), 0));
    }
    server
        .wait("the job has ended", |world| {
            crate::scripted::make::has_condition(world, &key, "Succeeded")
        })
        .await;
    remove(&server, &key);
    assert_untouched(&server, "the autoscaler", &name, &theirs);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn own_autoscaler_is_created_changed_and_deleted() {
    let server = Server::new();
    let name = object(AUTOSCALERS, "el");
    let key = job_name(Kind::PyTorch, "el");
    let operator = server.operator(options());
    server.add_job(elastic("el"));
    server
        .wait("it is made", |world| owner(world, &name) == "el")
        .await;
    server.see(|world| {
        assert_eq!(
            world.asked(Verb::Get, "horizontalpodautoscalers").count(),
            1
        );
    });
    server.with(|world| {
        world.change(&key, |job| {
            job["spec"]["elasticPolicy"]["maxReplicas"] = 3.into();
            job["metadata"]["generation"] = 2.into();
        });
    });
    server
        .wait("it is changed", |world| {
            world
                .objects
                .get(&name)
                .is_some_and(|it| it["spec"]["maxReplicas"] == 3)
        })
        .await;
    // Deleted and made by somebody else meanwhile: it is not the job's.
    remove(&server, &name);
    let theirs = add(&server, AUTOSCALERS, "el", deployment());
    for worker in ["el-worker-0", "el-worker-1"] {
        server.with(|world| world.end_pod(&pod_name(worker), 0));
    }
    server
        .wait("the job's is deleted", |world| {
            world
                .asked(Verb::Delete, "horizontalpodautoscalers")
                .count()
                > 0
        })
        .await;
    server.see(|world| {
        let mut deletes = world.asked(Verb::Delete, "horizontalpodautoscalers");
        assert!(deletes.all(|call| text(&call.body, "/preconditions/uid").starts_with("uid-")));
        assert_eq!(
            world.objects.get(&name).map(|it| Value::clone(it)),
            Some(theirs)
        );
    });
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_job_left_is_waited_for() {
    let server = Server::new();
    let name = object(CONFIG_MAPS, "bert-config");
    let left = json!({"metadata": {"ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "MPIJob",
        "name": "bert", "uid": "an-earlier-one", "controller": true}]}});
    add(&server, CONFIG_MAPS, "bert-config", left);
    let operator = server.operator(by_agent());
    server.add_job(job(Kind::MpiV2, "bert", 2));
    let key = job_name(Kind::MpiV2, "bert");
    server
        .wait("it waits", |world| {
            waits(world, &key).contains("belongs to an earlier MPIJob `bert`")
        })
        .await;
    remove(&server, &name);
    server.wait("it runs", |world| running(world) == 3).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_replaced_is_not_changed() {
    let server = Server::new();
    let name = object(CONFIG_MAPS, "bert-config");
    let key = job_name(Kind::MpiV2, "bert");
    let operator = server.operator(by_agent());
    server.add_job(job(Kind::MpiV2, "bert", 2));
    server.wait("it runs", |world| running(world) == 3).await;
    let patches = |world: &World| world.asked(Verb::Patch, "configmaps/bert-config").count();
    server
        .wait("the hostfile lists its workers", |world| {
            world
                .objects
                .get(&name)
                .is_some_and(|it| text(it, "/data/discover_hosts.sh").contains("bert-worker-1"))
        })
        .await;
    server.see(|world| {
        let mut calls = world.asked(Verb::Patch, "configmaps/bert-config");
        assert!(calls.all(|call| !text(&call.body, "/metadata/uid").is_empty()));
        assert_eq!(
            world.asked(Verb::Get, "configmaps").count(),
            0,
            "nobody looks at what he made"
        );
    });
    remove(&server, &name);
    let theirs = add(
        &server,
        CONFIG_MAPS,
        "bert-config",
        json!({"data": {"hparams.yaml": "x"}}),
    );
    let before = server.see(patches);
    server.with(|world| {
        world.change(&key, |job| {
            job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = 3.into();
            job["metadata"]["generation"] = 2.into();
        });
    });
    server
        .wait("the status says whose it is", |world| {
            waits(world, &key).starts_with(
                "cannot create ConfigMap `bert-config`: it exists and belongs to no job",
            )
        })
        .await;
    server.see(|world| {
        assert!(
            patches(world) > before,
            "the one that it made was to be changed"
        );
        assert_eq!(
            world.objects.get(&name).map(|it| Value::clone(it)),
            Some(theirs)
        );
    });
    remove(&server, &name);
    server.wait("it grows", |world| running(world) == 4).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_operator_knows_its_own_by_their_owner() {
    let server = Server::new();
    let name = object(CONFIG_MAPS, "bert-config");
    let first = server.operator(by_agent());
    server.add_job(job(Kind::MpiV2, "bert", 2));
    server.wait("it runs", |world| running(world) == 3).await;
    first.kill();
    let uid = server.see(|world| text(&world.objects[&name], "/metadata/uid").to_owned());
    server.with(|world| world.calls.clear());
    let second = server.operator(by_agent());
    server
        .wait("its own is brought up to date", |world| {
            world
                .asked(Verb::Patch, "configmaps/bert-config")
                .any(|call| text(&call.body, "/metadata/uid") == uid)
        })
        .await;
    server.see(|world| assert_eq!(world.asked(Verb::Create, "configmaps").count(), 0));
    second.stop().await;
}

/// The operator has no right to read or change Secrets, nor to change accounts.
#[tokio::test(start_paused = true)]
async fn keys_and_accounts_are_created_and_never_changed() {
    let server = Server::new();
    let mut options = options();
    options.cluster.launcher_rights = true;
    let operator = server.operator(options);
    for (kind, name) in [(Kind::MpiV1, "first"), (Kind::MpiV2, "second")] {
        server.add_job(job(kind, name, 2));
        let pods = server.see(running) + 3;
        server.wait("it runs", |world| running(world) == pods).await;
        let key = job_name(kind, name);
        let suspend = |value: bool| {
            server.with(|world| {
                world.change(&key, |job| {
                    job["spec"]["runPolicy"]["suspend"] = value.into();
                });
            });
        };
        suspend(true);
        server
            .wait("it is suspended", |world| running(world) == pods - 3)
            .await;
        suspend(false);
        server
            .wait("it runs again", |world| running(world) == pods)
            .await;
    }
    server.see(|world| {
        for resource in ["secrets", "serviceaccounts"] {
            assert!(
                world.asked(Verb::Create, resource).count() > 0,
                "{resource}"
            );
            assert_eq!(world.asked(Verb::Patch, resource).count(), 0, "{resource}");
        }
        assert_eq!(world.asked(Verb::Get, "secrets").count(), 0);
    });
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_group_of_another_is_left_alone() {
    let server = Server::new();
    server.with(|world| world.served.insert(POD_GROUPS.to_owned()));
    let name = object(POD_GROUPS, "a");
    let theirs = add(&server, POD_GROUPS, "a", deployment());
    let mut options = options();
    options.cluster.gang_scheduler = Some(GangScheduler::Volcano);
    let operator = server.operator(options);
    server.add_job(job(Kind::PyTorch, "a", 2));
    let key = job_name(Kind::PyTorch, "a");
    server
        .wait("the status says whose it is", |world| {
            waits(world, &key).starts_with(
                "cannot create PodGroup `a`: it exists and belongs to Deployment `web`",
            )
        })
        .await;
    server.see(|world| assert_eq!(world.pods().count(), 0));
    assert_untouched(&server, "the group", &name, &theirs);
    remove(&server, &name);
    server
        .wait("its own is made", |world| owner(world, &name) == "a")
        .await;
    server.with(|world| world.change(&name, |group| group["status"]["phase"] = "Inqueue".into()));
    server.wait("it runs", |world| running(world) == 2).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_pod_runs_as_the_operator() {
    let server = Server::new();
    let mut options = options();
    options.cluster.own_account = Some(Account {
        namespace: "n".to_owned(),
        name: "trainyard".to_owned(),
    });
    let operator = server.operator(options);
    let mut evil = job(Kind::PyTorch, "evil", 2);
    evil["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["serviceAccountName"] =
        "trainyard".into();
    server.add_job(evil);
    server.add_job(job(Kind::PyTorch, "good", 1));
    let key = job_name(Kind::PyTorch, "evil");
    server
        .wait("it is refused", |world| {
            waits(world, &key).contains("which is the operator's own")
        })
        .await;
    server.wait("others run", |world| running(world) == 1).await;
    server.see(|world| assert_eq!(world.pods().count(), 1));
    let metrics = operator.operator.metrics().text();
    assert!(
        metrics.contains("trainyard_refusals_total{cause=\"operator_account\"}"),
        "{metrics}"
    );
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn launcher_rights_refusal_names_the_switch() {
    let server = Server::new();
    let operator = server.operator(Options {
        cluster: Options::default().cluster,
        ..options()
    });
    server.add_job(job(Kind::MpiV1, "bert", 2));
    let key = job_name(Kind::MpiV1, "bert");
    server
        .wait("it is refused", |world| {
            waits(world, &key).contains("`--mpi-launcher-rights`")
        })
        .await;
    server.see(|world| assert_eq!(world.pods().count(), 0));
    // What needs no pods is still done.
    server.with(|world| {
        world.change(&key, |job| {
            job["spec"]["runPolicy"]["suspend"] = true.into();
            job["metadata"]["generation"] = 2.into();
        });
    });
    server
        .wait("it is suspended", |world| {
            crate::scripted::make::has_condition(world, &key, "Suspended")
        })
        .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn policies_come_before_the_pods_they_select() {
    let server = Server::new();
    let mut options = by_agent();
    options.cluster.network_policy = NetworkPolicyMode::Ports;
    let operator = server.operator(options);
    server.add_job(job(Kind::MpiV2, "bert", 2));
    server.wait("it runs", |world| running(world) == 3).await;
    server.see(|world| {
        assert_eq!(owner(world, &object(POLICIES, "bert-agent")), "bert");
        let first = |path: &str| {
            world
                .calls
                .iter()
                .position(|call| call.verb == Verb::Create && call.path.ends_with(path))
        };
        assert!(first("/networkpolicies") < first("/pods"));
    });
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn logs_of_a_failure_go_into_no_config_map_of_others() {
    let server = Server::new();
    let operator = server.operator(options());
    let job = server.add_job(job(Kind::PyTorch, "a", 1));
    server.wait("it runs", |world| running(world) == 1).await;
    let kept = crate::keep::name_of("a", text(&job, "/metadata/uid"));
    let theirs = add(&server, CONFIG_MAPS, &kept, json!({"data": {"x": "y"}}));
    server.set_log("a-worker-0", "Traceback\nKeyError: 'rate'\n");
    server.with(|world| world.end_pod(&pod_name("a-worker-0"), 1));
    server
        .wait("it is tried", |world| {
            world.asked(Verb::Get, "configmaps").count() > 0
        })
        .await;
    server
        .wait("the job goes on", |world| running(world) == 1)
        .await;
    assert_untouched(
        &server,
        "the ConfigMap",
        &object(CONFIG_MAPS, &kept),
        &theirs,
    );
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_policy_of_a_preflight_comes_before_its_pods() {
    let server = Server::new();
    server.add_nodes(2);
    let mut options = Options {
        nodes: true,
        placement: true,
        ..by_agent()
    };
    options.cluster.network_policy = NetworkPolicyMode::Ports;
    let operator = server.operator(options);
    let mut job = job(Kind::PyTorch, "a", 2);
    job["metadata"]["annotations"] = json!({"trainyard.dev/preflight": "required"});
    let theirs = add(&server, POLICIES, "a-preflight", deployment());
    let name = object(POLICIES, "a-preflight");
    server.add_job(job);
    let key = job_name(Kind::PyTorch, "a");
    server
        .wait("somebody has its name", |world| {
            waits(world, &key).starts_with("cannot create NetworkPolicy `a-preflight`")
        })
        .await;
    let preflight_of =
        |pod: &Value| text(pod, "/metadata/labels/trainyard.dev~1preflight-of").to_owned();
    let measuring = |world: &World| {
        let pods = world.pods().map(|pod| preflight_of(pod));
        pods.filter(|of| !of.is_empty()).collect::<Vec<String>>()
    };
    server.see(|world| assert!(measuring(world).is_empty()));
    assert_untouched(&server, "the policy", &name, &theirs);
    remove(&server, &name);
    server
        .wait("nodes are measured", |world| !measuring(world).is_empty())
        .await;
    server.see(|world| {
        assert_eq!(owner(world, &name), "a");
        let selected = "/spec/podSelector/matchLabels/trainyard.dev~1preflight-of";
        let selected = text(&world.objects[&name], selected);
        assert!(measuring(world).iter().all(|of| of == selected));
    });
    operator.stop().await;
}
