//! The figures of GPUs and networks, each with where it is from.
//!
//! Vendors print decimal units and the bandwidth of both directions; here are bytes and one
//! direction. Memory is what a process can have, a little under what is printed on the box.

use super::{Gpu, Link, Network};

/// Grows by one whenever a figure changes.
pub const TABLE_VERSION: u32 = 1;

const TERA: f64 = 1e12;
const GIGA: f64 = 1e9;

const NVLINK2: Link = link("NVLink 2", 150.0);
const NVLINK3: Link = link("NVLink 3", 300.0);
const NVLINK4: Link = link("NVLink 4", 450.0);
const NVLINK5: Link = link("NVLink 5", 900.0);
const XGMI: Link = link("Infinity Fabric", 448.0);
const PCIE4: Link = link("PCIe 4", 32.0);

const fn link(name: &'static str, giga: f64) -> Link {
    Link {
        name,
        bandwidth: giga * GIGA,
    }
}

/// Memory (GiB, bandwidth in TB/s) and compute (units, TFLOP/s of 16, 8 and 4 bits).
struct Chip {
    memory: (f64, f64),
    units: u32,
    peak: (f64, f64, f64),
}

/// Link, GPUs of a node, GPUs that the link joins, network of a GPU in GB/s, dollars an hour.
struct Box {
    link: Link,
    per_node: u32,
    domain: u32,
    network: f64,
    hourly: f64,
}

const fn gpu(name: &'static str, chip: &Chip, around: &Box, source: &'static str) -> Gpu {
    Gpu {
        name,
        memory_gib: chip.memory.0,
        memory_bandwidth: chip.memory.1 * TERA,
        units: chip.units,
        peak_bf16: chip.peak.0 * TERA,
        peak_fp8: chip.peak.1 * TERA,
        peak_fp4: chip.peak.2 * TERA,
        link: around.link,
        per_node: around.per_node,
        domain: around.domain,
        network: around.network * GIGA,
        hourly: around.hourly,
        source,
    }
}

const fn node(link: Link, network: f64, hourly: f64) -> Box {
    Box {
        link,
        per_node: 8,
        domain: 8,
        network,
        hourly,
    }
}

const fn rack(network: f64, hourly: f64) -> Box {
    Box {
        link: NVLINK5,
        per_node: 4,
        domain: 72,
        network,
        hourly,
    }
}

const fn chip(memory: (f64, f64), units: u32, peak: (f64, f64, f64)) -> Chip {
    Chip {
        memory,
        units,
        peak,
    }
}

static GPUS: [Gpu; 17] = [
    gpu(
        "V100-32GB",
        &chip((31.7, 0.9), 80, (125.0, 125.0, 125.0)),
        &node(NVLINK2, 12.5, 1.0),
        "NVIDIA V100 datasheet; DGX-1/DGX-2 network",
    ),
    gpu(
        "A100-80GB",
        &chip((79.2, 2.039), 108, (312.0, 312.0, 312.0)),
        &node(NVLINK3, 25.0, 1.6),
        "NVIDIA A100 datasheet; eight HDR ports a node",
    ),
    gpu(
        "A100-40GB",
        &chip((39.4, 1.555), 108, (312.0, 312.0, 312.0)),
        &node(NVLINK3, 25.0, 1.3),
        "NVIDIA A100 datasheet; eight HDR ports a node",
    ),
    gpu(
        "A800-80GB",
        &chip((79.2, 2.039), 108, (312.0, 312.0, 312.0)),
        &node(link("NVLink 3", 200.0), 25.0, 1.6),
        "as A100, link of 400 GB/s both ways",
    ),
    gpu(
        "H100-80GB",
        &chip((79.1, 3.35), 132, (989.0, 1979.0, 1979.0)),
        &node(NVLINK4, 50.0, 2.5),
        "NVIDIA H100 SXM datasheet and dgxc-benchmarking README; eight NDR ports a node",
    ),
    gpu(
        "H100-96GB-HBM2e",
        &chip((94.5, 2.4), 132, (989.0, 1979.0, 1979.0)),
        &node(NVLINK4, 50.0, 2.5),
        "torchtitan docs/performance.md: a part of 500 W; eight 400 Gb ports a node",
    ),
    gpu(
        "H800-80GB",
        &chip((79.1, 3.35), 132, (989.0, 1979.0, 1979.0)),
        &node(link("NVLink 4", 200.0), 50.0, 2.5),
        "DeepSeek-V3 report: as H100, link of 400 GB/s both ways",
    ),
    gpu(
        "H20",
        &chip((95.0, 4.0), 78, (148.0, 296.0, 296.0)),
        &node(NVLINK4, 50.0, 1.8),
        "NVIDIA H20 datasheet",
    ),
    gpu(
        "H200",
        &chip((139.8, 4.8), 132, (989.0, 1979.0, 1979.0)),
        &node(NVLINK4, 50.0, 3.0),
        "NVIDIA H200 datasheet",
    ),
    gpu(
        "B200",
        &chip((178.0, 8.0), 148, (2250.0, 4500.0, 9000.0)),
        &node(NVLINK5, 50.0, 5.0),
        "dgxc-benchmarking README; NVIDIA DGX B200 datasheet",
    ),
    gpu(
        "B300",
        &chip((268.0, 8.0), 148, (2250.0, 4500.0, 13_500.0)),
        &node(NVLINK5, 100.0, 6.0),
        "dgxc-benchmarking README; NVIDIA DGX B300 datasheet",
    ),
    gpu(
        "GB200",
        &chip((184.0, 8.0), 148, (2450.0, 4900.0, 9800.0)),
        &rack(50.0, 6.0),
        "dgxc-benchmarking README; NVIDIA GB200 NVL72 datasheet",
    ),
    gpu(
        "GB300",
        &chip((276.0, 8.0), 148, (2450.0, 4900.0, 14_700.0)),
        &rack(100.0, 7.0),
        "dgxc-benchmarking README; NVIDIA GB300 NVL72 datasheet",
    ),
    gpu(
        "MI300X",
        &chip((191.5, 5.3), 304, (1307.0, 2615.0, 2615.0)),
        &node(XGMI, 50.0, 2.5),
        "AMD MI300X datasheet",
    ),
    gpu(
        "MI325X",
        &chip((255.0, 6.0), 304, (1307.0, 2615.0, 2615.0)),
        &node(XGMI, 50.0, 3.0),
        "AMD MI325X datasheet",
    ),
    gpu(
        "L40S",
        &chip((44.5, 0.864), 142, (362.0, 733.0, 733.0)),
        &node(PCIE4, 12.5, 0.9),
        "NVIDIA L40S datasheet",
    ),
    gpu(
        "L20",
        &chip((44.5, 0.864), 92, (119.5, 239.0, 239.0)),
        &node(PCIE4, 12.5, 0.6),
        "NVIDIA L20 datasheet",
    ),
];

static NETWORKS: [Network; 8] = [
    network("25gbe", 3.125, "IEEE 802.3by"),
    network("100gbe", 12.5, "IEEE 802.3bm"),
    network("roce-200", 25.0, "one 200 Gb port a GPU"),
    network("roce-400", 50.0, "one 400 Gb port a GPU"),
    network("hdr", 25.0, "InfiniBand HDR, 200 Gb"),
    network("ndr", 50.0, "InfiniBand NDR, 400 Gb"),
    network("xdr", 100.0, "InfiniBand XDR, 800 Gb"),
    network(
        "omnipath-4x100",
        3.0,
        "four 100 Gb ports for eight GPUs, as Jean Zay has them (BigScience chronicles)",
    ),
];

const fn network(name: &'static str, giga: f64, source: &'static str) -> Network {
    Network {
        name,
        bandwidth: giga * GIGA,
        source,
    }
}

/// Every GPU of the table.
pub fn gpus() -> &'static [Gpu] {
    &GPUS
}

/// Every network of the table.
pub fn networks() -> &'static [Network] {
    &NETWORKS
}
