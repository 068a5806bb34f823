//! The webhooks of a running operator, as the API server calls them.

use std::{fs, path::Path};

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};
use trainyard_kube::{crd, rights};

use crate::{
    hooks::Hooks,
    job,
    namespace::{TestNamespace, example, on_cluster},
    operator::{May, Operator},
    template,
};

const WEBHOOKS: &[&str] = &["--no-leader-elect", "--webhook-bind=:0"];

/// An operator that serves webhooks, and is asked.
pub(crate) fn asked(fixture: &TestNamespace, hooks: &Hooks<'_>) -> Operator {
    let operator = fixture.operator_with(May::Act, WEBHOOKS);
    hooks.lead_to("only", &operator);
    hooks.until_asked();
    operator
}

#[test]
fn bad_job_refused_and_immutable_fields_kept() {
    on_cluster("refuses", |fixture| {
        let hooks = Hooks::new(fixture);
        let _operator = asked(fixture, &hooks);
        let mut wrong = job(&"n".repeat(70));
        template(&mut wrong)["spec"]["containers"][0]["name"] = json!("trainer");
        let refused = fixture.try_put(&wrong, &[]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        for words in [
            "validator.pytorchjob.trainyard.dev",
            "2 mistakes",
            "at `metadata.name`",
            "the name has 70 characters",
            "shorten it to at most 47 characters",
            "must be named `pytorch`, found `trainer`",
            "name the container that trains `pytorch`",
        ] {
            assert!(refused.stderr.contains(words), "{words}: {refused:?}");
        }
        // A label holds it, the name of its pods is too long.
        let refused = fixture.try_put(&job(&"n".repeat(60)), &[]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(
            refused.stderr.contains("shorten the name to"),
            "{refused:?}"
        );
        let mut theirs = job("theirs");
        theirs["spec"]["runPolicy"]["managedBy"] = json!("kueue.x-k8s.io/multikueue");
        fixture.put(&theirs);
        let change =
            json!({"spec": {"runPolicy": {"managedBy": "kubeflow.org/training-operator"}}});
        let refused = fixture.try_patch("pytorchjob/theirs", &change);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("managedBy"), "{refused:?}");
        let label = json!({"metadata": {"labels": {"team": "a"}}});
        let allowed = fixture.try_patch("pytorchjob/theirs", &label);
        assert_eq!(allowed.code, Some(0), "{allowed:?}");

        // What a job leaves out is written, so that it can be scaled.
        let mut short = job("short");
        short["spec"]["runPolicy"]["suspend"] = json!(true);
        let worker = short["spec"]["pytorchReplicaSpecs"]["Worker"].as_object_mut();
        let worker = worker.unwrap();
        worker.remove("replicas");
        worker.remove("restartPolicy");
        fixture.put(&short);
        let written = "go-template={{with .spec.pytorchReplicaSpecs.Worker}}\
                       {{.replicas}} {{.restartPolicy}}{{end}}";
        let written = fixture.kubectl(&["get", "pytorchjob", "short", "-o", written]);
        assert_eq!(written, "1 OnFailure");
        fixture.kubectl(&["scale", "pytorchjob/short", "--replicas=2"]);
    });
}

#[test]
fn mpijob_v2beta1_runs_and_converts() {
    on_cluster("convert", |fixture| {
        let hooks = Hooks::new(fixture);
        let _operator = asked(fixture, &hooks);
        let mut written = example("mpijob-v2beta1.yaml");
        let name = written["metadata"]["name"].as_str().unwrap().to_owned();
        for role in ["Launcher", "Worker"] {
            let template = &mut written["spec"]["mpiReplicaSpecs"][role]["template"];
            template["spec"]["nodeSelector"] = json!({"test.trainyard.dev/node": "simulated"});
        }
        let launcher = &mut written["spec"]["mpiReplicaSpecs"]["Launcher"]["template"];
        launcher["metadata"]["annotations"] = json!({"test.trainyard.dev/exit-code": "0",
            "test.trainyard.dev/exit-after": "1s"});
        fixture.wait("the API server converts", || {
            let answer = fixture.try_put(&written, &["--dry-run=server"]);
            (answer.code == Some(0)).then_some(())
        });
        fixture.put(&written);
        fixture.until_status(&name, |status| status["state"] == "Succeeded");
        let read = |version: &str| -> Value {
            let resource = format!("mpijobs.{version}.kubeflow.org");
            let text = fixture.kubectl(&["get", &resource, &name, "--output=json"]);
            serde_json::from_str(&text).unwrap()
        };
        let (old, new) = (read("v1"), read("v2beta1"));
        assert_eq!(old["apiVersion"], "kubeflow.org/v1");
        assert_eq!(new["apiVersion"], "kubeflow.org/v2beta1");
        // What was written comes back, and what only the newer form has is not lost on the way.
        for field in [
            "/spec/slotsPerWorker",
            "/spec/mpiImplementation",
            "/spec/launcherCreationPolicy",
            "/spec/sshAuthMountPath",
            "/spec/runPolicy/cleanPodPolicy",
            "/spec/mpiReplicaSpecs/Worker/replicas",
            "/spec/mpiReplicaSpecs/Worker/template/spec/containers/0/args",
        ] {
            let wrote = written.pointer(field).unwrap();
            assert_eq!(new.pointer(field), Some(wrote), "{field}: {new:#}");
        }
        assert_eq!(old["spec"]["slotsPerWorker"], 16, "{old:#}");
        for read in [&old, &new] {
            let conditions = read["status"]["conditions"].to_string();
            assert!(conditions.contains("Succeeded"), "{read:#}");
        }
        // Written through one version, read through the other.
        let change = json!({"metadata": {"labels": {"by": "v1"}}});
        let changed = fixture.try_patch(&format!("mpijobs.v1.kubeflow.org/{name}"), &change);
        assert_eq!(changed.code, Some(0), "{changed:?}");
        assert_eq!(read("v2beta1")["metadata"]["labels"]["by"], "v1");
    });
}

#[test]
fn webhook_down_does_not_block_writes() {
    on_cluster("down", |fixture| {
        let hooks = Hooks::as_deployed(fixture);
        let operator = asked(fixture, &hooks);
        fixture.put(&job("before"));
        fixture.until_status("before", |status| status["state"] == "Running");
        let pods = || fixture.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"]);
        let uids = pods();
        drop(operator);

        fixture.put(
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"},
            "spec": {"containers": [{"name": "a", "image": "test"}],
                "nodeSelector": {"test.trainyard.dev/node": "simulated"}}}),
        );
        fixture.kubectl(&[
            "wait",
            "--for=condition=Ready",
            "pod/plain",
            "--timeout=60s",
        ]);
        fixture.kubectl(&["delete", "pod", "plain", "--grace-period=0", "--force"]);
        fixture.kubectl(&["annotate", "pod", "before-worker-0", "touched=yes"]);
        assert_eq!(pods(), uids, "the pods of the job");

        // Jobs are written, read and deleted without anybody's leave.
        fixture.put(&job("during"));
        let mut wrong = job("wrong");
        template(&mut wrong)["spec"]["containers"][0]["name"] = json!("trainer");
        fixture.put(&wrong);
        fixture.kubectl(&["get", "pytorchjobs,mpijobs"]);
        fixture.kubectl(&["delete", "pytorchjob", "before"]);

        hooks.lead_no_more_to("only");
        let _operator = asked(fixture, &hooks);
        fixture.until_status("during", |status| status["state"] == "Running");
        // The operator looks again, and starts nothing.
        let events = fixture.wait("the operator says what is wrong", || {
            let events = fixture.kubectl(&["get", "events", "-o", "jsonpath={.items[*].message}"]);
            events.contains("TY125").then_some(events)
        });
        assert!(events.contains("`trainer`"), "{events}");
        let pods = fixture.kubectl(&["get", "pods", "-o", "name"]);
        assert!(!pods.contains("wrong"), "{pods}");
        // A mistake that is there refuses no change of something else, and can be mended.
        let label = json!({"metadata": {"labels": {"team": "a"}}});
        let labelled = fixture.try_patch("pytorchjob/wrong", &label);
        assert_eq!(labelled.code, Some(0), "{labelled:?}");
        let mut right = json!({"spec": job("wrong")["spec"]});
        right["spec"]["runPolicy"]["suspend"] = json!(false);
        let mended = fixture.try_patch("pytorchjob/wrong", &right);
        assert_eq!(mended.code, Some(0), "{mended:?}");
        fixture.until_status("wrong", |status| status["state"] == "Running");
    });
}

#[test]
fn replicas_with_old_certificate_still_trusted() {
    on_cluster("renewed", |fixture| {
        let hooks = Hooks::new(fixture);
        let first = fixture.operator_with(May::Act, &["--webhook-bind=:0"]);
        hooks.lead_to("first", &first);
        hooks.until_asked();
        let secret =
            |field: &str| fixture.kubectl(&["get", "secret", rights::CERTIFICATE, "-o", field]);
        let certificate = "jsonpath={.data.tls\\.crt}";
        let before = secret(certificate);
        fixture.kubectl(&[
            "annotate",
            "secret",
            rights::CERTIFICATE,
            "trainyard.dev/renew-on=2020-01-01",
            "--overwrite",
        ]);
        // Whoever looks next renews it: a replica that starts does so at once.
        let second = fixture.operator_with(May::Act, &["--webhook-bind=:0"]);
        assert_ne!(secret(certificate), before, "a new certificate");
        let authorities = secret("go-template={{index .data \"ca.crt\" | base64decode}}");
        assert_eq!(authorities.matches("BEGIN CERTIFICATE").count(), 2);
        for (kind, name) in [
            ("validatingwebhookconfiguration", rights::VALIDATOR),
            ("mutatingwebhookconfiguration", rights::DEFAULTER),
        ] {
            let trusted =
                "go-template={{(index .webhooks 0).clientConfig.caBundle | base64decode}}";
            assert_eq!(
                fixture.kubectl(&["get", kind, name, "-o", trusted]),
                authorities
            );
        }
        // Each answers with a certificate of its own, alone and together with the other.
        for replicas in [&["first"][..], &["second"], &["first", "second"]] {
            for (name, operator) in [("first", &first), ("second", &second)] {
                if replicas.contains(&name) {
                    hooks.lead_to(name, operator);
                } else {
                    hooks.lead_no_more_to(name);
                }
            }
            hooks.until_asked();
            for _ in 0..5 {
                let taken = fixture.try_put(&job("taken"), &["--dry-run=server"]);
                assert_eq!(taken.code, Some(0), "{replicas:?}: {taken:?}");
            }
        }
        first.stop();
        second.stop();
    });
}

#[test]
fn standby_replica_answers_while_leader_is_killed() {
    on_cluster("replicas", |fixture| {
        let hooks = Hooks::new(fixture);
        let first = fixture.operator_with(May::Act, &["--webhook-bind=:0"]);
        let second = fixture.operator_with(May::Act, &["--webhook-bind=:0"]);
        let secret =
            |field: &str| fixture.kubectl(&["get", "secret", rights::CERTIFICATE, "-o", field]);
        let certificate = "jsonpath={.data.tls\\.crt}";
        let shared = secret(certificate);
        hooks.lead_to("first", &first);
        hooks.lead_to("second", &second);
        hooks.until_asked();
        fixture.put(&job("one"));
        fixture.until_status("one", |status| status["state"] == "Running");
        drop(first);
        hooks.lead_no_more_to("first");
        // The API server calls the endpoints that it knows; once it is updated, no write fails any more.
        hooks.until_asked();
        fixture.wait("ten jobs in a row are taken", || {
            let all_taken = (0..10).all(|_| {
                let taken = fixture.try_put(&job("two"), &["--dry-run=server"]);
                taken.code == Some(0)
            });
            all_taken.then_some(())
        });
        fixture.put(&job("two"));
        // The lease of a leader that was killed runs out first.
        fixture.until_status("two", |status| status["state"] == "Running");
        assert_eq!(
            secret(certificate),
            shared,
            "one certificate for all replicas"
        );
        second.stop();
    });
}

/// An authority and a certificate that it vouches for, as files of `folder`.
fn put_certificate(folder: &Path, namespace: &str) -> String {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_key = KeyPair::generate().unwrap();
    let trusted = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let name = format!("{}.{namespace}.svc", crd::SERVICE);
    let mut leaf = CertificateParams::new(vec![name]).unwrap();
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = leaf.signed_by(&key, &issuer).unwrap();
    let text = |tag: &str, der: &[u8]| pem::encode(&pem::Pem::new(tag, der));
    let authority = text("CERTIFICATE", trusted.der());
    for (file, text) in [
        ("tls.crt", text("CERTIFICATE", certificate.der())),
        ("tls.key", text("PRIVATE KEY", key.serialized_der())),
        ("ca.crt", authority.clone()),
    ] {
        fs::write(folder.join(file), text).unwrap();
    }
    authority
}

#[test]
fn cert_dir_reloads_on_change() {
    on_cluster("folder", |fixture| {
        let hooks = Hooks::new(fixture);
        let folder = fixture.new_file("certificates");
        fs::create_dir(&folder).unwrap();
        let first = put_certificate(&folder, &fixture.namespace);
        let named = format!("--webhook-cert-dir={}", folder.display());
        let operator = fixture.operator_with(May::Act, &[WEBHOOKS, &[&named]].concat());
        hooks.lead_to("only", &operator);
        hooks.until_asked();
        let trusts = |authority: &str| {
            let configuration = fixture.kubectl(&[
                "get",
                "validatingwebhookconfiguration",
                rights::VALIDATOR,
                "-o",
                "go-template={{range .webhooks}}{{.clientConfig.caBundle | base64decode}}{{end}}",
            ]);
            let kinds = 6;
            configuration.matches(authority).count() == kinds
        };
        assert!(trusts(&first));
        let second = put_certificate(&folder, &fixture.namespace);
        fixture.wait("the second authority is trusted", || {
            trusts(&second).then_some(())
        });
        // Only the second authority is trusted, so whoever answers has its certificate.
        hooks.until_asked();
        assert!(!trusts(&first));
        // No certificate was issued, and nothing asked for one.
        let secrets = fixture.kubectl(&["get", "secrets", "-o", "name"]);
        assert_eq!(secrets, "");
        // Halves that do not belong together are not served.
        fs::write(folder.join("tls.key"), "nonsense").unwrap();
        fixture.wait("the error is logged", || {
            let logged = operator.said("Cannot serve the webhooks as configured");
            (!logged.is_empty()).then_some(())
        });
        hooks.until_asked();
        operator.stop();
    });
}
