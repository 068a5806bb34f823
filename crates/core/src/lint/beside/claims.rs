//! Claims by themselves: what no volume can be.

use super::{
    super::{
        Rule,
        companions::{Companion, Companions, at},
    },
    is, items, text,
};

fn modes<'a>(companion: &Companion<'a>) -> Vec<&'a str> {
    let modes = items(companion.tree, &["spec", "accessModes"]);
    modes.iter().filter_map(|mode| mode.as_str()).collect()
}

/// Whether the claim takes a volume or data that somebody has. For an empty class no volume is made.
fn has_source(companion: &Companion<'_>) -> bool {
    let named = ["volumeName", "selector", "dataSource", "dataSourceRef"]
        .iter()
        .any(|key| at(companion.tree, &["spec", key]).is_some());
    named || text(companion.tree, &["spec", "storageClassName"]) == Some("")
}

pub(super) fn empty_read_only(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let modes = modes(companion);
    let only_read = !modes.is_empty() && modes.iter().all(|mode| *mode == "ReadOnlyMany");
    if is(companion, "PersistentVolumeClaim") && only_read && !has_source(companion) {
        companion.place.key("spec").key("accessModes").report_with(
            rule,
            format!("the claim `{}` gets a new volume that nobody may write", companion.name),
            "claim it with `ReadWriteMany` and mount it with `readOnly: true`, or name the volume in `volumeName`",
        );
    }
}

/// Provisioners of disks that one node at a time can attach.
const PROVISIONERS: [&str; 11] = [
    "cinder.csi.openstack.org",
    "csi.vsphere.vmware.com",
    "disk.csi.azure.com",
    "dobs.csi.digitalocean.com",
    "ebs.csi.aws.com",
    "kubernetes.io/aws-ebs",
    "kubernetes.io/azure-disk",
    "kubernetes.io/gce-pd",
    "pd.csi.storage.gke.io",
    "rancher.io/local-path",
    "topolvm.io",
];

pub(super) fn block_storage(rule: &Rule, companion: &Companion<'_>, companions: &Companions<'_>) {
    const BLOCK: [&str; 20] = [
        "do-block-storage",
        "ebs-sc",
        "gp2",
        "gp2-csi",
        "gp3",
        "gp3-csi",
        "hostpath",
        "hyperdisk-balanced",
        "io1",
        "io2",
        "linode-block-storage",
        "local-path",
        "local-storage",
        "managed-csi",
        "managed-csi-premium",
        "managed-premium",
        "pd-ssd",
        "pd-standard",
        "premium-rwo",
        "standard-rwo",
    ];
    let modes = modes(companion);
    let class = text(companion.tree, &["spec", "storageClassName"]).unwrap_or_default();
    let shared = modes.iter().find(|mode| mode.ends_with("Many"));
    let volume_mode = text(companion.tree, &["spec", "volumeMode"]);
    let Some(mode) = shared.filter(|_| is(companion, "PersistentVolumeClaim")) else {
        return;
    };
    let namespace = crate::spec::DEFAULT_NAMESPACE;
    let stated = companions.find("StorageClass", namespace, class);
    let provisioner = stated.and_then(|stated| text(stated, &["provisioner"]));
    // What the files say of a class goes before its usual name.
    let is_block = match provisioner {
        Some(name) => PROVISIONERS.contains(&name),
        None => BLOCK.contains(&class),
    };
    if is_block && volume_mode != Some("Block") && !has_source(companion) {
        companion
            .place
            .key("spec")
            .key("storageClassName")
            .report_with(
                rule,
                format!(
                    "`{class}` makes disks for one node, the claim `{}` wants `{mode}`",
                    companion.name
                ),
                "use a class of a shared file system, such as NFS, CephFS, Lustre or EFS",
            );
    }
}

/// How a claim can be mounted.
const MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

pub(super) fn incomplete(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    if !is(companion, "PersistentVolumeClaim") || at(companion.tree, &["spec"]).is_none() {
        return;
    }
    let spec = companion.place.key("spec");
    if modes(companion).is_empty() {
        spec.key("accessModes").report_with(
            rule,
            format!("the claim `{}` has no access mode", companion.name),
            "write `accessModes: [ReadWriteMany]`",
        );
    }
    for mode in modes(companion) {
        if !MODES.contains(&mode) && !mode.contains(['$', '{']) {
            spec.key("accessModes").report_with(
                rule,
                format!(
                    "unknown access mode `{mode}` of the claim `{}`; expected one of {}",
                    companion.name,
                    MODES.join(", ")
                ),
                "write one of these words, in full",
            );
        }
    }
    if at(
        companion.tree,
        &["spec", "resources", "requests", "storage"],
    )
    .is_none()
    {
        spec.key("resources").report_with(
            rule,
            format!(
                "the claim `{}` does not say how much it wants",
                companion.name
            ),
            "add `resources.requests.storage`",
        );
    }
}
