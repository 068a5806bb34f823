//! `trainyard dashboard`: serves the runs of this machine, or the jobs of a cluster, as pages.
//!
//! Joins the two sides: [`local`] or [`cluster`] answers what pages ask and finds what changed; `web` serves both.

mod browser;
pub(crate) mod cluster;
mod installed;
pub(crate) mod local;
mod shared;
mod token;

use std::{
    collections::BTreeSet,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use trainyard_web::{Ask, Hub, Options, Serving, Token, Topic, blocking, local_hosts};

use self::{
    cluster::{Cluster, Mode, Watching},
    local::{Change, Local, Watcher},
};
use crate::{
    args::{Dashboard, Format},
    failure::{Exit, Failure},
    printer::Printer,
    run::Signals,
};

/// How often the folder of runs is looked at: a killed rank is on the page within a second.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The same while no page is open.
const LOOK_UNWATCHED: Duration = Duration::from_secs(2);
/// How soon a signal is noticed.
const STEP: Duration = Duration::from_millis(100);

/// What `--format json` prints.
#[derive(Debug, Serialize)]
struct Address<'a> {
    version: u32,
    url: &'a str,
    /// Absent where it comes from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
}

/// What is shown: whoever answers, and whoever notices changes.
enum Shown {
    Machine(Arc<Local>, Watcher),
    Cluster(Arc<Cluster>, Watching),
    /// A cluster from within, and whether those who look see only what they may.
    Installed(Arc<Cluster>, Watching, bool),
}

impl Shown {
    fn open(args: &Dashboard) -> Result<Self, Failure> {
        if args.all_namespaces || args.place.is_cluster() {
            let cluster = Cluster::connect(&args.place, args.all_namespaces, Mode::Cluster)?;
            let cluster = Arc::new(cluster);
            let watching = Watching::start(Arc::clone(&cluster));
            let watching = watching.context("cannot start to watch the cluster")?;
            return Ok(Self::Cluster(cluster, watching));
        }
        let local = Arc::new(Local::open(&args.state.state_dir)?);
        let watcher = Watcher::open(&args.state.state_dir)?;
        Ok(Self::Machine(local, watcher))
    }

    fn ask(&self) -> Ask {
        match self {
            Self::Machine(local, _) => {
                let local = Arc::clone(local);
                blocking(move |question, _| local.answer(question, Timestamp::now()))
            }
            Self::Cluster(cluster, _) | Self::Installed(cluster, ..) => {
                let cluster = Arc::clone(cluster);
                blocking(move |question, asker| cluster.answer(question, asker, Timestamp::now()))
            }
        }
    }

    /// What it is, in words.
    fn words(&self, args: &Dashboard) -> String {
        match self {
            Self::Machine(..) => format!("the runs below `{}`", args.state.state_dir.display()),
            Self::Cluster(cluster, _) | Self::Installed(cluster, ..) => cluster.words(),
        }
    }

    /// Publishes what has changed.
    fn publish(&mut self, hub: &Hub, now: Timestamp) {
        match self {
            Self::Machine(local, watcher) => {
                for change in watcher.poll(now) {
                    publish(&change, local, hub, now);
                }
            }
            Self::Installed(_, watching, true) => watching.notify(hub, now),
            Self::Cluster(_, watching) | Self::Installed(_, watching, false) => {
                watching.publish(hub, now);
            }
        }
    }
}

/// Serves until Ctrl-C.
pub(super) fn run(args: &Dashboard, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.installed.in_cluster {
        return installed::run(args, printer);
    }
    let is_own = args.bind.ip().is_loopback();
    if !is_own && args.token_file.is_none() {
        return Err(Failure::new(format!(
            "`--bind {}` lets others reach the dashboard, and `--token-file` is not set",
            args.bind
        ))
        .hint("choose a token and pass its file, or listen at 127.0.0.1 and forward a port with `ssh -L`"));
    }
    let token = match &args.token_file {
        Some(path) => token::read(path)?,
        None => Token::random().context("cannot start the dashboard")?,
    };
    // It outlives the server, whose thread must not be the one that drops the connection to a cluster.
    let mut shown = Shown::open(args)?;
    let signals = Signals::listen().context("cannot install signal handlers")?;
    let listener = TcpListener::bind(args.bind)
        .with_context(|| format!("cannot listen at `{}`", args.bind))
        .map_err(|error| {
            Failure::from(error).hint("choose another port, or `--bind 127.0.0.1:0` for a free one")
        })?;
    let at = listener
        .local_addr()
        .context("cannot read the address that the dashboard listens at")?;
    let hub = Arc::new(Hub::new());
    let options = Options {
        hosts: hosts(at, &args.host),
        any_host: false,
        tls: None,
        base_path: args.base_path.clone().unwrap_or_default(),
        assets: args.assets.clone(),
    };
    let dashboard =
        trainyard_web::Dashboard::new(shown.ask(), Arc::clone(&hub), token.clone(), options)
            .context("cannot serve below `--base-path`")?;
    let code = args.open.then(|| dashboard.one_time_code()).transpose();
    let code = code.context("cannot make a code for the browser")?;
    let serving = Serving::start(listener, dashboard, Arc::clone(&hub), None)
        .context("cannot start the server of the dashboard")?;
    let url = page_url(at, args.base_path.as_deref());
    announce(args, &shown.words(args), (&url, &token), printer)?;
    if let Some(code) = code
        && let Err(error) = browser::open(&format!("{url}#code={code}"))
    {
        printer.summary(&format!(
            "cannot open a browser ({error}); open the URL above"
        ));
    }
    follow(
        &Follow {
            hub: &hub,
            serving: &serving,
            signals: &signals,
        },
        &mut shown,
    )
}

fn announce(
    args: &Dashboard,
    what: &str,
    (url, token): (&str, &Token),
    printer: &mut Printer,
) -> Result<(), Failure> {
    let shown = args.token_file.is_none().then(|| token.expose());
    if args.format == Format::Json {
        return print_address(url, shown, printer);
    }
    match shown {
        Some(token) => printer.message(&format!("dashboard: {url}#token={token}\n")),
        None => printer.message(&format!(
            "dashboard: {url}#token=… (the token is in the file)\n"
        )),
    }
    printer.summary(&format!("shows {what}; Ctrl-C ends it"));
    Ok(())
}

/// Where the pages are, as JSON: flushed, since whoever reads it waits for it.
fn print_address(url: &str, token: Option<&str>, printer: &mut Printer) -> Result<(), Failure> {
    let version = 1;
    printer.json(&Address {
        version,
        url,
        token,
    })?;
    printer.flush()
}

/// What the loop needs.
struct Follow<'a> {
    hub: &'a Hub,
    serving: &'a Serving,
    signals: &'a Signals,
}

/// Publishes what changes, until a signal comes.
fn follow(with: &Follow<'_>, shown: &mut Shown) -> Result<Exit, Failure> {
    let mut waited = Duration::ZERO;
    loop {
        if with.signals.take() {
            return Ok(Exit::Done);
        }
        if with.serving.has_ended() {
            return Err(Failure::new("the server of the dashboard ended by itself")
                .hint("start it again; if it happens again, report it"));
        }
        let pause = if with.hub.readers() > 0 {
            LOOK_EVERY
        } else {
            LOOK_UNWATCHED
        };
        if waited < pause {
            thread::sleep(STEP);
            waited += STEP;
            continue;
        }
        waited = Duration::ZERO;
        shown.publish(with.hub, Timestamp::now());
    }
}

fn publish(change: &Change, local: &Local, hub: &Hub, now: Timestamp) {
    let run = &change.run;
    let topic = Topic::Run(run.clone());
    let send = |topic: &Topic, event, key: &str, data: serde_json::Value| {
        hub.publish_keyed(topic, event, key, data.to_string().into_bytes());
    };
    if change.gone {
        send(&Topic::Jobs, "job", run, json!({ "gone": run }));
        return;
    }
    for fact in &change.facts {
        let data = json!({ "run": run, "fact": fact });
        send(&topic, "fact", &fact.seq.to_string(), data);
    }
    let parts: &BTreeSet<_> = &change.parts;
    let data = json!({ "run": run, "changed": parts, "logs": change.logs });
    send(&topic, "run", "", data);
    if let Some(row) = local.row(run, now) {
        send(&Topic::Jobs, "job", run, json!({ "row": row }));
    }
}

/// The names under which browsers may reach it.
fn hosts(at: SocketAddr, named: &[String]) -> Vec<String> {
    let mut hosts = local_hosts(at.port());
    if !at.ip().is_unspecified() {
        hosts.push(at.to_string());
    }
    hosts.extend(named.iter().cloned());
    hosts
}

/// Where the page is, as this machine reaches it.
fn page_url(at: SocketAddr, base: Option<&str>) -> String {
    let host = match at {
        SocketAddr::V4(at) if at.ip().is_unspecified() => format!("127.0.0.1:{}", at.port()),
        SocketAddr::V6(at) if at.ip().is_unspecified() => format!("[::1]:{}", at.port()),
        other => other.to_string(),
    };
    let base = base.unwrap_or_default().trim_matches('/');
    if base.is_empty() {
        format!("http://{host}/")
    } else {
        format!("http://{host}/{base}/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_reach_this_machine() {
        let cases = [
            ("127.0.0.1:80", None, "http://127.0.0.1:80/"),
            ("0.0.0.0:8265", None, "http://127.0.0.1:8265/"),
            ("[::]:8265", Some("/ml/yard"), "http://[::1]:8265/ml/yard/"),
            ("10.0.0.7:1", Some("x/"), "http://10.0.0.7:1/x/"),
        ];
        for (at, base, want) in cases {
            assert_eq!(page_url(at.parse().expect(at), base), want);
        }
    }

    #[test]
    fn unspecified_addresses_are_no_hosts() {
        let hosts = hosts(
            "0.0.0.0:8265".parse().expect("an address"),
            &["gpu-01:8265".to_owned()],
        );
        assert!(
            !hosts.iter().any(|host| host.contains("0.0.0.0")),
            "{hosts:?}"
        );
        assert!(hosts.contains(&"gpu-01:8265".to_owned()), "{hosts:?}");
    }
}
