//! `trainyard operator`: runs the Kubernetes operator.

use trainyard_core::{launch, probe::Cap, spec::Kind};
use trainyard_kube::{
    Bind, CertificateSource, Gate, Importance, Lease, Logs, Options, Process, ProcessError,
    Serving, Webhooks,
};

use crate::{
    args::{LogFormat, NetworkPolicy, Operator, ProgressSource},
    failure::{Exit, Failure},
    printer::{Printer, Verbosity},
};

/// Runs the operator until it is asked to end.
pub(super) fn run(args: Operator, printer: &Printer) -> Result<Exit, Failure> {
    let namespace = args.scope.namespace.filter(|name| !name.is_empty());
    if args.serving.progress_bind != Bind::Off && args.serving.webhook_bind == Bind::Off {
        return Err(Failure::new(
            "`--progress-bind` needs the webhook certificate, and the webhooks are disabled",
        )
        .hint("enable them with `--webhook-bind :9443`, or remove `--progress-bind`"));
    }
    if args.serving.gang_bind != Bind::Off && args.serving.webhook_bind == Bind::Off {
        return Err(Failure::new(
            "`--gang-bind` needs the webhook certificate, and the webhooks are disabled",
        )
        .hint("enable them with `--webhook-bind :9443`, or remove `--gang-bind`"));
    }
    let agent_image = args.pods.agent_image.filter(|image| !image.is_empty());
    if args.serving.gang_bind != Bind::Off && agent_image.is_none() {
        return Err(Failure::new(
            "`--gang-bind` needs an image with the supervisor, and `--agent-image` is not set",
        )
        .hint("set `--agent-image` to the image of this program, or remove `--gang-bind`"));
    }
    let serving = Serving {
        gangs: args.serving.gang_bind,
        pushes: args.serving.progress_bind,
        metrics: args.serving.metrics_bind,
        health: args.serving.health_bind,
        webhooks: (!args.shadow).then(|| Webhooks {
            bind: args.serving.webhook_bind,
            certificate: match args.serving.webhook_cert_dir {
                Some(folder) => CertificateSource::Folder(folder),
                None => CertificateSource::Issued {
                    namespace: args.leadership.lease_namespace.clone(),
                },
            },
            client_ca: args.serving.webhook_client_ca,
        }),
    };
    let own_namespace = Some(args.leadership.lease_namespace.clone());
    let lease = (!args.leadership.no_leader_elect && !args.shadow).then(|| Lease {
        namespace: args.leadership.lease_namespace,
        name: args.leadership.lease_name,
        identity: identity(),
    });
    let process = Process {
        options: Options {
            nodes: namespace.is_none() || args.scope.watch_nodes,
            placement: !args.gangs.no_placement,
            preemption: args.gangs.preemption.into(),
            namespace,
            kinds: kinds(&args.scope.kinds, args.scope.trainjobs)?,
            workers: args.workers.into(),
            calls: args.calls.into(),
            lease,
            cluster: launch::Cluster {
                domain: args.pods.cluster_domain.filter(|domain| !domain.is_empty()),
                agent_image,
                // In shadow nothing is granted, and what the other operator granted is compared.
                launcher_rights: args.pods.mpi_launcher_rights || args.shadow,
                network_policy: network_policy(args.pods.network_policy),
                gang_scheduler: args
                    .gangs
                    .gang_scheduler_name
                    .as_deref()
                    .and_then(launch::GangScheduler::named),
                ..launch::Cluster::default()
            },
            shadow: args.shadow,
            gate: Gate {
                result_lasts: args.preflight.preflight_lasts,
                probation_lasts: args.preflight.probation_lasts,
                cap: Cap::percent(args.preflight.probation_cap),
                ..Gate::default()
            },
            own_namespace,
            state_dir: args.state_dir,
            progress: match args.progress {
                ProgressSource::Logs => trainyard_kube::ProgressSource::Logs,
                ProgressSource::Off => trainyard_kube::ProgressSource::Off,
            },
        },
        kubeconfig: args.cluster.kubeconfig,
        context: args.cluster.context,
        serving,
        collector: args.telemetry.otlp_endpoint,
        logs: Logs {
            json: args.telemetry.log_format == LogFormat::Json,
            level: match printer.verbosity() {
                Verbosity::Quiet => Importance::Warnings,
                Verbosity::Normal => Importance::Done,
                Verbosity::Verbose => Importance::Details,
            },
        },
    };
    process.run().map(|()| Exit::Done).map_err(|error| {
        let hint = match error {
            ProcessError::NoCluster(_) => {
                "name a kubeconfig with `--kubeconfig FILE` or the environment variable `KUBECONFIG`"
            }
            ProcessError::Client(_) => "check the server and the credentials in the kubeconfig",
            ProcessError::Listen { .. } => {
                "choose another address, or `0` to disable it; `ss -ltnp` shows what listens there"
            }
            ProcessError::ClientCa { .. } => {
                "pass a PEM file with CA certificates to `--webhook-client-ca FILE`"
            }
            ProcessError::Tls(_) | ProcessError::Runtime(_) => {
                "check the limits of this user with `ulimit -a`"
            }
        };
        Failure::from(anyhow::Error::new(error)).hint(hint)
    })
}

/// The kinds that are named, or those of the Training Operator, and `TrainJob` where it is asked for.
fn kinds(names: &[String], trainjobs: bool) -> Result<Vec<Kind>, Failure> {
    let mut kinds = Vec::new();
    if names.is_empty() {
        kinds.extend(Kind::ALL);
    }
    if trainjobs {
        kinds.push(Kind::Train);
    }
    for name in names {
        let found: Vec<Kind> = Kind::ALL
            .into_iter()
            .filter(|kind| kind.name().eq_ignore_ascii_case(name))
            .collect();
        if found.is_empty() {
            let mut known: Vec<&str> = Kind::ALL.map(Kind::name).to_vec();
            known.sort_unstable();
            known.dedup();
            return Err(Failure::new(format!("unknown job kind `{name}`"))
                .hint(format!("expected one of {}", known.join(", "))));
        }
        kinds.extend(found);
    }
    Ok(kinds)
}

/// What the flag means.
pub(super) fn network_policy(mode: NetworkPolicy) -> launch::NetworkPolicyMode {
    match mode {
        NetworkPolicy::Off => launch::NetworkPolicyMode::Off,
        NetworkPolicy::Ports => launch::NetworkPolicyMode::Ports,
        NetworkPolicy::Job => launch::NetworkPolicyMode::Job,
    }
}

/// A name that no other operator has, also not one that runs in this pod after a restart.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let now = jiff::Timestamp::now().as_nanosecond();
    format!("{}_{now:x}_{}", host.trim(), std::process::id())
}
