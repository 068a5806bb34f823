//! What a token of Kubernetes says about itself.
//!
//! Nobody checks the signature here. What is read may refuse a request, and never allows one.

use k8s_openapi::ByteString;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The claims of `token`.
pub(crate) fn claims<T: DeserializeOwned>(token: &str) -> Option<T> {
    let claims = token.trim().split('.').nth(1)?;
    // The alphabet of URLs, without padding.
    let mut text = claims.replace('-', "+").replace('_', "/");
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    let ByteString(bytes) = serde_json::from_value(Value::String(text)).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// A token with these claims, which nobody signed.
#[cfg(test)]
pub(crate) fn unsigned(claims: &str) -> String {
    let text = serde_json::to_value(ByteString(claims.as_bytes().to_vec())).unwrap();
    let text = text.as_str().unwrap().replace('+', "-").replace('/', "_");
    format!("eyJhbGciOiJSUzI1NiJ9.{}.c2ln", text.trim_end_matches('='))
}
