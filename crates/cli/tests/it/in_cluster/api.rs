//! A small API server: lists and watches of what a test puts, logs, and reviews of the tokens `token-NAME`.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
};

use serde_json::{Value, json};

#[derive(Default)]
struct World {
    /// Every object that was put, with the path of its list, in order: the version is its place.
    puts: Vec<(String, Value)>,
    log: String,
    /// Path and token of each request.
    calls: Vec<String>,
    fails_reviews: bool,
    /// Requests with one of these in their path are forbidden.
    forbidden: Vec<String>,
}

impl World {
    /// The object at the path of one.
    fn called(&self, path: &str) -> Option<String> {
        let (list, name) = path.rsplit_once('/')?;
        let mut puts = self.puts.iter().rev();
        let is = |(of, object): &&(String, Value)| of == list && object["metadata"]["name"] == name;
        puts.find(is).map(|(_, object)| object.to_string())
    }
}

/// The server.
#[derive(Clone)]
pub(crate) struct Api {
    address: SocketAddr,
    shared: Arc<(Mutex<World>, Condvar)>,
}

/// A job that has ended, so that the same question has the same answer at any time.
pub(crate) fn job(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-11-18T10:00:00Z"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "restartPolicy": "Never",
            "template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}}}},
        "status": {"startTime": "2026-11-18T10:00:01Z", "completionTime": "2026-11-18T10:01:00Z",
            "conditions": [{"type": "Succeeded", "status": "True", "reason": "r", "message": "m",
                "lastUpdateTime": "2026-11-18T10:01:00Z", "lastTransitionTime": "2026-11-18T10:01:00Z"}]},
    })
}

/// Its pod, which runs on `node` and holds accelerators there.
pub(crate) fn pod(namespace: &str, job: &str, node: &str) -> Value {
    let name = format!("{job}-worker-0");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-11-18T10:00:01Z",
            "labels": {"training.kubeflow.org/job-name": job, "training.kubeflow.org/operator-name": "pytorchjob-controller",
                "training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"},
            "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job,
                "uid": format!("uid-{job}"), "controller": true}]},
        "spec": {"nodeName": node, "containers": [{"name": "pytorch", "image": "i",
            "resources": {"requests": {"nvidia.com/gpu": "4"}, "limits": {"nvidia.com/gpu": "4"}}}]},
        "status": {"phase": "Running", "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-18T10:00:02Z"},
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-11-18T10:00:03Z"}],
            "containerStatuses": [{"name": "pytorch", "ready": true, "restartCount": 0, "image": "i", "imageID": "",
                "state": {"running": {"startedAt": "2026-11-18T10:00:03Z"}}}]},
    })
}

impl Api {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let api = Self {
            address: listener.local_addr().expect("it listens"),
            shared: Arc::default(),
        };
        let server = api.clone();
        // It ends with the process of the tests.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                thread::spawn(move || server.talk(stream));
            }
        });
        api
    }

    /// What reaches it, with a token.
    pub(crate) fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{token: the-dashboards-own}}}}]\ncurrent-context: c\n",
            self.address
        )
    }

    /// Requests with `part` in their path are forbidden from now on.
    pub(crate) fn forbid(&self, part: &str) {
        self.with(|world| world.forbidden.push(part.to_owned()));
    }

    fn with<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut world);
        self.shared.1.notify_all();
        changed
    }

    /// Creates or changes an object of the list at `path`.
    pub(crate) fn put(&self, path: &str, object: &Value) {
        self.with(|world| {
            let mut object = object.clone();
            object["metadata"]["resourceVersion"] = json!((world.puts.len() + 1).to_string());
            world.puts.push((path.to_owned(), object));
        });
    }

    pub(crate) fn log(&self, text: &str) {
        self.with(|world| world.log = format!("2026-11-18T10:00:04Z {text}\n"));
    }

    /// No review is made from now on.
    pub(crate) fn fail_reviews(&self) {
        self.with(|world| world.fails_reviews = true);
    }

    /// Requests with `part` in their path, each with what it was authorized with behind it.
    pub(crate) fn calls(&self, part: &str) -> Vec<String> {
        self.with(|world| {
            let calls = world.calls.iter();
            let is = |call: &&String| {
                call.split(' ')
                    .next()
                    .is_some_and(|path| path.contains(part))
            };
            calls.filter(is).cloned().collect()
        })
    }

    /// Answers the requests of one connection.
    fn talk(&self, stream: TcpStream) {
        let Ok(mut out) = stream.try_clone() else {
            return;
        };
        let mut input = BufReader::new(stream);
        loop {
            let (mut first, mut token, mut length) = (String::new(), String::new(), 0);
            loop {
                let mut line = String::new();
                if input.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                let line = line.trim_end();
                if line.is_empty() {
                    break;
                }
                match line.split_once(": ") {
                    _ if first.is_empty() => line.clone_into(&mut first),
                    Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                        value.clone_into(&mut token);
                    }
                    Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                        length = value.parse().unwrap_or(0);
                    }
                    _ => {}
                }
            }
            let mut body = vec![0; length];
            if input.read_exact(&mut body).is_err() {
                return;
            }
            let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            self.with(|world| world.calls.push(format!("{path} {token}")));
            if query.split('&').any(|pair| pair.starts_with("watch=")) {
                self.watch(&mut out, path, query);
                return;
            }
            let (status, text) = self.answer(path, &body);
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                text.len()
            );
            if out.write_all(format!("{head}{text}").as_bytes()).is_err() {
                return;
            }
        }
    }

    fn answer(&self, path: &str, body: &[u8]) -> (u16, String) {
        let asked: Value = serde_json::from_slice(body).unwrap_or_default();
        let refused = |code: u16, reason: &str| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": reason, "reason": reason, "code": code});
            (code, status.to_string())
        };
        if self.with(|world| {
            world
                .forbidden
                .iter()
                .any(|part| path.contains(part.as_str()))
        }) {
            return refused(403, "Forbidden");
        }
        if path.ends_with("reviews") && self.with(|world| world.fails_reviews) {
            return refused(500, "InternalError");
        }
        if path.ends_with("/tokenreviews") {
            let token = asked["spec"]["token"].as_str().unwrap_or_default();
            let user = token.strip_prefix("token-");
            let status = json!({"authenticated": user.is_some(), "user": {"username": user, "groups": ["g"]}});
            return (201, with_status(asked.clone(), status));
        }
        if path.ends_with("/subjectaccessreviews") {
            let status = json!({"allowed": may(&asked["spec"])});
            return (201, with_status(asked, status));
        }
        if path.ends_with("/log") {
            return (200, self.with(|world| world.log.clone()));
        }
        let is_list = ["jobs", "pods", "nodes", "events"]
            .iter()
            .any(|it| path.ends_with(it))
            || self.with(|world| world.puts.iter().any(|(of, _)| of == path));
        if !is_list {
            let object = self.with(|world| world.called(path));
            return object.map_or_else(|| refused(404, "NotFound"), |it| (200, it));
        }
        self.with(|world| {
            let mut items: Vec<&Value> = Vec::new();
            for (of, object) in world.puts.iter().filter(|(of, _)| of == path) {
                items.retain(|it| it["metadata"]["uid"] != object["metadata"]["uid"]);
                items.push(object);
                assert_eq!(of, path);
            }
            let version = world.puts.len().to_string();
            let list = json!({"kind": "List", "apiVersion": "v1",
                "metadata": {"resourceVersion": version}, "items": items});
            (200, list.to_string())
        })
    }

    /// Sends what is put to a list, without end.
    fn watch(&self, out: &mut TcpStream, path: &str, query: &str) {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        let version = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("resourceVersion="));
        let mut from: usize = version.and_then(|it| it.parse().ok()).unwrap_or(0);
        let mut text = head.to_owned();
        loop {
            if out.write_all(text.as_bytes()).is_err() {
                return;
            }
            text.clear();
            let world = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self
                .shared
                .1
                .wait_while(world, |world| world.puts.len() <= from);
            let world = waited.unwrap_or_else(PoisonError::into_inner);
            for (place, (of, object)) in world.puts.iter().enumerate().skip(from) {
                if of != path {
                    continue;
                }
                let is =
                    |(_, it): &&(String, Value)| it["metadata"]["uid"] == object["metadata"]["uid"];
                let is_new = !world.puts.iter().take(place).any(|it| is(&it));
                let kind = if is_new { "ADDED" } else { "MODIFIED" };
                let line = format!("{}\n", json!({"type": kind, "object": object}));
                let length = format!("{:x}", line.len());
                text.extend([length.as_str(), "\r\n", &line, "\r\n"]);
            }
            from = world.puts.len();
        }
    }
}

fn with_status(mut review: Value, status: Value) -> String {
    review["status"] = status;
    review.to_string()
}

/// Whether a user may do what a review asks.
fn may(spec: &Value) -> bool {
    let of = |key: &str| spec["resourceAttributes"][key].as_str().unwrap_or_default();
    let (namespace, resource) = (of("namespace"), of("resource"));
    let lists = of("verb") == "list" && of("group") == "kubeflow.org";
    let reads = of("verb") == "get" && resource == "pods" && of("subresource") == "log";
    match spec["user"].as_str().unwrap_or_default() {
        "a" => namespace == "team-a" && (lists || reads),
        "b" => namespace == "team-b" && (lists || reads),
        "list" => namespace == "team-a" && lists,
        "nodes" => of("verb") == "list" && resource == "nodes",
        "all" => true,
        _ => false,
    }
}
