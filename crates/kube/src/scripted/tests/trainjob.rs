//! `TrainJob`s: from the object to pods, with runtimes that come, change and cannot be read.

use serde_json::{Value, json};
use trainyard_core::spec::Kind;

use crate::{
    Options,
    scripted::{
        Fault, Server, Verb, job, job_name,
        make::{NAMESPACE, has_condition, train_job},
        options, pod_name,
        rule::Rule,
        running, text,
        world::{Name, TRAIN_JOBS, World},
    },
};

const RUNTIMES: &str = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes";

fn with_train_jobs() -> Options {
    let mut options = options();
    options.kinds.push(Kind::Train);
    options
}

/// A server with the definition of `TrainJob`.
fn serving() -> Server {
    let server = Server::new();
    server.with(|world| world.served.insert(TRAIN_JOBS.to_owned()));
    server
}

fn runtime(name: &str, image: &str) -> Value {
    json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime", "metadata": {"name": name},
    "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [{
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": image}]}}},
        },
    }]}}}})
}

fn named(name: &str) -> Name {
    job_name(Kind::Train, name)
}

fn status(world: &World, name: &str, pointer: &str) -> Value {
    let job = world.objects.get(&named(name));
    let found = job.and_then(|job| job.pointer(&format!("/status/{pointer}")).cloned());
    found.unwrap_or_default()
}

fn waiting(world: &World, name: &str) -> String {
    let message = status(world, name, "trainyard/waiting/message");
    message.as_str().unwrap_or_default().to_owned()
}

fn image(world: &World, pod: &str) -> String {
    let pod = world.objects.get(&pod_name(pod));
    pod.map_or(String::new(), |pod| {
        text(pod, "/spec/containers/0/image").to_owned()
    })
}

fn without_image(name: &str, runtime: &str) -> Value {
    let mut job = train_job(name, 1, runtime);
    job["spec"]["trainer"] = json!({"numNodes": 1});
    job
}

#[tokio::test(start_paused = true)]
async fn trainjob_runs_to_complete() {
    let server = serving();
    let operator = server.operator(with_train_jobs());
    server.add_job(train_job("a", 2, "torch-distributed"));
    server
        .wait("both nodes are counted", |world| {
            running(world) == 2 && status(world, "a", "jobsStatus/0/ready") == json!(1)
        })
        .await;
    server.see(|world| {
        // The SDK shows a job as running only without conditions.
        assert_eq!(status(world, "a", "conditions"), Value::Null);
        assert_eq!(status(world, "a", "trainyard/conditions/1/type"), "Running");
        let pod = &world.objects[&pod_name("a-node-0-1")];
        assert_eq!(text(pod, "/spec/subdomain"), "a");
        let snapshot = world.get("/api/v1/configmaps", NAMESPACE, "a-runtime-snapshot");
        let snapshot = snapshot.expect("its runtime is stored beside it");
        assert!(text(&snapshot, "/data/runtime").contains("ClusterTrainingRuntime"));
        assert!(world.get("/api/v1/services", NAMESPACE, "a").is_some());
    });
    server.with(|world| {
        for pod in ["a-node-0-0", "a-node-0-1"] {
            world.end_pod(&pod_name(pod), 0);
        }
    });
    server
        .wait("it is complete", |world| {
            has_condition(world, &named("a"), "Complete")
        })
        .await;
    server.see(|world| {
        assert_eq!(
            status(world, "a", "conditions/0/reason"),
            "AllJobsCompleted"
        );
        assert_eq!(status(world, "a", "jobsStatus/0/succeeded"), json!(1));
    });
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_node_restarts_all_nodes() {
    let server = serving();
    let operator = server.operator(with_train_jobs());
    server.add_job(train_job("a", 2, "torch-distributed"));
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    server.with(|world| world.end_pod(&pod_name("a-node-0-1"), 1));
    server
        .wait("attempt 2 runs", |world| {
            let is_second = |pod: &&std::sync::Arc<Value>| {
                text(pod, "/metadata/labels/trainyard.dev~1attempt") == "2"
            };
            running(world) == 2 && world.pods().filter(is_second).count() == 2
        })
        .await;
    server.see(|world| {
        let pod = &world.objects[&pod_name("a-node-0-0")];
        let restarts = text(pod, "/metadata/labels/jobset.sigs.k8s.io~1restart-attempt");
        assert_eq!(restarts, "1");
    });
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn suspended_trainjob_has_no_pods() {
    let server = serving();
    let operator = server.operator(with_train_jobs());
    let mut object = train_job("a", 1, "torch-distributed");
    object["spec"]["suspend"] = true.into();
    server.add_job(object);
    server
        .wait("it is suspended", |world| {
            has_condition(world, &named("a"), "Suspended")
        })
        .await;
    server.see(|world| assert_eq!(world.pods().count(), 0));
    let set = |suspend: bool| {
        server.with(|world| {
            world.change(&named("a"), |job| job["spec"]["suspend"] = suspend.into());
        });
    };
    set(false);
    server
        .wait("its pod runs", |world| running(world) == 1)
        .await;
    set(true);
    server
        .wait("its pod is gone", |world| {
            world.pods().count() == 0 && has_condition(world, &named("a"), "Suspended")
        })
        .await;
    set(false);
    server
        .wait("it has resumed", |world| {
            running(world) == 1 && status(world, "a", "conditions/0/reason") == "Resumed"
        })
        .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn trainjob_waits_for_its_runtime() {
    let server = serving();
    let operator = server.operator(with_train_jobs());
    server.add_job(without_image("a", "team"));
    server
        .wait("its reason", |world| {
            waiting(world, "a").starts_with("the job waits for the ClusterTrainingRuntime `team`: ")
        })
        .await;
    server.see(|world| assert_eq!(world.pods().count(), 0));
    // One with a mistake is named, one without starts the job.
    let mut broken = runtime("team", "first");
    broken["spec"]["template"]["spec"]["replicatedJobs"][0]["replicas"] = 2.into();
    server.add(RUNTIMES, broken);
    server
        .wait("the mistake", |world| {
            waiting(world, "a").contains("`replicas`")
        })
        .await;
    let name = (RUNTIMES.to_owned(), String::new(), "team".to_owned());
    server.with(|world| {
        world.change(&name, |it| {
            it["spec"]["template"]["spec"]["replicatedJobs"][0]["replicas"] = 1.into();
        });
    });
    server
        .wait("its pod runs", |world| running(world) == 1)
        .await;
    server.see(|world| assert_eq!(image(world, "a-node-0-0"), "first"));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn changed_runtime_does_not_reach_a_job_that_began() {
    let server = serving();
    server.add(RUNTIMES, runtime("team", "first"));
    let operator = server.operator(with_train_jobs());
    server.add_job(without_image("a", "team"));
    server
        .wait("its pod runs", |world| running(world) == 1)
        .await;
    let name = (RUNTIMES.to_owned(), String::new(), "team".to_owned());
    server.with(|world| {
        let containers =
            "/spec/template/spec/replicatedJobs/0/template/spec/template/spec/containers/0/image";
        world.change(&name, |it| {
            if let Some(image) = it.pointer_mut(containers) {
                *image = "second".into();
            }
        });
    });
    let is_attempt = |attempt: &'static str| {
        move |world: &World| {
            let pod = world.objects.get(&pod_name("a-node-0-0"));
            let label = "/metadata/labels/trainyard.dev~1attempt";
            running(world) == 1 && pod.is_some_and(|pod| text(pod, label) == attempt)
        }
    };
    server.with(|world| world.end_pod(&pod_name("a-node-0-0"), 1));
    server.wait("attempt 2 runs", is_attempt("2")).await;
    server.see(|world| assert_eq!(image(world, "a-node-0-0"), "first"));
    // An operator that starts again reads the runtime from where it was stored, and counts on.
    operator.kill();
    let operator = server.operator(with_train_jobs());
    server.with(|world| world.end_pod(&pod_name("a-node-0-0"), 1));
    server.wait("attempt 3 runs", is_attempt("3")).await;
    server.see(|world| assert_eq!(image(world, "a-node-0-0"), "first"));
    server.add_job(without_image("b", "team"));
    server
        .wait("a new job runs", |world| running(world) == 2)
        .await;
    server.see(|world| assert_eq!(image(world, "b-node-0-0"), "second"));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cluster_without_trainjobs_holds_nothing_up() {
    let cases = [
        ("no definition", false, Vec::new()),
        ("no right to jobs", true, vec!["/trainjobs"]),
        (
            "no right to runtimes",
            true,
            vec!["/clustertrainingruntimes", "/trainingruntimes"],
        ),
    ];
    for (case, is_served, refused) in cases {
        let server = Server::new();
        if is_served {
            server.with(|world| world.served.insert(TRAIN_JOBS.to_owned()));
        }
        for path in &refused {
            for verb in [Verb::List, Verb::Watch] {
                server.on(Rule::new(verb, path, Fault::status(403)));
            }
        }
        let operator = server.operator(with_train_jobs());
        server.add_job(job(Kind::PyTorch, "p", 1));
        server.wait(case, |world| running(world) == 1).await;
        assert!(operator.operator.has_listed(), "{case}");
        server.add_job(train_job("a", 1, "torch-distributed"));
        if refused.len() == 2 {
            // The runtime is built in.
            server.wait(case, |world| running(world) == 2).await;
        } else {
            server.heal();
            server.with(|world| world.served.insert(TRAIN_JOBS.to_owned()));
            server.wait(case, |world| running(world) == 2).await;
        }
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_where_the_record_is_dropped() {
    let server = serving();
    server.with(|world| world.prunes_record = true);
    let operator = server.operator(with_train_jobs());
    server.add_job(train_job("a", 1, "torch-distributed"));
    let remark = || operator.operator.train_remark().unwrap_or_default();
    server.add_job(job(Kind::PyTorch, "p", 1));
    server
        .wait("the other job runs", |world| running(world) == 1)
        .await;
    tokio::time::sleep(std::time::Duration::from_mins(2)).await;
    assert!(
        remark().contains("has no `status.trainyard`"),
        "{}",
        remark()
    );
    server.see(|world| {
        assert_eq!(running(world), 1);
        assert_eq!(
            status(world, "a", "jobsStatus"),
            Value::Null,
            "nothing is written"
        );
    });
    // The right definition is applied.
    server.with(|world| world.prunes_record = false);
    server
        .wait("the job runs", |world| running(world) == 2)
        .await;
    // It is replaced while the operator runs: the first write shows it, before a pod is made.
    server.with(|world| world.prunes_record = true);
    server.add_job(train_job("b", 1, "torch-distributed"));
    tokio::time::sleep(std::time::Duration::from_mins(2)).await;
    server.see(|world| assert_eq!(running(world), 2));
    assert!(!remark().is_empty());
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn trainjob_of_another_manager_is_left_alone() {
    let server = serving();
    let operator = server.operator(with_train_jobs());
    let mut theirs = train_job("a", 1, "missing");
    theirs["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue".into();
    server.add_job(theirs);
    server.add_job(train_job("b", 1, "torch-distributed"));
    server
        .wait("the other job runs", |world| running(world) == 1)
        .await;
    server.see(|world| {
        let theirs = &world.objects[&named("a")];
        assert_eq!(theirs.get("status"), None);
        let made = world.asked(Verb::Create, "/configmaps");
        assert_eq!(made.count(), 1);
    });
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn snapshot_of_another_owner_is_in_the_way() {
    let server = serving();
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a-runtime-snapshot"},
        "data": {"runtime": runtime("torch-distributed", "evil").to_string()}});
    server.add(
        &format!("/api/v1/namespaces/{NAMESPACE}/configmaps"),
        theirs,
    );
    let operator = server.operator(with_train_jobs());
    server.add_job(train_job("a", 1, "torch-distributed"));
    server
        .wait("its reason", |world| {
            waiting(world, "a").contains("ConfigMap `a-runtime-snapshot`")
        })
        .await;
    server.see(|world| assert_eq!(world.pods().count(), 0));
    operator.stop().await;
}
