//! Progress that pods send: whose it is, and what follows.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Method};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use trainyard_core::{launch::push::path, spec::Kind};

use crate::{
    Operator, Options, ProgressSource,
    certificate::{Certificate, issue_for_test},
    operator::push,
    scripted::{
        Fault, Running, Server, Verb, job, job_name,
        make::{NAMESPACE, lease},
        options, pod_name,
        rule::Rule,
        running, text,
        world::World,
    },
    serve::{self, Head, Place, Request, Traffic},
    token,
};

/// An operator that takes what pods send.
fn taking(server: &Server, progress: ProgressSource) -> Running {
    let running = server.operator(Options {
        progress,
        ..options()
    });
    let certificate = Arc::new(Certificate::default());
    certificate.take_for_test(issue_for_test(&["localhost".to_owned()]));
    running
        .operator
        .pushes
        .begin(certificate, "trainyard-system");
    running
}

fn asking(name: &str, workers: u32) -> Value {
    let mut object = job(Kind::PyTorch, name, workers);
    object["metadata"]["annotations"] = json!({"trainyard.dev/progress": "push"});
    object
}

fn uid(world: &World, pod: &str) -> String {
    text(&world.objects[&pod_name(pod)], "/metadata/uid").to_owned()
}

/// The token of a pod, as far as it says so itself.
fn token_of(uid: &str) -> String {
    let claims = json!({"exp": 4_000_000_000_i64, "kubernetes.io": {"namespace": NAMESPACE, "pod": {"uid": uid}}});
    token::unsigned(&claims.to_string())
}

/// What the API server says about every token from now on.
fn answer_reviews(server: &Server, job: &str, uid: &str) {
    let audience = format!("trainer.kubeflow.org/v1alpha1/namespaces/n/trainjobs/{job}/status");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {"token": ""},
        "status": {"authenticated": true, "audiences": [audience], "user": {
            "username": "system:serviceaccount:n:default",
            "extra": {"authentication.kubernetes.io/pod-uid": [uid]}}}});
    server.heal();
    let garbage = Fault::Garbage(review.to_string());
    server.on(Rule::new(Verb::Create, "/tokenreviews", garbage));
}

fn at_step(step: u64, loss: &str) -> Value {
    json!({"trainerStatus": {"progressPercentage": 5, "lastUpdatedTime": "2026-01-31T12:00:00Z", "metrics": [
        {"name": "loss", "value": loss}, {"name": "current_step", "value": step.to_string()},
        {"name": "total_steps", "value": "1000"}]}})
}

struct Sent {
    code: u16,
    body: Value,
    retry_after: Option<u32>,
}

/// Sends an update as a client does, from its head on.
async fn send(operator: &Operator, method: Method, path: &str, token: &str, body: &str) -> Sent {
    let header = (!token.is_empty()).then(|| format!("Bearer {token}"));
    let authorization = header.map(|text| HeaderValue::from_str(&text).unwrap());
    let head = Head {
        method,
        path: path.to_owned(),
        authorization: authorization.clone(),
        ..Head::default()
    };
    let reply = match operator.admit_push(&head, &Traffic::default()) {
        Err(reply) => reply,
        Ok(intake) => {
            assert_eq!(intake.bytes, 65_536);
            let request = Request {
                method: head.method,
                path: path.to_owned(),
                query: None,
                authorization,
                headers: head.headers,
                body: body.as_bytes().to_vec(),
                values: 0,
                place: Place::alone(),
            };
            operator.answer_push(request).await
        }
    };
    Sent {
        code: reply.status.as_u16(),
        body: serde_json::from_slice(&reply.body).unwrap_or_default(),
        retry_after: reply.retry_after,
    }
}

async fn post(operator: &Operator, job: &str, token: &str, body: &Value) -> Sent {
    let path = path(NAMESPACE, job);
    send(operator, Method::POST, &path, token, &body.to_string()).await
}

fn counted(operator: &Operator, result: &'static str) -> u64 {
    operator.caller.metrics.progress.pushed_so_far(result)
}

fn progress(world: &World, name: &str, field: &str) -> Value {
    let job = &world.objects[&job_name(Kind::PyTorch, name)];
    let found = job.pointer(&format!("/status/trainyard/progress/{field}"));
    found.cloned().unwrap_or_default()
}

fn events(world: &World, reason: &str) -> usize {
    let made = world.asked(Verb::Create, "/events");
    made.filter(|call| call.body["reason"] == reason).count()
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_sends_reaches_the_status() {
    let server = Server::new();
    let running_operator = taking(&server, ProgressSource::Logs);
    let operator = &running_operator.operator;
    server.add_job(asking("a", 2));
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    let pod = server.see(|world| world.objects[&pod_name("a-worker-0")].to_string());
    assert!(pod.contains("https://trainyard.trainyard-system.svc:10443/apis/trainer.kubeflow.org/v1alpha1/namespaces/n/trainjobs/a/status"));
    assert!(pod.contains("BEGIN CERTIFICATE"));
    let pod = server.see(|world| uid(world, "a-worker-0"));
    answer_reviews(&server, "a", &pod);
    tokio::time::sleep(Duration::from_secs(1)).await;

    let body = at_step(5, "1.5");
    let sent = post(operator, "a", &token_of(&pod), &body).await;
    assert_eq!((sent.code, sent.body), (200, body), "it is echoed");
    server
        .wait("its step", |world| progress(world, "a", "step") == 5)
        .await;
    server.see(|world| {
        assert_eq!(progress(world, "a", "loss"), json!("1.5"));
        assert_eq!(progress(world, "a", "totalSteps"), json!(1000));
    });
    // While it sends, its log is not read.
    let reads = server.see(|world| world.asked(Verb::Log, "/log").count());
    for step in 6..30 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let sent = post(operator, "a", &token_of(&pod), &at_step(step, "nan")).await;
        assert_eq!(sent.code, 200);
    }
    server
        .wait("its last step", |world| progress(world, "a", "step") == 29)
        .await;
    server.see(|world| {
        assert_eq!(progress(world, "a", "nanSince"), json!(6));
        assert_eq!(world.asked(Verb::Log, "/log").count(), reads);
        let reviews: Vec<_> = world.asked(Verb::Create, "/tokenreviews").collect();
        assert_eq!(reviews.len(), 1, "a good token is believed for 5 minutes");
        let audience = "trainer.kubeflow.org/v1alpha1/namespaces/n/trainjobs/a/status";
        assert_eq!(reviews[0].body["spec"]["audiences"], json!([audience]));
    });
    assert_eq!(counted(operator, "step"), 25);
    // When it does not send any more, its log is read again.
    tokio::time::sleep(Duration::from_secs(10)).await;
    server.add_line("a-worker-0", "step 31 loss 0.5");
    server
        .wait("its log", |world| progress(world, "a", "step") == 31)
        .await;
    // An update without a step hides no line.
    server.add_line("a-worker-0", "step 40 loss 0.25");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let metrics = json!([{"name": "accuracy", "value": "0.9"}]);
    let body = json!({"trainerStatus": {"progressPercentage": 50, "metrics": metrics}});
    let sent = post(operator, "a", &token_of(&pod), &body).await;
    assert_eq!((sent.code, counted(operator, "no_step")), (200, 1));
    server
        .wait("its line", |world| progress(world, "a", "step") == 40)
        .await;
    running_operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_sends_is_known_where_no_log_is_read() {
    let server = Server::new();
    let running_operator = taking(&server, ProgressSource::Off);
    server.add_job(asking("a", 1));
    server.wait("it runs", |world| running(world) == 1).await;
    let pod = server.see(|world| uid(world, "a-worker-0"));
    answer_reviews(&server, "a", &pod);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let sent = post(
        &running_operator.operator,
        "a",
        &token_of(&pod),
        &at_step(7, "1"),
    )
    .await;
    assert_eq!(sent.code, 200);
    server
        .wait("its step", |world| progress(world, "a", "step") == 7)
        .await;
    assert_eq!(
        server.see(|world| world.asked(Verb::Log, "/log").count()),
        0
    );
    running_operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_sends_for_another_job() {
    let server = Server::new();
    let running_operator = taking(&server, ProgressSource::Off);
    let operator = &running_operator.operator;
    server.add_job(asking("a", 1));
    server.add_job(asking("b", 1));
    server.wait("both run", |world| running(world) == 2).await;
    let (a, b) = server.see(|world| (uid(world, "a-worker-0"), uid(world, "b-worker-0")));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let body = at_step(900, "9");

    // A good token of the other job's pod.
    answer_reviews(&server, "b", &b);
    assert_eq!(post(operator, "a", &token_of(&b), &body).await.code, 403);
    // The same, which lies about its pod. The API server says whose it is.
    assert_eq!(post(operator, "a", &token_of(&a), &body).await.code, 403);
    tokio::time::sleep(Duration::from_secs(10)).await;
    // For another audience.
    answer_reviews(&server, "b", &a);
    assert_eq!(post(operator, "a", &token_of(&a), &body).await.code, 403);
    // A bad token of the right pod is not checked again at once.
    let again = post(operator, "a", &token_of(&a), &body).await;
    assert_eq!((again.code, again.retry_after), (429, Some(5)));
    assert_eq!(counted(operator, "forbidden"), 3);
    tokio::time::sleep(Duration::from_secs(30)).await;
    for name in ["a", "b"] {
        server.see(|world| assert_eq!(progress(world, name, "step"), Value::Null));
    }
    running_operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_taken_is_refused_with_its_reason() {
    let server = Server::new();
    let running_operator = taking(&server, ProgressSource::Off);
    let operator = &running_operator.operator;
    server.add_job(asking("a", 1));
    server.wait("it runs", |world| running(world) == 1).await;
    let pod = server.see(|world| uid(world, "a-worker-0"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (token, body) = (token_of(&pod), at_step(1, "1"));

    let sent = post(operator, "a", "", &body).await;
    assert_eq!(
        (sent.code, sent.body["reason"].as_str()),
        (401, Some("Unauthorized"))
    );
    assert_eq!(post(operator, "a", "opaque", &body).await.code, 401);
    let other = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/n/trainjobs/a";
    assert_eq!(
        send(operator, Method::POST, other, &token, "{}").await.code,
        404
    );
    let good = path(NAMESPACE, "a");
    assert_eq!(
        send(operator, Method::GET, &good, &token, "{}").await.code,
        405
    );
    assert_eq!(post(operator, "unknown", &token, &body).await.code, 403);

    // The API server is in trouble, or silent.
    for fault in [Fault::status(500), Fault::Silent] {
        server.heal();
        server.on(Rule::new(Verb::Create, "/tokenreviews", fault));
        let sent = post(operator, "a", &token, &body).await;
        assert_eq!((sent.code, sent.retry_after), (503, Some(5)));
    }
    assert_eq!(counted(operator, "unavailable"), 2);

    answer_reviews(&server, "a", &pod);
    let sent = send(
        operator,
        Method::POST,
        &good,
        &token,
        "{\"trainerStatus\": {",
    )
    .await;
    assert_eq!(
        (sent.code, sent.body["reason"].as_str()),
        (422, Some("Invalid"))
    );
    let sent = post(operator, "a", &token, &json!({})).await;
    assert_eq!((sent.code, sent.body), (200, json!({})));
    tokio::time::sleep(Duration::from_secs(10)).await;
    for _ in 0..5 {
        assert_eq!(post(operator, "a", &token, &body).await.code, 200);
    }
    let sent = post(operator, "a", &token, &body).await;
    assert_eq!((sent.code, sent.retry_after), (429, Some(5)));
    assert_eq!(counted(operator, "too_often"), 1);
    running_operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn push_of_an_earlier_attempt_is_ignored() {
    let server = Server::new();
    let running_operator = taking(&server, ProgressSource::Off);
    let operator = &running_operator.operator;
    let mut object = asking("a", 2);
    object["spec"]["runPolicy"] = json!({"backoffLimit": 50});
    object["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode".into();
    server.add_job(object);
    server.wait("both run", |world| running(world) == 2).await;
    let pod = server.see(|world| uid(world, "a-worker-1"));
    answer_reviews(&server, "a", &pod);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let sent = post(operator, "a", &token_of(&pod), &at_step(100, "1")).await;
    assert_eq!(sent.code, 200);
    server
        .wait("its step", |world| progress(world, "a", "step") == 100)
        .await;
    // It is being deleted and still runs.
    server.with(|world| {
        world.kubelet.ends = false;
        world.end_pod(&pod_name("a-worker-0"), 137);
    });
    server
        .wait("the attempt ends", |world| {
            let pod = world.objects.get(&pod_name("a-worker-1"));
            pod.is_some_and(|pod| !text(pod, "/metadata/deletionTimestamp").is_empty())
        })
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let sent = post(operator, "a", &token_of(&pod), &at_step(101, "1")).await;
    assert_eq!(sent.code, 409);
    // It is gone.
    server.with(|world| world.kubelet.ends = true);
    server
        .wait("the next attempt runs", |world| {
            running(world) == 2 && uid(world, "a-worker-1") != pod
        })
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let sent = post(operator, "a", &token_of(&pod), &at_step(102, "1")).await;
    assert_eq!(sent.code, 403);
    server.see(|world| assert_eq!(progress(world, "a", "step"), json!(100)));
    running_operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_takes_what_pods_send() {
    let server = Server::new();
    let standby = Operator::new(
        server.client(),
        Options {
            lease: Some(lease("standby")),
            ..options()
        },
    );
    let sent = post(&standby, "a", &token_of("u"), &json!({})).await;
    assert_eq!((sent.code, sent.retry_after), (503, Some(5)));
    assert_eq!(counted(&standby, "not_leading"), 1);
    assert_eq!(server.see(|world| world.calls.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn push_that_is_off_emits_an_event() {
    let server = Server::new();
    let operator = server.operator(options());
    server.add_job(asking("a", 2));
    server.add_job(job(Kind::PyTorch, "b", 1));
    server.wait("all run", |world| running(world) == 3).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    server.see(|world| {
        assert_eq!(events(world, "ProgressPushOff"), 1);
        let events = world.asked(Verb::Create, "/events");
        let mut events = events.filter(|call| call.body["reason"] == "ProgressPushOff");
        let message = text(&events.next().unwrap().body, "/message").to_owned();
        assert!(message.contains("--progress-bind"), "{message}");
        let pod = world.objects[&pod_name("a-worker-0")].to_string();
        assert!(!pod.contains("KUBEFLOW_TRAINER"), "{pod}");
    });
    operator.stop().await;
}

/// Over a socket, as clients do it.
#[tokio::test]
async fn a_large_body_is_refused() {
    let server = Server::new();
    let running_operator = taking(&server, ProgressSource::Off);
    let operator = running_operator.operator.clone();
    server.add_job(asking("a", 1));
    server.wait("it runs", |world| running(world) == 1).await;
    let pod = server.see(|world| uid(world, "a-worker-0"));
    answer_reviews(&server, "a", &pod);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let traffic = Traffic::default();
    let plain = serve::Server {
        name: push::NAME,
        bounds: push::BOUNDS,
        tls: None,
        admit: push::admits(operator.clone(), traffic.clone()),
        answer: push::updates(operator),
        rules: serve::ReplyRules::default(),
        traffic: traffic.clone(),
    };
    let serving = tokio::spawn(serve::serve(listener, plain));
    let token = token_of(&pod);
    for (length, want) in [(65_536, "200"), (65_537, "413")] {
        let body = format!("{{}}{}", " ".repeat(length - 2));
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: test\r\nauthorization: bearer {token}\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n",
            path(NAMESPACE, "a")
        );
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        drop(stream.write_all(body.as_bytes()).await);
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer).await);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(answer.split(' ').nth(1), Some(want), "{answer}");
    }
    assert_eq!(traffic.refused_so_far(push::NAME, "too_large"), 1);
    serving.abort();
    running_operator.stop().await;
}
