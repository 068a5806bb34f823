//! Amounts of resources by name, as whole numbers.
//!
//! CPU is counted in thousandths, everything else in its unit: bytes, devices, pods. What a pod asks for
//! is worked out as the scheduler does it.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use serde::Serialize;

use crate::quantity;

pub use crate::quantity::is_accelerator;

/// CPU, in thousandths.
pub const CPU: &str = "cpu";
/// Memory, in bytes.
pub const MEMORY: &str = "memory";
/// Pods: a node holds only so many, and every pod asks for one.
pub const PODS: &str = "pods";
/// What begins the name of a port of the node: every node has each of them once.
pub(crate) const HOST_PORT: &str = "host-port:";

/// Amounts by the name of the resource. What is not named is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Resources(BTreeMap<String, i64>);

impl Resources {
    /// The amount of `name`.
    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Sets the amount of `name`.
    pub fn set(&mut self, name: &str, amount: i64) {
        if amount == 0 {
            self.0.remove(name);
        } else if let Some(own) = self.0.get_mut(name) {
            *own = amount;
        } else {
            self.0.insert(name.to_owned(), amount);
        }
    }

    /// Every resource with its amount, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            self.set(name, self.get(name).saturating_add(amount));
        }
    }

    /// Raises every amount to that of `other`, where it is larger there.
    pub fn raise(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            self.set(name, self.get(name).max(amount));
        }
    }

    /// How many devices that compute these are.
    pub fn accelerators(&self) -> i64 {
        self.iter()
            .filter(|(name, _)| is_accelerator(name))
            .map(|(_, amount)| amount)
            .fold(0, i64::saturating_add)
    }

    /// The amounts of `quantities`; invalid quantities are left out.
    pub fn of_quantities(quantities: &BTreeMap<String, Quantity>) -> Self {
        let amounts = quantities
            .iter()
            .filter_map(|(name, quantity)| Some((name.clone(), amount(name, quantity)?)))
            .filter(|(_, amount)| *amount != 0);
        Self(amounts.collect())
    }

    /// What a pod of `spec` asks a node for: its containers together, or its largest init container
    /// where that is more, sidecars and overhead included, one place among the pods, and the node's ports.
    pub fn of_pod(spec: &PodSpec) -> Self {
        let mut sidecars = Self::default();
        let mut largest = Self::default();
        for container in spec.init_containers.iter().flatten() {
            let mut own = of_container(container);
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars.add(&own);
                own = sidecars.clone();
            } else {
                own.add(&sidecars);
            }
            largest.raise(&own);
        }
        let mut total = sidecars;
        for container in &spec.containers {
            total.add(&of_container(container));
        }
        total.raise(&largest);
        if let Some(stated) = &spec.resources {
            for (name, amount) in of_requirements(stated).iter() {
                total.set(name, amount);
            }
        }
        if let Some(overhead) = &spec.overhead {
            total.add(&Self::of_quantities(overhead));
        }
        for name in host_ports(spec) {
            total.set(&name, 1);
        }
        total.set(PODS, 1);
        total
    }
}

impl FromIterator<(String, i64)> for Resources {
    fn from_iter<I: IntoIterator<Item = (String, i64)>>(amounts: I) -> Self {
        Self(
            amounts
                .into_iter()
                .filter(|(_, amount)| *amount != 0)
                .collect(),
        )
    }
}

/// Whether that is a port of the node.
pub fn is_host_port(name: &str) -> bool {
    name.starts_with(HOST_PORT)
}

fn amount(name: &str, quantity: &Quantity) -> Option<i64> {
    if name == CPU {
        i64::try_from(quantity::milli(quantity)?).ok()
    } else {
        i64::try_from(quantity::units(quantity)?).ok()
    }
}

fn of_container(container: &Container) -> Resources {
    container
        .resources
        .as_ref()
        .map(of_requirements)
        .unwrap_or_default()
}

/// A limit without a request is the request too; the API server sets it when a pod is created.
fn of_requirements(stated: &ResourceRequirements) -> Resources {
    let mut total = stated
        .limits
        .as_ref()
        .map(Resources::of_quantities)
        .unwrap_or_default();
    for (name, quantity) in stated.requests.iter().flatten() {
        if let Some(amount) = amount(name, quantity) {
            total.set(name, amount);
        }
    }
    total
}

/// The ports of the node that the pod takes, as names of resources.
fn host_ports(spec: &PodSpec) -> impl Iterator<Item = String> {
    let in_host_network = spec.host_network == Some(true);
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten());
    ports.filter_map(move |port| {
        let number = port
            .host_port
            .or(in_host_network.then_some(port.container_port))?;
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        (number > 0).then(|| format!("{HOST_PORT}{protocol}/{number}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_asks_for_what_the_scheduler_counts() {
        let spec: PodSpec = serde_json::from_value(json!({
            "initContainers": [
                {"name": "pull", "resources": {"requests": {"cpu": "6"}}},
                {"name": "sidecar", "restartPolicy": "Always",
                 "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
            ],
            "containers": [
                {"name": "a", "ports": [{"containerPort": 80, "hostPort": 8080}],
                 "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": "8"}, "requests": {"cpu": "1"}}},
                {"name": "b", "resources": {"requests": {"memory": "1Gi"}}}
            ],
            "overhead": {"cpu": "100m"}
        }))
        .unwrap();
        let got: Vec<(String, i64)> = Resources::of_pod(&spec)
            .iter()
            .map(|(name, amount)| (name.to_owned(), amount))
            .collect();
        let want = [
            ("cpu", 6_100),
            ("host-port:TCP/8080", 1),
            ("memory", 2 << 30),
            ("nvidia.com/gpu", 8),
            ("pods", 1),
        ];
        let got: Vec<(&str, i64)> = got.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn what_computes() {
        for name in [
            "nvidia.com/gpu",
            "amd.com/gpu",
            "google.com/tpu",
            "nvidia.com/mig-1g.5gb",
            "habana.ai/gaudi",
        ] {
            assert!(is_accelerator(name), "{name}");
        }
        for name in [
            "cpu",
            "memory",
            "rdma/hca",
            "nvidia.com/hostdev",
            "hugepages-2Mi",
        ] {
            assert!(!is_accelerator(name), "{name}");
        }
    }
}
