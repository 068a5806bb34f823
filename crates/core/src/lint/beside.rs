//! Objects beside a job, judged for what they are: Services and monitors, claims, autoscalers, schedules, quotas,
//! Secrets and the values of a chart.

use super::{
    advice::{Advice, Look, ODD, RISKY, WRONG, rule},
    companions::{Companion, at},
};
use crate::spec::{Node, Value};

mod batch;
mod claims;
mod objects;
mod policies;
mod queues;
mod ray;
mod selectors;
mod sweeps;
mod values;
mod versions;
mod volumes;
mod workloads;
mod worlds;

pub(super) use batch::RULES as BATCH_RULES;
pub(super) use objects::RULES as OBJECT_RULES;
pub(super) use policies::RULES as POLICY_RULES;
pub(super) use queues::RULES as QUEUE_RULES;
pub(super) use ray::RULES as RAY_RULES;
pub(super) use sweeps::RULES as SWEEP_RULES;
pub(super) use versions::RULES as VERSION_RULES;
pub(super) use volumes::RULES as VOLUME_RULES;
pub(super) use worlds::{LATER_RULES, RULES as WORLD_RULES};

/// The rules of this family.
pub(super) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY901",
            ODD,
            "Service without pods",
            "The selector of the Service matches no pod of the files. Pods of a job have the labels of their template and \
             `training.kubeflow.org/job-name`, `…/replica-type` and `…/replica-index`; those of a TrainJob have \
             `jobset.sigs.k8s.io/jobset-name` and `…/replicatedjob-name`. `job-name` is a label of a batch Job; on pods of a \
             TrainJob its value is `<job>-node-0`.",
        ),
        look: Look::Companion(selectors::service),
    },
    Advice {
        rule: rule(
            "TY902",
            RISKY,
            "Service to a port that no container has",
            "`targetPort` is the name of a port, and no container of the pods that the Service selects has a port of that \
             name. The Service has no endpoints.",
        ),
        look: Look::Companion(selectors::target_port),
    },
    Advice {
        rule: rule(
            "TY903",
            ODD,
            "monitor that selects nothing",
            "A ServiceMonitor selects Services by their labels, a PodMonitor pods. The files have some in its namespace, and it \
             selects none of them, so nothing is scraped.",
        ),
        look: Look::Companion(selectors::monitor),
    },
    Advice {
        rule: rule(
            "TY904",
            RISKY,
            "monitor of a port that is not there",
            "`port` of an endpoint is the name of a port of the Service, and for a PodMonitor of a container. What it selects has no \
             port of that name, so nothing is scraped.",
        ),
        look: Look::Companion(selectors::monitor_port),
    },
    Advice {
        rule: rule(
            "TY905",
            ODD,
            "new volume that nobody may write",
            "A claim with `ReadOnlyMany` only that names neither a volume nor a source gets a new one, which is empty and cannot be \
             filled through the claim.",
        ),
        look: Look::Companion(claims::empty_read_only),
    },
    Advice {
        rule: rule(
            "TY906",
            RISKY,
            "block storage for several nodes",
            "The class makes disks that one node at a time can attach. A claim with `ReadWriteMany` or `ReadOnlyMany` of such a class stays \
             Pending. Classes are known by the provisioner that a StorageClass of the files has, or else by their usual names.",
        ),
        look: Look::Companion(claims::block_storage),
    },
    Advice {
        rule: rule(
            "TY907",
            WRONG,
            "claim that the cluster refuses",
            "A claim states its access modes and how much it wants. The cluster refuses one without, and a mode that it does not know.",
        ),
        look: Look::Companion(claims::incomplete),
    },
    Advice {
        rule: rule(
            "TY908",
            ODD,
            "autoscaler by CPU on a training job",
            "The autoscaler adds and removes workers by the use of CPU or memory. In training neither says whether more workers \
             help, and every change is a restart of all ranks from the last checkpoint. One that changes the requests of the pods evicts \
             them for it, which is the same.",
        ),
        look: Look::Companion(workloads::autoscaler),
    },
    Advice {
        rule: rule(
            "TY909",
            ODD,
            "scheduled runs that overlap",
            "With the `concurrencyPolicy` `Allow`, which is the default, the next run starts while the last one still trains. Both \
             hold GPUs and write the same folders.",
        ),
        look: Look::Companion(workloads::overlapping),
    },
    Advice {
        rule: rule(
            "TY910",
            WRONG,
            "restart policy that a Job cannot have",
            "The pods of a batch Job are restarted `OnFailure` or `Never`. The default of a pod is `Always`, which the cluster refuses \
             there.",
        ),
        look: Look::Companion(workloads::restart_policy),
    },
    Advice {
        rule: rule(
            "TY911",
            RISKY,
            "Secret in the files",
            "Whoever may read the files reads the Secret; base64 hides nothing. Secrets come from a store, by an operator such as External \
             Secrets, or are sealed.",
        ),
        look: Look::Companion(values::secret),
    },
    Advice {
        rule: rule(
            "TY912",
            RISKY,
            "quota that the job does not fit",
            "The quota of the namespace allows fewer GPUs than the job asks for, so some of its pods are never made.",
        ),
        look: Look::Beside(workloads::quota),
    },
    Advice {
        rule: rule(
            "TY913",
            RISKY,
            "values of a chart that will go wrong",
            "What the values hold goes into every object of the chart: an image whose tag moves, a secret in plain text, an example that was \
             left to be filled in.",
        ),
        look: Look::Companion(values::chart),
    },
];

/// The items of the list at the end of `path`.
fn items<'a>(node: &'a Node, path: &[&str]) -> &'a [Node] {
    match at(node, path).map(|node| &node.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

/// The text at the end of `path`.
fn text<'a>(node: &'a Node, path: &[&str]) -> Option<&'a str> {
    at(node, path)?.as_str()
}

/// Whether the companion is of `kind`.
fn is(companion: &Companion<'_>, kind: &str) -> bool {
    companion.kind == kind
}

/// The whole number at the end of `path`.
fn number(node: &Node, path: &[&str]) -> Option<i64> {
    match at(node, path)?.value {
        Value::Int(number) => Some(number),
        _ => None,
    }
}
