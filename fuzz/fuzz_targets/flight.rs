//! Any bytes end in a Flight Recorder dump or in an error, and any dump can be compared.
#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use trainyard_core::diagnose::{Doctor, Dump, Rules};

static RULES: OnceLock<Arc<Rules>> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    let rules = RULES.get_or_init(|| Arc::new(Rules::builtin()));
    if let Ok(dump) = Dump::read("nccl_trace_rank_0", bytes) {
        let mut doctor = Doctor::new(Arc::clone(rules));
        let mut other = dump.clone();
        other.rank = 1;
        doctor.dump(dump);
        doctor.dump(other);
        drop(doctor.finish());
    }
});
