//! Which pod a token is of, as the API server says.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use k8s_openapi::{
    api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use tokio::time::timeout;
use tracing::{debug, warn};
use trainyard_core::{
    launch::{Account, push},
    progress::push::{Digest, Judgement},
};

use super::Refused;
use crate::{api::CallError, clock, operator::Operator, token};

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// The identity of the pod that a token is bound to.
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// A token that is not checked by then is not checked.
const WITHIN: Duration = Duration::from_secs(5);

/// What a token says about itself. It may be a lie: it chooses what is asked, and refuses what needs no asking.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    /// When it ends, in seconds of Unix time.
    exp: i64,
    #[serde(rename = "kubernetes.io")]
    bound: Bound,
}

#[derive(Debug, Deserialize)]
struct Bound {
    pod: BoundPod,
}

#[derive(Debug, Deserialize)]
struct BoundPod {
    uid: String,
}

impl Claims {
    pub(super) fn of(token: &str) -> Option<Self> {
        token::claims(token)
    }

    /// The identity of the pod.
    pub(super) fn pod(&self) -> &str {
        &self.bound.pod.uid
    }

    fn lasts(&self) -> Duration {
        let now = clock::now().as_second();
        Duration::from_secs(u64::try_from(self.exp.saturating_sub(now)).unwrap_or(0))
    }
}

impl Operator {
    /// Makes sure that the pod that `claims` name sent the token, for the progress of this job.
    pub(super) async fn check_token(
        &self,
        token: &str,
        claims: &Claims,
        namespace: &str,
        name: &str,
    ) -> Result<(), Refused> {
        let pod = claims.pod();
        let audience = push::audience(namespace, name);
        let hash = hash(token, &audience);
        let judgement = self.pushes.senders().judge(pod, &hash, self.pushes.now());
        match judgement {
            Judgement::Known => return Ok(()),
            Judgement::Check => {}
            Judgement::Later => {
                return Err(Refused::later(
                    "too_often",
                    StatusCode::TOO_MANY_REQUESTS,
                    "TooManyRequests",
                    "too many token reviews in progress; retry later",
                ));
            }
        }
        let unavailable = |sentence: &str| {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Refused::later("unavailable", status, "ServiceUnavailable", sentence)
        };
        let status = match self.review_token(token, &audience).await {
            Some(Ok(status)) => status,
            Some(Err(error)) => {
                if error.is_refusal() {
                    warn!(%error, "Cannot review tokens of progress reports");
                } else {
                    debug!(%error, "Cannot review the token of a progress report");
                }
                return Err(unavailable(
                    "the API server did not review the token; retry later",
                ));
            }
            None => {
                return Err(unavailable("the token review timed out; retry later"));
            }
        };
        let now = self.pushes.now();
        let mut senders = self.pushes.senders();
        if is_of(&status, pod, namespace, &audience) {
            senders.believe(pod, hash, now + claims.lasts(), now);
            Ok(())
        } else {
            senders.refuse(pod, now);
            Err(Refused::forbidden(namespace, name))
        }
    }

    /// What the API server says about a token; nothing where it takes too long.
    async fn review_token(
        &self,
        token: &str,
        audience: &str,
    ) -> Option<Result<TokenReviewStatus, CallError>> {
        let turn = Arc::clone(&self.pushes.reviews).acquire_owned();
        let turn = timeout(WITHIN, turn).await.ok()?.ok()?;
        let review = TokenReview {
            metadata: ObjectMeta::default(),
            spec: TokenReviewSpec {
                audiences: Some(vec![audience.to_owned()]),
                token: token.to_owned(),
            },
            status: None,
        };
        let caller = self.caller.clone();
        // It keeps its turn until it has ended, whatever becomes of the client: passes make calls, too.
        let asking = async move {
            let _turn = turn;
            timeout(WITHIN, caller.create::<TokenReview>(PATH, &review)).await
        };
        let answered = match self.pushes.served.get() {
            Some(served) => served.main.spawn(asking).await.ok()?,
            None => asking.await,
        };
        let review = answered.ok()?;
        Some(review.map(|review| review.status.unwrap_or_default()))
    }
}

/// Whether a good token is that of the pod, for this audience.
fn is_of(status: &TokenReviewStatus, pod: &str, namespace: &str, audience: &str) -> bool {
    let user = status.user.clone().unwrap_or_default();
    let extra = user.extra.unwrap_or_default();
    let account = Account::of_user(&user.username.unwrap_or_default());
    status.authenticated == Some(true)
        && status.audiences.iter().flatten().any(|it| it == audience)
        && account.is_some_and(|account| account.namespace == namespace)
        && extra.get(POD_UID).is_some_and(|uids| *uids == [pod])
}

/// What is kept of a token, which is good for one audience.
fn hash(token: &str, audience: &str) -> Digest {
    let text = format!("{audience}\n{token}");
    let mut hash = Digest::default();
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn token_is_bound_to_pod_namespace_and_audience() {
        let good = json!({"authenticated": true, "audiences": ["x/status"], "user": {
            "username": "system:serviceaccount:n:default", "extra": {POD_UID: ["u"]}}});
        let with = |pointer: &str, value: Value| {
            let mut status = good.clone();
            *status.pointer_mut(pointer).unwrap() = value;
            status
        };
        let cases = [
            ("good", good.clone(), true),
            ("not good", with("/authenticated", json!(false)), false),
            ("not said", json!({}), false),
            ("another audience", with("/audiences", json!(["y"])), false),
            ("no audience", with("/audiences", json!(null)), false),
            (
                "another pod",
                with("/user/extra", json!({POD_UID: ["v"]})),
                false,
            ),
            (
                "two pods",
                with("/user/extra", json!({POD_UID: ["u", "v"]})),
                false,
            ),
            ("no pod", with("/user/extra", json!({})), false),
            (
                "another namespace",
                with("/user/username", json!("system:serviceaccount:m:default")),
                false,
            ),
            ("a person", with("/user/username", json!("alice")), false),
        ];
        for (name, status, want) in cases {
            let status = serde_json::from_value(status).unwrap();
            assert_eq!(is_of(&status, "u", "n", "x/status"), want, "{name}");
        }
    }

    #[test]
    fn tokens_without_a_pod_have_no_claims() {
        let claims = |value: Value| Claims::of(&token::unsigned(&value.to_string()));
        let good = json!({"exp": 1, "kubernetes.io": {"pod": {"name": "a", "uid": "u"}}});
        assert_eq!(claims(good).unwrap().pod(), "u");
        for value in [
            json!({}),
            json!({"exp": 1, "kubernetes.io": {"namespace": "n"}}),
        ] {
            assert!(claims(value).is_none());
        }
        for text in ["", "a.b.c", "..", "opaque"] {
            assert!(Claims::of(text).is_none(), "{text}");
        }
    }
}
