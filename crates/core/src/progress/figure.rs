//! A number as a training program reports it: also NaN and infinite.

use std::{cmp::Ordering, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A reported number, such as a loss.
///
/// It is stored as text (`"0.6602"`, `"NaN"`, `"inf"`, `"-inf"`): JSON has no NaN, and a field that is a number in one
/// job and text in the next breaks typed clients. A number is read too.
///
/// Two NaNs are equal: a status that holds one must equal itself, or it would be written again in every pass.
#[derive(Clone, Copy, Debug)]
pub struct Figure(pub f64);

impl Figure {
    /// Whether it is neither NaN nor infinite.
    pub fn is_finite(self) -> bool {
        self.0.is_finite()
    }

    /// Its bits; every NaN is one.
    fn canonical(self) -> f64 {
        if self.0.is_nan() {
            f64::NAN
        } else {
            // Adding zero turns a negative zero into zero.
            self.0 + 0.0
        }
    }
}

impl PartialEq for Figure {
    fn eq(&self, other: &Self) -> bool {
        self.canonical().total_cmp(&other.canonical()) == Ordering::Equal
    }
}

impl Eq for Figure {}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.canonical(), f)
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let size = self.0.abs();
        if self.is_finite() && size != 0.0 && !(1e-5..1e15).contains(&size) {
            return serializer.collect_str(&format_args!("{:e}", self.0));
        }
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Figure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrNumber)
    }
}

struct TextOrNumber;

impl de::Visitor<'_> for TextOrNumber {
    type Value = Figure;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or one as text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Figure, E> {
        let number = text.parse();
        number
            .map(Figure)
            .map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Figure, E> {
        Ok(Figure(number))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a loss that large has no digits behind the point"
    )]
    fn visit_u64<E>(self, number: u64) -> Result<Figure, E> {
        Ok(Figure(number as f64))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a loss that large has no digits behind the point"
    )]
    fn visit_i64<E>(self, number: i64) -> Result<Figure, E> {
        Ok(Figure(number as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_round_trip() {
        let cases = [
            (0.6602, r#""0.6602""#),
            (2.0, r#""2""#),
            (0.0, r#""0""#),
            (-0.0, r#""0""#),
            (1e-7, r#""1e-7""#),
            (-3.25e300, r#""-3.25e300""#),
            (f64::NAN, r#""NaN""#),
            (-f64::NAN, r#""NaN""#),
            (f64::INFINITY, r#""inf""#),
            (f64::NEG_INFINITY, r#""-inf""#),
        ];
        for (number, text) in cases {
            let stored = serde_json::to_string(&Figure(number)).unwrap();
            assert_eq!(stored, text);
            let read: Figure = serde_json::from_str(&stored).unwrap();
            assert_eq!(read, Figure(number));
        }
        for (stored, number) in [("0.5", 0.5), ("3", 3.0), ("-3", -3.0)] {
            let read: Figure = serde_json::from_str(stored).unwrap();
            assert_eq!(read, Figure(number));
        }
        for wrong in [r#""many""#, "[]", "null"] {
            assert!(serde_json::from_str::<Figure>(wrong).is_err(), "{wrong}");
        }
        assert_ne!(Figure(f64::NAN), Figure(1.0));
        assert_ne!(Figure(f64::INFINITY), Figure(f64::NEG_INFINITY));
    }
}
