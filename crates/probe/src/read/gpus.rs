//! GPUs as the kernel and the driver list them in files.

use std::collections::BTreeSet;

use trainyard_core::probe::{Gpu, Probed};

use super::pci;
use crate::files::{Malformed, Root};

const DEVICES: &str = "sys/bus/pci/devices";
const DRIVER: &str = "proc/driver/nvidia/gpus";
const NVIDIA: u64 = 0x10de;
/// Display controllers, of which GPUs without a display are one kind; bridges and switches are not.
const DISPLAY: u64 = 0x03;

/// The GPUs that the driver lists.
pub(super) fn from_files(root: &Root) -> Probed<Vec<Gpu>> {
    root.names(DRIVER).map(|names| {
        let gpus = names.into_iter().map(|bus| {
            let information = root.text(&format!("{DRIVER}/{bus}/information"));
            let model = information.and_then(|text| {
                let mut lines = text.lines().filter_map(|line| line.split_once(':'));
                let line = lines.find(|(name, _)| name.trim() == "Model");
                line.map(|(_, model)| model.trim().to_owned())
                    .ok_or(Malformed::NoModel)
            });
            let bus = pci::address(&bus);
            Gpu {
                model,
                pcie: pci::place(root, &format!("{DEVICES}/{bus}")),
                bus,
                ..Gpu::default()
            }
        });
        gpus.collect()
    })
}

/// The NVIDIA GPUs on the bus.
pub(super) fn on_bus(root: &Root) -> Probed<BTreeSet<String>> {
    root.names(DEVICES).map(|names| {
        let is_gpu = |bus: &String| {
            let identifier = |name: &str| pci::identifier(root, &format!("{DEVICES}/{bus}/{name}"));
            let class = identifier("class").value().map(|class| class >> 16);
            identifier("vendor").value() == Some(&NVIDIA) && class == Some(DISPLAY)
        };
        names.into_iter().filter(is_gpu).collect()
    })
}
