//! Prices as whole numbers, so that sums are exact.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

/// The largest price of one node: nothing costs a million an hour.
const MAX: f64 = 1_000_000.0;

/// What a node, or several, cost in one hour, in millionths of the currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(u64);

impl Price {
    /// A price of so many millionths.
    pub fn of_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The price in millionths.
    pub fn micros(self) -> u64 {
        self.0
    }

    /// A price from a number or a text such as `98.32`; none for what is not from 0 to 1,000,000.
    pub fn parse(value: &Value) -> Option<Self> {
        let number = match value {
            Value::Number(number) => number.as_f64()?,
            Value::String(text) => text.trim().parse().ok()?,
            _ => return None,
        };
        if !(0.0..=MAX).contains(&number) {
            return None;
        }
        // Written out and read back: six digits after the point are millionths.
        let digits = format!("{:.6}", number.abs()).replace('.', "");
        digits.parse().ok().map(Self)
    }

    /// The price of `count` of them.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let mut digits = format!("{rest:06}");
        while digits.len() > 2 && digits.ends_with('0') {
            digits.pop();
        }
        write!(f, "{whole}.{digits}")
    }
}

impl Serialize for Price {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number: f64 = self.to_string().parse().unwrap_or_default();
        serializer.serialize_f64(number)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prices_are_read_or_refused() {
        let cases = [
            (json!(98.32), Some(98_320_000)),
            (json!(0), Some(0)),
            (json!("1.5"), Some(1_500_000)),
            (json!(0.000_000_4), Some(0)),
            (json!(1_000_000), Some(1_000_000_000_000)),
            (json!(-0.01), None),
            (json!("-1"), None),
            (json!("NaN"), None),
            (json!("inf"), None),
            (json!(1e300), None),
            (json!(1_000_001), None),
            (json!(null), None),
            (json!([1]), None),
            (json!("12 USD"), None),
        ];
        for (value, want) in cases {
            assert_eq!(Price::parse(&value).map(Price::micros), want, "{value}");
        }
    }

    #[test]
    fn sums_are_exact_and_never_overflow() {
        let dime = Price::of_micros(100_000);
        assert_eq!(dime.times(3).to_string(), "0.30");
        assert_eq!(Price::of_micros(1_234_567).to_string(), "1.234567");
        assert_eq!(Price::of_micros(u64::MAX).times(2).micros(), u64::MAX);
        assert_eq!(Price::of_micros(u64::MAX).plus(dime).micros(), u64::MAX);
        assert_eq!(serde_json::to_string(&dime.times(5)).unwrap(), "0.5");
    }
}
