//! What costs most and what to do about it.
//!
//! Each finding is one sentence with its numbers, and one thing to try. Nothing below [`LEAST`] of a step is reported.

use serde::Serialize;

use super::{
    across::{Across, Difference, SlowRank},
    rank::RankValues,
    text::{percent, time},
};
use crate::number::share;

/// The part of a step below which a loss is not reported.
const LEAST: f64 = 0.03;
/// Findings of a report.
const MOST: usize = 5;

/// What kind of loss it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// Collectives run while nothing computes.
    ExposedCommunication,
    /// All ranks wait for one.
    SlowRank,
    /// The host launches kernels more slowly than the GPU runs them.
    LaunchBound,
    /// Training waits for its data loader.
    InputStall,
    /// The host waits for the GPU, which then waits for the host.
    HostSync,
    /// Copies from memory that is not pinned.
    CopyPageable,
    /// The gaps between many short kernels.
    SmallKernels,
    /// Nothing runs, and the trace does not say why.
    IdleUnknown,
    /// Nothing costs much.
    Healthy,
}

impl Label {
    /// As JSON and text have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::ExposedCommunication => "exposed_communication",
            Self::SlowRank => "slow_rank",
            Self::LaunchBound => "launch_bound",
            Self::InputStall => "input_stall",
            Self::HostSync => "host_sync",
            Self::CopyPageable => "copy_pageable",
            Self::SmallKernels => "small_kernels",
            Self::IdleUnknown => "idle_unknown",
            Self::Healthy => "healthy",
        }
    }
}

/// One loss.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What kind of loss it is.
    pub label: Label,
    /// The rank in which it is largest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// What each step loses; of the whole trace where it marks no steps.
    pub lost_ns: u64,
    /// The part of the time that this is.
    pub share: f64,
    /// What was found, with its numbers.
    pub sentence: String,
    /// What to do next.
    pub action: String,
}

/// The losses of all ranks, the largest first.
pub(crate) fn of(ranks: &[RankValues], across: Option<&Across>) -> Vec<Finding> {
    let slow = across.and_then(|across| across.slow_rank.as_ref());
    let mut findings: Vec<Finding> = slow.map(slow_rank).into_iter().collect();
    findings.extend(exposed(ranks, slow));
    findings.extend(largest(ranks, |it| it.idle_causes.input_ns).and_then(input));
    findings.extend(largest(ranks, |it| it.idle_causes.synchronization_ns).and_then(host_sync));
    findings.extend(largest(ranks, |it| it.idle_causes.between_kernels_ns).and_then(small_kernels));
    findings.extend(largest(ranks, pageable).and_then(copy_pageable));
    findings.extend(host(ranks, slow));
    findings.sort_by(|one, two| {
        two.share
            .total_cmp(&one.share)
            .then(one.label.cmp(&two.label))
    });
    findings.truncate(MOST);
    if findings.is_empty() {
        findings.extend(healthy(ranks));
    }
    findings
}

/// The rank in which `of` is the largest part of the time, and that value.
fn largest(ranks: &[RankValues], of: impl Fn(&RankValues) -> u64) -> Option<(&RankValues, u64)> {
    let parts = ranks.iter().map(|it| (it, of(it)));
    parts.max_by(|one, two| {
        let part = |it: &(&RankValues, u64)| share(it.1, it.0.window_ns);
        // The lowest rank of equal ones.
        part(one)
            .total_cmp(&part(two))
            .then(two.0.rank.cmp(&one.0.rank))
    })
}

/// A finding about `part` of the time of a rank, where it is large enough.
fn finding(
    label: Label,
    values: &RankValues,
    part: u64,
    what: impl FnOnce(&str) -> String,
    action: &str,
) -> Option<Finding> {
    let share = share(part, values.window_ns);
    if share < LEAST {
        return None;
    }
    let lost_ns = part / values.steps.max(1);
    let of = if let Some(step) = values.window_ns.checked_div(values.steps) {
        format!(
            "{} of each {} step ({})",
            time(lost_ns),
            time(step),
            percent(share)
        )
    } else {
        let all = time(values.window_ns);
        format!(
            "{} of the {all} that were traced ({})",
            time(lost_ns),
            percent(share)
        )
    };
    Some(Finding {
        label,
        rank: Some(values.rank),
        lost_ns,
        share,
        sentence: what(&of),
        action: action.to_owned(),
    })
}

fn slow_rank(slow: &SlowRank) -> Finding {
    let rank = slow.rank;
    let found = format!(
        "rank {rank} is last into the collectives of {} of {} steps; the others wait {} of each {} step for it",
        percent(slow.last_share),
        slow.steps,
        time(slow.lost_ns),
        time(slow.step_ns)
    );
    let (why, action) = match &slow.difference {
        Difference::Input { longer_ns } => (
            format!("; its data loader takes {} longer", time(*longer_ns)),
            format!("raise `num_workers` of the data loader of rank {rank}, or check the disk of its node"),
        ),
        Difference::Host { longer_ns } => (
            format!("; it spends {} more outside of kernels and operators", time(*longer_ns)),
            format!("see what its Python code does there: `trainyard stacks JOB --rank {rank}`; check the load of its CPU"),
        ),
        Difference::MoreWork {
            longer_ns,
            kernels,
            others,
        } => (
            format!("; it computes {} longer, with {kernels} kernels instead of {others}", time(*longer_ns)),
            "balance the work: the stages, the experts or the lengths of sequences differ between ranks".to_owned(),
        ),
        Difference::SlowerCompute { longer_ns } => (
            format!("; it computes the same for {} longer", time(*longer_ns)),
            format!("check clocks, power and temperature of the GPU of rank {rank}: `nvidia-smi -q -d PERFORMANCE,CLOCK`"),
        ),
        Difference::Unknown => (
            "; none of its values differs by that much".to_owned(),
            format!("compare the lanes of rank {rank} with those of another rank: `--merged OUT.json.gz`"),
        ),
    };
    Finding {
        label: Label::SlowRank,
        rank: Some(rank),
        lost_ns: slow.lost_ns,
        share: share(slow.lost_ns, slow.step_ns),
        sentence: found + &why,
        action,
    }
}

fn exposed(ranks: &[RankValues], slow: Option<&SlowRank>) -> Option<Finding> {
    // Where all wait for one rank, only what that rank itself has is communication and no waiting.
    let of_slow = slow.and_then(|slow| ranks.iter().find(|it| it.rank == slow.rank));
    let (values, part) = match of_slow {
        Some(values) => (values, values.exposed_communication_ns),
        None => largest(ranks, |it| it.exposed_communication_ns)?,
    };
    let what = |of: &str| {
        let overlap = values.overlap.unwrap_or(0.0);
        format!(
            "rank {}: collectives take {of} while nothing computes; {} of communication is overlapped",
            values.rank,
            percent(overlap)
        )
    };
    let action = "overlap it: larger buckets in DDP (`bucket_cap_mb`), prefetch in FSDP, fewer synchronisations with gradient \
                  accumulation; check the path between nodes with `trainyard preflight`";
    finding(Label::ExposedCommunication, values, part, what, action)
}

fn input((values, part): (&RankValues, u64)) -> Option<Finding> {
    let what = |of: &str| {
        format!(
            "rank {}: training waits {of} for its data loader",
            values.rank
        )
    };
    let action = "raise `num_workers` and `prefetch_factor` of the data loader and set `persistent_workers=True`; see \
                  whether its disk or its CPU is busy";
    finding(Label::InputStall, values, part, what, action)
}

fn host_sync((values, part): (&RankValues, u64)) -> Option<Finding> {
    let what = |of: &str| {
        format!(
            "rank {}: the GPU idles {of} after the host had waited for it",
            values.rank
        )
    };
    let action = "remove `.item()`, `.cpu()`, `print` of tensors and `torch.cuda.synchronize()` from the training loop, or do \
                  them every 100 steps";
    finding(Label::HostSync, values, part, what, action)
}

fn small_kernels((values, part): (&RankValues, u64)) -> Option<Finding> {
    let what = |of: &str| {
        format!(
            "rank {}: gaps between kernels take {of}; the median kernel takes {}",
            values.rank,
            time(values.median_kernel_ns)
        )
    };
    let action = "fuse kernels with `torch.compile`, use fused optimizers (`fused=True`), or enlarge the batch";
    finding(Label::SmallKernels, values, part, what, action)
}

fn pageable(values: &RankValues) -> u64 {
    let copies = values.copies.iter();
    let pageable = copies.filter(|it| it.name.contains("Pageable"));
    // Each may be as long as a number can be: a trace says what it likes.
    let sum = pageable.fold(0_u64, |sum, it| sum.saturating_add(it.total_ns));
    // What computes meanwhile is no loss.
    sum.min(values.memory_ns)
}

fn copy_pageable((values, part): (&RankValues, u64)) -> Option<Finding> {
    let what = |of: &str| {
        format!(
            "rank {}: copies from or to memory that is not pinned take {of}",
            values.rank
        )
    };
    let action = "set `pin_memory=True` in the data loader and copy with `non_blocking=True`";
    finding(Label::CopyPageable, values, part, what, action)
}

/// Late launches, and idle time that has no name.
fn host(ranks: &[RankValues], slow: Option<&SlowRank>) -> Option<Finding> {
    if let Some((values, part)) = largest(ranks, |it| {
        if it.launch_bound {
            it.idle_causes.host_ns
        } else {
            0
        }
    }) && part > 0
    {
        let what = |of: &str| {
            format!(
                "rank {}: the GPU waits {of} for launches; the median kernel takes {}",
                values.rank,
                time(values.median_kernel_ns)
            )
        };
        let action = "launch less: `torch.compile(mode=\"reduce-overhead\")` (CUDA graphs), fused optimizers, a larger batch";
        return finding(Label::LaunchBound, values, part, what, action);
    }
    let named = slow.map(|slow| slow.rank);
    let rest = |it: &RankValues| {
        let causes = it.idle_causes;
        // What makes a rank slow is reported with it.
        if named == Some(it.rank) {
            0
        } else {
            causes.host_ns + causes.dependency_ns + causes.unknown_ns
        }
    };
    let (values, part) = largest(ranks, rest)?;
    let what = |of: &str| {
        if values.has_gpu {
            let causes = values.idle_causes;
            format!(
                "rank {}: the GPU idles {of} outside of loading and synchronisation; {} of it the host launched late, and {} \
                 was launched in time and waited for another stream",
                values.rank,
                percent(share(causes.host_ns, part)),
                percent(share(causes.dependency_ns, part))
            )
        } else {
            format!(
                "rank {}: {of} passes outside of operators, collectives and the data loader",
                values.rank
            )
        }
    };
    let action = "see what the program does there: `trainyard stacks JOB` while it runs, or the merged trace (`--merged`); Python \
                  code, logging, garbage collection and sleeping have no operators";
    finding(Label::IdleUnknown, values, part, what, action)
}

fn healthy(ranks: &[RankValues]) -> Option<Finding> {
    let (values, part) = largest(ranks, |it| it.compute_ns)?;
    let of = percent(share(part, values.window_ns));
    Some(Finding {
        label: Label::Healthy,
        rank: None,
        lost_ns: 0,
        share: 0.0,
        sentence: format!(
            "{of} of the time computes (rank {}); nothing else takes {} or more",
            values.rank,
            percent(LEAST)
        ),
        action: "to be faster, look at the kernels that take most time".to_owned(),
    })
}
