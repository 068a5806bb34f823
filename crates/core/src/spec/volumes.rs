//! Volumes and paths of a template: what is kept, and what lies where.

use k8s_openapi::api::core::v1::Volume;

/// Whether a volume outlives its pod and its node, and can be written. The claim of an `ephemeral` volume is deleted
/// with its pod.
pub(crate) fn keeps(volume: &Volume) -> bool {
    volume
        .persistent_volume_claim
        .as_ref()
        .is_some_and(|claim| claim.read_only != Some(true))
        || volume
            .nfs
            .as_ref()
            .is_some_and(|nfs| nfs.read_only != Some(true))
        || volume
            .csi
            .as_ref()
            .is_some_and(|csi| csi.read_only != Some(true))
        || volume.cephfs.is_some()
        || volume.glusterfs.is_some()
        || volume.flex_volume.is_some()
        || volume.iscsi.is_some()
        || volume.fc.is_some()
        || volume.rbd.is_some()
}

/// Whether the file `path` is `folder` or lies in it.
pub(crate) fn is_within(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
