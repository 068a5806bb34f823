//! The account that this operator acts as, which no job may name.
//!
//! The API server knows it for whatever credentials are used. Where it does not answer when the operator starts, the
//! token that the kubelet put into the pod says the same.

use std::{path::Path, time::Duration};

use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::{info, warn};
use trainyard_core::launch::Account;

use crate::token;

const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const PATIENCE: Duration = Duration::from_secs(10);

/// The account of `client`; none where it acts as a person.
pub(crate) async fn find(client: &Client) -> Option<Account> {
    let account = match tokio::time::timeout(PATIENCE, ask(client)).await {
        Ok(Ok(user)) => Account::of_user(&user),
        Ok(Err(error)) => {
            warn!(%error, "SelfSubjectReview failed; reading the identity from the token");
            of_file(Path::new(TOKEN))
        }
        Err(_) => {
            warn!("SelfSubjectReview timed out; reading the identity from the token");
            of_file(Path::new(TOKEN))
        }
    };
    if let Some(Account { namespace, name }) = &account {
        info!(
            namespace,
            name, "Jobs may not name this operator's own ServiceAccount"
        );
    }
    account
}

async fn ask(client: &Client) -> Result<String, kube::Error> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    let answer: Value = client.request(request).await?;
    let user = answer.pointer("/status/userInfo/username");
    Ok(user.and_then(Value::as_str).unwrap_or_default().to_owned())
}

fn of_file(path: &Path) -> Option<Account> {
    of_token(&std::fs::read_to_string(path).ok()?)
}

/// The account of a token. Nobody checks its signature: it is this operator's own.
fn of_token(token: &str) -> Option<Account> {
    #[derive(Deserialize)]
    struct Claims {
        sub: String,
    }
    let Claims { sub } = token::claims(token)?;
    Account::of_user(&sub)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("{}\n", token::unsigned(claims))
    }

    #[test]
    fn tokens_say_whose_they_are() {
        let account = Account {
            namespace: "team-a".to_owned(),
            name: "trainyard".to_owned(),
        };
        for padding in ["", "?", "??", ">>>~~~"] {
            let claims = json!({"aud": [padding], "sub": "system:serviceaccount:team-a:trainyard"});
            let found = of_token(&token(&claims.to_string()));
            assert_eq!(found.as_ref(), Some(&account), "{padding}");
        }
        let person = token(&json!({"sub": "alice"}).to_string());
        for text in [
            "",
            "a.b",
            "a.!!!.c",
            "...",
            &token("{}"),
            &token("[1"),
            &person,
        ] {
            assert_eq!(of_token(text), None, "{text}");
        }
    }
}
