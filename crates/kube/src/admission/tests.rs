use super::*;

fn pytorch(name: &str, container: &str) -> Value {
    json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "n", "managedFields": [{"manager": "kubectl"}]},
        "spec": {"pytorchReplicaSpecs": {"Worker": {
            "replicas": 2,
            "template": {"spec": {"containers": [{"name": container, "image": "i"}]}},
        }}},
        "status": {"conditions": [{"type": "Created"}]},
    })
}

fn mpi(api_version: &str, spec: &Value) -> Value {
    let pod = json!({"spec": {"containers": [{"name": "mpi", "image": "i"}]}});
    let mut job = json!({
        "apiVersion": api_version,
        "kind": "MPIJob",
        "metadata": {"name": "j", "namespace": "n"},
        "spec": {"mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": pod},
            "Worker": {"replicas": 2, "template": pod},
        }},
    });
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    job
}

/// A cluster with the runtime `team` in namespace `n`.
fn team() -> FindRuntime {
    let runtime = RuntimeName {
        kind: "ClusterTrainingRuntime".to_owned(),
        name: "torch-distributed".to_owned(),
    };
    let mut runtime = runtime.built_in().unwrap();
    runtime["kind"] = "TrainingRuntime".into();
    runtime["metadata"] = json!({"name": "team", "namespace": "n"});
    let runtime = Arc::new(runtime);
    Arc::new(move |name, namespace| {
        let is_meant = name.is_name_of(&runtime) && namespace == "n";
        is_meant.then(|| Arc::clone(&runtime))
    })
}

fn ask(request: &Value) -> Value {
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": request});
    let answer: Value = serde_json::from_slice(&review(
        body.to_string().as_bytes(),
        &Cluster::default(),
        &team(),
    ))
    .unwrap();
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    answer["response"].clone()
}

fn create(object: &Value) -> Value {
    ask(&json!({"uid": "u", "operation": "CREATE", "object": object, "oldObject": null}))
}

#[test]
fn a_refusal_says_every_mistake_and_how_to_mend_it() {
    let long = "a".repeat(70);
    let response = create(&pytorch(&long, "trainer"));
    assert_eq!(response["allowed"], false);
    assert_eq!(response["uid"], "u");
    assert_eq!(response["status"]["code"], 422);
    let message = response["status"]["message"].as_str().unwrap();
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(lines[0], "2 mistakes:", "{message}");
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("- TY107 at `metadata.name`: ")
                && line.contains("shorten it to at most 47 characters")),
        "{message}"
    );
    assert!(
        lines.iter().any(
            |line| line.starts_with("- TY125 at `spec.pytorchReplicaSpecs.Worker")
                && line.contains("`pytorch`")
        ),
        "{message}"
    );
}

#[test]
fn one_mistake_is_one_line() {
    let response = create(&pytorch(&"a".repeat(60), "pytorch"));
    let message = response["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("TY109 at `metadata.name`: "),
        "{message}"
    );
    assert!(
        message.ends_with("; shorten the name to at most 54 characters"),
        "{message}"
    );
    assert!(!message.contains('\n'), "{message}");
}

#[test]
fn what_passes() {
    let wrong = || pytorch("j", "trainer");
    let mut going = wrong();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let cases = [
        (
            "a right job",
            json!({"operation": "CREATE", "object": pytorch("j", "pytorch")}),
        ),
        (
            "a deletion",
            json!({"operation": "DELETE", "object": null, "oldObject": wrong()}),
        ),
        (
            "a status",
            json!({"operation": "UPDATE", "subResource": "status", "object": wrong(),
                "oldObject": pytorch("j", "pytorch")}),
        ),
        (
            "a wrong job on its way out",
            json!({"operation": "UPDATE", "object": going, "oldObject": wrong()}),
        ),
        (
            "a wrong job that was there before",
            json!({"operation": "UPDATE", "object": wrong(), "oldObject": wrong()}),
        ),
        (
            "an MPIJob",
            json!({"operation": "CREATE", "object": mpi("kubeflow.org/v2beta1", &json!({"sshAuthMountPath": "/keys", "mpiImplementation": "Intel"}))}),
        ),
    ];
    for (name, mut request) in cases {
        request["uid"] = json!("u");
        let response = ask(&request);
        assert_eq!(response["allowed"], true, "{name}: {response}");
    }
}

#[test]
fn an_mpijob_is_checked_in_the_version_of_its_creation() {
    // The API server may ask in either version; only v2beta1 knows implementations.
    let made = mpi("kubeflow.org/v2beta1", &json!({"mpiImplementation": "LAM"}));
    let converted = convert::convert(&made, "kubeflow.org/v1").unwrap();
    for object in [made, converted] {
        let message = create(&object)["status"]["message"].clone();
        let message = message.as_str().unwrap();
        assert!(
            message.starts_with("TY134 at `spec.mpiImplementation`"),
            "{message}"
        );
    }
}

#[test]
fn warnings_are_returned_and_do_not_refuse() {
    let mut job = pytorch("j", "pytorch");
    job["metadata"]["annotations"] = json!({"trainyard.dev/restart-scop": "pod"});
    let response = create(&job);
    assert_eq!(response["allowed"], true);
    let warnings: Vec<&str> = strings(&response["warnings"]);
    assert!(warnings[0].starts_with("TY139 at "), "{warnings:?}");
    // Lint findings of a valid job are returned, too: the image has no tag.
    assert!(
        warnings.iter().any(|line| line.starts_with("TY601 at ")),
        "{warnings:?}"
    );
}

fn strings(list: &Value) -> Vec<&str> {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item.as_str().unwrap()).collect()
}

#[test]
fn production_refuses_what_a_demo_may_skip() {
    let job = |annotations: Value| {
        let mut job = pytorch("j", "pytorch");
        job["metadata"]["annotations"] = annotations;
        create(&job)
    };
    let refused = job(json!({"trainyard.dev/profile": "production"}));
    assert_eq!(refused["allowed"], false, "{refused}");
    let message = refused["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("TY601 at "), "{message}");
    let allowed = job(json!({"trainyard.dev/profile": "production",
        "trainyard.dev/lint-allow": "TY601: built every night"}));
    assert_eq!(allowed["allowed"], true, "{allowed}");
}

#[test]
fn warnings_are_few_and_short() {
    let finding = |number: usize, message: &str, hint: &str| {
        let rule = lint::rule("TY601").unwrap();
        let span = trainyard_core::finding::Span::default();
        Finding::new(rule, format!("p{number}"), span, message).with_hint(hint)
    };
    let long = "x".repeat(240);
    let cases = [(0, 0), (1, 1), (10, 10), (11, 10), (400, 10)];
    for (count, want) in cases {
        let findings: Vec<Finding> = (0..count).map(|at| finding(at, &long, &long)).collect();
        let lines = warnings(&findings);
        assert_eq!(lines.len(), want, "{count}");
        assert!(
            lines.iter().all(|line| line.chars().count() <= 256),
            "{count}"
        );
    }
    let findings: Vec<Finding> = (0..12).map(|at| finding(at, "m", "h")).collect();
    let lines = warnings(&findings);
    assert_eq!(lines[0], "TY601 at `p0`: m; h");
    assert_eq!(lines[9], "3 more; `trainyard lint` prints all of them");
    // What to do gives way to what is wrong.
    assert_eq!(
        warning(&finding(0, &"m".repeat(230), "hint")),
        format!("TY601 at `p0`: {}", "m".repeat(230))
    );
}

fn completed(request: &Value) -> Option<Value> {
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": request});
    let answer: Value = serde_json::from_slice(&complete(body.to_string().as_bytes())).unwrap();
    let response = &answer["response"];
    assert_eq!(response["allowed"], true, "{response}");
    assert_eq!(response["uid"], "u", "{response}");
    let patch = response.get("patch")?;
    assert_eq!(response["patchType"], "JSONPatch");
    let patch: ByteString = serde_json::from_value(patch.clone()).unwrap();
    Some(serde_json::from_slice(&patch.0).unwrap())
}

#[test]
fn what_is_left_out_is_written() {
    let creation = |object: &Value| json!({"uid": "u", "operation": "CREATE", "object": object});
    let patch = completed(&creation(&pytorch("j", "pytorch")));
    let want = json!([{"op": "add", "path": "/spec/pytorchReplicaSpecs/Worker/restartPolicy",
        "value": "OnFailure"}]);
    assert_eq!(patch, Some(want));
    let mut full = pytorch("j", "pytorch");
    full["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = json!("Never");
    let made = mpi("kubeflow.org/v2beta1", &json!({"slotsPerWorker": 4}));
    let converted = convert::convert(&made, "kubeflow.org/v1").unwrap();
    let mut status = creation(&pytorch("j", "pytorch"));
    status["subResource"] = json!("status");
    let cases = [
        ("all is said", creation(&full)),
        ("a wrong job", creation(&pytorch("j", "trainer"))),
        ("another version's", creation(&converted)),
        ("a status", status),
        ("nothing", json!({"uid": "u", "operation": "DELETE"})),
    ];
    for (name, request) in cases {
        assert_eq!(completed(&request), None, "{name}");
    }
    assert!(completed(&creation(&made)).is_some());
}

#[test]
fn non_review_bodies_are_refused() {
    for body in ["", "{}", "[]", r#"{"request":{}}"#] {
        for answer in [
            review(body.as_bytes(), &Cluster::default(), &team()),
            complete(body.as_bytes()),
        ] {
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer["response"]["allowed"], false, "{body}");
            assert_eq!(answer["response"]["status"]["code"], 400, "{body}");
        }
    }
}

#[test]
fn long_texts_are_cut_between_characters() {
    assert_eq!(short("äöü", 3), "äöü");
    assert_eq!(short("äöü", 2), "äö…");
}

#[test]
fn a_job_that_names_the_operator_s_account_is_refused() {
    let cluster = Cluster {
        own_account: Some(launch::Account {
            namespace: "n".to_owned(),
            name: "trainyard".to_owned(),
        }),
        ..Cluster::default()
    };
    let named = |account: &str, container: &str| {
        let mut job = pytorch("j", container);
        let spec = &mut job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"];
        spec["serviceAccountName"] = json!(account);
        job
    };
    let answer = |namespace: &str, object: &Value, old: &Value| {
        let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
        let body = json!({"request": {"uid": "u", "namespace": namespace, "operation": operation,
            "object": object, "oldObject": old}});
        let answer: Value =
            serde_json::from_slice(&review(body.to_string().as_bytes(), &cluster, &team()))
                .unwrap();
        answer["response"].clone()
    };
    let own = named("trainyard", "pytorch");
    let other = named("trainer", "pytorch");
    let refused = answer("n", &own, &Value::Null);
    assert_eq!(refused["allowed"], false, "{refused}");
    assert_eq!(refused["status"]["code"], 403);
    let message = refused["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("the template of Worker names ServiceAccount `trainyard`"),
        "{message}"
    );
    assert!(
        message.ends_with("create the job in another namespace"),
        "{message}"
    );
    for (what, namespace, object, old, allowed) in [
        ("another account", "n", &other, &Value::Null, true),
        ("another namespace", "m", &own, &Value::Null, true),
        ("a change to it", "n", &own, &other, false),
        ("a change away from it", "n", &other, &own, true),
        ("stored so before", "n", &own, &own, true),
    ] {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(namespace);
        let response = answer(namespace, &object, old);
        assert_eq!(response["allowed"], allowed, "{what}: {response}");
    }
}

#[test]
fn trainjob_is_reviewed_with_its_runtime() {
    let job = |kind: &str, name: &str, env: &str, manager: &str| {
        let object = json!({
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
            "metadata": {"name": "j", "namespace": "n"},
            "spec": {"runtimeRef": {"name": name, "kind": kind}, "managedBy": manager,
                "trainer": {"numNodes": 2, "env": [{"name": env, "value": "1"}]}},
        });
        ask(&json!({"uid": "u", "namespace": "n", "operation": "CREATE", "object": object}))
    };
    let ours = "trainer.kubeflow.org/trainjob-controller";
    let cluster = "ClusterTrainingRuntime";
    for (response, allowed, words) in [
        (job(cluster, "torch-distributed", "A", ours), true, ""),
        (
            job(cluster, "torch-distributed", "PET_NNODES", ours),
            false,
            "PET_NNODES",
        ),
        (job("TrainingRuntime", "team", "A", ours), true, ""),
        (
            job("TrainingRuntime", "team", "PET_NNODES", ours),
            false,
            "PET_NNODES",
        ),
        // One that comes later is no mistake.
        (
            job(cluster, "team", "PET_NNODES", ours),
            true,
            "waits for the ClusterTrainingRuntime `team`",
        ),
        (job("Foo", "team", "A", ours), false, "`runtimeRef.kind`"),
        (
            job(
                cluster,
                "torch-distributed",
                "PET_NNODES",
                "kueue.x-k8s.io/multikueue",
            ),
            true,
            "",
        ),
    ] {
        assert_eq!(response["allowed"], allowed, "{response}");
        assert!(response.to_string().contains(words), "{response}");
    }
}
