//! The operators of the run: processes of the real binary with leader election, each behind a proxy of its own.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{cluster, proxy::Proxy};

/// How long a page of an operator may take.
const PAGE: Duration = Duration::from_secs(3);
const FIRST_PORT: u16 = 18_080;
/// Nothing runs on simulated nodes, so any name will do.
const AGENT_IMAGE: &str = "soak/agent";
/// Ports of one operator: metrics, health, webhooks.
const PORTS: u16 = 3;

/// One operator: its process comes and goes.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    pub(crate) proxy: Proxy,
    /// Held by whoever changes its process.
    pub(crate) turn: tokio::sync::Mutex<()>,
    binary: PathBuf,
    kubeconfig: PathBuf,
    log: PathBuf,
    port: u16,
    child: Mutex<Option<Child>>,
}

/// What an operator is started with.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) binary: &'a Path,
    /// The folder of the cluster, which only its owner can read.
    pub(crate) state: &'a Path,
    pub(crate) logs: &'a Path,
    pub(crate) server: SocketAddr,
    pub(crate) token: &'a str,
}

impl Operator {
    /// Makes the operator with this number and starts it.
    pub(crate) async fn start(
        setup: &Setup<'_>,
        name: &'static str,
        number: u16,
    ) -> std::io::Result<Self> {
        let proxy = Proxy::start(setup.server).await?;
        let kubeconfig = setup.state.join(format!("soak-{name}.kubeconfig"));
        let authority = setup.state.join("keys/apiserver.crt");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: soak\nclusters:\n- name: soak\n  cluster:\n    \
             server: https://{}\n    tls-server-name: kubernetes.default.svc\n    certificate-authority: {}\n\
             users:\n- name: soak\n  user:\n    token: {}\ncontexts:\n- name: soak\n  context:\n    \
             cluster: soak\n    user: soak\n",
            proxy.address,
            authority.display(),
            setup.token
        );
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&kubeconfig)?;
        file.write_all(text.as_bytes())?;
        let log = setup.logs.join(format!("operator-{name}.log"));
        File::create(&log)?;
        let operator = Self {
            name,
            proxy,
            turn: tokio::sync::Mutex::new(()),
            binary: setup.binary.to_owned(),
            kubeconfig,
            log,
            port: FIRST_PORT + PORTS * number,
            child: Mutex::new(None),
        };
        operator.spawn()?;
        Ok(operator)
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts its process; the one before must have ended.
    pub(crate) fn spawn(&self) -> std::io::Result<()> {
        let log = OpenOptions::new().append(true).open(&self.log)?;
        let port = self.port;
        let child = Command::new(&self.binary)
            .arg("operator")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--metrics-bind", &format!("127.0.0.1:{port}")])
            .args(["--health-bind", &format!("127.0.0.1:{}", port + 1)])
            .args(["--webhook-bind", &format!(":{}", self.webhook_port())])
            // As the chart has it: launchers of MPI start their ranks with the agent, and get no rights for it.
            .args(["--agent-image", AGENT_IMAGE])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        *self.child() = Some(child);
        Ok(())
    }

    /// Where the API server has objects converted.
    pub(crate) fn webhook_port(&self) -> u16 {
        self.port + 2
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    pub(crate) fn signal(&self, name: &str) {
        if let Some(pid) = self.pid() {
            cluster::signal(pid, name);
        }
    }

    /// Kills its process without a chance to finish anything.
    pub(crate) fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// How its process ended although nobody ended it.
    pub(crate) fn ended(&self) -> Option<String> {
        let mut child = self.child();
        let status = child.as_mut()?.try_wait().ok()??;
        Some(format!(
            "operator {} ended by itself with {status}; its log is `{}`",
            self.name,
            self.log.display()
        ))
    }

    /// The panic in its log.
    pub(crate) fn panicked(&self) -> Option<String> {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        // The first is the line of the operator's panic hook, the second that of the standard library, before the hook is set.
        let marks = ["Panicked", "panicked at"];
        let line = log
            .lines()
            .find(|line| marks.iter().any(|mark| line.contains(mark)))?;
        Some(format!("operator {}: {line}", self.name))
    }

    /// One number of its page of metrics.
    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        let page = page(self.port, "/metrics").await?;
        page.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .and_then(|value| value.trim().parse().ok())
    }

    pub(crate) async fn leads(&self) -> bool {
        self.metric("trainyard_leader").await == Some(1.0)
    }

    /// Why it is not ready.
    pub(crate) async fn unready(&self) -> Option<String> {
        match page(self.port + 1, "/readyz").await {
            None => Some("no answer".to_owned()),
            Some(page) if page.starts_with("HTTP/1.1 200") => None,
            Some(page) => Some(page.lines().last().unwrap_or_default().to_owned()),
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn page(port: u16, path: &str) -> Option<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n");
    let read = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        Some(text)
    };
    tokio::time::timeout(PAGE, read).await.ok()?
}
