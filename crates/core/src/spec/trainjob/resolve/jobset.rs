//! What a `JobSet` says beside its jobs: names, order, success, failures, claims.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, PodSpec, Volume,
};

use std::collections::{BTreeMap, BTreeSet};

use super::Resolution;
use crate::{
    finding::catalogue,
    spec::{
        After, Place, Role, Success, Train,
        nearest::one_of,
        trainjob::{
            fields::{Coordinator, JobSetSpec, ReplicatedJob},
            merge, patch,
        },
    },
};

/// Failures of a program that a batch Job bears where it states no limit.
const BACKOFF_LIMIT: u32 = 6;

impl Resolution<'_, '_> {
    /// What the `JobSet` says beside its jobs.
    pub(super) fn set_fields(&mut self, set: &JobSetSpec, own: &mut Train, trainer: Role) {
        let network = set.network.clone().unwrap_or_default();
        own.subdomain = match network.subdomain.filter(|it| !it.is_empty()) {
            Some(stated) => {
                self.check_subdomain(&stated);
                stated
            }
            None => self.job.name.to_string(),
        };
        own.has_service = network.enable_dns_hostnames != Some(false);
        own.names_unready = network.publish_not_ready_addresses != Some(false);
        self.dependencies(set, own);
        let success = set.success_policy.clone().unwrap_or_default();
        let named = success.target_replicated_jobs.unwrap_or_default();
        let targets: Vec<Role> = if named.is_empty() {
            own.order.clone()
        } else {
            let place = self.set().key("successPolicy");
            named
                .iter()
                .filter_map(|name| self.named(name, own, "successPolicy", &place))
                .collect()
        };
        own.success = match success.operator.as_deref() {
            Some("Any") => Success::Any(targets),
            None | Some("All" | "") => Success::All(targets),
            Some(other) => {
                self.fault(
                    &self.set().key("successPolicy").key("operator"),
                    &format!(
                        "`successPolicy.operator` must be {}, found `{other}`",
                        one_of(["All", "Any"])
                    ),
                );
                Success::All(targets)
            }
        };
        let place = self.set().key("failurePolicy").key("maxRestarts");
        let restarts = set.failure_policy.as_ref().and_then(|it| it.max_restarts);
        let retries = match restarts {
            Some(count) => self.retries(count, "`failurePolicy.maxRestarts`", &place),
            None => self.backoff_limit(set, trainer),
        };
        // Ours is the number of failures at which the job fails.
        self.job.run_policy.backoff_limit = Some(retries.saturating_add(1));
        let order = own.order.clone();
        for role in order.into_iter().filter(|role| role.is_initializer()) {
            let retries = self.backoff_limit(set, role);
            own.retries.insert(role, retries);
        }
        if let Some(coordinator) = &set.coordinator {
            self.coordinator(coordinator, own);
        }
    }

    /// `backoffLimit` of the job of `role`.
    fn backoff_limit(&self, set: &JobSetSpec, role: Role) -> u32 {
        let jobs = set.replicated_jobs.as_deref().unwrap_or_default();
        let job = self.places.get(&role).and_then(|index| jobs.get(*index));
        let limit = job.and_then(|job| job.template.as_ref()?.spec.as_ref()?.backoff_limit);
        let Some(limit) = limit else {
            return BACKOFF_LIMIT;
        };
        let place = self.job_of(role).key("template").key("spec");
        let what = format!("`backoffLimit` of job `{}`", role.lower());
        self.retries(i64::from(limit), &what, &place.key("backoffLimit"))
    }

    fn retries(&self, count: i64, what: &str, place: &Place<'_>) -> u32 {
        // A batch Job's limit may be the largest number there is, which means none.
        let bounded = u32::try_from(count).ok();
        bounded.unwrap_or_else(|| {
            let message = format!("{what} must be a number from 0, found {count}");
            self.fault_as(&catalogue::NEGATIVE_LIMIT, place, &message);
            BACKOFF_LIMIT
        })
    }

    /// The pod that coordinates, by its name in the network.
    fn coordinator(&self, coordinator: &Coordinator, own: &mut Train) {
        let place = self.set().key("coordinator");
        let name = coordinator.replicated_job.as_deref().unwrap_or_default();
        let Some(role) = self.named(name, own, "coordinator", &place) else {
            return;
        };
        let job = coordinator.job_index.unwrap_or(0);
        if job != 0 {
            let message =
                format!("`coordinator.jobIndex` must be 0, as `replicas` is 1, found {job}");
            self.fault(&place.key("jobIndex"), &message);
        }
        let pod = coordinator.pod_index.unwrap_or(0);
        if pod < 0 {
            let message = format!("`coordinator.podIndex` must be a number from 0, found {pod}");
            self.fault(&place.key("podIndex"), &message);
        }
        let host = format!(
            "{}-{}-{job}-{pod}.{}",
            self.job.name,
            role.lower(),
            own.subdomain
        );
        own.coordinator = Some(host);
    }

    /// What the jobs say beside their pods: groups, and what is not read.
    pub(super) fn jobs_beside_pods(&self, set: &JobSetSpec, own: &mut Train, trainer: Role) {
        let by_failures = set.failure_policy.as_ref();
        let by_failures = by_failures.is_some_and(|policy| policy.max_restarts.is_some());
        for role in own.order.clone() {
            let Some(written) = self.written(set, role) else {
                continue;
            };
            let retries = role.is_initializer() || role == trainer && !by_failures;
            self.ignored_of_job(role, written, retries);
            if let Some(group) = written.group_name.clone().filter(|name| !name.is_empty()) {
                own.groups.insert(role, group);
            }
        }
    }

    /// Numbers of pods in the jobs that are not those that run.
    pub(super) fn stated_counts(&self, set: &JobSetSpec, own: &Train, trainer: Role) {
        for role in &own.order {
            let by_nodes = *role == trainer || *role == Role::Node && trainer == Role::Launcher;
            let written = self.written(set, *role);
            let batch = written.and_then(|job| job.template.as_ref()?.spec.as_ref());
            let count = self.job.role_replicas(*role);
            // Runtimes write 1 where the number of nodes is meant to decide.
            if let Some(stated @ 2..) = batch.and_then(|batch| batch.parallelism)
                && by_nodes
                && u32::try_from(stated) != Ok(count)
            {
                self.ignored_count(*role, stated, count);
            }
        }
    }

    fn written<'s>(&self, set: &'s JobSetSpec, role: Role) -> Option<&'s ReplicatedJob> {
        set.replicated_jobs.as_ref()?.get(*self.places.get(&role)?)
    }

    pub(super) fn named(
        &self,
        name: &str,
        own: &Train,
        field: &str,
        place: &Place<'_>,
    ) -> Option<Role> {
        let found = own.order.iter().find(|role| role.lower() == name);
        if found.is_none() {
            let names: Vec<String> = own
                .order
                .iter()
                .map(|role| role.lower().to_owned())
                .collect();
            let message = format!(
                "`{field}` names the job `{name}`; the jobs are {}",
                patch::list(&names)
            );
            self.fault(place, &message);
        }
        found.copied()
    }

    fn dependencies(&self, set: &JobSetSpec, own: &mut Train) {
        let order = set
            .startup_policy
            .as_ref()
            .and_then(|policy| policy.startup_policy_order.as_deref());
        let in_order = order == Some("InOrder");
        let place = self.set().key("startupPolicy").key("startupPolicyOrder");
        if let Some(other) = order.filter(|it| !matches!(*it, "" | "AnyOrder" | "InOrder")) {
            let known = one_of(["AnyOrder", "InOrder"]);
            let message = format!("unknown `startupPolicyOrder` `{other}`; expected {known}");
            self.fault(&place, &message);
        }
        let mut before: Option<Role> = None;
        for written in set.replicated_jobs.iter().flatten() {
            let name = written.name.as_deref().unwrap_or_default();
            let Some(role) = own.order.iter().copied().find(|role| role.lower() == name) else {
                continue;
            };
            let mut after: Vec<(Role, After)> = Vec::new();
            let written = written.depends_on.as_deref().unwrap_or_default();
            if in_order && !written.is_empty() {
                self.fault(&place, "`startupPolicy` and `dependsOn` exclude each other");
            }
            let at = self.job_of(role).key("dependsOn");
            for (index, other) in written.iter().enumerate() {
                let at = at.index(index);
                let what = other.name.as_deref().unwrap_or_default();
                let place = own.order.iter().position(|known| *known == role);
                let earlier = own.order.iter().position(|known| known.lower() == what);
                let Some(earlier) =
                    earlier.filter(|earlier| place.is_some_and(|place| *earlier < place))
                else {
                    let message =
                        format!("job `{name}` depends on `{what}`, which is not an earlier job");
                    self.fault(&at.key("name"), &message);
                    continue;
                };
                let state = match other.status.as_deref() {
                    Some("Ready") => After::Ready,
                    Some("Complete") => After::Complete,
                    other => {
                        let found = other.unwrap_or_default();
                        let known = one_of(["Complete", "Ready"]);
                        let message = format!(
                            "job `{name}` depends on `{what}` being `{found}`; expected {known}"
                        );
                        self.fault(&at.key("status"), &message);
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
        let place = self.set().key("volumeClaimPolicies");
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (index, policy) in set.volume_claim_policies.into_iter().flatten().enumerate() {
            let place = place.index(index);
            let when_deleted = policy.retention_policy.and_then(|it| it.when_deleted);
            let stays = match when_deleted.as_deref() {
                None | Some("" | "Delete") => false,
                Some("Retain") => true,
                Some(other) => {
                    let message = format!(
                        "`retentionPolicy.whenDeleted` must be {}, found `{other}`",
                        one_of(["Delete", "Retain"])
                    );
                    let place = place.key("retentionPolicy").key("whenDeleted");
                    self.fault(&place, &message);
                    true
                }
            };
            let place = place.key("templates");
            for (index, mut claim) in policy.templates.into_iter().flatten().enumerate() {
                let name = claim.metadata.name.clone().unwrap_or_default();
                let full = format!("{name}-{}", self.job.name);
                self.check_claim(&name, &full, &mut seen, &place.index(index));
                claim.metadata.name = Some(full.clone());
                names.insert(name, full);
                let claim = PersistentVolumeClaim {
                    status: None,
                    ..claim
                };
                own.claims.push((claim, stays));
            }
        }
        for role in self.job.roles.values_mut() {
            if let Some(spec) = role.template.spec.as_mut().filter(|_| !names.is_empty()) {
                add_volumes(spec, &names);
            }
        }
    }
}

/// Adds the volumes of those claims that the pod mounts: the claim of each name.
fn add_volumes(spec: &mut PodSpec, claims: &BTreeMap<String, String>) {
    let all = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let mounts = all.flat_map(|container| container.volume_mounts.iter().flatten());
    let mounted: BTreeSet<&str> = mounts.map(|mount| mount.name.as_str()).collect();
    let volumes: Vec<Volume> = claims
        .iter()
        .filter(|(name, _)| mounted.contains(name.as_str()))
        .map(|(name, claim)| Volume {
            name: name.clone(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim.clone(),
                read_only: None,
            }),
            ..Volume::default()
        })
        .collect();
    if !volumes.is_empty() {
        let own = spec.volumes.get_or_insert_default();
        merge::put_all(own, volumes, |volume| &volume.name, |_, new| Some(new));
    }
}
