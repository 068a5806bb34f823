//! The time of one layer for one micro-batch on one rank.
//!
//! Bytes of memory-bound work are counted operation by operation, for 16-bit activations. Letters as
//! in the papers: `h` hidden, `f` ffn, `t` tensor ranks.

use super::{
    super::{
        layout::{Layout, Recompute},
        shape::{Mlp, Shape, of},
        software::{AttentionKernel, Kernels, Overlap, Plain, Software},
        tuning::{Tuning, adapted_width},
    },
    machine::{CHANNELS, Collective, Group, KERNEL_GAP, Machine},
};

/// Seconds of one layer by part, forward and backward apart. What is computed again is a forward
/// pass more, and counted in `again`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LayerTime {
    pub(super) forward: Parts,
    pub(super) backward: Parts,
    pub(super) again: Parts,
}

/// Seconds by what they are spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Parts {
    pub(super) matrices: f64,
    pub(super) attention: f64,
    pub(super) memory: f64,
    /// Waited for.
    pub(super) tensor: f64,
    pub(super) context: f64,
    pub(super) expert: f64,
    /// Traffic that runs beside other work.
    pub(super) hidden: f64,
}

impl Parts {
    pub(super) fn total(&self) -> f64 {
        self.compute() + self.tensor + self.context + self.expert
    }

    pub(super) fn compute(&self) -> f64 {
        self.matrices + self.attention + self.memory
    }

    pub(super) fn scaled(&self, by: f64) -> Self {
        Self {
            matrices: self.matrices * by,
            attention: self.attention * by,
            memory: self.memory * by,
            tensor: self.tensor * by,
            context: self.context * by,
            expert: self.expert * by,
            hidden: self.hidden * by,
        }
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        Self {
            matrices: self.matrices + other.matrices,
            attention: self.attention + other.attention,
            memory: self.memory + other.memory,
            tensor: self.tensor + other.tensor,
            context: self.context + other.context,
            expert: self.expert + other.expert,
            hidden: self.hidden + other.hidden,
        }
    }
}

/// What one layer's cost depends on.
pub(super) struct Bench<'a> {
    pub(super) shape: &'a Shape,
    pub(super) layout: &'a Layout,
    pub(super) software: &'a Software,
    pub(super) machine: &'a Machine,
    pub(super) sequence: u32,
    pub(super) tuning: Tuning,
}

impl Bench<'_> {
    /// Tokens of a micro-batch on one rank.
    pub(super) fn tokens(&self) -> f64 {
        of(self.layout.micro_batch) * of(self.sequence) / of(self.layout.context)
    }

    fn tensor(&self) -> f64 {
        of(self.layout.tensor)
    }

    /// One layer; with experts where `expert` says so.
    pub(super) fn layer(&self, expert: bool) -> LayerTime {
        let products = self.products(expert);
        let forward_products: f64 = products.iter().map(|p| self.forward_product(p)).sum();
        let backward_products: f64 = products.iter().map(|p| self.backward_product(p)).sum();
        let (attention_forward, attention_backward, scores_forward, scores_backward) =
            self.attention();
        let (memory_forward, memory_backward) = self.memory_bound(expert);
        let tuned = self.adapter_time();
        let left = 1.0 - self.software.reserved_units / self.machine.units;
        let slower = if left > 0.1 { 1.0 / left } else { 1.0 };
        let mut forward = Parts {
            matrices: slower * forward_products,
            attention: slower * (attention_forward + scores_forward),
            memory: memory_forward + tuned,
            ..Parts::default()
        };
        let mut backward = Parts {
            matrices: slower * backward_products,
            attention: slower * (attention_backward + scores_backward),
            memory: memory_backward + 2.0 * tuned,
            ..Parts::default()
        };
        self.tensor_traffic(&mut forward, &mut backward);
        self.context_traffic(&mut forward, &mut backward);
        if expert {
            self.expert_traffic(&mut forward, &mut backward);
        }
        let mut second = forward;
        if self.software.stops_early {
            // The last product's result is only the next layer's input, which is kept.
            let last = products.last().map_or(0.0, |p| self.forward_product(p));
            second.matrices = (second.matrices - last).max(0.0);
        }
        let again = match self.layout.recompute {
            Recompute::None => Parts::default(),
            // A fused kernel computes the scores again by itself, which is in its backward time; what
            // is left are norms and activations.
            Recompute::Selective if self.software.attention > AttentionKernel::Unfused => Parts {
                memory: forward.memory / 2.0,
                ..Parts::default()
            },
            Recompute::Selective => Parts {
                attention: forward.attention,
                ..Parts::default()
            },
            Recompute::Half => second.scaled(0.5),
            Recompute::Full => second,
        };
        LayerTime {
            forward,
            backward,
            again,
        }
    }

    /// The matrix products of a forward pass: rows, columns, depth, how many.
    fn products(&self, expert: bool) -> Vec<[f64; 4]> {
        let shape = self.shape;
        let (tokens, t) = (self.tokens(), self.tensor());
        let h = of(shape.hidden);
        let heads = of(shape.heads) * of(shape.head_size);
        let kv = of(shape.kv_heads.max(self.layout.tensor)) * of(shape.head_size);
        let mut products = Vec::with_capacity(8);
        if let Some(latent) = shape.latent {
            let (queries, narrow) = (of(latent.query_rank), of(latent.kv_rank));
            let (rope, value) = (of(latent.rope_size), of(latent.value_size));
            let own = of(shape.heads) / t;
            products.push([tokens, queries, h, 1.0]);
            products.push([tokens, own * (of(shape.head_size) + rope), queries, 1.0]);
            products.push([tokens, narrow + rope, h, 1.0]);
            products.push([tokens, own * (of(shape.head_size) + value), narrow, 1.0]);
            products.push([tokens, h, own * value, 1.0]);
        } else {
            products.push([tokens, (heads + 2.0 * kv) / t, h, 1.0]);
            products.push([tokens, h, heads / t, 1.0]);
        }
        let wide = of(shape.mlp.matrices() - 1);
        if let Some(experts) = shape.experts.filter(|_| expert) {
            let here = of(experts.count) / of(self.layout.expert);
            let visits =
                tokens * of(experts.per_token) * of(self.layout.expert) / of(experts.count);
            // Tensor ranks have different tokens of an expert, or different columns at the same
            // cost.
            let rows = (visits / t).max(1.0);
            // The busiest rank sets the pace; 1.25 is the usual capacity factor (GShard).
            let rows = if self.software.balanced_experts {
                rows
            } else {
                rows * 1.25
            };
            products.push([rows, wide * of(experts.ffn), h, here]);
            products.push([rows, h, of(experts.ffn), here]);
            if experts.shared_ffn > 0 {
                products.push([tokens, wide * of(experts.shared_ffn) / t, h, 1.0]);
                products.push([tokens, h, of(experts.shared_ffn) / t, 1.0]);
            }
        } else {
            products.push([tokens, wide * of(shape.ffn) / t, h, 1.0]);
            products.push([tokens, h, of(shape.ffn) / t, 1.0]);
        }
        products
    }

    fn forward_product(&self, [m, n, k, count]: &[f64; 4]) -> f64 {
        count * self.machine.product(*m, *n, *k)
    }

    /// The gradient of the input and that of the weights, which frozen weights have none of.
    fn backward_product(&self, [m, n, k, count]: &[f64; 4]) -> f64 {
        let of_weights = if self.tuning.lora.is_some() {
            0.0
        } else {
            self.machine.product(*n, *k, *m)
        };
        count * (self.machine.product(*m, *k, *n) + of_weights)
    }

    /// Seconds of adapters in a forward pass: each reads the input of its matrix and adds to its output. Weights of
    /// 4 bits are widened before each use.
    fn adapter_time(&self) -> f64 {
        let Some(lora) = self.tuning.lora else {
            return 0.0;
        };
        let beside = self.machine.traffic(
            4.0 * self.tokens() * adapted_width(self.shape) / self.tensor(),
            14.0,
        );
        let widened = if lora.four_bits {
            let weights = self.shape.dense_parameters() / of(self.shape.layers) / self.tensor();
            self.machine.traffic(2.6 * weights, 7.0)
        } else {
            0.0
        };
        beside + widened
    }

    /// Seconds of attention's products, forward and backward, then of its scores where they go
    /// through memory.
    fn attention(&self) -> (f64, f64, f64, f64) {
        let shape = self.shape;
        let s = of(self.sequence);
        let heads = of(shape.heads) / self.tensor();
        let (query_size, value_size) = match shape.latent {
            Some(latent) => (
                of(shape.head_size) + of(latent.rope_size),
                of(latent.value_size),
            ),
            None => (of(shape.head_size), of(shape.head_size)),
        };
        let rows = self.tokens();
        if self.software.attention == AttentionKernel::Unfused {
            let batch = of(self.layout.micro_batch) * heads;
            let product = self.machine.product16(s * batch, s, query_size);
            let reduce = self.machine.product16(s * batch, query_size, s);
            let elements = batch * s * s;
            let dropout = if self.software.dropout { 5.0 } else { 0.0 };
            // Softmax reads and writes; dropout reads, writes and keeps a mask. Their gradients read
            // what was kept as well.
            let forward = self.machine.traffic(elements * (4.0 + dropout), 2.0);
            let backward = self.machine.traffic(elements * (6.0 + dropout), 2.0);
            return (
                product + reduce,
                2.0 * (product + reduce),
                forward,
                backward,
            );
        }
        // Two products forward, five backward, half of each without the masked part.
        let seen = if shape.encoder { 1.0 } else { 0.5 };
        let operations = 2.0 * rows * s * heads * (query_size + value_size) * seen;
        let (forward, backward) = self.flash_shares();
        // Short sequences do not fill the kernel's pipeline.
        let filled = s / (s + 512.0);
        (
            operations / (self.machine.peak16 * forward * filled) + KERNEL_GAP,
            2.5 * operations / (self.machine.peak16 * backward * filled) + 2.0 * KERNEL_GAP,
            0.0,
            0.0,
        )
    }

    /// Shares of the 16-bit peak that fused kernels reach forward and backward with a mask, from the
    /// figures of the `FlashAttention` papers: the first 25 to 40 % of an A100; the second 50 to 73 %
    /// of an A100 but 35 % of an H100, the third 75 % of an H100 forward. Backward is lower in all.
    fn flash_shares(&self) -> (f64, f64) {
        let hopper = self.machine.peak16 > 5e14;
        let by_head = |narrow: [f64; 2], wide: [f64; 2]| {
            let at = ((of(self.shape.head_size) - 64.0) / 64.0).clamp(0.0, 1.0);
            let between = |pass: usize| narrow[pass] + at * (wide[pass] - narrow[pass]);
            (between(0), between(1))
        };
        if let Some(rates) = self.machine.rates {
            return by_head(rates.attention64, rates.attention128);
        }
        match (self.software.attention, hopper) {
            (AttentionKernel::Flash1, false) => (0.40, 0.30),
            (AttentionKernel::Flash1, true) => (0.25, 0.20),
            // Before Hopper SDPA is `FlashAttention` 2.
            (AttentionKernel::Flash2 | AttentionKernel::Sdpa, false) => (0.62, 0.52),
            (AttentionKernel::Flash2, true) => (0.38, 0.33),
            // Measured on one H200 with PyTorch 2.11 (docs/benchmarks.md).
            (AttentionKernel::Sdpa, true) => by_head([0.47, 0.37], [0.58, 0.50]),
            _ => (0.60, 0.48),
        }
    }

    /// Seconds of norms, activations, residuals and the like, forward and backward.
    fn memory_bound(&self, expert: bool) -> (f64, f64) {
        let (tokens, t) = (self.tokens(), self.tensor());
        let shape = self.shape;
        let h = of(shape.hidden);
        let heads = of(shape.heads) * of(shape.head_size);
        let kv = of(shape.kv_heads) * of(shape.head_size);
        let spread = if self.layout.sequence_parallel {
            t
        } else {
            1.0
        };
        let mask = if self.software.dropout { 1.0 } else { 0.0 };
        // Two norms (read, write), two residuals (two reads, write, mask).
        let stream_forward = 2.0 * 4.0 + 2.0 * (6.0 + mask);
        // A norm reads twice (for its own gradient too) and writes; so do the residuals' sums.
        let stream_backward = 2.0 * 10.0 + 2.0 * (6.0 + mask);
        let (act_forward, act_backward) = match shape.mlp {
            Mlp::Plain => (4.0, 6.0),
            Mlp::Gated => (6.0, 10.0),
        };
        let width = match shape.experts.filter(|_| expert) {
            Some(experts) => of(experts.per_token) * of(experts.ffn) + of(experts.shared_ffn),
            None => of(shape.ffn),
        };
        // Positions, and heads put beside each other.
        let arrange = 4.0 * (heads + kv);
        // A residual stream of 32 bits is read and written beside operands of 16.
        let wide = match self.software.plain {
            Some(Plain::Autocast) => 1.5,
            _ => 1.0,
        };
        let (stream_forward, stream_backward) = (wide * stream_forward, wide * stream_backward);
        let eager = match self.software.kernels {
            Kernels::Eager => 2.0,
            Kernels::Fused => 1.0,
        };
        // Casts to narrow formats read 16 bits and write the narrow one, twice where the transpose
        // is needed too.
        let casts = if self.machine.bytes < 2.0 {
            let inputs = 2.0 * h + heads + width;
            (3.0 * inputs / t, 4.0 * (3.0 * h + heads + width) / t)
        } else {
            (0.0, 0.0)
        };
        // Tokens are put in order of their experts and back.
        let permute = match shape.experts.filter(|_| expert) {
            Some(experts) => 4.0 * 2.0 * of(experts.per_token) * h / t,
            None => 0.0,
        };
        let forward = eager * (stream_forward * h / spread + (act_forward * width + arrange) / t)
            + casts.0
            + permute;
        let backward = eager
            * (stream_backward * h / spread + (act_backward * width + arrange) / t)
            + casts.1
            + permute;
        (
            self.machine.traffic(tokens * forward, 12.0),
            self.machine.traffic(tokens * backward, 20.0),
        )
    }

    /// Two all-reduces each way, or as many gathers and scatters of the same bytes.
    fn tensor_traffic(&self, forward: &mut Parts, backward: &mut Parts) {
        let group = Group {
            size: self.layout.tensor,
            stride: 1,
        };
        let bytes = 2.0 * self.tokens() * of(self.shape.hidden);
        let each = self.machine.collective(Collective::AllReduce, group, bytes);
        if each <= 0.0 {
            return;
        }
        let both = 2.0 * each;
        match self.software.tensor {
            Overlap::Waited => {
                forward.tensor += both;
                // What sequence parallelism keeps in parts is gathered once more.
                let again = if self.layout.sequence_parallel {
                    each
                } else {
                    0.0
                };
                backward.tensor += both + again;
            }
            // Cut into one piece for each rank: the first piece is waited for, and what is longer
            // than the product beside it.
            Overlap::Beside => {
                for parts in [forward, backward] {
                    let rest = both * (1.0 - 1.0 / self.tensor());
                    let hidden = rest.min(parts.matrices);
                    self.hide(parts, both, hidden);
                }
            }
        }
    }

    /// Of `all` the tensor traffic, `hidden` runs beside products and slows them.
    fn hide(&self, parts: &mut Parts, all: f64, hidden: f64) {
        parts.tensor += all - hidden;
        parts.hidden += hidden;
        parts.matrices += hidden * self.contention();
    }

    /// How much longer a product takes beside a collective.
    pub(super) fn contention(&self) -> f64 {
        if self.software.reserved_units > 0.0 {
            0.0
        } else {
            CHANNELS / self.machine.units
        }
    }

    /// Keys and values go around a ring beside the attention of the part before.
    fn context_traffic(&self, forward: &mut Parts, backward: &mut Parts) {
        let ranks = self.layout.context;
        if ranks <= 1 {
            return;
        }
        let kv = of(self.shape.kv_heads.max(self.layout.tensor)) * of(self.shape.head_size)
            / self.tensor();
        let bytes = 2.0 * 2.0 * self.tokens() * kv;
        let step = self.machine.send(self.layout.tensor, bytes);
        let all = (of(ranks) - 1.0) * step;
        for (parts, times) in [(forward, 1.0), (backward, 2.0)] {
            let traffic = all * times;
            let beside = parts.attention * (of(ranks) - 1.0) / of(ranks);
            let waited = (traffic - beside).max(0.0);
            parts.context += waited;
            parts.hidden += traffic - waited;
        }
    }

    /// Tokens go to their experts and back, each way.
    fn expert_traffic(&self, forward: &mut Parts, backward: &mut Parts) {
        let Some(experts) = self.shape.experts else {
            return;
        };
        let group = Group {
            size: self.layout.expert,
            stride: self.layout.tensor,
        };
        let bytes =
            self.software.expert_bytes * self.tokens() * of(self.shape.hidden) / self.tensor();
        let per_token = of(experts.per_token);
        let once = match self.software.expert_nodes {
            None => {
                let bytes = bytes * per_token;
                self.machine.collective(Collective::AllToAll, group, bytes)
            }
            Some(most) => {
                let copies = |nodes: f64| copies(per_token, nodes).min(of(most));
                self.machine
                    .dispatch(group, bytes * per_token, &|nodes| bytes * copies(nodes))
            }
        };
        for parts in [forward, backward] {
            let traffic = 2.0 * once;
            // The next micro-batch's attention and experts run beside, where the schedule has them.
            let beside = match self.software.expert {
                Overlap::Beside => parts.compute(),
                Overlap::Waited => 0.0,
            };
            let waited = (traffic - beside).max(0.0);
            parts.expert += waited;
            parts.hidden += traffic - waited;
            parts.matrices += (traffic - waited) * self.contention();
        }
    }
}

/// Nodes out of `nodes` that a token is expected to be sent to, whose `per_token` experts are drawn evenly.
fn copies(per_token: f64, nodes: f64) -> f64 {
    nodes * (1.0 - (1.0 - 1.0 / nodes.max(1.0)).powf(per_token))
}
