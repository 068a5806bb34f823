//! Addresses: of the interfaces of this machine, and of names.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, ToSocketAddrs as _},
};

use nix::ifaddrs::getifaddrs;
use trainyard_core::probe::Probed;

/// The addresses of every interface that has any.
pub(super) fn of_interfaces() -> Probed<BTreeMap<String, BTreeSet<String>>> {
    let list = match getifaddrs() {
        Ok(list) => list,
        Err(error) => return Probed::Unreadable(error.to_string()),
    };
    let mut addresses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for one in list {
        let Some(address) = one.address else { continue };
        let v4 = address
            .as_sockaddr_in()
            .map(|address| IpAddr::from(address.ip()));
        let v6 = address
            .as_sockaddr_in6()
            .map(|address| IpAddr::from(address.ip()));
        if let Some(address) = v4.or(v6) {
            let own = addresses.entry(one.interface_name).or_default();
            own.insert(address.to_string());
        }
    }
    Probed::Read(addresses)
}

/// The addresses of `name`, as programs of this machine resolve it.
pub(super) fn resolve(name: &str) -> Probed<BTreeSet<String>> {
    match (name, 0).to_socket_addrs() {
        Ok(found) => {
            let found: BTreeSet<String> = found.map(|address| address.ip().to_string()).collect();
            if found.is_empty() {
                return Probed::Absent;
            }
            Probed::Read(found)
        }
        Err(error) => Probed::Unreadable(error.to_string()),
    }
}
