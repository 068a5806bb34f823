//! Whose a token is, and what that user may see, as the API server says.
//!
//! Whoever asks needs the rights to create `TokenReview`s and `SubjectAccessReview`s, and no other: nobody is impersonated. Nothing is kept here.
//!
//! Invariants: a review that is not made in time is an error and never a yes. No token is in an error or in a log.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt as _, stream};
use k8s_openapi::{
    api::{
        authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
        authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::{Request, params::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, timeout, timeout_at};
use trainyard_core::spec::Kind;

use super::{Api, Look, LookError};
use crate::crd;

const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const RIGHTS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// One review is made within this time.
const WITHIN: Duration = Duration::from_secs(5);
/// All reviews of one question are made within this time.
const ALL_WITHIN: Duration = Duration::from_secs(10);
/// Reviews of one question at once.
const AT_ONCE: usize = 32;

/// A user, as the API server knows him by his token.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct User {
    /// His name.
    pub name: String,
    /// His identity, which another user of that name does not have.
    pub uid: String,
    /// His groups.
    pub groups: Vec<String>,
    /// What whoever authenticated him says about him beside that.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl From<UserInfo> for User {
    fn from(info: UserInfo) -> Self {
        Self {
            name: info.username.unwrap_or_default(),
            uid: info.uid.unwrap_or_default(),
            groups: info.groups.unwrap_or_default(),
            extra: info.extra.unwrap_or_default(),
        }
    }
}

/// Something that a user may see, or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sees {
    /// The jobs of a kind in a namespace, or in all where none is named.
    Jobs(Kind, Option<String>),
    /// The logs of pods in a namespace.
    Logs(String),
    /// Nodes.
    Nodes,
}

impl Sees {
    fn attributes(&self) -> ResourceAttributes {
        let of = |verb: &str, group: &str, resource: &str| ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            ..ResourceAttributes::default()
        };
        match self {
            Self::Jobs(kind, namespace) => ResourceAttributes {
                version: Some(crd::version(*kind).to_owned()),
                // An empty one means all.
                namespace: Some(namespace.clone().unwrap_or_default()),
                ..of("list", kind.group(), &crd::plural(*kind))
            },
            Self::Logs(namespace) => ResourceAttributes {
                namespace: Some(namespace.clone()),
                subresource: Some("log".to_owned()),
                ..of("get", "", "pods")
            },
            Self::Nodes => of("list", "", "nodes"),
        }
    }
}

impl Look {
    /// Whose a token is; nothing where the API server does not accept it.
    pub fn user_of(&self, token: &str) -> Result<Option<User>, LookError> {
        self.runtime.block_on(self.api.user_of(token))
    }

    /// Whether a user may see each of these.
    pub fn may_see(&self, user: &User, what: &[Sees]) -> Vec<Result<bool, LookError>> {
        self.runtime.block_on(self.api.may_see(user, what))
    }
}

impl Api {
    pub(super) async fn user_of(&self, token: &str) -> Result<Option<User>, LookError> {
        let review = TokenReview {
            metadata: ObjectMeta::default(),
            spec: TokenReviewSpec {
                // Without audiences it must be meant for the API server itself.
                audiences: None,
                token: token.to_owned(),
            },
            status: None,
        };
        let review: TokenReview = self.review("check the token", TOKENS, &review).await?;
        let status = review.status.unwrap_or_default();
        let user = status.user.map(User::from).unwrap_or_default();
        Ok((status.authenticated == Some(true) && !user.name.is_empty()).then_some(user))
    }

    pub(super) async fn may_see(&self, user: &User, what: &[Sees]) -> Vec<Result<bool, LookError>> {
        let late = |patience| LookError::Late {
            tried: "check what you may see".to_owned(),
            patience,
        };
        let mut found: Vec<Result<bool, LookError>> =
            what.iter().map(|_| Err(late(ALL_WITHIN))).collect();
        let reviews = what
            .iter()
            .enumerate()
            .map(|(place, what)| async move { (place, self.may_see_one(user, what).await) });
        let mut reviews = stream::iter(reviews).buffer_unordered(AT_ONCE);
        let end = Instant::now() + ALL_WITHIN;
        while let Ok(Some((place, answer))) = timeout_at(end, reviews.next()).await {
            if let Some(slot) = found.get_mut(place) {
                *slot = answer;
            }
        }
        found
    }

    async fn may_see_one(&self, user: &User, what: &Sees) -> Result<bool, LookError> {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let review = SubjectAccessReview {
            metadata: ObjectMeta::default(),
            spec: SubjectAccessReviewSpec {
                user: some(&user.name),
                uid: some(&user.uid),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()),
                resource_attributes: Some(what.attributes()),
                non_resource_attributes: None,
            },
            status: None,
        };
        let review: SubjectAccessReview = self
            .review("check what you may see", RIGHTS, &review)
            .await?;
        // A review that names a denial and an allowance is a denial.
        let status = review.status.unwrap_or_default();
        Ok(status.allowed && status.denied != Some(true))
    }

    async fn review<T: Serialize + DeserializeOwned>(
        &self,
        tried: &str,
        path: &str,
        review: &T,
    ) -> Result<T, LookError> {
        let body = serde_json::to_vec(review).expect("objects have string keys");
        let request = Request::new(path).create(&PostParams::default(), body);
        let request =
            request.map_err(|error| self.failed(tried, kube::Error::BuildRequest(error)))?;
        // `Client::request` logs an answer that it cannot parse, and that of a token review repeats the token.
        let asked = timeout(WITHIN, self.client.request_text(request)).await;
        let Ok(answer) = asked else {
            return Err(LookError::Late {
                tried: tried.to_owned(),
                patience: WITHIN,
            });
        };
        let answer =
            answer.and_then(|text| serde_json::from_str(&text).map_err(kube::Error::SerdeError));
        answer.map_err(|error| self.failed(tried, error))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::scripted::{Fault, Server, Verb, rule::Rule};

    fn api(server: &Server) -> Api {
        Api {
            client: server.client_of("dashboard"),
            server: "https://cluster.test".to_owned(),
            token: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_of_a_user_only_where_it_is_said() {
        let cases = [
            (
                json!({"authenticated": true, "user": {"username": "a", "groups": ["g"]}}),
                true,
            ),
            (
                json!({"authenticated": false, "user": {"username": "a"}}),
                false,
            ),
            (json!({"user": {"username": "a"}}), false),
            (json!({"authenticated": true}), false),
            (json!(null), false),
        ];
        for (status, want) in cases {
            let server = Server::new();
            let answer = json!({"spec": {"token": "t"}, "status": status}).to_string();
            server.on(Rule::new(
                Verb::Create,
                "/tokenreviews",
                Fault::Garbage(answer),
            ));
            let user = api(&server).user_of("t").await.unwrap();
            assert_eq!(user.is_some(), want, "{status}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_name_the_user_and_what_he_wants_to_see() {
        let user = User {
            name: "a".to_owned(),
            uid: "u".to_owned(),
            groups: vec!["g".to_owned()],
            extra: [("scopes".to_owned(), vec!["x".to_owned()])].into(),
        };
        let cases = [
            (
                Sees::Jobs(Kind::MpiV1, Some("n".to_owned())),
                json!({"verb": "list", "group": "kubeflow.org", "version": "v1", "resource": "mpijobs", "namespace": "n"}),
            ),
            (
                Sees::Jobs(Kind::PyTorch, None),
                json!({"verb": "list", "group": "kubeflow.org", "version": "v1", "resource": "pytorchjobs", "namespace": ""}),
            ),
            (
                Sees::Logs("n".to_owned()),
                json!({"verb": "get", "group": "", "resource": "pods", "subresource": "log", "namespace": "n"}),
            ),
            (
                Sees::Nodes,
                json!({"verb": "list", "group": "", "resource": "nodes"}),
            ),
        ];
        for (what, attributes) in cases {
            let server = Server::new();
            // What is stored has no status: nobody has said yes.
            let found = api(&server)
                .may_see(&user, std::slice::from_ref(&what))
                .await;
            assert!(
                matches!(found.as_slice(), [Ok(false) | Err(_)]),
                "{found:?}"
            );
            let spec: Value = server.see(|world| world.calls.last().unwrap().body["spec"].clone());
            assert_eq!(spec["resourceAttributes"], attributes, "{what:?}");
            assert_eq!((&spec["user"], &spec["uid"]), (&json!("a"), &json!("u")));
            assert_eq!(
                (&spec["groups"], &spec["extra"]),
                (&json!(["g"]), &json!({"scopes": ["x"]}))
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_that_is_not_made_is_no_yes() {
        let server = Server::new();
        server.on(Rule::new(Verb::Create, "reviews", Fault::Silent));
        let api = api(&server);
        api.user_of("secret-token").await.unwrap_err();
        let began = Instant::now();
        let many: Vec<Sees> = (0..200).map(|it| Sees::Logs(it.to_string())).collect();
        let found = api.may_see(&User::default(), &many).await;
        assert!(found.len() == 200 && found.iter().all(Result::is_err));
        assert!(began.elapsed() <= ALL_WITHIN, "{:?}", began.elapsed());
        let shown = format!("{found:?}");
        assert!(!shown.contains("secret-token"), "{shown}");
    }
}
