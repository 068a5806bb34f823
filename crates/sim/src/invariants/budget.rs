//! Failures are paid once, on the right account, within the limit, and never forgotten.

use std::collections::BTreeSet;

use trainyard_core::{
    job::{ConditionType, JobStatus, Spent},
    spec::{Job, Limit, RestartScope},
};

use super::{Pass, Verdict, ensure, is_terminal, says};
use crate::world::World;

const KEPT: &str = "the budget is never lost";
const HELD: &str = "the budget is never exceeded";
const ONCE: &str = "every failure is paid exactly once";

/// Neither the attempt nor any account ever goes back.
pub(super) fn never_shrinks(before: &JobStatus, after: &JobStatus) -> Verdict {
    let (old, new) = (&before.trainyard, &after.trainyard);
    ensure!(
        KEPT,
        new.attempt >= old.attempt,
        "attempt went from {} to {}",
        old.attempt,
        new.attempt
    );
    let shrank = accounts(&old.spent)
        .into_iter()
        .zip(accounts(&new.spent))
        .any(|(old, new)| new < old);
    ensure!(
        KEPT,
        !shrank,
        "spent went from {:?} to {:?}",
        old.spent,
        new.spent
    );
    Ok(())
}

/// No account has paid more than the largest limit that it ever had.
pub(super) fn within_limits(after: &JobStatus, world: &World) -> Verdict {
    for (account, spent) in accounts(&after.trainyard.spent).into_iter().enumerate() {
        let largest = world
            .specs
            .iter()
            .map(|job| limits(job)[account])
            .max()
            .unwrap_or(Limit::Unlimited);
        if let Limit::At(largest) = largest {
            ensure!(
                HELD,
                spent <= largest.max(1),
                "account {account} has paid {spent}, its limit was {largest} at most"
            );
        }
    }
    Ok(())
}

/// An account that has paid up to its limit has ended the job.
pub(super) fn spent_up_means_over(pass: &Pass<'_>) -> Verdict {
    let status = &pass.decision.status;
    if *status == pass.observed.status
        || pass.job.run_policy.suspend
        || pass.observed.being_deleted
        || is_terminal(status)
    {
        return Ok(());
    }
    for (account, spent) in accounts(&status.trainyard.spent).into_iter().enumerate() {
        if let Limit::At(limit) = limits(pass.job)[account] {
            ensure!(
                HELD,
                spent < limit.max(1),
                "account {account} has paid {spent} of {limit} and the job goes on"
            );
        }
    }
    Ok(())
}

/// What is paid is borne out by what went wrong, and a new attempt is paid for.
pub(super) fn paid_once(
    job: &Job,
    before: &JobStatus,
    after: &JobStatus,
    world: &World,
) -> Verdict {
    let (old, new) = (&before.trainyard, &after.trainyard);
    let paid = total(&new.spent) - total(&old.spent);
    let all = total(&new.spent) as usize;
    if job.restart_scope() == RestartScope::Pod {
        let bearable: usize = world
            .births
            .iter()
            .map(|birth| usize::from(birth.troubled) + birth.restarts as usize)
            .sum();
        ensure!(
            ONCE,
            all <= bearable,
            "{all} failures are paid, {bearable} happened"
        );
        let own: usize = world
            .births
            .iter()
            .map(|birth| usize::from(birth.failed_alone.is_some()) + birth.restarts as usize)
            .sum();
        ensure!(
            ONCE,
            new.spent.user as usize <= own,
            "{} failures are paid by the user, {own} were the program's",
            new.spent.user
        );
        return Ok(());
    }
    let troubled: BTreeSet<u32> = world
        .births
        .iter()
        .filter(|birth| birth.troubled)
        .map(|birth| birth.attempt)
        .collect();
    ensure!(
        ONCE,
        all <= troubled.len(),
        "{all} attempts are paid, {} had a failure",
        troubled.len()
    );
    let own: BTreeSet<u32> = world
        .births
        .iter()
        .filter(|birth| birth.failed_alone.is_some())
        .map(|birth| birth.attempt)
        .collect();
    ensure!(
        ONCE,
        new.spent.user as usize <= own.len(),
        "{} attempts are paid by the user, {} failed by the program",
        new.spent.user,
        own.len()
    );
    ensure!(ONCE, paid <= 1, "{paid} failures are paid in one write");
    if paid == 1 {
        ensure!(
            ONCE,
            troubled.contains(&old.attempt),
            "attempt {} is paid and had no failure",
            old.attempt
        );
        ensure!(
            ONCE,
            new.attempt == old.attempt + 1 || is_terminal(after) || after_suspension(job, after),
            "attempt {} is paid and goes on",
            old.attempt
        );
    } else if old.attempt > 0 && new.attempt > old.attempt {
        ensure!(
            ONCE,
            new.replicas != old.replicas
                || says(before, ConditionType::Suspended)
                || after_suspension(job, after),
            "attempt {} follows attempt {} and nobody paid",
            new.attempt,
            old.attempt
        );
    }
    Ok(())
}

fn after_suspension(job: &Job, after: &JobStatus) -> bool {
    job.run_policy.suspend || says(after, ConditionType::Suspended)
}

fn accounts(spent: &Spent) -> [u32; 4] {
    [
        spent.user,
        spent.platform,
        spent.infrastructure,
        spent.preemption,
    ]
}

fn total(spent: &Spent) -> u32 {
    accounts(spent).into_iter().sum()
}

/// The limits that the job states; what it leaves open is not limited here.
fn limits(job: &Job) -> [Limit; 4] {
    let stated = &job.knobs.budget;
    let backoff = job.run_policy.backoff_limit.map(Limit::At);
    [
        stated.user.or(backoff),
        stated.platform,
        stated.infrastructure,
        stated.preemption,
    ]
    .map(|limit| limit.unwrap_or(Limit::Unlimited))
}
