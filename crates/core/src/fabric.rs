//! Fabrics: the network that gradients travel on, as a named profile.
//!
//! Owns what a `Fabric` says, how it is read, what it adds to the pods of a job that names it with
//! `trainyard.dev/fabric`, and the network attachments that it describes. Tenants choose a name; the
//! platform owns the details. It does not know where a fabric comes from: a document beside the job, or
//! an object of a cluster.
//!
//! Invariant: whatever the user set stays as it is. Where the fabric has another value, that is a
//! [`Disagreement`], never a change.

mod attachment;
mod fit;
mod forward;
mod network;
mod ranges;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

pub(crate) use attachment::attachments;
pub use attachment::{Attachment, NETWORKS};
pub use fit::{Disagreement, Fitted, RoleFitting, Setting, fit, fit_locally};
pub(crate) use network::plugin;
pub use network::{ATTACHMENT_KIND, RESOURCE_NAME, attachment, attachment_name};
pub(crate) use ranges::{Range, ranges};
pub(crate) use read::twice;
pub use read::{NotAFabric, Read, read, read_value};

use crate::spec::wire::wire;
pub use crate::spec::{FABRIC_API_VERSION as API_VERSION, FABRIC_KIND as KIND};

/// One fabric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fabric {
    /// `metadata.name`, which jobs name it by.
    pub name: String,
    /// What it is.
    pub spec: FabricSpec,
}

wire! {
    /// What a fabric is. Every part may be left out.
    struct FabricSpec {
        /// The networks that every pod with ranks is attached to, as `[namespace/]name[@interface]`;
        /// without a namespace, that of the job is used.
        attachments: Vec<String>,
        /// The interface of the pod that gradients travel on.
        interface: String,
        /// The device of the node that the network is used by without its kernel.
        rdma: Rdma,
        /// Variables of NCCL, Gloo or MPI that the ranks get.
        variables: BTreeMap<String, String>,
        /// What a job should find.
        expects: Expected,
        /// The size of the memory at `/dev/shm`.
        shm: Quantity,
        /// The network that attachments are generated from.
        network: Network,
    }

    /// The devices that a pod with ranks asks for.
    struct Rdma {
        /// The resource of the node, such as `rdma/hca`.
        resource: String,
        /// How many of them, one where nothing is said.
        count: i64,
    }

    /// What a job on the fabric should find.
    struct Expected {
        /// The transport: `ib`, `roce`, `socket` or `ofi`.
        transport: String,
        /// Bytes of the largest packet.
        mtu: i64,
        /// Gigabits in a second, of one pod.
        bandwidth_gbps: i64,
    }

    /// A network that pods are attached to by a CNI plugin.
    struct Network {
        /// `macvlan`, `ipvlan`, `host-device` or `ib-sriov`.
        plugin: String,
        /// The namespace of the attachment; that of the jobs where nothing is said.
        namespace: String,
        /// The interface of the node, for `macvlan` and `ipvlan`.
        master: String,
        /// How pods share it: `bridge`, `private`, `vepa` or `passthru` for `macvlan`, `l2`, `l3` or `l3s`
        /// for `ipvlan`.
        mode: String,
        /// The device of the node, for `host-device`.
        device: String,
        /// The resource of the node whose devices are handed out, for `ib-sriov` and `host-device`.
        resource_name: String,
        /// The partition key, for `ib-sriov`.
        pkey: String,
        /// Where addresses come from.
        addresses: Addresses,
    }

    /// Where the addresses of a network come from.
    struct Addresses {
        /// `whereabouts`, `host-local` or `dhcp`.
        by: String,
        /// The range, such as `10.10.0.0/16`.
        range: String,
        /// The first address of the range that is given out.
        first: String,
        /// The last one.
        last: String,
        /// Ranges within it that are not.
        exclude: Vec<String>,
        /// The router, where one is needed.
        gateway: String,
    }
}

impl FabricSpec {
    /// The variables that the ranks get where `interface` carries the gradients: those that are stated,
    /// and the ones that name the interface for NCCL and Gloo.
    pub(crate) fn variables_on(&self, interface: Option<&str>) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        if let Some(interface) = interface {
            // Without `=` NCCL would take `net10` for `net1`, too.
            variables.insert("NCCL_SOCKET_IFNAME".to_owned(), format!("={interface}"));
            variables.insert("GLOO_SOCKET_IFNAME".to_owned(), interface.to_owned());
        }
        variables.extend(self.variables.clone().into_iter().flatten());
        variables
    }

    /// The device that a pod asks for, and how many.
    pub(crate) fn device(&self) -> Option<(&str, i64)> {
        let rdma = self.rdma.as_ref()?;
        Some((rdma.resource.as_deref()?, rdma.count.unwrap_or(1)))
    }
}
