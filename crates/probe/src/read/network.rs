//! Network interfaces, from `/sys/class/net`.

use std::collections::BTreeMap;

use trainyard_core::probe::{Interface, Pcie, Probed};

use super::{addresses, pci};
use crate::files::Root;

const INTERFACES: &str = "sys/class/net";
/// More interfaces than this are those of pods on a node, and are not read one by one.
const MOST: usize = 512;
/// Counters that stand still on a link that is well. Dropped packets are not among them: those that
/// no process wanted are counted, too.
const COUNTERS: [&str; 6] = [
    "rx_errors",
    "tx_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "tx_carrier_errors",
    "collisions",
];

/// All interfaces, with what their counters of errors moved by while `pause` went on.
pub(super) fn interfaces(root: &Root, pause: impl FnOnce()) -> Probed<BTreeMap<String, Interface>> {
    let names = match root.names(INTERFACES).or_missing() {
        Ok(names) => names,
        Err(missing) => return missing,
    };
    let own = if root.is_machine() {
        addresses::of_interfaces()
    } else {
        Probed::NotAsked
    };
    // The list also has files, such as that of the bonds.
    let is_interface = |name: &String| root.join(&format!("{INTERFACES}/{name}")).is_dir();
    let names: Vec<String> = names.into_iter().filter(is_interface).take(MOST).collect();
    let folder = |name: &String| format!("{INTERFACES}/{name}/statistics");
    let folders: Vec<Vec<String>> = names.iter().map(|name| vec![folder(name)]).collect();
    let moved = watch(root, &folders, &COUNTERS, pause);
    let all = names.into_iter().zip(moved).map(|(name, moved)| {
        let addresses = own
            .clone()
            .map(|mut own| own.remove(&name).unwrap_or_default());
        let interface = interface(root, &name);
        let interface = Interface {
            addresses,
            moved,
            ..interface
        };
        (name, interface)
    });
    Probed::Read(all.collect())
}

fn interface(root: &Root, name: &str) -> Interface {
    let file = |file: &str| format!("{INTERFACES}/{name}/{file}");
    let device = file("device");
    let is_device = root.resolve(&device).value().is_some();
    Interface {
        state: root.text(&file("operstate")),
        mtu: root.number(&file("mtu")),
        speed_mbps: speed(root.text(&file("speed"))),
        addresses: Probed::NotAsked,
        moved: Probed::NotAsked,
        pcie: if is_device {
            pci::place(root, &device)
        } else {
            Pcie::default()
        },
    }
}

/// An interface without a speed of its own says -1, or refuses to be asked.
fn speed(text: Probed<String>) -> Probed<u64> {
    match text {
        Probed::Read(text) if text.starts_with('-') => Probed::Absent,
        Probed::Unreadable(why) if why.contains("Invalid argument") => Probed::Absent,
        other => other.and_then(|text| crate::files::number(&text)),
    }
}

/// How much `counters` in each of the `folders` of one thing moved while `pause` went on.
pub(super) fn watch(
    root: &Root,
    folders: &[Vec<String>],
    counters: &[&str],
    pause: impl FnOnce(),
) -> Vec<Probed<BTreeMap<String, u64>>> {
    let look = || -> Vec<BTreeMap<String, Probed<u64>>> {
        let of_one = |folders: &Vec<String>| {
            let files = folders.iter().flat_map(|folder| {
                counters
                    .iter()
                    .map(move |name| (*name, format!("{folder}/{name}")))
            });
            let read = files.map(|(name, file)| (name.to_owned(), root.number(&file)));
            read.filter(|(_, value)| *value != Probed::Absent).collect()
        };
        folders.iter().map(of_one).collect()
    };
    let before = look();
    if before.iter().all(BTreeMap::is_empty) {
        return vec![Probed::Absent; before.len()];
    }
    pause();
    let moved = before.into_iter().zip(look()).map(|(before, after)| {
        if before.is_empty() {
            return Probed::Absent;
        }
        let mut moved = BTreeMap::new();
        for (name, value) in after {
            let value = match (before.get(&name), value) {
                (Some(Probed::Read(before)), Probed::Read(after)) => after.saturating_sub(*before),
                (Some(Probed::Unreadable(why)), _) => {
                    return Probed::Unreadable(format!("{name}: {why}"));
                }
                (_, Probed::Unreadable(why)) => {
                    return Probed::Unreadable(format!("{name}: {why}"));
                }
                _ => continue,
            };
            moved.insert(name, value);
        }
        Probed::Read(moved)
    });
    moved.collect()
}
