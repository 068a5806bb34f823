//! From what the GPUs of each pod reached together to the check `gpu-collective`.
//!
//! Invariant: wrong sums fail whatever others have. Whatever else goes wrong fails only where a machine with the same
//! GPUs does better: else it may be the program, the image or the driver of all.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::nccl::Reduced;
use crate::probe::{Check, Reading, catalogue::GPU_COLLECTIVE, compare, search::SLOW_BELOW};

/// The result of the all-reduce of one machine's GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Collective {
    /// It ended, with this.
    Ended(Reduced),
    /// It did not, and why.
    Troubled(String),
    /// There was none, and why.
    NotRun(String),
}

impl Collective {
    fn rate(&self) -> Option<f64> {
        match self {
            Self::Ended(reduced) if reduced.wrong == 0 => Some(reduced.bus_gigabytes),
            _ => None,
        }
    }
}

/// The check of each machine, by its name.
pub fn collectives(
    found: &BTreeMap<String, Collective>,
    readings: &BTreeMap<String, Reading>,
) -> BTreeMap<String, Check> {
    let kind = |name: &String| readings.get(name).and_then(compare::gpus);
    let one = |(name, own): (&String, &Collective)| {
        let own_kind = kind(name);
        let others = found
            .iter()
            .filter(|(other, _)| *other != name && kind(other) == own_kind);
        let mut rates: Vec<f64> = others.filter_map(|(_, other)| other.rate()).collect();
        rates.sort_by(f64::total_cmp);
        let median = rates.get(rates.len() / 2).copied();
        (name.clone(), check(own, median))
    };
    found.iter().map(one).collect()
}

/// Held against the median of others with the same GPUs, where there are any.
fn check(own: &Collective, others: Option<f64>) -> Check {
    // One GPU has no link, and is reported as 0.
    let rate = others.filter(|median| *median > 0.0);
    let needed = rate.map_or_else(
        || "finishes with correct sums".to_owned(),
        |median| {
            let least = gigabytes(SLOW_BELOW * median);
            format!(
                "{SLOW_BELOW} of the others' median: at least {least} of {}",
                gigabytes(median)
            )
        },
    );
    let reduced = match own {
        Collective::NotRun(why) => return GPU_COLLECTIVE.skip("not measured", why),
        Collective::Troubled(why) => {
            let cause = "GPUs that the pod cannot open or that do not reach each other: the fabric manager of NVSwitch, \
                         NVLink, a driver that the image does not fit, or shared memory that is too small";
            let next = "run `all_reduce_perf` in a pod on the node with `NCCL_DEBUG=INFO`, and look for Xid errors";
            return GPU_COLLECTIVE.fail_if(others.is_some(), why, needed, cause, next);
        }
        Collective::Ended(reduced) => reduced,
    };
    if reduced.wrong > 0 {
        return GPU_COLLECTIVE.fail(
            format!("{} wrong values", reduced.wrong),
            "every sum as computed",
            "a GPU computes wrong results, or it or a link between GPUs corrupts data",
            "drain the node and run `dcgmi diag -r 3` on it to find which GPU",
        );
    }
    if reduced.bus_gigabytes <= 0.0 && rate.is_none() {
        return GPU_COLLECTIVE.pass("finished, every sum correct", needed);
    }
    let found = format!("{} on each link", gigabytes(reduced.bus_gigabytes));
    if rate.is_some_and(|median| reduced.bus_gigabytes < SLOW_BELOW * median) {
        return GPU_COLLECTIVE.fail(
            found,
            needed,
            "NVLink that is down or not used, a GPU that runs slower, or a PCI link below its width",
            "compare `nvidia-smi nvlink --status` and `nvidia-smi topo -m` with those of another node",
        );
    }
    GPU_COLLECTIVE.pass(found, needed)
}

fn gigabytes(rate: f64) -> String {
    format!("{rate:.1} GB/s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Outcome, examine::testing};

    fn ended(bus_gigabytes: f64, wrong: u64) -> Collective {
        Collective::Ended(Reduced {
            bus_gigabytes,
            wrong,
        })
    }

    fn hung() -> Collective {
        Collective::Troubled("`all_reduce_perf` did not end within 40 s".to_owned())
    }

    fn none() -> Collective {
        Collective::NotRun("ranks do not use GPUs".to_owned())
    }

    #[test]
    fn machines_are_held_to_others_with_the_same_gpus() {
        use Outcome::{Fail, NotApplicable, Pass, Warn};
        let cases: [(&str, Vec<Collective>, &[Outcome]); 10] = [
            (
                "all well",
                vec![ended(480.0, 0), ended(470.0, 0)],
                &[Pass, Pass],
            ),
            (
                "one is slow",
                vec![ended(480.0, 0), ended(40.0, 0), ended(470.0, 0)],
                &[Pass, Fail, Pass],
            ),
            (
                "one is slow of two",
                vec![ended(480.0, 0), ended(40.0, 0)],
                &[Pass, Fail],
            ),
            (
                "wrong sums, and fast",
                vec![ended(480.0, 3), ended(470.0, 0)],
                &[Fail, Pass],
            ),
            ("wrong sums, alone", vec![ended(480.0, 1)], &[Fail]),
            ("one hangs", vec![hung(), ended(470.0, 0)], &[Fail, Pass]),
            ("all hang", vec![hung(), hung()], &[Warn, Warn]),
            (
                "one GPU each",
                vec![ended(0.0, 0), ended(0.0, 0)],
                &[Pass, Pass],
            ),
            (
                "several that carry nothing",
                vec![ended(0.0, 0), ended(480.0, 0)],
                &[Fail, Pass],
            ),
            (
                "none to run",
                vec![none(), ended(480.0, 0)],
                &[NotApplicable, Pass],
            ),
        ];
        for (name, found, want) in cases {
            let names = ["a", "b", "c"].map(str::to_owned);
            let found: BTreeMap<String, Collective> = names.iter().cloned().zip(found).collect();
            let readings = names.map(|name| (name, testing::reading()));
            let checks = collectives(&found, &readings.into());
            let outcomes: Vec<Outcome> = checks.values().map(|check| check.outcome).collect();
            assert_eq!(outcomes, want, "{name}: {checks:?}");
        }
    }

    #[test]
    fn one_gpu_is_not_held_to_a_rate() {
        let found = [("a", hung()), ("b", ended(0.0, 0))].map(|(name, own)| (name.to_owned(), own));
        let readings = ["a", "b"].map(|name| (name.to_owned(), testing::reading()));
        let checks = collectives(&found.into(), &readings.into());
        assert_eq!(checks["a"].outcome, Outcome::Fail);
        assert_eq!(checks["a"].needed, "finishes with correct sums");
    }

    #[test]
    fn machines_with_other_gpus_are_not_compared() {
        let found =
            [("a", 480.0), ("b", 40.0)].map(|(name, rate)| (name.to_owned(), ended(rate, 0)));
        let mut other = testing::reading();
        testing::value(&mut other.gpus).truncate(4);
        let readings = [
            ("a".to_owned(), testing::reading()),
            ("b".to_owned(), other),
        ];
        let checks = collectives(&found.into(), &readings.into());
        assert_eq!(checks["b"].outcome, Outcome::Pass);
        assert_eq!(checks["b"].needed, "finishes with correct sums");
        assert_eq!(checks["b"].found, "40.0 GB/s on each link");
    }
}
