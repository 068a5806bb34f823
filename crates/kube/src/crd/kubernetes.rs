//! What the API says about the fields of a pod template, and its types do not.
//!
//! How lists and maps merge under server-side apply, and what an absent field means. A pod template
//! that went through a job must come out as it would from the API server's own schema.
//!
//! Invariant: every row names a field that the linked version of the API has.

/// Lists that are maps in disguise: struct, field, the keys of an item.
pub(super) const MAP_LISTS: &[(&str, &str, &[&str])] = &[
    ("Container", "env", &["name"]),
    ("Container", "ports", &["containerPort", "protocol"]),
    ("Container", "volumeDevices", &["devicePath"]),
    ("Container", "volumeMounts", &["mountPath"]),
    ("EphemeralContainer", "env", &["name"]),
    (
        "EphemeralContainer",
        "ports",
        &["containerPort", "protocol"],
    ),
    ("EphemeralContainer", "volumeDevices", &["devicePath"]),
    ("EphemeralContainer", "volumeMounts", &["mountPath"]),
    ("PodSpec", "containers", &["name"]),
    ("PodSpec", "ephemeralContainers", &["name"]),
    ("PodSpec", "hostAliases", &["ip"]),
    ("PodSpec", "imagePullSecrets", &["name"]),
    ("PodSpec", "initContainers", &["name"]),
    ("PodSpec", "resourceClaims", &["name"]),
    ("PodSpec", "schedulingGates", &["name"]),
    (
        "PodSpec",
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
    ("PodSpec", "volumes", &["name"]),
    ("ResourceRequirements", "claims", &["name"]),
];

/// Lists whose items are there once.
pub(super) const SET_LISTS: &[(&str, &str)] = &[("ContainerRestartRuleOnExitCodes", "values")];

/// Lists about which the API says nothing; every other list is replaced as a whole.
pub(super) const PLAIN_LISTS: &[(&str, &str)] = &[("ObjectMeta", "finalizers")];

/// Structs that are replaced as a whole.
pub(super) const WHOLE_STRUCTS: &[&str] = &[
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "FileKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ResourceFieldSelector",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
    "TypedLocalObjectReference",
];

/// Maps that are replaced as a whole.
pub(super) const WHOLE_MAPS: &[(&str, &str)] = &[("PodSpec", "nodeSelector")];

/// Text that stands for an absent field.
pub(super) const TEXT_DEFAULTS: &[(&str, &str, &str)] = &[
    ("AzureDiskVolumeSource", "fsType", "ext4"),
    ("ConfigMapEnvSource", "name", ""),
    ("ConfigMapKeySelector", "name", ""),
    ("ConfigMapProjection", "name", ""),
    ("ConfigMapVolumeSource", "name", ""),
    ("ContainerPort", "protocol", "TCP"),
    ("GRPCAction", "service", ""),
    ("ISCSIVolumeSource", "iscsiInterface", "default"),
    ("LocalObjectReference", "name", ""),
    ("RBDVolumeSource", "keyring", "/etc/ceph/keyring"),
    ("RBDVolumeSource", "pool", "rbd"),
    ("RBDVolumeSource", "user", "admin"),
    ("ScaleIOVolumeSource", "fsType", "xfs"),
    ("ScaleIOVolumeSource", "storageMode", "ThinProvisioned"),
    ("SecretEnvSource", "name", ""),
    ("SecretKeySelector", "name", ""),
    ("SecretProjection", "name", ""),
];

/// Switches that are off where they are absent.
pub(super) const OFF_BY_DEFAULT: &[(&str, &str)] = &[
    ("AzureDiskVolumeSource", "readOnly"),
    ("FileKeySelector", "optional"),
];

/// What a template inside a job keeps of its metadata.
pub(super) const TEMPLATE_METADATA: &[&str] =
    &["annotations", "finalizers", "labels", "name", "namespace"];
