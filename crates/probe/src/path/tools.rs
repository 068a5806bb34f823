//! External programs on this side of a preflight: one side of `ib_write_bw`, and `all_reduce_perf`.
//!
//! The two sides of a pair agree over a connection between them: the server sends its port, the client
//! sends when it is done. Options and results of the programs are `core::probe::tools`.
//!
//! Invariant: one program at a time on each side, and none is left when this returns.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use nix::poll::PollFlags;
use serde::{Deserialize, Serialize};
use trainyard_core::probe::tools::{
    Collective, Ending, nccl,
    perftest::{self, Exchange},
};

use super::{
    frame,
    limit::Limit,
    message::{CollectivePart, LARGEST_HELLO, Purpose, RdmaPart, RdmaSide},
    socket::wait,
    stream::{Session, describe_error},
};
use crate::program::{Running, find, not_started, run};

/// Between two tries to reach a program that may not listen yet.
const PAUSE: Duration = Duration::from_millis(100);

/// The message of the side that serves.
#[derive(Debug, Serialize, Deserialize)]
struct Serving {
    /// The port; none where the program did not start.
    port: Option<u16>,
}

/// The last message of the side that connects.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    well: bool,
}

/// Takes part in a pair: first the side that connects sends, then the other one.
pub(super) fn rdma(session: &Session<'_>, folders: &[PathBuf], part: &RdmaPart) -> RdmaSide {
    let mut side = RdmaSide::default();
    let Some(program) = find(perftest::PROGRAM, folders) else {
        side.trouble = Some(format!("`{}` was not found", perftest::PROGRAM));
        return side;
    };
    let pair = Pair {
        program: &program,
        part,
        limit: Limit::after(Duration::from_millis(part.limit_millis)),
        patience: session.patience,
    };
    let outcome = match part.to {
        Some(address) => pair.connected(session, address, &mut side),
        None => pair.awaited(session, &mut side),
    };
    if let Err(why) = outcome {
        side.trouble.get_or_insert(why);
    }
    side
}

/// Runs an all-reduce over the GPUs of this pod.
pub(super) fn collective(folders: &[PathBuf], part: &CollectivePart) -> Collective {
    let Some(program) = find(nccl::PROGRAM, folders) else {
        return Collective::NotRun(format!("`{}` was not found", nccl::PROGRAM));
    };
    let within = Duration::from_millis(part.limit_millis);
    match nccl::read(&run(&program, &nccl::words(part.gpus), within)) {
        Ok(reduced) => Collective::Ended(reduced),
        Err(why) => Collective::Troubled(why),
    }
}

struct Pair<'a> {
    program: &'a Path,
    part: &'a RdmaPart,
    limit: Limit,
    patience: Duration,
}

impl Pair<'_> {
    fn connected(
        &self,
        session: &Session<'_>,
        address: SocketAddr,
        side: &mut RdmaSide,
    ) -> Result<(), String> {
        let stream = session.open(address, self.part.id, Purpose::Rdma)?;
        if self.send(&stream, side)? {
            self.serve(&stream, side)?;
        }
        Ok(())
    }

    fn awaited(&self, session: &Session<'_>, side: &mut RdmaSide) -> Result<(), String> {
        let stream = session.accept(self.part.id, Purpose::Rdma, self.patience)?;
        if self.serve(&stream, side)? {
            self.send(&stream, side)?;
        }
        Ok(())
    }

    /// Lets the other side write here; whether that went well.
    fn serve(&self, stream: &TcpStream, side: &mut RdmaSide) -> Result<bool, String> {
        let agreeing = |error: io::Error| describe_error("agreeing on a port", &error);
        let server = own_address(stream).map_err(agreeing)?;
        let port = free_port(server).map_err(agreeing)?;
        let exchange = self.exchange(server, port);
        let running = Running::start(self.program, &exchange.server());
        let serving = Serving {
            port: running.is_ok().then_some(port),
        };
        frame::write(stream, &serving, self.limit).map_err(agreeing)?;
        let ran = match running {
            Ok(running) => running.finish(self.left(), || has_said_something(stream)),
            Err(error) => not_started(&error),
        };
        let done: Done = frame::read(stream, LARGEST_HELLO, self.limit)
            .map_err(|error| describe_error("waiting for the other side", &error))?;
        let is_own = !matches!(ran.ending, Ending::Exited(Some(0)) | Ending::Dismissed);
        if !done.well && is_own {
            side.serving_trouble = Some(ran.trouble(perftest::PROGRAM));
        }
        Ok(done.well)
    }

    /// Writes to the other side; whether that went well.
    fn send(&self, stream: &TcpStream, side: &mut RdmaSide) -> Result<bool, String> {
        let agreeing = |error: io::Error| describe_error("agreeing on a port", &error);
        let serving: Serving = frame::read(stream, LARGEST_HELLO, self.limit).map_err(agreeing)?;
        let server = stream.peer_addr().map_err(agreeing)?.ip().to_canonical();
        match serving.port {
            Some(port) => self.write(&self.exchange(server, port), side),
            None => side.found_nobody = true,
        }
        let well = side.sent.is_some();
        frame::write(stream, &Done { well }, self.limit).map_err(agreeing)?;
        Ok(well)
    }

    /// The other side's program takes a moment until it listens.
    fn write(&self, exchange: &Exchange, side: &mut RdmaSide) {
        let tries = self.limit.within(self.patience * 2);
        loop {
            let ran = run(self.program, &exchange.client(), self.left());
            side.found_nobody = perftest::connection_refused(&ran);
            match perftest::read(&ran) {
                Ok(rate) => side.sent = Some(rate),
                Err(_) if side.found_nobody && !tries.is_over() => {
                    thread::sleep(PAUSE);
                    continue;
                }
                Err(why) => side.trouble = Some(why),
            }
            return;
        }
    }

    /// What one direction may take: its seconds, and the time to set it up.
    fn left(&self) -> Duration {
        let whole = Duration::from_secs(self.part.seconds) + self.patience * 5;
        self.limit.left().unwrap_or_default().min(whole)
    }

    fn exchange(&self, server: IpAddr, listens_on: u16) -> Exchange {
        Exchange {
            port: self.part.port.clone(),
            listens_on,
            seconds: self.part.seconds,
            server,
        }
    }
}

fn own_address(stream: &TcpStream) -> io::Result<IpAddr> {
    Ok(stream.local_addr()?.ip().to_canonical())
}

/// A free port on all addresses of the same kind, as the program would listen.
fn free_port(address: IpAddr) -> io::Result<u16> {
    let any = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let listener = TcpListener::bind(SocketAddr::new(any, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Whether there is something to read, or the other side is gone.
fn has_said_something(stream: &TcpStream) -> bool {
    let now = Limit::after(Duration::from_millis(1));
    wait(stream.as_fd(), PollFlags::POLLIN, now).is_ok()
}
