//! Every wait has a reason.

use super::Pass;
use crate::violation::{Verdict, ensure};

const REASON: &str = "every wait has a reason";

/// Every decision has a reason with a sentence.
pub(super) fn have_a_reason(pass: &Pass<'_>) -> Verdict {
    let reasons = &pass.decision.reasons;
    ensure!(
        REASON,
        !reasons.is_empty() && reasons.iter().all(|reason| !reason.to_string().is_empty()),
        "{} is decided about with {reasons:?}",
        pass.key
    );
    Ok(())
}
