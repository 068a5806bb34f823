//! The interface that gradients are to travel on, where `GLOO_SOCKET_IFNAME` names one.
//!
//! Ranks find each other by the master's name, on whatever network that resolves to; the
//! traffic of every step uses this one.

use std::{collections::BTreeSet, net::IpAddr};

use nix::ifaddrs::getifaddrs;

/// The variable, as Gloo reads it: one name.
pub(crate) const VARIABLE: &str = "GLOO_SOCKET_IFNAME";

/// The address of the interface `name`, or the interfaces that there are.
pub(crate) fn address(name: &str) -> Result<IpAddr, Vec<String>> {
    let mut there = BTreeSet::new();
    for found in getifaddrs().into_iter().flatten() {
        let address = found
            .address
            .and_then(|address| Some(address.as_sockaddr_in()?.ip()));
        if let (true, Some(address)) = (found.interface_name == name, address) {
            return Ok(address.into());
        }
        there.insert(found.interface_name);
    }
    Err(there.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn loopback_address_is_found() {
        assert_eq!(address("lo"), Ok(Ipv4Addr::LOCALHOST.into()));
        let there = address("no-such-one").unwrap_err();
        assert!(there.contains(&"lo".to_owned()), "{there:?}");
    }
}
