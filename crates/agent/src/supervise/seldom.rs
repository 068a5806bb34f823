//! Log lines about what may happen again and again.

use std::collections::BTreeMap;

use crate::log_message;

/// Logs the first of each kind, and then whenever their number has doubled: at most 64 lines, however often it happens.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    counts: BTreeMap<&'static str, u64>,
}

impl Seldom {
    /// Logs `what: why`, where it is one that is logged.
    pub(crate) fn log(&mut self, what: &'static str, why: &str) {
        let count = self.counts.entry(what).or_default();
        *count = count.saturating_add(1);
        match *count {
            1 => log_message(&format!("{what}: {why}")),
            count if count.is_power_of_two() => {
                log_message(&format!("{what} ({count} times): {why}"));
            }
            _ => {}
        }
    }

    /// It works: the next time is the first again.
    pub(crate) fn forget(&mut self, what: &'static str) {
        self.counts.remove(what);
    }
}
