//! Sockets that are bound to an interface and time out.

use std::{
    ffi::OsString,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrLike, bind,
        connect, getsockopt, listen, setsockopt, socket, sockopt,
    },
};
use thiserror::Error;

use super::limit::Limit;

/// Why there is no socket to measure with.
#[derive(Debug, Error)]
pub enum SocketError {
    /// The machine has no such interface.
    #[error("no interface `{0}`")]
    NoInterface(String),
    /// The interface has no address.
    #[error("interface `{0}` has no address")]
    NoAddress(String),
    /// Its addresses could not be read.
    #[error("cannot read the addresses of interfaces")]
    ReadAddresses(#[source] Errno),
    /// No port could be opened.
    #[error("cannot listen on `{0}`")]
    Listen(SocketAddr, #[source] io::Error),
}

/// What measuring sockets are bound to.
#[derive(Clone, Debug, Default)]
pub(super) struct Binding {
    /// The name of an interface and its address; any where there is none.
    pub(super) interface: Option<(String, IpAddr)>,
}

impl Binding {
    /// To the interface called `name`, by its first address, IPv4 before IPv6.
    pub(super) fn to(name: Option<&str>) -> Result<Self, SocketError> {
        let Some(name) = name else {
            return Ok(Self::default());
        };
        let mut found = false;
        let mut addresses = Vec::new();
        for entry in getifaddrs().map_err(SocketError::ReadAddresses)? {
            if entry.interface_name != name {
                continue;
            }
            found = true;
            let Some(address) = entry.address else {
                continue;
            };
            if let Some(v4) = address.as_sockaddr_in() {
                addresses.push(IpAddr::V4(v4.ip()));
            } else if let Some(v6) = address.as_sockaddr_in6() {
                // A link-local address means nothing without a scope, which the other side has not.
                let ip = v6.ip();
                if !ip.is_unicast_link_local() {
                    addresses.push(IpAddr::V6(ip));
                }
            }
        }
        addresses.sort();
        match addresses.first() {
            Some(address) => Ok(Self {
                interface: Some((name.to_owned(), *address)),
            }),
            None if found => Err(SocketError::NoAddress(name.to_owned())),
            None => Err(SocketError::NoInterface(name.to_owned())),
        }
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        self.interface.as_ref().map(|(_, address)| *address)
    }

    /// A listener on `port`, or on any port where that is 0.
    pub(super) fn listen(&self, port: u16) -> Result<TcpListener, SocketError> {
        let both = [
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        ];
        let own = self.address().map(|address| vec![address]);
        let mut failure = None;
        for address in own.unwrap_or_else(|| both.to_vec()) {
            let address = SocketAddr::new(address, port);
            match self.listen_at(address) {
                Ok(listener) => return Ok(listener),
                Err(error) => failure = Some(SocketError::Listen(address, error)),
            }
        }
        Err(failure.unwrap_or_else(|| {
            let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
            SocketError::Listen(any, io::ErrorKind::AddrNotAvailable.into())
        }))
    }

    fn listen_at(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let socket = self.open(address)?;
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
        bind_to(&socket, address)?;
        // One connection of each of a thousand peers may wait at once. A number would be held to what the C library
        // was built with, which is 128 in some; this is held to what the kernel allows.
        listen(&socket, Backlog::MAXALLOWABLE)?;
        Ok(TcpListener::from(socket))
    }

    /// A connection from this interface to `address`.
    pub(super) fn connect(&self, address: SocketAddr, limit: Limit) -> io::Result<TcpStream> {
        let socket = self.open(address)?;
        if let Some(own) = self
            .address()
            .filter(|own| own.is_ipv4() == address.is_ipv4())
        {
            bind_to(&socket, SocketAddr::new(own, 0))?;
        }
        match connect_to(&socket, address) {
            Ok(()) => {}
            Err(Errno::EINPROGRESS) => wait_connected(&socket, limit)?,
            Err(error) => return Err(error.into()),
        }
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A socket that waits for nothing.
    fn open(&self, address: SocketAddr) -> io::Result<OwnedFd> {
        let family = if address.is_ipv4() {
            AddressFamily::Inet
        } else {
            AddressFamily::Inet6
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(family, SockType::Stream, flags, None)?;
        if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
            setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
        }
        if let Some((name, _)) = &self.interface {
            // Kernels before 5.7 want a privilege for it. There the address alone decides, which is
            // the same unless routes are wrong.
            match setsockopt(&socket, sockopt::BindToDevice, &OsString::from(name)) {
                Ok(()) | Err(Errno::EPERM) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(socket)
    }
}

/// The next connection of a listener that waits for nothing by itself.
pub(super) fn accept(listener: &TcpListener, limit: Limit) -> io::Result<(TcpStream, SocketAddr)> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, address)) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                return Ok((stream, address));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(listener.as_fd(), PollFlags::POLLIN, limit)?;
            }
            // A connection that was aborted before it was accepted is ignored.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
    }
}

fn wait_connected(socket: &OwnedFd, limit: Limit) -> io::Result<()> {
    wait(socket.as_fd(), PollFlags::POLLOUT, limit)?;
    match getsockopt(socket, sockopt::SocketError)? {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Waits until one of `what` is there, and says which.
pub(super) fn wait(fd: BorrowedFd<'_>, what: PollFlags, limit: Limit) -> io::Result<PollFlags> {
    loop {
        // Rounded up, so that a wait of less than a millisecond does not become a busy loop.
        let millis = limit.left()?.as_millis() + 1;
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(fd, what)];
        match poll(&mut fds, timeout) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(fds[0].revents().unwrap_or(PollFlags::empty())),
            Err(error) => return Err(error.into()),
        }
    }
}

fn bind_to(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    with_address(address, |address| bind(socket.as_raw_fd(), address)).map_err(Into::into)
}

fn connect_to(socket: &OwnedFd, address: SocketAddr) -> Result<(), Errno> {
    with_address(address, |address| connect(socket.as_raw_fd(), address))
}

fn with_address<T>(address: SocketAddr, then: impl FnOnce(&dyn SockaddrLike) -> T) -> T {
    match address {
        SocketAddr::V4(v4) => then(&SockaddrIn::from(v4)),
        SocketAddr::V6(v6) => then(&SockaddrIn6::from(v6)),
    }
}
