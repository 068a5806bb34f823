//! Whether memory is flat: the trend of samples, robust against single peaks.
//!
//! What may leak is anonymous memory, so its growth is what counts, in percent of all resident memory. The pages of the program's
//! own file that were ever used are resident too, most of it all; they are bounded by the size of the file, are dropped when memory
//! is short, and become more whenever a path of the program is taken for the first time.

use std::fs;

/// Runs shorter than this are not judged: allocators are still warming up and samples are few.
pub(crate) const JUDGED_FROM_MINUTES: u64 = 10;
/// What memory may grow by over the judged part of a run.
pub(crate) const BOUND_PERCENT: f64 = 1.0;
/// The first minutes are not judged: the first of every kind of job and of fault comes in them.
const WARM_UP: usize = 10;

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) resident: f64,
    /// The part of it that is not file-backed.
    pub(crate) anonymous: f64,
}

impl Sample {
    /// The memory of a process now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Self::read(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn read(status: &str) -> Option<Self> {
        let bytes = |key: &str| -> Option<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            let kilobytes: u32 = line.trim().trim_end_matches(" kB").parse().ok()?;
            Some(f64::from(kilobytes) * 1024.0)
        };
        Some(Self {
            resident: bytes("VmRSS:")?,
            anonymous: bytes("RssAnon:")?,
        })
    }

    /// The medians of several, of which there is at least one.
    pub(crate) fn median(samples: &[Self]) -> Self {
        let of = |part: fn(&Self) -> f64| median(&mut samples.iter().map(part).collect::<Vec<_>>());
        Self {
            resident: of(|sample| sample.resident),
            anonymous: of(|sample| sample.anonymous),
        }
    }
}

/// How a series of samples goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trend {
    /// The medians of the samples.
    pub(crate) level: Sample,
    /// Growth of anonymous memory from the first to the last of them by the median slope, in percent of resident memory.
    pub(crate) growth_percent: f64,
}

/// The minutes of `samples` that are judged: all after the warm-up, at least half of them.
pub(crate) fn judged(samples: &[Sample]) -> &[Sample] {
    &samples[(samples.len() / 2).min(WARM_UP)..]
}

/// The trend of the judged part of `samples`, each of the same distance from the one before. The slope is the median of those
/// between all pairs (Theil and Sen), so that a few odd samples change nothing.
pub(crate) fn trend(samples: &[Sample]) -> Option<Trend> {
    let part = judged(samples);
    if part.len() < 2 {
        return None;
    }
    let mut slopes = Vec::new();
    for (at, first) in part.iter().enumerate() {
        for (distance, second) in part[at + 1..].iter().enumerate() {
            slopes.push((second.anonymous - first.anonymous) / number(distance + 1));
        }
    }
    let level = Sample::median(part);
    let growth = median(&mut slopes) * number(part.len() - 1);
    (level.resident > 0.0).then(|| Trend {
        level,
        growth_percent: growth / level.resident * 100.0,
    })
}

#[expect(clippy::cast_precision_loss, reason = "a count of samples")]
fn number(count: usize) -> f64 {
    count as f64
}

/// The median of `values`, which hold at least one.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anonymous memory alone.
    fn all(values: &[f64]) -> Vec<Sample> {
        let sample = |value: &f64| Sample {
            resident: *value,
            anonymous: *value,
        };
        values.iter().map(sample).collect()
    }

    #[test]
    fn what_the_kernel_says() {
        let status =
            "Name:\tx\nVmRSS:\t   35152 kB\nRssAnon:\t    8748 kB\nRssFile:\t   26404 kB\n";
        let want = Sample {
            resident: 35152.0 * 1024.0,
            anonymous: 8748.0 * 1024.0,
        };
        assert_eq!(Sample::read(status), Some(want));
        assert_eq!(Sample::read("Name:\tx\n"), None);
        assert!(Sample::of(std::process::id()).is_some());
    }

    #[test]
    fn leak_counts_as_growth_and_program_pages_do_not() {
        let minutes = |file: f64, heap: f64| {
            let minute = move |at: u32| Sample {
                resident: 30e6 + (file + heap) * f64::from(at),
                anonymous: 8e6 + heap * f64::from(at),
            };
            (0..30).map(minute).collect::<Vec<_>>()
        };
        for (name, file, heap, flat) in [
            ("pages of the file", 200e3, 0.0, true),
            ("a leak", 0.0, 50e3, false),
            ("both", 200e3, 50e3, false),
        ] {
            let trend = trend(&minutes(file, heap)).unwrap();
            assert_eq!(
                trend.growth_percent <= BOUND_PERCENT,
                flat,
                "{name}: {trend:?}"
            );
        }
    }

    #[test]
    fn trends() {
        let line = |slope: f64| (0..20).map(|at| 100.0 + slope * f64::from(at)).collect();
        let mut peak: Vec<f64> = line(0.0);
        peak[15] = 180.0;
        let mut warm_up: Vec<f64> = vec![20.0; 10];
        warm_up.extend([100.0; 10]);
        let cases: [(&str, Vec<f64>, f64, bool); 6] = [
            ("flat", line(0.0), 0.0, true),
            ("one peak", peak, 0.0, true),
            ("growth before the second half", warm_up, 0.0, true),
            ("a leak of 1 a sample", line(1.0), 7.86, false),
            ("shrinks", line(-1.0), -10.53, true),
            ("long and flat", vec![100.0; 60], 0.0, true),
        ];
        for (name, samples, growth, flat) in cases {
            let trend = trend(&all(&samples)).unwrap();
            assert!(
                (trend.growth_percent - growth).abs() < 0.01,
                "{name}: {trend:?}"
            );
            assert_eq!(trend.growth_percent <= BOUND_PERCENT, flat, "{name}");
        }
    }

    #[test]
    fn a_run_is_judged_from_its_tenth_minute_on() {
        for (minutes, judged_of_it) in [(4, 2), (10, 5), (20, 10), (30, 20), (60, 50)] {
            assert_eq!(
                judged(&all(&vec![1.0; minutes])).len(),
                judged_of_it,
                "{minutes}"
            );
        }
    }

    #[test]
    fn two_judged_samples_are_needed() {
        assert_eq!(trend(&[]), None);
        assert_eq!(trend(&all(&[1.0, 1.0])), None);
        assert!(trend(&all(&[1.0, 1.0, 1.0])).is_some());
    }
}
