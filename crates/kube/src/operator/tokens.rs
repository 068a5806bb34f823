//! Whether a token is that of a pod, as the API server says, for one of the operator's own ports.
//!
//! Each port has its own audience, and its own [`Tokens`]: what one of them is sent holds up no other. What is kept of a token is a
//! digest, for as long as [`Senders`] says; no token is logged.
//!
//! Invariant: at most [`AT_ONCE`] tokens are reviewed at once, each within [`WITHIN`], and nobody waits for the review of another.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{Instant, timeout},
};
use tracing::{debug, warn};
use trainyard_core::{
    launch::Account,
    progress::push::{Digest, Judgement, Senders},
};

use crate::{
    api::{CallError, Caller},
    clock, token,
};

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// The identity of the pod that a token is bound to.
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// A token that is not checked by then is not checked.
const WITHIN: Duration = Duration::from_secs(5);
/// Tokens that are checked at once.
const AT_ONCE: usize = 4;

/// What a token says about itself. It may be a lie: it chooses what is asked, and refuses what needs no asking.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    /// When it ends, in seconds of Unix time.
    exp: i64,
    #[serde(default)]
    aud: Value,
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

    /// The only audience, where there is one.
    pub(super) fn audience(&self) -> Option<&str> {
        match self.aud.as_array().map(Vec::as_slice) {
            Some([audience]) => audience.as_str(),
            Some(_) => None,
            None => self.aud.as_str(),
        }
    }

    fn lasts(&self) -> Duration {
        let now = clock::now().as_second();
        Duration::from_secs(u64::try_from(self.exp.saturating_sub(now)).unwrap_or(0))
    }
}

/// Why a token is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum TokenError {
    /// Others are checked first.
    #[error("too many token reviews in progress; retry later")]
    TooMany,
    /// The API server did not say.
    #[error("the API server did not review the token; retry later")]
    NotReviewed,
    /// It did not say in time.
    #[error("the token review timed out; retry later")]
    TimedOut,
    /// It is not that of the pod, or not meant for this.
    #[error("the token is not that of the pod, or is not meant for this port")]
    Forbidden,
}

/// The tokens that one port was sent.
#[derive(Debug)]
pub(super) struct Tokens {
    /// Times of the senders are counted from here.
    began: Instant,
    senders: Mutex<Senders>,
    turns: Arc<Semaphore>,
    /// Calls to the API server are made where all others are.
    main: OnceLock<Handle>,
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            senders: Mutex::default(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            main: OnceLock::new(),
        }
    }
}

impl Tokens {
    /// Calls are made on the runtime of the caller from now on.
    pub(super) fn begin(&self) {
        drop(self.main.set(Handle::current()));
    }

    pub(super) fn senders(&self) -> MutexGuard<'_, Senders> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Duration {
        Instant::now().saturating_duration_since(self.began)
    }

    /// Makes sure that the pod that `claims` name, of `namespace`, sent the token, and for `audience`.
    pub(super) async fn check(
        &self,
        caller: &Caller,
        token: &str,
        claims: &Claims,
        namespace: &str,
        audience: &str,
    ) -> Result<(), TokenError> {
        let pod = claims.pod();
        let hash = hash(token, audience);
        let judgement = self.senders().judge(pod, &hash, self.now());
        match judgement {
            Judgement::Known => return Ok(()),
            Judgement::Check => {}
            Judgement::Later => return Err(TokenError::TooMany),
        }
        let status = match self.review(caller, token, audience).await {
            Some(Ok(status)) => status,
            Some(Err(error)) => {
                if error.is_refusal() {
                    warn!(%error, "Cannot review tokens of pods");
                } else {
                    debug!(%error, "Cannot review the token of a pod");
                }
                return Err(TokenError::NotReviewed);
            }
            None => return Err(TokenError::TimedOut),
        };
        let now = self.now();
        let mut senders = self.senders();
        if is_of(&status, pod, namespace, audience) {
            senders.believe(pod, hash, now + claims.lasts(), now);
            Ok(())
        } else {
            senders.refuse(pod, hash, now);
            Err(TokenError::Forbidden)
        }
    }

    /// What the API server says about a token; nothing where it takes too long.
    async fn review(
        &self,
        caller: &Caller,
        token: &str,
        audience: &str,
    ) -> Option<Result<TokenReviewStatus, CallError>> {
        let turn = Arc::clone(&self.turns).acquire_owned();
        let turn = timeout(WITHIN, turn).await.ok()?.ok()?;
        let review = TokenReview {
            metadata: ObjectMeta::default(),
            spec: TokenReviewSpec {
                audiences: Some(vec![audience.to_owned()]),
                token: token.to_owned(),
            },
            status: None,
        };
        let caller = caller.clone();
        // It keeps its turn until it has ended, whatever becomes of the client: passes make calls, too.
        let asking = async move {
            let _turn = turn;
            timeout(WITHIN, caller.create::<TokenReview>(PATH, &review)).await
        };
        let answered = match self.main.get() {
            Some(main) => main.spawn(asking).await.ok()?,
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
    use serde_json::json;

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
    fn one_audience_is_needed() {
        let cases = [
            (json!(["a"]), Some("a")),
            (json!("a"), Some("a")),
            (json!(["a", "b"]), None),
            (json!([]), None),
            (json!(null), None),
            (json!([1]), None),
        ];
        for (aud, want) in cases {
            let claims = json!({"exp": 1, "aud": aud, "kubernetes.io": {"pod": {"uid": "u"}}});
            let claims = Claims::of(&token::unsigned(&claims.to_string())).unwrap();
            assert_eq!(claims.audience(), want, "{aud}");
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
