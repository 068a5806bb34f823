//! Operators that run beside the test, under the rights of `deploy/` and no others.

use std::sync::OnceLock;

use kube::{
    Client, Config,
    api::{DynamicObject, PostParams},
    config::AuthInfo,
};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle};
use trainyard_kube::{Operator, Options, rights};

use super::{TestNamespace, api, typed};

/// An operator that runs until it is stopped, or killed by being dropped.
pub(crate) struct Running {
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) operator: Operator,
}

impl Running {
    /// Ends it without a chance to finish anything.
    pub(crate) async fn kill(self) {
        self.task.abort();
        drop(self.task.await);
    }

    /// Asks it to end in order.
    pub(crate) async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            stop.send(()).unwrap();
        }
        self.task.await.unwrap();
    }
}

impl TestNamespace {
    /// An operator of this namespace that acts under the rights in `deploy/`.
    pub(crate) async fn operator(&self) -> Running {
        self.operator_with(|_| {}).await
    }

    pub(crate) async fn operator_with(&self, change: impl FnOnce(&mut Options)) -> Running {
        let mut options = Options {
            namespace: Some(self.namespace.clone()),
            ..Options::default()
        };
        change(&mut options);
        let client = self.limited_client().await;
        self.give_own_rights().await;
        let operator = Operator::new(client, options);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn({
            let operator = operator.clone();
            async move {
                operator
                    .run(async {
                        drop(stopped.await);
                    })
                    .await;
            }
        });
        let running = Running {
            task,
            stop: Some(stop),
            operator,
        };
        self.until("the operator is ready", || async {
            running.operator.has_listed().then_some(())
        })
        .await;
        running
    }

    /// A client with the operator's rights and no others.
    async fn limited_client(&self) -> Client {
        static TOKEN: OnceLock<String> = OnceLock::new();
        let token = if let Some(token) = TOKEN.get() {
            token.clone()
        } else {
            let token = self.make_account().await;
            TOKEN.get_or_init(|| token).clone()
        };
        let mut config = Config::infer().await.unwrap();
        config.auth_info = AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        };
        Client::try_from(config).unwrap()
    }

    /// Makes this namespace the operator's own.
    async fn give_own_rights(&self) {
        let rbac = "rbac.authorization.k8s.io";
        let rules: Vec<Value> = rights::of(rights::Place::Own)
            .map(rights::Right::rule)
            .collect();
        let role = json!({"metadata": {"name": "operator"}, "rules": rules});
        let binding = json!({
            "metadata": {"name": "operator"},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "operator"},
            "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": "trainyard-rights"}],
        });
        for (kind, object) in [("Role", role), ("RoleBinding", binding)] {
            let object = typed(rbac, "v1", kind, &object);
            let made = self
                .api(rbac, "v1", kind)
                .create(&PostParams::default(), &object)
                .await;
            assert!(
                made.is_ok()
                    || matches!(&made, Err(kube::Error::Api(status)) if status.code == 409),
                "{made:?}"
            );
        }
    }

    /// Makes an account that has what `rights` names, and nothing else; returns its token.
    async fn make_account(&self) -> String {
        let namespace = "trainyard-rights";
        let put = |group: &'static str,
                   version: &'static str,
                   kind: &'static str,
                   within: bool,
                   object: Value| async move {
            let api = api(
                &self.client,
                group,
                version,
                kind,
                within.then_some(namespace),
            );
            let object: DynamicObject = typed(group, version, kind, &object);
            match api.create(&PostParams::default(), &object).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("{error}"),
            }
        };
        let rbac = "rbac.authorization.k8s.io";
        put(
            "",
            "v1",
            "Namespace",
            false,
            json!({"metadata": {"name": namespace}}),
        )
        .await;
        put(
            "",
            "v1",
            "ServiceAccount",
            true,
            json!({"metadata": {"name": "operator"}}),
        )
        .await;
        let mut rules = Vec::new();
        for (place, _) in rights::Place::ALL {
            // Those of its own namespace are given there.
            if place != rights::Place::Own && !place.is_dashboard() {
                rules.extend(rights::of(place).map(rights::Right::rule));
            }
        }
        // Test runs must not meet the rules of another build.
        let name = format!("trainyard-{}", std::process::id());
        put(
            rbac,
            "v1",
            "ClusterRole",
            false,
            json!({"metadata": {"name": name}, "rules": rules}),
        )
        .await;
        put(
            rbac,
            "v1",
            "ClusterRoleBinding",
            false,
            json!({
                "metadata": {"name": name},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}],
            }),
        )
        .await;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/operator/token");
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600}});
        let request = http::Request::post(path)
            .body(body.to_string().into_bytes())
            .unwrap();
        let answer: Value = self.client.request(request).await.unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    }
}
