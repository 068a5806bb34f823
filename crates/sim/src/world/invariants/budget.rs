//! Failures are paid once, on the right account, within the limit, and never forgotten.

use std::collections::BTreeSet;

use trainyard_core::{
    job::{Account, Action, ConditionType, JobStatus, PodPhase, Spent},
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
    let shrank = Account::ALL
        .into_iter()
        .any(|account| new.spent.of(account) < old.spent.of(account));
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
    for account in Account::ALL {
        let spent = after.trainyard.spent.of(account);
        let limits = world.stored.specs.iter().map(|job| limit(job, account));
        if let Some(Limit::At(largest)) = limits.max() {
            ensure!(
                HELD,
                spent <= largest.max(1),
                "the {} account has paid {spent}, its limit was {largest} at most",
                account.name()
            );
        }
    }
    Ok(())
}

/// A failure that reaches the limit of its account ends the job.
pub(super) fn spent_up_means_over(pass: &Pass<'_>) -> Verdict {
    let (before, after) = (&pass.observed.status, &pass.decision.status);
    if is_terminal(after) {
        return Ok(());
    }
    for account in Account::ALL {
        let spent = after.trainyard.spent.of(account);
        if spent > before.trainyard.spent.of(account)
            && let Limit::At(limit) = limit(pass.job, account)
        {
            ensure!(
                HELD,
                spent < limit.max(1),
                "the {} account has paid {spent} of {limit} and the job continues",
                account.name()
            );
        }
    }
    Ok(())
}

/// The failed pods that this pass replaces under pod scope: each is a restart, and has its price.
pub(crate) fn replaced<'a>(pass: &'a Pass<'_>) -> impl Iterator<Item = &'a str> {
    let status = &pass.decision.status;
    let replaces = pass.job.restart_scope() == RestartScope::Pod
        && !is_terminal(status)
        && !pass.job.run_policy.suspend
        && !pass.observed.being_deleted;
    let deleted = pass
        .decision
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::DeletePod { uid, .. } => Some(uid.as_str()),
            _ => None,
        });
    deleted.filter(move |uid| {
        let pod = pass.observed.pods.iter().find(|pod| pod.uid == **uid);
        replaces
            && pod.is_some_and(|pod| {
                pod.phase == PodPhase::Failed
                    && !pass.observed.status.trainyard.dismissed.contains(&pod.uid)
                    && pod.attempt == status.trainyard.attempt
                    && pod.slot.index < pass.job.role_replicas(pod.slot.role)
            })
    })
}

/// A restart is written down with its price before it is done.
pub(super) fn replaced_is_paid(world: &World) -> Verdict {
    let paid = total(&world.stored.status.trainyard.spent) as usize;
    ensure!(
        KEPT,
        world.controllers.replaced.len() <= paid,
        "{} failed pods were replaced, {paid} failures are paid",
        world.controllers.replaced.len()
    );
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
            .cluster
            .births
            .iter()
            .map(|birth| usize::from(birth.troubled) + birth.restarts as usize)
            .sum();
        let bearable = bearable + world.cluster.evicted.len();
        ensure!(
            ONCE,
            all <= bearable,
            "{all} failures are paid, {bearable} happened"
        );
        let own: usize = world
            .cluster
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
        .cluster
        .births
        .iter()
        .filter(|birth| birth.troubled)
        .map(|birth| birth.attempt)
        .chain(world.cluster.evicted.iter().copied())
        .collect();
    ensure!(
        ONCE,
        all <= troubled.len(),
        "{all} attempts are paid, {} had a failure",
        troubled.len()
    );
    let own: BTreeSet<u32> = world
        .cluster
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
            "attempt {} is paid and continues",
            old.attempt
        );
    } else if old.attempt > 0 && new.attempt > old.attempt {
        ensure!(
            ONCE,
            new.replicas != old.replicas
                || asked_for(job, before, after)
                || (world.temper.gives_seats && new.released == old.attempt)
                || says(before, ConditionType::Suspended)
                || after_suspension(job, after),
            "attempt {} follows attempt {} without a charge",
            new.attempt,
            old.attempt
        );
    }
    Ok(())
}

/// Whether a restart was asked for that the status did not know of.
fn asked_for(job: &Job, before: &JobStatus, after: &JobStatus) -> bool {
    let (old, new) = (&before.trainyard.restart, &after.trainyard.restart);
    new != old && new.is_some() && *new == job.settings.restart
}

fn after_suspension(job: &Job, after: &JobStatus) -> bool {
    job.run_policy.suspend || says(after, ConditionType::Suspended)
}

fn total(spent: &Spent) -> u32 {
    Account::ALL.map(|account| spent.of(account)).iter().sum()
}

/// The limit that the job states; what it leaves open is not limited here.
pub(super) fn limit(job: &Job, account: Account) -> Limit {
    let stated = &job.settings.budget;
    let limit = match account {
        Account::User => stated.user.or(job.run_policy.backoff_limit.map(Limit::At)),
        Account::Platform => stated.platform,
        Account::Infrastructure => stated.infrastructure,
        Account::Preemption => stated.preemption,
    };
    limit.unwrap_or(Limit::Unlimited)
}
