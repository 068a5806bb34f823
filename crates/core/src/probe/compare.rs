//! Differences between machines that should be equal.
//!
//! Invariant: a machine is blamed only where more than half of all are otherwise. Where no value has
//! such a majority, every machine gets a warning with the difference.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::{
    Check, Needs, Outcome, Probed, Reading, amounts,
    catalogue::{
        CLOCK_SKEW, Entry, SAME_CUDA, SAME_DRIVER, SAME_GPUS, SAME_KERNEL, SAME_MTU, SAME_NCCL,
    },
};

/// Microseconds from the median at which logs of machines can no longer be put in order.
const SKEW_NOTABLE: u64 = 500_000;
/// Microseconds from the median at which certificates, leases and tokens begin to fail.
const SKEW_HARMFUL: u64 = 30_000_000;

/// The checks that take the readings of several machines, by the name of the machine.
pub(super) fn compare(
    readings: &BTreeMap<String, Reading>,
    needs: &Needs,
) -> BTreeMap<String, Vec<Check>> {
    let mut checks: BTreeMap<String, Vec<Check>> = readings
        .keys()
        .map(|name| (name.clone(), Vec::new()))
        .collect();
    if readings.len() < 2 {
        return checks;
    }
    let version = |of: fn(&super::Versions) -> &Probed<String>| {
        move |reading: &Reading| of(reading.versions.value()?).value().cloned()
    };
    let reinstall = "bring the node to the version of the others, or separate both by a node label";
    let compare_by = |entry: &Entry,
                      odd: Outcome,
                      cause: &str,
                      next: &str,
                      of: &dyn Fn(&Reading) -> Option<String>| {
        let values = readings
            .iter()
            .filter_map(|(name, reading)| Some((name.as_str(), of(reading)?)));
        differences(entry, odd, cause, next, &values.collect())
    };
    let mixed = "the node was upgraded separately from the others, or was left out";
    let all = [
        compare_by(
            &SAME_KERNEL,
            Outcome::Warn,
            mixed,
            reinstall,
            &version(|all| &all.kernel),
        ),
        compare_by(
            &SAME_DRIVER,
            Outcome::Warn,
            mixed,
            reinstall,
            &version(|all| &all.driver),
        ),
        compare_by(
            &SAME_CUDA,
            Outcome::Warn,
            mixed,
            reinstall,
            &version(|all| &all.cuda),
        ),
        compare_by(
            &SAME_NCCL,
            Outcome::Warn,
            "ranks with different versions of NCCL refuse each other or hang",
            "use one image for all ranks, and no NCCL of the node",
            &version(|all| &all.nccl),
        ),
        clocks(readings),
        compare_by(
            &SAME_GPUS,
            Outcome::Fail,
            "the node has other GPUs than the rest; the slowest or smallest sets the pace of all",
            "choose nodes of one model by the label `nvidia.com/gpu.product`",
            &gpus,
        ),
        compare_by(
            &SAME_MTU,
            Outcome::Fail,
            "large packets of the others are dropped on the way to this node, and transfers hang",
            "set the same value on every node and switch port of the fabric",
            &|reading| {
                let interface = needs.interface.as_ref()?;
                let mtu = reading.interfaces.value()?.get(interface)?.mtu.value()?;
                Some(mtu.to_string())
            },
        ),
    ];
    for (name, check) in all.into_iter().flatten() {
        checks.entry(name).or_default().push(check);
    }
    checks
}

/// Number and models of the GPUs, such as `8 × NVIDIA H100 80GB HBM3`.
pub(super) fn gpus(reading: &Reading) -> Option<String> {
    let gpus = reading.gpus.value().filter(|gpus| !gpus.is_empty())?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for gpu in gpus {
        let model = gpu.model.value().map_or("unknown", String::as_str);
        *counts.entry(model).or_default() += 1;
    }
    let models: Vec<String> = counts
        .into_iter()
        .map(|(model, count)| format!("{count} × {model}"))
        .collect();
    Some(models.join(", "))
}

/// A check for every machine that has a value: the usual one, the odd one, or no usual one at all.
fn differences(
    entry: &Entry,
    odd: Outcome,
    cause: &str,
    next: &str,
    values: &BTreeMap<&str, String>,
) -> Vec<(String, Check)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for value in values.values() {
        *counts.entry(value).or_default() += 1;
    }
    if values.len() < 2 {
        return Vec::new();
    }
    let usual = counts.iter().find(|(_, count)| **count * 2 > values.len());
    let other_values = |without: &str| {
        let others = counts.iter().filter(|(value, _)| **value != without);
        let others: Vec<String> = others
            .map(|(value, count)| format!("{value} on {count} of {}", values.len()))
            .collect();
        others.join(", ")
    };
    let each = values.iter().map(|(name, value)| {
        let check = match usual {
            Some((usual, count)) if usual == value => {
                entry.pass(value, format!("as {count} of {}", values.len()))
            }
            Some(_) => {
                let check = entry.warn(value, other_values(value), cause, next);
                Check {
                    outcome: odd,
                    ..check
                }
            }
            None => entry.warn(
                value,
                format!("one for all, but {}", other_values(value)),
                cause,
                next,
            ),
        };
        ((*name).to_owned(), check)
    });
    each.collect()
}

fn clocks(readings: &BTreeMap<String, Reading>) -> Vec<(String, Check)> {
    let known = readings
        .iter()
        .filter_map(|(name, reading)| Some((name, reading.clock_ahead_micros?)));
    let known: Vec<(&String, i64)> = known.collect();
    if known.len() < 2 {
        return Vec::new();
    }
    let mut sorted: Vec<i64> = known.iter().map(|(_, ahead)| *ahead).collect();
    sorted.sort_unstable();
    let median = sorted[(sorted.len() - 1) / 2];
    let needed = format!("at most {} from the median", amounts::micros(SKEW_NOTABLE));
    let each = known.into_iter().map(|(name, ahead)| {
        let off = ahead.abs_diff(median);
        let way = if ahead < median { "behind" } else { "ahead" };
        let found = format!("{} {way}", amounts::micros(off));
        let cause = "the clock is not synchronized by NTP or PTP, or uses another time server";
        let next = "run `chronyc tracking` or `timedatectl` on the node";
        let check = if off <= SKEW_NOTABLE {
            CLOCK_SKEW.pass(found, &*needed)
        } else if off <= SKEW_HARMFUL {
            CLOCK_SKEW.warn(found, &*needed, cause, next)
        } else {
            CLOCK_SKEW.fail(found, &*needed, cause, next)
        };
        (name.clone(), check)
    });
    each.collect()
}
