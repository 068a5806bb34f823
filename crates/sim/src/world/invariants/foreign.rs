//! A job of another controller is never touched.

use trainyard_core::spec::Job;

use super::{Pass, Verdict, ensure};

const UNTOUCHED: &str = "another controller's job is never touched";

/// Whether another controller owns the job.
pub(super) fn is_foreign(job: &Job) -> bool {
    let manager = job.run_policy.managed_by.as_deref();
    manager.is_some_and(|manager| manager != job.kind.own_manager())
}

/// No action, no event, no status.
pub(super) fn untouched(pass: &Pass<'_>) -> Verdict {
    ensure!(
        UNTOUCHED,
        pass.decision.actions.is_empty() && pass.decision.events.is_empty(),
        "it is given {:?} and {:?}",
        pass.decision.actions,
        pass.decision.events
    );
    ensure!(
        UNTOUCHED,
        pass.decision.status == pass.observed.status,
        "its status changes"
    );
    Ok(())
}
