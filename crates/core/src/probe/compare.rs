//! What machines that should be alike differ in.

use std::collections::BTreeMap;

use super::{Check, Needs, Reading};

/// The checks that take the readings of several machines, by the name of the machine.
pub fn compare(
    readings: &BTreeMap<String, Reading>,
    needs: &Needs,
) -> BTreeMap<String, Vec<Check>> {
    let _ = (readings, needs);
    BTreeMap::new()
}
