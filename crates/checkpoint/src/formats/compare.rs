//! Two arrays of one type, element by element.

use trainyard_core::checkpoint::Dtype;

/// How two tensors differ. Two NaN count as equal; any other elements with different bits differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// Elements that were compared.
    pub elements: u64,
    /// Elements that differ.
    pub differing: u64,
    /// The largest absolute difference of two finite elements.
    pub max_abs: f64,
    /// The largest difference of two finite elements, divided by the larger absolute value of the two.
    pub max_rel: f64,
    /// The element with the largest absolute difference, counted row-major.
    pub at: u64,
    /// NaN in the first.
    pub nan_a: u64,
    /// NaN in the second.
    pub nan_b: u64,
    /// Differing elements of which one or both are infinite or one is NaN, and which have no difference that is a number.
    pub not_finite: u64,
}

impl Difference {
    fn add(&mut self, place: u64, distance: f64, larger: f64) {
        self.differing += 1;
        if !distance.is_finite() {
            self.not_finite += 1;
            return;
        }
        if distance > self.max_abs {
            self.max_abs = distance;
            self.at = place;
        }
        if larger > 0.0 {
            self.max_rel = self.max_rel.max(distance / larger);
        }
    }
}

/// Compares the same range of two tensors; `first` is the number of its first element.
pub fn compare(dtype: Dtype, a: &[u8], b: &[u8], first: u64, into: &mut Difference) {
    match dtype {
        Dtype::BOOL | Dtype::U8 => whole(a, b, first, into, |[one]: [u8; 1]| one.into()),
        Dtype::I8 => whole(a, b, first, into, |bytes| i8::from_le_bytes(bytes).into()),
        Dtype::U16 => whole(a, b, first, into, |bytes| u16::from_le_bytes(bytes).into()),
        Dtype::I16 => whole(a, b, first, into, |bytes| i16::from_le_bytes(bytes).into()),
        Dtype::U32 => whole(a, b, first, into, |bytes| u32::from_le_bytes(bytes).into()),
        Dtype::I32 => whole(a, b, first, into, |bytes| i32::from_le_bytes(bytes).into()),
        Dtype::U64 => whole(a, b, first, into, |bytes| u64::from_le_bytes(bytes).into()),
        Dtype::I64 => whole(a, b, first, into, |bytes| i64::from_le_bytes(bytes).into()),
        Dtype::F64 => floats(a, b, first, into, f64::from_le_bytes),
        Dtype::F32 => floats(a, b, first, into, |bytes| f32::from_le_bytes(bytes).into()),
        Dtype::BF16 => floats(a, b, first, into, bfloat16),
        Dtype::F16 => floats(a, b, first, into, |bytes| {
            small(u16::from_le_bytes(bytes).into(), HALF)
        }),
        Dtype::F8_E4M3 => floats(a, b, first, into, |[one]| small(one.into(), E4M3)),
        Dtype::F8_E4M3FNUZ => floats(a, b, first, into, |[one]| small(one.into(), E4M3_FNUZ)),
        Dtype::F8_E5M2 => floats(a, b, first, into, |[one]| small(one.into(), E5M2)),
        Dtype::F8_E5M2FNUZ => floats(a, b, first, into, |[one]| small(one.into(), E5M2_FNUZ)),
        Dtype::F8_E8M0 => floats(a, b, first, into, |[one]| match one {
            255 => f64::NAN,
            one => f64::from(i32::from(one) - 127).exp2(),
        }),
        Dtype::C64 => complex(a, b, first, into),
    }
}

fn pairs<'a, const N: usize>(
    a: &'a [u8],
    b: &'a [u8],
) -> impl Iterator<Item = ([u8; N], [u8; N])> + 'a {
    let (a, b) = (a.as_chunks::<N>().0, b.as_chunks::<N>().0);
    a.iter().copied().zip(b.iter().copied())
}

fn whole<const N: usize>(
    a: &[u8],
    b: &[u8],
    first: u64,
    into: &mut Difference,
    decode: impl Fn([u8; N]) -> i128,
) {
    into.elements += (a.len() / N) as u64;
    if a == b {
        return;
    }
    for (place, (a, b)) in (first..).zip(pairs::<N>(a, b)) {
        if a != b {
            let (a, b) = (decode(a), decode(b));
            let larger = a.unsigned_abs().max(b.unsigned_abs());
            into.add(place, to_float(a.abs_diff(b)), to_float(larger));
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a difference of 64-bit numbers, to be shown"
)]
fn to_float(number: u128) -> f64 {
    number as f64
}

fn floats<const N: usize>(
    a: &[u8],
    b: &[u8],
    first: u64,
    into: &mut Difference,
    decode: impl Fn([u8; N]) -> f64,
) {
    into.elements += (a.len() / N) as u64;
    for (place, (a, b)) in (first..).zip(pairs::<N>(a, b)) {
        let is_same = a == b;
        let (a, b) = (decode(a), decode(b));
        into.nan_a += u64::from(a.is_nan());
        into.nan_b += u64::from(b.is_nan());
        if is_same || (a.is_nan() && b.is_nan()) {
            continue;
        }
        into.add(place, (a - b).abs(), a.abs().max(b.abs()));
    }
}

fn complex(a: &[u8], b: &[u8], first: u64, into: &mut Difference) {
    into.elements += (a.len() / 8) as u64;
    let parts = |bytes: [u8; 8]| {
        let part = |at: usize| {
            let four = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            f64::from(f32::from_le_bytes(four))
        };
        (part(0), part(4))
    };
    for (place, (a, b)) in (first..).zip(pairs::<8>(a, b)) {
        let is_same = a == b;
        let ((ar, ai), (br, bi)) = (parts(a), parts(b));
        let (nan_a, nan_b) = (ar.is_nan() || ai.is_nan(), br.is_nan() || bi.is_nan());
        into.nan_a += u64::from(nan_a);
        into.nan_b += u64::from(nan_b);
        if is_same || (nan_a && nan_b) {
            continue;
        }
        let larger = ar.hypot(ai).max(br.hypot(bi));
        into.add(place, (ar - br).hypot(ai - bi), larger);
    }
}

fn bfloat16(bytes: [u8; 2]) -> f64 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16).into()
}

/// A float of at most 16 bits.
#[derive(Clone, Copy)]
struct Small {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    special: Special,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    /// The highest exponent is infinite or NaN.
    Ieee,
    /// Only all ones are NaN; nothing is infinite.
    AllOnes,
    /// Only a negative zero is NaN; nothing is infinite.
    NegativeZero,
}

const fn format(exponent: u32, mantissa: u32, bias: i32, special: Special) -> Small {
    Small {
        exponent,
        mantissa,
        bias,
        special,
    }
}

const HALF: Small = format(5, 10, 15, Special::Ieee);
const E4M3: Small = format(4, 3, 7, Special::AllOnes);
const E4M3_FNUZ: Small = format(4, 3, 8, Special::NegativeZero);
const E5M2: Small = format(5, 2, 15, Special::Ieee);
const E5M2_FNUZ: Small = format(5, 2, 16, Special::NegativeZero);

fn small(bits: u32, format: Small) -> f64 {
    let magnitude = bits & ((1 << (format.exponent + format.mantissa)) - 1);
    let is_negative = bits != magnitude;
    let exponent = magnitude >> format.mantissa;
    let mantissa = magnitude & ((1 << format.mantissa) - 1);
    let highest = (1 << format.exponent) - 1;
    let sign = if is_negative { -1.0 } else { 1.0 };
    match format.special {
        Special::NegativeZero if is_negative && magnitude == 0 => return f64::NAN,
        Special::AllOnes if magnitude == (1 << (format.exponent + format.mantissa)) - 1 => {
            return f64::NAN;
        }
        Special::Ieee if exponent == highest => {
            return if mantissa == 0 {
                sign * f64::INFINITY
            } else {
                f64::NAN
            };
        }
        _ => {}
    }
    let scale = f64::from(mantissa) / f64::from(1_u32 << format.mantissa);
    let power = |exponent: i32| f64::from(exponent).exp2();
    let exponent_value = i32::try_from(exponent).unwrap_or(0) - format.bias;
    if exponent == 0 {
        sign * scale * power(1 - format.bias)
    } else {
        sign * (1.0 + scale) * power(exponent_value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dtype: Dtype, a: &[u8], b: &[u8]) -> Difference {
        let mut difference = Difference::default();
        compare(dtype, a, b, 0, &mut difference);
        difference
    }

    /// Exactly this number.
    fn is(found: f64, wanted: f64) {
        assert_eq!(found.to_bits(), wanted.to_bits(), "{found} {wanted}");
    }

    fn bytes(numbers: &[f32]) -> Vec<u8> {
        numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    }

    #[test]
    fn floats_differ() {
        let a = bytes(&[1.0, 2.0, f32::NAN, 0.0, f32::INFINITY, f32::NAN]);
        let b = bytes(&[1.0, 2.5, f32::NAN, -0.0, 1.0, 3.0]);
        let found = of(Dtype::F32, &a, &b);
        assert_eq!((found.elements, found.differing), (6, 4));
        assert_eq!((found.max_abs, found.max_rel, found.at), (0.5, 0.2, 1));
        assert_eq!((found.nan_a, found.nan_b, found.not_finite), (2, 1, 2));
        // Two NaN with other bits are equal.
        let other = f32::from_bits(f32::NAN.to_bits() | 1);
        assert_eq!(
            of(Dtype::F32, &bytes(&[f32::NAN]), &bytes(&[other])).differing,
            0
        );
    }

    #[test]
    fn small_floats() {
        // Known values: format, bits, value.
        for (format, bits, value) in [
            (HALF, 0x3c00, 1.0_f64),
            (HALF, 0xc000, -2.0),
            (HALF, 0x0001, 2_f64.powi(-24)),
            (HALF, 0x7bff, 65_504.0),
            (HALF, 0x7c00, f64::INFINITY),
            (E4M3, 0x7e, 448.0),
            (E4M3, 0x01, 2_f64.powi(-9)),
            (E4M3, 0xb8, -1.0),
            (E4M3_FNUZ, 0x7f, 240.0),
            (E5M2, 0x7b, 57_344.0),
            (E5M2, 0xfc, f64::NEG_INFINITY),
            (E5M2_FNUZ, 0x7f, 57_344.0),
        ] {
            assert_eq!(small(bits, format).to_bits(), value.to_bits(), "{bits:x}");
        }
        for (format, bits) in [
            (E4M3, 0x7f),
            (E4M3, 0xff),
            (E4M3_FNUZ, 0x80),
            (E5M2, 0x7d),
            (HALF, 0x7e00),
        ] {
            assert!(small(bits, format).is_nan(), "{bits:x}");
        }
        is(bfloat16([0x80, 0xbf]), -1.0);
        is(of(Dtype::F8_E8M0, &[127], &[128]).max_abs, 1.0);
    }

    #[test]
    fn whole_numbers() {
        let (a, b) = (u64::MAX.to_le_bytes(), 0_u64.to_le_bytes());
        is(of(Dtype::U64, &a, &b).max_abs, 2_f64.powi(64));
        let (a, b) = (i64::MIN.to_le_bytes(), i64::MAX.to_le_bytes());
        let found = of(Dtype::I64, &a, &b);
        assert_eq!((found.max_abs, found.max_rel), (2_f64.powi(64), 2.0));
        assert_eq!(of(Dtype::BOOL, &[0, 1, 1], &[0, 1, 0]).differing, 1);
        is(of(Dtype::I8, &[0xff], &[1]).max_abs, 2.0);
        let (a, b) = (bytes(&[3.0, 0.0]), bytes(&[0.0, 4.0]));
        is(of(Dtype::C64, &a, &b).max_abs, 5.0);
    }
}
