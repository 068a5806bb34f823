//! RDMA ports: state, rate, addresses, character devices.

use std::collections::BTreeMap;

use super::{Scene, Want};
use crate::probe::{
    Check, Gid, Needs, Probed, RdmaPort, amounts,
    catalogue::{RDMA_DEVICE, RDMA_GID, RDMA_PORTS, RDMA_RATE},
};

pub(super) fn examine(scene: &Scene<'_>, checks: &mut Vec<Check>) {
    if scene.rdma == Want::No {
        let why = if scene.needs.asked_by.is_some() {
            "ranks do not use RDMA"
        } else {
            "the machine has no RDMA device"
        };
        return checks.push(RDMA_PORTS.skip("not checked", why));
    }
    let none = BTreeMap::new();
    let ports = match &scene.reading.rdma {
        Probed::Absent => &none,
        probed => match RDMA_PORTS.value_or_check(probed, "active ports") {
            Ok(ports) => ports,
            Err(check) => return checks.push(*check),
        },
    };
    let chosen: Vec<(&String, &RdmaPort)> = ports
        .iter()
        .filter(|(name, port)| is_chosen(scene.needs, name, port))
        .collect();
    ports_active(scene, ports.len(), &chosen, checks);
    let active: Vec<(&String, &RdmaPort)> = chosen
        .into_iter()
        .filter(|(_, port)| is_active(port))
        .collect();
    if active.is_empty() {
        return;
    }
    rates(scene, &active, checks);
    gids(scene, &active, checks);
    device_files(scene, &active, checks);
}

/// Whether ranks would use the port: the transport of the fabric, and the list that NCCL is given.
pub(in crate::probe) fn is_chosen(needs: &Needs, name: &str, port: &RdmaPort) -> bool {
    let layer = match needs.transport.as_deref() {
        Some("ib") => Some("InfiniBand"),
        Some("roce") => Some("Ethernet"),
        _ => None,
    };
    let of_layer = layer.is_none_or(|layer| {
        let own = port.link_layer.value();
        own.is_none_or(|own| own == layer)
    });
    let hcas = needs.hcas.as_deref();
    of_layer && hcas.is_none_or(|list| is_listed(list, name))
}

/// The routable RoCE v2 address: the one at `wanted`, else the first.
pub(in crate::probe) fn routed<'a>(
    gids: impl IntoIterator<Item = (&'a u32, &'a Gid)>,
    wanted: Option<u32>,
) -> Option<(u32, &'a Gid)> {
    let usable = |gid: &Gid| {
        let is_v2 = gid.kind.value().is_some_and(|kind| kind == "RoCE v2");
        is_v2 && !gid.address.starts_with("fe80")
    };
    let mut all = gids.into_iter().map(|(index, gid)| (*index, gid));
    all.find(|(index, gid)| wanted.is_none_or(|wanted| wanted == *index) && usable(gid))
}

/// Whether `NCCL_IB_HCA` takes the port `name`, which is `device/port`.
///
/// `^` leaves out what is listed, `=` takes whole names and not their beginnings.
pub(super) fn is_listed(list: &str, name: &str) -> bool {
    let (excludes, list) = list
        .strip_prefix('^')
        .map_or((false, list), |rest| (true, rest));
    let (is_exact, list) = list
        .strip_prefix('=')
        .map_or((false, list), |rest| (true, rest));
    let (device, port) = name.split_once('/').unwrap_or((name, "1"));
    let matches = |item: &str| {
        let (wanted, wanted_port) = item
            .split_once(':')
            .map_or((item, None), |(d, p)| (d, Some(p)));
        let same = if is_exact {
            device == wanted
        } else {
            device.starts_with(wanted)
        };
        same && wanted_port.is_none_or(|wanted| wanted == port)
    };
    let mut items = list
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    items.any(matches) != excludes
}

pub(in crate::probe) fn is_active(port: &RdmaPort) -> bool {
    let state = port.state.value().map(String::as_str);
    let physical = port.physical.value().map(String::as_str);
    state == Some("ACTIVE") && physical.is_none_or(|physical| physical == "LinkUp")
}

fn ports_active(
    scene: &Scene<'_>,
    all: usize,
    chosen: &[(&String, &RdmaPort)],
    checks: &mut Vec<Check>,
) {
    let least = usize::try_from(scene.needs.rdma_devices.unwrap_or(1))
        .unwrap_or(1)
        .max(1);
    let layer = match scene.needs.transport.as_deref() {
        Some("ib") => "InfiniBand ",
        Some("roce") => "RoCE ",
        _ => "",
    };
    let needed = format!(
        "{} or more, active",
        amounts::counted(least, &format!("{layer}port"))
    );
    let active = chosen.iter().filter(|(_, port)| is_active(port)).count();
    let found = format!("{active} of {} active", chosen.len());
    let next = "run `ibstat` on the node, and ask for the state of the switch port";
    if active < least {
        let cause = if all == 0 {
            "no RDMA device was found: its driver is not loaded, or the device is not passed to \
             this container"
        } else if chosen.is_empty() {
            "the machine has RDMA ports, but none that the fabric and `NCCL_IB_HCA` name"
        } else {
            "cables, switch ports or the subnet manager"
        };
        checks.push(scene.rdma.bad(&RDMA_PORTS, found, needed, cause, next));
    } else {
        checks.push(RDMA_PORTS.pass(found, needed));
    }
    let is_named = scene
        .needs
        .hcas
        .as_deref()
        .is_some_and(|list| !list.starts_with('^'));
    for (name, port) in chosen.iter().filter(|(_, port)| !is_active(port)) {
        let word = |probed: &Probed<String>| match probed {
            Probed::Read(text) => text.clone(),
            Probed::Unreadable(why) => why.clone(),
            _ => "unknown".to_owned(),
        };
        let found = format!("{}, {}", word(&port.state), word(&port.physical));
        let cause = match port.physical.value().map(String::as_str) {
            Some("LinkUp") => "the link is up, and the subnet manager has not configured it",
            Some("Disabled") => "the port is switched off",
            _ => "no link: a cable that is missing or bad, or a switch port that is off",
        };
        let check = if is_named {
            scene
                .rdma
                .bad(&RDMA_PORTS, found, "ACTIVE, LinkUp", cause, next)
        } else {
            RDMA_PORTS.warn(found, "ACTIVE, LinkUp", cause, next)
        };
        checks.push(check.about(*name));
    }
}

fn rates(scene: &Scene<'_>, active: &[(&String, &RdmaPort)], checks: &mut Vec<Check>) {
    let known: Vec<(&String, u64)> = active
        .iter()
        .filter_map(|(name, port)| Some((*name, *port.rate_mbps.value()?)))
        .collect();
    let sum: u64 = known.iter().map(|(_, rate)| rate).sum();
    let found = format!(
        "{} of {}",
        amounts::rate(sum),
        amounts::counted(known.len(), "port")
    );
    let wanted = scene.needs.bandwidth_gbps;
    let needed = wanted.map_or_else(
        || "any".to_owned(),
        |gbps| format!("{gbps} Gb/s, by the fabric"),
    );
    let cause =
        "a link came up slower than it can: a bad cable, lanes that are dead, or another switch";
    let next = "run `ibstat` or `ethtool` on the node, and clean or replace the cable";
    checks.push(if known.is_empty() {
        RDMA_RATE.warn("no rate could be read", needed, cause, next)
    } else if wanted.is_some_and(|gbps| sum < gbps.saturating_mul(1000)) {
        scene.rdma.bad(&RDMA_RATE, found, needed, cause, next)
    } else {
        RDMA_RATE.pass(found, needed)
    });
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for (_, rate) in &known {
        *counts.entry(*rate).or_default() += 1;
    }
    let usual = counts.iter().find(|(_, count)| **count * 2 > known.len());
    let Some((usual, _)) = usual else { return };
    for (name, rate) in known.iter().filter(|(_, rate)| rate < usual) {
        let needed = format!("{}, as most ports", amounts::rate(*usual));
        let check = RDMA_RATE.warn(amounts::rate(*rate), needed, cause, next);
        checks.push(check.about(*name));
    }
}

fn gids(scene: &Scene<'_>, active: &[(&String, &RdmaPort)], checks: &mut Vec<Check>) {
    let is_roce = |port: &RdmaPort| {
        port.link_layer
            .value()
            .is_some_and(|layer| layer == "Ethernet")
    };
    let roce: Vec<_> = active.iter().filter(|(_, port)| is_roce(port)).collect();
    if roce.is_empty() {
        return checks.push(RDMA_GID.skip("not checked", "only for RoCE"));
    }
    let needed = scene.needs.gid_index.map_or_else(
        || "a routable RoCE v2 address".to_owned(),
        |index| format!("a RoCE v2 address at index {index}, by `NCCL_IB_GID_INDEX`"),
    );
    let before = checks.len();
    let mut by_index: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (name, port) in &roce {
        let gids = match RDMA_GID.value_or_check(&port.gids, &*needed) {
            Ok(gids) => gids,
            Err(check) => {
                checks.push(check.about(*name));
                continue;
            }
        };
        let Some((index, gid)) = routed(gids, scene.needs.gid_index) else {
            let listed = gids.iter().map(|(index, gid)| {
                let kind = gid.kind.value().map_or("unknown", String::as_str);
                format!("{index}: {kind} {}", gid.address)
            });
            // A table has hundreds of entries, and a few show what is wrong.
            let listed: Vec<String> = listed.take(4).collect();
            let listed = if listed.is_empty() {
                "no address".to_owned()
            } else {
                listed.join(", ")
            };
            let cause = "the network interface of the port has no address, or its addresses came in another \
                         order than on other nodes";
            let next = "run `show_gids` on the node; leave `NCCL_IB_GID_INDEX` out with NCCL 2.21 or later, \
                        which finds it";
            checks.push(
                scene
                    .rdma
                    .bad(&RDMA_GID, listed, &*needed, cause, next)
                    .about(*name),
            );
            continue;
        };
        let on = gid.interface.value().map_or(name.as_str(), String::as_str);
        by_index.entry(index).or_default().push(on);
    }
    if checks.len() == before {
        let by_index = by_index.into_iter().map(|(index, on)| match on[..] {
            [one] => format!("index {index} of {one}"),
            _ => format!("index {index} of {}", amounts::counted(on.len(), "port")),
        });
        let by_index: Vec<String> = by_index.collect();
        checks.push(RDMA_GID.pass(by_index.join(", "), needed));
    }
}

fn device_files(scene: &Scene<'_>, active: &[(&String, &RdmaPort)], checks: &mut Vec<Check>) {
    let needed = "a character device in `/dev/infiniband` that opens";
    let mut opened = 0;
    let mut refused = Vec::new();
    for (name, port) in active {
        let why = match &port.device_file {
            Probed::Read(_) => {
                opened += 1;
                continue;
            }
            Probed::NotAsked => continue,
            Probed::Absent => "not there".to_owned(),
            Probed::Unreadable(why) => why.clone(),
            Probed::Hung(after) => format!("no answer within {after} ms"),
        };
        let cause = "the device is not passed to this container: the pod asks for no RDMA resource, or the \
                     device plugin gives fewer";
        let next = "ask for the RDMA resource in `resources.limits`, or check that `rdma` of the fabric names it";
        refused.push(
            scene
                .rdma
                .bad(&RDMA_DEVICE, why, needed, cause, next)
                .about(*name),
        );
    }
    // A pod that was given some of the node's devices sees the others without being able to open them.
    let least = usize::try_from(scene.needs.rdma_devices.unwrap_or(0)).unwrap_or(0);
    let is_share = opened > 0 && least > 0 && opened >= least;
    if refused.is_empty() || is_share {
        checks.push(RDMA_DEVICE.pass(format!("{opened} of {} open", active.len()), needed));
    } else {
        checks.append(&mut refused);
    }
}
