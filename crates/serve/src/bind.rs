//! Where a server listens, as users write it.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that the kernel keeps until they are taken, as far as `net.core.somaxconn` allows. One that finds no room there
/// waits for a second before it tries again, which is all the time that an honest review has.
const BACKLOG: u32 = 4_096;

/// Where a server listens, as users write it: `:8080`, `127.0.0.1:8080`, and `0` or nothing for not
/// at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// Not at all.
    #[default]
    Off,
    /// On a port, of one address or of all.
    At {
        /// The address; all of this machine where there is none.
        host: Option<IpAddr>,
        /// The port; 0 is any free one.
        port: u16,
    },
}

/// A text that names no place to listen.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("expected a port such as `:8080`, an address such as `127.0.0.1:8080`, or `0` for none")]
pub struct BindError;

impl FromStr for Bind {
    type Err = BindError;

    fn from_str(text: &str) -> Result<Self, BindError> {
        if matches!(text, "" | "0") {
            return Ok(Self::Off);
        }
        if let Some(port) = text.strip_prefix(':') {
            let port = port.parse().map_err(|_| BindError)?;
            return Ok(Self::At { host: None, port });
        }
        let address: SocketAddr = text.parse().map_err(|_| BindError)?;
        Ok(Self::At {
            host: Some(address.ip()),
            port: address.port(),
        })
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Off => f.write_str("0"),
            Self::At { host: None, port } => write!(f, ":{port}"),
            Self::At {
                host: Some(host),
                port,
            } => SocketAddr::new(host, port).fmt(f),
        }
    }
}

impl Bind {
    /// Listens; nothing where it is off. Called within a runtime.
    pub fn listen(self) -> io::Result<Option<TcpListener>> {
        let Self::At { host, port } = self else {
            return Ok(None);
        };
        let at = |host: IpAddr| open(SocketAddr::new(host, port));
        let listener = match host {
            Some(host) => at(host)?,
            // One socket for both families, where the machine has both.
            None => match at(Ipv6Addr::UNSPECIFIED.into()) {
                Ok(listener) => listener,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
                Err(_) => at(Ipv4Addr::UNSPECIFIED.into())?,
            },
        };
        Ok(Some(listener))
    }
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // The port of a process that has just ended can be used at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
