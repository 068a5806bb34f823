//! `trainyard dashboard --cluster`, asked over its own connection.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    hooks, installed, job,
    namespace::{PROGRAM, TestNamespace, alone_on_real_nodes, on_cluster, on_real_nodes},
    on_nodes,
};

/// A request is answered within this time, or the test fails.
const ANSWERS_WITHIN: Duration = Duration::from_mins(1);

/// A dashboard that runs.
struct Served {
    child: Child,
    host: String,
    token: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Served {
    /// Shows the namespace of the test, with the rights of `kubeconfig` or of an administrator.
    fn start(fixture: &TestNamespace, kubeconfig: Option<&Path>) -> Self {
        let mut command = Command::new(PROGRAM);
        command
            .args(["dashboard", "--format", "json", "--cluster", "-n"])
            .arg(&fixture.namespace);
        if let Some(path) = kubeconfig {
            command.arg("--kubeconfig").arg(path);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut text = String::new();
        // The object ends with the first line that begins with `}`.
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            text.push_str(&line);
            if line.starts_with('}') {
                break;
            }
        }
        let address: Value = serde_json::from_str(&text).unwrap();
        let url = address["url"].as_str().unwrap();
        let host = url.trim_start_matches("http://").trim_end_matches('/');
        Self {
            child,
            host: host.to_owned(),
            token: address["token"].as_str().unwrap().to_owned(),
        }
    }

    /// The status and the document of an answer.
    fn ask(&self, path: &str) -> (u16, Value) {
        ask(&self.host, &self.token, path)
    }

    fn get(&self, path: &str) -> Value {
        let (status, document) = self.ask(path);
        assert_eq!(status, 200, "{path}: {document:#}");
        document
    }

    /// Waits until a row of the list is as `wanted`.
    fn until_row(
        &self,
        fixture: &TestNamespace,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        fixture.wait(what, || {
            let jobs = self.get("jobs");
            let mut rows = jobs["rows"].as_array().unwrap().iter();
            rows.find(|row| wanted(row)).cloned()
        })
    }
}

/// The status and the document that a dashboard answers to whoever has `token`.
fn ask(host: &str, token: &str, path: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(ANSWERS_WITHIN)).unwrap();
    let request = format!(
        "GET /api/v1/{path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let status = reply.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = reply.split_once("\r\n\r\n").unwrap();
    let document = serde_json::from_str(body);
    (
        status,
        document.unwrap_or_else(|error| panic!("{error}: {reply}")),
    )
}

#[test]
fn a_job_appears_on_the_pages_of_a_dashboard() {
    on_cluster("dashboard", |fixture| {
        let _operator = fixture.operator();
        let served = Served::start(fixture, None);
        assert_eq!(served.get("about")["mode"], "cluster");
        fixture.put(&job("good"));
        let is_up = |row: &Value| row["job"] == "good" && row["state"] == "running";
        let row = served.until_row(fixture, "the row says that it runs", is_up);
        assert_eq!(row["ranks"], 3, "{row:#}");
        let id = row["id"].as_str().unwrap();
        let top = fixture.trainyard(&["top", "--once"]);
        assert!(top.stdout.contains("\n running    good "), "{top:?}");

        let shown = served.get(&format!("jobs/{}/good", fixture.namespace));
        assert_eq!(shown["run"], id, "{shown:#}");
        let status = fixture.trainyard(&["status", "good", "--format", "json"]);
        assert_eq!(
            shown["status"]["attempts"],
            status.json()["attempts"],
            "{shown:#}"
        );
        let seats = fixture.wait("all pods have a node", || {
            let seats = served.get(&format!("runs/{id}/seats"));
            let nodes = seats["nodes"].as_array().unwrap().iter();
            let pods = nodes.map(|node| node["pods"].as_array().unwrap().len());
            (pods.sum::<usize>() == 3).then_some(seats)
        });
        assert_eq!(seats["run"], id, "{seats:#}");
        for part in [
            "strip",
            "ledger",
            "verdicts",
            "events",
            "checkpoints",
            "series",
        ] {
            let document = served.get(&format!("runs/{id}/{part}"));
            assert_eq!(document["run"], id, "{part}: {document:#}");
        }
        let spec = served.get(&format!("runs/{id}/spec"));
        assert_eq!(spec["spec"]["metadata"]["name"], "good");
        assert!(!spec.to_string().contains("managedFields"), "{spec:#}");
        assert_eq!(served.get("queue")["version"], 1);
        assert_eq!(served.get("failures")["version"], 1);
        let nodes = served.get("nodes");
        assert!(nodes["cluster"]["nodes"].as_u64() > Some(0), "{nodes:#}");

        fixture.kubectl(&["delete", "pytorchjob", "good"]);
        fixture.wait("the row is gone", || {
            let rows = served.get("jobs")["rows"].take();
            rows.as_array().unwrap().is_empty().then_some(())
        });
    });
}

#[test]
fn logs_of_real_pods_are_on_the_page() {
    on_real_nodes("dashboard-logs", |fixture| {
        let _operator = fixture.operator();
        fixture.put(&on_nodes("talks", "echo hello from $HOSTNAME; sleep 600"));
        let served = Served::start(fixture, None);
        let row = served.until_row(fixture, "the job runs", |row| row["state"] == "running");
        let id = row["id"].as_str().unwrap();
        fixture.wait("its line is shown", || {
            let (status, logs) = served.ask(&format!("runs/{id}/logs?rank=1"));
            let text = logs["lines"][0]["text"].as_str().unwrap_or_default();
            (status == 200 && text.contains("hello from talks-worker-1")).then_some(())
        });
        let folded = served.get(&format!("runs/{id}/logs/folded"));
        assert!(folded.to_string().contains("hello from"), "{folded:#}");
    });
}

#[test]
fn a_limited_user_gets_words_on_the_pages() {
    on_cluster("dashboard-limited", |fixture| {
        fixture.put(&job("seen"));
        let name = "reader";
        let group = "rbac.authorization.k8s.io";
        let metadata = json!({"name": name, "namespace": fixture.namespace});
        let objects = json!([
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
            {"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata,
                "rules": [{"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"],
                    "verbs": ["get", "list", "watch"]}]},
            {"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name,
                    "namespace": fixture.namespace}]},
        ]);
        fixture.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}));
        let token = fixture.kubectl(&["create", "token", name, "--duration=1h"]);
        let config = fixture.kubectl(&["config", "view", "--raw", "--output=json"]);
        let mut config: Value = serde_json::from_str(&config).unwrap();
        for user in config["users"].as_array_mut().unwrap() {
            user["user"] = json!({"token": token.trim()});
        }
        let path = fixture.new_file("kubeconfig");
        fs::write(&path, config.to_string()).unwrap();

        let served = Served::start(fixture, Some(&path));
        let row = served.until_row(fixture, "the job is listed", |row| row["job"] == "seen");
        let id = row["id"].as_str().unwrap();
        let jobs = served.get("jobs");
        let unread = jobs["unreadable"].to_string();
        assert!(
            unread.contains("cannot list pods") && unread.contains("administrator"),
            "{jobs:#}"
        );
        assert!(!unread.contains(token.trim()), "no credentials: {unread}");
        let shown = served.get(&format!("jobs/{}/seen", fixture.namespace));
        assert!(shown["notes"].to_string().contains("pods"), "{shown:#}");
        served.get(&format!("runs/{id}/ledger"));
        let (status, nodes) = served.ask("nodes");
        assert_eq!(
            (status, nodes["error"]["code"].as_str()),
            (404, Some("notHere")),
            "{nodes:#}"
        );
        let message = nodes["error"]["message"].as_str().unwrap();
        assert!(message.contains("cannot list nodes"), "{message}");
    });
}

/// The dashboard of the chart, asked at the address of its pod.
struct Installed {
    host: String,
}

impl Installed {
    /// The pod that is ready.
    fn find(fixture: &TestNamespace) -> Self {
        let host = fixture.wait("the pod of the dashboard is ready", || {
            let pods = fixture.kubectl(&[
                "get",
                "pods",
                "--selector=app.kubernetes.io/component=dashboard",
                "--output=json",
            ]);
            let pods: Value = serde_json::from_str(&pods).unwrap();
            let status = &pods["items"][0]["status"];
            let is_ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
            let mut conditions = status["conditions"].as_array()?.iter();
            conditions.any(is_ready).then_some(())?;
            let address = status["podIP"].as_str()?;
            Some(format!("{address}:8265"))
        });
        Self { host }
    }

    fn ask(&self, token: &str, path: &str) -> (u16, Value) {
        ask(&self.host, token, path)
    }
}

/// A user with the rights to see the jobs and logs of one namespace; his token.
fn user(fixture: &TestNamespace) -> String {
    let name = "viewer";
    let group = "rbac.authorization.k8s.io";
    let metadata = json!({"name": name, "namespace": fixture.namespace});
    let objects = json!([
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [
                {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["list"]},
                {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}]},
        {"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name,
                "namespace": fixture.namespace}]},
    ]);
    fixture.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}));
    let token = fixture.kubectl(&["create", "token", name, "--duration=1h"]);
    token.trim().to_owned()
}

#[test]
fn installed_dashboard_shows_each_user_his_namespace() {
    alone_on_real_nodes("dashboard-installed", |fixture| {
        let _hooks = hooks::alone(fixture);
        installed::install_chart(fixture, &["--set=dashboard.enabled=true"]);
        let teams = ["team-a", "team-b"].map(|name| fixture.beside(name));
        let tokens = [user(&teams[0]), user(&teams[1])];
        for (team, name) in teams.iter().zip(["of-a", "of-b"]) {
            let script = format!("echo hello from {name}; sleep 600");
            team.put(&on_nodes(name, &script));
        }
        let installed = Installed::find(fixture);
        let (status, refused) = installed.ask("nobodys", "jobs");
        assert_eq!(status, 401, "{refused:#}");
        let mut ids = Vec::new();
        for (token, own) in tokens.iter().zip(["of-a", "of-b"]) {
            let row = fixture.wait("his job is listed, and runs", || {
                let (status, jobs) = installed.ask(token, "jobs");
                assert_eq!(status, 200, "{jobs:#}");
                let rows = jobs["rows"].as_array().unwrap();
                assert!(rows.len() <= 1, "{jobs:#}");
                let row = rows.first()?;
                assert_eq!(row["job"], own, "{jobs:#}");
                (row["state"] == "running").then(|| row.clone())
            });
            ids.push(row["id"].as_str().unwrap().to_owned());
        }
        for (team, token) in tokens.iter().enumerate() {
            let (own, other) = (&ids[team], &ids[1 - team]);
            let hello = ["hello from of-a", "hello from of-b"][team];
            fixture.wait("he reads his log", || {
                let (status, logs) = installed.ask(token, &format!("runs/{own}/logs"));
                (status == 200 && logs.to_string().contains(hello)).then_some(())
            });
            for path in ["ledger", "logs", "seats", "spec"] {
                let (status, document) = installed.ask(token, &format!("runs/{other}/{path}"));
                assert_eq!(status, 404, "{path}: {document:#}");
            }
            let (status, seats) = installed.ask(token, &format!("runs/{own}/seats"));
            assert_eq!(status, 200, "{seats:#}");
            assert!(seats.to_string().contains("hidden-node-"), "{seats:#}");
            assert_eq!(installed.ask(token, "nodes").0, 404);
        }
        // The account of the dashboard may read no log and no Secret.
        let account = format!(
            "system:serviceaccount:{}:trainyard-dashboard",
            fixture.namespace
        );
        for words in [
            ["get", "pods", "--subresource=log"].as_slice(),
            &["get", "secrets"],
            &["impersonate", "users"],
            &["create", "pods"],
        ] {
            let may = Command::new("kubectl")
                .args(["auth", "can-i", "--as", &account])
                .args(words)
                .args(["--namespace", &teams[0].namespace])
                .output()
                .unwrap();
            assert!(may.stdout.starts_with(b"no"), "{words:?}: {may:?}");
        }
        installed::uninstall_chart(fixture);
        for team in &teams {
            team.clear();
        }
    });
}
