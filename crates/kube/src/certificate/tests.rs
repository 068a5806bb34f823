//! Certificates of replicas against an API server that does wrong what the test says.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Certificate, CertificateSource, TRUST_EVERY};
use crate::{
    api::Caller,
    lease::Fence,
    metrics::Metrics,
    rights,
    scripted::{Fault, Server, Verb, rule::Rule, world::Name},
};

const CONFIGURATIONS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const SECRETS: &str = "/api/v1/namespaces/trainyard/secrets";

/// A server on which our validating webhook is installed.
fn installed() -> Server {
    let server = Server::new();
    let configuration = json!({
        "metadata": {"name": rights::VALIDATOR},
        "webhooks": [{"name": rights::VALIDATOR, "clientConfig": {"caBundle": "b2xk"}}],
    });
    server.add(CONFIGURATIONS, configuration);
    server
}

fn configuration() -> Name {
    (
        CONFIGURATIONS.to_owned(),
        String::new(),
        rights::VALIDATOR.to_owned(),
    )
}

/// Somebody applies the manifests again, without our authority.
fn reset(server: &Server) {
    server.with(|world| {
        world.change(&configuration(), |object| {
            object["webhooks"][0]["clientConfig"] = json!({"caBundle": "b2xk"});
        });
    });
}

fn is_reset(object: &Value) -> bool {
    object["webhooks"][0]["clientConfig"]["caBundle"] == "b2xk"
}

/// A replica that keeps its certificate.
struct Replica {
    certificate: Arc<Certificate>,
    task: JoinHandle<()>,
}

impl Replica {
    fn start(server: &Server) -> Self {
        let metrics = Arc::new(Metrics::default());
        let caller = Caller::new(server.client(), Fence::open(), metrics, 8);
        let certificate = Arc::new(Certificate::default());
        let source = CertificateSource::Issued {
            namespace: "trainyard".to_owned(),
        };
        let task = tokio::spawn(Arc::clone(&certificate).keep(caller, source));
        Self { certificate, task }
    }

    async fn until(&self, what: &str, condition: impl Fn(Result<(), String>) -> bool) {
        let met = tokio::time::timeout(Duration::from_mins(20), async {
            while !condition(self.certificate.readiness()) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let met = met.await.is_ok();
        let found = self.certificate.readiness();
        assert!(met, "it never came to this: {what}; it is {found:?}");
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_that_start_together_serve_one_certificate() {
    let server = installed();
    // The answer to the first write is lost, so its author does not know that it was stored.
    server.on(Rule::new(Verb::Create, "/secrets", Fault::Lost).times(1));
    let replicas = [(); 3].map(|()| Replica::start(&server));
    for replica in &replicas {
        replica.until("ready", |ready| ready.is_ok()).await;
    }
    let authorities = replicas
        .each_ref()
        .map(|replica| replica.certificate.authority().unwrap());
    assert_eq!(authorities[0], authorities[1]);
    assert_eq!(authorities[0], authorities[2]);
    server.see(|world| {
        let secrets = world.all("/api/v1/secrets").count();
        assert_eq!(secrets, 1);
        let made = world.changes.iter();
        let made = made.filter(|change| change.name.0 == "/api/v1/secrets");
        assert_eq!(made.count(), 1, "written once");
        assert!(
            world.asked(Verb::Create, SECRETS).count() >= 2,
            "they raced"
        );
    });
}

#[tokio::test(start_paused = true)]
async fn certificate_that_is_not_trusted_is_not_ready() {
    let server = installed();
    server.on(Rule::new(
        Verb::Patch,
        "/validatingwebhookconfigurations",
        Fault::status(403),
    ));
    let replica = Replica::start(&server);
    replica
        .until("it says why it is not ready", |ready| {
            ready
                .is_err_and(|why| why.contains("does not trust") && why.contains(rights::VALIDATOR))
        })
        .await;
    server.heal();
    replica.until("ready", |ready| ready.is_ok()).await;

    // Ready before, and then seen not to be.
    server.on(Rule::new(
        Verb::Patch,
        "/validatingwebhookconfigurations",
        Fault::status(403),
    ));
    reset(&server);
    replica.until("not ready", |ready| ready.is_err()).await;
    server.heal();
    replica.until("ready again", |ready| ready.is_ok()).await;
    let object = server.see(|world| world.objects[&configuration()].clone());
    assert!(!is_reset(&object));
}

#[tokio::test(start_paused = true)]
async fn replica_that_cannot_look_stays_ready() {
    let faults = [
        Fault::status(500),
        Fault::Cut,
        Fault::Silent,
        Fault::HeadOnly,
        Fault::Torn,
        Fault::Garbage("<html>".to_owned()),
    ];
    for fault in faults {
        let server = installed();
        let replica = Replica::start(&server);
        replica.until("ready", |ready| ready.is_ok()).await;
        server.on(Rule::new(None, "", fault.clone()));
        reset(&server);
        tokio::time::sleep(TRUST_EVERY * 2).await;
        assert_eq!(replica.certificate.readiness(), Ok(()), "{fault:?}");
        server.heal();
        server
            .wait("its authority is there again", |world| {
                !is_reset(&world.objects[&configuration()])
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn successor_is_served_only_once_it_is_trusted() {
    let server = installed();
    let replica = Replica::start(&server);
    replica.until("ready", |ready| ready.is_ok()).await;
    let before = replica.certificate.authority();
    server.on(Rule::new(
        Verb::Patch,
        "/validatingwebhookconfigurations",
        Fault::status(500),
    ));
    // The Secret is near its end, so another certificate is written.
    let secret = (
        "/api/v1/secrets".to_owned(),
        "trainyard".to_owned(),
        rights::CERTIFICATE.to_owned(),
    );
    server.with(|world| {
        world.change(&secret, |secret| {
            secret["metadata"]["annotations"]["trainyard.dev/renew-on"] = "2020-01-01".into();
        });
    });
    let first = server.see(|world| world.asked(Verb::Patch, rights::VALIDATOR).count());
    server
        .wait("it tried five times", |world| {
            world.asked(Verb::Patch, rights::VALIDATOR).count() >= first + 5
        })
        .await;
    assert_eq!(
        replica.certificate.authority(),
        before,
        "the old one is served"
    );
    assert_eq!(replica.certificate.readiness(), Ok(()), "and still trusted");
    server.heal();
    server
        .wait("the successor is trusted", |world| {
            world
                .changes
                .iter()
                .filter(|change| change.name == configuration())
                .count()
                == 3
        })
        .await;
    while replica.certificate.authority() == before {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let after = replica.certificate.authority().unwrap();
    assert!(
        after.starts_with(before.as_deref().unwrap())
            || after.ends_with(before.as_deref().unwrap())
    );
    assert_ne!(Some(after), before);
}
