//! `trainyard dashboard --in-cluster`: the dashboard as a pod of the cluster that it shows.
//!
//! With `--auth token` whoever asks is known by a token of the cluster, and sees what the API server says that he may. With `--auth port-forward` the pod
//! listens at its own loopback address, and whoever may forward a port to it sees what its account sees.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

use anyhow::Context as _;
use jiff::Timestamp;
use trainyard_kube::{Importance, Logs, tls_of};
use trainyard_web::{
    Access, Hub, Options, Ready, Reviewed, Serving, Tls, blocking_identify, blocking_sight,
};

use super::{
    Follow, Shown,
    cluster::{Cluster, Mode, Watching},
    follow, page_url, print_address,
};
use crate::{
    args::{Auth, Dashboard, Format, LogFormat},
    failure::{Exit, Failure},
    printer::{Printer, Verbosity},
    run::Signals,
};

/// Serves until SIGTERM.
pub(super) fn run(args: &Dashboard, printer: &mut Printer) -> Result<Exit, Failure> {
    let installed = &args.installed;
    if installed.auth == Auth::PortForward && !args.bind.ip().is_loopback() {
        return Err(Failure::new(format!(
            "`--auth port-forward` answers whoever can connect, and `--bind {}` lets others than forwarded ports connect",
            args.bind
        ))
        .hint("listen at `127.0.0.1:8265`, or use `--auth token`"));
    }
    if installed.auth == Auth::PortForward && installed.trusted_proxy_header.is_some() {
        return Err(Failure::new(
            "`--trusted-proxy-header` names a token, and `--auth port-forward` reads none",
        )
        .hint("remove the header, or use `--auth token`"));
    }
    Logs {
        json: installed.log_format == LogFormat::Json,
        level: match printer.verbosity() {
            Verbosity::Quiet => Importance::Warnings,
            Verbosity::Normal => Importance::Done,
            Verbosity::Verbose => Importance::Details,
        },
    }
    .start();
    let tls = installed.tls_dir.clone().map(tls_of).transpose();
    let tls = tls.map_err(anyhow::Error::new).map_err(|error| {
        Failure::from(error).hint("mount a Secret of type `kubernetes.io/tls` there")
    })?;
    let all_namespaces = args.place.namespace.is_none();
    let cluster = Cluster::connect(&args.place, all_namespaces, Mode::InCluster)?;
    let cluster = Arc::new(cluster);
    let access = access(args, &cluster)?;
    let watching = Watching::start(Arc::clone(&cluster));
    let watching = watching.context("cannot start to watch the cluster")?;
    let is_limited = matches!(access, Access::Reviewed(_));
    let mut shown = Shown::Installed(Arc::clone(&cluster), watching, is_limited);
    let signals = Signals::listen().context("cannot install signal handlers")?;
    let (listener, at) = listen(args.bind, "the dashboard")?;
    let probes = match installed.health_bind {
        Some(address) => {
            let (listener, _) = listen(address, "probes")?;
            let of = Arc::clone(&cluster);
            let ready: Ready = Arc::new(move || of.readiness());
            Some((listener, ready))
        }
        None => None,
    };
    let hub = Arc::new(Hub::new());
    let is_secured = tls.is_some();
    let options = Options {
        hosts: hosts(args),
        any_host: is_limited && args.host.is_empty(),
        tls: tls.map(Tls),
        base_path: args.base_path.clone().unwrap_or_default(),
        assets: args.assets.clone(),
    };
    let dashboard = trainyard_web::Dashboard::new(shown.ask(), Arc::clone(&hub), access, options)
        .context("cannot serve below `--base-path`")?;
    let serving = Serving::start(listener, dashboard, Arc::clone(&hub), probes)
        .context("cannot start the server of the dashboard")?;
    let url = page_url(at, args.base_path.as_deref());
    let url = if is_secured {
        url.replacen("http://", "https://", 1)
    } else {
        url
    };
    announce(args, &url, &cluster.words(), printer)?;
    follow(
        &Follow {
            hub: &hub,
            serving: &serving,
            signals: &signals,
        },
        &mut shown,
    )
}

/// Who is answered.
fn access(args: &Dashboard, cluster: &Arc<Cluster>) -> Result<Access, Failure> {
    if args.installed.auth == Auth::PortForward {
        return Ok(Access::Anyone);
    }
    let (knows, identifies, sees) = (
        Arc::clone(cluster),
        Arc::clone(cluster),
        Arc::clone(cluster),
    );
    let identify = blocking_identify(move |credential| identifies.identify(credential));
    let reviewed = Reviewed {
        // Whoever is known waits for no thread: tokens of nobody may keep all of them busy.
        identify: Arc::new(move |credential| match knows.identified(&credential) {
            Some(visitor) => Box::pin(std::future::ready(visitor)),
            None => identify(credential),
        }),
        sight_of: blocking_sight(move |identity| sees.sight_of(identity, Timestamp::now())),
        header: None,
    };
    let header = args.installed.trusted_proxy_header.as_deref();
    let reviewed = match header {
        Some(header) => reviewed.with_header(header).map_err(|error| {
            Failure::from(anyhow::Error::new(error))
                .hint("name a header such as `X-Forwarded-Access-Token`")
        })?,
        None => reviewed,
    };
    Ok(Access::Reviewed(reviewed))
}

/// The names under which browsers may reach it. A forwarded port may be any.
fn hosts(args: &Dashboard) -> Vec<String> {
    let local = ["127.0.0.1:*", "localhost:*", "[::1]:*"].map(str::to_owned);
    let named = args.host.iter().cloned();
    match args.installed.auth {
        Auth::PortForward => local.into_iter().chain(named).collect(),
        Auth::Token => named.collect(),
    }
}

fn listen(address: SocketAddr, what: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    let listener = TcpListener::bind(address)
        .with_context(|| format!("cannot listen at `{address}` for {what}"))
        .map_err(|error| Failure::from(error).hint("choose another port"))?;
    let at = listener
        .local_addr()
        .context("cannot read the address that the dashboard listens at")?;
    Ok((listener, at))
}

fn announce(args: &Dashboard, url: &str, what: &str, printer: &mut Printer) -> Result<(), Failure> {
    if args.format == Format::Json {
        return print_address(url, None, printer);
    }
    printer.message(&format!("dashboard: {url}\n"));
    let who = match args.installed.auth {
        Auth::Token => "who asks needs a token of the cluster, and sees what it may",
        Auth::PortForward => "whoever may forward a port to this pod sees what its account sees",
    };
    printer.summary(&format!("shows {what}; {who}"));
    Ok(())
}
