//! `cargo xtask bench attack`: ours and the Go operator under the same attack, each on a fresh cluster of the same kind.
//!
//! The program `attack` of `tools/programs` runs inside the cluster, starts the operator under a limit on its memory, attacks its ports and
//! measures what honest callers see; here the clusters are made and the figures compared. Nothing outside of the cluster's own
//! network namespace is attacked.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Figure, judge,
    operator::{PEER, number, ready_as},
};
use crate::{Failure, report, step};

/// The name of the cluster that is made and removed for each operator, unless the call gives another.
const NAME: &str = "bench";
const NODES: usize = 4;
/// The limit of the chart.
const LIMIT_MEBIBYTES: usize = 1024;
const HOSTILE: usize = 1_000;
const IDLE: usize = 1_000;
const SILENT: usize = 64;
const SECONDS: usize = 30;
/// What must hold during the attack.
const MEMORY_BYTES: f64 = 300e6;
const REVIEW_SECONDS: f64 = 1.0;
const JOB_SECONDS: f64 = 5.0;
/// Descriptors of the attackers, each of which holds one connection.
const DESCRIPTORS: usize = 8_192;

/// What was measured of one operator.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    survived: bool,
    calm: f64,
    peak: f64,
    reviews: f64,
    reviews_failed: f64,
    review: f64,
    /// The same before the attack, on the same machine: what its other load alone costs.
    calm_review: f64,
    probes_failed: f64,
    job: f64,
    calm_job: f64,
    jobs_failed: f64,
    hostile: f64,
    connections: f64,
}

impl Run {
    fn read(text: &str) -> Result<Self, Failure> {
        let of = |key: &str| number(text, key);
        Ok(Self {
            survived: of("survived")? > 0.5,
            calm: of("calmRssBytes")?,
            peak: of("peakRssBytes")?,
            reviews: of("reviews")?,
            reviews_failed: of("reviewsFailed")?,
            review: of("reviewP99Seconds")?,
            calm_review: of("calmReviewP99Seconds")?,
            probes_failed: of("probesFailed")?,
            job: of("jobMostSeconds")?,
            calm_job: of("calmJobSeconds")?,
            jobs_failed: of("jobsFailed")?,
            hostile: of("hostileReviews")?,
            connections: of("hostileConnections")?,
        })
    }
}

/// What the call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked<'a> {
    name: &'a str,
    seconds: usize,
    peer: bool,
}

fn parse_arguments<'a>(words: &[&'a str]) -> Result<Asked<'a>, Failure> {
    let mut asked = Asked {
        name: NAME,
        seconds: SECONDS,
        peer: true,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--seconds" => {
                asked.seconds = words
                    .next()
                    .and_then(|text| text.parse().ok())
                    .filter(|seconds| (5..=600).contains(seconds))
                    .ok_or_else(|| {
                        Failure::CouldNotRun("`--seconds` needs a number from 5 to 600".to_owned())
                    })?;
            }
            "--name" => {
                asked.name = words.next().ok_or_else(|| {
                    Failure::CouldNotRun("`--name` needs the name of a cluster".to_owned())
                })?;
            }
            "--without-peer" => asked.peer = false,
            other => {
                return Err(Failure::CouldNotRun(format!(
                    "unknown argument `{other}`; expected `--seconds N`, `--name NAME` or `--without-peer`"
                )));
            }
        }
    }
    Ok(asked)
}

/// Attacks both operators, one after the other, and compares.
pub(crate) fn attack(words: &[&str]) -> Result<(), Failure> {
    let asked = parse_arguments(words)?;
    let (binary, attacker) = tools()?;
    let certificates = std::env::temp_dir().join(format!("trainyard-attack-{}", asked.name));
    let folder = certificates.to_string_lossy().into_owned();
    let mut ours = vec![binary.to_string_lossy().into_owned()];
    ours.extend(
        [
            "operator",
            "--no-leader-elect",
            "--health-bind",
            "127.0.0.1:8081",
            "--webhook-bind",
            "127.0.0.1:9443",
            "--webhook-cert-dir",
            &folder,
        ]
        .map(str::to_owned),
    );
    let flags = ["--cert-dir", &folder];
    let (ours, limit) = run(&attacker, "ours", asked, &flags, &ours)?;
    let peer = if asked.peer {
        let peer = crate::cluster::peer()?;
        let script = std::env::temp_dir().join("trainyard-peer.sh");
        fs::write(&script, PEER)
            .map_err(|error| Failure::CouldNotRun(format!("cannot write: {error}")))?;
        let command =
            ["sh".into(), script, peer].map(|path: PathBuf| path.to_string_lossy().into_owned());
        Some(run(&attacker, "Go operator", asked, &[], &command)?.0)
    } else {
        None
    };
    println!(
        "\n{HOSTILE} hostile reviews, {IDLE} idle TLS connections and {SILENT} silent ones to the probes' port at once, \
         for {} s; memory limited to {LIMIT_MEBIBYTES} MiB by {limit}.",
        asked.seconds
    );
    judge(&figures(&ours, peer.as_ref()))
}

fn run(
    attacker: &Path,
    name: &str,
    asked: Asked<'_>,
    flags: &[&str],
    operator: &[String],
) -> Result<(Run, String), Failure> {
    report::progress(&format!("attacking {name} for {} s", asked.seconds));
    let fixture = ready_as(asked.name, NODES)?;
    let mut command = fixture.command("sh");
    command
        .args([
            "-c",
            &format!(r#"ulimit -n {DESCRIPTORS} && exec "$@""#),
            "sh",
        ])
        .arg(attacker)
        .args(["--limit-mebibytes", &LIMIT_MEBIBYTES.to_string()])
        .args(["--hostile", &HOSTILE.to_string()])
        .args(["--idle", &IDLE.to_string()])
        .args(["--silent", &SILENT.to_string()])
        .args(["--seconds", &asked.seconds.to_string()])
        .args(flags)
        .arg("--")
        .args(operator);
    let text = step::capture(&mut command)?;
    let limit = text
        .split_once("\"limit\":\"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map_or("nothing", |(limit, _)| limit);
    Ok((Run::read(&text)?, limit.to_owned()))
}

fn figures(ours: &Run, peer: Option<&Run>) -> Vec<Figure> {
    let megabytes = |value: f64| format!("{:.0} MB", value / 1e6);
    let count = |value: f64| format!("{value:.0}");
    let beside = |of: fn(&Run) -> f64, show: &dyn Fn(f64) -> String| {
        let own = show(of(ours));
        match peer {
            None => own,
            Some(peer) if !peer.survived => {
                format!("{own}, Go {} (it did not survive)", show(of(peer)))
            }
            Some(peer) if of(peer) > 0.0 => {
                let ratio = of(ours) / of(peer);
                format!("{own}, Go {}: {ratio:.2} of it", show(of(peer)))
            }
            Some(peer) => format!("{own}, Go {}", show(of(peer))),
        }
    };
    // A time under the attack, with that before it.
    let times = |of: fn(&Run) -> (f64, f64)| {
        let show = |run: &Run| {
            let (during, before) = of(run);
            format!("{during:.2} s ({before:.2} s before)")
        };
        match peer {
            None => show(ours),
            Some(peer) => {
                let end = if peer.survived {
                    ""
                } else {
                    "; it did not survive"
                };
                format!("{}, Go {}{end}", show(ours), show(peer))
            }
        }
    };
    let figure = |name: &str, measured: String, bound: &str, met: bool| Figure {
        name: name.to_owned(),
        measured,
        bound: bound.to_owned(),
        met,
    };
    let survived = |run: &Run| if run.survived { "yes" } else { "no" };
    let both = peer.map_or_else(
        || survived(ours).to_owned(),
        |peer| format!("{}, Go {}", survived(ours), survived(peer)),
    );
    vec![
        figure("survives", both, "yes", ours.survived),
        figure(
            "memory at most",
            beside(|run| run.peak, &megabytes),
            "under 300 MB",
            ours.peak < MEMORY_BYTES,
        ),
        figure(
            "memory before the attack",
            beside(|run| run.calm, &megabytes),
            "",
            true,
        ),
        figure(
            "an honest review, p99",
            times(|run| (run.review, run.calm_review)),
            "under 1 s",
            ours.review < REVIEW_SECONDS && ours.reviews > 0.0,
        ),
        figure(
            "honest reviews without a right answer",
            beside(|run| run.reviews_failed, &count),
            "",
            true,
        ),
        figure(
            "a new job, until its pods exist, at most",
            times(|run| (run.job, run.calm_job)),
            "under 5 s",
            ours.job < JOB_SECONDS && ours.jobs_failed < 1.0 && ours.job > 0.0,
        ),
        figure(
            "probes without an answer within 1 s",
            beside(|run| run.probes_failed, &count),
            "none",
            ours.probes_failed < 1.0,
        ),
        figure(
            "hostile reviews sent",
            beside(|run| run.hostile, &count),
            "",
            true,
        ),
        figure(
            "idle connections opened",
            beside(|run| run.connections, &count),
            "",
            true,
        ),
    ]
}

/// The program and the one that attacks it, built.
fn tools() -> Result<(PathBuf, PathBuf), Failure> {
    step::released_with_tool("attack")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = r#"{"calmJobSeconds":0.25,"calmReviewP99Seconds":0.02,"calmRssBytes":20000000,"hostileConnections":5000,"hostileReviews":3000,"jobMostSeconds":0.5,"jobs":5,"jobsFailed":0,"limit":"control group","peakRssBytes":200000000,"probes":30,"probesFailed":0,"probeP99Seconds":0.01,"reviewMedianSeconds":0.01,"reviewP99Seconds":0.25,"reviews":400,"reviewsFailed":1,"silentConnections":900,"survived":1}"#;

    /// The figure that is missed, and what makes it so.
    type Case = (&'static str, fn(&mut Run));

    fn missed(ours: &Run) -> Vec<String> {
        let figures = figures(ours, None);
        let missed = figures.into_iter().filter(|figure| !figure.met);
        missed.map(|figure| figure.name).collect()
    }

    #[test]
    fn every_bound_can_be_missed() {
        let good = Run::read(PRINTED).unwrap();
        assert_eq!(missed(&good), [""; 0]);
        let cases: [Case; 7] = [
            ("survives", |run| run.survived = false),
            ("memory at most", |run| run.peak = 300e6),
            ("an honest review, p99", |run| run.review = 1.0),
            ("an honest review, p99", |run| run.reviews = 0.0),
            ("a new job, until its pods exist, at most", |run| {
                run.job = 5.0;
            }),
            ("a new job, until its pods exist, at most", |run| {
                run.jobs_failed = 1.0;
            }),
            ("probes without an answer within 1 s", |run| {
                run.probes_failed = 1.0;
            }),
        ];
        for (name, worsen) in cases {
            let mut run = good.clone();
            worsen(&mut run);
            assert_eq!(missed(&run), [name]);
        }
    }

    #[test]
    fn the_peer_stands_beside_each_figure() {
        let ours = Run::read(PRINTED).unwrap();
        let mut peer = ours.clone();
        peer.peak = 800e6;
        let table = figures(&ours, Some(&peer));
        assert_eq!(table[1].measured, "200 MB, Go 800 MB: 0.25 of it");
        assert_eq!(
            table[3].measured,
            "0.25 s (0.02 s before), Go 0.25 s (0.02 s before)"
        );
        peer.survived = false;
        let table = figures(&ours, Some(&peer));
        assert_eq!(table[0].measured, "yes, Go no");
        assert_eq!(table[1].measured, "200 MB, Go 800 MB (it did not survive)");
    }

    #[test]
    fn arguments() {
        let of = |seconds, peer| {
            Some(Asked {
                name: NAME,
                seconds,
                peer,
            })
        };
        for (words, want) in [
            (&[][..], of(SECONDS, true)),
            (&["--seconds", "10", "--without-peer"], of(10, false)),
            (&["--seconds"], None),
            (&["--seconds", "0"], None),
            (&["--else"], None),
            (&["--name"], None),
        ] {
            assert_eq!(parse_arguments(words).ok(), want, "{words:?}");
        }
        assert_eq!(parse_arguments(&["--name", "other"]).unwrap().name, "other");
    }

    #[test]
    fn an_output_without_figures_is_a_failure() {
        assert!(Run::read("{}").is_err());
    }
}
