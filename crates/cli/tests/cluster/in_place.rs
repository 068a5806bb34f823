//! Gangs that restart in their pods, on real nodes: real supervisors, kubelets and operators.
//!
//! The operator runs outside of the cluster, so the name of its Service leads to this machine. The port is the one that pods are given, so
//! these tests run one after another, as all tests with webhooks do.

mod hold;

use std::{fs, process::Command};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use trainyard_core::launch::supervise::OPERATOR_PORT;
use trainyard_kube::crd;

use crate::{
    hooks::{Hooks, MACHINE},
    namespace::{TestNamespace, alone_on_real_nodes, kubectl, on_real_nodes},
    on_nodes,
    operator::{May, Operator},
};

/// The binary alone, as it is deployed.
const AGENT_IMAGE: &str = "trainyard.test/trainyard:test";
const WORKERS: usize = 4;
/// What each program writes when it starts, and then it runs until it is asked to end.
const SCRIPT: &str =
    "echo attempt $TRAINYARD_ATTEMPT starts; trap 'exit 0' TERM; while :; do sleep 0.1; done";

/// An operator that restarts gangs in place, and the way to it.
struct InPlace<'a> {
    fixture: &'a TestNamespace,
    hooks: Hooks<'a>,
}

impl<'a> InPlace<'a> {
    fn new(fixture: &'a TestNamespace) -> Self {
        let hooks = Hooks::new(fixture);
        // A Service without an address leads to its endpoints by name.
        let words = ["delete", "service", crd::SERVICE, "--ignore-not-found"];
        fixture.kubectl(&words);
        fixture.apply(&json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": crd::SERVICE, "namespace": fixture.namespace},
            "spec": {"clusterIP": "None", "ports": [
                {"name": "webhook", "port": 443}, {"name": "gangs", "port": OPERATOR_PORT}]}}));
        fixture.apply(
            &json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "gangs", "namespace": fixture.namespace,
                "labels": {"kubernetes.io/service-name": crd::SERVICE}},
            "addressType": "IPv4", "endpoints": [{"addresses": [MACHINE]}],
            "ports": [{"name": "gangs", "port": OPERATOR_PORT}]}),
        );
        Self { fixture, hooks }
    }

    fn operator(&self) -> Operator {
        let bind = format!("--gang-bind=:{OPERATOR_PORT}");
        let image = format!("--agent-image={AGENT_IMAGE}");
        let words = [
            "--no-leader-elect",
            "--webhook-bind=:0",
            bind.as_str(),
            image.as_str(),
        ];
        let operator = self.fixture.operator_with(May::Act, &words);
        self.hooks.lead_to("only", &operator);
        operator
    }

    /// A job whose programs run, and whose leader is connected.
    fn running(&self, operator: &Operator, job: &Value) {
        self.hooks.until_asked();
        self.fixture.put(job);
        let name = job["metadata"]["name"].as_str().unwrap();
        for index in 0..WORKERS {
            let pod = format!("{name}-worker-{index}");
            self.fixture.wait(&format!("`{pod}` runs"), || {
                first_line(self.fixture, &pod, 1).map(|_| ())
            });
        }
        self.connected(operator);
    }

    fn connected(&self, operator: &Operator) {
        self.fixture.wait_or(
            || {
                let said = operator.said("The leader of the gang is connected");
                (!said.is_empty()).then_some(())
            },
            || format!("the leader connects: {}", operator.log()),
        );
    }
}

fn gang(name: &str) -> Value {
    let mut job = on_nodes(name, SCRIPT);
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = json!(WORKERS);
    // The programs end at once when they are asked to; those that are killed restart.
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = json!("OnFailure");
    job
}

/// When the program of `pod` wrote its first line in `attempt`.
fn first_line(fixture: &TestNamespace, pod: &str, attempt: u32) -> Option<Timestamp> {
    let words = ["logs", pod, "--timestamps", "--container=pytorch"];
    let log = Command::new("kubectl")
        .args(words)
        .args(["--namespace", &fixture.namespace])
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    let end = format!(" attempt {attempt} starts");
    let line = log.lines().find(|line| line.ends_with(&end))?;
    line.split(' ').next()?.parse().ok()
}

/// Kills the program of `pod`, not its supervisor: the shell of [`SCRIPT`] in the container of that name.
fn kill_program(pod: &str) -> Timestamp {
    let host = format!("HOSTNAME={pod}");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut found = processes.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let variables = fs::read(entry.path().join("environ")).ok()?;
        let here = variables
            .split(|byte| *byte == 0)
            .any(|it| it == host.as_bytes());
        (here && words.starts_with(b"sh\0-c\0")).then_some(pid)
    });
    let pid = found
        .next()
        .unwrap_or_else(|| panic!("no program of `{pod}`"));
    let at = Timestamp::now();
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
    at
}

/// The pods of a job: uid, address and attempt of each.
fn pods(fixture: &TestNamespace, job: &str) -> Vec<[String; 3]> {
    let label = format!("training.kubeflow.org/job-name={job}");
    let text = fixture.kubectl(&["get", "pods", "--selector", &label, "--output=json"]);
    let list: Value = serde_json::from_str(&text).unwrap();
    let pods = list["items"].as_array().unwrap().iter().map(|pod| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        [
            text(&pod["metadata"]["uid"]),
            text(&pod["status"]["podIP"]),
            text(&pod["metadata"]["labels"]["trainyard.dev/attempt"]),
        ]
    });
    pods.collect()
}

/// What `status.trainyard` holds.
fn record(fixture: &TestNamespace, job: &str) -> Value {
    let text = fixture.kubectl(&["get", "pytorchjob", job, "--output=json"]);
    let object: Value = serde_json::from_str(&text).unwrap();
    object["status"]["trainyard"].clone()
}

fn messages(fixture: &TestNamespace, job: &str) -> Vec<String> {
    let field = format!("involvedObject.name={job}");
    let text = fixture.kubectl(&["get", "events", "--field-selector", &field, "--output=json"]);
    let list: Value = serde_json::from_str(&text).unwrap();
    let events = list["items"].as_array().unwrap().iter();
    events
        .map(|event| event["message"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Waits until every program runs as attempt 2, in the pods of `before`; when each wrote its first line.
fn restarted(fixture: &TestNamespace, job: &str, before: &[[String; 3]]) -> Vec<Timestamp> {
    let names = (0..WORKERS).map(|index| format!("{job}-worker-{index}"));
    let lines: Vec<Timestamp> = names
        .map(|pod| {
            fixture.wait_or(
                || first_line(fixture, &pod, 2),
                || {
                    let (record, messages) = (record(fixture, job), messages(fixture, job));
                    format!("attempt 2 of `{pod}`: {record:#} {messages:#?}")
                },
            )
        })
        .collect();
    let after = pods(fixture, job);
    let same = |pods: &[[String; 3]]| -> Vec<[String; 2]> {
        pods.iter()
            .map(|[uid, address, _]| [uid.clone(), address.clone()])
            .collect()
    };
    assert_eq!(same(&after), same(before), "the same pods");
    assert!(
        after.iter().all(|[_, _, attempt]| attempt == "2"),
        "{after:?}"
    );
    let record = fixture.wait("the restart is over", || {
        let record = record(fixture, job);
        record["barrier"].is_null().then_some(record)
    });
    assert_eq!(record["attempt"], 2, "{record:#}");
    let spent = record["spent"].as_object().unwrap().values();
    let spent: u64 = spent.filter_map(Value::as_u64).sum();
    assert_eq!(spent, 1, "{record:#}");
    lines
}

fn milliseconds(time: SignedDuration) -> i128 {
    time.as_millis()
}

#[test]
fn killed_program_restarts_in_its_pod() {
    on_real_nodes("in-place", |fixture| {
        let in_place = InPlace::new(fixture);
        let operator = in_place.operator();
        in_place.running(&operator, &gang("kept"));
        let before = pods(fixture, "kept");
        let killed = kill_program("kept-worker-2");
        let lines = restarted(fixture, "kept", &before);
        let (first, last) = (lines.iter().min().unwrap(), lines.iter().max().unwrap());
        let (took, apart) = (first.duration_since(killed), last.duration_since(*first));
        eprintln!(
            "kill to the first line of attempt 2: {} ms; all programs started within {} ms; parts: {}",
            milliseconds(took),
            milliseconds(apart),
            record(fixture, "kept")["lastRestart"]
        );
        let said = messages(fixture, "kept");
        assert!(
            said.iter().any(|it| it.contains("restarts in place")),
            "{said:#?}"
        );
    });
}

#[test]
fn another_operator_continues_a_restart_in_place() {
    on_real_nodes("in-place-crash", |fixture| {
        let in_place = InPlace::new(fixture);
        let operator = in_place.operator();
        in_place.running(&operator, &gang("crash"));
        let before = pods(fixture, "crash");
        // Labels cannot be patched, so the restart stays between the stored attempt and Go.
        let name = format!("{}-act", fixture.namespace);
        let role = fixture.kubectl(&["get", "role", &name, "--output=json"]);
        let mut role: Value = serde_json::from_str(&role).unwrap();
        for rule in role["rules"].as_array_mut().unwrap() {
            if rule["resources"] == json!(["pods"]) {
                rule["verbs"]
                    .as_array_mut()
                    .unwrap()
                    .retain(|verb| verb != "patch");
            }
        }
        role["metadata"] = json!({"name": name, "namespace": fixture.namespace});
        fixture.apply(&role);
        let can = ["auth", "can-i", "patch", "pods", "--as"];
        let account = format!("system:serviceaccount:{}:{name}", fixture.namespace);
        fixture.wait("the right is gone", || {
            let outcome = Command::new("kubectl")
                .args(can)
                .args([&account, "--namespace", &fixture.namespace])
                .output()
                .unwrap();
            String::from_utf8_lossy(&outcome.stdout)
                .starts_with("no")
                .then_some(())
        });
        kill_program("crash-worker-1");
        fixture.wait("the attempt is stored", || {
            let record = record(fixture, "crash");
            (record["attempt"] == 2 && record["barrier"]["phase"] == "preparing").then_some(())
        });
        // Killed; the next one has all rights again.
        drop(operator);
        assert!(
            pods(fixture, "crash")
                .iter()
                .all(|[_, _, attempt]| attempt == "1")
        );
        let back = Timestamp::now();
        let _operator = in_place.operator();
        let ready = Timestamp::now();
        let lines = restarted(fixture, "crash", &before);
        let last = lines.iter().max().unwrap();
        eprintln!(
            "second operator ready after {} ms; its start to the last first line of attempt 2: {} ms",
            milliseconds(ready.duration_since(back)),
            milliseconds(last.duration_since(back))
        );
    });
}

#[test]
fn container_ends_where_no_operator_comes_back() {
    on_real_nodes("in-place-gone", |fixture| {
        let in_place = InPlace::new(fixture);
        let operator = in_place.operator();
        in_place.running(&operator, &gang("alone"));
        drop(operator);
        let killed = kill_program("alone-worker-1");
        let path = "go-template={{range .status.containerStatuses}}{{with .state.terminated}}{{.exitCode}}{{end}}{{end}}";
        let code = fixture.wait("the container ends", || {
            let code = fixture.kubectl(&["get", "pod", "alone-worker-1", "--output", path]);
            (!code.is_empty()).then_some(code)
        });
        let held = Timestamp::now().duration_since(killed);
        assert_eq!(code, "137");
        assert!(held > SignedDuration::from_secs(25), "{held:?}");
    });
}

#[test]
fn gang_without_command_restarts_with_new_pods() {
    on_real_nodes("in-place-args", |fixture| {
        let in_place = InPlace::new(fixture);
        let operator = in_place.operator();
        in_place.hooks.until_asked();
        let mut job = gang("plain");
        let container =
            &mut job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
        let words = container
            .as_object_mut()
            .unwrap()
            .remove("command")
            .unwrap();
        container["args"] = words;
        fixture.put(&job);
        fixture.until_status("plain", |status| status["state"] == "Running");
        let before = pods(fixture, "plain");
        kill_program("plain-worker-1");
        fixture.wait("other pods run", || {
            let after = pods(fixture, "plain");
            let other = |[uid, address, _]: &[String; 3]| {
                !address.is_empty() && before.iter().all(|[old, ..]| old != uid)
            };
            (after.len() == WORKERS && after.iter().all(other)).then_some(())
        });
        let said = messages(fixture, "plain");
        let why = "with new pods, because";
        assert!(
            said.iter()
                .any(|it| it.contains(why) && it.contains("has no `command`")),
            "{said:#?}"
        );
        drop(operator);
    });
}

/// Room on the real nodes that only pods of one test ask for, in place of their memory, which is this machine's.
struct Room {
    resource: String,
}

impl Room {
    fn new(fixture: &TestNamespace) -> Self {
        let resource = format!("test.trainyard.dev/{}", fixture.namespace);
        Self { resource }
    }

    fn set(&self, node: &str, count: &Value) {
        let status = self.patch(node, count).status();
        assert!(status.unwrap().success());
    }

    fn patch(&self, node: &str, count: &Value) -> Command {
        let resource = &self.resource;
        let change = json!({"status": {
            "capacity": {resource: count}, "allocatable": {resource: count}}});
        let mut command = Command::new("kubectl");
        command
            .args(["patch", "node", node])
            .args(["--subresource=status", "--type=merge"])
            .arg(format!("--patch={change}"));
        command
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // Also where the test has failed, so this must not.
        for node in NODES {
            drop(self.patch(node, &Value::Null).status());
        }
    }
}

const NODES: [&str; 2] = ["node-a", "node-b"];

/// A kubelet that does nothing, as on a node whose kernel lives, until the value is dropped.
struct Silenced(String);

impl Silenced {
    fn new(node: &str) -> Self {
        let name = format!("--hostname-override={node}");
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut found = processes.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.to_owned();
            let words = fs::read(entry.path().join("cmdline")).ok()?;
            let mut words = words.split(|byte| *byte == 0);
            let kubelet = words.next()?.ends_with(b"kubelet");
            (kubelet && words.any(|word| word == name.as_bytes())).then_some(pid)
        });
        let pid = found
            .next()
            .unwrap_or_else(|| panic!("no kubelet of `{node}`"));
        signal("-STOP", &pid);
        Self(pid)
    }
}

impl Drop for Silenced {
    fn drop(&mut self) {
        signal("-CONT", &self.0);
    }
}

fn signal(name: &str, pid: &str) {
    let sent = Command::new("kill").args([name, pid]).status();
    assert!(sent.unwrap().success());
}

/// The uid and the node of each pod of a job, by index.
fn places(fixture: &TestNamespace, job: &str) -> Vec<[String; 2]> {
    let places = (0..WORKERS).map(|index| {
        let name = format!("{job}-worker-{index}");
        let words = ["get", "pod", &name, "--ignore-not-found", "--output"];
        let path = "jsonpath={.metadata.uid} {.spec.nodeName}";
        let text = fixture.kubectl(&[&words[..], &[path]].concat());
        let (uid, node) = text.split_once(' ').unwrap_or_default();
        [uid.to_owned(), node.to_owned()]
    });
    places.collect()
}

/// The kubelet of one node does not respond, and the other node has room: its pods are kept, those of the silent node are made there.
#[test]
fn pods_of_a_lost_node_alone_are_replaced() {
    alone_on_real_nodes("in-place-node", |fixture| {
        let in_place = InPlace::new(fixture);
        let operator = in_place.operator();
        let room = Room::new(fixture);
        for node in NODES {
            room.set(node, &json!("2"));
        }
        let mut job = gang("moves");
        job["metadata"]["annotations"]["trainyard.dev/lost-after"] = json!("5s");
        let pod = &mut job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"];
        pod["containers"][0]["resources"] = json!({"limits": {&room.resource: "1"}});
        // No new pod goes to a node that does not respond.
        pod["tolerations"] = json!([]);
        in_place.running(&operator, &job);
        let before = places(fixture, "moves");
        let stays = before[0][1].as_str();
        let other = NODES.into_iter().find(|node| *node != stays).unwrap();
        let count = before.iter().filter(|[_, node]| node == other).count();
        assert_eq!(count, 2, "{before:?}");

        room.set(stays, &json!("4"));
        let silenced = Silenced::new(other);
        let silent = Timestamp::now();
        for index in 0..WORKERS {
            let pod = format!("moves-worker-{index}");
            fixture.wait_or(
                || first_line(fixture, &pod, 2),
                || {
                    let (record, messages) = (record(fixture, "moves"), messages(fixture, "moves"));
                    format!(
                        "attempt 2 of `{pod}`: {record:#} {messages:#?} {}",
                        operator.log()
                    )
                },
            );
        }
        eprintln!(
            "silent kubelet to all programs of attempt 2: {} ms; parts: {}",
            milliseconds(Timestamp::now().duration_since(silent)),
            record(fixture, "moves")["lastRestart"]
        );
        let after = places(fixture, "moves");
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(after[1], stays, "{after:?}");
            let kept = before[1] == stays;
            assert_eq!(before[0] == after[0], kept, "{before:?} {after:?}");
        }
        let record = record(fixture, "moves");
        assert_eq!(record["attempt"], 2, "{record:#}");
        let spent = record["spent"].as_object().unwrap();
        let all: u64 = spent.values().filter_map(Value::as_u64).sum();
        assert_eq!(
            (all, &spent["infrastructure"]),
            (1, &json!(1)),
            "{record:#}"
        );
        drop(silenced);
        fixture.wait("the node is back", || {
            let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
            (kubectl(&["get", "node", other, "--output", path]) == "True").then_some(())
        });
    });
}
