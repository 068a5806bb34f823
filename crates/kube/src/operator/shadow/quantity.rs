//! Whether two quantities are the same amount: `1`, `1000m` and `1e0` are.

/// Powers of ten of the suffixes; the amounts are counted in 10⁻⁹.
const DECIMAL: [(&str, u32); 10] = [
    ("n", 0),
    ("u", 3),
    ("m", 6),
    ("", 9),
    ("k", 12),
    ("M", 15),
    ("G", 18),
    ("T", 21),
    ("P", 24),
    ("E", 27),
];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Whether both are quantities, and of the same amount.
pub(super) fn same(ours: &str, theirs: &str) -> bool {
    matches!((amount(ours), amount(theirs)), (Some(a), Some(b)) if a == b)
}

/// The amount in 10⁻⁹; nothing for a text that is none, or beyond all measure.
fn amount(text: &str) -> Option<i128> {
    let digits = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(digits)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let scale = scale(suffix)?;
    let places = u32::try_from(part.len()).ok()?;
    let joined: i128 = format!("{whole}{part}").parse().ok()?;
    joined
        .checked_mul(scale)?
        .checked_div(10_i128.checked_pow(places)?)
}

fn scale(suffix: &str) -> Option<i128> {
    let ten = |power: u32| 10_i128.checked_pow(power);
    if let Some((_, power)) = DECIMAL.into_iter().find(|(name, _)| *name == suffix) {
        return ten(power);
    }
    if let Some(index) = BINARY.into_iter().position(|name| name == suffix) {
        let power = u32::try_from(index).ok()? + 1;
        return 1024_i128.checked_pow(power)?.checked_mul(ten(9)?);
    }
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    ten(u32::try_from(power.checked_add(9)?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        let cases = [
            ("1", "1000m", true),
            ("0.5", "500m", true),
            ("1Gi", "1024Mi", true),
            ("1.5Gi", "1536Mi", true),
            ("1e3", "1k", true),
            ("1E", "1000P", true),
            ("1Gi", "1G", false),
            ("1", "2", false),
            ("x", "x", false),
            ("", "0", false),
            ("1e99", "1e99", false),
        ];
        for (a, b, want) in cases {
            assert_eq!(same(a, b), want, "{a} {b}");
        }
    }
}
