//! How many failures a job bears, and on whose account.
//!
//! Invariant: what is spent only grows, is stored in the same write as the restart it pays for,
//! and never passes the limit.

use super::{Account, FailedBy, Spent, messages::Fails, mutant};
use crate::spec::{Job, Kind, Limit};

/// Failures of the cluster's people and controllers that a job bears.
const PLATFORM: u32 = 100;
/// Failures of nodes that a job bears. Llama 3's 54-day run on 16,384 GPUs saw 419 unplanned
/// interruptions (arXiv 2407.21783, section 3.3.4), so 1,000 bounds a runaway without ending an
/// honest run.
const INFRASTRUCTURE: u32 = 1000;
/// Preemptions that a job bears.
const PREEMPTION: u32 = 1000;
/// What the launcher of an `MPIJob` v2beta1 bears when `backoffLimit` is not stated: the default
/// of the batch Job it was.
const MPI_LAUNCHER: u32 = 6;

/// An account that can bear no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exhausted {
    pub(super) account: Account,
    pub(super) limit: u32,
}

/// How many failures `account` bears; `None` is without bound.
pub(super) fn limit(job: &Job, account: Account) -> Option<u32> {
    let (stated, default) = match account {
        Account::User => {
            let default = match job.kind {
                Kind::MpiV2 => Some(MPI_LAUNCHER),
                _ => None,
            };
            (
                job.settings.budget.user,
                job.run_policy.backoff_limit.or(default),
            )
        }
        Account::Platform => (job.settings.budget.platform, Some(PLATFORM)),
        Account::Infrastructure => (job.settings.budget.infrastructure, Some(INFRASTRUCTURE)),
        Account::Preemption => (job.settings.budget.preemption, Some(PREEMPTION)),
    };
    let limit = match stated {
        Some(Limit::At(limit)) => Some(limit),
        Some(Limit::Unlimited) => None,
        None => default,
    };
    // A limit of 0 and of 1 are the same: the first failure ends the job.
    limit.map(|limit| limit.max(1))
}

/// Pays for `count` failures; says so when the account can bear no more.
pub(super) fn charge(
    spent: &mut Spent,
    job: &Job,
    account: Account,
    count: u32,
) -> Result<(), Exhausted> {
    let count = match () {
        () if mutant::is(mutant::Mutant::ForgetsCharge) => 0,
        () if mutant::is(mutant::Mutant::ChargesTwice) => count * 2,
        () => count,
    };
    let paid = spent.of_mut(account);
    *paid = paid.saturating_add(count);
    let Some(mut limit) = limit(job, account) else {
        return Ok(());
    };
    if mutant::is(mutant::Mutant::LimitOffByOne) {
        limit += 1;
    }
    if *paid < limit {
        return Ok(());
    }
    // Several failures can be seen at once; the job still fails at its limit, not beyond. A limit
    // that was lowered below what is spent already must not refund anything.
    *paid = limit.max(paid.saturating_sub(count));
    Err(Exhausted { account, limit })
}

impl Exhausted {
    /// The failure of the job.
    pub(super) fn fails(self, job: &Job) -> Fails {
        let name = &job.name;
        let message = match self.account {
            Account::User => {
                format!("Job {name} has failed because it has reached the specified backoff limit")
            }
            account => format!(
                "Job {name} has failed because its {} budget of {} failures is spent",
                account.name(),
                self.limit
            ),
        };
        Fails::new(FailedBy::BudgetSpent, message)
    }
}

impl Spent {
    /// What `account` has paid.
    pub fn of(&self, account: Account) -> u32 {
        match account {
            Account::User => self.user,
            Account::Platform => self.platform,
            Account::Infrastructure => self.infrastructure,
            Account::Preemption => self.preemption,
        }
    }

    fn of_mut(&mut self, account: Account) -> &mut u32 {
        match account {
            Account::User => &mut self.user,
            Account::Platform => &mut self.platform,
            Account::Infrastructure => &mut self.infrastructure,
            Account::Preemption => &mut self.preemption,
        }
    }
}

impl Account {
    /// Every account.
    pub const ALL: [Self; 4] = [
        Self::User,
        Self::Platform,
        Self::Infrastructure,
        Self::Preemption,
    ];

    /// The word for people and for the budget annotation.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Platform => "platform",
            Self::Infrastructure => "infrastructure",
            Self::Preemption => "preemption",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::testing::job;

    #[test]
    fn the_limit_is_the_number_of_attempts() {
        // backoffLimit, failures borne before the one that ends the job
        let cases = [(Some(0), 0), (Some(1), 0), (Some(2), 1), (Some(3), 2)];
        for (backoff_limit, borne) in cases {
            let mut job = job(Kind::PyTorch);
            job.run_policy.backoff_limit = backoff_limit;
            let mut spent = Spent::default();
            for _ in 0..borne {
                assert_eq!(
                    charge(&mut spent, &job, Account::User, 1),
                    Ok(()),
                    "{backoff_limit:?}"
                );
            }
            let limit = borne + 1;
            let ended = Err(Exhausted {
                account: Account::User,
                limit,
            });
            assert_eq!(
                charge(&mut spent, &job, Account::User, 1),
                ended,
                "{backoff_limit:?}"
            );
            assert_eq!(spent.user, limit);
        }
    }

    #[test]
    fn accounts_do_not_pay_for_each_other() {
        let mut job = job(Kind::PyTorch);
        job.run_policy.backoff_limit = Some(1);
        job.settings.budget.preemption = Some(Limit::At(2));
        job.settings.budget.infrastructure = Some(Limit::Unlimited);
        let mut spent = Spent::default();
        for _ in 0..2000 {
            assert_eq!(charge(&mut spent, &job, Account::Infrastructure, 1), Ok(()));
        }
        assert_eq!(charge(&mut spent, &job, Account::Preemption, 1), Ok(()));
        assert!(charge(&mut spent, &job, Account::Preemption, 1).is_err());
        assert_eq!(
            spent,
            Spent {
                user: 0,
                platform: 0,
                infrastructure: 2000,
                preemption: 2
            }
        );
    }

    #[test]
    fn charges_stop_at_the_limit() {
        let mut job = job(Kind::PyTorch);
        job.run_policy.backoff_limit = Some(3);
        let mut spent = Spent {
            user: 2,
            ..Spent::default()
        };
        assert!(charge(&mut spent, &job, Account::User, 5).is_err());
        assert_eq!(spent.user, 3);
        job.run_policy.backoff_limit = Some(1);
        assert!(charge(&mut spent, &job, Account::User, 1).is_err());
        assert_eq!(spent.user, 3);
    }

    #[test]
    fn without_a_limit_there_is_none() {
        assert_eq!(limit(&job(Kind::PyTorch), Account::User), None);
        assert_eq!(limit(&job(Kind::MpiV2), Account::User), Some(6));
        assert_eq!(limit(&job(Kind::Jax), Account::Infrastructure), Some(1000));
    }
}
