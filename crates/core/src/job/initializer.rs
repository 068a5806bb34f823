//! Initializers of a `TrainJob`: they run before the gang and by themselves.
//!
//! One that fails runs again without the others, and pays from a budget of its own: a download that is flaky takes no
//! attempt from the training. An initializer that runs while the gang restarts is left alone.
//!
//! Invariant: a failed pod is charged once, because it is dismissed in the same status.

use super::{
    Account, EventKind, EventReason, FailedBy,
    cause::Failure,
    messages::{self, Fails},
    pass::Pass,
    recover,
    roster::Roster,
    verdict,
};
use crate::spec::{Job, Role};

/// What a batch Job bears where it states no `backoffLimit`.
const RETRIES: u32 = 6;

/// Answers every failure of an initializer. The error is why the job fails.
pub(super) fn recover(pass: &mut Pass<'_>, roster: &Roster<'_>) -> Result<(), Fails> {
    if !pass.job.roles.keys().any(|role| role.is_initializer()) {
        return Ok(());
    }
    let mut failures = recover::failures(pass, roster);
    failures.retain(|failure| failure.slot.role.is_initializer());
    for failure in &failures {
        let pods = roster.notable.iter();
        let pods = pods.filter(|pod| pod.slot == failure.slot);
        let uids: Vec<_> = pods.map(|pod| pod.uid.clone()).collect();
        pass.status.trainyard.dismissed.extend(uids);
        let account = verdict::account(pass, failure);
        if account == Account::User {
            charge(pass, failure)?;
        } else {
            recover::charge_restart(pass, failure, account)?;
        }
    }
    Ok(())
}

/// How often an initializer runs again after a failure of its program.
fn retries(job: &Job, role: Role) -> u32 {
    let stated = job.train().and_then(|own| own.retries.get(&role));
    stated.copied().unwrap_or(RETRIES)
}

fn charge(pass: &mut Pass<'_>, failure: &Failure) -> Result<(), Fails> {
    let role = failure.slot.role;
    recover::remember(pass, failure, Account::User);
    let limit = retries(pass.job, role);
    let failed = pass.status.trainyard.initializers.entry(role).or_default();
    *failed = failed.saturating_add(1);
    let failed = *failed;
    let name = pass.job.pod_name(failure.slot);
    if failed > limit {
        let message = format!(
            "Job {} has failed because its {} failed {failed} times: pod {name}: {}",
            pass.job.name,
            role.lower(),
            failure.cause
        );
        return Err(Fails::new(FailedBy::BudgetSpent, message));
    }
    if let Some(pause) = recover::pause_after(failure, failed)
        && let Ok(at) = pass.now.checked_add(pause)
    {
        let retry_at = &mut pass.status.trainyard.retry_at;
        *retry_at = (*retry_at).max(Some(at));
    }
    let message = format!(
        "{} Pod `{name}`: {}. Retries of the initializer: {failed} of {limit} used.",
        messages::restarting(pass.job, failure),
        failure.cause,
    );
    pass.emit(EventKind::Warning, EventReason::Restarting, message);
    Ok(())
}
