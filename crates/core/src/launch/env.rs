//! Environment variables, in the order in which they are appended.
//!
//! Invariant: ours come after the user's, so that ours win where a name is used twice.

use k8s_openapi::api::core::v1::{Container, EnvVar};

/// One variable with a plain value.
pub(super) fn variable(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.into()),
        value_from: None,
    }
}

/// Appends `variables` to the environment of `container`.
pub(super) fn append(container: &mut Container, variables: impl IntoIterator<Item = EnvVar>) {
    container.env.get_or_insert_default().extend(variables);
}
