//! The operator as a process: its runtime, its servers, its logs, its signals.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, mpsc},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::{Client, Config};
use thiserror::Error;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, error, info, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer as _, filter::Targets, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};
use trainyard_core::{
    diagnose::Rules,
    launch::{GroupApi, NativeApi},
};

use crate::{
    Bind, CertificateSource, Collector, Operator, Options, account,
    certificate::{
        Certificate,
        clients::{ClientsError, Security, SecurityError},
    },
    health,
    kubeconfig::{self, config},
    operator::{gangs, push},
    poison::panic_message,
    serve::{self, ReplyRules, Server},
    trace::{self, Recorder},
    webhook,
};

/// Webhooks are answered this long after the process was asked to end: the API server sees that this replica
/// is going a moment later than the replica itself, and calls it until then.
const LINGER: Duration = Duration::from_secs(3);

/// The API server accepts a connection within this time, or it is not there.
const CONNECTS_WITHIN: Duration = Duration::from_secs(15);
/// It takes a part of a request within this time.
const SENDS_WITHIN: Duration = Duration::from_mins(1);
/// A connection on which nothing comes for this long is closed. Watches have bookmarks about every minute, and all
/// calls have shorter limits of their own.
const SILENT_AT_MOST: Duration = Duration::from_mins(5);

/// How an operator is run.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Its options.
    pub options: Options,
    /// The kubeconfig to use; the default is the usual places.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    pub context: Option<String>,
    /// How its logs are written.
    pub logs: Logs,
    /// What it serves.
    pub serving: Serving,
    /// Where spans are sent.
    pub collector: Option<Collector>,
}

/// What an operator serves over HTTP.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    /// `/metrics`.
    pub metrics: Bind,
    /// `/healthz` and `/readyz`.
    pub health: Bind,
    /// The webhooks.
    pub webhooks: Option<Webhooks>,
    /// Progress that training programs send; only beside webhooks, whose certificate it has.
    pub pushes: Bind,
    /// Leaders of gangs that restart in place; only beside webhooks, likewise.
    pub gangs: Bind,
}

/// Where the API server asks, and with which certificate it is answered.
#[derive(Clone, Debug)]
pub struct Webhooks {
    /// Where.
    pub bind: Bind,
    /// The certificate.
    pub certificate: CertificateSource,
    /// A file of PEM with the authorities of clients: where there is one, admission reviews need a client certificate.
    pub client_ca: Option<PathBuf>,
}

/// How logs are written, to stderr.
#[derive(Clone, Copy, Debug, Default)]
pub struct Logs {
    /// One JSON object a line instead of text.
    pub json: bool,
    /// The least important that is written.
    pub level: Importance,
}

/// How important a log line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Importance {
    /// What someone should look at.
    Warnings,
    /// What was done.
    #[default]
    Done,
    /// What was looked at, too.
    Details,
}

/// Why an operator could not be run.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// No cluster is named anywhere.
    #[error("no cluster configured: {0}")]
    NoCluster(String),
    /// The cluster's name or its credentials are of no use.
    #[error("cannot use the cluster's configuration: {}", kubeconfig::unusable(.0))]
    Client(kube::Error),
    /// A port cannot be had.
    #[error("cannot listen on `{bind}` for {what}")]
    Listen {
        /// What would have been served.
        what: &'static str,
        /// Where.
        bind: Bind,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// TLS could not be set up.
    #[error("cannot set up TLS for the webhooks")]
    Tls(#[source] rustls::Error),
    /// The authorities of clients could not be read.
    #[error("cannot use `{path}` as the CA bundle of webhook clients: {error}")]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: ClientsError,
    },
    /// The runtime could not be started.
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
}

/// Why the webhooks cannot be served.
pub(crate) fn unsecured(error: SecurityError) -> ProcessError {
    match error {
        SecurityError::Tls(error) => ProcessError::Tls(error),
        SecurityError::ClientCa { path, error } => ProcessError::ClientCa { path, error },
    }
}

impl Logs {
    /// Writes logs from now on.
    pub fn start(self) {
        start_logs(self, None);
    }
}

impl Process {
    /// Runs the operator until SIGTERM or SIGINT.
    pub fn run(self) -> Result<(), ProcessError> {
        let (recorder, exporter) = self.collector.map(trace::channel).unzip();
        start_logs(self.logs, recorder);
        log_panics();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ProcessError::Runtime)?;
        runtime.block_on(async {
            let config = config(self.kubeconfig, self.context).await;
            let mut config = config.map_err(ProcessError::NoCluster)?;
            bound(&mut config);
            let client = Client::try_from(config).map_err(ProcessError::Client)?;
            let stop = stop().map_err(ProcessError::Runtime)?;
            let mut options = self.options;
            options.cluster.native = native_gangs(&client).await;
            options.cluster.own_account = account::find(&client).await;
            let operator = Operator::new(client, options);
            let serves = self.serving.start(&operator)?;
            let (end, ends) = oneshot::channel();
            let exporting = exporter.map(|exporter| tokio::spawn(exporter.run(ends)));
            operator.run(stop).await;
            drop(end);
            if let Some(exporting) = exporting {
                // What is left of the spans is sent, or not.
                drop(tokio::time::timeout(LINGER, exporting).await);
            }
            if serves == Serves::Webhooks {
                tokio::time::sleep(LINGER).await;
            }
            Ok(())
        })
    }
}

/// The shape in which the cluster serves its own API for gangs. Where it does not answer now, a job that asks for that
/// API gets the message that it is not served.
async fn native_gangs(client: &Client) -> NativeApi {
    let native = GroupApi::Native(NativeApi::default());
    let request = http::Request::get(format!("/apis/{}", native.group())).body(Vec::new());
    let Ok(request) = request else {
        return NativeApi::default();
    };
    match client.request::<APIGroup>(request).await {
        Ok(group) => NativeApi::newest(group.versions.iter().map(|served| served.version.as_str())),
        Err(error) => {
            debug!(%error, "Cannot find the served version of `scheduling.k8s.io`");
            NativeApi::default()
        }
    }
}

/// Whether clients may still send requests when the operator has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serves {
    Webhooks,
    NoWebhooks,
}

impl Serving {
    /// Listens on every port before anything is begun, and serves them.
    fn start(self, operator: &Operator) -> Result<Serves, ProcessError> {
        let metrics = listen("metrics", self.metrics)?;
        let health = listen("health", self.health)?;
        let traffic = operator.metrics().traffic();
        let mut certificate = None;
        if let Some(webhooks) = self.webhooks
            && let Some(listener) = listen("webhooks", webhooks.bind)?
        {
            let kept = Arc::new(Certificate::default());
            let callers = match webhooks.client_ca {
                Some(_) => webhook::Callers::Verified,
                None => webhook::Callers::Anybody,
            };
            let security = Security::new(&kept, webhooks.client_ca).map_err(unsecured)?;
            let server = Server {
                name: webhook::NAME,
                bounds: webhook::BOUNDS,
                tls: Some(security.acceptors()),
                admit: webhook::admits(callers, traffic.clone()),
                answer: webhook::reviews(
                    webhook::TURNS,
                    Arc::clone(&operator.cluster),
                    operator.find_runtime(),
                    traffic.clone(),
                ),
                rules: ReplyRules::default(),
                traffic: traffic.clone(),
            };
            // One thread for each review that may be worked on, and one to spare.
            let blocking = webhook::TURNS.all() + 1;
            serve_on_own_thread("webhooks", listener, server, blocking, security.keep())
                .map_err(ProcessError::Runtime)?;
            if let Some(listener) = listen("progress", self.pushes)? {
                start_pushes(operator, listener, &kept)?;
            }
            if let Some(listener) = listen("gangs", self.gangs)? {
                start_gangs(operator, listener, &kept)?;
            }
            // Every replica serves webhooks, whoever leads.
            let caller = operator.caller.unfenced();
            drop(must_not_be_lost(
                Arc::clone(&kept).keep(caller, webhooks.certificate),
            ));
            certificate = Some(kept);
        }
        let plain = |name, answer| Server {
            name,
            bounds: health::BOUNDS,
            tls: None,
            admit: health::admits(),
            answer,
            rules: ReplyRules::default(),
            traffic: traffic.clone(),
        };
        if let Some(listener) = metrics {
            let page = plain("metrics", health::metrics(operator.clone()));
            let nothing_else = std::future::ready(());
            serve_on_own_thread("metrics", listener, page, 1, nothing_else)
                .map_err(ProcessError::Runtime)?;
        }
        let serves = if certificate.is_some() {
            Serves::Webhooks
        } else {
            Serves::NoWebhooks
        };
        if let Some(listener) = health {
            let probes = plain("health", health::health(operator.clone(), certificate));
            drop(must_not_be_lost(serve::serve(listener, probes)));
        }
        Ok(serves)
    }
}

/// Takes progress that training programs send, with the certificate of the webhooks.
fn start_pushes(
    operator: &Operator,
    listener: TcpListener,
    certificate: &Arc<Certificate>,
) -> Result<(), ProcessError> {
    let security = Security::new(certificate, None).map_err(unsecured)?;
    let traffic = operator.metrics().traffic();
    let server = Server {
        name: push::NAME,
        bounds: push::BOUNDS,
        tls: Some(security.acceptors()),
        admit: push::admits(operator.clone(), traffic.clone()),
        answer: push::updates(operator.clone()),
        rules: ReplyRules::default(),
        traffic,
    };
    let namespace = operator.pod_namespace().unwrap_or("default");
    operator.pushes.begin(Arc::clone(certificate), namespace);
    serve_on_own_thread("progress", listener, server, 1, security.keep())
        .map_err(ProcessError::Runtime)
}

/// Takes the connections of leaders of gangs, with the certificate of the webhooks.
fn start_gangs(
    operator: &Operator,
    listener: TcpListener,
    certificate: &Arc<Certificate>,
) -> Result<(), ProcessError> {
    let config = certificate
        .own_clients_config()
        .map_err(ProcessError::Tls)?;
    let namespace = operator.pod_namespace().unwrap_or("default");
    operator.gangs.begin(Arc::clone(certificate), namespace);
    // All programs of a gang wait while the first failure is judged.
    std::thread::Builder::new()
        .name("rules".to_owned())
        .spawn(|| {
            Rules::shared();
        })
        .map_err(ProcessError::Runtime)?;
    let (tls, operator) = (TlsAcceptor::from(Arc::new(config)), operator.clone());
    run_on_own_thread("gangs", listener, 1, std::future::ready(()), |listener| {
        gangs::serve(listener, tls, operator)
    })
    .map_err(ProcessError::Runtime)
}

/// Serves on a thread of its own, with `beside` on it: whatever is sent to that port, passes over jobs, the lease and probes do not
/// wait for it.
fn serve_on_own_thread(
    name: &'static str,
    listener: TcpListener,
    server: Server,
    blocking_threads: usize,
    beside: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    run_on_own_thread(name, listener, blocking_threads, beside, |listener| {
        serve::serve(listener, server)
    })
}

fn run_on_own_thread<F: Future<Output = ()> + Send + 'static>(
    name: &'static str,
    listener: TcpListener,
    blocking_threads: usize,
    beside: impl Future<Output = ()> + Send + 'static,
    serve: impl FnOnce(TcpListener) -> F + Send + 'static,
) -> io::Result<()> {
    let listener = listener.into_std()?;
    let (started, starts) = mpsc::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(blocking_threads)
            .build();
        let listening = runtime.and_then(|runtime| {
            let _entered = runtime.enter();
            let listener = TcpListener::from_std(listener)?;
            Ok((runtime, listener))
        });
        match listening {
            Err(error) => drop(started.send(Err(error))),
            Ok((runtime, listener)) => {
                drop(started.send(Ok(())));
                runtime.block_on(async {
                    drop(must_not_be_lost(beside));
                    drop(must_not_be_lost(serve(listener)).await);
                });
            }
        }
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)?;
    starts
        .recv()
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn listen(what: &'static str, bind: Bind) -> Result<Option<TcpListener>, ProcessError> {
    let listener = bind
        .listen()
        .map_err(|error| ProcessError::Listen { what, bind, error })?;
    if let Some(address) = listener.as_ref().and_then(|it| it.local_addr().ok()) {
        info!(what, %address, "Listening");
    }
    Ok(listener)
}

/// Runs `task` beside everything else. Should it panic, the process ends and is started again: a server that is gone
/// without a word is worse.
fn must_not_be_lost(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(async move {
        let ended = tokio::spawn(task).await;
        if ended.is_err_and(|error| error.is_panic()) {
            error!("A required task panicked; exiting");
            std::process::abort();
        }
    })
}

/// Sets the timeouts of a connection of the operator. Following a log may take longer.
pub(crate) fn bound(config: &mut Config) {
    config.connect_timeout = Some(CONNECTS_WITHIN);
    config.write_timeout = Some(SENDS_WITHIN);
    // A connection that dies without a word is closed: the client of this version has no keep-alive.
    config.read_timeout = Some(SILENT_AT_MOST);
}

/// Ready when the process is asked to end.
fn stop() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Writes every panic as a line of the log, with its place; without this it goes to stderr in another form.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let place = place.unwrap_or_default();
        let message = panic_message(panic.payload());
        error!(place, panic = message, "Panicked");
    }));
}

fn start_logs(logs: Logs, spans: Option<Recorder>) {
    let lines = fmt::layer().with_writer(io::stderr);
    let filter = filter(logs.level);
    let spans = spans.map(|spans| spans.with_filter(trace::filter()));
    let registry = tracing_subscriber::registry().with(spans);
    // A process that already has a subscriber (a test) keeps it.
    let set = if logs.json {
        let lines = lines.json().flatten_event(true).with_filter(filter);
        registry.with(lines).try_init()
    } else {
        registry
            .with(lines.with_ansi(false).with_filter(filter))
            .try_init()
    };
    drop(set);
}

/// Which lines are written. Of the libraries beneath only what is wrong: their details are of every
/// byte that is sent, and what they send holds tokens.
fn filter(level: Importance) -> Targets {
    let ours = match level {
        Importance::Warnings => LevelFilter::WARN,
        Importance::Done => LevelFilter::INFO,
        Importance::Details => LevelFilter::DEBUG,
    };
    Targets::new()
        .with_target("trainyard", ours)
        .with_default(LevelFilter::WARN)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn libraries_log_only_warnings() {
        let cases = [
            (
                Importance::Details,
                "trainyard_kube::operator::pass",
                Level::DEBUG,
                true,
            ),
            (
                Importance::Details,
                "trainyard_kube::operator::pass",
                Level::TRACE,
                false,
            ),
            (
                Importance::Details,
                "kube_client::client",
                Level::DEBUG,
                false,
            ),
            (
                Importance::Details,
                "hyper_util::client",
                Level::INFO,
                false,
            ),
            (Importance::Details, "rustls::conn", Level::WARN, true),
            (
                Importance::Done,
                "trainyard_kube::operator::pass",
                Level::DEBUG,
                false,
            ),
            (
                Importance::Done,
                "trainyard_kube::operator::pass",
                Level::INFO,
                true,
            ),
            (
                Importance::Warnings,
                "trainyard_kube::operator::pass",
                Level::INFO,
                false,
            ),
        ];
        for (importance, target, level, written) in cases {
            let found = filter(importance).would_enable(target, &level);
            assert_eq!(found, written, "{importance:?} {target} {level}");
        }
    }
}
