//! The environment of a container.
//!
//! Order, as the kubelet has it: `envFrom` sources one after another, then `env`; a later value of
//! a name wins. A value may refer to those before it. Beneath all of it lies the environment that
//! the user has here, which values cannot refer to, as they could not to an image's.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod};

use super::{Facts, Missing, expand::expand, fields};
use crate::objects::{Holder, Objects};

/// The container's own variables.
pub(super) fn own(
    pod: &Pod,
    container: &Container,
    facts: &Facts<'_>,
    objects: &Objects,
) -> Result<BTreeMap<String, String>, Missing> {
    let mut variables = BTreeMap::new();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let config_map = source
            .config_map_ref
            .as_ref()
            .map(|from| (Holder::ConfigMap, &from.name, from.optional));
        let secret = source
            .secret_ref
            .as_ref()
            .map(|from| (Holder::Secret, &from.name, from.optional));
        for (holder, name, optional) in config_map.into_iter().chain(secret) {
            match objects.entries(holder, name) {
                Some(entries) => variables.extend(entries.iter().map(|(key, value)| {
                    let value = String::from_utf8_lossy(value).into_owned();
                    (format!("{prefix}{key}"), value)
                })),
                None if optional == Some(true) => {}
                None => return Err(Missing::object(holder, name)),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) => Some(expand(value, |name| {
                variables.get(name).map(String::as_str)
            })),
            (None, Some(source)) => from_source(pod, container, facts, objects, source)?,
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            variables.insert(variable.name.clone(), value);
        }
    }
    Ok(variables)
}

/// The value that `source` names; `None` where it is optional and not there.
fn from_source(
    pod: &Pod,
    container: &Container,
    facts: &Facts<'_>,
    objects: &Objects,
    source: &EnvVarSource,
) -> Result<Option<String>, Missing> {
    if let Some(selector) = &source.field_ref {
        return fields::field(pod, facts, selector).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        return fields::resource(container, facts, selector).map(Some);
    }
    let config_map = source.config_map_key_ref.as_ref().map(|selector| {
        let (name, key) = (&selector.name, &selector.key);
        (Holder::ConfigMap, name, key, selector.optional)
    });
    let secret = source.secret_key_ref.as_ref().map(|selector| {
        let (name, key) = (&selector.name, &selector.key);
        (Holder::Secret, name, key, selector.optional)
    });
    let Some((holder, name, key, optional)) = config_map.or(secret) else {
        return Err(Missing::Unsupported("a `valueFrom` of its kind".to_owned()));
    };
    let entries = objects.entries(holder, name);
    match entries.and_then(|entries| entries.get(key)) {
        Some(value) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
        None if optional == Some(true) => Ok(None),
        None => Err(Missing::key(holder, name, key)),
    }
}
