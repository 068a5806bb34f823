//! Sets the CA bundle that the API server trusts when it calls the webhooks.
//!
//! Invariant: only configurations of ours are changed, and of them only `caBundle`.

use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::info;

use super::CertificateError;
use crate::{
    api::{CallError, Caller},
    crd, rights,
};

/// The configurations of admission, each with where its kind is.
const ADMISSION: [(&str, &str); 2] = [
    (
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        rights::VALIDATOR,
    ),
    (
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        rights::DEFAULTER,
    ),
];
const CRD_PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// What is read of a `ValidatingWebhookConfiguration` or a `MutatingWebhookConfiguration`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Admission {
    webhooks: Vec<Webhook>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Webhook {
    name: String,
    client_config: ClientConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClientConfig {
    ca_bundle: Option<ByteString>,
    service: Option<Service>,
    url: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Service {
    name: String,
    path: String,
}

/// What is read of a definition.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Definition {
    spec: DefinitionSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DefinitionSpec {
    conversion: Conversion,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Conversion {
    strategy: String,
    webhook: Converter,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Converter {
    client_config: ClientConfig,
}

/// Makes sure that `authority` is trusted wherever our webhooks are configured. A configuration that is
/// not installed needs nothing.
pub(super) async fn put(caller: &Caller, authority: &str) -> Result<(), CertificateError> {
    for (path, name) in ADMISSION {
        let found = caller.get::<Admission>(path, name).await;
        if let Some(admission) = there(found, "read the webhook configuration", name)?
            && let Some(patch) = admission_patch(&admission, authority)
        {
            done(caller.json_patch(path, name, &patch).await, name)?;
        }
    }
    let name = format!("{}.{}", crd::plural(crd::MPI_STORAGE), crd::GROUP);
    let found = caller.get::<Definition>(CRD_PATH, &name).await;
    if let Some(definition) = there(found, "read the definition", &name)?
        && let Some(patch) = conversion_patch(&definition, authority)
    {
        done(caller.json_patch(CRD_PATH, &name, &patch).await, &name)?;
    }
    Ok(())
}

fn there<T>(
    found: Result<T, CallError>,
    tried: &str,
    name: &str,
) -> Result<Option<T>, CertificateError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(CertificateError::Call {
            tried: format!("{tried} `{name}`"),
            error,
        }),
    }
}

fn done(patched: Result<(), CallError>, name: &str) -> Result<(), CertificateError> {
    match patched {
        Ok(()) => {
            info!(name, "The API server trusts the webhook certificate");
            Ok(())
        }
        // It was removed since it was read.
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(CertificateError::Untrusted {
            name: name.to_owned(),
            error,
        }),
    }
}

/// The changes after which every webhook trusts `authority`; nothing where each does.
///
/// Places are numbers, so each is tested to be the one that was read.
fn admission_patch(admission: &Admission, authority: &str) -> Option<Value> {
    let mut operations = Vec::new();
    for (index, webhook) in admission.webhooks.iter().enumerate() {
        if trusts(&webhook.client_config, authority) {
            continue;
        }
        operations.push(json!({
            "op": "test", "path": format!("/webhooks/{index}/name"), "value": webhook.name,
        }));
        operations.push(json!({
            "op": "add",
            "path": format!("/webhooks/{index}/clientConfig/caBundle"),
            "value": bundle(authority),
        }));
    }
    (!operations.is_empty()).then(|| Value::Array(operations))
}

/// The change after which the conversion trusts `authority`; nothing where it does, and nothing for a
/// conversion by somebody else.
fn conversion_patch(definition: &Definition, authority: &str) -> Option<Value> {
    let conversion = &definition.spec.conversion;
    let client = &conversion.webhook.client_config;
    let ours = match (&client.service, &client.url) {
        (Some(service), _) => service.name == crd::SERVICE && service.path == crd::CONVERT_PATH,
        (None, Some(url)) => url.ends_with(crd::CONVERT_PATH),
        (None, None) => false,
    };
    if conversion.strategy != "Webhook" || !ours || trusts(client, authority) {
        return None;
    }
    Some(json!([
        {"op": "test", "path": "/spec/conversion/strategy", "value": "Webhook"},
        {
            "op": "add",
            "path": "/spec/conversion/webhook/clientConfig/caBundle",
            "value": bundle(authority),
        },
    ]))
}

fn trusts(client: &ClientConfig, authority: &str) -> bool {
    client
        .ca_bundle
        .as_ref()
        .is_some_and(|bundle| bundle.0 == authority.as_bytes())
}

fn bundle(authority: &str) -> ByteString {
    ByteString(authority.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `new` in base64.
    const NEW: &str = "bmV3";

    #[test]
    fn only_webhooks_that_lack_it_get_the_authority() {
        let admission = |bundles: [Value; 2]| {
            let webhooks = bundles.map(|bundle| json!({"name": "w", "clientConfig": bundle}));
            serde_json::from_value::<Admission>(json!({"webhooks": webhooks})).unwrap()
        };
        let has = || json!({"caBundle": NEW});
        let lacks = || json!({"caBundle": "b2xk"});
        assert_eq!(admission_patch(&admission([has(), has()]), "new"), None);
        let want = json!([
            {"op": "test", "path": "/webhooks/1/name", "value": "w"},
            {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": NEW},
        ]);
        assert_eq!(
            admission_patch(&admission([has(), lacks()]), "new"),
            Some(want)
        );
        let patch = admission_patch(&admission([json!({}), lacks()]), "new").unwrap();
        assert_eq!(patch.as_array().unwrap().len(), 4);
    }

    #[test]
    fn only_our_conversion_gets_the_authority() {
        let ours = json!({"name": "trainyard", "namespace": "n", "path": "/convert"});
        let cases = [
            ("ours", "Webhook", json!({"service": ours}), true),
            (
                "ours, trusted",
                "Webhook",
                json!({"service": ours, "caBundle": NEW}),
                false,
            ),
            (
                "ours, trusted before",
                "Webhook",
                json!({"service": ours, "caBundle": "b2xk"}),
                true,
            ),
            (
                "ours by address",
                "Webhook",
                json!({"url": "https://127.0.0.1:9443/convert"}),
                true,
            ),
            (
                "another's",
                "Webhook",
                json!({"service": {"name": "x", "path": "/convert"}}),
                false,
            ),
            ("none", "None", json!({}), false),
        ];
        for (name, strategy, client, patched) in cases {
            let definition = json!({"spec": {"conversion": {
                "strategy": strategy, "webhook": {"clientConfig": client},
            }}});
            let definition: Definition = serde_json::from_value(definition).unwrap();
            let patch = conversion_patch(&definition, "new");
            assert_eq!(patch.is_some(), patched, "{name}");
        }
    }
}
