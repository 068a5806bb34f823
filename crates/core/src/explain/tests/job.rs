//! What the job itself shows.

use super::*;
use crate::job::{FailedStarts, GangPhase};

pub(super) fn of_the_job() -> Vec<Named> {
    use Standing::{Runs, Waits};
    let runs = || {
        facts().with(|facts| {
            facts.status = status(&[ConditionType::Created, ConditionType::Running]);
        })
    };
    let hangs = runs().with(|facts| {
        facts.status.trainyard.ledger.open = Some(OpenSpan {
            attempt: 1,
            phase: Phase::Stalled,
            since: at(20),
        });
    });
    let steps = runs().with(|facts| {
        let progress = Progress::new(1, 1_250, facts.now - SignedDuration::from_secs(4));
        facts.status.trainyard.progress = Some(ProgressRecord::from(&progress));
    });
    let stalls = steps.clone().with(|facts| {
        let since = facts.now - SignedDuration::from_secs(45);
        facts.status.trainyard.ledger.open = Some(OpenSpan {
            attempt: 1,
            phase: Phase::Stalled,
            since,
        });
        let progress = facts.status.trainyard.progress.as_mut().unwrap();
        progress.last_step_at = since;
        progress.step_seconds = Some(Figure(0.1));
    });
    let diverges = steps.clone().with(|facts| {
        let progress = facts.status.trainyard.progress.as_mut().unwrap();
        progress.loss = Some(Figure(f64::NAN));
        progress.nan_since = Some(20);
    });
    let suspended = facts().with(|facts| {
        facts.job.suspend = true;
        facts.status = status(&[ConditionType::Created, ConditionType::Suspended]);
    });
    let invalid = facts().with(|facts| {
        facts.errors.push(Finding {
            code: "TY110",
            severity: Severity::Error,
            path: "spec.x".into(),
            span: Span::default(),
            message: "no container is called `pytorch`".into(),
            hint: Some("call it `pytorch`".into()),
            fix: None,
        });
    });
    let silent = Operator::Silent {
        holder: "op-1".into(),
        since: at(3),
        namespace: "ml-platform".into(),
    };
    let garbage = serde_json::json!({"trainyard": {"attempt": "three"}});
    let unreadable = facts().with(|facts| {
        let why = crate::job::read_status(&garbage).unwrap_err();
        facts.status = JobStatus::clone(&why.shown);
        facts.unreadable = Some(why);
    });
    let set_aside = facts().with(|facts| {
        let why = "the operator crashed 2 times while processing this job; it is set aside";
        let reason = Reason::SetAside { why: why.into() };
        facts.status.trainyard.waiting = Some(StoredReason::from(&reason));
    });
    let untouched = facts().with(|facts| facts.status = JobStatus::default());
    vec![
        (
            "has a status that cannot be read",
            unreadable,
            Cause::StatusUnreadable,
            Waits,
            vec![
                "cannot be read at `status.trainyard.attempt`",
                "expected u32",
                "kubectl -n team edit pytorchjob/j --subresource=status",
            ],
        ),
        (
            "is set aside",
            set_aside,
            Cause::SetAside,
            Waits,
            vec!["crashed 2 times", "change the job's spec"],
        ),
        (
            "runs",
            runs(),
            Cause::Running,
            Runs,
            vec![
                "it runs",
                "no step was reported",
                "not known whether it trains",
                "logs --follow j --cluster",
            ],
        ),
        (
            "runs and reports steps",
            steps,
            Cause::Running,
            Runs,
            vec!["nothing holds it up: step 1250 was reported 4.0 s ago"],
        ),
        (
            "stalls",
            stalls,
            Cause::Hanging,
            Runs,
            vec!["stalled: no step for 45 s; steps took 0.1 s", "restart j"],
        ),
        (
            "diverges",
            diverges,
            Cause::NotFinite,
            Runs,
            vec!["loss is NaN since step 20", "lower learning rate"],
        ),
        (
            "hangs",
            hangs,
            Cause::Hanging,
            Runs,
            vec!["no step for", "restart j"],
        ),
        (
            "runs with fewer",
            runs().with(|facts| {
                let degraded = condition(ConditionType::Degraded, "3 of 4");
                facts.status.conditions.push(degraded);
            }),
            Cause::Degraded,
            Runs,
            vec!["3 of 4"],
        ),
        (
            "being deleted, held by a finalizer",
            facts().with(|facts| {
                facts.job.deleted_at = Some(at(90));
                facts.job.finalizers.push("example.com/hold".into());
            }),
            Cause::BeingDeleted,
            Waits,
            vec!["example.com/hold"],
        ),
        (
            "another controller's",
            untouched
                .clone()
                .with(|facts| facts.job.manager = Some("kueue.x-k8s.io/multikueue".into())),
            Cause::ManagedElsewhere,
            Waits,
            vec!["kueue.x-k8s.io/multikueue"],
        ),
        (
            "a spec that cannot be run",
            invalid,
            Cause::InvalidSpec,
            Waits,
            vec![
                "no container is called `pytorch`",
                "call it `pytorch`",
                "spec.x",
            ],
        ),
        (
            "untouched, the operator is gone",
            untouched
                .clone()
                .with(|facts| facts.operator = silent.clone()),
            Cause::NoOperator,
            Waits,
            vec!["lease", "op-1", "kubectl -n ml-platform logs"],
        ),
        (
            "untouched, no lease",
            untouched
                .clone()
                .with(|facts| facts.operator = Operator::NoLease),
            Cause::NoOperator,
            Waits,
            vec!["no operator lease"],
        ),
        (
            "untouched, the operator looks elsewhere",
            untouched.clone(),
            Cause::NoOperator,
            Waits,
            vec!["other namespaces"],
        ),
        (
            "just made",
            untouched.with(|facts| facts.job.created_at = Some(at(99))),
            Cause::Starting,
            Waits,
            vec!["about to start"],
        ),
        (
            "resumed while the operator is gone",
            suspended.clone().with(|facts| {
                facts.job.suspend = false;
                facts.operator = silent.clone();
            }),
            Cause::NoOperator,
            Waits,
            vec!["has expired"],
        ),
        (
            "suspended",
            suspended.clone(),
            Cause::Suspended,
            Waits,
            vec!["runPolicy.suspend", "trainyard resume j --cluster -n team"],
        ),
        (
            "suspended by Kueue",
            suspended.with(|facts| facts.job.queue = Some("research".into())),
            Cause::Suspended,
            Waits,
            vec![
                "until Kueue admits it from queue `research`",
                "kubectl -n team get workloads",
            ],
        ),
        (
            "pauses after failures",
            facts()
                .with(|facts| {
                    facts.status.trainyard.retry_at = Some(at(130));
                    facts.status.trainyard.quick_failures = 3;
                    facts.status.trainyard.attempt = 4;
                })
                .event("", "PyTorchJobRestarting", "Pod `j-worker-0`: exit code 1"),
            Cause::Backoff,
            Waits,
            vec!["3 times in a row", "attempt 4", "exit code 1"],
        ),
        (
            "pauses after starts that failed",
            facts().with(|facts| {
                facts.status.trainyard.retry_at = Some(at(130));
                facts.status.trainyard.attempt = 4;
                facts.status.trainyard.gang = GangPhase::Asking(FailedStarts {
                    times: 2,
                    pods_first: false,
                });
            }),
            Cause::Backoff,
            Waits,
            vec!["released its nodes 2 times", "attempt 4"],
        ),
        (
            "held for inspection",
            facts().waits(&Reason::HeldOnFailure {
                attempt: 2,
                until: at(1_800),
                held: "4 pods with 8 GPUs".to_owned(),
                why: "pod `j-worker-0`: it ended with exit code 1".to_owned(),
            }),
            Cause::Held,
            Waits,
            vec!["exit code 1", "4 pods with 8 GPUs"],
        ),
        (
            "old pods in the way",
            facts()
                .pending(|pod| {
                    pod.phase = PodPhase::Running;
                    pod.deleted_at = Some(at(0));
                    pod.finalizers.push("example.com/hold".into());
                })
                .with(|facts| facts.status.trainyard.attempt = 2),
            Cause::OldPods,
            Waits,
            vec![
                "2 pods of earlier attempts",
                "example.com/hold",
                "describe pod j-worker-0",
            ],
        ),
        (
            "no pod wanted",
            facts().waits(&Reason::NothingToRun { role: Role::Worker }),
            Cause::NothingToRun,
            Waits,
            vec!["replicas"],
        ),
        (
            "a fabric that is not there",
            facts().waits(&Reason::NoFabric {
                fabric: "roce-b".into(),
                why: "this cluster has no fabric of that name".into(),
            }),
            Cause::FabricMissing,
            Waits,
            vec!["roce-b", "kubectl get fabrics"],
        ),
        (
            "a runtime that is not there",
            facts().waits(&Reason::NoRuntime {
                runtime: "ClusterTrainingRuntime `team`".into(),
                why: "it does not exist; the cluster has none".into(),
            }),
            Cause::RuntimeMissing,
            Waits,
            vec!["team", "kubectl get clustertrainingruntimes"],
        ),
        (
            "a preflight without a result",
            facts().waits(&Reason::PreflightRetry {
                why: "preflight produced no result: it did not finish within 300 s".into(),
                retry_at: at(400),
            }),
            Cause::Preflight,
            Waits,
            vec![
                "300 s",
                "trainyard preflight --cluster",
                "trainyard restart",
            ],
        ),
        (
            "the launcher waits",
            facts().waits(&Reason::LauncherWaits {
                have: 1,
                wanted: 3,
                state: WorkerState::Running,
            }),
            Cause::WaitingForWorkers,
            Waits,
            vec!["1 of 3"],
        ),
    ]
}
