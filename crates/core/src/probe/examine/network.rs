//! The interface that gradients travel on, and counters of errors.

use std::collections::BTreeMap;

use super::{Scene, Want};
use crate::{
    fabric::Range,
    probe::{
        Check, Interface, Owner, Probed, amounts,
        catalogue::{ADDRESS, ERROR_COUNTERS, INTERFACE, LINK, LINK_SPEED, MTU},
    },
};

pub(super) fn examine(scene: &Scene<'_>, checks: &mut Vec<Check>) {
    let Some(name) = scene.needs.interface.as_deref() else {
        let found = scene
            .reading
            .interfaces
            .value()
            .map_or_else(String::new, names);
        let why = if scene.needs.asked_by.is_some() {
            "the job sets no interface"
        } else {
            "no interface is set"
        };
        return checks.push(INTERFACE.skip(found, why));
    };
    let needed = format!("`{name}`, by the fabric");
    let interfaces = match INTERFACE.value_or_check(&scene.reading.interfaces, &*needed) {
        Ok(interfaces) => interfaces,
        Err(check) => return checks.push(*check),
    };
    let Some(interface) = interfaces.get(name) else {
        checks.push(INTERFACE.fail(
            names(interfaces),
            needed,
            "the pod has no such network: the attachment is missing, or its plugin does not run on the \
             node; outside of pods there is none",
            "check `k8s.v1.cni.cncf.io/network-status` of the pod, and the logs of Multus on the node",
        ));
        return;
    };
    checks.push(INTERFACE.pass(format!("`{name}`"), needed));
    let all = [
        address(scene, interface),
        mtu(scene, interface),
        link(interface),
        link_speed(scene, interface),
    ];
    checks.extend(all.map(|check| check.about(name)));
}

fn names(interfaces: &BTreeMap<String, Interface>) -> String {
    let names: Vec<&str> = interfaces.keys().map(String::as_str).collect();
    names.join(", ")
}

fn address(scene: &Scene<'_>, interface: &Interface) -> Check {
    let stated = scene.needs.address_range.as_deref();
    let range = stated.and_then(|text| Some((text, Range::parse(text)?)));
    let needed = range.map_or_else(
        || "an address".to_owned(),
        |(text, _)| format!("inside of {text}, by the fabric"),
    );
    let addresses = match ADDRESS.value_or_check(&interface.addresses, &*needed) {
        Ok(addresses) => addresses,
        Err(check) => return *check,
    };
    let inside = |text: &String| {
        let own = Range::between(text, text);
        range.is_none_or(|(_, range)| own.is_some_and(|own| range.contains(own)))
    };
    // A link-local address was not assigned by IPAM.
    let given = addresses.iter().filter(|text| !text.starts_with("fe80"));
    let given: Vec<&String> = given.collect();
    if given.iter().any(|text| inside(text)) {
        let list: Vec<&str> = given.iter().map(|text| text.as_str()).collect();
        return ADDRESS.pass(list.join(", "), needed);
    }
    if given.is_empty() {
        return ADDRESS.fail(
            "no address",
            needed,
            "the IPAM plugin assigned none: the range is exhausted, or its server is unreachable",
            "check the logs of the IPAM plugin, and the addresses that it has assigned",
        );
    }
    let list: Vec<&str> = given.iter().map(|text| text.as_str()).collect();
    ADDRESS.fail(
        list.join(", "),
        needed,
        "the interface is on another network than the fabric describes, or the range was changed",
        "compare the network attachment with the fabric: `trainyard fabric FILE`",
    )
}

fn mtu(scene: &Scene<'_>, interface: &Interface) -> Check {
    let wanted = scene.needs.mtu;
    let needed = wanted.map_or_else(|| "any".to_owned(), |mtu| format!("{mtu}, by the fabric"));
    let found = match MTU.value_or_check(&interface.mtu, &*needed) {
        Ok(mtu) => *mtu,
        Err(check) => return *check,
    };
    match wanted {
        Some(wanted) if found < wanted => MTU.fail(
            found.to_string(),
            needed,
            "the plugin or a switch port has the default; large packets of the others are dropped, and \
             transfers hang",
            "set the same value on node, switch and attachment, then try `ping -M do -s SIZE`",
        ),
        Some(wanted) if found > wanted => MTU.warn(
            found.to_string(),
            needed,
            "this interface sends larger packets than the fabric promises to carry",
            "set the same value on node, switch and attachment",
        ),
        _ => MTU.pass(found.to_string(), needed),
    }
}

fn link(interface: &Interface) -> Check {
    match LINK.value_or_check(&interface.state, "up") {
        // Virtual interfaces without a carrier of their own say `unknown`.
        Ok(state) if matches!(state.as_str(), "up" | "unknown") => LINK.pass(state, "up"),
        Ok(state) => LINK.fail(
            state,
            "up",
            "no cable, a switch port that is off, or an interface that is administratively down",
            "run `ip link` and `ethtool` on the node, and ask for the state of the switch port",
        ),
        Err(check) => *check,
    }
}

fn link_speed(scene: &Scene<'_>, interface: &Interface) -> Check {
    let wanted = scene.needs.bandwidth_gbps.filter(|_| !scene.needs.rdma());
    let needed = wanted.map_or_else(
        || "any".to_owned(),
        |gbps| format!("{gbps} Gb/s, by the fabric"),
    );
    let found = match &interface.speed_mbps {
        Probed::Absent => return LINK_SPEED.skip("no speed reported", needed),
        probed => match LINK_SPEED.value_or_check(probed, &*needed) {
            Ok(speed) => *speed,
            Err(check) => return *check,
        },
    };
    let rate = amounts::rate(found);
    if wanted.is_none_or(|gbps| found >= gbps.saturating_mul(1000)) {
        return LINK_SPEED.pass(rate, needed);
    }
    LINK_SPEED.fail(
        rate,
        needed,
        "the link came up slower than it can: cable, transceiver, or the setting of the switch port",
        "run `ethtool` on the node, clean or replace the cable, and check that both ends negotiate the same speed",
    )
}

/// Counters that moved, of interfaces and of RDMA ports.
pub(super) fn counters(scene: &Scene<'_>, checks: &mut Vec<Check>) {
    let before = checks.len();
    let interfaces = scene.reading.interfaces.value().into_iter().flatten();
    let watched = interfaces.filter(|(name, _)| match &scene.needs.interface {
        Some(needed) => *name == needed,
        None => *name != "lo",
    });
    let mut watched: Vec<(&String, &Probed<BTreeMap<String, u64>>)> = watched
        .map(|(name, interface)| (name, &interface.moved))
        .collect();
    if scene.rdma != Want::No {
        let ports = scene.reading.rdma.value().into_iter().flatten();
        watched.extend(ports.map(|(name, port)| (name, &port.moved)));
    }
    let mut count = 0;
    for (name, moved) in watched {
        let moved = match moved {
            Probed::Absent | Probed::NotAsked => continue,
            probed => match ERROR_COUNTERS.value_or_check(probed, "no movement") {
                Ok(moved) => moved,
                Err(check) => {
                    checks.push(check.about(name));
                    continue;
                }
            },
        };
        count += 1;
        let moved = moved.iter().filter(|(_, by)| **by > 0);
        let moved: Vec<String> = moved
            .map(|(counter, by)| format!("{counter} +{by}"))
            .collect();
        if moved.is_empty() {
            continue;
        }
        let is_down = moved.iter().any(|text| text.starts_with("link_downed"));
        let cause = "a damaged or dirty cable or transceiver, or a link that is overloaded";
        let next = "look at the same counters of the switch port, and clean or replace the cable";
        let found = moved.join(", ");
        let check = if is_down {
            ERROR_COUNTERS.fail(
                found,
                "no movement",
                "the link goes down and comes back",
                next,
            )
        } else {
            ERROR_COUNTERS.warn(found, "no movement", cause, next)
        };
        checks.push(check.about(name).owned_by(Owner::Network));
    }
    if checks.len() == before {
        checks.push(if count == 0 {
            ERROR_COUNTERS.skip("not checked", "no error counter was found")
        } else {
            ERROR_COUNTERS.pass(
                format!("none of {} moved", amounts::counted(count, "link")),
                "no movement",
            )
        });
    }
}
