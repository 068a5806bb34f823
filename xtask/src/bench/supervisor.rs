//! `cargo xtask bench supervisor`: what a supervisor costs the program that it runs.
//!
//! The figures come from the program `supervisor-bench` of `tools/programs`. It runs the same printer bare and supervised, in turns, so that a
//! busy machine slows both. The slowdown is judged by the processor time of the printer: its wall time also has what others on the machine
//! take, and is printed beside it.

use std::process::Command;

use super::{Figure, judge};
use crate::{Failure, report, step};

/// Part of a core while a program trains and prints a few lines a second.
const CORE: f64 = 0.002;
/// Resident memory at its highest, in MiB.
const MEBIBYTES: f64 = 16.0;
/// The program's processor time at 15,000 lines a second, of what it takes bare.
const SLOWER: f64 = 1.01;

/// Measures and judges.
pub(crate) fn supervisor() -> Result<(), Failure> {
    let (binary, bench) = step::released_with_tool("supervisor-bench")?;
    report::progress("a printer, bare and supervised, in turns");
    let text = step::capture(Command::new(bench).arg(binary))?;
    let figures = figures(&text).ok_or_else(|| {
        Failure::CouldNotRun(format!(
            "the program `supervisor-bench` did not print every figure: {text}"
        ))
    })?;
    println!();
    judge(&figures)
}

fn figures(text: &str) -> Option<Vec<Figure>> {
    let line = |name: &str| -> Option<Vec<f64>> {
        let fields = text.lines().find_map(|line| line.strip_prefix(name))?;
        let fields = fields.split('\t').skip(1);
        fields.map(|field| field.parse().ok()).collect()
    };
    let [core, bytes] = line("quiet")?.try_into().ok()?;
    let [rate, busy_core, busy_bytes, wall, processor] = line("busy")?.try_into().ok()?;
    let mebibytes = bytes.max(busy_bytes) / f64::from(1 << 20);
    Some(vec![
        Figure {
            name: "supervisor, a few lines a second".to_owned(),
            measured: format!("{:.2} % of a core", core * 100.0),
            bound: format!("at most {:.1} %", CORE * 100.0),
            met: core <= CORE,
        },
        Figure {
            name: "its memory at the highest".to_owned(),
            measured: format!("{mebibytes:.1} MiB"),
            bound: format!("at most {MEBIBYTES:.0} MiB"),
            met: mebibytes <= MEBIBYTES,
        },
        Figure {
            name: format!("the program at {rate:.0} lines a second"),
            measured: format!("{processor:.3} of its processor time, {wall:.3} of its wall time"),
            bound: format!("at most {SLOWER} of its processor time"),
            met: processor <= SLOWER,
        },
        Figure {
            name: "supervisor at that rate".to_owned(),
            measured: format!("{:.1} % of a core", busy_core * 100.0),
            bound: String::new(),
            met: true,
        },
    ])
}

#[cfg(test)]
mod tests {
    use super::figures;

    #[test]
    fn figures_are_judged_and_a_missing_one_is_noticed() {
        let met = |text: &str| -> Option<Vec<bool>> {
            Some(figures(text)?.iter().map(|figure| figure.met).collect())
        };
        let good = "quiet\t0.0010\t9000000\nbusy\t15000\t0.03\t9000000\t1.2\t1.005\n";
        assert_eq!(met(good), Some(vec![true, true, true, true]));
        let bad = "quiet\t0.0030\t9000000\nbusy\t15000\t0.03\t19000000\t1.0\t1.02\n";
        assert_eq!(met(bad), Some(vec![false, false, false, true]));
        assert_eq!(met("quiet\t0.0010\t9000000\n"), None);
    }
}
