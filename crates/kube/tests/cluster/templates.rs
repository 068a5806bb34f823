//! Every template of `trainyard new`, held to what the API server itself accepts.

use kube::{api::PostParams, core::Request};
use serde_json::Value;
use trainyard_core::{
    launch::{self, Cluster, Object},
    lint::Profile,
    spec::{self, Kind},
    template::{self, Answers, Question},
};
use trainyard_kube::convert::convert;

use crate::harness::{TestNamespace, on_cluster};

/// Creates `object` without keeping it; the server refuses unknown and duplicate fields too.
async fn accepted(fixture: &TestNamespace, object: &Value) -> Result<Value, kube::Error> {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let api = fixture.api(group, version, object["kind"].as_str().unwrap());
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let body = serde_json::to_vec(object).unwrap();
    let mut request = Request::new(api.resource_url())
        .create(&params, body)
        .unwrap();
    let strict = format!("{}&fieldValidation=Strict", request.uri());
    *request.uri_mut() = strict.parse().unwrap();
    fixture.client.request(request).await
}

async fn must_be_accepted(fixture: &TestNamespace, case: &str, object: &Value) {
    if let Err(error) = accepted(fixture, object).await {
        panic!("{case}: {} is refused: {error}", object["metadata"]["name"]);
    }
}

#[test]
fn the_api_server_accepts_every_template_and_its_pods() {
    on_cluster("templates", |fixture| async move {
        for template in template::all() {
            for profile in Profile::ALL {
                let case = format!("{} {}", template.id(), profile.name());
                let mut answers = Answers::new(template, profile);
                answers
                    .set(Question::Namespace, &fixture.namespace)
                    .unwrap();
                let file = spec::read(answers.write().unwrap().as_bytes()).unwrap();
                for document in &file.documents {
                    let mut object = document.tree.to_json();
                    let Some(kind) = document.job_kind() else {
                        must_be_accepted(&fixture, &case, &object).await;
                        continue;
                    };
                    if kind == Kind::MpiV2 {
                        // As the API server stores it: there is no webhook here to convert it.
                        object = convert(&object, Kind::MpiV1.api_version()).unwrap();
                    }
                    must_be_accepted(&fixture, &case, &object).await;
                    let job = spec::check(document).job.unwrap();
                    // Otherwise nobody would know whether the server looks at all.
                    object["spec"]["runPolicy"]["backofLimit"] = Value::from(1);
                    let refusal = accepted(&fixture, &object).await.unwrap_err().to_string();
                    assert!(refusal.contains("backofLimit"), "{case}: {refusal}");
                    let objects = launch::render(&job, &Cluster::default()).unwrap();
                    for object in objects.iter().map(Object::to_value) {
                        if matches!(object["kind"].as_str(), Some("Pod" | "Service")) {
                            must_be_accepted(&fixture, &case, &object).await;
                        }
                    }
                }
            }
        }
    });
}
