//! The share of the printed peak that large matrix products reach: one number for each GPU and
//! precision, and the only numbers that a command fits.
//!
//! `cargo xtask bench plan --fit` prints them from `testdata/plan/published-runs.csv`; a test holds
//! this table to what it prints.

use super::hardware::Precision::{self, Bf16, Fp4, Fp8};

/// Fitted shares, in the order of the table of GPUs.
pub(super) static FITTED: [(&str, Precision, f64); 13] = [
    ("A100-80GB", Bf16, 0.825),
    ("A100-40GB", Bf16, 0.765),
    ("H100-80GB", Bf16, 0.660),
    ("H100-80GB", Fp8, 0.590),
    ("H100-96GB-HBM2e", Bf16, 0.545),
    ("H100-96GB-HBM2e", Fp8, 0.440),
    ("H200", Fp8, 0.535),
    ("B200", Fp8, 0.585),
    ("GB200", Bf16, 0.545),
    ("GB200", Fp8, 0.545),
    ("GB200", Fp4, 0.575),
    ("GB300", Fp8, 0.760),
    ("GB300", Fp4, 0.515),
];

/// GPUs without published runs of a precision, and the one whose share stands in: the same silicon, or
/// the same maker's next of kin.
static KIN: [(&str, &str); 13] = [
    ("A100-80GB-PCIe", "A100-80GB"),
    ("A100-40GB-PCIe", "A100-40GB"),
    ("H100-80GB-PCIe", "H100-80GB"),
    ("H100-94GB-NVL", "H100-80GB"),
    ("GH200", "H100-80GB"),
    ("A800-80GB", "A100-80GB"),
    ("H800-80GB", "H100-80GB"),
    ("H200", "H100-80GB"),
    ("H20", "H100-80GB"),
    ("B200", "GB200"),
    ("B300", "GB300"),
    ("GB300", "GB200"),
    ("V100-32GB", "A100-80GB"),
];

/// The share for a GPU; that of its kin where none was fitted, else a cautious one.
pub fn of(gpu: &str, precision: Precision) -> f64 {
    let fitted = |name: &str| {
        FITTED
            .iter()
            .find(|(of, at, _)| *of == name && *at == precision)
            .map(|(_, _, share)| *share)
    };
    let mut name = gpu;
    for _ in 0..=KIN.len() {
        if let Some(share) = fitted(name) {
            return share;
        }
        match KIN.iter().find(|(of, _)| *of == name) {
            Some((_, kin)) => name = kin,
            None => break,
        }
    }
    match precision {
        Bf16 => 0.60,
        Fp8 => 0.50,
        Fp4 => 0.45,
    }
}
