//! As much of an API server as an operator needs to run jobs, in memory: objects, watches, status writes and logs.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::broadcast;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Lines that every pod prints in a second; each reports a step.
const LINES_A_SECOND: f64 = 10.0;
const NAMESPACE: &str = "bench";

/// The API.
pub(crate) struct Api {
    began: Timestamp,
    state: Mutex<State>,
    changes: broadcast::Sender<Change>,
}

#[derive(Default)]
struct State {
    /// By path of the resource and name.
    objects: BTreeMap<(String, String), Value>,
    version: u64,
    reads: VecDeque<Instant>,
    patches: u64,
}

#[derive(Clone)]
struct Change {
    resource: String,
    kind: &'static str,
    object: Value,
}

impl Api {
    pub(crate) fn new() -> Self {
        Self {
            began: Timestamp::now(),
            state: Mutex::default(),
            changes: broadcast::channel(65_536).0,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Stores a job of one pod.
    pub(crate) fn add_job(&self, name: &str) {
        let job = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "restartPolicy": "OnFailure", "template": {
                "spec": {"containers": [{"name": "pytorch", "image": "test", "command": ["train"]}]}}}}}});
        self.store("pytorchjobs", job, "ADDED");
    }

    /// How old a step is that a pod printed.
    pub(crate) fn age_of_step(&self, step: f64) -> f64 {
        let passed = Timestamp::now().duration_since(self.began).as_secs_f64();
        passed - step / LINES_A_SECOND
    }

    pub(crate) fn forget_reads(&self) {
        self.state().reads.clear();
    }

    /// Reads of logs, and the most within one second.
    pub(crate) fn reads(&self) -> (usize, usize) {
        let state = self.state();
        let mut busiest = 0;
        let mut first = 0;
        for (last, at) in state.reads.iter().enumerate() {
            while at.duration_since(state.reads[first]) >= Duration::from_secs(1) {
                first += 1;
            }
            busiest = busiest.max(last - first + 1);
        }
        (state.reads.len(), busiest)
    }

    /// Writes of statuses.
    pub(crate) fn patches(&self) -> u64 {
        self.state().patches
    }

    pub(crate) async fn serve(self: Arc<Self>, listener: std::net::TcpListener) {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        while let Ok((socket, _)) = listener.accept().await {
            let api = Arc::clone(&self);
            let service = hyper::service::service_fn(move |request| {
                let api = Arc::clone(&api);
                async move { Ok::<_, Infallible>(api.answer(request).await) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service);
            tokio::spawn(connection);
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let asks = |key: &str| {
            let mut words = query.split('&');
            words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
        };
        let path = parts.uri.path();
        let words: Vec<&str> = path.trim_matches('/').split('/').collect();
        // The words behind the group and version, without the namespace.
        let rest = match words.first() {
            Some(&"api") => &words[2.min(words.len())..],
            _ => &words[3.min(words.len())..],
        };
        let rest = rest
            .strip_prefix(&["namespaces"])
            .map_or(rest, |rest| rest.get(1..).unwrap_or_default());
        match (&parts.method, rest) {
            (&Method::GET, [resource]) if asks("watch").is_some() => self.watch(resource),
            (&Method::GET, [resource]) => self.list(resource),
            (&Method::GET, ["pods", _, "log"]) => {
                let lines = asks("tailLines").and_then(|lines| lines.parse().ok());
                self.state().reads.push_back(Instant::now());
                whole(StatusCode::OK, self.log(lines.unwrap_or(10)))
            }
            (&Method::GET, [resource, name]) => self.get(resource, name),
            (&Method::POST, [resource]) => {
                let object = serde_json::from_slice(&body).unwrap();
                let made = self.store(resource, object, "ADDED");
                whole(StatusCode::CREATED, made.to_string())
            }
            (&Method::PATCH, [resource, name, "status"]) => {
                let operations: Value = serde_json::from_slice(&body).unwrap();
                self.patch_status(resource, name, &operations)
            }
            _ => {
                let text = json!({"kind": "Status", "status": "Failure", "code": 404,
                    "reason": "NotFound", "message": path});
                whole(StatusCode::NOT_FOUND, text.to_string())
            }
        }
    }

    fn store(&self, resource: &str, mut object: Value, kind: &'static str) -> Value {
        let mut state = self.state();
        state.version += 1;
        let version = state.version;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let key = (resource.to_owned(), name.to_owned());
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        object["metadata"]["resourceVersion"] = version.to_string().into();
        if kind == "ADDED" {
            object["metadata"]["uid"] = format!("uid-{version}").into();
            object["metadata"]["creationTimestamp"] = now.as_str().into();
            object["metadata"]["namespace"] = NAMESPACE.into();
        }
        if kind == "ADDED" && resource == "pods" {
            object["spec"]["nodeName"] = format!("node-{}", version % 200).into();
            let container = &object["spec"]["containers"][0]["name"];
            let running = json!([{"name": container, "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": now}}}]);
            object["status"] = json!({"phase": "Running", "containerStatuses": running, "conditions": [
                {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]});
        }
        if resource != "events" {
            state.objects.insert(key, object.clone());
            let change = Change {
                resource: resource.to_owned(),
                kind,
                object: object.clone(),
            };
            drop(self.changes.send(change));
        }
        object
    }

    fn get(&self, resource: &str, name: &str) -> Response<Body> {
        let key = (resource.to_owned(), name.to_owned());
        let found = self.state().objects.get(&key).cloned();
        match found {
            Some(object) => whole(StatusCode::OK, object.to_string()),
            None => whole(
                StatusCode::NOT_FOUND,
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
                    "message": name})
                .to_string(),
            ),
        }
    }

    fn list(&self, resource: &str) -> Response<Body> {
        let state = self.state();
        let objects = state.objects.iter().filter(|((of, _), _)| of == resource);
        let items: Vec<&Value> = objects.map(|(_, object)| object).collect();
        let list = json!({"kind": "List", "apiVersion": "v1", "items": items,
            "metadata": {"resourceVersion": state.version.to_string()}});
        whole(StatusCode::OK, list.to_string())
    }

    fn watch(&self, resource: &str) -> Response<Body> {
        // What is stored between the list and now comes first.
        let (changes, events) = {
            let state = self.state();
            let objects = state.objects.iter().filter(|((of, _), _)| of == resource);
            let events: Vec<Value> = objects
                .map(|(_, object)| json!({"type": "MODIFIED", "object": object}))
                .collect();
            (self.changes.subscribe(), events)
        };
        let resource = resource.to_owned();
        let first = futures::stream::iter(events);
        let later = futures::stream::unfold(changes, move |mut changes| {
            let resource = resource.clone();
            async move {
                loop {
                    let change = changes.recv().await.ok()?;
                    if change.resource == resource {
                        let event = json!({"type": change.kind, "object": change.object});
                        return Some((event, changes));
                    }
                }
            }
        });
        let frames = first
            .chain(later)
            .map(|event| Ok(Frame::data(Bytes::from(format!("{event}\n")))));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    fn patch_status(&self, resource: &str, name: &str, operations: &Value) -> Response<Body> {
        let key = (resource.to_owned(), name.to_owned());
        let mut operations = operations.as_array().into_iter().flatten();
        let status = operations.find(|operation| operation["path"] == "/status");
        let object = self.state().objects.get(&key).cloned();
        let (Some(status), Some(mut object)) = (status, object) else {
            return self.get(resource, name);
        };
        object["status"] = status["value"].clone();
        self.state().patches += 1;
        let stored = self.store(resource, object, "MODIFIED");
        whole(StatusCode::OK, stored.to_string())
    }

    /// The last lines that a pod printed until now.
    fn log(&self, lines: u64) -> String {
        let passed = Timestamp::now().duration_since(self.began).as_secs_f64();
        let last = (passed * LINES_A_SECOND) as u64;
        let mut text = String::new();
        for step in last.saturating_sub(lines - 1)..=last {
            let millis = (step as f64 / LINES_A_SECOND * 1_000.0) as i64;
            let at = self.began + jiff::SignedDuration::from_millis(millis);
            let stamp = at.strftime("%Y-%m-%dT%H:%M:%S.%9fZ");
            let loss = 2.5 - (step % 1_000) as f64 / 1_000.0;
            writeln!(text, "{stamp} step: {step}  loss: {loss:.4}  grad_norm: 1.2034  memory: 41.55GiB(52.1%)  tps: 5,132  tflops: 301.2  mfu: 30.5%").unwrap();
        }
        text
    }
}

fn whole(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, json);
    response
}
