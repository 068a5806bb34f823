//! The fields of a `Fabric`.

use super::{
    Extra::{None, OneOf},
    Row,
};

pub(super) const ROWS: &[Row] = &[
    (
        "FabricSpec",
        "attachments",
        "The networks that every pod with ranks is attached to, as [namespace/]name[@interface]; without a namespace, in that of the job.",
        None,
    ),
    (
        "FabricSpec",
        "interface",
        "The interface of the pod for gradient traffic; NCCL and Gloo are set to use it.",
        None,
    ),
    (
        "FabricSpec",
        "rdma",
        "The devices of the node that every pod with ranks requests.",
        None,
    ),
    (
        "FabricSpec",
        "variables",
        "Variables of NCCL, Gloo or MPI that the ranks get.",
        None,
    ),
    (
        "FabricSpec",
        "expects",
        "The expected properties of the fabric.",
        None,
    ),
    (
        "FabricSpec",
        "shm",
        "The size of the memory at /dev/shm; it counts towards the memory of the container.",
        None,
    ),
    (
        "FabricSpec",
        "network",
        "The network that `trainyard fabric` writes an attachment for.",
        None,
    ),
    (
        "Rdma",
        "resource",
        "The resource of the node that devices are counted as, such as rdma/hca.",
        None,
    ),
    (
        "Rdma",
        "count",
        "The number of devices; the default is one.",
        None,
    ),
    (
        "Expected",
        "transport",
        "The transport of the gradients.",
        OneOf(&["ib", "roce", "socket", "ofi"]),
    ),
    ("Expected", "mtu", "Bytes of the largest packet.", None),
    (
        "Expected",
        "bandwidthGbps",
        "Gigabits in a second, of one pod.",
        None,
    ),
    (
        "Network",
        "plugin",
        "The CNI plugin that attaches pods.",
        OneOf(&["macvlan", "ipvlan", "host-device", "ib-sriov"]),
    ),
    (
        "Network",
        "namespace",
        "The namespace of the attachment; the default is that of the jobs.",
        None,
    ),
    (
        "Network",
        "master",
        "The interface of the node, for macvlan and ipvlan.",
        None,
    ),
    (
        "Network",
        "mode",
        "How pods share it: bridge, private, vepa or passthru for macvlan, l2, l3 or l3s for ipvlan.",
        None,
    ),
    (
        "Network",
        "device",
        "The device of the node, for host-device.",
        None,
    ),
    (
        "Network",
        "resourceName",
        "The resource of the node whose devices are assigned, for ib-sriov and host-device.",
        None,
    ),
    ("Network", "pkey", "The partition key, for ib-sriov.", None),
    ("Network", "addresses", "Where addresses come from.", None),
    (
        "Addresses",
        "by",
        "The IPAM plugin.",
        OneOf(&["whereabouts", "host-local", "dhcp"]),
    ),
    (
        "Addresses",
        "range",
        "The range, such as 10.10.0.0/16.",
        None,
    ),
    (
        "Addresses",
        "first",
        "The first address of the range that is assigned.",
        None,
    ),
    ("Addresses", "last", "The last one.", None),
    (
        "Addresses",
        "exclude",
        "Ranges within it that are excluded.",
        None,
    ),
    (
        "Addresses",
        "gateway",
        "The gateway, if one is needed.",
        None,
    ),
];
