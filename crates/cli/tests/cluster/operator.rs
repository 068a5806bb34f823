//! Operators as processes, each under the rights that `deploy/` gives it and no others.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use trainyard_kube::rights::{self, Place};

use crate::namespace::{PROGRAM, TestNamespace};

/// An operator that lives as long as this value.
pub(crate) struct Operator {
    child: Child,
    log: PathBuf,
}

impl Drop for Operator {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Operator {
    /// Asks it to end in order, and waits until it has.
    pub(crate) fn stop(mut self) {
        let pid = self.child.id().to_string();
        let asked = Command::new("kill").args(["-s", "TERM", &pid]).status();
        assert!(asked.unwrap().success());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// What it has written, a JSON object a line.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The lines of its log whose message is `message`.
    pub(crate) fn said(&self, message: &str) -> Vec<Value> {
        let log = self.log();
        // The last line may be half written.
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        lines
            .filter(|line: &Value| line["message"] == message)
            .collect()
    }

    /// The port on which it serves `what`, once it does.
    pub(crate) fn port(&self, what: &str) -> Option<u16> {
        let lines = self.said("Listening");
        let line = lines.iter().find(|line| line["what"] == what)?;
        let (_, port) = line["address"].as_str()?.rsplit_once(':')?;
        port.parse().ok()
    }

    /// What it answers to a question over plain HTTP, head and body; nothing while it does not.
    pub(crate) fn ask(&self, what: &str, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port(what)?)).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .ok()?;
        let question =
            format!("GET {path} HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n");
        stream.write_all(question.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// Whether it says that it is ready.
    pub(crate) fn is_ready(&self) -> bool {
        let answer = self.ask("health", "/readyz").unwrap_or_default();
        answer.starts_with("HTTP/1.1 200")
    }
}

/// How much an operator may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum May {
    /// All that it is installed with.
    Act,
    /// Only look, as in shadow.
    Look,
}

impl TestNamespace {
    /// The operator of the namespace.
    pub(crate) fn operator(&self) -> Operator {
        self.operator_with(May::Act, &["--no-leader-elect"])
    }

    /// An operator of the namespace that may do as much as `may`, with further `arguments`, once it is
    /// ready.
    pub(crate) fn operator_with(&self, may: May, arguments: &[&str]) -> Operator {
        let kubeconfig = self.account(may);
        let log = self.new_file("operator.log");
        let child = Command::new(PROGRAM)
            .args(["operator", "--log-format=json", "--watch-nodes"])
            // Its account has the rights for it; see below.
            .arg("--mpi-launcher-rights")
            .args(["--health-bind=127.0.0.1:0", "--namespace", &self.namespace])
            .args(["--lease-namespace", &self.namespace, "--kubeconfig"])
            .arg(kubeconfig)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut operator = Operator { child, log };
        self.wait("the operator is ready", || {
            let ended = operator.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", operator.log());
            operator.is_ready().then_some(())
        });
        operator
    }

    /// Makes the account of an operator; returns the kubeconfig that it acts with.
    fn account(&self, may: May) -> PathBuf {
        let reads = may == May::Look;
        // Some of its roles are in no namespace, or in one that others share.
        let name = format!("{}-{may:?}", self.namespace).to_lowercase();
        let rules = |places: &[Place]| -> Vec<Value> {
            let rights = rights::OPERATOR
                .iter()
                .filter(|right| places.contains(&right.place));
            rights
                .filter_map(|right| {
                    if reads {
                        right.reading_rule()
                    } else {
                        Some(right.rule())
                    }
                })
                .collect()
        };
        let group = "rbac.authorization.k8s.io";
        let role = |kind: &str, place: Value, places: &[Place]| {
            let api_version = format!("{group}/v1");
            let metadata = json!({"name": name, "namespace": place});
            [
                json!({"apiVersion": api_version, "kind": kind, "metadata": metadata,
                    "rules": rules(places)}),
                json!({"apiVersion": api_version, "kind": format!("{kind}Binding"),
                    "metadata": metadata,
                    "roleRef": {"apiGroup": group, "kind": kind, "name": name},
                    "subjects": [{"kind": "ServiceAccount", "name": name,
                        "namespace": self.namespace}]}),
            ]
        };
        let own = json!(self.namespace);
        let mut objects = vec![json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": own}})];
        objects.extend(role(
            "Role",
            own,
            &[Place::Own, Place::Jobs, Place::Launchers, Place::TrainJobs],
        ));
        objects.extend(role("Role", json!("kube-node-lease"), &[Place::NodeLeases]));
        objects.extend(role(
            "ClusterRole",
            Value::Null,
            &[
                Place::Nodes,
                Place::Marks,
                Place::Webhooks,
                Place::Pushes,
                Place::TrainRuntimes,
            ],
        ));
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}));
        let token = self.kubectl(&["create", "token", &name, "--duration=1h"]);
        let config = self.kubectl(&["config", "view", "--raw", "--output=json"]);
        let mut config: Value = serde_json::from_str(&config).unwrap();
        for user in config["users"].as_array_mut().unwrap() {
            user["user"] = json!({"token": token.trim()});
        }
        let path = self.new_file("kubeconfig");
        fs::write(&path, config.to_string()).unwrap();
        path
    }
}
