//! Ratios and middles of whole numbers.

/// `part` of `whole`; 0 of nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    float(part) / float(whole)
}

/// For sentences and shares: a value beyond 2⁵³ ns is more than 100 days.
#[expect(
    clippy::cast_precision_loss,
    reason = "the result is printed with three digits"
)]
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}

/// The middle value; 0 of none. Orders `values`.
pub(crate) fn median<T: Copy + Default + Ord>(values: &mut [T]) -> T {
    quantile(values, 1, 2)
}

/// The value below which `part` of `whole` lie; 0 of none. Orders `values`.
pub(crate) fn quantile<T: Copy + Default + Ord>(values: &mut [T], part: usize, whole: usize) -> T {
    values.sort_unstable();
    let at = values.len().saturating_mul(part) / whole.max(1);
    let last = values.len().saturating_sub(1);
    values.get(at.min(last)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let cases: [(&[u64], u64, u64); 4] = [
            (&[], 0, 0),
            (&[7], 7, 7),
            (&[3, 1, 2], 2, 3),
            (&[4, 3, 2, 1], 3, 4),
        ];
        for (values, middle, high) in cases {
            let mut values = values.to_vec();
            assert_eq!(median(&mut values), middle, "{values:?}");
            assert_eq!(quantile(&mut values, 9, 10), high, "{values:?}");
        }
        assert!((share(1, 4) - 0.25).abs() < f64::EPSILON);
        assert!(share(1, 0).abs() < f64::EPSILON);
    }
}
