//! How fast gangs are seated, how that grows with the cluster, and how good the seats are.
//!
//! The program `placement-bench` of `tools/programs` measures what is pure; the bounds are here. For the quality of seats the
//! cluster's own scheduler is an emulation of its two scores for resources, and is named as such; for the speed in a
//! cluster it is the real one.

mod cluster;

use super::{Figure, judge};
use crate::{Failure, report, step};

/// One gang of 16,384 GPUs on 12,500 nodes of 8 takes at most this.
const LARGE_MILLISECONDS: f64 = 50.0;
/// Whether a gang of 16,384 GPUs fits after a scale-up of an empty cluster, with 50 shapes of nodes, is answered within this.
const SCALE_UP_MILLISECONDS: f64 = 50.0;
/// 2,000 mixed gangs on 5,000 nodes are seated at least this fast.
const PODS_A_SECOND: f64 = 50_000.0;
/// Both take at most this much memory, the snapshots included.
const MEGABYTES: f64 = 200.0;
/// Traffic over long links, against the best seating that exists.
const OF_THE_LEAST: f64 = 1.05;
/// Largest over smallest time per node and its logarithm on the curve. Growth as nodes × log nodes keeps it near 1;
/// caches that a large cluster outgrows account for the rest, while quadratic growth over the curve's range would give
/// twenty.
const STRAIGHT_WITHIN: f64 = 4.0;

/// Measures and judges: what is pure, and with `cluster` also gangs in a real one.
pub(crate) fn placement(cluster: bool) -> Result<(), Failure> {
    report::progress("placement");
    let text = step::capture(&mut step::pure_tool("placement-bench"))?;
    let lines = Lines::new(&text);
    let curve = lines.curve();
    println!("\none gang over a sixth of the nodes:\n{}", table(&curve));
    let mut figures = figures(&lines, &curve).ok_or_else(|| {
        Failure::CouldNotRun("the program `placement-bench` did not print every figure".to_owned())
    })?;
    if cluster {
        figures.extend(cluster::figures()?);
    }
    judge(&figures)
}

/// The figures as they were printed: a name, then numbers.
struct Lines<'a>(Vec<(&'a str, Vec<f64>)>);

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let lines = text.lines().filter_map(|line| {
            let (name, rest) = line.split_once('\t')?;
            let numbers = rest.split('\t').map(str::parse).collect::<Result<_, _>>();
            Some((name, numbers.ok()?))
        });
        Self(lines.collect())
    }

    /// The numbers of the line called `name`.
    fn get<const N: usize>(&self, name: &str) -> Option<[f64; N]> {
        let (_, numbers) = self.0.iter().find(|(own, _)| *own == name)?;
        numbers.as_slice().try_into().ok()
    }

    /// Nodes and milliseconds.
    fn curve(&self) -> Vec<[f64; 2]> {
        let points = self.0.iter().filter(|(name, _)| *name == "curve");
        points
            .filter_map(|(_, numbers)| numbers.as_slice().try_into().ok())
            .collect()
    }
}

fn figures(lines: &Lines<'_>, curve: &[[f64; 2]]) -> Option<Vec<Figure>> {
    let [large] = lines.get("large")?;
    let [pods, milliseconds, refused] = lines.get("mixed")?;
    let [scale_up] = lines.get("capacity")?;
    let [clusters, ours, least, scheduler, worst, exact] = lines.get("quality")?;
    let rate = pods / milliseconds * 1e3;
    let spread = spread(curve)?;
    let of_least = ours / least;
    let mut figures = vec![
        Figure {
            name: "one gang of 16,384 GPUs on 12,500 nodes in four levels".to_owned(),
            measured: format!("{large:.1} ms"),
            bound: format!("under {LARGE_MILLISECONDS:.0} ms"),
            met: large < LARGE_MILLISECONDS,
        },
        Figure {
            name: "answer for 16,384 GPUs, no nodes and 50 shapes".to_owned(),
            measured: format!("{scale_up:.1} ms"),
            bound: format!("under {SCALE_UP_MILLISECONDS:.0} ms"),
            met: scale_up < SCALE_UP_MILLISECONDS,
        },
        Figure {
            name: "2,000 mixed gangs on 5,000 nodes".to_owned(),
            measured: format!("{rate:.0} pods/s ({pods:.0} pods, {refused:.0} gangs refused)"),
            bound: format!("at least {PODS_A_SECOND:.0}"),
            met: rate >= PODS_A_SECOND,
        },
        Figure {
            name: "growth over nodes × log nodes".to_owned(),
            measured: format!("{spread:.1} x"),
            bound: format!("within {STRAIGHT_WITHIN:.0} x"),
            met: spread <= STRAIGHT_WITHIN,
        },
        Figure {
            name: format!("traffic of {clusters:.0} small clusters, against the least possible"),
            measured: format!("{of_least:.3} ({exact:.0} exactly, worst {worst:.2})"),
            bound: format!("at most {OF_THE_LEAST}"),
            met: of_least <= OF_THE_LEAST,
        },
        Figure {
            name: "the same, against an emulation of kube-scheduler's scores".to_owned(),
            measured: format!("{:.3}", ours / scheduler),
            bound: String::new(),
            met: true,
        },
    ];
    if let Some([megabytes]) = lines.get("memory") {
        figures.push(Figure {
            name: "memory of both".to_owned(),
            measured: format!("{megabytes:.0} MB"),
            bound: format!("under {MEGABYTES:.0} MB"),
            met: megabytes < MEGABYTES,
        });
    }
    Some(figures)
}

/// Largest over smallest time per node and its logarithm.
fn spread(curve: &[[f64; 2]]) -> Option<f64> {
    let costs = curve
        .iter()
        .map(|[nodes, milliseconds]| milliseconds / (nodes * nodes.ln()));
    let most = costs.clone().reduce(f64::max)?;
    Some(most / costs.reduce(f64::min)?)
}

fn table(curve: &[[f64; 2]]) -> String {
    let mut rows = vec![["nodes", "time", "per node"].map(str::to_owned).to_vec()];
    for [nodes, milliseconds] in curve {
        rows.push(vec![
            format!("{nodes:.0}"),
            format!("{milliseconds:.1} ms"),
            format!("{:.2} µs", milliseconds * 1e3 / nodes),
        ]);
    }
    report::table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quadratic_growth_misses_its_bound() {
        let curve = |exponent: i32| -> Vec<[f64; 2]> {
            [3_125.0_f64, 12_500.0, 100_000.0]
                .into_iter()
                .map(|nodes| [nodes, nodes.powi(exponent) / 1e3])
                .collect()
        };
        assert!(spread(&curve(1)).is_some_and(|spread| spread <= STRAIGHT_WITHIN));
        assert!(spread(&curve(2)).is_some_and(|spread| spread > STRAIGHT_WITHIN));
    }

    #[test]
    fn figures_are_read_by_name() {
        let lines = Lines::new("large\t12.5\ncurve\t10\t1\ncurve\t20\t2\nnoise\n");
        assert_eq!(lines.get("large"), Some([12.5]));
        assert_eq!(lines.get::<2>("large"), None);
        assert_eq!(lines.curve(), [[10.0, 1.0], [20.0, 2.0]]);
    }
}
