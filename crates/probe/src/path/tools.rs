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
    error::PathError,
    frame,
    limit::Limit,
    message::{LARGEST_HELLO, Part, Purpose, RdmaPart, Side},
    socket::wait,
    stream::Session,
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
pub(super) fn rdma(
    session: &Session<'_>,
    folders: &[PathBuf],
    part: &Part,
    own: &RdmaPart,
) -> Side {
    let mut side = Side::default();
    let Some(program) = find(perftest::PROGRAM, folders) else {
        side.trouble = Some(format!("`{}` was not found", perftest::PROGRAM));
        return side;
    };
    let pair = Pair {
        program: &program,
        own,
        limit: Limit::after(part.limit),
        patience: session.patience,
    };
    if let Err(error) = pair.both_ways(session, part, &mut side) {
        side.trouble.get_or_insert_with(|| error.sentence());
    }
    side
}

/// Runs an all-reduce over the GPUs of this pod.
pub(super) fn collective(folders: &[PathBuf], gpus: u32, within: Duration) -> Collective {
    let Some(program) = find(nccl::PROGRAM, folders) else {
        return Collective::NotRun(format!("`{}` was not found", nccl::PROGRAM));
    };
    match nccl::read(&run(&program, &nccl::words(gpus), within)) {
        Ok(reduced) => Collective::Ended(reduced),
        Err(error) => Collective::Troubled(error.to_string()),
    }
}

struct Pair<'a> {
    program: &'a Path,
    own: &'a RdmaPart,
    limit: Limit,
    patience: Duration,
}

impl Pair<'_> {
    fn both_ways(
        &self,
        session: &Session<'_>,
        part: &Part,
        side: &mut Side,
    ) -> Result<(), PathError> {
        if let Some(address) = part.to {
            let stream = session.open(address, part.id, Purpose::Rdma)?;
            if self.send(&stream, side)? {
                self.serve(&stream, side)?;
            }
        } else {
            let stream = session.accept(part.id, Purpose::Rdma, self.patience)?;
            if self.serve(&stream, side)? {
                self.send(&stream, side)?;
            }
        }
        Ok(())
    }

    /// Lets the other side write here; whether that went well.
    fn serve(&self, stream: &TcpStream, side: &mut Side) -> Result<bool, PathError> {
        let server = own_address(stream).map_err(PathError::AgreePort)?;
        let port = free_port(server).map_err(PathError::AgreePort)?;
        let exchange = self.exchange(server, port);
        let running = Running::start(self.program, &exchange.server());
        let serving = Serving {
            port: running.is_ok().then_some(port),
        };
        frame::write(stream, &serving, self.limit).map_err(PathError::AgreePort)?;
        let ran = match running {
            Ok(running) => running.finish(self.left(), || has_said_something(stream)),
            Err(error) => not_started(&error),
        };
        let done: Done =
            frame::read(stream, LARGEST_HELLO, self.limit).map_err(PathError::OtherSide)?;
        let is_own = !matches!(ran.ending, Ending::Exited(Some(0)) | Ending::Dismissed);
        if !done.well && is_own {
            side.serving_trouble = Some(ran.error(perftest::PROGRAM).to_string());
        }
        Ok(done.well)
    }

    /// Writes to the other side; whether that went well.
    fn send(&self, stream: &TcpStream, side: &mut Side) -> Result<bool, PathError> {
        let serving: Serving =
            frame::read(stream, LARGEST_HELLO, self.limit).map_err(PathError::AgreePort)?;
        let server = stream
            .peer_addr()
            .map_err(PathError::AgreePort)?
            .ip()
            .to_canonical();
        match serving.port {
            Some(port) => self.write(&self.exchange(server, port), side),
            None => side.found_nobody = true,
        }
        let well = side.rate.is_some();
        frame::write(stream, &Done { well }, self.limit).map_err(PathError::AgreePort)?;
        Ok(well)
    }

    /// The other side's program takes a moment until it listens.
    fn write(&self, exchange: &Exchange, side: &mut Side) {
        let tries = self.limit.within(self.patience * 2);
        loop {
            let ran = run(self.program, &exchange.client(), self.left());
            side.found_nobody = perftest::connection_refused(&ran);
            match perftest::read(&ran) {
                Ok(rate) => side.rate = Some(rate),
                Err(_) if side.found_nobody && !tries.is_over() => {
                    thread::sleep(PAUSE);
                    continue;
                }
                Err(error) => side.trouble = Some(error.to_string()),
            }
            return;
        }
    }

    /// What one direction may take: its seconds, and the time to set it up.
    fn left(&self) -> Duration {
        let whole = Duration::from_secs(self.own.seconds) + self.patience * 5;
        self.limit.left().unwrap_or_default().min(whole)
    }

    fn exchange(&self, server: IpAddr, listens_on: u16) -> Exchange {
        Exchange {
            port: self.own.port.clone(),
            listens_on,
            seconds: self.own.seconds,
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
