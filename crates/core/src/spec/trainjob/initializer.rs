//! What is fetched before the training: the containers of the initializers, and the volume that they share with the nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvFromSource, PodSpec, SecretEnvSource};

use super::{
    fields::{Fetch, Initializer},
    merge::upsert_all,
    resolve::{check_count, container_mut, variable},
};
use crate::{
    finding::catalogue,
    spec::{Place, Role, RoleSpec},
};

const RULE: &crate::finding::Rule = &catalogue::TRAIN_MISMATCH;

/// Gives the initializers of `roles` what the job states.
pub(super) fn apply(
    roles: &mut BTreeMap<Role, RoleSpec>,
    stated: Option<Initializer>,
    runtime: &str,
    place: &Place<'_>,
) {
    let stated = stated.unwrap_or_default();
    for (role, key, fetch) in [
        (Role::DatasetInitializer, "dataset", stated.dataset),
        (Role::ModelInitializer, "model", stated.model),
    ] {
        let Some(fetch) = fetch else {
            continue;
        };
        let place = place.key(key);
        check_uri(fetch.storage_uri.as_deref(), &place);
        let field = format!("initializer.{key}.env");
        check_count(fetch.env.as_deref(), &field, &place.key("env"));
        let name = role.lower();
        let Some(spec) = roles
            .get_mut(&role)
            .and_then(|role| role.template.spec.as_mut())
        else {
            place.report_with(
                RULE,
                format!("runtime `{runtime}` has no job `{name}` that would fetch the {key}"),
                "use a runtime that has one, or remove the field and fetch it in the trainer",
            );
            continue;
        };
        let writes: Vec<String> = mounted(spec, name);
        let read = roles
            .get(&Role::Node)
            .and_then(|role| role.template.spec.as_ref());
        let reads: Vec<String> = read.map(|spec| mounted(spec, "node")).unwrap_or_default();
        if !writes.iter().any(|volume| reads.contains(volume)) {
            place.report_with(
                RULE,
                format!(
                    "what `{name}` fetches would be lost: it and `node` mount no common volume in runtime `{runtime}`"
                ),
                "add a claim to `volumeClaimPolicies` of the runtime and mount it in both, at `/workspace`",
            );
        }
        let spec = roles
            .get_mut(&role)
            .and_then(|role| role.template.spec.as_mut());
        if let Some(container) = spec.and_then(|spec| container_mut(spec, name)) {
            give(container, fetch);
        }
    }
}

fn give(container: &mut k8s_openapi::api::core::v1::Container, fetch: Fetch) {
    let env = container.env.get_or_insert_default();
    let uri = fetch.storage_uri.map(|uri| variable("STORAGE_URI", &uri));
    upsert_all(env, uri.into_iter().chain(fetch.env.into_iter().flatten()));
    if let Some(secret) = fetch.secret_ref {
        container
            .env_from
            .get_or_insert_default()
            .push(EnvFromSource {
                secret_ref: Some(SecretEnvSource {
                    name: secret.name,
                    ..SecretEnvSource::default()
                }),
                ..EnvFromSource::default()
            });
    }
}

fn check_uri(uri: Option<&str>, place: &Place<'_>) {
    const LONGEST: usize = 2048;
    let Some(uri) = uri.filter(|uri| !uri.is_empty()) else {
        return;
    };
    let scheme = uri.split_once("://").map(|(scheme, _)| scheme);
    if scheme.is_none_or(str::is_empty) || uri.len() > LONGEST {
        let shown: String = uri.chars().take(80).collect();
        place.key("storageUri").report_with(
            RULE,
            format!("`storageUri` must be an address with a scheme of at most {LONGEST} characters, found `{shown}`"),
            "write one such as `hf://owner/name` or `s3://bucket/path`",
        );
    }
}

/// The volumes that the container `name` mounts and that other pods can mount, too, by what they are.
fn mounted(spec: &PodSpec, name: &str) -> Vec<String> {
    let container = spec.containers.iter().find(|it| it.name == name);
    let mounts = container
        .into_iter()
        .flat_map(|it| it.volume_mounts.iter().flatten());
    let volume = |name: &str| {
        spec.volumes
            .iter()
            .flatten()
            .find(|volume| volume.name == name)
    };
    mounts
        .filter_map(|mount| {
            let volume = volume(&mount.name)?;
            let is_own = volume.empty_dir.is_some() || volume.ephemeral.is_some();
            let claim = volume.persistent_volume_claim.as_ref();
            let what = claim.map_or_else(
                || volume.name.clone(),
                |claim| format!("claim {}", claim.claim_name),
            );
            (!is_own).then_some(what)
        })
        .collect()
}
