//! When a job has succeeded, and which role says whether it runs.

use std::collections::BTreeMap;

use super::{IndexSet, RoleStatus, mutant};
use crate::spec::{Framework, Job, Kind, Role, Success, TfSuccess};

/// The role whose pods say whether the job runs and has succeeded. A `TFJob` of parameter servers
/// and evaluators alone has none.
pub(super) fn deciding_role(job: &Job) -> Option<Role> {
    let declared = |role: Role| job.roles.contains_key(&role).then_some(role);
    match job.kind {
        Kind::PyTorch | Kind::Paddle => declared(Role::Master).or(declared(Role::Worker)),
        Kind::XgBoost => declared(Role::Master),
        Kind::Jax => declared(Role::Worker),
        Kind::Tf => declared(Role::Chief)
            .or(declared(Role::Master))
            .or(declared(Role::Worker)),
        Kind::MpiV1 | Kind::MpiV2 => declared(Role::Launcher),
        Kind::Train => declared(Role::Launcher).or(declared(Role::Node)),
    }
}

/// Whether the job has succeeded. `done` are the pods of this attempt that ended well.
pub(super) fn succeeded(
    job: &Job,
    counts: &BTreeMap<Role, RoleStatus>,
    done: &BTreeMap<Role, IndexSet>,
) -> bool {
    if let Some(own) = job.train() {
        let all_of = |role: &Role| {
            counts.get(role).map_or(0, |status| status.succeeded) >= job.role_replicas(*role)
        };
        return match &own.success {
            Success::All(roles) => roles.iter().all(all_of),
            Success::Any(roles) => roles.iter().any(all_of),
        };
    }
    let Some(role) = deciding_role(job) else {
        return false;
    };
    let wanted = job.role_replicas(role);
    let count = counts.get(&role).map_or(0, |status| status.succeeded);
    // A role without pods has done nothing, so it has not succeeded either.
    if (wanted > 0 || mutant::is(mutant::Mutant::NothingSucceeds)) && count >= wanted {
        return true;
    }
    if role != Role::Worker {
        return false;
    }
    let first_is_enough = match &job.framework {
        Framework::Tf(tf) => tf.success == TfSuccess::Default,
        _ => false,
    };
    let any_is_enough = job.elastic().is_some() || mutant::is(mutant::Mutant::FirstWorkerSucceeds);
    (any_is_enough && count > 0)
        || (first_is_enough && done.get(&Role::Worker).is_some_and(|done| done.contains(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        job::testing::{elastic, job, with_roles},
        spec::Tf,
    };
    use Role::{Chief, Evaluator, Launcher, Master, Ps, Worker};

    type Case = (&'static str, Job, Vec<(Role, &'static [u32])>, bool);

    fn verdict(job: &Job, done: &[(Role, &[u32])]) -> bool {
        let done: BTreeMap<Role, IndexSet> = done
            .iter()
            .map(|(role, done)| (*role, done.iter().copied().collect()))
            .collect();
        let counts = done
            .iter()
            .map(|(role, done)| {
                (
                    *role,
                    RoleStatus {
                        succeeded: done.len(),
                        ..RoleStatus::default()
                    },
                )
            })
            .collect();
        succeeded(job, &counts, &done)
    }

    #[test]
    fn rules_of_each_kind() {
        let all_workers = |job: Job| Job {
            framework: Framework::Tf(Tf {
                success: TfSuccess::AllWorkers,
                ..Tf::default()
            }),
            ..job
        };
        let pytorch = with_roles(job(Kind::PyTorch), &[(Master, 1), (Worker, 2)]);
        let ddp = with_roles(job(Kind::PyTorch), &[(Worker, 2)]);
        let tf = with_roles(job(Kind::Tf), &[(Chief, 1), (Worker, 2)]);
        let workers = with_roles(job(Kind::Tf), &[(Worker, 2), (Ps, 1)]);
        let cases: Vec<Case> = vec![
            ("master done", pytorch.clone(), vec![(Master, &[0])], true),
            (
                "workers alone are not enough",
                pytorch,
                vec![(Worker, &[0, 1])],
                false,
            ),
            ("all workers", ddp.clone(), vec![(Worker, &[0, 1])], true),
            ("one of two", ddp.clone(), vec![(Worker, &[0])], false),
            (
                "elastic: one of two",
                elastic(ddp, 1, 2),
                vec![(Worker, &[1])],
                true,
            ),
            ("chief", tf.clone(), vec![(Chief, &[0])], true),
            (
                "workers do not speak for the chief",
                tf,
                vec![(Worker, &[0, 1])],
                false,
            ),
            ("worker 0", workers.clone(), vec![(Worker, &[0])], true),
            ("worker 1", workers.clone(), vec![(Worker, &[1])], false),
            (
                "all-workers policy",
                all_workers(workers.clone()),
                vec![(Worker, &[0])],
                false,
            ),
            (
                "all-workers policy, all",
                all_workers(workers),
                vec![(Worker, &[0, 1])],
                true,
            ),
            ("launcher", job(Kind::MpiV1), vec![(Launcher, &[0])], true),
            (
                "launcher v2",
                job(Kind::MpiV2),
                vec![(Worker, &[0, 1])],
                false,
            ),
            (
                "no replicas",
                with_roles(job(Kind::Jax), &[(Worker, 0)]),
                vec![],
                false,
            ),
            (
                "evaluator only",
                with_roles(job(Kind::Tf), &[(Evaluator, 1)]),
                vec![(Evaluator, &[0])],
                false,
            ),
        ];
        for (name, job, done, want) in cases {
            assert_eq!(verdict(&job, &done), want, "{name}");
        }
    }
}
