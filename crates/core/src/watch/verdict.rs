//! A finding as the verdict on the attempt that it ends.

use super::{Cause, Finding};
use crate::{
    account::Account,
    diagnose::{Depth, Retry, Rules, VerdictSummary},
};

impl Finding {
    /// What the doctor would say of `attempt`: which failure budget it counts against, whether a retry helps and what to do are
    /// those of the label in `rules`.
    pub fn verdict(&self, attempt: u32, rules: &Rules) -> VerdictSummary {
        let name = self.cause.label();
        let label = rules.label(name);
        let place = match &self.cause {
            Cause::HangCpuSide { place } | Cause::HangAllAlike { place } => place.clone(),
            _ => None,
        };
        VerdictSummary {
            attempt,
            label: name.to_owned(),
            sentence: self.sentence(),
            ranks: self.ranks.clone(),
            nodes: Vec::new(),
            account: label.map_or(Account::Infrastructure, |label| label.account),
            retry: label.map_or(Retry::MayHelp, |label| label.retry),
            confidence: self.confidence,
            depth: Depth::Cause,
            place,
            exception: None,
            signature: None,
            next: label.map(|label| label.next.clone()).unwrap_or_default(),
        }
    }
}
