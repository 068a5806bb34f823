//! GPUs, links and networks: what a cluster is made of.
//!
//! Owns the shapes of the table; the figures with their sources are in `table`.
//!
//! Invariant: bandwidths are those of one direction and of one GPU, in bytes per second.

mod table;

use serde::Serialize;
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

/// The GPU of that name: `H100-80GB`, `h100`, `A100-SXM4-80GB` and the like.
pub fn gpu(name: &str) -> Result<Gpu, Unknown> {
    let wanted = plain(name);
    let known = || gpus().iter();
    let exact = known().find(|gpu| plain(gpu.name) == wanted);
    // The longest name that begins what was written, so that `h100-80gb-sxm5` is found; else the first
    // that begins with it, so that `h100` is.
    let found = exact
        .or_else(|| {
            known()
                .filter(|gpu| wanted.starts_with(&plain(gpu.name)))
                .max_by_key(|gpu| gpu.name.len())
        })
        .or_else(|| known().find(|gpu| wanted.len() > 2 && plain(gpu.name).starts_with(&wanted)));
    found.cloned().ok_or_else(|| Unknown {
        what: "GPU",
        name: name.to_owned(),
        nearest: closest(name, known().map(|gpu| gpu.name)),
    })
}

/// The network of that name.
pub fn network(name: &str) -> Result<Network, Unknown> {
    let wanted = plain(name);
    let known = || networks().iter();
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
