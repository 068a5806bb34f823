//! RDMA ports, from `/sys/class/infiniband`, and the character devices that programs open.

use std::{
    collections::BTreeMap, fs::OpenOptions, net::Ipv6Addr, os::unix::fs::OpenOptionsExt as _,
};

use nix::fcntl::OFlag;
use trainyard_core::probe::{Gid, Probed, RdmaPort};

use super::{network, pci};
use crate::files::{Malformed, Root, refused};

const DEVICES: &str = "sys/class/infiniband";
const VERBS: &str = "sys/class/infiniband_verbs";
/// More ports than any machine has.
const MOST: usize = 256;
/// Counters that stand still on a link that is well: of the link, and of the transport.
const COUNTERS: [&str; 11] = [
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
];

/// All ports, by `device/port`, with what their counters moved by while `pause` went on.
pub(super) fn ports(root: &Root, pause: impl FnOnce()) -> Probed<BTreeMap<String, RdmaPort>> {
    let devices = match root.names(DEVICES).or_missing() {
        Ok(devices) => devices,
        Err(missing) => return missing,
    };
    let files = device_files(root);
    let mut ports = Vec::new();
    for device in devices {
        let numbers = root.names(&format!("{DEVICES}/{device}/ports"));
        for number in numbers.value().into_iter().flatten().take(MOST) {
            let device_file = files.get(&device).cloned().unwrap_or(Probed::Absent);
            let port = port(root, &device, number, device_file);
            ports.push((format!("{device}/{number}"), port));
        }
    }
    ports.truncate(MOST);
    let folders: Vec<Vec<String>> = ports
        .iter()
        .filter_map(|(name, _)| name.split_once('/'))
        .map(|(device, number)| {
            let folder = |kind: &str| format!("{DEVICES}/{device}/ports/{number}/{kind}");
            vec![folder("counters"), folder("hw_counters")]
        })
        .collect();
    let moved = network::watch(root, &folders, &COUNTERS, pause);
    let all = ports.into_iter().zip(moved);
    Probed::Read(
        all.map(|((name, port), moved)| (name, RdmaPort { moved, ..port }))
            .collect(),
    )
}

fn port(root: &Root, device: &str, number: &str, device_file: Probed<String>) -> RdmaPort {
    let file = |name: &str| format!("{DEVICES}/{device}/ports/{number}/{name}");
    // A state is written as `4: ACTIVE`.
    let word = |name: &str| {
        root.text(&file(name)).and_then(|text| {
            let word = text.split_once(": ").map(|(_, word)| word.to_owned());
            word.ok_or_else(|| Malformed::NoWord(name.to_owned()))
        })
    };
    RdmaPort {
        state: word("state"),
        physical: word("phys_state"),
        rate_mbps: root.text(&file("rate")).and_then(|text| rate(&text)),
        link_layer: root.text(&file("link_layer")),
        gids: gids(root, &file("")),
        device_file,
        moved: Probed::NotAsked,
        pcie: pci::place(root, &format!("{DEVICES}/{device}/device")),
    }
}

/// Megabits of a rate such as `400 Gb/sec (4X NDR)` or `2.5 Gb/sec (1X SDR)`.
fn rate(text: &str) -> Result<u64, Malformed> {
    let unknown = || Malformed::Not("rate".to_owned(), "a rate");
    let (number, _) = text.split_once(" Gb/sec").ok_or_else(unknown)?;
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u64 = whole.parse().map_err(|_| unknown())?;
    let tenth: u64 = tenth.parse().map_err(|_| unknown())?;
    Ok(whole.saturating_mul(1000) + tenth.min(9) * 100)
}

fn gids(root: &Root, folder: &str) -> Probed<BTreeMap<u32, Gid>> {
    root.names(&format!("{folder}gids")).and_then(|names| {
        let mut gids = BTreeMap::new();
        for name in names {
            let file = format!("gids/{name}");
            let Ok(index) = name.parse::<u32>() else {
                return Err(Malformed::Not(file, "an index"));
            };
            let text = match root.text(&format!("{folder}{file}")) {
                Probed::Read(text) => text,
                Probed::Unreadable(why) => return Err(Malformed::Part(file, why)),
                _ => continue,
            };
            let Ok(address) = text.parse::<Ipv6Addr>() else {
                return Err(Malformed::Not(file, "an address"));
            };
            if address.is_unspecified() {
                continue;
            }
            let v4 = address.to_ipv4_mapped().map(|v4| v4.to_string());
            gids.insert(
                index,
                Gid {
                    address: v4.unwrap_or_else(|| address.to_string()),
                    kind: root.text(&format!("{folder}gid_attrs/types/{name}")),
                    interface: root.text(&format!("{folder}gid_attrs/ndevs/{name}")),
                },
            );
        }
        Ok(gids)
    })
}

/// The character device of each RDMA device, where this process can open it.
fn device_files(root: &Root) -> BTreeMap<String, Probed<String>> {
    let names = root.names(VERBS);
    let names = names.value().into_iter().flatten();
    let opened = names.filter_map(|name| {
        let device = root
            .text(&format!("{VERBS}/{name}/ibdev"))
            .value()
            .cloned()?;
        // Opening it makes nothing; a program would then ask for a context.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(root.join(&format!("dev/infiniband/{name}")));
        let probed = file.map_or_else(|error| refused(&error), |_| Probed::Read(name.clone()));
        Some((device, probed))
    });
    opened.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!(rate("400 Gb/sec (4X NDR)"), Ok(400_000));
        assert_eq!(rate("2.5 Gb/sec (1X SDR)"), Ok(2500));
        assert!(rate("fast").is_err() && rate(" Gb/sec").is_err());
    }
}
