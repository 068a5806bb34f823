//! The other objects of the user's files, and those that the job makes itself.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::Value;
use trainyard_core::launch::Object;

use crate::HostError;

/// Keys and values of one `ConfigMap` or Secret.
pub(crate) type Entries = BTreeMap<String, Vec<u8>>;

/// What pods may refer to by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    config_maps: BTreeMap<String, Entries>,
    secrets: BTreeMap<String, Entries>,
}

/// The two kinds of object that hold keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    ConfigMap,
    Secret,
}

impl Holder {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

impl Objects {
    /// Reads the objects of the user's files. Kinds that mean nothing here are passed over.
    pub(crate) fn read(companions: &[Value]) -> Result<Self, HostError> {
        let mut objects = Self::default();
        for value in companions {
            let kind = value.get("kind").and_then(Value::as_str);
            let bad = |error: serde_json::Error| HostError::BadObject {
                kind: kind.unwrap_or_default().to_owned(),
                name: value
                    .pointer("/metadata/name")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned(),
                message: error.to_string(),
            };
            match kind {
                Some("ConfigMap") => {
                    objects.add_config_map(ConfigMap::deserialize_from(value).map_err(bad)?);
                }
                Some("Secret") => {
                    objects.add_secret(Secret::deserialize_from(value).map_err(bad)?);
                }
                _ => {}
            }
        }
        Ok(objects)
    }

    /// Takes up an object that the job makes itself.
    pub(crate) fn add(&mut self, object: Object) {
        match object {
            Object::ConfigMap(config_map) => self.add_config_map(*config_map),
            Object::Secret(secret) => self.add_secret(*secret),
            _ => {}
        }
    }

    pub(crate) fn entries(&self, holder: Holder, name: &str) -> Option<&Entries> {
        match holder {
            Holder::ConfigMap => self.config_maps.get(name),
            Holder::Secret => self.secrets.get(name),
        }
    }

    fn add_config_map(&mut self, object: ConfigMap) {
        let text = object.data.into_iter().flatten();
        let mut entries: Entries = text.map(|(key, value)| (key, value.into_bytes())).collect();
        let binary = object.binary_data.into_iter().flatten();
        entries.extend(binary.map(|(key, value)| (key, value.0)));
        let name = object.metadata.name.unwrap_or_default();
        self.config_maps.insert(name, entries);
    }

    fn add_secret(&mut self, object: Secret) {
        let data = object.data.into_iter().flatten();
        let mut entries: Entries = data.map(|(key, value)| (key, value.0)).collect();
        // The API server lets the plain form win.
        let plain = object.string_data.into_iter().flatten();
        entries.extend(plain.map(|(key, value)| (key, value.into_bytes())));
        let name = object.metadata.name.unwrap_or_default();
        self.secrets.insert(name, entries);
    }
}

trait DeserializeFrom: Sized {
    fn deserialize_from(value: &Value) -> serde_json::Result<Self>;
}

impl<T: serde::de::DeserializeOwned> DeserializeFrom for T {
    fn deserialize_from(value: &Value) -> serde_json::Result<Self> {
        T::deserialize(value)
    }
}
