//! Connections that are made on a thread of their own, because looking up a name blocks.
//!
//! Invariants: one thread for each peer, and one request in work. A result that comes after its deadline is dropped.

use std::{
    io,
    net::{TcpStream, ToSocketAddrs as _},
    os::fd::{AsFd, BorrowedFd},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use super::wake::{self, Woken};

/// For each address that a name has.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Addresses of a name that are tried, at most.
const MOST_ADDRESSES: usize = 4;
/// Small: the thread looks up names and connects.
const STACK: usize = 256 * 1024;

/// The thread that connects to one peer.
#[derive(Debug)]
pub(crate) struct Dialer {
    requests: SyncSender<u64>,
    results: Receiver<(u64, io::Result<TcpStream>)>,
    woken: Woken,
    newest: u64,
    busy: bool,
    wanted: bool,
}

impl Dialer {
    /// Starts the thread for `address`, a host and a port.
    pub(crate) fn start(address: String) -> io::Result<Self> {
        let (woken, waker) = wake::pair()?;
        let (requests, to_do) = sync_channel::<u64>(1);
        let (done, results) = sync_channel(1);
        let thread = thread::Builder::new()
            .name("dial".to_owned())
            .stack_size(STACK);
        thread.spawn(move || {
            while let Ok(number) = to_do.recv() {
                if done.send((number, connect(&address))).is_err() {
                    return;
                }
                waker.wake();
            }
        })?;
        Ok(Self {
            requests,
            results,
            woken,
            newest: 0,
            busy: false,
            wanted: false,
        })
    }

    /// Asks for a connection; whether that is possible now. It is not while an earlier request is still in work.
    pub(crate) fn ask(&mut self) -> bool {
        if self.busy {
            return false;
        }
        self.newest += 1;
        self.busy = self.requests.try_send(self.newest).is_ok();
        self.wanted = self.busy;
        self.busy
    }

    /// The result of the last request is not waited for any more.
    pub(crate) fn give_up(&mut self) {
        self.wanted = false;
    }

    /// The result of the last request, where it is there and still wanted.
    pub(crate) fn take(&mut self) -> Option<io::Result<TcpStream>> {
        self.woken.clear();
        let (number, result) = self.results.try_recv().ok()?;
        self.busy = false;
        (self.wanted && number == self.newest).then_some(result)
    }
}

impl AsFd for Dialer {
    /// Readable when there is a result.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in address.to_socket_addrs()?.take(MOST_ADDRESSES) {
        match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}
