//! What a run has, drawn from its seed: nodes, jobs, and what goes wrong.
//!
//! Invariant: every job drawn here would pass validation.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::core::v1::{Container, PodSpec, PodTemplateSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use trainyard_core::{
    gang::Node,
    launch::HOSTNAME,
    resources::{CPU, PODS},
    spec::{
        CleanPodPolicy, Elastic, Framework, Job, JobName, JobSettings, Kind, Namespace, Preflight,
        PyTorch, RestartPolicy, Role, RoleSpec, RunPolicy, Switch,
    },
};

use super::{faults::Fault, nodes::StoredNode, watch::Channel, world::HIGH};
use crate::dice::Dice;

/// The resource that all pods ask for.
pub(super) const GPU: &str = "nvidia.com/gpu";
const RACK: &str = "cloud.provider.com/topology-rack";

/// A job that some user will create.
#[derive(Debug)]
pub(super) struct JobPlan {
    /// When.
    pub(super) created: i64,
    pub(super) job: Job,
    /// How long its pods work until they succeed.
    pub(super) work: i64,
}

/// The nodes.
pub(super) fn nodes(dice: &mut Dice) -> BTreeMap<String, StoredNode> {
    let count = dice.pick(&[3_u32, 3, 4, 4, 5, 6, 6, 8, 10, 12, 16, 24]);
    let in_rack = 2 + dice.below(4);
    let sizes = dice.pick(&[[8, 8], [8, 8], [8, 4], [4, 4]]);
    (0..count)
        .map(|at| {
            let name = format!("n{at:02}");
            let mut node = Node {
                ready: true,
                ..Node::default()
            };
            let rack = format!("r{}", at / in_rack);
            node.labels.insert(HOSTNAME.to_owned(), name.clone());
            node.labels.insert(RACK.to_owned(), rack);
            node.allocatable.set(GPU, dice.pick(&sizes));
            node.allocatable.set(CPU, 96_000);
            node.allocatable.set(PODS, 110);
            let is_bad = dice.chance(15);
            (name, StoredNode::new(node, is_bad))
        })
        .collect()
}

/// The jobs of a run.
pub(super) fn jobs(dice: &mut Dice, calm_at: i64) -> Vec<JobPlan> {
    let count = 2 + dice.below(9);
    (0..count)
        .map(|at| {
            let created = match dice.below(3) {
                0 => dice.within(0..=2_000),
                _ => dice.within(0..=calm_at * 7 / 10),
            };
            JobPlan {
                created,
                job: job(dice, at),
                work: dice.within(20_000..=400_000),
            }
        })
        .collect()
}

fn job(dice: &mut Dice, number: u32) -> Job {
    let gpus = dice.pick(&[1, 2, 4, 4, 8, 8, 8]);
    let class = dice.chance(35).then(|| HIGH.to_owned());
    let preemption = (class.is_some() && dice.chance(85)).then_some(Switch::On);
    let policy = dice.pick(&[RestartPolicy::OnFailure, RestartPolicy::ExitCode]);
    let workers = 1 + dice.below(5);
    let elastic = dice.chance(20);
    let role = |replicas| RoleSpec {
        replicas,
        restart_policy: policy,
        template: template(gpus, class.clone()),
    };
    let mut roles = BTreeMap::from([(Role::Worker, role(workers))]);
    if !elastic && dice.chance(40) {
        roles.insert(Role::Master, role(1));
    }
    let elastic = elastic.then(|| Elastic {
        min_replicas: 1 + dice.below(workers),
        max_replicas: workers + 2,
        rdzv_backend: "c10d".to_owned(),
        ..Elastic::default()
    });
    let namespace = dice.pick(&["team-a", "team-b"]);
    Job {
        kind: Kind::PyTorch,
        name: JobName::parse(&format!("j{number}")).expect("a letter and a number are a name"),
        namespace: Namespace::parse(namespace).expect("a word is a namespace"),
        uid: None,
        annotations: BTreeMap::new(),
        roles,
        run_policy: RunPolicy {
            clean_pod_policy: dice.pick(&[
                None,
                Some(CleanPodPolicy::All),
                Some(CleanPodPolicy::Running),
            ]),
            backoff_limit: dice.chance(50).then(|| 2 + dice.below(6)),
            suspend: dice.chance(5),
            ..RunPolicy::default()
        },
        framework: Framework::PyTorch(PyTorch {
            nproc_per_node: Some("auto".to_owned()),
            elastic,
        }),
        settings: JobSettings {
            start_within: Duration::from_secs(u64::from(60 + dice.below(240))),
            lost_after: Duration::from_secs(u64::from(10 + dice.below(50))),
            preemption,
            preflight: if dice.chance(45) {
                Preflight::Required
            } else {
                Preflight::default()
            },
            ..JobSettings::default()
        },
    }
}

fn template(gpus: i64, class: Option<String>) -> PodTemplateSpec {
    let limits = BTreeMap::from([(GPU.to_owned(), Quantity(gpus.to_string()))]);
    let container = Container {
        name: "pytorch".to_owned(),
        image: Some("trainer".to_owned()),
        resources: Some(ResourceRequirements {
            limits: Some(limits),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    };
    PodTemplateSpec {
        metadata: None,
        spec: Some(PodSpec {
            containers: vec![container],
            priority_class_name: class,
            ..PodSpec::default()
        }),
    }
}

/// What goes wrong until the chaos ends, and when. Nodes and pods are drawn when it strikes.
pub(super) fn faults(dice: &mut Dice, calm_at: i64, jobs: usize) -> Vec<(i64, Fault)> {
    let count = dice.below(40);
    let mut faults = Vec::new();
    for _ in 0..count {
        let at = dice.within(1_000..=calm_at - 1);
        faults.push((at, fault(dice, jobs)));
    }
    faults
}

fn fault(dice: &mut Dice, jobs: usize) -> Fault {
    let job = dice.below(u32::try_from(jobs).unwrap_or(1)) as usize;
    match dice.below(100) {
        0..=11 => Fault::NodeSilent(dice.within(5_000..=150_000)),
        12..=17 => Fault::NodeDeleted(dice.within(70_000..=250_000)),
        18..=22 => Fault::NodeCordoned(dice.within(5_000..=200_000)),
        23..=32 => Fault::NodesBreak(1 + dice.below(3)),
        33..=38 => Fault::NodeRepaired,
        39..=53 => {
            let channel = dice.pick(&Channel::ALL);
            Fault::Stall(channel, dice.within(1_000..=45_000))
        }
        54..=66 => Fault::Crash(dice.below(7), dice.within(500..=20_000)),
        67..=74 => Fault::TakeOver(dice.below(4)),
        75..=78 => Fault::PodFails,
        79..=81 => Fault::PodDeleted,
        82..=85 => Fault::ForeignPod(1 + i64::from(dice.below(8)), dice.within(5_000..=200_000)),
        86..=89 => Fault::Suspend(job),
        90..=92 => Fault::Resume(job),
        93..=95 => Fault::Scale(job, 1 + dice.below(5)),
        96..=97 => Fault::DeleteJob(job),
        _ => Fault::CreateJob(job),
    }
}
