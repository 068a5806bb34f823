//! `cargo xtask bench core`: the figures that the core must reach, each beside its bound.
//!
//! Invariant: every figure is measured on the release build that users run, in this call; nothing
//! is read from an earlier one.

use std::{
    fmt::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{Failure, report, seed_hunt, step};

/// Seeds of the measured hunt: enough for several seconds, so that start-up does not count.
const SEEDS: &str = "20000";
/// The simulation must reach this many seeds a minute on two cores.
const SEEDS_A_MINUTE: f64 = 100_000.0;
/// A run shorter than this on average exercises too little to be called a run.
const EVENTS_A_RUN: f64 = 200.0;
/// Size of the gang whose steady state is bounded.
const GANG: u64 = 4_096;
/// `decide` for that gang takes at most this.
const DECIDE_MICROSECONDS: f64 = 2_000.0;
/// Largest over smallest time per pod on the curve. Linear growth keeps it near 1; the log factor
/// of ordered maps and the caches that a large gang outgrows account for the rest, while
/// quadratic growth over the curve's range would give hundreds.
const LINEAR_WITHIN: f64 = 8.0;
/// Points below this many pods measure fixed costs, not growth.
const CURVE_FROM: u64 = 1_024;
/// `render` of a job with this many pods is bounded.
const RENDER_PODS: u32 = 1_000;
/// From start to exit, median.
const RENDER_LIMIT: Duration = Duration::from_millis(50);
/// Runs from which best and median are taken.
const RENDER_RUNS: usize = 20;

/// One line of the table.
struct Figure {
    name: String,
    measured: String,
    bound: String,
    met: bool,
}

/// Measures every figure and fails where a bound is missed.
pub(crate) fn run() -> Result<(), Failure> {
    let mut figures = simulation()?;
    let curve = decide_curve()?;
    figures.extend(decide(&curve)?);
    figures.extend(render()?);

    println!("\n`decide` in steady state:");
    let mut rows = vec![["pods", "time", "per pod"].map(str::to_owned).to_vec()];
    for (pods, microseconds) in &curve {
        rows.push(vec![
            pods.to_string(),
            format!("{:.3} ms", microseconds / 1e3),
            format!("{:.1} ns", per_pod(*pods, *microseconds) * 1e3),
        ]);
    }
    println!("{}", report::table(&rows));

    let mut rows = vec![
        ["figure", "measured", "bound", ""]
            .map(str::to_owned)
            .to_vec(),
    ];
    for figure in &figures {
        let word = if figure.met { "met" } else { "MISSED" };
        rows.push(vec![
            figure.name.clone(),
            figure.measured.clone(),
            figure.bound.clone(),
            word.to_owned(),
        ]);
    }
    println!("{}", report::table(&rows));
    println!(
        "`render` has no peer to be measured against: no other tool makes these objects outside \
         a cluster. Its floor is the same binary's `--version`, which is start-up alone."
    );
    let missed = figures.iter().filter(|figure| !figure.met).count();
    if missed > 0 {
        Err(Failure::Failed(format!(
            "{missed} of {} bounds are missed",
            figures.len()
        )))
    } else {
        Ok(())
    }
}

fn simulation() -> Result<Vec<Figure>, Failure> {
    report::progress("simulation");
    let mut seeds = None;
    let mut events = None;
    step::stream(&mut seed_hunt::command(&["--seeds", SEEDS]), |line| {
        seeds = number_before(line, "seeds/minute").or(seeds);
        events = number_before(line, "events/run").or(events);
    })?;
    let (Some(seeds), Some(events)) = (seeds, events) else {
        return Err(Failure::CouldNotRun(
            "the seed hunt did not print its `seeds/minute` and `events/run`".to_owned(),
        ));
    };
    Ok(vec![
        Figure {
            name: "simulation, seeds a minute".to_owned(),
            measured: format!("{seeds:.0}"),
            bound: format!("at least {SEEDS_A_MINUTE:.0}"),
            met: seeds >= SEEDS_A_MINUTE,
        },
        Figure {
            name: "simulation, events a run".to_owned(),
            measured: format!("{events:.0}"),
            bound: format!("at least {EVENTS_A_RUN:.0}"),
            met: events >= EVENTS_A_RUN,
        },
    ])
}

/// Pods and microseconds, as the `decide-curve` example of `trainyard-core` prints them.
fn decide_curve() -> Result<Vec<(u64, f64)>, Failure> {
    report::progress("decide");
    let text = step::capture(&mut step::cargo(&[
        "run",
        "--quiet",
        "--locked",
        "--release",
        "--package",
        "trainyard-core",
        "--example",
        "decide-curve",
    ]))?;
    let points: Vec<(u64, f64)> = text.lines().filter_map(point).collect();
    if points.is_empty() {
        return Err(Failure::CouldNotRun(
            "the `decide-curve` example printed no point".to_owned(),
        ));
    }
    Ok(points)
}

fn decide(curve: &[(u64, f64)]) -> Result<Vec<Figure>, Failure> {
    let Some((_, at_gang)) = curve.iter().find(|(pods, _)| *pods == GANG) else {
        return Err(Failure::CouldNotRun(format!(
            "the curve has no point for {GANG} pods"
        )));
    };
    let costs: Vec<f64> = curve
        .iter()
        .filter(|(pods, _)| *pods >= CURVE_FROM)
        .map(|(pods, microseconds)| per_pod(*pods, *microseconds))
        .collect();
    let most = costs.iter().copied().fold(f64::MIN, f64::max);
    let least = costs.iter().copied().fold(f64::MAX, f64::min);
    let spread = most / least;
    Ok(vec![
        Figure {
            name: format!("`decide`, {GANG} pods, steady"),
            measured: format!("{:.3} ms", at_gang / 1e3),
            bound: format!("under {:.0} ms", DECIDE_MICROSECONDS / 1e3),
            met: *at_gang < DECIDE_MICROSECONDS,
        },
        Figure {
            name: "`decide`, growth in pods".to_owned(),
            measured: format!("{spread:.1} x per pod"),
            bound: format!("linear: within {LINEAR_WITHIN:.0} x"),
            met: spread <= LINEAR_WITHIN,
        },
    ])
}

fn render() -> Result<Vec<Figure>, Failure> {
    report::progress("render");
    step::run(&mut step::cargo(&[
        "build",
        "--quiet",
        "--locked",
        "--release",
        "--package",
        "trainyard",
    ]))?;
    let binary = step::released("trainyard")?;
    let job = std::env::temp_dir().join(format!("trainyard-bench-{}.yaml", std::process::id()));
    std::fs::write(&job, job_text()).map_err(|error| {
        Failure::CouldNotRun(format!("cannot write the job to render: {error}"))
    })?;
    let floor = times(&binary, &["--version"]);
    let path = job.to_string_lossy().into_owned();
    let render = times(&binary, &["render", &path]);
    drop(std::fs::remove_file(&job));
    let (floor, render) = (floor?, render?);
    Ok(vec![Figure {
        name: format!("`render`, {RENDER_PODS} pods, start to exit"),
        measured: format!(
            "median {}, best {} (floor {})",
            milliseconds(render.median),
            milliseconds(render.best),
            milliseconds(floor.median)
        ),
        bound: format!("median under {}", milliseconds(RENDER_LIMIT)),
        met: render.median < RENDER_LIMIT,
    }])
}

struct Times {
    best: Duration,
    median: Duration,
}

fn times(binary: &Path, words: &[&str]) -> Result<Times, Failure> {
    let mut times = Vec::with_capacity(RENDER_RUNS);
    for _ in 0..RENDER_RUNS {
        let start = Instant::now();
        let status = Command::new(binary)
            .args(words)
            .stdout(Stdio::null())
            .status()
            .map_err(|error| Failure::CouldNotRun(format!("cannot start `trainyard`: {error}")))?;
        let time = start.elapsed();
        if !status.success() {
            return Err(Failure::Failed(format!(
                "`trainyard {}` ended with {status}",
                words.join(" ")
            )));
        }
        times.push(time);
    }
    times.sort();
    Ok(Times {
        best: times[0],
        median: times[times.len() / 2],
    })
}

fn job_text() -> String {
    let mut text =
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: bench\nspec:\n  \
                    pytorchReplicaSpecs:\n"
            .to_owned();
    for (role, replicas) in [("Master", 1), ("Worker", RENDER_PODS - 1)] {
        write!(
            text,
            "    {role}:\n      replicas: {replicas}\n      template:\n        spec:\n          \
             containers:\n            - name: pytorch\n              image: example.com/train:1\n              \
             command: [python, train.py]\n"
        )
        .expect("a string takes whatever is written");
    }
    text
}

fn per_pod(pods: u64, microseconds: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "pod counts are far below 2^52")]
    let pods = pods as f64;
    microseconds / pods
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// A line `pods<TAB>microseconds`.
fn point(line: &str) -> Option<(u64, f64)> {
    let (pods, microseconds) = line.split_once('\t')?;
    Some((pods.trim().parse().ok()?, microseconds.trim().parse().ok()?))
}

/// The number that stands right before `words`; it may hold `,` or `_` between digits.
fn number_before(line: &str, words: &str) -> Option<f64> {
    let (before, _) = line.split_once(words)?;
    let number = before.split_whitespace().next_back()?;
    number.replace([',', '_'], "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_the_output_of_others() {
        let line = "20,000 seeds, 251.5 events/run, 123_456 seeds/minute";
        assert_eq!(number_before(line, "events/run"), Some(251.5));
        assert_eq!(number_before(line, "seeds/minute"), Some(123_456.0));
        assert_eq!(number_before(line, "seeds/hour"), None);
        assert_eq!(point("4096\t812.5"), Some((4096, 812.5)));
        assert_eq!(point("pods\tmicroseconds"), None);
    }

    #[test]
    fn quadratic_growth_misses_its_bound() {
        let curve = |exponent: i32| -> Vec<(u64, f64)> {
            [1_024_u64, 4_096, 16_384, 100_000]
                .into_iter()
                .map(|pods| (pods, per_pod(pods, 1.0).recip().powi(exponent) / 1e3))
                .collect()
        };
        let met = |exponent| decide(&curve(exponent)).ok().map(|figures| figures[1].met);
        assert_eq!(met(1), Some(true));
        assert_eq!(met(2), Some(false));
    }
}
