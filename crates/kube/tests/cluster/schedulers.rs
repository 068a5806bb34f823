//! Gangs that other schedulers start, with the pod group kinds that these define.

use kube::{
    Resource as _,
    api::{Api, DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use trainyard_core::{launch::GangScheduler, spec::read};

use crate::{
    harness::{TestNamespace, ends, holds, on_cluster, pytorch},
    placement::{Rack, gang, seated},
};

/// A definition of a kind by another scheduler, where the suite has fetched it.
fn definition(file: &str) -> Option<Value> {
    #[expect(
        clippy::disallowed_methods,
        reason = "where the cluster keeps its state"
    )]
    let state = std::env::var("TRAINYARD_CLUSTER").unwrap();
    let Ok(bytes) = std::fs::read(format!("{state}/kinds/{file}")) else {
        eprintln!("skipped: `cargo xtask cluster kinds` has not fetched `{file}`");
        return None;
    };
    let file = read(&bytes).unwrap();
    let mut objects = file
        .documents
        .iter()
        .map(|document| document.tree.to_json());
    objects.find(|object| object["kind"] == "CustomResourceDefinition")
}

fn definitions(fixture: &TestNamespace) -> Api<DynamicObject> {
    fixture.whole("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
}

/// Teaches the cluster the kind, and waits until it knows it.
async fn teach(fixture: &TestNamespace, definition: &Value) {
    let api = definitions(fixture);
    let name = definition["metadata"]["name"].as_str().unwrap();
    let params = PatchParams::apply("test").force();
    api.patch(name, &params, &Patch::Apply(definition))
        .await
        .unwrap();
    fixture
        .until("the kind is known", || async {
            let known = api.get(name).await.unwrap();
            holds(&known.data["status"], "Established").then_some(())
        })
        .await;
}

/// Makes the cluster forget the kind.
async fn unteach(fixture: &TestNamespace, definition: &Value) {
    let api = definitions(fixture);
    let name = definition["metadata"]["name"].as_str().unwrap();
    drop(api.delete(name, &DeleteParams::default()).await);
    fixture
        .until("the kind is forgotten", || async {
            api.get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
}

async fn until_group(
    fixture: &TestNamespace,
    groups: &Api<DynamicObject>,
    name: &str,
) -> DynamicObject {
    fixture
        .until("the PodGroup is there", || async {
            groups.get_opt(name).await.unwrap()
        })
        .await
}

async fn until_no_group(fixture: &TestNamespace, groups: &Api<DynamicObject>, name: &str) {
    fixture
        .until("the PodGroup is gone", || async {
            groups.get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
}

fn says(status: &Value, words: &str) -> bool {
    let message = status["trainyard"]["waiting"]["message"].as_str();
    message.is_some_and(|message| message.contains(words))
}

/// Whether nothing of ours holds the pod back or ties it to a node.
fn is_free(pod: &Value) -> bool {
    let gates = pod["spec"]["schedulingGates"].as_array();
    let held = gates.is_some_and(|gates| {
        gates
            .iter()
            .any(|gate| gate["name"].as_str().unwrap().starts_with("trainyard.dev/"))
    });
    !held
        && pod["spec"]["affinity"].is_null()
        && pod["metadata"]["annotations"]["trainyard.dev/seat"].is_null()
}

#[test]
fn coscheduling_gets_a_pod_group_for_every_gang() {
    on_cluster("coscheduling", |fixture| async move {
        let Some(definition) = definition("coscheduling.yaml") else {
            return;
        };
        teach(&fixture, &definition).await;
        // The scheduler of the cluster knows no such plugin, and binds pod by pod.
        let scheduler = GangScheduler::named("default-scheduler");
        let operator = fixture
            .operator_with(|options| options.cluster.gang_scheduler = scheduler)
            .await;
        let groups = fixture.api("scheduling.x-k8s.io", "v1alpha1", "PodGroup");
        let mut job = pytorch("gang", 2, &json!({}));
        job["spec"]["runPolicy"] = json!({"schedulingPolicy": {"scheduleTimeoutSeconds": 90}});
        job["metadata"]["annotations"] = json!({"example.com/note": "kept"});
        for role in ["Master", "Worker"] {
            let pod = &mut job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"];
            pod["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 1}});
            pod["initContainers"] = json!([{"name": "fetch", "image": "test",
                "resources": {"requests": {"cpu": "100m"}}}]);
        }
        fixture.put(&job).await;
        fixture.until_running(3, 1).await;
        let group = until_group(&fixture, &groups, "gang").await;
        assert_eq!(
            group.data["spec"],
            json!({"minMember": 3, "minResources": {"cpu": "300m", "nvidia.com/gpu": "3"},
                "scheduleTimeoutSeconds": 90})
        );
        let owners = group.meta().owner_references.clone().unwrap_or_default();
        assert_eq!(owners[0].kind, "PyTorchJob");
        let annotations = group.meta().annotations.clone().unwrap_or_default();
        assert_eq!(annotations["example.com/note"], "kept");
        for pod in fixture.pod_map().await.values() {
            let label = &pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"];
            assert_eq!(label, "gang");
            assert_eq!(pod["spec"]["schedulerName"], "default-scheduler");
            assert!(is_free(pod), "{pod:#}");
        }

        // It goes when the job is suspended, comes back with it, and goes when it ends.
        let suspend = |suspend: bool| json!({"spec": {"runPolicy": {"suspend": suspend}}});
        fixture.edit("PyTorchJob", "gang", suspend(true)).await;
        until_no_group(&fixture, &groups, "gang").await;
        fixture.edit("PyTorchJob", "gang", suspend(false)).await;
        fixture.until_running(3, 2).await;
        until_group(&fixture, &groups, "gang").await;
        fixture.end_pod("gang-master-0", 0, "Completed").await;
        fixture
            .until_condition("PyTorchJob", "gang", "Succeeded")
            .await;
        until_no_group(&fixture, &groups, "gang").await;
        operator.stop().await;
    });
}

#[test]
fn gang_start_ignores_waiting_launcher() {
    on_cluster("coscheduled-launcher", |fixture| async move {
        let Some(definition) = definition("coscheduling.yaml") else {
            return;
        };
        teach(&fixture, &definition).await;
        let scheduler = GangScheduler::named("default-scheduler");
        let operator = fixture
            .operator_with(|options| {
                options.cluster.gang_scheduler = scheduler;
                options.cluster.launcher_rights = true;
            })
            .await;
        let role = |replicas: u32| {
            json!({"replicas": replicas, "restartPolicy": "Never", "template": {
                "spec": {"nodeSelector": {"test.trainyard.dev/node": "simulated"},
                    "containers": [{"name": "mpi", "image": "test", "command": ["mpirun"]}]}}})
        };
        fixture
            .put(&json!({"apiVersion": "kubeflow.org/v1", "kind": "MPIJob",
            "metadata": {"name": "ranks"},
            "spec": {"mpiReplicaSpecs": {
                "Launcher": role(1), "Worker": role(2)}}}))
            .await;
        let groups = fixture.api("scheduling.x-k8s.io", "v1alpha1", "PodGroup");
        let group = until_group(&fixture, &groups, "ranks").await;
        assert_eq!(group.data["spec"]["minMember"], 2);
        fixture.until_running(3, 1).await;
        fixture.end_pod("ranks-launcher", 0, "Completed").await;
        fixture
            .until_condition("MPIJob", "ranks", "Succeeded")
            .await;
        until_no_group(&fixture, &groups, "ranks").await;
        operator.stop().await;
    });
}

#[test]
fn volcano_lets_a_gang_in_before_it_has_pods() {
    on_cluster("volcano", |fixture| async move {
        let Some(definition) = definition("volcano.yaml") else {
            return;
        };
        // No other test uses this kind.
        unteach(&fixture, &definition).await;
        let operator = fixture.operator().await;
        let mut job = pytorch("gang", 2, &json!({}));
        job["metadata"]["annotations"] = json!({"trainyard.dev/gang": "volcano"});
        job["spec"]["runPolicy"] = json!({"schedulingPolicy": {"queue": "research"}});
        // Volcano does not run here: the scheduler of the cluster binds what Volcano let in.
        let master = &mut job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"];
        master["schedulerName"] = json!("default-scheduler");
        fixture.put(&job).await;
        fixture
            .until_status("PyTorchJob", "gang", "it says what is missing", |status| {
                says(
                    status,
                    "does not serve `podgroups` of `scheduling.volcano.sh/v1beta1`",
                )
            })
            .await;
        // Jobs that do not need it are not held up.
        fixture.put(&pytorch("plain", 0, &ends(0, "100ms"))).await;
        fixture
            .until_condition("PyTorchJob", "plain", "Succeeded")
            .await;

        teach(&fixture, &definition).await;
        let groups = fixture.api("scheduling.volcano.sh", "v1beta1", "PodGroup");
        let group = until_group(&fixture, &groups, "gang").await;
        assert_eq!(
            group.data["spec"],
            json!({"minMember": 3, "queue": "research"})
        );
        fixture
            .until_status("PyTorchJob", "gang", "it waits for Volcano", |status| {
                says(
                    status,
                    "Volcano has not admitted the gang to queue `research` yet",
                )
            })
            .await;
        // It waits without a write to the job, and so without a pass for each.
        let version = || async {
            let job = fixture.jobs("PyTorchJob").get("gang").await.unwrap();
            job.metadata.resource_version
        };
        let before = version().await;
        fixture.put(&pytorch("another", 0, &ends(0, "1s"))).await;
        fixture
            .until_condition("PyTorchJob", "another", "Succeeded")
            .await;
        assert_eq!(version().await, before);
        assert!(!fixture.pod_map().await.contains_key("gang-master-0"));

        let phase = json!({"status": {"phase": "Inqueue"}});
        let params = PatchParams::default();
        match groups
            .patch_status("gang", &params, &Patch::Merge(&phase))
            .await
        {
            Ok(_) => {}
            // The kind has no status of its own.
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let patched = groups.patch("gang", &params, &Patch::Merge(&phase)).await;
                patched.unwrap();
            }
            Err(error) => panic!("{error}"),
        }
        fixture
            .until("the master runs", || async {
                let pods = fixture.pod_map().await;
                let master = pods.get("gang-master-0")?;
                (master["status"]["phase"] == "Running").then_some(())
            })
            .await;
        let pods = fixture.pod_map().await;
        for (name, scheduler, task) in [
            ("gang-master-0", "default-scheduler", "master"),
            ("gang-worker-0", "volcano", "worker"),
        ] {
            let pod = &pods[name];
            assert_eq!(pod["spec"]["schedulerName"], scheduler, "{name}");
            let annotations = &pod["metadata"]["annotations"];
            assert_eq!(
                annotations["scheduling.k8s.io/group-name"], "gang",
                "{name}"
            );
            assert_eq!(annotations["volcano.sh/task-spec"], task, "{name}");
            assert!(is_free(pod), "{pod:#}");
        }
        fixture.end_pod("gang-master-0", 0, "Completed").await;
        fixture
            .until_condition("PyTorchJob", "gang", "Succeeded")
            .await;
        until_no_group(&fixture, &groups, "gang").await;
        operator.stop().await;
    });
}

/// A gate that Kueue sets, and removes when it has assigned the pod.
const TOPOLOGY: &str = "kueue.x-k8s.io/topology";

/// Waits until the pods of `attempt` are there, with Kueue's gate and nothing of ours, and returns them.
async fn until_admitted(fixture: &TestNamespace, count: usize, attempt: &str) -> Vec<String> {
    fixture
        .until("the pods are there", || async {
            let pods = fixture.pod_map().await;
            let of_attempt: Vec<String> = pods
                .iter()
                .filter(|(_, pod)| {
                    pod["metadata"]["labels"]["trainyard.dev/attempt"] == attempt
                        && pod["metadata"]["labels"]["training.kubeflow.org/job-name"] == "queued"
                })
                .map(|(name, pod)| {
                    assert!(is_free(pod), "{pod:#}");
                    let gates = json!([{"name": TOPOLOGY}]);
                    assert_eq!(pod["spec"]["schedulingGates"], gates, "{name}");
                    let selector = json!({"test.trainyard.dev/node": "simulated"});
                    assert_eq!(pod["spec"]["nodeSelector"], selector, "{name}");
                    name.clone()
                })
                .collect();
            (of_attempt.len() == count).then_some(of_attempt)
        })
        .await
}

#[test]
fn what_kueue_admits_carries_nothing_of_ours() {
    on_cluster("kueue", |fixture| async move {
        let operator = fixture.operator().await;
        let mut job = pytorch("queued", 1, &json!({}));
        job["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "research"});
        job["spec"]["runPolicy"] =
            json!({"suspend": true, "managedBy": "kubeflow.org/training-operator"});
        fixture.put(&job).await;
        fixture
            .until_condition("PyTorchJob", "queued", "Suspended")
            .await;
        assert!(fixture.pod_map().await.is_empty());

        // Kueue edits the templates and lets the job go on, in one write.
        let template = json!({"template": {"spec": {"schedulingGates": [{"name": TOPOLOGY}]}}});
        let admit = json!({"spec": {"runPolicy": {"suspend": false},
            "pytorchReplicaSpecs": {"Master": template, "Worker": template}}});
        fixture.edit("PyTorchJob", "queued", admit).await;
        until_admitted(&fixture, 2, "1").await;
        // Their gates stay, whatever happens meanwhile.
        fixture.put(&pytorch("other", 0, &ends(0, "500ms"))).await;
        fixture
            .until_condition("PyTorchJob", "other", "Succeeded")
            .await;
        let pods = until_admitted(&fixture, 2, "1").await;
        let open = json!({"spec": {"schedulingGates": [{"$patch": "delete", "name": TOPOLOGY}]}});
        for pod in &pods {
            let params = PatchParams::default();
            let patched = fixture
                .pods()
                .patch(pod, &params, &Patch::Strategic(&open))
                .await;
            patched.unwrap();
        }
        fixture
            .until_condition("PyTorchJob", "queued", "Running")
            .await;

        // It is preempted, and admitted again.
        let suspend = |suspend: bool| json!({"spec": {"runPolicy": {"suspend": suspend}}});
        fixture.edit("PyTorchJob", "queued", suspend(true)).await;
        fixture
            .until_status(
                "PyTorchJob",
                "queued",
                "nothing of it is active",
                |status| {
                    let roles = status["replicaStatuses"].as_object();
                    holds(status, "Suspended")
                        && roles.is_some_and(|roles| {
                            roles
                                .values()
                                .all(|role| role["active"].as_u64().unwrap_or(0) == 0)
                        })
                },
            )
            .await;
        fixture.edit("PyTorchJob", "queued", suspend(false)).await;
        until_admitted(&fixture, 2, "2").await;
        operator.stop().await;
    });
}

#[test]
fn the_clusters_own_scheduler_starts_a_gang_whole() {
    on_cluster("native", |fixture| async move {
        let rack = Rack::new(&fixture, 2).await;
        rack.cordon(&rack.names[1], true).await;
        let operator = fixture.operator().await;
        let mut job = gang(&fixture, "whole", 1, &json!({}));
        job["metadata"]["annotations"] = json!({"trainyard.dev/gang": "native"});
        fixture.put(&job).await;
        let workloads = fixture.api("scheduling.k8s.io", "v1alpha1", "Workload");
        let workload = until_group(&fixture, &workloads, "whole").await;
        assert_eq!(
            workload.data["spec"]["podGroups"],
            json!([{"name": "gang", "policy": {"gang": {"minCount": 2}}}])
        );
        fixture
            .until_status("PyTorchJob", "whole", "one pod has no node", |status| {
                says(status, "pods have no node yet: ")
            })
            .await;
        assert_eq!(
            seated(&fixture, "whole").await,
            0,
            "the other one waits for it"
        );
        for pod in fixture.pod_map().await.values() {
            let reference = json!({"name": "whole", "podGroup": "gang"});
            assert_eq!(pod["spec"]["workloadRef"], reference);
            assert!(is_free(pod), "{pod:#}");
        }
        rack.cordon(&rack.names[1], false).await;
        fixture.until_running(2, 1).await;
        fixture.end_pod("whole-master-0", 0, "Completed").await;
        fixture
            .until_condition("PyTorchJob", "whole", "Succeeded")
            .await;
        until_no_group(&fixture, &workloads, "whole").await;
        operator.stop().await;
        rack.remove().await;
    });
}
