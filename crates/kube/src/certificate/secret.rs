//! The Secret that replicas share the certificate by.

use std::collections::BTreeMap;

use jiff::{Timestamp, civil::Date};
use k8s_openapi::{
    ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use tracing::info;

use super::{Bundle, CertificateError, issue};
use crate::{api::Caller, crd, rights};

/// Annotation of the Secret: the first day on which the certificate is to be replaced.
const RENEW_ON: &str = "trainyard.dev/renew-on";

/// The certificate of the Secret in `namespace`; a new one where there is none or it is near its end.
pub(super) async fn read_or_issue(
    caller: &Caller,
    namespace: &str,
    now: Timestamp,
) -> Result<Bundle, CertificateError> {
    let path = format!("/api/v1/namespaces/{namespace}/secrets");
    let name = rights::CERTIFICATE;
    let found: Option<Secret> = match caller.get(&path, name).await {
        Ok(secret) => Some(secret),
        Err(error) if error.is_not_found() => None,
        Err(error) => {
            let tried = format!("read the Secret `{name}` of namespace `{namespace}`");
            return Err(CertificateError::Call { tried, error });
        }
    };
    let kept = found.as_ref().and_then(bundle);
    if let (Some(secret), Some(bundle)) = (&found, &kept)
        && !is_due(secret, now)
    {
        return Ok(bundle.clone());
    }
    let names = [format!("{}.{namespace}.svc", crd::SERVICE)];
    let issued = issue::issue(&names, now, kept.as_ref()).map_err(CertificateError::Issue)?;
    let secret = secret(&issued, found.as_ref());
    let written = match found {
        None => caller.create::<serde::de::IgnoredAny>(&path, &secret).await,
        Some(_) => {
            caller
                .replace::<serde::de::IgnoredAny>(&path, name, &secret)
                .await
        }
    };
    match written {
        Ok(_) => {
            info!(namespace, name, renew_on = %issued.renew_on, "Issued a certificate");
            Ok(issued.bundle)
        }
        Err(error) if error.is_taken() || error.is_conflict() => Err(CertificateError::Raced),
        Err(error) => {
            let tried = format!("write the Secret `{name}` of namespace `{namespace}`");
            Err(CertificateError::Call { tried, error })
        }
    }
}

/// The certificate that a Secret holds; nothing if a part is missing or invalid.
fn bundle(secret: &Secret) -> Option<Bundle> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    let bundle = Bundle {
        certificate: text("tls.crt")?,
        key: text("tls.key")?,
        authority: text("ca.crt").filter(|text| !text.is_empty())?,
    };
    super::certified(&bundle).ok()?;
    Some(bundle)
}

/// Whether the certificate must be replaced. One without a renewal date is.
fn is_due(secret: &Secret, now: Timestamp) -> bool {
    let annotations = secret.metadata.annotations.as_ref();
    let date = annotations.and_then(|annotations| annotations.get(RENEW_ON));
    let renew_on = date.and_then(|text| text.parse::<Date>().ok());
    renew_on.is_none_or(|day| day <= issue::today(now))
}

/// The Secret with a certificate in it, on top of the one that was found.
fn secret(issued: &issue::Issued, found: Option<&Secret>) -> Secret {
    let mut metadata = found.map_or_else(
        || ObjectMeta {
            name: Some(rights::CERTIFICATE.to_owned()),
            ..ObjectMeta::default()
        },
        |found| found.metadata.clone(),
    );
    metadata.managed_fields = None;
    metadata
        .annotations
        .get_or_insert_default()
        .insert(RENEW_ON.to_owned(), issued.renew_on.to_string());
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let bundle = &issued.bundle;
    Secret {
        metadata,
        // The type of a Secret cannot be changed, and an empty one may have been made beforehand.
        type_: found.map_or_else(
            || Some("kubernetes.io/tls".to_owned()),
            |found| found.type_.clone(),
        ),
        data: Some(BTreeMap::from([
            ("tls.crt".to_owned(), bytes(&bundle.certificate)),
            ("tls.key".to_owned(), bytes(&bundle.key)),
            ("ca.crt".to_owned(), bytes(&bundle.authority)),
        ])),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_a_certificate_is_replaced() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let issued = issue::issue(&["a.svc".to_owned()], now, None).unwrap();
        let whole = secret(&issued, None);
        assert_eq!(bundle(&whole).as_ref(), Some(&issued.bundle));
        let without = |key: &str| {
            let mut part = whole.clone();
            part.data.as_mut().unwrap().remove(key);
            part
        };
        let mut other_key = whole.clone();
        let other = issue::issue(&["a.svc".to_owned()], now, None).unwrap();
        let key = ByteString(other.bundle.key.into_bytes());
        other_key
            .data
            .as_mut()
            .unwrap()
            .insert("tls.key".to_owned(), key);
        let mut no_day = whole.clone();
        no_day.metadata.annotations = None;
        let cases = [
            ("fresh", whole.clone(), "2026-03-01T12:00:00Z", false),
            (
                "the day before",
                whole.clone(),
                "2026-10-31T23:59:59Z",
                false,
            ),
            ("the day", whole.clone(), "2026-11-01T00:00:00Z", true),
            ("no renewal date", no_day, "2026-03-01T12:00:00Z", true),
            ("empty", Secret::default(), "2026-03-01T12:00:00Z", true),
            (
                "no certificate",
                without("tls.crt"),
                "2026-03-01T12:00:00Z",
                true,
            ),
            ("no key", without("tls.key"), "2026-03-01T12:00:00Z", true),
            (
                "no authority",
                without("ca.crt"),
                "2026-03-01T12:00:00Z",
                true,
            ),
            (
                "the key of another",
                other_key,
                "2026-03-01T12:00:00Z",
                true,
            ),
        ];
        for (name, secret, at, replaced) in cases {
            let now = at.parse().unwrap();
            let found = bundle(&secret).is_none() || is_due(&secret, now);
            assert_eq!(found, replaced, "{name}");
        }
    }
}
