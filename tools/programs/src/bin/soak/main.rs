//! Jobs of all kinds come and go while everything around the operators fails; at the end everything is as it must be.
//!
//! `cargo xtask soak` runs it inside a test cluster. Three operators take part in the election: two are killed in turns, the
//! third never, and its memory is what is judged. The choices of a run follow from its seed; what happens at the same time as
//! what is up to the machine. The first broken invariant ends the run.
//!
//! It ends at the latest [`SETTLE`] + [`AFTER`] after its minutes.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool that is run for what it prints"
)]

mod cluster;
mod drive;
mod end;
mod faults;
mod invariants;
mod manifest;
mod memory;
mod observer;
mod operators;
mod plan;
mod proxy;
mod random;
mod report;
mod schedule;
mod world;

use std::{
    collections::BTreeSet,
    fs,
    net::{SocketAddr, ToSocketAddrs as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use kube::{Client, Config};
use serde_json::json;
use tokio::task::JoinSet;

use self::{
    cluster::{Answer, NODE},
    operators::{Operator, Setup},
    plan::NAMESPACES,
    schedule::Fault,
    world::World,
};

/// Jobs under way at once.
const AT_ONCE: usize = 16;
/// From the end of the faults until every job has ended and is gone.
const SETTLE: Duration = Duration::from_mins(6);
/// For the checks after that.
const AFTER: Duration = Duration::from_mins(10);
/// The last one is never killed.
const OPERATORS: [&str; 3] = ["a", "b", "witness"];

struct Arguments {
    minutes: u64,
    seed: u64,
    without: BTreeSet<Fault>,
    binary: PathBuf,
    logs: PathBuf,
}

fn main() -> ExitCode {
    let arguments = match arguments(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(soak(&arguments)),
        Err(error) => Err(Trouble::CouldNotRun(error.to_string())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Trouble::Broken(broken)) => {
            eprintln!("error: seed {}: {broken}", arguments.seed);
            eprintln!("hint: run `{}` to see it again", arguments.line());
            if let Ok(state) = state() {
                cluster::keep_logs(Path::new(&state), &arguments.logs);
            }
            let logs = arguments.logs.display();
            eprintln!("hint: the logs of the operators and of the cluster are in `{logs}`");
            ExitCode::from(1)
        }
        Err(Trouble::CouldNotRun(error)) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Why a run did not end well.
enum Trouble {
    /// What must hold does not.
    Broken(String),
    CouldNotRun(String),
}

impl Arguments {
    /// The command that does the same again.
    fn line(&self) -> String {
        let mut line = format!(
            "cargo xtask soak --minutes {} --seed {}",
            self.minutes, self.seed
        );
        for fault in &self.without {
            line.push_str(" --without ");
            line.push_str(fault.name());
        }
        line
    }
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        minutes: 30,
        seed: 1,
        without: BTreeSet::new(),
        binary: PathBuf::new(),
        logs: PathBuf::from("."),
    };
    while let Some(word) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("`{word}` needs a value"))?;
        let number = || {
            value
                .parse()
                .map_err(|_| format!("`{word}` needs a number, got `{value}`"))
        };
        match word.as_str() {
            "--minutes" => arguments.minutes = number()?,
            "--seed" => arguments.seed = number()?,
            "--binary" => arguments.binary = value.into(),
            "--logs" => arguments.logs = value.into(),
            "--without" => {
                let fault = Fault::ALL.into_iter().find(|fault| fault.name() == value);
                arguments.without.insert(fault.ok_or_else(|| {
                    let names = Fault::ALL.map(|fault| format!("`{}`", fault.name()));
                    format!(
                        "unknown fault `{value}`; expected one of {}",
                        names.join(", ")
                    )
                })?);
            }
            _ => return Err(format!("unknown argument `{word}`")),
        }
    }
    if arguments.minutes == 0 {
        return Err("`--minutes` needs a number of at least 1".to_owned());
    }
    Ok(arguments)
}

async fn soak(arguments: &Arguments) -> Result<(), Trouble> {
    let world = Arc::new(prepare(arguments).await.map_err(Trouble::CouldNotRun)?);
    let faults = schedule::schedule(arguments.seed, arguments.minutes, &arguments.without);
    eprintln!(
        "seed {}: {} minutes, {} faults, {AT_ONCE} jobs at once",
        arguments.seed,
        arguments.minutes,
        faults.len()
    );
    let observer = observer::observe(&world);
    let run = async {
        work(&world, faults, arguments.minutes).await?;
        let checked = tokio::time::timeout(AFTER, end::check(&world)).await;
        checked.unwrap_or_else(|_| Err(format!("the checks took longer than {AFTER:?}")))
    };
    let outcome = tokio::select! {
        outcome = run => outcome,
        broken = world.until_broken() => Err(broken),
        () = observer => Err(world.broken().unwrap_or_default()),
    };
    let leaders = cluster::lease_transitions(&world.client).await;
    print!("{}", report::table(&world, leaders));
    let outcome = outcome.and_then(|()| report::judge_memory(&world, arguments.minutes));
    outcome.map_err(Trouble::Broken)
}

/// The minutes of the run, and the end of its jobs.
async fn work(
    world: &Arc<World>,
    faults: Vec<schedule::Planned>,
    minutes: u64,
) -> Result<(), String> {
    let mut drivers = JoinSet::new();
    for _ in 0..AT_ONCE {
        let world = Arc::clone(world);
        drivers.spawn(async move { drive::drive_all(&world).await });
    }
    faults::run(world, faults).await;
    let end = world.began + Duration::from_secs(60 * minutes);
    tokio::time::sleep_until(end.into()).await;
    world.stops.store(true, Ordering::Relaxed);
    world.faults_end();
    eprintln!("the faults are over");
    let all = async { while drivers.join_next().await.is_some() {} };
    let settled = tokio::time::timeout(SETTLE, all).await;
    settled.map_err(|_| {
        let live: Vec<String> = world.counts().live.iter().cloned().collect();
        format!(
            "{SETTLE:?} after the last fault these jobs are not done: {}",
            live.join(", ")
        )
    })
}

/// The namespaces, the account, and the operators.
async fn prepare(arguments: &Arguments) -> Result<World, String> {
    let state = state()?;
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let client = Client::try_default().await.map_err(|error| words(&error))?;
    let config = Config::infer().await.map_err(|error| words(&error))?;
    let server = address(&config)?;
    fs::create_dir_all(&arguments.logs).map_err(|error| words(&error))?;
    for name in NAMESPACES {
        let namespace = ["", "v1", "Namespace", "namespaces"];
        let object = json!({"metadata": {"name": name}});
        if !matches!(
            cluster::create(&client, &namespace, None, object).await,
            Answer::Ok(())
        ) {
            return Err(format!("cannot create namespace `{name}`"));
        }
        // Pods are admitted only once the namespace has its account.
        let accounts = cluster::api(
            &client,
            &["", "v1", "ServiceAccount", "serviceaccounts"],
            Some(name),
        );
        while !matches!(
            cluster::ask(accounts.get_opt("default")).await,
            Answer::Ok(Some(_))
        ) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let label = "test.trainyard.dev/node=simulated";
    let nodes = cluster::list(&client, &NODE, None, label)
        .await
        .unwrap_or_default();
    if nodes.len() < 2 {
        return Err("the cluster has fewer than two simulated nodes".to_owned());
    }
    let token = cluster::account(&client).await?;
    let setup = Setup {
        binary: &arguments.binary,
        state: Path::new(&state),
        logs: &arguments.logs,
        server,
        token: &token,
    };
    let mut operators = Vec::new();
    for (number, name) in (0..).zip(OPERATORS) {
        let operator = Operator::start(&setup, name, number).await;
        operators.push(operator.map_err(|error| format!("cannot start operator {name}: {error}"))?);
    }
    let ports = operators.iter().map(Operator::webhook_port);
    cluster::route_to_webhooks(&client, server.ip(), ports).await?;
    Ok(World::new(client, arguments.seed, &state, operators, nodes))
}

fn state() -> Result<String, String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "where the cluster keeps its state"
    )]
    let state = std::env::var("TRAINYARD_CLUSTER");
    state.map_err(|_| "there is no cluster; `cargo xtask soak` brings one".to_owned())
}

fn address(config: &Config) -> Result<SocketAddr, String> {
    let url = &config.cluster_url;
    let host = url.host().unwrap_or_default();
    let mut found = (host, url.port_u16().unwrap_or(443))
        .to_socket_addrs()
        .map_err(|error| error.to_string())?;
    found
        .next()
        .ok_or_else(|| format!("`{url}` has no address"))
}
