//! Kubernetes quantities, such as `500m`, `64Mi` or `2e3`, as whole numbers.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Thousandths of the unit, rounded up; `None` where the text is not a quantity.
pub fn milli(quantity: &Quantity) -> Option<i128> {
    let text = quantity.0.trim();
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let (numerator, denominator): (i128, i128) = match suffix {
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "" => (1, 1),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10i128.checked_pow(exponent.unsigned_abs())?;
            if exponent < 0 { (1, power) } else { (power, 1) }
        }
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let (negative, whole) = match whole.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, whole.strip_prefix('+').unwrap_or(whole)),
    };
    if whole.is_empty() && fraction.is_empty() || fraction.len() > 18 {
        return None;
    }
    let scale = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let value = digits.checked_mul(numerator)?.checked_mul(1000)?;
    let divisor = denominator.checked_mul(scale)?;
    let rounded = value.checked_add(divisor - 1)? / divisor;
    Some(if negative { -rounded } else { rounded })
}

/// Whole units, rounded up; `None` where the text is not a quantity or it is negative.
pub fn units(quantity: &Quantity) -> Option<u64> {
    let milli = milli(quantity)?;
    u64::try_from(milli.checked_add(999)? / 1000)
        .ok()
        .filter(|_| milli >= 0)
}

/// Whether devices of that name compute.
pub fn is_accelerator(name: &str) -> bool {
    let Some((vendor, device)) = name.split_once('/') else {
        return false;
    };
    device == "gpu"
        || device == "tpu"
        || device.starts_with("gaudi")
        || device.starts_with("mig-")
        || device.starts_with("gpu.")
        || (vendor == "aws.amazon.com" && device.starts_with("neuron"))
        || (vendor == "gpu.intel.com" && !device.contains("monitoring"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        let cases: &[(&str, Option<i128>)] = &[
            ("1", Some(1000)),
            ("500m", Some(500)),
            ("0.5", Some(500)),
            (".5", Some(500)),
            ("64Mi", Some(67_108_864_000)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("2e3", Some(2_000_000)),
            ("1E", Some(1_000_000_000_000_000_000_000)),
            ("1n", Some(1)),
            ("-1", Some(-1000)),
            ("170141183460469231731687303715884105m", None),
            ("", None),
            ("Gi", None),
            ("1.2.3", None),
            ("1Zi", None),
            ("1e99", None),
        ];
        for (text, want) in cases {
            assert_eq!(milli(&Quantity((*text).to_owned())), *want, "{text:?}");
        }
        assert_eq!(units(&Quantity("1500m".to_owned())), Some(2));
        assert_eq!(units(&Quantity("-1".to_owned())), None);
    }
}
