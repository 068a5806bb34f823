//! `cargo xtask bench preflight`: the figures of a preflight.
//!
//! The search over simulated nodes comes from the program `preflight-bench` of `tools/programs`, the stream from the
//! program `stream`, beside `iperf3` on the same pair of interfaces and in turns, so that a busy
//! machine slows both. Memory is that of the program itself, as the leader of a gang.

mod memory;
mod stream;

use super::{Figure, judge};
use crate::{Failure, report, step};

/// The schedule of 1,024 nodes takes at most this.
const SCHEDULE_MILLISECONDS: f64 = 50.0;
/// Of what `iperf3` reaches.
const OF_IPERF: f64 = 0.95;
/// Resident memory of the leader, at its highest.
const MEGABYTES: f64 = 20.0;
/// What the image is built for.
const TARGET: &str = "x86_64-unknown-linux-musl";
/// The static binary, as images carry it.
const BINARY_MEGABYTES: f64 = 15.0;

/// Measures and judges.
pub(crate) fn preflight() -> Result<(), Failure> {
    let mut figures = search()?;
    figures.push(stream::figure()?);
    figures.push(memory::figure()?);
    figures.push(binary()?);
    println!();
    judge(&figures)
}

fn search() -> Result<Vec<Figure>, Failure> {
    report::progress("searching among 1,024 simulated nodes");
    let text = step::capture(&mut step::pure_tool("preflight-bench"))?;
    figures(&text).ok_or_else(|| {
        Failure::CouldNotRun(format!(
            "the program `preflight-bench` did not print every figure: {text}"
        ))
    })
}

fn figures(text: &str) -> Option<Vec<Figure>> {
    let line = |name: &str| -> Option<Vec<f64>> {
        let mut lines = text.lines().map(|line| line.split('\t'));
        let mut fields =
            lines.find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
        fields.try_fold(Vec::new(), |mut all, field| {
            all.push(field.parse().ok()?);
            Some(all)
        })
    };
    let [nodes, milliseconds] = line("schedule")?.try_into().ok()?;
    let [trials, right, most, allowed, _] = line("search")?.try_into().ok()?;
    Some(vec![
        Figure {
            name: format!("schedule of {nodes:.0} nodes"),
            measured: format!("{milliseconds:.1} ms"),
            bound: format!("under {SCHEDULE_MILLISECONDS:.0} ms"),
            met: milliseconds < SCHEDULE_MILLISECONDS,
        },
        Figure {
            name: "one slow link named, and nothing else, with 5 % noise".to_owned(),
            measured: format!("{right:.0} of {trials:.0}"),
            bound: "all".to_owned(),
            met: trials >= 1000.0 && right >= trials,
        },
        Figure {
            name: "rounds until then, at most".to_owned(),
            measured: format!("{most:.0}"),
            bound: format!("at most {allowed:.0}"),
            met: most <= allowed,
        },
    ])
}

/// The binary of `deploy/image`, built for this machine's kernel without any library.
fn binary() -> Result<Figure, Failure> {
    report::progress("building the static binary of the image; this takes minutes");
    step::run(
        step::cargo(&[
            "build",
            "--quiet",
            "--locked",
            "--profile",
            "dist",
            "--target",
            TARGET,
        ])
        .args(["--package", "trainyard"])
        // Without a compiler for this target the machine's own does: what is compiled uses no library.
        .env("CC_x86_64_unknown_linux_musl", "gcc"),
    )?;
    let path = step::root()
        .join("target")
        .join(TARGET)
        .join("dist/trainyard");
    let bytes = std::fs::metadata(&path).map_err(|error| {
        Failure::CouldNotRun(format!("cannot look at `{}`: {error}", path.display()))
    })?;
    let megabytes = f64::from(u32::try_from(bytes.len()).unwrap_or(u32::MAX)) / 1e6;
    Ok(Figure {
        name: "static binary".to_owned(),
        measured: format!("{megabytes:.1} MB"),
        bound: format!("under {BINARY_MEGABYTES:.0} MB"),
        met: megabytes < BINARY_MEGABYTES,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_trial_misses_its_bound() {
        let met = |text: &str| -> Vec<bool> {
            figures(text)
                .unwrap()
                .iter()
                .map(|figure| figure.met)
                .collect()
        };
        let good = "schedule\t1024\t1.0\nsearch\t1000\t1000\t11\t20\t30.0\n";
        assert_eq!(met(good), [true, true, true]);
        let bad = "schedule\t1024\t51\nwrong\t7\tTrial\nsearch\t1000\t999\t21\t20\t30.0\n";
        assert_eq!(met(bad), [false, false, false]);
        assert!(figures("schedule\t1024\n").is_none());
    }
}
