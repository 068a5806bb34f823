//! Jobs that Kueue manages, with Kueue itself beside the operator.
//!
//! Kueue reads a job's roles as sets of pods, keeps the job suspended until its queue has room, and then
//! writes into its templates where the pods may go. What it decides is its own; that our jobs report
//! the truth to it, and that the operator does what it says, is tested here.

mod program;

use serde_json::{Value, json};

use self::program::Kueue;
use crate::{
    hooks::Hooks,
    namespace::{TestNamespace, on_cluster},
    webhooks::asked,
};

/// A label that every simulated node has, and no other.
const NODES: &str = "test.trainyard.dev/node";
const HOST: &str = "kubernetes.io/hostname";
/// The scheduling gate that Kueue sets, and removes when it has chosen the pod's node.
const TOPOLOGY: &str = "kueue.x-k8s.io/topology";

/// The version of a kind, the kind, its container, and its roles with their pods, in Kueue's order.
type Case = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, u32)],
);

const KINDS: &[Case] = &[
    (
        "v1",
        "PyTorchJob",
        "pytorch",
        &[("Master", 1), ("Worker", 2)],
    ),
    (
        "v1",
        "TFJob",
        "tensorflow",
        &[("Chief", 1), ("PS", 1), ("Worker", 2)],
    ),
    (
        "v1",
        "XGBoostJob",
        "xgboost",
        &[("Master", 1), ("Worker", 2)],
    ),
    ("v1", "PaddleJob", "paddle", &[("Master", 1), ("Worker", 1)]),
    ("v1", "JAXJob", "jax", &[("Worker", 3)]),
    ("v1", "MPIJob", "mpi", &[("Launcher", 1), ("Worker", 2)]),
    (
        "v2beta1",
        "MPIJob",
        "mpi",
        &[("Launcher", 1), ("Worker", 3)],
    ),
];

/// The processors that the queue has: enough for any one of the jobs, not for two of them.
const ROOM: u32 = 4;

#[test]
fn kueue_admits_evicts_and_removes_gates() {
    on_cluster("kueue", |fixture| {
        let hooks = Hooks::new(fixture);
        let _operator = asked(fixture, &hooks);
        let mut kueue = Kueue::start(fixture);
        let queues = Queues::new(fixture, &mut kueue);
        every_kind_has_its_turn(fixture);
        a_gang_leaves_for_another_and_comes_back(fixture);
        a_gang_goes_where_kueue_says(fixture);
        queues.remove();
        kueue.uninstall();
    });
}

/// What Kueue admits by: a queue of processors, and one that also chooses hosts.
struct Queues<'a> {
    fixture: &'a TestNamespace,
}

impl<'a> Queues<'a> {
    /// Makes them as soon as Kueue answers.
    fn new(fixture: &'a TestNamespace, kueue: &mut Kueue) -> Self {
        let object = |kind: &str, name: &str| {
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind,
                "metadata": {"name": name}})
        };
        let hosts = beyond(fixture, "hosts");
        let mut topology = object("Topology", &hosts);
        topology["spec"] = json!({"levels": [{"nodeLabel": HOST}]});
        let mut urgent = object("WorkloadPriorityClass", &beyond(fixture, "urgent"));
        urgent["value"] = json!(1000);
        let mut items = vec![topology, urgent];
        for (queue, topology) in [("room", Value::Null), ("hosts", json!(hosts))] {
            let name = beyond(fixture, queue);
            let mut flavor = object("ResourceFlavor", &name);
            flavor["spec"] = json!({"nodeLabels": {NODES: "simulated"}});
            if !topology.is_null() {
                flavor["spec"]["topologyName"] = topology;
            }
            let mut cluster_queue = object("ClusterQueue", &name);
            cluster_queue["spec"] = json!({
                "namespaceSelector": {},
                "preemption": {"withinClusterQueue": "LowerPriority"},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                    {"name": name, "resources": [{"name": "cpu", "nominalQuota": ROOM}]}]}],
            });
            let mut local_queue = object("LocalQueue", queue);
            local_queue["metadata"]["namespace"] = json!(fixture.namespace);
            local_queue["spec"] = json!({"clusterQueue": name});
            items.extend([flavor, cluster_queue, local_queue]);
        }
        let all = json!({"apiVersion": "v1", "kind": "List", "items": items});
        fixture.wait("Kueue takes queues", || {
            kueue.must_run();
            (fixture.try_apply(&all, &[]).code == Some(0)).then_some(())
        });
        Self { fixture }
    }

    /// Deletes every object with a finalizer of Kueue.
    fn remove(&self) {
        for kinds in [
            "pytorchjobs,tfjobs,xgboostjobs,paddlejobs,jaxjobs,mpijobs",
            "workloads.kueue.x-k8s.io",
            "localqueues.kueue.x-k8s.io",
        ] {
            self.fixture
                .kubectl(&["delete", kinds, "--all", "--timeout=120s"]);
        }
        for (kind, names) in [
            ("clusterqueues", &["room", "hosts"][..]),
            ("resourceflavors", &["room", "hosts"]),
            ("topologies", &["hosts"]),
            ("workloadpriorityclasses", &["urgent"]),
        ] {
            let kind = format!("{kind}.kueue.x-k8s.io");
            for name in names {
                let name = beyond(self.fixture, name);
                self.fixture
                    .kubectl(&["delete", &kind, &name, "--timeout=120s"]);
            }
        }
    }
}

/// The name of something in no namespace, which a test that failed must not leave to the next.
fn beyond(fixture: &TestNamespace, name: &str) -> String {
    format!("{}-{name}", fixture.namespace)
}

/// A job whose pods want a processor each, of a queue. Those of `ending` roles end well soon.
fn queued(case: &Case, name: &str, queue: &str, ending: &[&str]) -> Value {
    let (version, kind, container, roles) = case;
    let mut specs = json!({});
    for (role, count) in *roles {
        let annotations = if ending.contains(role) {
            json!({"test.trainyard.dev/exit-code": "0", "test.trainyard.dev/exit-after": "500ms"})
        } else {
            json!({})
        };
        specs[*role] = json!({
            "replicas": count, "restartPolicy": "Never",
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"containers": [{"name": container, "image": "example.com/train:1",
                    "command": ["train"], "resources": {"requests": {"cpu": "1"}}}]},
            },
        });
    }
    let field = match *kind {
        "XGBoostJob" => "xgbReplicaSpecs".to_owned(),
        kind => format!(
            "{}ReplicaSpecs",
            kind.trim_end_matches("Job").to_lowercase()
        ),
    };
    json!({
        "apiVersion": format!("kubeflow.org/{version}"), "kind": kind,
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"runPolicy": {"cleanPodPolicy": "None"}, field: specs},
    })
}

/// The objects of a kind in the namespace.
fn list(fixture: &TestNamespace, kind: &str) -> Vec<Value> {
    let text = fixture.kubectl(&["get", kind, "--output=json"]);
    let mut list: Value = serde_json::from_str(&text).unwrap();
    list["items"].as_array_mut().map(std::mem::take).unwrap()
}

fn pods_of(fixture: &TestNamespace, job: &str) -> Vec<Value> {
    let mut pods = list(fixture, "pods");
    pods.retain(|pod| pod["metadata"]["labels"]["training.kubeflow.org/job-name"] == job);
    pods
}

/// The pods of the job, once as many as `count` run.
fn until_all_run(fixture: &TestNamespace, job: &str, count: usize) -> Vec<Value> {
    fixture.wait(&format!("{count} pods of `{job}` run"), || {
        let pods = pods_of(fixture, job);
        let running = pods
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running");
        (running.count() == count).then_some(pods)
    })
}

/// The job's status, once it is as `wanted`.
fn until_status(
    fixture: &TestNamespace,
    what: &str,
    job: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    fixture.wait(&format!("`{job}` {what}"), || {
        let text = fixture.kubectl(&["get", "pytorchjob", job, "--output=json"]);
        let job: Value = serde_json::from_str(&text).unwrap();
        wanted(&job["status"]).then(|| job["status"].clone())
    })
}

fn holds(status: &Value, condition: &str) -> bool {
    let conditions = status["conditions"].as_array();
    conditions.is_some_and(|conditions| {
        let mut conditions = conditions.iter();
        conditions.any(|one| one["type"] == condition && one["status"] == "True")
    })
}

fn every_kind_has_its_turn(fixture: &TestNamespace) {
    let name = |case: &Case| format!("{}-{}", case.1, case.0).to_lowercase();
    for case in KINDS {
        // Where a launcher ends, its workers end by that.
        let ending: Vec<&str> = match case.3 {
            [("Launcher", _), ..] => vec!["Launcher"],
            roles => roles.iter().map(|(role, _)| *role).collect(),
        };
        let job = queued(case, &name(case), "room", &ending);
        if case.0 != "v1" {
            fixture.wait("the API server converts", || {
                let answer = fixture.try_put(&job, &["--dry-run=server"]);
                (answer.code == Some(0)).then_some(())
            });
        }
        fixture.put(&job);
    }
    for case in KINDS {
        let name = name(case);
        fixture.until_status(&name, |status| {
            assert_ne!(status["state"], "Failed", "{status:#}");
            status["state"] == "Succeeded"
        });
        let pods = pods_of(fixture, &name);
        assert!(!pods.is_empty(), "{name}");
        for pod in pods {
            assert_eq!(pod["spec"]["nodeSelector"], json!({NODES: "simulated"}));
            assert!(pod["spec"]["affinity"].is_null(), "{pod:#}");
        }
    }
    let workloads = fixture.wait("Kueue has seen that all of them ended", || {
        let workloads = list(fixture, "workloads.kueue.x-k8s.io");
        let ended = workloads
            .iter()
            .filter(|workload| holds(&workload["status"], "Finished"));
        (ended.count() == KINDS.len()).then_some(workloads)
    });
    for case in KINDS {
        let name = name(case);
        let workload = workloads
            .iter()
            .find(|workload| workload["metadata"]["ownerReferences"][0]["name"] == name.as_str())
            .unwrap_or_else(|| panic!("`{name}` has no Workload"));
        let sets = workload["spec"]["podSets"].as_array().unwrap().iter();
        let sets: Vec<Value> = sets.map(|set| json!([set["name"], set["count"]])).collect();
        let roles = case.3.iter();
        let roles: Vec<Value> = roles
            .map(|(role, count)| json!([role.to_lowercase(), count]))
            .collect();
        assert_eq!(sets, roles, "{name}");
        let finished = workload["status"]["conditions"].to_string();
        assert!(finished.contains("\"reason\":\"Succeeded\""), "{finished}");
    }
}

/// A gang that takes the whole room and does not end.
fn endless(name: &str, queue: &str) -> Value {
    let case = (
        "v1",
        "PyTorchJob",
        "pytorch",
        &[("Master", 1), ("Worker", 3)][..],
    );
    queued(&case, name, queue, &[])
}

fn a_gang_leaves_for_another_and_comes_back(fixture: &TestNamespace) {
    let runs = |attempt: u32| {
        move |status: &Value| holds(status, "Running") && status["trainyard"]["attempt"] == attempt
    };
    fixture.put(&endless("patient", "room"));
    until_status(fixture, "runs", "patient", runs(1));
    let mut urgent = endless("urgent", "room");
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] =
        json!(beyond(fixture, "urgent"));
    fixture.put(&urgent);
    until_status(fixture, "runs", "urgent", runs(1));
    let status = until_status(fixture, "is suspended", "patient", |status| {
        holds(status, "Suspended")
    });
    assert!(!holds(&status, "Running"), "{status:#}");
    assert!(!holds(&status, "Failed"), "{status:#}");
    fixture.wait("`patient` holds nothing", || {
        pods_of(fixture, "patient").is_empty().then_some(())
    });
    let answer = fixture.until_cause("patient", "Suspended").to_string();
    assert!(
        answer.contains("Kueue admits it from queue `room`"),
        "{answer}"
    );

    fixture.kubectl(&["delete", "pytorchjob", "urgent"]);
    let status = until_status(fixture, "runs again", "patient", runs(2));
    for account in ["user", "platform", "infrastructure", "preemption"] {
        assert_eq!(status["trainyard"]["spent"][account], 0, "{status:#}");
    }
    until_all_run(fixture, "patient", 4);
}

fn a_gang_goes_where_kueue_says(fixture: &TestNamespace) {
    let mut job = endless("near", "hosts");
    for role in ["Master", "Worker"] {
        let template = &mut job["spec"]["pytorchReplicaSpecs"][role]["template"];
        template["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] =
            json!(HOST);
    }
    fixture.put(&job);
    until_status(fixture, "runs", "near", |status| holds(status, "Running"));
    let text = fixture.kubectl(&["get", "pytorchjob", "near", "--output=json"]);
    let job: Value = serde_json::from_str(&text).unwrap();
    let template = &job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"];
    let gates = json!([{"name": TOPOLOGY}]);
    assert_eq!(template["spec"]["schedulingGates"], gates, "{template:#}");
    let pods = until_all_run(fixture, "near", 4);
    let mut hosts = Vec::new();
    for pod in &pods {
        let selector = &pod["spec"]["nodeSelector"];
        assert_eq!(selector[HOST], pod["spec"]["nodeName"], "{pod:#}");
        if pod["metadata"]["labels"]["training.kubeflow.org/replica-type"] == "worker" {
            hosts.push(&selector[HOST]);
        }
    }
    hosts.dedup();
    assert_eq!(hosts.len(), 1, "{hosts:?}");
}
