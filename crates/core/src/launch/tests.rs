//! Tests of what a job becomes: full output in `testdata/launch`, the contract's vectors, and one
//! test per decision about an old bug.

mod bugs;
mod build;
mod checkpoints;
mod golden;
mod group;
mod preflight;
mod push;
mod supervise;
mod template;
mod train;
mod transport;
mod trust;
mod vectors;

use k8s_openapi::api::core::v1::{EnvVar, Pod};

use super::{Cluster, LaunchedPod, Plan};
use crate::spec::{Job, Slot};

/// The bare pod of `slot`, in attempt 1, on a cluster with defaults.
fn pod_of(job: &Job, slot: Slot) -> Pod {
    match super::pod(job, slot, 1, &Cluster::default()).unwrap() {
        LaunchedPod::Pod(pod) => *pod,
        LaunchedPod::Job(job) => panic!("{slot} is a batch Job: {job:?}"),
    }
}

/// The variables of container `at`, as `NAME=value` lines; a value from elsewhere is `NAME<-field`.
fn env_of(pod: &Pod, at: usize) -> Vec<String> {
    let line = |variable: &EnvVar| match (&variable.value, &variable.value_from) {
        (Some(value), _) => format!("{}={value}", variable.name),
        (None, Some(source)) => {
            let field = source.field_ref.as_ref().unwrap();
            format!("{}<-{}", variable.name, field.field_path)
        }
        (None, None) => variable.name.clone(),
    };
    let container = &pod.spec.as_ref().unwrap().containers[at];
    container.env.iter().flatten().map(line).collect()
}

/// The value of `label` on `pod`.
fn label_of<'a>(pod: &'a Pod, label: &str) -> Option<&'a str> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get(label).map(String::as_str)
}

#[test]
fn a_plan_gives_the_same_pods_as_single_calls() {
    let cluster = Cluster::default();
    for (name, job) in golden::cases() {
        let plan = Plan::new(&job, &cluster).unwrap();
        for slot in job.slots() {
            let planned = plan.pod(slot, 7).unwrap();
            let single = super::pod(&job, slot, 7, &cluster).unwrap();
            assert_eq!(planned, single, "{name}: {slot}");
        }
    }
}
