//! The figures of GPUs and networks, each with where it is from.
//!
//! Vendors print decimal units and the bandwidth of both directions; here are bytes and one
//! direction. Memory is what a process can have, a little under what is printed on the box.

use super::{Gpu, Link, Network};

/// Grows by one whenever a figure changes.
pub const TABLE_VERSION: u32 = 4;

const TERA: f64 = 1e12;
const GIGA: f64 = 1e9;

const NVLINK2: Link = link("NVLink 2", 150.0);
const NVLINK3: Link = link("NVLink 3", 300.0);
const NVLINK4: Link = link("NVLink 4", 450.0);
const NVLINK5: Link = link("NVLink 5", 900.0);
const XGMI: Link = link("Infinity Fabric", 448.0);
const PCIE3: Link = link("PCIe 3", 16.0);
const PCIE4: Link = link("PCIe 4", 32.0);
const PCIE5: Link = link("PCIe 5", 64.0);

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

/// A node of one GPU.
const fn single(link: Link, network: f64, hourly: f64) -> Box {
    Box {
        link,
        per_node: 1,
        domain: 1,
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

/// A slice of a TPU pod: hosts of 4 chips, joined by the links between chips up to `domain` chips; slices are joined by the
/// data-center network.
const fn slice(link: Link, domain: u32, network: f64, hourly: f64) -> Box {
    Box {
        link,
        per_node: 4,
        domain,
        network,
        hourly,
    }
}

// Prices are what one GPU-hour costs on demand at smaller clouds, rounded; `--price` replaces them. Figures of cards with
// GeForce tensor cores are those with 32-bit sums. The units of TPUs and Gaudis are not theirs: they stand for
// products that fill the chip as well as on a GPU of that size.
static GPUS: [Gpu; 45] = [
    gpu(
        "V100-32GB",
        &chip((31.7, 0.9), 80, (125.0, 125.0, 125.0)),
        &node(NVLINK2, 6.25, 1.0),
        "NVIDIA V100 datasheet; four EDR ports for eight GPUs (DGX-1), eight for sixteen (DGX-2)",
    ),
    gpu(
        "V100-16GB",
        &chip((15.8, 0.9), 80, (125.0, 125.0, 125.0)),
        &node(NVLINK2, 6.25, 0.8),
        "NVIDIA V100 datasheet; four EDR ports for eight GPUs (DGX-1)",
    ),
    gpu(
        "T4",
        &chip((14.6, 0.32), 40, (65.0, 65.0, 65.0)),
        &node(PCIE3, 1.5625, 0.4),
        "NVIDIA T4 datasheet; 100 Gb for eight cards (AWS G4dn)",
    ),
    gpu(
        "A10",
        &chip((22.5, 0.6), 72, (125.0, 125.0, 125.0)),
        &node(PCIE4, 12.5, 0.6),
        "NVIDIA A10 datasheet",
    ),
    gpu(
        "A10G",
        &chip((22.0, 0.6), 80, (70.0, 70.0, 70.0)),
        &node(PCIE4, 1.5625, 1.0),
        "NVIDIA A10G datasheet; 100 Gb for eight cards (AWS G5)",
    ),
    gpu(
        "A40",
        &chip((44.5, 0.696), 84, (149.7, 149.7, 149.7)),
        &node(PCIE4, 12.5, 0.5),
        "NVIDIA A40 datasheet",
    ),
    gpu(
        "RTX-A6000",
        &chip((47.5, 0.768), 84, (154.8, 154.8, 154.8)),
        &node(PCIE4, 12.5, 0.6),
        "NVIDIA RTX A6000 datasheet",
    ),
    gpu(
        "RTX-A5000",
        &chip((23.5, 0.768), 64, (111.1, 111.1, 111.1)),
        &node(PCIE4, 12.5, 0.4),
        "NVIDIA RTX A5000 datasheet",
    ),
    gpu(
        "RTX-3090",
        &chip((23.6, 0.936), 82, (71.0, 71.0, 71.0)),
        &node(PCIE4, 3.125, 0.3),
        "NVIDIA GA102 whitepaper; 25 Gb a card",
    ),
    gpu(
        "RTX-4080",
        &chip((15.6, 0.717), 76, (97.5, 195.0, 195.0)),
        &node(PCIE4, 3.125, 0.4),
        "NVIDIA Ada whitepaper; 25 Gb a card",
    ),
    gpu(
        "RTX-4090",
        &chip((23.6, 1.008), 128, (165.2, 330.3, 330.3)),
        &node(PCIE4, 3.125, 0.5),
        "NVIDIA Ada whitepaper; 25 Gb a card",
    ),
    gpu(
        "RTX-5090",
        &chip((31.4, 1.792), 170, (209.5, 419.0, 1676.0)),
        &node(PCIE5, 3.125, 0.8),
        "NVIDIA RTX Blackwell whitepaper; 25 Gb a card",
    ),
    gpu(
        "RTX-6000-Ada",
        &chip((47.5, 0.96), 142, (364.2, 728.5, 728.5)),
        &node(PCIE4, 12.5, 0.9),
        "NVIDIA RTX 6000 Ada datasheet",
    ),
    gpu(
        "RTX-PRO-6000",
        &chip((95.0, 1.792), 188, (503.8, 1007.6, 2015.2)),
        &node(PCIE5, 12.5, 1.8),
        "NVIDIA RTX PRO 6000 Blackwell datasheet, halved where it counts sparsity",
    ),
    gpu(
        "L4",
        &chip((22.0, 0.3), 58, (121.0, 242.0, 242.0)),
        &node(PCIE4, 1.5625, 0.7),
        "NVIDIA L4 datasheet, halved where it counts sparsity; 100 Gb for eight cards (AWS G6)",
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
        "A100-80GB-PCIe",
        &chip((79.2, 1.935), 108, (312.0, 312.0, 312.0)),
        &node(PCIE4, 12.5, 1.4),
        "NVIDIA A100 datasheet, PCIe card of 300 W without bridges",
    ),
    gpu(
        "A100-40GB-PCIe",
        &chip((39.4, 1.555), 108, (312.0, 312.0, 312.0)),
        &node(PCIE4, 12.5, 1.2),
        "NVIDIA A100 datasheet, PCIe card of 250 W without bridges",
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
        "H100-80GB-PCIe",
        &chip((79.1, 2.0), 114, (756.0, 1513.0, 1513.0)),
        &node(PCIE5, 25.0, 2.2),
        "NVIDIA H100 datasheet, PCIe card of 350 W without bridges",
    ),
    gpu(
        "H100-94GB-NVL",
        &chip((93.1, 3.9), 132, (835.0, 1671.0, 1671.0)),
        &node(PCIE5, 25.0, 2.4),
        "NVIDIA H100 NVL datasheet, halved where it counts sparsity; without bridges",
    ),
    gpu(
        "GH200",
        &chip((94.5, 4.0), 132, (989.0, 1979.0, 1979.0)),
        &single(NVLINK4, 50.0, 3.0),
        "NVIDIA GH200 datasheet, 96 GB; one GPU a node",
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
        "MI355X",
        &chip((286.0, 8.0), 256, (2500.0, 5000.0, 10_000.0)),
        &node(link("Infinity Fabric", 537.0), 50.0, 4.0),
        "AMD MI355X datasheet",
    ),
    gpu(
        "MI250X",
        &chip((127.5, 3.277), 220, (383.0, 383.0, 383.0)),
        &node(link("Infinity Fabric", 200.0), 25.0, 1.5),
        "AMD MI250X datasheet: two dies of 64 GB as one",
    ),
    gpu(
        "L40S",
        &chip((44.5, 0.864), 142, (362.0, 733.0, 733.0)),
        &node(PCIE4, 12.5, 0.9),
        "NVIDIA L40S datasheet",
    ),
    gpu(
        "L40",
        &chip((44.5, 0.864), 142, (181.0, 362.0, 362.0)),
        &node(PCIE4, 12.5, 0.8),
        "NVIDIA L40 datasheet",
    ),
    gpu(
        "L20",
        &chip((44.5, 0.864), 92, (119.5, 239.0, 239.0)),
        &node(PCIE4, 12.5, 0.6),
        "NVIDIA L20 datasheet",
    ),
    gpu(
        "Gaudi2",
        &chip((95.0, 2.45), 132, (432.0, 865.0, 865.0)),
        &node(link("RoCE 21 × 100 Gb", 262.5), 37.5, 1.3),
        "Intel Gaudi 2 datasheet: 3 of 24 ports of 100 Gb leave the node",
    ),
    gpu(
        "Gaudi3",
        &chip((126.0, 3.67), 132, (1835.0, 1835.0, 1835.0)),
        &node(link("RoCE 21 × 200 Gb", 525.0), 75.0, 2.0),
        "Intel Gaudi 3, Hot Chips 2024: 3 of 24 ports of 200 Gb leave the node",
    ),
    gpu(
        "TPU-v4",
        &chip((31.0, 1.228), 108, (275.0, 275.0, 275.0)),
        &slice(link("ICI v4", 300.0), 64, 6.25, 3.2),
        "Google Cloud TPU v4 page; six links of 50 GB/s (arXiv:2304.01433); a cube of 64 chips",
    ),
    gpu(
        "TPU-v5e",
        &chip((15.5, 0.819), 80, (197.0, 197.0, 197.0)),
        &slice(link("ICI v5e", 200.0), 64, 3.125, 1.2),
        "Google Cloud TPU v5e page: links of 400 GB/s both ways, 6.4 Tb for 256 chips",
    ),
    gpu(
        "TPU-v5p",
        &chip((94.0, 2.765), 132, (459.0, 459.0, 459.0)),
        &slice(link("ICI v5p", 600.0), 64, 6.25, 4.2),
        "Google Cloud TPU v5p page: links of 1,200 GB/s both ways, 50 Gb a chip",
    ),
    gpu(
        "TPU-v6e",
        &chip((31.0, 1.64), 132, (918.0, 918.0, 918.0)),
        &slice(link("ICI v6e", 400.0), 64, 12.5, 2.7),
        "Google Cloud TPU v6e page: links of 800 GB/s both ways, 25.6 Tb for 256 chips",
    ),
];

static NETWORKS: [Network; 9] = [
    network("10gbe", 1.25, "IEEE 802.3ae"),
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
