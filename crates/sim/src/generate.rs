//! A job drawn from a seed: every kind, both scopes, every policy.
//!
//! Jobs are built as values, with empty templates: what a pod runs is the world's matter.
//!
//! Invariant: every job drawn here would pass validation.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::autoscaling::v2::MetricSpec;
use trainyard_core::spec::{
    AccountLimits, CleanPodPolicy, Compat, Elastic, Framework, Job, JobName, JobSettings, Kind,
    LauncherCreation, Limit, MpiImplementation, MpiV1, MpiV2, Namespace, PyTorch, RestartPolicy,
    RestartScope, Role, RoleSpec, RunPolicy, Tf, TfSuccess,
};

use crate::dice::Dice;

/// Draws a job.
pub(crate) fn job(dice: &mut Dice) -> Job {
    let kind = dice.pick(&Kind::ALL);
    let roles = roles(kind, dice);
    let framework = framework(kind, &roles, dice);
    Job {
        kind,
        name: JobName::parse("j").expect("a letter is a name"),
        namespace: Namespace::parse("default").expect("a word is a namespace"),
        uid: Some("job".to_owned()),
        annotations: BTreeMap::new(),
        roles,
        run_policy: run_policy(kind, dice),
        framework,
        settings: settings(dice),
    }
}

fn roles(kind: Kind, dice: &mut Dice) -> BTreeMap<Role, RoleSpec> {
    let workers = match dice.below(100) {
        0..=3 => 0,
        4..=9 => 11,
        _ => 1 + dice.below(5),
    };
    let some_workers = workers.max(1);
    let mut sizes: Vec<(Role, u32)> = Vec::new();
    match kind {
        Kind::PyTorch | Kind::Paddle => {
            if dice.chance(50) {
                sizes.push((Role::Master, 1));
                sizes.push((Role::Worker, workers));
            } else {
                sizes.push((Role::Worker, some_workers));
            }
        }
        Kind::XgBoost => sizes.extend([(Role::Master, 1), (Role::Worker, workers)]),
        Kind::MpiV1 => sizes.extend([(Role::Launcher, 1), (Role::Worker, workers)]),
        Kind::MpiV2 => sizes.extend([(Role::Launcher, 1), (Role::Worker, some_workers)]),
        // A `TrainJob` is not run by the operator, so it is not picked.
        Kind::Jax | Kind::Train => sizes.push((Role::Worker, some_workers)),
        Kind::Tf => {
            match dice.below(10) {
                0..=3 => sizes.push((Role::Chief, 1)),
                4 => sizes.push((Role::Master, 1)),
                _ => {}
            }
            if dice.chance(30) {
                sizes.push((Role::Ps, 1 + dice.below(2)));
            }
            if dice.chance(20) {
                sizes.push((Role::Evaluator, 1));
            }
            sizes.push((Role::Worker, some_workers));
        }
    }
    let everywhere = dice.chance(60).then(|| restart_policy(kind, dice));
    sizes
        .into_iter()
        .map(|(role, replicas)| {
            let spec = RoleSpec {
                replicas,
                restart_policy: everywhere.unwrap_or_else(|| restart_policy(kind, dice)),
                ..RoleSpec::default()
            };
            (role, spec)
        })
        .collect()
}

fn restart_policy(kind: Kind, dice: &mut Dice) -> RestartPolicy {
    if kind == Kind::MpiV2 {
        return dice.pick(&[RestartPolicy::OnFailure, RestartPolicy::Never]);
    }
    match dice.below(20) {
        0..=8 => RestartPolicy::OnFailure,
        9..=13 => RestartPolicy::ExitCode,
        14..=17 => RestartPolicy::Never,
        _ => RestartPolicy::Always,
    }
}

fn framework(kind: Kind, roles: &BTreeMap<Role, RoleSpec>, dice: &mut Dice) -> Framework {
    let workers = roles.get(&Role::Worker).map_or(0, |spec| spec.replicas);
    match kind {
        Kind::PyTorch => Framework::PyTorch(PyTorch {
            nproc_per_node: Some("auto".to_owned()),
            elastic: (workers > 0 && dice.chance(40)).then(|| elastic(workers, dice)),
        }),
        Kind::Paddle => {
            Framework::Paddle((workers > 0 && dice.chance(20)).then(|| elastic(workers, dice)))
        }
        Kind::Tf => Framework::Tf(Tf {
            success: dice.pick(&[TfSuccess::Default, TfSuccess::AllWorkers]),
            dynamic_worker: dice.chance(25),
        }),
        Kind::MpiV1 => Framework::MpiV1(MpiV1 {
            slots_per_worker: 1,
            main_container: None,
        }),
        Kind::MpiV2 => Framework::MpiV2(MpiV2 {
            slots_per_worker: 1,
            run_launcher_as_worker: dice.chance(30),
            ssh_auth_mount_path: "/root/.ssh".to_owned(),
            launcher_creation: dice.pick(&[
                LauncherCreation::AtStartup,
                LauncherCreation::WaitForWorkersReady,
            ]),
            implementation: MpiImplementation::OpenMpi,
        }),
        Kind::XgBoost => Framework::XgBoost,
        Kind::Jax | Kind::Train => Framework::Jax,
    }
}

fn elastic(workers: u32, dice: &mut Dice) -> Elastic {
    Elastic {
        min_replicas: 1 + dice.below(workers),
        max_replicas: workers + dice.below(3),
        rdzv_backend: "c10d".to_owned(),
        metrics: Vec::from_iter(dice.chance(30).then(MetricSpec::default)),
        ..Elastic::default()
    }
}

fn run_policy(kind: Kind, dice: &mut Dice) -> RunPolicy {
    RunPolicy {
        clean_pod_policy: dice.pick(&[
            None,
            Some(CleanPodPolicy::All),
            Some(CleanPodPolicy::Running),
            Some(CleanPodPolicy::None),
        ]),
        ttl_seconds_after_finished: dice.chance(25).then(|| dice.below(300)),
        active_deadline_seconds: dice.chance(20).then(|| u64::from(10 + dice.below(600))),
        backoff_limit: dice.chance(65).then(|| dice.below(5)),
        suspend: dice.chance(10),
        managed_by: match dice.below(100) {
            0..=2 => Some("kueue.x-k8s.io/multikueue".to_owned()),
            3..=7 => Some(kind.own_manager().to_owned()),
            _ => None,
        },
        scheduling: None,
    }
}

fn settings(dice: &mut Dice) -> JobSettings {
    let mut limit = || match dice.below(10) {
        0..=1 => Some(Limit::At(dice.below(6))),
        2 => Some(Limit::Unlimited),
        _ => None,
    };
    let budget = AccountLimits {
        user: limit(),
        platform: limit(),
        infrastructure: limit(),
        preemption: limit(),
    };
    let compat = if dice.chance(15) {
        (0..=dice.below(2))
            .map(|_| dice.pick(&Compat::ALL))
            .collect()
    } else {
        std::collections::BTreeSet::new()
    };
    JobSettings {
        restart_scope: match dice.below(10) {
            0..=1 => Some(RestartScope::Gang),
            2..=3 => Some(RestartScope::Pod),
            _ => None,
        },
        budget,
        lost_after: Duration::from_secs(u64::from(5 + dice.below(60))),
        hang_after: Some(Duration::from_secs(u64::from(30 + dice.below(600)))),
        start_within: Duration::from_secs(u64::from(60 + dice.below(900))),
        compat,
        restart: dice.chance(5).then(|| "as written".to_owned()),
        mpi_transport: None,
        ..JobSettings::default()
    }
}
