//! The autoscaler of an elastic `PyTorchJob` that names metrics.

use k8s_openapi::{
    api::autoscaling::v2::{
        CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::pod;
use crate::spec::Job;

/// The autoscaler that writes the number of workers through the job's scale subresource; none
/// without `elasticPolicy.metrics`.
pub fn autoscaler(job: &Job) -> Option<HorizontalPodAutoscaler> {
    let elastic = job
        .elastic()
        .filter(|elastic| !elastic.metrics.is_empty())?;
    let count = |replicas: u32| i32::try_from(replicas).unwrap_or(i32::MAX);
    Some(HorizontalPodAutoscaler {
        metadata: ObjectMeta {
            name: Some(job.name.as_str().to_owned()),
            namespace: Some(job.namespace.as_str().to_owned()),
            owner_references: pod::owners(job),
            ..ObjectMeta::default()
        },
        spec: HorizontalPodAutoscalerSpec {
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some(job.kind.api_version().to_owned()),
                kind: job.kind.name().to_owned(),
                name: job.name.as_str().to_owned(),
            },
            min_replicas: Some(count(elastic.min_replicas)),
            max_replicas: count(elastic.max_replicas),
            metrics: Some(elastic.metrics.clone()),
            ..HorizontalPodAutoscalerSpec::default()
        },
        status: None,
    })
}
