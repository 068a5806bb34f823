//! Ports that no other run and no other program of this machine uses.
//!
//! A rank binds its port long after the run began, so a port that is free now may be given to two
//! runs. Each therefore holds a name of its port in the kernel's abstract socket namespace, which
//! is released when the process ends, however it ends.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr as UnixAddress, UnixListener},
    },
};

/// Below lie the ports of services.
const FIRST: i32 = 1024;
const LAST: i32 = 65535;

/// Holds the abstract name `name` until the value is dropped; `None` where another holds it.
pub(super) fn hold(name: &str) -> io::Result<Option<UnixListener>> {
    match UnixListener::bind_addr(&UnixAddress::from_abstract_name(name)?) {
        Ok(held) => Ok(Some(held)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

/// The ports of one run.
#[derive(Debug, Default)]
pub(super) struct Ports {
    held: Vec<UnixListener>,
}

impl Ports {
    /// `wanted`, or else the next port above it that is free; `None` where there is none.
    pub(super) fn claim(&mut self, wanted: i32) -> io::Result<Option<i32>> {
        let first = wanted.clamp(FIRST, LAST);
        for port in (first..=LAST).chain(FIRST..first) {
            if let Ok(number) = u16::try_from(port)
                && is_free(number)
                && let Some(held) = hold(&format!("trainyard-port-{port}"))?
            {
                self.held.push(held);
                return Ok(Some(port));
            }
        }
        Ok(None)
    }

    /// The sockets that reserve the ports; dropping them releases the ports.
    pub(super) fn into_held(self) -> Vec<UnixListener> {
        self.held
    }
}

/// Whether a program could listen on `port` at every address.
fn is_free(port: u16) -> bool {
    let everywhere = [
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
    ];
    everywhere
        .iter()
        .all(|address| match TcpListener::bind(address) {
            Ok(_) => true,
            // On a machine without IPv6 nothing listens there either.
            Err(error) => {
                error.kind() != io::ErrorKind::AddrInUse
                    && error.kind() != io::ErrorKind::PermissionDenied
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_out_once() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = i32::from(listener.local_addr().unwrap().port());
        let mut ports = Ports::default();
        let first = ports.claim(taken).unwrap().unwrap();
        assert_ne!(first, taken, "a program listens there");
        let second = ports.claim(first).unwrap().unwrap();
        assert_ne!(second, first, "the same run has it");
        let mut other = Ports::default();
        let third = other.claim(first).unwrap().unwrap();
        assert!(third != first && third != second, "another run has it");
        drop(ports);
        let mut last = Ports::default();
        assert_eq!(last.claim(first).unwrap(), Some(first), "it was released");
    }
}
