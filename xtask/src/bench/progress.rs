//! `cargo xtask bench progress`: how old the progress is that the operator reads from logs, and what reading costs it.
//!
//! The program `progress` of `tools/programs` serves an API in memory whose pods print ten lines a second, runs the operator against it as a
//! process of its own, and measures; here the figures are held against their bounds. No cluster is needed. The API is served over
//! plain HTTP, so TLS is not part of the operator's share of a core.

use std::path::{Path, PathBuf};

use super::{Figure, judge, operator::number};
use crate::{Failure, report, step};

/// Jobs, the age that their progress may have, seconds before the measurement and of it.
const SIZES: [(usize, f64, usize, usize); 2] = [(100, 10.0, 20, 60), (1_000, 60.0, 60, 150)];
/// Reads in any second, and a share of a core.
const READS: f64 = 20.0;
const SHARE: f64 = 0.15;

/// What was measured with so many jobs.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    jobs: usize,
    oldest_allowed: f64,
    median: f64,
    p99: f64,
    most: f64,
    reads: f64,
    busiest: f64,
    writes: f64,
    share: f64,
    memory: f64,
}

/// Measures both sizes, or only that of `--jobs N`, and fails where a bound is missed.
pub(crate) fn progress(words: &[&str]) -> Result<(), Failure> {
    let only = match words {
        [] => None,
        ["--jobs", count] => Some(count.parse::<usize>().map_err(|_| {
            Failure::CouldNotRun(format!("`--jobs` needs a number, found `{count}`"))
        })?),
        [other, ..] => {
            return Err(Failure::CouldNotRun(format!(
                "unknown argument `{other}`; expected `--jobs N`"
            )));
        }
    };
    let (binary, measure) = tools()?;
    let sizes = match only {
        None => SIZES.to_vec(),
        // The bound of the next larger size.
        Some(jobs) => {
            let (_, oldest, warm_up, seconds) = SIZES[usize::from(jobs > SIZES[0].0)];
            vec![(jobs, oldest, warm_up, seconds)]
        }
    };
    let mut figures = Vec::new();
    for (jobs, oldest, warm_up, seconds) in sizes {
        report::progress(&format!("{jobs} jobs for {} s", warm_up + seconds));
        let text = run(&measure, &binary, jobs, warm_up, seconds)?;
        figures.extend(of(&Run::read(&text, jobs, oldest)?));
    }
    println!();
    judge(&figures)
}

fn run(
    measure: &Path,
    binary: &Path,
    jobs: usize,
    warm_up: usize,
    seconds: usize,
) -> Result<String, Failure> {
    let mut command = std::process::Command::new(measure);
    command
        .args(["--jobs", &jobs.to_string()])
        .args(["--warm-up", &warm_up.to_string()])
        .args(["--seconds", &seconds.to_string()])
        .arg("--")
        .arg(binary)
        .args(["operator", "--no-leader-elect", "--namespace", "bench"]);
    step::capture(&mut command)
}

impl Run {
    fn read(text: &str, jobs: usize, oldest_allowed: f64) -> Result<Self, Failure> {
        let of = |key: &str| number(text, key);
        Ok(Self {
            jobs,
            oldest_allowed,
            median: of("ageP50Seconds")?,
            p99: of("ageP99Seconds")?,
            most: of("ageMostSeconds")?,
            reads: of("readsPerSecond")?,
            busiest: of("busiestSecondReads")?,
            writes: of("statusWritesPerSecond")?,
            share: of("cpuShare")?,
            memory: of("rssBytes")?,
        })
    }
}

fn of(run: &Run) -> Vec<Figure> {
    let jobs = run.jobs;
    let figure = |name: &str, measured: String, bound: String, met: bool| Figure {
        name: format!("{jobs} jobs: {name}"),
        measured,
        bound,
        met,
    };
    vec![
        figure(
            "age of progress",
            format!(
                "p50 {:.1} s, p99 {:.1} s, most {:.1} s",
                run.median, run.p99, run.most
            ),
            format!("most {:.0} s", run.oldest_allowed),
            run.most <= run.oldest_allowed,
        ),
        figure(
            "logs read in a second",
            format!("{:.1}, most {:.0}", run.reads, run.busiest),
            format!("most {READS:.0}"),
            run.busiest <= READS,
        ),
        figure(
            "share of a core",
            format!("{:.1} %", run.share * 100.0),
            format!("{:.0} %", SHARE * 100.0),
            run.share <= SHARE,
        ),
        figure(
            "status writes in a second",
            format!("{:.1}", run.writes),
            String::new(),
            true,
        ),
        figure(
            "resident memory",
            format!("{:.0} MB", run.memory / 1e6),
            String::new(),
            true,
        ),
    ]
}

fn tools() -> Result<(PathBuf, PathBuf), Failure> {
    step::released_with_tool("progress")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = r#"{"ageMostSeconds":55.0,"ageP50Seconds":26.0,"ageP99Seconds":53.0,"busiestSecondReads":20,"cpuShare":0.08,"jobs":1000,"readsPerSecond":19.1,"rssBytes":60000000.0,"startSeconds":60.0,"statusWritesPerSecond":18.0}"#;

    #[test]
    fn each_bound_can_be_missed() {
        type Spoil = fn(&mut Run);
        let run = Run::read(PRINTED, 1_000, 60.0).unwrap();
        assert!(of(&run).iter().all(|figure| figure.met));
        let cases: [(&str, Spoil); 3] = [
            ("1000 jobs: age of progress", |run| run.most = 60.5),
            ("1000 jobs: logs read in a second", |run| run.busiest = 21.0),
            ("1000 jobs: share of a core", |run| run.share = 0.16),
        ];
        for (name, spoil) in cases {
            let mut run = run.clone();
            spoil(&mut run);
            let figures = of(&run);
            let missed: Vec<&str> = figures
                .iter()
                .filter(|figure| !figure.met)
                .map(|figure| figure.name.as_str())
                .collect();
            assert_eq!(missed, [name]);
        }
    }
}
