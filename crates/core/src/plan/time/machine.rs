//! What one GPU and its links reach in practice.
//!
//! Owns the physical constants, each with its source, and the three costs everything is made of:
//! matrix products, memory traffic, and collectives.

use super::super::{
    efficiency,
    hardware::{Cluster, Precision, Rates},
    shape::of,
};

/// Share of the memory's bandwidth that streaming kernels reach; `bandwidthTest` and the elementwise
/// kernels of the frameworks lie between 0.80 and 0.90 on all these parts.
pub const MEMORY_SHARE: f64 = 0.85;
/// Share of a link's bandwidth that collectives of tens of megabytes reach in training. Calculon uses
/// the same figure; nccl-tests shows up to 0.78 for far larger messages with nothing beside them.
const LINK_SHARE: f64 = 0.65;
/// The same of the network: 92 % of a port is common, less with many flows.
const NETWORK_SHARE: f64 = 0.85;
/// Share of what a copy between two GPUs reaches that collectives reach.
const COPY_SHARE: f64 = 0.8;
/// Least depth of a part where a product is split along its depth.
const SPLIT_DEPTH: f64 = 1024.0;
/// One hop of a ring inside a node.
const LINK_HOP: f64 = 2.0e-6;
/// One hop of a ring through the network.
const NETWORK_HOP: f64 = 6.0e-6;
/// Fixed cost of a collective: launch and the agreement of the ranks.
pub(super) const COLLECTIVE_START: f64 = 12.0e-6;
/// Pause between two kernels of a stream.
pub(super) const KERNEL_GAP: f64 = 1.5e-6;
/// Compute units that a collective keeps busy, which matrices beside it do without: the usual number
/// of NCCL's channels and of Transformer Engine's communication kernels.
pub(super) const CHANNELS: f64 = 16.0;
/// Rows and columns of the tile that a unit computes at once (cuBLAS and CUTLASS, large products).
const TILES: [(f64, f64); 3] = [(256.0, 128.0), (128.0, 256.0), (128.0, 128.0)];
/// What a tile's start and end cost: loads before the first product and the store after the last. The
/// faster a unit multiplies, the deeper a product must be to make up for it.
pub const TILE_START: f64 = 5e-6;

/// The rates of one GPU of a cluster for one precision.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// FLOP/s of large matrix products in the run's precision.
    pub(super) rate: f64,
    /// The same of products that stay in 16 bits.
    pub(super) rate16: f64,
    /// Peak of 16 bits; kernels of attention are stated as shares of it.
    pub(super) peak16: f64,
    /// Bytes of an operand.
    pub(super) bytes: f64,
    /// Bytes per second of memory traffic.
    pub(super) memory: f64,
    /// Compute units.
    pub(super) units: f64,
    /// What was measured, where it was.
    pub(super) rates: Option<Rates>,
    tile_start: f64,
    link: f64,
    network: f64,
    domain: u32,
    nodes_per_leaf: u32,
    per_node: u32,
    oversubscription: f64,
}

/// What a collective does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collective {
    AllReduce,
    /// All-gather or reduce-scatter; the bytes are those of the whole.
    Gather,
    AllToAll,
}

/// Ranks of one group: how many, and how far apart in rank order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) size: u32,
    pub(super) stride: u32,
}

impl Machine {
    /// The rates of one GPU; `efficiency` takes the place of the fitted share of the peak.
    pub fn new(cluster: &Cluster, precision: Precision, efficiency: Option<f64>) -> Self {
        let gpu = &cluster.gpu;
        let rates = cluster.rates;
        let share = |of: Precision| match (efficiency, rates) {
            (Some(share), _) if of == precision => share,
            (_, Some(rates)) if of == Precision::Bf16 => rates.share,
            _ => efficiency::of(gpu.name, of),
        };
        let link = rates.and_then(|rates| rates.link_bandwidth);
        Self {
            rate: gpu.peak(precision) * share(precision),
            rate16: gpu.peak_bf16 * share(Precision::Bf16),
            peak16: gpu.peak_bf16,
            bytes: precision.bytes(),
            memory: rates.map_or(gpu.memory_bandwidth * MEMORY_SHARE, |rates| {
                rates.memory_bandwidth
            }),
            rates,
            tile_start: rates.map_or(TILE_START, |rates| rates.tile_start),
            units: of(gpu.units),
            link: link.map_or(gpu.link.bandwidth * LINK_SHARE, |link| link * COPY_SHARE),
            network: cluster.network * NETWORK_SHARE,
            domain: gpu.domain,
            per_node: gpu.per_node,
            nodes_per_leaf: cluster.nodes_per_leaf,
            oversubscription: cluster.oversubscription.max(1.0),
        }
    }

    /// Seconds of one product of `m × k` by `k × n`, in the run's precision.
    pub(super) fn product(&self, m: f64, n: f64, k: f64) -> f64 {
        self.product_at(self.rate, self.bytes, m, n, k)
    }

    /// Seconds of one product in 16 bits, for a fit to what was measured.
    pub fn bf16_product(&self, m: f64, n: f64, k: f64) -> f64 {
        self.product16(m, n, k)
    }

    /// The same in 16 bits.
    pub(super) fn product16(&self, m: f64, n: f64, k: f64) -> f64 {
        self.product_at(self.rate16, 2.0, m, n, k)
    }

    fn product_at(&self, rate: f64, bytes: f64, m: f64, n: f64, k: f64) -> f64 {
        if m <= 0.0 || n <= 0.0 || k <= 0.0 {
            return 0.0;
        }
        // Small results of deep products are split along their depth, and the parts added up in a second kernel. The
        // shares of the table were fitted without; what was measured has it.
        let splits: &[f64] = if self.rates.is_some() {
            &[1.0, 2.0, 4.0, 8.0, 16.0]
        } else {
            &[1.0]
        };
        splits
            .iter()
            .filter(|parts| **parts < 2.0 || k / **parts >= SPLIT_DEPTH)
            .map(|parts| self.split_product(rate, bytes, [m, n, k], *parts))
            .fold(f64::INFINITY, f64::min)
    }

    fn split_product(&self, rate: f64, bytes: f64, [m, n, k]: [f64; 3], parts: f64) -> f64 {
        let operations = 2.0 * m * n * k;
        let used = TILES
            .iter()
            .map(|tile| self.use_of_units(m, n, parts, *tile))
            .fold(0.0, f64::max);
        // Products of a unit's tile in the time that its start and end take.
        let lost = self.tile_start * rate / self.units / (2.0 * 256.0 * 128.0);
        let depth = k / parts / (k / parts + lost);
        let compute = operations / (rate * used * depth);
        let traffic = (bytes * (m * k + k * n) + 2.0 * m * n) / self.memory;
        let adding = if parts > 1.0 {
            8.0 * parts * m * n / self.memory + KERNEL_GAP
        } else {
            0.0
        };
        compute.max(traffic) + KERNEL_GAP + adding
    }

    /// Share of the units' time that goes into the result: tiles overhang its edges, and the last
    /// wave of tiles does not fill every unit.
    fn use_of_units(&self, m: f64, n: f64, parts: f64, (rows, columns): (f64, f64)) -> f64 {
        let tiles = (m / rows).ceil() * (n / columns).ceil() * parts;
        let waves = (tiles / self.units).ceil();
        // A smaller tile reads its operands more often.
        let reuse = if rows * columns < 20_000.0 { 0.93 } else { 1.0 };
        reuse * (m * n * parts) / (waves * self.units * rows * columns)
    }

    /// Seconds to move `bytes` through memory in `kernels` kernels.
    pub(super) fn traffic(&self, bytes: f64, kernels: f64) -> f64 {
        bytes / self.memory + kernels * KERNEL_GAP
    }

    /// Seconds of a collective over `bytes` (the whole of what is gathered or reduced).
    pub(super) fn collective(&self, kind: Collective, group: Group, bytes: f64) -> f64 {
        if group.size <= 1 || bytes <= 0.0 {
            return 0.0;
        }
        let ranks = of(group.size);
        let local = (self.domain / group.stride.max(1)).clamp(1, group.size);
        let nodes = group.size.div_ceil(local);
        let share = (ranks - 1.0) / ranks;
        let hops = if nodes > 1 {
            of(nodes) * NETWORK_HOP + (ranks - of(nodes)).max(0.0) * LINK_HOP
        } else {
            (ranks - 1.0) * LINK_HOP
        };
        let inside = share * bytes / self.link;
        // Every rank of the group in a node has a port of its own, and a ring uses all of them.
        let between = if nodes > 1 {
            let far = (of(nodes) - 1.0) / of(nodes);
            let ports = match kind {
                Collective::AllToAll => 1.0,
                _ => of(local),
            };
            far * bytes / (self.network_of(nodes) * ports)
        } else {
            0.0
        };
        let once = inside.max(between) + hops;
        COLLECTIVE_START
            + match kind {
                Collective::AllReduce => 2.0 * once,
                Collective::Gather | Collective::AllToAll => once,
            }
    }

    /// Seconds to send tokens to their experts: `inside` bytes over the link, and over the network what `between` says for a
    /// number of nodes.
    pub(super) fn dispatch(&self, group: Group, inside: f64, between: &dyn Fn(f64) -> f64) -> f64 {
        let local = (self.domain / group.stride.max(1)).clamp(1, group.size.max(1));
        let nodes = group.size.div_ceil(local);
        let within = self.collective(
            Collective::AllToAll,
            Group {
                size: local,
                ..group
            },
            inside,
        );
        if nodes <= 1 {
            return within;
        }
        let far = (of(nodes) - 1.0) / of(nodes);
        let bytes = far * between(of(nodes));
        within.max(bytes / self.network_of(nodes) + of(nodes) * NETWORK_HOP + COLLECTIVE_START)
    }

    /// Seconds to send `bytes` from one rank to the one `stride` after it.
    pub(super) fn send(&self, stride: u32, bytes: f64) -> f64 {
        let (bandwidth, hop) = if stride < self.domain {
            (self.link, LINK_HOP)
        } else {
            (self.network, NETWORK_HOP)
        };
        bytes / bandwidth + hop + COLLECTIVE_START
    }

    /// Bandwidth of a port towards `domains` domains: less once they lie under several leaf switches.
    fn network_of(&self, domains: u32) -> f64 {
        let nodes = domains.saturating_mul((self.domain / self.per_node.max(1)).max(1));
        if self.nodes_per_leaf > 0 && nodes > self.nodes_per_leaf {
            self.network / self.oversubscription
        } else {
            self.network
        }
    }
}
