//! Secondary networks: on which interface they are, which addresses they hand out, and whether NCCL uses them.

use std::net::IpAddr;

use serde_json::Value as Json;

use super::{
    super::{
        Rule,
        advice::{Advice, Look, ODD, RISKY, rule},
        companions::{Companion, Companions},
        scene::{Pod, Scene, talks_nccl},
    },
    attachment::network,
    attachments, is_rdma,
};
use crate::fabric::NETWORKS;

/// The rules about secondary networks.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY321",
            ODD,
            "secondary network on the interface of the first",
            "The network is made on `eth0`, or on the interface of the default route where none is named. That is the \
             interface that the pods' own network and the control plane use: gradients share it, and nothing is gained \
             over `eth0` of the pod.",
        ),
        look: Look::Companion(first_interface),
    },
    Advice {
        rule: rule(
            "TY322",
            RISKY,
            "RDMA device in place of an interface",
            "The plugin takes an interface of the node, such as `ens1f0` or `ib0`. `mlx5_0` is the RDMA device that \
             belongs to one: no interface has that name, and no pod with the attachment starts.",
        ),
        look: Look::Companion(rdma_name),
    },
    Advice {
        rule: rule(
            "TY323",
            ODD,
            "secondary network that no variable names",
            "The pods are attached to another network, and neither `NCCL_SOCKET_IFNAME` names its interface nor does the \
             container have an RDMA device on it. NCCL takes the interface that it finds first, which may be `eth0`.",
        ),
        look: Look::Job(unnamed_network),
    },
    Advice {
        rule: rule(
            "TY324",
            ODD,
            "network attachment without addresses",
            "Without `ipam` the interface has no address. NCCL does not use an interface without one, and RoCE has no \
             GID that can be routed.",
        ),
        look: Look::Companion(no_addresses),
    },
    Advice {
        rule: rule(
            "TY325",
            RISKY,
            "addresses that cannot be handed out",
            "The addresses are not in the subnet, the subnet cannot be read, or they are written under a key that the \
             plugin does not read: `host-local` has `subnet` or `ranges`, `whereabouts` has `range` or `ipRanges`.",
        ),
        look: Look::Companion(bad_addresses),
    },
    Advice {
        rule: rule(
            "TY326",
            ODD,
            "value that NCCL does not read",
            "NCCL reads a number where the variable switches something on or off, and takes text that does not begin with \
             one for 0. A timeout of InfiniBand is at most 31, a service level at most 15. `NCCL_DEBUG` knows VERSION, WARN, INFO, ABORT and TRACE.",
        ),
        look: Look::Job(values),
    },
];

fn text<'a>(plugin: &'a Json, key: &str) -> Option<&'a str> {
    plugin.get(key).and_then(Json::as_str)
}

/// Whether the name is that of an RDMA device and of no interface.
fn is_rdma_device(name: &str) -> bool {
    let begins = [
        "mlx4_", "mlx5_", "bnxt_re", "irdma", "hfi1_", "qedr", "rocep", "ibp",
    ];
    let rest = begins.iter().find_map(|start| name.strip_prefix(start));
    rest.is_some_and(|rest| {
        // `ibp1s0` and `rocep1s0` name interfaces and devices alike; only a bare number is a device.
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn first_interface(rule: &Rule, companion: &Companion<'_>, all: &Companions<'_>) {
    let Some((plugin, place)) = network(companion, all) else {
        return;
    };
    let kind = text(&plugin, "type").unwrap_or_default();
    if !matches!(kind, "macvlan" | "ipvlan") {
        return;
    }
    let found = match text(&plugin, "master") {
        Some("eth0") => "on `eth0`",
        None => "on the interface of the default route, because it names no `master`",
        Some(_) => return,
    };
    place.report_with(
        rule,
        format!(
            "`{}` is {found}, which carries the pods' own network",
            companion.name
        ),
        "name the interface that is meant for training in `master`",
    );
}

fn rdma_name(rule: &Rule, companion: &Companion<'_>, all: &Companions<'_>) {
    let Some((plugin, place)) = network(companion, all) else {
        return;
    };
    let named = ["device", "master"].into_iter().find_map(|key| {
        let name = text(&plugin, key).filter(|name| is_rdma_device(name))?;
        Some((key, name))
    });
    if let Some((key, name)) = named {
        place.report_with(
            rule,
            format!(
                "`{key}` of `{}` is `{name}`, an RDMA device, not an interface",
                companion.name
            ),
            "name its interface, as `ibdev2netdev` or `rdma link` lists it on the node",
        );
    }
}

fn unnamed_network(rule: &Rule, scene: &Scene<'_>) {
    let by_nccl = |pod: &&Pod<'_>| pod.gpus() > 0 && pod.asks_for(talks_nccl);
    if scene.is_on_unknown_fabric() || scene.pod_count() < 2 && scene.is_job() {
        return;
    }
    for pod in scene.ranks().filter(by_nccl) {
        let attached = attachments(scene, pod);
        let names_it = |name: &str| {
            matches!(
                name,
                "NCCL_SOCKET_IFNAME" | "NCCL_IB_HCA" | "NCCL_NET" | "NCCL_NET_PLUGIN"
            )
        };
        let set = pod.assigned().into_iter().chain(scene.mpirun_variables());
        let is_set = set.map(|(name, _, _)| name).any(names_it);
        let in_env = pod.trainer.env.iter().flatten();
        let passed = scene.pods.iter().any(|pod| {
            let words = pod.command().words;
            words
                .iter()
                .any(|word| word.text.contains("NCCL_SOCKET_IFNAME"))
        });
        if attached.is_empty()
            || is_set
            || passed
            || in_env.into_iter().any(|variable| names_it(&variable.name))
            || pod.trainer.env_from.is_some()
            || pod.asks_for(is_rdma)
            || attached.iter().any(|one| one.resource(scene).is_some())
        {
            continue;
        }
        let names: Vec<String> = attached
            .iter()
            .map(|one| format!("`{}`", one.name))
            .collect();
        if let Some((_, place)) = pod.annotation(NETWORKS) {
            place.report_with(
                rule,
                format!(
                    "the pods of {} are attached to {}, and no variable names the interface for NCCL",
                    pod.owner(),
                    names.join(", ")
                ),
                "add `NCCL_SOCKET_IFNAME` with the name of the interface, such as `net1`, or an RDMA device",
            );
        }
    }
}

fn no_addresses(rule: &Rule, companion: &Companion<'_>, all: &Companions<'_>) {
    let Some((plugin, place)) = network(companion, all) else {
        return;
    };
    let kind = text(&plugin, "type").unwrap_or_default();
    let empty = match plugin.get("ipam") {
        None => true,
        Some(ipam) => ipam.get("type").is_none(),
    };
    if matches!(kind, "macvlan" | "ipvlan") && empty {
        place.report_with(
            rule,
            format!("`{}` hands out no addresses", companion.name),
            "add `ipam`, such as `{\"type\": \"whereabouts\", \"range\": \"10.10.0.0/16\"}`",
        );
    }
}

/// The first and the last address of `subnet`, as numbers, and the number of bits of an address.
fn bounds(subnet: &str) -> Option<(u128, u128, bool)> {
    let (address, length) = subnet.split_once('/')?;
    let (number, v4) = number(address)?;
    let bits = if v4 { 32 } else { 128 };
    let length: u32 = length.parse().ok().filter(|length| *length <= bits)?;
    let free = bits - length;
    let mask = if free == 128 {
        u128::MAX
    } else {
        (1_u128 << free) - 1
    };
    Some((number & !mask, number | mask, v4))
}

fn number(address: &str) -> Option<(u128, bool)> {
    Some(match address.trim().parse().ok()? {
        IpAddr::V4(address) => (u32::from(address).into(), true),
        IpAddr::V6(address) => (address.into(), false),
    })
}

/// What is wrong with one range of addresses.
fn wrong_range(item: &Json, key: &str) -> Option<String> {
    let whole = text(item, key)?;
    // `whereabouts` takes `10.0.0.10-10.0.0.20/24` too.
    let subnet = whole.rsplit('-').next().unwrap_or(whole);
    let Some((first, last, v4)) = bounds(subnet) else {
        return Some(format!("`{whole}` is not a subnet"));
    };
    let edges = [
        "rangeStart",
        "rangeEnd",
        "range_start",
        "range_end",
        "gateway",
    ];
    let mut found = [None; 2];
    for edge in edges {
        let Some(address) = text(item, edge) else {
            continue;
        };
        let Some((number, same)) = number(address) else {
            return Some(format!("`{edge}` is `{address}`, which is not an address"));
        };
        // `whereabouts` hands the gateway on as it is, and its range is often a part of the subnet.
        let anywhere = key == "range" && edge == "gateway";
        if !anywhere && (same != v4 || number < first || number > last) {
            return Some(format!(
                "`{edge}` is `{address}`, which is not in `{whole}`"
            ));
        }
        if let Some(place) = ["tart", "nd"].iter().position(|end| edge.ends_with(end)) {
            found[place] = Some(number);
        }
    }
    match found {
        [Some(start), Some(end)] if start > end => {
            Some(format!("the addresses of `{whole}` end before they begin"))
        }
        _ => None,
    }
}

fn bad_addresses(rule: &Rule, companion: &Companion<'_>, all: &Companions<'_>) {
    let Some((plugin, place)) = network(companion, all) else {
        return;
    };
    let Some(ipam) = plugin.get("ipam") else {
        return;
    };
    let (own, other, lists) = match text(ipam, "type") {
        Some("host-local") => ("subnet", "range", "ranges"),
        Some("whereabouts") => ("range", "subnet", "ipRanges"),
        _ => return,
    };
    let has = |key: &str| ipam.get(key).is_some();
    let mut wrong = wrong_range(ipam, own);
    if !has(own) && !has(lists) {
        wrong = Some(if has(other) {
            format!("the addresses are under `{other}`, the plugin reads `{own}`")
        } else {
            format!("`ipam` has no `{own}`")
        });
    }
    let items = ipam
        .get(lists)
        .and_then(Json::as_array)
        .into_iter()
        .flatten();
    let nested = items.flat_map(|item| match item.as_array() {
        Some(items) => items.iter().collect::<Vec<_>>(),
        None => vec![item],
    });
    let wrong = wrong.or_else(|| nested.into_iter().find_map(|item| wrong_range(item, own)));
    if let Some(wrong) = wrong {
        place.report_with(
            rule,
            format!("`{}` cannot hand out addresses: {wrong}", companion.name),
            format!("write `\"{own}\"` as a subnet, such as `10.10.0.0/16`, and what is in it"),
        );
    }
}

/// Whether NCCL reads all of `value` as a number: by `strtoll` with any base.
fn is_number(value: &str) -> bool {
    let hex = value
        .strip_prefix("0x")
        .or_else(|| value.strip_prefix("0X"));
    match hex {
        Some(digits) => i64::from_str_radix(digits, 16).is_ok(),
        None => value.trim().parse::<i64>().is_ok(),
    }
}

/// Whether `value` is a number between two, both included. Where it is not written in decimal, any number is.
fn is_within(value: &str, least: i64, most: i64) -> bool {
    match value.trim().parse::<i64>() {
        Ok(number) => number == -1 || (least..=most).contains(&number),
        Err(_) => is_number(value),
    }
}

fn values(rule: &Rule, scene: &Scene<'_>) {
    const LEVELS: [&str; 5] = ["VERSION", "WARN", "INFO", "ABORT", "TRACE"];
    for pod in &scene.pods {
        for (name, value, place) in pod.variables().chain(pod.assigned()) {
            if value.is_empty() || value.contains('$') {
                continue;
            }
            let is_switch = name.starts_with("NCCL_")
                && (name.ends_with("_DISABLE") || name.ends_with("_ENABLE"));
            let (expected, fits) = match name {
                "NCCL_DEBUG" => {
                    let level = value.to_ascii_uppercase();
                    (
                        "one of VERSION, WARN, INFO, ABORT and TRACE",
                        LEVELS.contains(&level.as_str()),
                    )
                }
                _ if is_switch => ("a number, 0 or 1", is_number(value)),
                "NCCL_IB_TIMEOUT" => ("a number from 0 to 31", is_within(value, 0, 31)),
                "NCCL_IB_RETRY_CNT" => ("a number from 0 to 7", is_within(value, 0, 7)),
                "NCCL_IB_SL" => ("a number from 0 to 15", is_within(value, 0, 15)),
                "NCCL_IB_TC" => ("a number from 0 to 255", is_within(value, 0, 255)),
                "NCCL_IB_GID_INDEX" => ("a number", is_number(value)),
                _ => continue,
            };
            if !fits {
                place.report_with(
                    rule,
                    format!("`{name}` is `{value}`, NCCL reads {expected}"),
                    "write such a value, or remove the variable",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_devices_and_of_interfaces() {
        for device in ["mlx5_0", "mlx4_1", "bnxt_re0", "hfi1_0"] {
            assert!(is_rdma_device(device), "{device}");
        }
        for interface in ["ens1f0", "ib0", "enp94s0f0", "ibp1s0", "bond0", "mlx5_bond"] {
            assert!(!is_rdma_device(interface), "{interface}");
        }
    }

    #[test]
    fn ranges_within_their_subnet() {
        let right = [
            json!({"subnet": "10.0.0.0/24"}),
            json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.10", "rangeEnd": "10.0.0.20"}),
            json!({"subnet": "fd00::/64", "gateway": "fd00::1"}),
        ];
        let part = json!({"range": "10.0.0.16/28", "gateway": "10.0.0.1"});
        assert_eq!(wrong_range(&part, "range"), None);
        let wrong = [
            json!({"subnet": "10.0.0.0"}),
            json!({"subnet": "10.0.0.0/33"}),
            json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.1.10"}),
            json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.20", "rangeEnd": "10.0.0.10"}),
            json!({"subnet": "10.0.0.0/24", "gateway": "fd00::1"}),
            json!({"subnet": "10.0.0.0/24", "rangeEnd": "10.0.0.300"}),
        ];
        for range in right {
            assert_eq!(wrong_range(&range, "subnet"), None, "{range}");
        }
        for range in wrong {
            assert!(wrong_range(&range, "subnet").is_some(), "{range}");
        }
    }
}
