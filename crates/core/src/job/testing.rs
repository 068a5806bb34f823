//! Jobs and pods for the tests of the policies.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Account, ObservedPod, PodPhase};
use crate::{
    diagnose::{Confidence, Depth, Retry, VerdictSummary},
    spec::{
        Elastic, Framework, Job, JobName, JobSettings, Kind, LauncherCreation, MpiImplementation,
        MpiV1, MpiV2, Namespace, PyTorch, Role, RoleSpec, RunPolicy, Slot, Tf,
    },
};

/// The moment the tests begin.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// A job `j` of `kind` with two workers and its leading role.
pub(crate) fn job(kind: Kind) -> Job {
    let (framework, leader) = match kind {
        Kind::PyTorch => {
            let nproc_per_node = Some("auto".to_owned());
            (
                Framework::PyTorch(PyTorch {
                    nproc_per_node,
                    elastic: None,
                }),
                Some(Role::Master),
            )
        }
        Kind::Tf => (Framework::Tf(Tf::default()), Some(Role::Chief)),
        Kind::MpiV1 => {
            let mpi = MpiV1 {
                slots_per_worker: 1,
                main_container: None,
            };
            (Framework::MpiV1(mpi), Some(Role::Launcher))
        }
        Kind::MpiV2 => {
            let mpi = MpiV2 {
                slots_per_worker: 1,
                run_launcher_as_worker: false,
                ssh_auth_mount_path: "/root/.ssh".to_owned(),
                launcher_creation: LauncherCreation::AtStartup,
                implementation: MpiImplementation::OpenMpi,
            };
            (Framework::MpiV2(mpi), Some(Role::Launcher))
        }
        Kind::XgBoost => (Framework::XgBoost, Some(Role::Master)),
        Kind::Paddle => (Framework::Paddle(None), None),
        Kind::Jax | Kind::Train => (Framework::Jax, None),
    };
    let job = Job {
        kind,
        name: JobName::parse("j").unwrap(),
        namespace: Namespace::parse("n").unwrap(),
        uid: None,
        annotations: BTreeMap::new(),
        roles: BTreeMap::new(),
        run_policy: RunPolicy::default(),
        framework,
        settings: JobSettings::default(),
    };
    let roles: Vec<(Role, u32)> = leader
        .map(|role| (role, 1))
        .into_iter()
        .chain([(Role::Worker, 2)])
        .collect();
    with_roles(job, &roles)
}

/// The job with other roles, each with its kind's default policy.
pub(crate) fn with_roles(mut job: Job, roles: &[(Role, u32)]) -> Job {
    let kind = job.kind;
    job.roles = roles
        .iter()
        .map(|(role, replicas)| {
            let restart_policy = kind.default_restart_policy(*role);
            (
                *role,
                RoleSpec {
                    replicas: *replicas,
                    restart_policy,
                    ..RoleSpec::default()
                },
            )
        })
        .collect();
    job
}

/// The job with elastic bounds.
pub(crate) fn elastic(mut job: Job, min_replicas: u32, max_replicas: u32) -> Job {
    job.framework = Framework::PyTorch(PyTorch {
        nproc_per_node: Some("auto".to_owned()),
        elastic: Some(Elastic {
            min_replicas,
            max_replicas,
            rdzv_backend: "c10d".to_owned(),
            ..Elastic::default()
        }),
    });
    job
}

/// A mistake in the program, as attempt 1 shows it.
pub(crate) fn mistake() -> VerdictSummary {
    VerdictSummary {
        attempt: 1,
        label: "user_code_error".into(),
        sentence: "the program raised an exception: KeyError: 'rate'".into(),
        ranks: vec![1],
        nodes: vec!["node-0".into()],
        account: Account::User,
        retry: Retry::DoesNotHelp,
        confidence: Confidence::High,
        depth: Depth::Cause,
        place: Some("KeyError at File \"/app/train.py\", line 7, in main".into()),
        exception: Some("KeyError".into()),
        signature: None,
        next: "read the innermost frame".into(),
    }
}

impl ObservedPod {
    /// Worker 0 of attempt 1 in `phase`.
    pub(crate) fn in_phase(phase: PodPhase) -> Self {
        Self::at(Slot::new(Role::Worker, 0), 1, phase)
    }

    /// The pod of `slot` and `attempt` in `phase`.
    pub(crate) fn at(slot: Slot, attempt: u32, phase: PodPhase) -> Self {
        Self {
            uid: format!("{}-{}-{attempt}", slot.role.lower(), slot.index),
            slot,
            attempt,
            phase,
            ready: phase == PodPhase::Running,
            deleted_at: None,
            grace_seconds: 30,
            node: Some(format!("node-{}", slot.index)),
            restarts: 0,
            ends: 0,
            exit: None,
            start_error: None,
            wait: None,
            disruption: None,
            gated: false,
        }
    }
}
