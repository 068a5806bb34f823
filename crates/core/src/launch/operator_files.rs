//! The files with which a pod reaches the operator: a token for one audience, and the authority to trust.
//!
//! The token is the pod's own, so that the operator knows which pod connects. The authority travels in an annotation of the pod: no other object and
//! no further right is needed for it.

use k8s_openapi::api::core::v1::{
    DownwardAPIProjection, DownwardAPIVolumeFile, ObjectFieldSelector, ProjectedVolumeSource,
    ServiceAccountTokenProjection, Volume, VolumeProjection,
};

/// The file of the authority in the volume.
pub(super) const AUTHORITY_FILE: &str = "ca.crt";
/// The file of the token in the volume.
pub(super) const TOKEN_FILE: &str = "token";
/// The kubelet renews the token before it has run out.
const TOKEN_SECONDS: i64 = 3_600;

/// The volume `name` with a token for `audience` and the authority that the pod's `annotation` holds.
pub(super) fn operator_files(name: &str, audience: String, annotation: &str) -> Volume {
    let token = VolumeProjection {
        service_account_token: Some(ServiceAccountTokenProjection {
            audience: Some(audience),
            expiration_seconds: Some(TOKEN_SECONDS),
            path: TOKEN_FILE.to_owned(),
            ..ServiceAccountTokenProjection::default()
        }),
        ..VolumeProjection::default()
    };
    let file = DownwardAPIVolumeFile {
        path: AUTHORITY_FILE.to_owned(),
        field_ref: Some(ObjectFieldSelector {
            api_version: None,
            field_path: format!("metadata.annotations['{annotation}']"),
        }),
        ..DownwardAPIVolumeFile::default()
    };
    let authority = VolumeProjection {
        downward_api: Some(DownwardAPIProjection {
            items: Some(vec![file]),
        }),
        ..VolumeProjection::default()
    };
    Volume {
        name: name.to_owned(),
        projected: Some(ProjectedVolumeSource {
            sources: Some(vec![token, authority]),
            ..ProjectedVolumeSource::default()
        }),
        ..Volume::default()
    }
}
