//! What a `JobSet` says beside its jobs: names, order, success, failures, claims.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, PodSpec, Volume,
};

use super::{Resolution, bounded, upsert_by};
use crate::spec::{
    After, Role, Success, Train,
    trainjob::{fields::JobSetSpec, patch},
};

/// Failures of a program that a batch Job bears where it states no limit.
const BACKOFF_LIMIT: u32 = 6;

impl Resolution<'_, '_> {
    /// What the `JobSet` says beside its jobs.
    pub(super) fn set_fields(&mut self, set: &JobSetSpec, own: &mut Train, trainer: Role) {
        let network = set.network.clone().unwrap_or_default();
        own.subdomain = network
            .subdomain
            .filter(|it| !it.is_empty())
            .unwrap_or_else(|| self.job.name.to_string());
        own.has_service = network.enable_dns_hostnames != Some(false);
        own.names_unready = network.publish_not_ready_addresses != Some(false);
        self.dependencies(set, own);
        let success = set.success_policy.clone().unwrap_or_default();
        let named = success.target_replicated_jobs.unwrap_or_default();
        let targets: Vec<Role> = if named.is_empty() {
            own.order.clone()
        } else {
            named
                .iter()
                .filter_map(|name| self.named(name, own, "successPolicy"))
                .collect()
        };
        own.success = match success.operator.as_deref() {
            Some("Any") => Success::Any(targets),
            None | Some("All" | "") => Success::All(targets),
            Some(other) => {
                self.fault(&format!(
                    "`successPolicy.operator` must be `All` or `Any`, found `{other}`"
                ));
                Success::All(targets)
            }
        };
        let batch = |role: Role| {
            let written = set.replicated_jobs.iter().flatten();
            let job = written
                .clone()
                .find(|job| job.name.as_deref() == Some(role.lower()))?;
            job.template.as_ref()?.spec.as_ref()?.backoff_limit
        };
        let failure = set.failure_policy.clone();
        if failure
            .as_ref()
            .is_some_and(|policy| policy.rules.as_ref().is_some_and(|rules| !rules.is_empty()))
        {
            self.no_effect(
                "failurePolicy.rules",
                ": every failure of a program restarts the gang",
            );
        }
        let retries = match failure.and_then(|policy| policy.max_restarts) {
            Some(count) => bounded(count, "`failurePolicy.maxRestarts`", self.at),
            None => batch(trainer)
                .and_then(|limit| u32::try_from(limit).ok())
                .unwrap_or(BACKOFF_LIMIT),
        };
        // Ours is the number of failures at which the job fails.
        self.job.run_policy.backoff_limit = Some(retries.saturating_add(1));
        if let Some(coordinator) = &set.coordinator {
            let name = coordinator.replicated_job.as_deref().unwrap_or_default();
            if let Some(role) = self.named(name, own, "coordinator") {
                let job = coordinator.job_index.unwrap_or(0);
                let pod = coordinator.pod_index.unwrap_or(0);
                let host = format!(
                    "{}-{}-{job}-{pod}.{}",
                    self.job.name,
                    role.lower(),
                    own.subdomain
                );
                own.coordinator = Some(host);
            }
        }
        for (field, is_there) in [
            ("suspend", set.suspend.is_some()),
            ("managedBy", set.managed_by.is_some()),
            (
                "ttlSecondsAfterFinished",
                set.ttl_seconds_after_finished.is_some(),
            ),
        ] {
            if is_there {
                self.no_effect(field, "");
            }
        }
    }

    pub(super) fn named(&self, name: &str, own: &Train, field: &str) -> Option<Role> {
        let found = own.order.iter().find(|role| role.lower() == name);
        if found.is_none() {
            let names: Vec<String> = own
                .order
                .iter()
                .map(|role| role.lower().to_owned())
                .collect();
            self.fault(&format!(
                "`{field}` names the job `{name}`, there is {}",
                patch::list(&names)
            ));
        }
        found.copied()
    }

    fn dependencies(&self, set: &JobSetSpec, own: &mut Train) {
        let order = set
            .startup_policy
            .as_ref()
            .and_then(|policy| policy.startup_policy_order.as_deref());
        let in_order = order == Some("InOrder");
        let mut before: Option<Role> = None;
        for written in set.replicated_jobs.iter().flatten() {
            let name = written.name.as_deref().unwrap_or_default();
            let Some(role) = own.order.iter().copied().find(|role| role.lower() == name) else {
                continue;
            };
            let mut after: Vec<(Role, After)> = Vec::new();
            let written = written.depends_on.as_deref().unwrap_or_default();
            if in_order && !written.is_empty() {
                self.fault("`startupPolicy` and `dependsOn` exclude each other");
            }
            for other in written {
                let what = other.name.as_deref().unwrap_or_default();
                let place = own.order.iter().position(|known| *known == role);
                let earlier = own.order.iter().position(|known| known.lower() == what);
                let Some(earlier) =
                    earlier.filter(|earlier| place.is_some_and(|place| *earlier < place))
                else {
                    self.fault(&format!(
                        "job `{name}` depends on `{what}`, which is not an earlier job"
                    ));
                    continue;
                };
                let state = match other.status.as_deref() {
                    Some("Ready") => After::Ready,
                    Some("Complete") => After::Complete,
                    other => {
                        let found = other.unwrap_or_default();
                        self.fault(&format!(
                            "job `{name}` depends on `{what}` being `{found}`; `Ready` and `Complete` are known"
                        ));
                        continue;
                    }
                };
                after.extend(own.order.get(earlier).map(|role| (*role, state)));
            }
            if let Some(before) = before.filter(|_| in_order) {
                after.push((before, After::Ready));
            }
            if !after.is_empty() {
                own.after.insert(role, after);
            }
            before = Some(role);
        }
    }

    /// Claims that are created with the job, and the volumes of those who mount them.
    pub(super) fn claims(&mut self, set: JobSetSpec, own: &mut Train) {
        for policy in set.volume_claim_policies.into_iter().flatten() {
            let when_deleted = policy.retention_policy.and_then(|it| it.when_deleted);
            let stays = match when_deleted.as_deref() {
                None | Some("Delete") => false,
                Some("Retain") => true,
                Some(other) => {
                    self.fault(&format!(
                        "`retentionPolicy.whenDeleted` must be `Delete` or `Retain`, found `{other}`"
                    ));
                    true
                }
            };
            for mut claim in policy.templates.into_iter().flatten() {
                let name = claim.metadata.name.clone().unwrap_or_default();
                let full = format!("{name}-{}", self.job.name);
                claim.metadata.name = Some(full.clone());
                for role in self.job.roles.values_mut() {
                    if let Some(spec) = &mut role.template.spec {
                        add_volume(spec, &name, &full);
                    }
                }
                let claim = PersistentVolumeClaim {
                    status: None,
                    ..claim
                };
                own.claims.push((claim, stays));
            }
        }
    }
}

fn add_volume(spec: &mut PodSpec, name: &str, claim: &str) {
    let all = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let mut mounts = all.flat_map(|container| container.volume_mounts.iter().flatten());
    if !mounts.any(|mount| mount.name == name) {
        return;
    }
    let volume = Volume {
        name: name.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.to_owned(),
            read_only: None,
        }),
        ..Volume::default()
    };
    upsert_by(spec.volumes.get_or_insert_default(), volume, |volume| {
        volume.name.clone()
    });
}
