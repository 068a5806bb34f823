//! Names in a runtime that become names of the cluster: containers, claims, the Service. A name that the API refuses would
//! show only when its pods are created.

use std::collections::BTreeSet;

use super::Resolution;
use crate::{
    finding::catalogue,
    spec::{JobName, Namespace, Place, Role, name::LABEL_MAX},
};

impl<'a> Resolution<'a, '_> {
    /// The job of `role` in the runtime.
    pub(super) fn job_of(&self, role: Role) -> Place<'a> {
        let jobs = self.set().key("replicatedJobs");
        match self.places.get(&role) {
            Some(index) => jobs.index(*index),
            None => jobs,
        }
    }

    /// Names of containers: every one has a name, its own in its pod.
    pub(super) fn names(&self) {
        for (role, spec) in &self.job.roles {
            let Some(pod) = &spec.template.spec else {
                continue;
            };
            let place = self.job_of(*role).key("template").key("spec");
            let place = place.key("template").key("spec");
            let mut seen = BTreeSet::new();
            let inits = pod.init_containers.as_deref().unwrap_or_default();
            for (key, containers) in [
                ("initContainers", inits),
                ("containers", pod.containers.as_slice()),
            ] {
                let place = place.key(key);
                for (index, container) in containers.iter().enumerate() {
                    let name = container.name.as_str();
                    let job = role.lower();
                    let message = if name.is_empty() {
                        format!("a container of job `{job}` has no name")
                    } else if let Err(error) = Namespace::parse(name) {
                        format!("invalid name `{name}` of a container of job `{job}`: {error}")
                    } else if !seen.insert(name) {
                        format!("job `{job}` has two containers named `{name}`")
                    } else {
                        continue;
                    };
                    let place = place.index(index).key("name");
                    self.fault_as(&catalogue::BAD_CONTAINER_NAME, &place, &message);
                }
            }
        }
    }

    /// The name of the Service, which is also the domain of the pods' names.
    pub(super) fn check_subdomain(&self, subdomain: &str) {
        if let Err(error) = JobName::parse(subdomain) {
            let place = self.set().key("network").key("subdomain");
            let message = format!(
                "invalid `network.subdomain` `{subdomain}`, the name of a Service: {error}"
            );
            self.fault(&place, &message);
        }
    }

    /// The name of a claim, which is also that of a volume. `full` is the claim's in the cluster.
    pub(super) fn check_claim(
        &self,
        name: &str,
        full: &str,
        seen: &mut BTreeSet<String>,
        place: &Place<'_>,
    ) {
        let place = place.key("metadata").key("name");
        let message = if name.is_empty() {
            "a claim of `volumeClaimPolicies` has no name; pods mount it by that".to_owned()
        } else if let Err(error) = Namespace::parse(name) {
            format!("invalid name `{name}` of a claim, which is also that of a volume: {error}")
        } else if full.len() > LABEL_MAX {
            format!(
                "the claim `{name}` of the job would be named `{full}`: {} characters, at most {LABEL_MAX} are allowed",
                full.len()
            )
        } else if !seen.insert(name.to_owned()) {
            format!("`volumeClaimPolicies` has two claims named `{name}`")
        } else {
            return;
        };
        self.fault(&place, &message);
    }
}
