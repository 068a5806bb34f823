//! Pods with an address to report their progress to.

use k8s_openapi::api::core::v1::{EnvVar, Volume, VolumeMount};
use serde_json::json;

use super::{build::job, env_of, pod_of};
use crate::{
    launch::{
        Cluster, LaunchedPod, pod,
        push::{self, Push},
    },
    spec::{Job, Kind, ProgressBy, Role, Slot, annotation},
};

const PEM: &str = "-----BEGIN CERTIFICATE-----\n";

fn server() -> Push {
    Push {
        server: "https://trainyard.trainyard-system.svc:10443".to_owned(),
        authority: PEM.to_owned(),
    }
}

fn pushing(kind: Kind) -> Job {
    let mut job = match kind {
        Kind::MpiV2 => job(kind).role(Role::Launcher, 1).role(Role::Worker, 1),
        _ => job(kind).role(Role::Worker, 1),
    }
    .done();
    job.settings.progress = ProgressBy::Push;
    job
}

#[test]
fn push_variables_only_where_job_asks() {
    let mut asks = pushing(Kind::PyTorch);
    let slot = Slot::new(Role::Worker, 0);
    let before = LaunchedPod::Pod(Box::new(pod_of(&asks, slot)));
    let mut launched = before.clone();
    push::add(&mut launched, &asks, &server());
    assert_ne!(launched, before);
    asks.settings.progress = ProgressBy::Logs;
    let mut unchanged = before.clone();
    push::add(&mut unchanged, &asks, &server());
    assert_eq!(unchanged, before);
}

#[test]
fn push_variables_match_kubeflow_trainer() {
    let job = pushing(Kind::PyTorch);
    let (namespace, name) = (job.namespace.as_str(), job.name.as_str());
    let mut launched = LaunchedPod::Pod(Box::new(pod_of(&job, Slot::new(Role::Worker, 0))));
    push::add(&mut launched, &job, &server());
    let LaunchedPod::Pod(pod) = launched else {
        panic!("a pod became a Job");
    };
    let env = env_of(&pod, 0);
    let path = format!(
        "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status"
    );
    for want in [
        format!("KUBEFLOW_TRAINER_SERVER_URL=https://trainyard.trainyard-system.svc:10443{path}"),
        "KUBEFLOW_TRAINER_SERVER_CA_CERT=/var/run/secrets/kubeflow/trainer/ca.crt".to_owned(),
        "KUBEFLOW_TRAINER_SERVER_TOKEN=/var/run/secrets/kubeflow/trainer/token".to_owned(),
    ] {
        assert!(env.contains(&want), "{env:?}");
    }
    let value = serde_json::to_value(&*pod).unwrap();
    let audience = path.strip_prefix("/apis/").unwrap();
    assert_eq!(
        value["spec"]["volumes"],
        json!([{"name": "kubeflow-trainer-token", "projected": {"sources": [
            {"serviceAccountToken": {"audience": audience, "expirationSeconds": 3600, "path": "token"}},
            {"downwardAPI": {"items": [{"path": "ca.crt", "fieldRef": {
                "fieldPath": "metadata.annotations['trainyard.dev/progress-ca']"}}]}},
        ]}}])
    );
    assert_eq!(
        value["spec"]["containers"][0]["volumeMounts"],
        json!([{"name": "kubeflow-trainer-token", "mountPath": "/var/run/secrets/kubeflow/trainer",
            "readOnly": true}])
    );
    assert_eq!(
        value["metadata"]["annotations"][annotation::PROGRESS_CA],
        PEM
    );
}

#[test]
fn push_variables_in_launcher_template() {
    let job = pushing(Kind::MpiV2);
    let slot = Slot::new(Role::Launcher, 0);
    let mut launched = pod(&job, slot, 1, &Cluster::default()).unwrap();
    push::add(&mut launched, &job, &server());
    let LaunchedPod::Job(batch) = launched else {
        panic!("a launcher of v2beta1 is a batch Job");
    };
    let template = batch.spec.unwrap().template;
    let annotations = template.metadata.unwrap().annotations.unwrap();
    assert_eq!(annotations[annotation::PROGRESS_CA], PEM);
    let spec = template.spec.unwrap();
    let named = |volume: &Volume| volume.name == "kubeflow-trainer-token";
    assert!(spec.volumes.unwrap().iter().any(named));
}

#[test]
fn what_the_user_set_stays() {
    let slot = Slot::new(Role::Worker, 0);
    let job = pushing(Kind::PyTorch);
    let mut variable = pod_of(&job, slot);
    let mut mount = variable.clone();
    let mut volume = variable.clone();
    let own = EnvVar {
        name: "KUBEFLOW_TRAINER_SERVER_URL".to_owned(),
        ..EnvVar::default()
    };
    variable.spec.as_mut().unwrap().containers[0].env = Some(vec![own]);
    mount.spec.as_mut().unwrap().containers[0].volume_mounts = Some(vec![VolumeMount {
        mount_path: "/var/run/secrets/kubeflow/trainer/".to_owned(),
        ..VolumeMount::default()
    }]);
    volume.spec.as_mut().unwrap().volumes = Some(vec![Volume {
        name: "kubeflow-trainer-token".to_owned(),
        ..Volume::default()
    }]);
    for (name, pod) in [("variable", variable), ("mount", mount), ("volume", volume)] {
        let before = LaunchedPod::Pod(Box::new(pod));
        let mut launched = before.clone();
        push::add(&mut launched, &job, &server());
        assert_eq!(launched, before, "{name}");
    }
}

#[test]
fn paths_name_one_job() {
    let good = push::path("team-a", "bert");
    let cases = [
        (good.as_str(), Some(("team-a", "bert"))),
        (
            "/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs/b",
            None,
        ),
        (
            "/apis/trainer.kubeflow.org/v1alpha1/namespaces//trainjobs/b/status",
            None,
        ),
        (
            "/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs//status",
            None,
        ),
        (
            "/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs/b/c/status",
            None,
        ),
        (
            "/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/x/trainjobs/b/status",
            None,
        ),
        ("/convert", None),
    ];
    for (path, want) in cases {
        assert_eq!(push::job_at(path), want, "{path}");
    }
}
