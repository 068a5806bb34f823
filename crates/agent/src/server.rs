//! A worker: listens for commands until it is terminated.

use std::{
    ffi::OsString,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::{fd::AsFd as _, unix::net::UnixStream},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use nix::poll::PollFlags;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    low_level::pipe,
};
use thiserror::Error;

use crate::{
    Settings,
    children::{Children, Started},
    guests::Guests,
    identity::{Identity, IdentityError},
    link::passes,
    log_message,
    session::{self, Worker},
    wait::wait,
};

/// Connections at once, with those that are not authenticated yet: these have 128 of them (see `guests`), so that there
/// is always room for more commands than are run at once.
const MAX_CONNECTIONS: usize = 512;
/// What a worker's processes get to end by themselves; below the 30 s that a pod has by default.
const GRACE: Duration = Duration::from_secs(20);
/// The exit code of shells for a process that SIGTERM ended.
const TERMINATED: i32 = 128 + SIGTERM;

/// Why a worker cannot serve.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Its certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It cannot listen.
    #[error("cannot listen on `{address}`")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The command that it runs beside itself cannot be started.
    #[error("cannot start `{program}`")]
    Start {
        /// Its program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The system refuses something else.
    #[error("cannot {tried}")]
    System {
        /// What was tried.
        tried: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// Serves commands until SIGTERM, or until `command`, which runs beside them, ends. Returns the code to
/// end with.
pub fn serve(settings: &Settings, command: &[OsString]) -> Result<i32, ServeError> {
    let system = |tried| move |source| ServeError::System { tried, source };
    let config = Identity::read(&settings.identity)?.server()?;
    let listener = listen(settings.listen)?;
    let (stopped, stop) = UnixStream::pair().map_err(system("create a socket"))?;
    for signal in [SIGTERM, SIGINT] {
        let stop = stop.try_clone().map_err(system("copy a socket"))?;
        pipe::register(signal, stop).map_err(system("register signal handlers"))?;
    }
    let children = Children::adopt().map_err(system("become a subreaper"))?;
    let beside = start(command, &children)?;
    let worker = Arc::new(Worker {
        attempt: settings.attempt,
        config,
        children: Arc::clone(&children),
    });
    log_message(&format!(
        "ready for commands of attempt {} on port {}",
        settings.attempt,
        listener
            .local_addr()
            .map_or(settings.listen.port(), |address| address.port())
    ));
    let connections = Arc::new(AtomicUsize::new(0));
    let guests = Arc::new(Guests::default());
    loop {
        let readable = |descriptor| Some((descriptor, PollFlags::POLLIN));
        let [connects, stops, ends] = wait(
            [
                readable(listener.as_fd()),
                readable(stopped.as_fd()),
                beside.as_ref().and_then(|one| readable(one.wake.as_fd())),
            ],
            None,
        )
        .map_err(system("poll the sockets"))?;
        if stops {
            children.end_all(GRACE);
            return Ok(TERMINATED);
        }
        if ends && let Some(code) = beside.as_ref().and_then(Started::code) {
            children.end_all(GRACE);
            return Ok(code);
        }
        if connects {
            accept(&listener, &worker, &connections, &guests);
        }
    }
}

/// Listens on `address`, without blocking.
pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let bound = TcpListener::bind(address).or_else(|error| {
        // A pod may have no IPv6 at all.
        if address.is_ipv6() && address.ip().is_unspecified() {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).map_err(|_| error)
        } else {
            Err(error)
        }
    });
    let listener = bound.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    listener.map_err(|source| ServeError::Listen { address, source })
}

fn start(command: &[OsString], children: &Children) -> Result<Option<Started>, ServeError> {
    let Some((program, arguments)) = command.split_first() else {
        return Ok(None);
    };
    let started = children.spawn(Command::new(program).args(arguments));
    started.map(Some).map_err(|source| ServeError::Start {
        program: program.to_string_lossy().into_owned(),
        source,
    })
}

/// Accepts the next connection; one that is closed already is ignored.
fn accept(
    listener: &TcpListener,
    worker: &Arc<Worker>,
    connections: &Arc<AtomicUsize>,
    guests: &Arc<Guests>,
) {
    let (socket, from) = match listener.accept() {
        Ok(accepted) => accepted,
        Err(error) => {
            if !passes(&error) {
                log_message(&format!("cannot accept a connection: {error}"));
                // Without free descriptors, an immediate retry fails too.
                thread::sleep(Duration::from_millis(50));
            }
            return;
        }
    };
    if connections.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
        connections.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let place = match guests.admit(&socket, from.ip()) {
        Ok(place) => place,
        Err(error) => {
            connections.fetch_sub(1, Ordering::Relaxed);
            return log_message(&format!("cannot serve a connection: {error}"));
        }
    };
    let (worker, open) = (Arc::clone(worker), Arc::clone(connections));
    let spawned = thread::Builder::new()
        .name("command".to_owned())
        .stack_size(512 * 1024)
        .spawn(move || {
            session::run(&worker, socket, from, place);
            open.fetch_sub(1, Ordering::Relaxed);
        });
    if let Err(error) = spawned {
        connections.fetch_sub(1, Ordering::Relaxed);
        log_message(&format!("cannot serve a connection: {error}"));
    }
}
