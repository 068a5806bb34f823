//! The supervisor: the first process of a training container, which runs the program and restarts it in place.
//!
//! # Flow
//! [`supervise`] starts the program, passes signals on to it, reaps what it leaves, and ends with its exit code. Where the pod carries settings
//! ([`trainyard_core::launch::supervise`]), it is also a member of a gang: it reports to the supervisor that leads, and stops and starts the
//! program as that orders. The one that leads forwards the orders of the operator, over one connection for each job. It also watches whether
//! the gang trains, from what programs print and from what their processes do, and reports a hang to the operator.
//!
//! # Guarantees
//! - Training is never prevented: with settings that cannot be used, the program runs as without a supervisor. Only a pod that joins a
//!   restart in place ends instead, because the programs of the attempt before may still run.
//! - Without a leader or an operator, the container ends as the program does, after a pause in which an order could have come.
//! - Supervisors show each other a certificate of the job's own authority (TLS 1.3). The operator is authenticated by its authority, and
//!   authenticates the leader by the token of its pod, which is sent to nobody else and never logged.
//! - Connections, frames, their rate, log lines and every wait are bounded.
//!
//! # Caveats
//! GPU memory after a stop is waited for where NVIDIA's library can be loaded or `nvidia-smi` is in the image.

mod beats;
mod channel;
mod checkpoints;
mod descriptors;
mod dial;
mod evidence;
mod frame;
mod inspect;
mod last_words;
mod lines;
mod members;
mod outgoing;
mod processes;
mod program;
mod reporting;
mod seldom;
mod settings;
mod shared_memory;
mod signals;
mod signs;
mod supervisor;
mod wake;
mod watching;

use std::{
    ffi::OsString,
    fs,
    io::{self, Read as _},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::poll::PollFlags;
use rustls::{ClientConnection, pki_types::ServerName};
use trainyard_core::{
    barrier::{EXIT_STOPPED, Leader, MAX_MEMBERS, Member, frame::MAX_TOKEN},
    launch::{
        agent::SERVER_NAME,
        checkpoints::variable_name::JOB_UID,
        supervise::{OperatorAddress, SuperviseSettings, SupervisedRanks},
    },
    spec::WatchMode,
};
use trainyard_probe::evidence::{GpuMemory, network_bytes};

pub use self::inspect::ask_for_stacks;
use self::{
    beats::Beats,
    checkpoints::Checkpoints,
    descriptors::Descriptors,
    dial::Dialer,
    evidence::Evidence,
    frame::{Frame, Kind},
    inspect::Inspect,
    lines::Lines,
    members::Members,
    outgoing::{Outgoing, Secure},
    program::{Event, Program},
    reporting::Reporting,
    settings::Setup,
    signals::Signals,
    supervisor::{Lead, Route, Supervisor},
    watching::Watching,
};
use crate::{
    chain,
    identity::{Identity, operator_config},
    log_message,
    server::listen,
    wait::wait,
};

/// Descriptors that a leader needs besides those of its members.
const OTHER_DESCRIPTORS: u64 = 1024;
/// Where the kernel refuses to poll, which it does for want of memory.
const POLL_AGAIN: Duration = Duration::from_millis(50);
/// The exit code where not even the handlers of signals can be set.
const CANNOT: i32 = 2;

/// Runs `words` under supervision; returns the exit code of the container. `lookup` returns variables of the environment.
pub fn supervise(words: &[OsString], lookup: &dyn Fn(&str) -> Option<String>) -> i32 {
    let signals = match Signals::register() {
        Ok(signals) => signals,
        Err(error) => {
            log_message(&format!("cannot register signal handlers: {error}"));
            return CANNOT;
        }
    };
    if let Err(error) = processes::adopt_orphans() {
        log_message(&format!("cannot become a subreaper: {error}"));
    }
    let (waits, prepared) = match Setup::read(lookup) {
        Ok(None) => return run_alone(words, signals),
        Ok(Some(setup)) => (setup.settings.waits, prepare(&setup, words)),
        Err(failure) => (failure.waits, Err(failure.to_string())),
    };
    match prepared {
        Ok(prepared) => prepared(signals).run(),
        Err(error) if waits => {
            log_message(&format!(
                "the gang restarts in place, and this pod cannot take part in it: {error}"
            ));
            EXIT_STOPPED
        }
        Err(error) => {
            log_message(&format!(
                "the program runs without a supervisor, so a failure ends its pod: {error}"
            ));
            run_alone(words, signals)
        }
    }
}

/// All that can fail is done before the program starts.
fn prepare(
    setup: &Setup,
    words: &[OsString],
) -> Result<impl FnOnce(Signals) -> Supervisor + use<>, String> {
    let settings = &setup.settings;
    let folder = PathBuf::from(&settings.identity);
    let identity = Identity::read(&folder).map_err(|error| chain(&error))?;
    let server = identity.server().map_err(|error| chain(&error))?;
    let dial = |address: &str| {
        let dialer = Dialer::start(address.to_owned());
        dialer.map_err(|error| format!("cannot start a thread: {error}"))
    };
    let origin = Instant::now();
    let now = origin.elapsed();
    let (route, lead, descriptors) = match &settings.operator {
        None => {
            let secure = to_leader(folder);
            let outgoing = Outgoing::new(
                "no connection to the leader of the gang",
                dial(&settings.leader)?,
                secure,
            );
            let route = Route::Remote(Box::new(outgoing));
            (route, None, Descriptors::default())
        }
        Some(operator) => {
            let listener = listen(setup.listen).map_err(|error| chain(&error))?;
            let dialer = dial(&operator.address)?;
            let lead = Lead {
                leader: Leader::new(settings.job.clone(), setup.limits(), now),
                members: Members::new(listener, server),
                checkpoints: setup.checkpoints.clone().and_then(|folder| {
                    Checkpoints::start(folder, origin)
                        .inspect_err(|error| {
                            log_message(&format!("checkpoints are not read: {error}"));
                        })
                        .ok()
                }),
                watching: Watching::new(
                    &settings.job,
                    settings.watch,
                    settings.ranks,
                    settings.slot,
                ),
                operator: Outgoing::new(
                    "no connection to the operator",
                    dialer,
                    to_operator(operator.clone()),
                ),
            };
            let wanted = u64::from(MAX_MEMBERS) + OTHER_DESCRIPTORS;
            let connect_at = Some(now);
            let route = Route::Own { connect_at };
            (route, Some(Box::new(lead)), Descriptors::raise(wanted))
        }
    };
    let member = Member::new(setup.member(), now);
    // Where nothing is watched the program has the streams of the container, and nothing is copied.
    let (lines, reporting) = if settings.watch.mode == WatchMode::Off {
        (None, None)
    } else {
        let cannot = |error| format!("cannot start a thread: {error}");
        let lines = Lines::start().map_err(cannot)?;
        let network: fn() -> Option<u64> = if settings.network {
            network_bytes
        } else {
            || None
        };
        let evidence = Evidence::start(settings.ranks, setup.recorder(), setup.ras(), network)
            .map_err(cannot)?;
        let job = settings.job.clone();
        let mut reporting = Reporting::new(job, settings.slot, settings.ranks, evidence);
        reporting.beats = in_folder(settings, "heartbeats are not read", Beats::open);
        (Some(lines), Some(reporting))
    };
    let inspect = in_folder(settings, "stacks cannot be asked for", Inspect::start);
    let last_words = settings.last_words.as_ref().map(PathBuf::from);
    let rank = (settings.ranks.count == 1).then_some(settings.ranks.first);
    let mut variables = setup.variables.clone();
    // The number of the attempt is the job's; a store of checkpoints counts on from what an earlier job left there.
    variables.push((JOB_UID, settings.job.clone()));
    let program = Program::new(words, descriptors, lines)
        .with_variables(variables)
        .made_for(setup.attempt)
        .with_gpus(GpuMemory::start(None), setup.limits().stop_within);
    Ok(move |signals| {
        let supervisor = Supervisor::new(origin, member, route, lead, program, reporting, signals);
        supervisor.with(inspect, last_words, rank)
    })
}

/// What `open` makes of the folder that supervisor and program share; without it everything else works.
fn in_folder<T>(
    settings: &SuperviseSettings,
    without: &str,
    open: fn(&Path, SupervisedRanks) -> io::Result<T>,
) -> Option<T> {
    let folder = settings.run.as_ref()?;
    open(Path::new(folder), settings.ranks)
        .inspect_err(|error| log_message(&format!("{without}: `{folder}`: {error}")))
        .ok()
}

/// The TLS side of a connection to the leader.
fn to_leader(folder: PathBuf) -> Secure {
    Box::new(move || {
        let config = Identity::read(&folder).and_then(|identity| identity.client());
        let config = config.map_err(|error| chain(&error))?;
        let name = ServerName::try_from(SERVER_NAME).map_err(|error| error.to_string())?;
        let tls = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
        Ok((tls, None))
    })
}

/// The TLS side of a connection to the operator, and the token. The kubelet renews it, so it is read for each connection.
fn to_operator(operator: OperatorAddress) -> Secure {
    Box::new(move || {
        let config = operator_config(operator.authority.as_ref()).map_err(|error| chain(&error))?;
        let name = ServerName::try_from(operator.server_name.clone());
        let name = name.map_err(|error| error.to_string())?;
        let tls = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
        let token = read_token(&operator.token)
            .map_err(|error| format!("cannot read `{}`: {error}", operator.token))?;
        Ok((tls, Some(Frame::new(Kind::Token, token))))
    })
}

fn read_token(path: &str) -> io::Result<Vec<u8>> {
    let mut token = Vec::new();
    fs::File::open(path)?
        .take(MAX_TOKEN as u64 + 1)
        .read_to_end(&mut token)?;
    if token.len() > MAX_TOKEN {
        return Err(io::Error::other(format!(
            "it has more than {MAX_TOKEN} bytes"
        )));
    }
    Ok(token.trim_ascii().to_vec())
}

/// Runs the program as the first process of any container does.
fn run_alone(words: &[OsString], mut signals: Signals) -> i32 {
    let mut program = Program::new(words, Descriptors::default(), None);
    program.start_alone();
    let origin = Instant::now();
    loop {
        for signal in signals.take() {
            program.forward(signal);
        }
        for event in program.step(origin.elapsed()) {
            if let Event::Ended { exit, .. } = event {
                program.end_all();
                return exit.container_code();
            }
        }
        let readable = Some((signals.as_fd(), PollFlags::POLLIN));
        if let Err(error) = wait([readable], None) {
            log_message(&format!("cannot poll: {error}"));
            thread::sleep(POLL_AGAIN);
        }
    }
}

/// What was read of bytes that a peer sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fed {
    /// Whole frames.
    pub(crate) frames: usize,
    /// Those with a content that one side can read; that of a token is not read.
    pub(crate) messages: usize,
    /// The last one was refused.
    pub(crate) refused: bool,
}

/// Reads frames from `bytes`, which arrive in pieces, and their content.
///
/// # Panics
///
/// Where more is kept than a frame may have.
pub(crate) fn feed_frames(bytes: &[u8], piece: usize) -> Fed {
    let mut waiting = Vec::new();
    let mut fed = Fed::default();
    for part in bytes.chunks(piece) {
        waiting.extend(part);
        loop {
            match Frame::take(&mut waiting) {
                Ok(Some(frame)) => {
                    assert!(frame.content.len() <= frame.kind.bound(), "{frame:?}");
                    fed.frames += 1;
                    fed.messages += usize::from(members::feed(&frame));
                }
                Ok(None) => break,
                Err(_) => {
                    // The connection is closed.
                    fed.refused = true;
                    return fed;
                }
            }
        }
    }
    fed
}
