//! `cargo xtask bench operator`: ours and the Go operator, each on a fresh cluster of the same kind.
//!
//! The program `load` of `tools/programs` runs inside the cluster, starts the operator, puts the jobs in and
//! measures; here the clusters are made and the figures compared.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Figure, judge};
use crate::{Failure, cluster::Fixture, report, step};

/// Jobs put in at once, unless the call says otherwise.
const JOBS: usize = 1_000;
const PODS: usize = 8;
const NODES: usize = 500;
const ENDED: usize = 10_000;
/// A third, of the default's time and of the tuned one's processor time.
const THIRD: f64 = 1.0 / 3.0;
/// The name of the cluster that is made and removed for each operator.
const NAME: &str = "bench";

pub(super) const PEER: &str = include_str!("operator/peer.sh");
const PEER_OBJECTS: &str = include_str!("operator/peer.yaml");

/// What was measured of one operator.
struct Run {
    running: f64,
    cpu: f64,
    rss: f64,
    requests: f64,
    gang: f64,
}

/// Measures and compares. `jobs` may be fewer for a quick look; the Go operator with the limits it has by default takes half
/// an hour and may be left out; `--ended-only` measures the start over jobs that have ended and nothing else.
pub(crate) fn operator(words: &[&str]) -> Result<(), Failure> {
    let (mut jobs, mut default, mut all) = (JOBS, true, true);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--jobs" => {
                jobs = words
                    .next()
                    .and_then(|text| text.parse().ok())
                    .ok_or_else(|| Failure::CouldNotRun("`--jobs` needs a number".to_owned()))?;
            }
            "--without-default" => default = false,
            "--ended-only" => all = false,
            other => {
                return Err(Failure::CouldNotRun(format!(
                    "unknown argument `{other}`; expected `--jobs N`, `--without-default` or `--ended-only`"
                )));
            }
        }
    }
    let (binary, load) = tools()?;
    let own = [
        "operator",
        "--no-leader-elect",
        "--metrics-bind",
        "127.0.0.1:8080",
    ];
    let mut command = vec![binary.to_string_lossy().into_owned()];
    command.extend(own.map(str::to_owned));
    if !all {
        return judge(&resync(&load, &command)?);
    }
    let peer = crate::cluster::peer()?;
    let ours = run(&load, "ours", jobs, "trainyard_api_calls_total", &command)?;
    let tuned = go(
        &load,
        &peer,
        "Go, 1,000 calls a second",
        jobs,
        &["--kube-api-qps", "1000", "--kube-api-burst", "2000"],
    )?;
    let ended = resync(&load, &command)?;
    let default = default
        .then(|| go(&load, &peer, "Go, default", jobs, &[]))
        .transpose()?;

    println!();
    let mut figures = figures(jobs, &ours, &tuned, default.as_ref());
    figures.extend(ended);
    judge(&figures)
}

/// The operator starts over ten thousand jobs that have ended, and eighty thousand pods. What a resync costs is the look at
/// each of them; the lists that only a start needs are reported separately.
fn resync(load: &Path, operator: &[String]) -> Result<Vec<Figure>, Failure> {
    report::progress(&format!("a start over {ENDED} ended jobs"));
    let fixture = ready(1)?;
    let mut command = fixture.command(&load.to_string_lossy());
    command
        .args([
            "--finished",
            &ENDED.to_string(),
            "--pods",
            &PODS.to_string(),
        ])
        .args(["--metrics", "127.0.0.1:8080", "--"])
        .args(operator);
    let text = step::capture(&mut command)?;
    let cpu = number(&text, "cpuSeconds")?;
    let lists = number(&text, "listSeconds")?;
    let memory = number(&text, "peakRssBytes")? / 1e6;
    let calls = number(&text, "calls")?;
    let figure = |name: &str, measured: String, bound: &str, met: bool| Figure {
        name: name.to_owned(),
        measured,
        bound: bound.to_owned(),
        met,
    };
    Ok(vec![
        figure(
            "a look at each of 10,000 ended jobs: processor time",
            format!("{cpu:.1} s"),
            "under 2 s",
            cpu < 2.0,
        ),
        figure(
            "the lists of them and of 80,000 pods before it",
            format!("{lists:.1} s"),
            "",
            true,
        ),
        figure(
            "the same: calls besides lists",
            format!("{calls:.0}"),
            "none",
            calls < 1.0,
        ),
        figure(
            "memory with 10,000 jobs and 80,000 pods, at most",
            format!("{memory:.0} MB"),
            "under 400 MB",
            memory < 400.0,
        ),
    ])
}

fn figures(jobs: usize, ours: &Run, tuned: &Run, default: Option<&Run>) -> Vec<Figure> {
    let seconds = |value: f64| format!("{value:.1} s");
    let megabytes = |value: f64| format!("{:.0} MB", value / 1e6);
    let count = |value: f64| format!("{value:.1}");
    let compare = |name: String,
                   of: fn(&Run) -> f64,
                   show: &dyn Fn(f64) -> String,
                   peer: (&str, &Run),
                   bound: Option<f64>| {
        let (words, peer) = peer;
        let ratio = of(ours) / of(peer);
        Figure {
            name,
            measured: format!(
                "{}, {words} {}: {ratio:.2} of it",
                show(of(ours)),
                show(of(peer))
            ),
            bound: bound.map_or_else(String::new, |bound| format!("at most {bound:.2} of it")),
            met: bound.is_none_or(|bound| ratio <= bound),
        }
    };
    let per_job = {
        #[expect(clippy::cast_precision_loss, reason = "a count of jobs")]
        let jobs = jobs as f64;
        move |value: f64| count(value / jobs)
    };
    let tuned = ("Go tuned", tuned);
    let until = format!("{jobs} jobs of {PODS} pods, until all run");
    let mut figures = Vec::new();
    if let Some(default) = default {
        let default = ("Go default", default);
        figures.push(compare(
            until.clone(),
            |run| run.running,
            &seconds,
            default,
            Some(THIRD),
        ));
    }
    figures.extend([
        compare(until, |run| run.running, &seconds, tuned, Some(0.8)),
        compare(
            "memory at most".to_owned(),
            |run| run.rss,
            &megabytes,
            tuned,
            Some(0.25),
        ),
        compare(
            "processor time".to_owned(),
            |run| run.cpu,
            &seconds,
            tuned,
            Some(THIRD),
        ),
        compare(
            "API calls for a job".to_owned(),
            |run| run.requests,
            &per_job,
            tuned,
            Some(0.7),
        ),
        // Not the same thing: ours restarts all 64 ranks, which would wait for each other otherwise.
        compare(
            "one of 64 fails, until 64 run".to_owned(),
            |run| run.gang,
            &seconds,
            tuned,
            None,
        ),
    ]);
    figures
}

fn go(load: &Path, peer: &Path, name: &str, jobs: usize, flags: &[&str]) -> Result<Run, Failure> {
    let script = std::env::temp_dir().join("trainyard-peer.sh");
    fs::write(&script, PEER)
        .map_err(|error| Failure::CouldNotRun(format!("cannot write: {error}")))?;
    let mut command = vec!["sh".to_owned(), script.to_string_lossy().into_owned()];
    command.push(peer.to_string_lossy().into_owned());
    command.extend(flags.iter().map(|flag| (*flag).to_owned()));
    run(load, name, jobs, "rest_client_requests_total", &command)
}

fn run(
    load: &Path,
    name: &str,
    jobs: usize,
    counter: &str,
    operator: &[String],
) -> Result<Run, Failure> {
    report::progress(&format!("{jobs} jobs, {name}"));
    let fixture = ready(NODES)?;
    let mut command = fixture.command(&load.to_string_lossy());
    command
        .args(["--jobs", &jobs.to_string(), "--pods", &PODS.to_string()])
        .args(["--metrics", "127.0.0.1:8080", "--counter", counter, "--"])
        .args(operator);
    let text = step::capture(&mut command)?;
    Ok(Run {
        running: number(&text, "runningSeconds")?,
        cpu: number(&text, "cpuSeconds")?,
        rss: number(&text, "peakRssBytes")?,
        requests: number(&text, "requests")?,
        gang: number(&text, "gangSeconds")?,
    })
}

/// The program and the one that loads it, built.
pub(super) fn tools() -> Result<(PathBuf, PathBuf), Failure> {
    step::released_with_tool("load")
}

/// A fresh cluster that knows the kinds and has what the Go operator looks for.
pub(super) fn ready(nodes: usize) -> Result<Fixture, Failure> {
    ready_as(NAME, nodes)
}

/// The same under another name: clusters of different names do not meet.
pub(super) fn ready_as(name: &str, nodes: usize) -> Result<Fixture, Failure> {
    let fixture = Fixture::fresh(name, nodes)?;
    let mut install = fixture.command("kubectl");
    install.args(["apply", "--server-side", "--kustomize", "deploy/crds"]);
    step::capture(&mut install)?;
    let objects = std::env::temp_dir().join("trainyard-peer.yaml");
    fs::write(&objects, PEER_OBJECTS)
        .map_err(|error| Failure::CouldNotRun(format!("cannot write: {error}")))?;
    let mut apply = fixture.command("kubectl");
    apply.arg("apply").arg("--filename").arg(&objects);
    step::capture(&mut apply)?;
    Ok(fixture)
}

/// The number that the load printed under `key`.
pub(super) fn number(text: &str, key: &str) -> Result<f64, Failure> {
    let (_, rest) = text
        .split_once(&format!("\"{key}\":"))
        .ok_or_else(|| lost(text))?;
    let end = rest.find([',', '}']).unwrap_or(rest.len());
    rest.get(..end)
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| lost(text))
}

fn lost(text: &str) -> Failure {
    Failure::Failed(format!("the load printed no figures: {text}"))
}
