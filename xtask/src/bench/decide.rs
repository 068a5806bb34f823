//! How long one decision takes, and how that grows with the gang.

use super::Figure;
use crate::{Failure, report, step};

/// Size of the gang whose steady state is bounded.
const GANG: u64 = 4_096;
/// `decide` for that gang takes at most this.
const DECIDE_MICROSECONDS: f64 = 2_000.0;
/// Largest over smallest time per pod on the curve. Linear growth keeps it near 1; the log factor
/// of ordered maps and the caches that a large gang outgrows account for the rest, while
/// quadratic growth over the curve's range would give a hundred.
const LINEAR_WITHIN: f64 = 4.0;
/// Points below this many pods measure fixed costs, not growth.
const CURVE_FROM: u64 = 1_024;

/// Pods and microseconds, as the program `decide-curve` prints them.
pub(super) fn curve() -> Result<Vec<(u64, f64)>, Failure> {
    report::progress("decide");
    let text = step::capture(&mut step::pure_tool("decide-curve"))?;
    let points: Vec<(u64, f64)> = text.lines().filter_map(point).collect();
    if points.is_empty() {
        return Err(Failure::CouldNotRun(
            "the program `decide-curve` printed no point".to_owned(),
        ));
    }
    Ok(points)
}

/// The time for one gang, and the growth.
pub(super) fn figures(curve: &[(u64, f64)]) -> Result<Vec<Figure>, Failure> {
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

/// The curve as a table.
pub(super) fn table(curve: &[(u64, f64)]) -> String {
    let mut rows = vec![["pods", "time", "per pod"].map(str::to_owned).to_vec()];
    for (pods, microseconds) in curve {
        rows.push(vec![
            pods.to_string(),
            format!("{:.3} ms", microseconds / 1e3),
            format!("{:.1} ns", per_pod(*pods, *microseconds) * 1e3),
        ]);
    }
    report::table(&rows)
}

fn per_pod(pods: u64, microseconds: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "pod counts are far below 2^52")]
    let pods = pods as f64;
    microseconds / pods
}

/// A line that begins with `pods<TAB>microseconds`.
fn point(line: &str) -> Option<(u64, f64)> {
    let mut fields = line.split('\t');
    let pods = fields.next()?.trim().parse().ok()?;
    let microseconds = fields.next()?.trim().parse().ok()?;
    Some((pods, microseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_points_are_read() {
        assert_eq!(point("4096\t812.5"), Some((4096, 812.5)));
        assert_eq!(point("4096\t812.5\t198.4"), Some((4096, 812.5)));
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
        let met = |exponent| figures(&curve(exponent)).ok().map(|figures| figures[1].met);
        assert_eq!(met(1), Some(true));
        assert_eq!(met(2), Some(false));
    }
}
