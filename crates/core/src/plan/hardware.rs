//! GPUs, links and networks: what a cluster is made of.
//!
//! Owns the shapes of the table; the figures with their sources are in `table`.
//!
//! Invariant: bandwidths are those of one direction and of one GPU, in bytes per second.

mod table;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use table::{TABLE_VERSION, gpus, networks};

use crate::spec::distance;

/// Bytes of a GiB.
pub const GIB: f64 = 1_073_741_824.0;

/// Number format of the matrix work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 16 bits, either kind.
    Bf16,
    /// 8 bits, whatever the scaling.
    Fp8,
    /// 4 bits in blocks.
    Fp4,
}

impl Precision {
    /// The precision that a name stands for.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "bf16" | "fp16" | "float16" | "bfloat16" => Some(Self::Bf16),
            _ if name.contains("fp4") => Some(Self::Fp4),
            _ if name.contains("fp8") => Some(Self::Fp8),
            _ => None,
        }
    }

    /// Bytes of one element of a matrix operand.
    pub fn bytes(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 => 1.0,
            Self::Fp4 => 0.5625,
        }
    }
}

/// A kind of GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gpu {
    /// As users write it.
    pub name: &'static str,
    /// Memory in GiB, as the driver reports it.
    pub memory_gib: f64,
    /// Memory bandwidth.
    pub memory_bandwidth: f64,
    /// Compute units that tiles of a matrix are given to.
    pub units: u32,
    /// Peak of dense 16-bit matrix work, in FLOP/s.
    pub peak_bf16: f64,
    /// Peak of 8-bit matrix work; that of 16 bits where the GPU has none.
    pub peak_fp8: f64,
    /// Peak of 4-bit matrix work; that of 8 bits where the GPU has none.
    pub peak_fp4: f64,
    /// Link between the GPUs of a node.
    pub link: Link,
    /// GPUs of one node.
    pub per_node: u32,
    /// GPUs that the link joins: a node, or a rack.
    pub domain: u32,
    /// Bandwidth of the network, as such nodes are usually built.
    pub network: f64,
    /// Price of an hour in dollars, where none is given.
    pub hourly: f64,
    /// Where the figures are from.
    pub source: &'static str,
}

/// A link inside a node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// As users write it.
    pub name: &'static str,
    /// Bandwidth of one GPU, one direction.
    pub bandwidth: f64,
}

/// A network between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// As users write it.
    pub name: &'static str,
    /// Bandwidth of one port, one direction.
    pub bandwidth: f64,
    /// Where the figure is from.
    pub source: &'static str,
}

impl Gpu {
    /// Whether its matrix units know the format. A table without a higher peak says that they do not, except Gaudi 3, whose
    /// 8 bits are as fast as its 16.
    pub fn has(&self, precision: Precision) -> bool {
        match precision {
            Precision::Bf16 => true,
            Precision::Fp8 => self.peak_fp8 > self.peak_bf16 || self.name == "Gaudi3",
            Precision::Fp4 => self.peak_fp4 > self.peak_fp8,
        }
    }

    /// Whether 16 bits are those of fp16 alone, as before Ampere.
    pub fn only_fp16(&self) -> bool {
        self.name == "T4" || self.name.starts_with("V100")
    }

    /// Peak of matrix work in `precision`.
    pub fn peak(&self, precision: Precision) -> f64 {
        match precision {
            Precision::Bf16 => self.peak_bf16,
            Precision::Fp8 => self.peak_fp8,
            Precision::Fp4 => self.peak_fp4,
        }
    }
}

/// GPUs, and how they are joined.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// Which GPUs.
    pub gpu: Gpu,
    /// How many.
    pub gpus: u32,
    /// Bandwidth of the network for one GPU.
    pub network: f64,
    /// Nodes under one leaf switch; 0 where it does not matter.
    pub nodes_per_leaf: u32,
    /// How many times less bandwidth there is above the leaf switches.
    pub oversubscription: f64,
    /// What such a GPU was measured to reach; the table's shares where it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
}

/// What a GPU was measured to reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rates {
    /// Share of the printed 16-bit peak that large products reach.
    pub share: f64,
    /// Seconds that a tile of a product takes to start and end.
    pub tile_start: f64,
    /// Shares of the peak that causal attention reaches forward and backward with heads of 64.
    pub attention64: [f64; 2],
    /// The same with heads of 128.
    pub attention128: [f64; 2],
    /// Bytes per second of memory.
    pub memory_bandwidth: f64,
    /// Bytes per second between two GPUs of the node, one direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bandwidth: Option<f64>,
}

/// A name that is not in the table.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown {what} `{name}`; the nearest is `{nearest}`")]
pub struct Unknown {
    /// Kind of thing.
    pub what: &'static str,
    /// As written.
    pub name: String,
    /// Nearest name of the table.
    pub nearest: String,
}

/// Other names of GPUs. A name without its memory is the larger part, which the answer names in full.
static ALIASES: [(&str, &str); 57] = [
    ("4090", "RTX-4090"),
    ("4080", "RTX-4080"),
    ("3090", "RTX-3090"),
    ("5090", "RTX-5090"),
    ("a5000", "RTX-A5000"),
    ("rtx-6000-pro", "RTX-PRO-6000"),
    ("gb200-nvl72", "GB200"),
    ("gb300-nvl72", "GB300"),
    ("h100-80g", "H100-80GB"),
    ("h100-mega-80gb", "H100-80GB"),
    ("a100-80g", "A100-80GB"),
    ("a100-40g", "A100-40GB"),
    ("h100-pcie", "H100-80GB-PCIe"),
    ("h100-pcie-80gb", "H100-80GB-PCIe"),
    ("a100-pcie", "A100-80GB-PCIe"),
    ("a100-pcie-80gb", "A100-80GB-PCIe"),
    ("a100-pcie-40gb", "A100-40GB-PCIe"),
    ("h100-nvl", "H100-94GB-NVL"),
    ("gh200-96gb", "GH200"),
    ("gh200-480gb", "GH200"),
    ("v4", "TPU-v4"),
    ("v5e", "TPU-v5e"),
    ("v5p", "TPU-v5p"),
    ("v6e", "TPU-v6e"),
    ("tpu-v5-lite-podslice", "TPU-v5e"),
    ("tpu-v5litepod", "TPU-v5e"),
    ("v5litepod", "TPU-v5e"),
    ("trillium", "TPU-v6e"),
    ("tpu-trillium", "TPU-v6e"),
    ("mi355x-288gb", "MI355X"),
    ("mi250x-128gb", "MI250X"),
    ("v100-pcie-16gb", "V100-16GB"),
    ("v100-pcie-32gb", "V100-32GB"),
    ("v100", "V100-32GB"),
    ("a100", "A100-80GB"),
    ("a800", "A800-80GB"),
    ("h100", "H100-80GB"),
    ("h100-96gb", "H100-96GB-HBM2e"),
    ("h800", "H800-80GB"),
    ("h20-96gb", "H20"),
    ("h200-141gb", "H200"),
    ("b200-180gb", "B200"),
    ("b200-192gb", "B200"),
    ("b300-288gb", "B300"),
    ("a10-24gb", "A10"),
    ("a10g-24gb", "A10G"),
    ("l4-24gb", "L4"),
    ("l40s-48gb", "L40S"),
    ("t4-16gb", "T4"),
    ("a6000", "RTX-A6000"),
    ("6000-ada", "RTX-6000-Ada"),
    ("rtx-6000-ada-generation", "RTX-6000-Ada"),
    ("mi300x-192gb", "MI300X"),
    ("mi325x-256gb", "MI325X"),
    ("rtx-pro-6000-blackwell", "RTX-PRO-6000"),
    ("rtx-pro-6000-blackwell-server", "RTX-PRO-6000"),
    ("rtx-pro-6000-blackwell-workstation", "RTX-PRO-6000"),
];

/// Parts of a name that say who made the GPU and how it is mounted, not which it is. A `PCIe` part is another GPU, so
/// that word is not among them.
static DECORATIONS: [&str; 26] = [
    "dgx", "hgx", "nvidia", "amd", "intel", "google", "tesla", "geforce", "instinct", "hpu", "gpu",
    "tensor", "core", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6", "oam", "hbm2", "hbm2e",
    "hbm3", "hbm3e", "cloud", "edition",
];

/// The GPU of that name: `H100-80GB`, `h100`, `NVIDIA A100-SXM4-80GB` and the like. Only whole names count: `A10` is not
/// the beginning of `A100`.
pub fn gpu(name: &str) -> Result<Gpu, Unknown> {
    let wanted = undecorated(name);
    let known = || gpus().iter();
    let named = |wanted: &str| known().find(|gpu| undecorated(gpu.name) == wanted);
    let alias = || {
        let (_, name) = ALIASES.iter().find(|(alias, _)| plain(alias) == wanted)?;
        named(&undecorated(name))
    };
    named(&wanted)
        .or_else(alias)
        .cloned()
        .ok_or_else(|| Unknown {
            what: "GPU",
            name: name.to_owned(),
            nearest: closest(name, known().map(|gpu| gpu.name)),
        })
}

/// A name without its [`DECORATIONS`], separators and capitals.
fn undecorated(name: &str) -> String {
    name.split(|letter: char| !letter.is_ascii_alphanumeric())
        .map(str::to_ascii_lowercase)
        .filter(|word| !DECORATIONS.contains(&word.as_str()))
        .collect()
}

/// What a GPU that is not in the table is described by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// GiB.
    pub memory: f64,
    /// TFLOP/s of dense 16-bit matrix work.
    pub tflops: f64,
    /// GB/s of memory.
    pub bandwidth: f64,
    /// TFLOP/s of 8 bits; that of 16 bits where left out.
    pub fp8: Option<f64>,
    /// GB/s of the link inside the node, one direction.
    pub link: Option<f64>,
    /// GB/s of the network for one GPU.
    pub network: Option<f64>,
    /// GPUs of a node.
    pub per_node: Option<u32>,
    /// Dollars an hour.
    pub price: Option<f64>,
}

impl Spec {
    /// The GPU. Its compute units follow from its speed: about 6 TFLOP/s each, as on the GPUs of the table.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is clamped"
    )]
    pub fn gpu(&self) -> Gpu {
        let tera = 1e12;
        let fp8 = self.fp8.unwrap_or(self.tflops) * tera;
        let per_node = self.per_node.unwrap_or(8);
        Gpu {
            name: "custom",
            memory_gib: self.memory,
            memory_bandwidth: self.bandwidth * 1e9,
            units: (self.tflops / 6.0).clamp(16.0, 160.0).round() as u32,
            peak_bf16: self.tflops * tera,
            peak_fp8: fp8,
            peak_fp4: fp8,
            link: Link {
                name: "custom",
                bandwidth: self.link.unwrap_or(32.0) * 1e9,
            },
            per_node,
            domain: per_node,
            network: self.network.unwrap_or(12.5) * 1e9,
            hourly: self.price.unwrap_or(1.0),
            source: "given by the user",
        }
    }
}

/// Other names of networks: a port of that speed for each GPU.
static NETWORK_ALIASES: [(&str, &str); 14] = [
    ("10g", "10gbe"),
    ("25g", "25gbe"),
    ("100g", "100gbe"),
    ("200g", "roce-200"),
    ("200gbe", "roce-200"),
    ("400g", "roce-400"),
    ("400gbe", "roce-400"),
    ("ib-hdr", "hdr"),
    ("infiniband-hdr", "hdr"),
    ("ib-ndr", "ndr"),
    ("infiniband-ndr", "ndr"),
    ("ib-xdr", "xdr"),
    ("infiniband-xdr", "xdr"),
    ("800g", "xdr"),
];

/// The network of that name.
pub fn network(name: &str) -> Result<Network, Unknown> {
    let wanted = plain(name);
    let known = || networks().iter();
    let alias = NETWORK_ALIASES
        .iter()
        .find(|(alias, _)| [plain(alias), format!("{}bps", plain(alias))].contains(&wanted));
    let wanted = alias.map_or(wanted, |(_, name)| plain(name));
    known()
        .find(|network| plain(network.name) == wanted)
        .copied()
        .ok_or_else(|| Unknown {
            what: "network",
            name: name.to_owned(),
            nearest: closest(name, known().map(|network| network.name)),
        })
}

fn plain(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}

/// The nearest of `names`, by the letters that have to change.
pub fn closest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let wanted = plain(name);
    // A missing suffix, such as the memory of a GPU, is not a mistake.
    let cut = |known: &str| plain(known).chars().take(wanted.len()).collect::<String>();
    names
        .min_by_key(|known| (distance(&wanted, &cut(known)), known.len()))
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_gpus() {
        let cases = [
            ("h100", "H100-80GB"),
            ("H100-80GB-SXM5", "H100-80GB"),
            ("NVIDIA H200", "H200"),
            ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
            ("NVIDIA GeForce RTX 4090", "RTX-4090"),
            ("A10", "A10"),
            ("A10G", "A10G"),
            ("Tesla T4", "T4"),
            ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
            (
                "NVIDIA RTX PRO 6000 Blackwell Server Edition",
                "RTX-PRO-6000",
            ),
            ("TPU v5e", "TPU-v5e"),
            ("Gaudi 3", "Gaudi3"),
            ("H100-96GB-HBM2e", "H100-96GB-HBM2e"),
            ("AMD Instinct MI300X OAM", "MI300X"),
            ("NVIDIA H100 PCIe", "H100-80GB-PCIe"),
            ("NVIDIA A100-PCIE-40GB", "A100-40GB-PCIe"),
            ("NVIDIA A100 80GB PCIe", "A100-80GB-PCIe"),
            ("NVIDIA H100 NVL", "H100-94GB-NVL"),
            ("NVIDIA GH200 480GB", "GH200"),
            ("4090", "RTX-4090"),
            ("DGX H100", "H100-80GB"),
            ("nvidia-h100-mega-80gb", "H100-80GB"),
            ("GB200 NVL72", "GB200"),
            ("NVIDIA L40", "L40"),
            ("v5p", "TPU-v5p"),
            ("tpu-v5-lite-podslice", "TPU-v5e"),
            ("A100 80G", "A100-80GB"),
        ];
        for (name, want) in cases {
            assert_eq!(gpu(name).unwrap().name, want, "{name}");
        }
        for name in [
            "A1", "A1000", "H", "8xH100", "RTX", "P100", "H101", "L", "GB2", "V", "MI300", "",
            "nvidia",
        ] {
            assert!(gpu(name).is_err(), "{name}");
        }
    }

    #[test]
    fn formats_are_those_of_the_gpus() {
        for (name, fp8, fp4) in [
            ("V100", false, false),
            ("A100", false, false),
            ("L40S", true, false),
            ("H100", true, false),
            ("H200", true, false),
            ("B200", true, true),
            ("GB300", true, true),
            ("MI300X", true, false),
            ("Gaudi 3", true, false),
        ] {
            let found = gpu(name).unwrap();
            assert_eq!(found.has(Precision::Fp8), fp8, "{name}");
            assert_eq!(found.has(Precision::Fp4), fp4, "{name}");
            assert_eq!(found.only_fp16(), name == "V100", "{name}");
        }
    }

    #[test]
    fn networks_have_other_names() {
        for (name, want) in [
            ("NDR", "ndr"),
            ("InfiniBand NDR", "ndr"),
            ("400G", "roce-400"),
            ("400Gbps", "roce-400"),
            ("25GbE", "25gbe"),
        ] {
            assert_eq!(network(name).unwrap().name, want, "{name}");
        }
        for name in ["infiniband", "ethernet", "roce", ""] {
            assert!(network(name).is_err(), "{name}");
        }
    }
}
