//! What a failed pod means for the job: its role's restart policy.

use super::cause::{Cause, Failure};
use super::{Account, mutant};
use crate::spec::{Compat, Framework, Job, Kind, RestartPolicy, RestartScope, Role};

/// First exit code that asks for a restart under `ExitCode`: 128 + a signal's number.
pub(super) const RETRYABLE: i32 = 128;

/// What one failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// The pod, or its gang, runs again.
    Restart,
    /// The job has failed.
    Fail,
    /// The job continues without the pod.
    Bear,
}

/// What `failure` means for `job`.
pub(super) fn response(job: &Job, failure: &Failure) -> Response {
    let role = failure.slot.role;
    let response = by_policy(job, policy(job, role), failure.cause);
    match response {
        // A failure of the program is ignored; a pod that was removed is replaced.
        Response::Fail if bears(job, role) && failure.cause.account() == Account::User => {
            Response::Bear
        }
        Response::Fail if bears(job, role) => Response::Restart,
        response => response,
    }
}

/// Whether the failure ends the job by an exit code that means stop.
pub(super) fn is_permanent(job: &Job, failure: &Failure) -> bool {
    policy(job, failure.slot.role) == RestartPolicy::ExitCode && failure.cause.exit_code().is_some()
}

/// The policy that answers for `role`.
///
/// A worker of an `MPIJob` v2beta1 only lends its place to ranks that the launcher starts, so under
/// gang scope the launcher's policy answers for it: otherwise a job with default policies could
/// never replace a worker.
fn policy(job: &Job, role: Role) -> RestartPolicy {
    let role = match job.kind {
        Kind::MpiV2 if job.restart_scope() == RestartScope::Gang => Role::Launcher,
        _ => role,
    };
    job.roles
        .get(&role)
        .map(|spec| spec.restart_policy)
        .unwrap_or_default()
}

fn by_policy(job: &Job, policy: RestartPolicy, cause: Cause) -> Response {
    let xgboost_fails =
        job.kind == Kind::XgBoost && job.settings.compat.contains(&Compat::XgboostFails);
    match policy {
        RestartPolicy::Always | RestartPolicy::OnFailure if xgboost_fails => Response::Fail,
        RestartPolicy::Always | RestartPolicy::OnFailure => Response::Restart,
        RestartPolicy::ExitCode => match cause.exit_code() {
            Some(code)
                if code < RETRYABLE && !mutant::is(mutant::Mutant::RestartsPermanentFailures) =>
            {
                Response::Fail
            }
            _ => Response::Restart,
        },
        RestartPolicy::Never => {
            // The program did not fail when its pod was removed.
            let program_failed = cause.account() == Account::User;
            if program_failed || job.settings.compat.contains(&Compat::DisruptionsFail) {
                Response::Fail
            } else {
                Response::Restart
            }
        }
    }
}

/// Whether the job continues without failed pods of `role`.
fn bears(job: &Job, role: Role) -> bool {
    match &job.framework {
        Framework::Tf(tf) => tf.dynamic_worker && role == Role::Worker,
        // The launcher's outcome is the job's.
        Framework::MpiV2(_) => job.restart_scope() == RestartScope::Pod && role == Role::Worker,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        job::{Disruption, testing::job},
        spec::{Slot, Tf},
    };
    use Response::{Bear, Fail, Restart};
    use RestartPolicy::{Always, ExitCode, Never, OnFailure};

    const CRASH: Cause = Cause::Exited {
        code: 1,
        out_of_memory: false,
    };
    const SIGNAL: Cause = Cause::Exited {
        code: 130,
        out_of_memory: false,
    };
    const EVICTED: Cause = Cause::Disrupted {
        by: Disruption::Evicted,
    };

    fn answer(job: &Job, role: Role, cause: Cause) -> Response {
        response(
            job,
            &Failure {
                slot: Slot::new(role, 0),
                cause,
                at: None,
            },
        )
    }

    #[test]
    fn policies() {
        let cases = [
            (Always, CRASH, Restart),
            (OnFailure, CRASH, Restart),
            (OnFailure, EVICTED, Restart),
            (ExitCode, CRASH, Fail),
            (
                ExitCode,
                Cause::Exited {
                    code: 0,
                    out_of_memory: false,
                },
                Fail,
            ),
            (
                ExitCode,
                Cause::Exited {
                    code: 127,
                    out_of_memory: false,
                },
                Fail,
            ),
            (
                ExitCode,
                Cause::Exited {
                    code: 128,
                    out_of_memory: false,
                },
                Restart,
            ),
            (ExitCode, SIGNAL, Restart),
            (ExitCode, Cause::NoExitCode, Restart),
            (ExitCode, Cause::NodeLost, Restart),
            (Never, CRASH, Fail),
            (Never, SIGNAL, Fail),
            (Never, EVICTED, Restart),
            (Never, Cause::NodeLost, Restart),
            (Never, Cause::Vanished, Restart),
        ];
        for (policy, cause, want) in cases {
            let mut job = job(Kind::PyTorch);
            job.roles.get_mut(&Role::Worker).unwrap().restart_policy = policy;
            assert_eq!(
                answer(&job, Role::Worker, cause),
                want,
                "{policy:?} {cause:?}"
            );
        }
    }

    #[test]
    fn compat_brings_the_old_answers_back() {
        let mut never = job(Kind::Tf);
        never.settings.compat.insert(Compat::DisruptionsFail);
        assert_eq!(answer(&never, Role::Worker, EVICTED), Fail);
        let mut xgboost = job(Kind::XgBoost);
        xgboost.roles.get_mut(&Role::Worker).unwrap().restart_policy = OnFailure;
        assert_eq!(answer(&xgboost, Role::Worker, CRASH), Restart);
        xgboost.settings.compat.insert(Compat::XgboostFails);
        assert_eq!(answer(&xgboost, Role::Worker, CRASH), Fail);
    }

    #[test]
    fn roles_that_a_job_can_do_without() {
        let mut tf = job(Kind::Tf);
        tf.framework = Framework::Tf(Tf {
            dynamic_worker: true,
            ..Tf::default()
        });
        assert_eq!(answer(&tf, Role::Worker, CRASH), Bear);
        assert_eq!(answer(&tf, Role::Chief, CRASH), Fail);
        let mut mpi = job(Kind::MpiV2);
        assert_eq!(
            answer(&mpi, Role::Worker, CRASH),
            Restart,
            "as the launcher's policy"
        );
        mpi.settings.restart_scope = Some(RestartScope::Pod);
        assert_eq!(answer(&mpi, Role::Worker, CRASH), Bear);
    }

    #[test]
    fn only_exit_codes_are_permanent() {
        let mut job = job(Kind::PyTorch);
        job.roles.get_mut(&Role::Worker).unwrap().restart_policy = ExitCode;
        let failure = |cause| Failure {
            slot: Slot::new(Role::Worker, 0),
            cause,
            at: None,
        };
        assert!(is_permanent(&job, &failure(CRASH)));
        assert!(!is_permanent(&job, &failure(Cause::NodeLost)));
    }
}
