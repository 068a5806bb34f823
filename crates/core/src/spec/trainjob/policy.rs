//! How nodes find each other: which policy a runtime has, and how many processes a node runs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString};

use super::fields::{MlPolicy, Trainer};
use crate::{finding::catalogue, quantity, spec::Place};

/// Processes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Processes {
    /// As many as the program sees GPUs.
    Auto {
        /// How many the node asks for.
        gpus: u64,
    },
    /// This many.
    Count(u64),
}

impl Processes {
    /// The word in `PET_NPROC_PER_NODE`.
    pub(super) fn word(self) -> String {
        match self {
            Self::Auto { .. } => "auto".to_owned(),
            Self::Count(count) => count.to_string(),
        }
    }
}

/// The policies that are set.
pub(super) fn set(policy: &MlPolicy) -> Vec<&'static str> {
    [
        ("torch", policy.torch.is_some()),
        ("mpi", policy.mpi.is_some()),
        ("jax", policy.jax.is_some()),
        ("xgboost", policy.xgboost.is_some()),
        ("flux", policy.flux.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, is_set)| is_set.then_some(name))
    .collect()
}

/// Variables that a policy sets in the trainer, which a job may not. Those of `jax` may be set: the job's win.
pub(super) fn reserved(policy: Option<&str>, is_tune: bool) -> &'static [&'static str] {
    const TORCH: [&str; 5] = [
        "PET_NNODES",
        "PET_NPROC_PER_NODE",
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
    ];
    match policy {
        // It is given the address on its command line.
        Some("torch") if is_tune => TORCH.split_at(3).0,
        Some("torch") => &TORCH,
        Some("xgboost") => &[
            "DMLC_TRACKER_URI",
            "DMLC_TRACKER_PORT",
            "DMLC_TASK_ID",
            "DMLC_NUM_WORKER",
        ],
        Some("mpi") => &[
            "OMPI_MCA_orte_default_hostfile",
            "OMPI_MCA_orte_keep_fqdn_hostnames",
            "OMPI_MCA_orte_set_default_slots",
            "OMPI_MCA_plm_rsh_args",
        ],
        _ => &[],
    }
}

/// GPUs that `resources` ask for: of all resources that are GPUs, requests first, then limits. Memory of GPUs and what watches them is none.
pub(super) fn gpus(resources: Option<&ResourceRequirements>) -> u64 {
    let sum = |list: Option<&BTreeMap<String, Quantity>>| -> u64 {
        let gpus = list
            .into_iter()
            .flatten()
            .filter(|(name, _)| quantity::is_accelerator(name))
            .filter(|(name, _)| name.contains("gpu") || name.contains("/mig-"));
        gpus.filter_map(|(_, amount)| quantity::units(amount))
            .fold(0, u64::saturating_add)
    };
    let Some(resources) = resources else {
        return 0;
    };
    match sum(resources.requests.as_ref()) {
        0 => sum(resources.limits.as_ref()),
        requested => requested,
    }
}

/// Processors that `resources` ask for, rounded up; at least one.
fn processors(resources: Option<&ResourceRequirements>) -> u64 {
    let of = |list: Option<&BTreeMap<String, Quantity>>| -> u64 {
        let cpu = list.and_then(|list| list.get("cpu"));
        cpu.and_then(quantity::units).unwrap_or(0)
    };
    let requested = of(resources.and_then(|it| it.requests.as_ref()));
    let found = match requested {
        0 => of(resources.and_then(|it| it.limits.as_ref())),
        requested => requested,
    };
    found.max(1)
}

/// What the job states of the processes of a node, where it states it well.
pub(super) fn stated(trainer: &Trainer, place: &Place<'_>) -> Option<u64> {
    let place = place.key("numProcPerNode");
    match trainer.num_proc_per_node.as_ref()? {
        IntOrString::Int(count) if *count >= 1 => u64::try_from(*count).ok(),
        IntOrString::String(word) if word == "auto" => {
            place.report_with(
                &catalogue::TRAIN_NO_EFFECT,
                "`numProcPerNode` is a number since Kubeflow Trainer 2.3; `auto` is what is used without it",
                "remove it",
            );
            None
        }
        other => {
            let found = match other {
                IntOrString::Int(count) => count.to_string(),
                IntOrString::String(word) => word.clone(),
            };
            let message = format!("`numProcPerNode` must be a number from 1, found `{found}`");
            place.report_with(
                &catalogue::BAD_NPROC_PER_NODE,
                message,
                "without it there is one process for each GPU, else for each CPU",
            );
            None
        }
    }
}

/// The processes of a node that asks for `resources`.
pub(super) fn processes(
    stated: Option<u64>,
    resources: Option<&ResourceRequirements>,
) -> Processes {
    let gpus = gpus(resources);
    match stated {
        Some(count) => Processes::Count(count),
        None if gpus > 0 => Processes::Auto { gpus },
        None => Processes::Count(processors(resources)),
    }
}

/// Ranks of a host of MPI.
pub(super) fn slots(stated: Option<u64>, policy: Option<i64>, gpus: u64) -> u32 {
    let of_policy = policy
        .and_then(|count| u64::try_from(count).ok())
        .unwrap_or(1);
    let slots = match (stated, of_policy) {
        (Some(stated), _) => stated,
        (None, 1) if gpus > 1 => gpus,
        (None, count) => count,
    };
    u32::try_from(slots).unwrap_or(u32::MAX).max(1)
}
