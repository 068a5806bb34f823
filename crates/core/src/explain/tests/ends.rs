//! Jobs that are over.

use super::*;

pub(super) fn of_ends() -> Vec<Named> {
    use Standing::{Failed, Stopped, Succeeded};
    let limit = "Job j has failed because it has reached the specified backoff limit";
    let deadline = "Job j has failed because it was active longer than specified deadline";
    let spent = |facts: &mut Facts| {
        facts.status.trainyard.spent = Spent {
            user: 3,
            ..Spent::default()
        };
    };
    vec![
        (
            "succeeded",
            facts().with(|facts| {
                let done = condition(ConditionType::Succeeded, "PyTorchJob j is done.");
                facts.status.conditions.push(done);
            }),
            Cause::Succeeded,
            Succeeded,
            vec!["succeeded"],
        ),
        (
            "succeeded with NaN",
            facts().with(|facts| {
                let done = condition(ConditionType::Succeeded, "PyTorchJob j is done.");
                facts.status.conditions.push(done);
                let mut progress = ProgressRecord::from(&Progress::new(1, 200, at(50)));
                progress.nan_since = Some(20);
                facts.status.trainyard.progress = Some(progress);
            }),
            Cause::Succeeded,
            Succeeded,
            vec![
                "it succeeded in attempt 1, but loss is NaN since step 20",
                "check what it saved",
            ],
        ),
        (
            "a program that failed three times",
            facts().failed(limit, Some(exit(1, false))).with(spent),
            Cause::ContainerFailed,
            Failed,
            vec![
                "pod `j-worker-1` ended with exit code 1",
                "all 3 attempts",
                "logs --first-failure j --cluster -n team",
                "delete j",
            ],
        ),
        (
            "a command that is not there",
            facts().failed("", Some(exit(127, false))),
            Cause::ContainerFailed,
            Failed,
            vec!["the command was not found", "correct `command`"],
        ),
        (
            "a signal",
            facts().failed("", Some(exit(139, false))),
            Cause::ContainerFailed,
            Failed,
            vec!["SIGSEGV"],
        ),
        (
            "out of memory",
            facts().failed("", Some(exit(137, true))),
            Cause::OutOfMemory,
            Failed,
            vec!["ran out of memory", "above 8Gi"],
        ),
        (
            "pods that were removed explain the crashes",
            facts().failed("", Some(exit(1, false))).with(|facts| {
                facts.pods[0].disruption = Some(Disruption::NodePressure);
            }),
            Cause::PodsTaken,
            Failed,
            vec!["pod `j-worker-0`", "ran short of memory or disk"],
        ),
        (
            "out of memory, and no pod left",
            facts().failed("", None).with(|facts| {
                facts.status.trainyard.last_failure = Some(LastFailure {
                    attempt: 1,
                    pod: "j-worker-1".into(),
                    account: Account::User,
                    message: "it ran out of memory (exit code 137)".into(),
                    cause: Some(FailureCause::Exited {
                        code: 137,
                        out_of_memory: true,
                    }),
                    step: None,
                    since_attempt: None,
                    verdict: None,
                });
            }),
            Cause::OutOfMemory,
            Failed,
            vec!["pod `j-worker-1`: it ran out of memory (exit code 137)"],
        ),
        (
            "what the lifecycle found first, whatever pods say",
            facts().failed("", Some(exit(1, false))).with(|facts| {
                facts.status.trainyard.last_failure = Some(LastFailure {
                    attempt: 1,
                    pod: "j-worker-0".into(),
                    account: Account::User,
                    message: "it ended with exit code 1".into(),
                    cause: None,
                    step: None,
                    since_attempt: None,
                    verdict: None,
                });
            }),
            Cause::ContainerFailed,
            Failed,
            vec!["pod `j-worker-0` ended with exit code 1"],
        ),
        (
            "what the doctor concluded",
            facts().failed("", Some(exit(1, false))).with(|facts| {
                facts.status.trainyard.last_failure = Some(LastFailure {
                    attempt: 1,
                    pod: "j-worker-0".into(),
                    account: Account::User,
                    message: "it ended with exit code 1".into(),
                    cause: None,
                    step: None,
                    since_attempt: None,
                    verdict: Some(mistake()),
                });
            }),
            Cause::ContainerFailed,
            Failed,
            vec![
                "ended with exit code 1: the program raised an exception: KeyError: 'rate'",
                "read the innermost frame; a finished job",
                "verdict on attempt 1",
                "high confidence; account: user; a retry does not help",
            ],
        ),
        (
            "a budget spent and no pod left",
            facts()
                .failed("its infrastructure budget of 2 failures is spent", None)
                .with(|facts| {
                    facts.limits.insert(Account::Infrastructure, 2);
                    facts.status.trainyard.spent.infrastructure = 2;
                }),
            Cause::PodsTaken,
            Failed,
            vec!["infrastructure budget of 2"],
        ),
        (
            "the deadline",
            facts()
                .failed(deadline, Some(exit(143, false)))
                .with(|facts| {
                    facts.status.trainyard.failed_by = Some(FailedBy::DeadlineExceeded);
                }),
            Cause::DeadlineExceeded,
            Failed,
            vec!["activeDeadlineSeconds"],
        ),
        (
            "the deadline, of an earlier version",
            facts().failed(deadline, None),
            Cause::Failed,
            Failed,
            vec!["no pod is left", deadline],
        ),
        (
            "failed, and nothing is left",
            facts().failed("PyTorchJob j is failed.", None),
            Cause::Failed,
            Failed,
            vec!["no pod is left"],
        ),
        (
            "failed here, with its last line",
            facts().failed(limit, None).with(|facts| {
                facts.operator = Operator::Here;
                facts.failures.push(FailedPod {
                    attempt: 1,
                    pod: "j-worker-1".into(),
                    container: "pytorch".into(),
                    exit: Some(exit(1, false)),
                    disruption: None,
                    last_line: Some("RuntimeError: no data".into()),
                });
            }),
            Cause::ContainerFailed,
            Failed,
            vec!["RuntimeError: no data", "`trainyard run` the file again"],
        ),
        (
            "stopped here",
            facts().with(|facts| facts.cut_off = Some(CutOff::Stopped)),
            Cause::Stopped,
            Stopped,
            vec!["stopped"],
        ),
        (
            "killed here",
            facts().with(|facts| facts.cut_off = Some(CutOff::Interrupted)),
            Cause::Interrupted,
            Stopped,
            vec!["killed"],
        ),
    ]
}
