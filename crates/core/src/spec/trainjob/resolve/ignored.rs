//! What a runtime says and nothing here does: every such field gets a sentence that names it and what happens instead.

use k8s_openapi::{api::batch::v1::JobSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::{ANCESTOR, NO_EFFECT, Resolution};
use crate::spec::{
    Place, Role,
    nearest::one_of,
    trainjob::{
        fields::{FailurePolicy, JobSetSpec, MetadataPatch, ReplicatedJob},
        patch,
    },
};

/// The annotations by which a `JobSet` places its jobs.
const PLACEMENT: &str = "alpha.jobset.sigs.k8s.io/";
/// Steps that a job can be.
const STEPS: [&str; 3] = ["trainer", "dataset-initializer", "model-initializer"];

impl Resolution<'_, '_> {
    /// Fields of the `JobSet` itself.
    pub(super) fn ignored_of_set(&self, metadata: Option<&MetadataPatch>, set: &JobSetSpec) {
        let place = self.in_runtime.key("template").key("metadata");
        let keys = metadata.and_then(|it| it.annotations.as_ref());
        self.placement(
            keys.into_iter().flat_map(|all| all.keys()),
            "",
            &place.key("annotations"),
        );
        let place = self.set();
        for (field, is_there, instead) in [
            (
                "suspend",
                set.suspend.is_some(),
                "`spec.suspend` of the TrainJob decides",
            ),
            (
                "managedBy",
                set.managed_by.is_some(),
                "no JobSet is created, the pods are those of the TrainJob",
            ),
            (
                "ttlSecondsAfterFinished",
                set.ttl_seconds_after_finished.is_some(),
                "the pods stay until the TrainJob is deleted",
            ),
        ] {
            if is_there {
                self.no_effect(&place.key(field), field, instead);
            }
        }
        if let Some(policy) = &set.failure_policy {
            self.ignored_of_failures(policy, &place.key("failurePolicy"));
        }
    }

    fn ignored_of_failures(&self, policy: &FailurePolicy, place: &Place<'_>) {
        const STRATEGIES: [&str; 3] = ["Recreate", "BlockingRecreate", "InPlaceRestart"];
        if policy.rules.as_ref().is_some_and(|rules| !rules.is_empty()) {
            self.no_effect(
                &place.key("rules"),
                "failurePolicy.rules",
                "every failure of a program restarts all nodes",
            );
        }
        let strategy = policy.restart_strategy.as_deref().unwrap_or_default();
        let place = place.key("restartStrategy");
        if strategy == "InPlaceRestart" {
            self.no_effect(
                &place,
                "failurePolicy.restartStrategy: InPlaceRestart",
                "all pods are deleted and created again",
            );
        } else if !strategy.is_empty() && !STRATEGIES.contains(&strategy) {
            self.fault(
                &place,
                &format!(
                    "unknown `failurePolicy.restartStrategy` `{strategy}`; expected {}",
                    one_of(STRATEGIES)
                ),
            );
        }
    }

    /// Fields of one job beside its pods. `retries` is whether its `backoffLimit` is used.
    pub(super) fn ignored_of_job(&self, role: Role, written: &ReplicatedJob, retries: bool) {
        let name = role.lower();
        let place = self.job_of(role).key("template");
        let Some(template) = &written.template else {
            return;
        };
        if let Some(metadata) = &template.metadata {
            self.ignored_of_metadata(name, metadata, &place.key("metadata"));
        }
        let Some(batch) = &template.spec else {
            return;
        };
        let place = place.key("spec");
        for (field, instead) in unread(batch) {
            self.no_effect(
                &place.key(field),
                &format!("{field}` of job `{name}"),
                instead,
            );
        }
        if batch.backoff_limit.is_some() && !retries {
            self.no_effect(
                &place.key("backoffLimit"),
                &format!("backoffLimit` of job `{name}"),
                "`maxRestarts` of `failurePolicy`, else `backoffLimit` of the job that trains, is the limit of the gang",
            );
        }
        if let (Some(completions), Some(parallelism)) = (batch.completions, batch.parallelism)
            && completions != parallelism
        {
            self.no_effect(
                &place.key("completions"),
                &format!("completions: {completions}` of job `{name}"),
                &format!("each of the pods, by `parallelism: {parallelism}` or `numNodes`, completes once"),
            );
        } else if let (Some(completions @ 2..), None) = (batch.completions, batch.parallelism) {
            self.no_effect(
                &place.key("completions"),
                &format!("completions: {completions}` of job `{name}"),
                "`parallelism`, 1 where it is not stated, or `numNodes` is the number of pods",
            );
        }
    }

    /// `parallelism` of a job whose pods are counted by `numNodes`, or which is always one pod.
    pub(super) fn ignored_count(&self, role: Role, stated: i32, count: u32) {
        let place = self.job_of(role);
        let place = place.key("template").key("spec").key("parallelism");
        let pods = if count == 1 { "pod" } else { "pods" };
        self.no_effect(
            &place,
            &format!("parallelism: {stated}` of job `{}", role.lower()),
            &format!("`numNodes` is the number of nodes, and the job has {count} {pods}"),
        );
    }

    /// Metadata of a batch Job, of which there is none here.
    fn ignored_of_metadata(&self, job: &str, metadata: &ObjectMeta, place: &Place<'_>) {
        let labels = metadata.labels.iter().flatten();
        let mut others: Vec<String> = Vec::new();
        for (key, value) in labels {
            if key != ANCESTOR {
                others.push(key.clone());
            } else if !STEPS.contains(&value.as_str()) {
                self.no_effect(
                    &place.key("labels").key(key),
                    &format!("{ANCESTOR}: {value}` of job `{job}"),
                    &format!("the step must be {}", one_of(STEPS)),
                );
            }
        }
        let annotations = metadata.annotations.iter().flatten().map(|(key, _)| key);
        let (placed, plain): (Vec<&String>, Vec<&String>) =
            annotations.partition(|key| key.starts_with(PLACEMENT));
        let at = place.key("annotations");
        self.placement(placed.into_iter(), &format!(" of job `{job}`"), &at);
        others.extend(plain.into_iter().cloned());
        for (field, is_there) in [
            ("name", metadata.name.is_some()),
            ("generateName", metadata.generate_name.is_some()),
            ("namespace", metadata.namespace.is_some()),
            ("finalizers", metadata.finalizers.is_some()),
            ("ownerReferences", metadata.owner_references.is_some()),
        ] {
            if is_there {
                others.push(field.to_owned());
            }
        }
        if !others.is_empty() {
            self.no_effect_of(
                place,
                &format!("`template.metadata` of job `{job}` ({})", patch::list(&others)),
                "no batch Job is created; labels and annotations of the pods are those of `template.spec.template.metadata`",
            );
        }
    }

    /// Annotations by which a `JobSet` would place its jobs.
    fn placement<'k>(&self, keys: impl Iterator<Item = &'k String>, of: &str, place: &Place<'_>) {
        for key in keys.filter(|key| key.starts_with(PLACEMENT)) {
            let instead = match key.strip_prefix(PLACEMENT).unwrap_or_default() {
                "exclusive-topology" => {
                    "other jobs may run in the same domain; `trainyard.dev/placement` of the TrainJob keeps the nodes in one"
                }
                "node-selector" => {
                    "the pods go where their own `nodeSelector` and affinity let them"
                }
                _ => "pods are placed by what their own spec says",
            };
            self.no_effect_of(&place.key(key), &format!("annotation `{key}`{of}"), instead);
        }
    }

    /// Warns of a field of the runtime, in backquotes.
    pub(super) fn no_effect(&self, place: &Place<'_>, field: &str, instead: &str) {
        self.no_effect_of(place, &format!("`{field}`"), instead);
    }

    fn no_effect_of(&self, place: &Place<'_>, what: &str, instead: &str) {
        let at = self.spot(place);
        let message = format!(
            "runtime `{}`{at}: {what} has no effect here: {instead}",
            self.runtime
        );
        self.at.key("name").report(NO_EFFECT, message);
    }
}

/// Fields of a batch Job that are not read, and what happens instead.
fn unread(batch: &JobSpec) -> Vec<(&'static str, &'static str)> {
    const BY_LIMIT: &str = "every failed pod counts against the limit of its job";
    [
        (
            "podFailurePolicy",
            batch.pod_failure_policy.is_some(),
            "failures are distinguished by exit code and by what happened to the pod",
        ),
        (
            "activeDeadlineSeconds",
            batch.active_deadline_seconds.is_some(),
            "`spec.activeDeadlineSeconds` of the TrainJob is the deadline of the whole",
        ),
        (
            "suspend",
            batch.suspend.is_some(),
            "`spec.suspend` of the TrainJob decides",
        ),
        (
            "ttlSecondsAfterFinished",
            batch.ttl_seconds_after_finished.is_some(),
            "the pods stay until the TrainJob is deleted",
        ),
        (
            "selector",
            batch.selector.is_some(),
            "pods are selected by the labels of their TrainJob",
        ),
        (
            "manualSelector",
            batch.manual_selector.is_some(),
            "pods are selected by the labels of their TrainJob",
        ),
        (
            "backoffLimitPerIndex",
            batch.backoff_limit_per_index.is_some(),
            BY_LIMIT,
        ),
        (
            "maxFailedIndexes",
            batch.max_failed_indexes.is_some(),
            BY_LIMIT,
        ),
        (
            "podReplacementPolicy",
            batch.pod_replacement_policy.is_some(),
            "a pod is created again when the one before is gone",
        ),
        (
            "successPolicy",
            batch.success_policy.is_some(),
            "the job has succeeded when all its pods have",
        ),
        (
            "scheduling",
            batch.scheduling.is_some(),
            "nodes are assigned to the whole gang",
        ),
        (
            "managedBy",
            batch.managed_by.is_some(),
            "no batch Job is created, the pods are those of the TrainJob",
        ),
    ]
    .into_iter()
    .filter_map(|(field, is_there, instead)| is_there.then_some((field, instead)))
    .collect()
}
