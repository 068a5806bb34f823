//! Connections that have not shown their certificate and named a command yet.
//!
//! Everyone who reaches the port can open them. So they have a limit of their own, apart from commands, and a
//! share of it for each address, and the oldest is closed for a new one: the remote shell of this
//! job is authenticated within milliseconds, a connection that stays silent is not.
//!
//! Invariant: at most [`MOST`] of them at once, and at most [`SHARE`] from one address.

use std::{
    io,
    net::{IpAddr, Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::log_message;

/// Connections at once that are not authenticated.
pub(crate) const MOST: usize = 128;
/// Those of one address.
const SHARE: usize = 32;

/// All of them, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Guests(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    there: Vec<Guest>,
    next: u64,
    closed: u64,
}

#[derive(Debug)]
struct Guest {
    number: u64,
    from: IpAddr,
    socket: TcpStream,
}

/// A place among the guests, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    guests: Arc<Guests>,
    number: u64,
}

impl Guests {
    /// Adds a connection; closes another one where there are too many.
    pub(crate) fn admit(self: &Arc<Self>, socket: &TcpStream, from: IpAddr) -> io::Result<Place> {
        let socket = socket.try_clone()?;
        let mut list = self.lock();
        let addresses: Vec<IpAddr> = list.there.iter().map(|guest| guest.from).collect();
        if let Some(at) = connection_to_close(&addresses, from) {
            let left = list.there.remove(at);
            // Its thread wakes, and ends.
            drop(left.socket.shutdown(Shutdown::Both));
            list.closed += 1;
            if list.closed.is_power_of_two() {
                log_message(&format!(
                    "closed {} connections that did not authenticate in time, the last from `{}`",
                    list.closed, left.from
                ));
            }
        }
        let number = list.next;
        list.next += 1;
        list.there.push(Guest {
            number,
            from,
            socket,
        });
        Ok(Place {
            guests: Arc::clone(self),
            number,
        })
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut list = self.guests.lock();
        list.there.retain(|guest| guest.number != self.number);
    }
}

/// Which of `there`, the oldest first, is closed for a connection from `newcomer`: the oldest of the newcomer's own
/// address where that has its share, else the oldest of the address that has most.
fn connection_to_close(there: &[IpAddr], newcomer: IpAddr) -> Option<usize> {
    let count = |address: &IpAddr| there.iter().filter(|other| *other == address).count();
    let oldest = |address: &IpAddr| there.iter().position(|other| other == address);
    if count(&newcomer) >= SHARE {
        return oldest(&newcomer);
    }
    if there.len() < MOST {
        return None;
    }
    // Of several that have as many, the one whose oldest is oldest.
    let (at, _) = there
        .iter()
        .enumerate()
        .filter(|(at, address)| oldest(address) == Some(*at))
        .map(|(at, address)| (at, count(address)))
        .min_by_key(|(at, count)| (usize::MAX - count, *at))?;
    Some(at)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        net::{Ipv4Addr, TcpListener},
    };

    use super::*;

    fn address(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    #[test]
    fn the_oldest_of_the_busiest_address_leaves() {
        let flood = |number: u8, count: usize| vec![address(number); count];
        let many: Vec<IpAddr> = (0..128).map(address).collect();
        let cases = [
            ("no connection", vec![], 1, None),
            ("there is room", flood(2, 31), 1, None),
            (
                "its share is used",
                [flood(2, 3), flood(1, 32)].concat(),
                1,
                Some(3),
            ),
            (
                "a flood of four",
                [
                    flood(9, 1),
                    flood(2, 31),
                    flood(3, 32),
                    flood(4, 32),
                    flood(5, 32),
                ]
                .concat(),
                1,
                Some(32),
            ),
            ("of equals the oldest", many, 200, Some(0)),
        ];
        for (what, there, newcomer, want) in cases {
            assert_eq!(
                connection_to_close(&there, address(newcomer)),
                want,
                "{what}"
            );
        }
    }

    /// A flood of silent connections neither keeps the launcher out nor makes it leave.
    #[test]
    fn a_flood_leaves_the_launcher_in() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            (client, server)
        };
        let guests = Arc::new(Guests::default());
        let mut flood = Vec::new();
        for number in 0..MOST {
            let (client, server) = connect();
            let from = address(u8::try_from(number / SHARE).unwrap());
            flood.push((client, guests.admit(&server, from).unwrap(), server));
        }
        let (mut launcher, server) = connect();
        let _place = guests.admit(&server, address(200)).unwrap();
        assert_eq!(guests.lock().there.len(), MOST);
        // The oldest was closed for it, and no other one.
        let (oldest, ..) = flood.first_mut().unwrap();
        assert_eq!(oldest.read(&mut [0]).unwrap(), 0);
        for (client, ..) in &mut flood[1..] {
            client.set_nonblocking(true).unwrap();
            let error = client.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
        // However many more come from these addresses, they replace each other.
        for number in 0..2 * MOST {
            let (client, server) = connect();
            let from = address(u8::try_from(number % 4).unwrap());
            flood.push((client, guests.admit(&server, from).unwrap(), server));
        }
        assert_eq!(guests.lock().there.len(), MOST);
        launcher.set_nonblocking(true).unwrap();
        let error = launcher.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(flood);
        assert_eq!(guests.lock().there.len(), 1);
    }
}
