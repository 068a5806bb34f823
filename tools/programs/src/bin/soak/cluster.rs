//! The cluster around the run: calls that may go unanswered, its programs, and the operator's account.

use std::{
    fs,
    future::Future,
    io::{self, Seek as _},
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use trainyard_kube::{crd::SERVICE, rights};

/// Group, version, kind and plural.
pub(crate) type Resource = [&'static str; 4];
pub(crate) const POD: Resource = ["", "v1", "Pod", "pods"];
pub(crate) const NODE: Resource = ["", "v1", "Node", "nodes"];
pub(crate) const JOBS: [Resource; 6] = [
    ["kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"],
    ["kubeflow.org", "v1", "TFJob", "tfjobs"],
    ["kubeflow.org", "v1", "MPIJob", "mpijobs"],
    ["kubeflow.org", "v1", "XGBoostJob", "xgboostjobs"],
    ["kubeflow.org", "v1", "PaddleJob", "paddlejobs"],
    ["kubeflow.org", "v1", "JAXJob", "jaxjobs"],
];
const RBAC: &str = "rbac.authorization.k8s.io";
/// The namespace of the operators.
const OWN: &str = "trainyard-system";
/// Nobody waits longer for one answer: the API server stands still at times.
const ANSWER: Duration = Duration::from_secs(8);
/// By then the script of a program has written its number, on however busy a machine. A second start before that would leave two.
const NUMBERED: Duration = Duration::from_mins(1);
/// What is copied of the end of each log of the cluster.
const KEPT_BYTES: u64 = 1 << 20;

/// What came of a call.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Ok(T),
    /// The API server refused, with this code.
    Refused(u16, String),
    /// No answer: the call may or may not have been carried out.
    None,
}

/// The answer to `call`, which is waited for only so long.
pub(crate) async fn ask<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Answer<T> {
    match tokio::time::timeout(ANSWER, call).await {
        Ok(Ok(value)) => Answer::Ok(value),
        Ok(Err(kube::Error::Api(status))) if status.code < 500 && status.code != 429 => {
            Answer::Refused(status.code, status.message.clone())
        }
        // An API server that has just started, or that has lost etcd, answers with 5xx.
        Ok(Err(_)) | Err(_) => Answer::None,
    }
}

pub(crate) fn api(client: &Client, of: &Resource, namespace: Option<&str>) -> Api<DynamicObject> {
    let [group, version, kind, plural] = of;
    let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    (*plural).clone_into(&mut resource.plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// All objects of a kind as values; nothing where nobody answers.
pub(crate) async fn list(
    client: &Client,
    of: &Resource,
    namespace: Option<&str>,
    labels: &str,
) -> Option<Vec<Value>> {
    let params = ListParams::default().labels(labels);
    match ask(api(client, of, namespace).list(&params)).await {
        Answer::Ok(found) => found
            .items
            .into_iter()
            .map(|item| serde_json::to_value(item).ok())
            .collect(),
        Answer::Refused(..) | Answer::None => None,
    }
}

/// Creates an object; one that is there already is as good.
pub(crate) async fn create(
    client: &Client,
    of: &Resource,
    namespace: Option<&str>,
    object: Value,
) -> Answer<()> {
    let [group, version, kind, _] = of;
    let mut object = object;
    object["apiVersion"] = match *group {
        "" => json!(version),
        group => json!(format!("{group}/{version}")),
    };
    object["kind"] = json!(kind);
    let object = match serde_json::from_value(object) {
        Ok(object) => object,
        Err(error) => return Answer::Refused(400, error.to_string()),
    };
    match ask(api(client, of, namespace).create(&PostParams::default(), &object)).await {
        Answer::Ok(_) | Answer::Refused(409, _) => Answer::Ok(()),
        Answer::Refused(code, message) => Answer::Refused(code, message),
        Answer::None => Answer::None,
    }
}

/// One of the long-running programs of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    state: PathBuf,
    name: &'static str,
}

impl Piece {
    pub(crate) fn new(state: &str, name: &'static str) -> Self {
        let state = PathBuf::from(state);
        Self { state, name }
    }

    fn pid(&self) -> Option<u32> {
        let text = fs::read_to_string(self.state.join("pids").join(self.name)).ok()?;
        text.trim().parse().ok()
    }

    pub(crate) fn runs(&self) -> bool {
        self.pid().is_some_and(is_running)
    }

    /// That it has ended, with the line of its log that says why.
    pub(crate) fn last_words(&self) -> String {
        let log = fs::read(self.state.join("logs").join(self.name)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        format!("`{}` has ended: {}", self.name, why_ended(&log))
    }

    pub(crate) fn signal(&self, name: &str) {
        if let Some(pid) = self.pid() {
            signal(pid, name);
        }
    }

    /// Starts it again after its end, and waits until its number is known: nothing else may be signalled in its place.
    pub(crate) async fn start(&self) {
        drop(fs::remove_file(self.state.join("pids").join(self.name)));
        let started = Command::new("setsid")
            .args(["--fork", "sh"])
            .arg(self.state.join("pieces").join(self.name))
            .current_dir("/")
            .status();
        if started.is_ok_and(|status| status.success()) {
            let end = Instant::now() + NUMBERED;
            while self.pid().is_none() && Instant::now() < end {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// The line of a log that says why its program ended: the last panic or fatal error, which traces may follow, else the last line.
fn why_ended(log: &str) -> &str {
    let is_fatal = |line: &&str| {
        let mut letters = line.chars();
        let fatal =
            letters.next() == Some('F') && letters.next().is_some_and(|it| it.is_ascii_digit());
        fatal
            || line.starts_with("panic:")
            || line.starts_with("fatal error:")
            || line.contains("\"command failed\"")
    };
    let mut lines = log.lines();
    let last = lines.clone().next_back();
    lines.rfind(is_fatal).or(last).unwrap_or_default()
}

/// Whether anything of a process is left. Its first thread is a zombie while the others still end, and they hold its sockets: a
/// program that is started then finds its port taken.
fn is_running(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    state.is_some_and(|state| state != 'Z' || threads() > 1)
}

/// Copies the end of each log of the cluster, which is removed with it, into `folder`.
pub(crate) fn keep_logs(state: &Path, folder: &Path) {
    let logs = fs::read_dir(state.join("logs"));
    for log in logs.into_iter().flatten().flatten() {
        let copied = || {
            let mut from = fs::File::open(log.path())?;
            let length = from.metadata()?.len();
            from.seek(io::SeekFrom::Start(length.saturating_sub(KEPT_BYTES)))?;
            let mut to = fs::File::create(folder.join(log.file_name()).with_extension("log"))?;
            io::copy(&mut from, &mut to)
        };
        if let Err(error) = copied() {
            eprintln!("cannot keep `{}`: {error}", log.path().display());
        }
    }
}

/// Sends a signal; a process that is gone is none of our business.
pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .output();
    drop(sent);
}

/// How often the lease of the operators changed hands.
pub(crate) async fn lease_transitions(client: &Client) -> Option<u64> {
    let leases = ["coordination.k8s.io", "v1", "Lease", "leases"];
    let leases = api(client, &leases, Some(OWN));
    match ask(leases.get(rights::LEASE)).await {
        Answer::Ok(lease) => lease.data["spec"]["leaseTransitions"].as_u64(),
        Answer::Refused(..) | Answer::None => None,
    }
}

/// Routes the API server to the webhooks of the operators at `address`: the garbage collector reads the owners of what a
/// v2beta1 `MPIJob` made, which have to be converted. An operator that is down stays an endpoint, as one is for seconds elsewhere.
pub(crate) async fn route_to_webhooks(
    client: &Client,
    address: IpAddr,
    ports: impl Iterator<Item = u16>,
) -> Result<(), String> {
    let service = json!({"metadata": {"name": SERVICE},
        "spec": {"ports": [{"name": "webhook", "port": 443}]}});
    let mut objects = vec![(["", "v1", "Service", "services"], service)];
    for port in ports {
        let slice = json!({
            "metadata": {"name": format!("{SERVICE}-{port}"),
                "labels": {"kubernetes.io/service-name": SERVICE}},
            "addressType": "IPv4", "endpoints": [{"addresses": [address]}],
            "ports": [{"name": "webhook", "port": port}]});
        let resource = ["discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"];
        objects.push((resource, slice));
    }
    for (resource, object) in objects {
        match create(client, &resource, Some(OWN), object).await {
            Answer::Ok(()) => {}
            other => return Err(format!("cannot create {}: {other:?}", resource[2])),
        }
    }
    Ok(())
}

/// Makes the account of the operators with the rights of `deploy/` and no others; its token.
pub(crate) async fn account(client: &Client) -> Result<String, String> {
    let mut rules: Vec<Value> = Vec::new();
    for (place, _) in rights::Place::ALL {
        if place != rights::Place::Own {
            rules.extend(rights::of(place).map(rights::Right::rule));
        }
    }
    let own: Vec<Value> = rights::of(rights::Place::Own)
        .map(rights::Right::rule)
        .collect();
    let subject = json!([{"kind": "ServiceAccount", "name": "trainyard", "namespace": OWN}]);
    let role = |kind: &str| json!({"apiGroup": RBAC, "kind": kind, "name": "trainyard"});
    let named = json!({"name": "trainyard"});
    let objects: [(Resource, Option<&str>, Value); 6] = [
        (
            ["", "v1", "Namespace", "namespaces"],
            None,
            json!({"metadata": {"name": OWN}}),
        ),
        (
            ["", "v1", "ServiceAccount", "serviceaccounts"],
            Some(OWN),
            json!({"metadata": named}),
        ),
        (
            [RBAC, "v1", "ClusterRole", "clusterroles"],
            None,
            json!({"metadata": named, "rules": rules}),
        ),
        (
            [RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings"],
            None,
            json!({"metadata": named, "roleRef": role("ClusterRole"), "subjects": subject}),
        ),
        (
            [RBAC, "v1", "Role", "roles"],
            Some(OWN),
            json!({"metadata": named, "rules": own}),
        ),
        (
            [RBAC, "v1", "RoleBinding", "rolebindings"],
            Some(OWN),
            json!({"metadata": named, "roleRef": role("Role"), "subjects": subject}),
        ),
    ];
    for (resource, namespace, object) in objects {
        match create(client, &resource, namespace, object).await {
            Answer::Ok(()) => {}
            other => return Err(format!("cannot create {}: {other:?}", resource[2])),
        }
    }
    let path = format!("/api/v1/namespaces/{OWN}/serviceaccounts/trainyard/token");
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 86_400}});
    let request = http::Request::post(path)
        .body(body.to_string().into_bytes())
        .map_err(|error| error.to_string())?;
    match ask(client.request::<Value>(request)).await {
        Answer::Ok(answer) => answer["status"]["token"]
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| "the token request returned no token".to_owned()),
        other => Err(format!("cannot get a token: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_says_why_a_program_ended() {
        let trace = "goroutine 1 [running]:\nmain.main()\n";
        let cases = [
            ("", ""),
            ("I1116 one\nE1116 two", "E1116 two"),
            (&format!("I1116 one\npanic: boom\n{trace}"), "panic: boom"),
            (
                &format!("F1116 12:00 no lease\n{trace}"),
                "F1116 12:00 no lease",
            ),
            ("For a start\nlast", "last"),
            (
                "I1116 a\nE1116 run.go:72] \"command failed\" err=\"bind\"\nI1116 b",
                "E1116 run.go:72] \"command failed\" err=\"bind\"",
            ),
        ];
        for (log, want) in cases {
            assert_eq!(why_ended(log), want, "{log}");
        }
    }

    #[test]
    fn a_process_runs_until_its_last_thread_has_ended() {
        assert!(is_running(std::process::id()));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(is_running(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_running(child.id()));
    }
}
