//! How far jobs are, from logs that come, come late, or do not come.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;
use trainyard_core::{progress::rota, spec::Kind};

use crate::{
    Options, ProgressSource,
    scripted::{
        Fault, Server, Verb, job, job_name,
        make::{has_condition, lease},
        options, pod_name,
        rule::Rule,
        running, text,
        world::World,
    },
};

fn reading() -> Options {
    Options {
        progress: ProgressSource::Logs,
        ..options()
    }
}

fn status(world: &World, name: &str, pointer: &str) -> Value {
    let job = world.objects.get(&job_name(Kind::PyTorch, name));
    let found = job.and_then(|job| job.pointer(&format!("/status/trainyard{pointer}")));
    found.cloned().unwrap_or_default()
}

fn step(world: &World, name: &str) -> Option<u64> {
    status(world, name, "/progress/step").as_u64()
}

fn phase(world: &World, name: &str) -> String {
    let phase = status(world, name, "/ledger/open/phase");
    phase.as_str().unwrap_or_default().to_owned()
}

/// The pods whose logs were read, in order.
fn reads(world: &World) -> Vec<(String, Instant)> {
    let logs = world.asked(Verb::Log, "/log");
    let pod = |path: &str| path.rsplit('/').nth(1).unwrap_or_default().to_owned();
    logs.map(|call| (pod(&call.path), call.at)).collect()
}

fn events(world: &World, reason: &str) -> usize {
    let made = world.asked(Verb::Create, "/events");
    made.filter(|call| call.body["reason"] == reason).count()
}

fn restarts(name: &str, workers: u32) -> Value {
    let mut object = job(Kind::PyTorch, name, workers);
    object["spec"]["runPolicy"] = json!({"backoffLimit": 50});
    object["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode".into();
    object
}

#[tokio::test(start_paused = true)]
async fn the_step_of_a_running_job_is_in_its_status() {
    let server = Server::new();
    let operator = server.operator(reading());
    server.add_job(job(Kind::PyTorch, "a", 3));
    server
        .wait("it starts", |world| phase(world, "a") == "starting")
        .await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(server.see(|world| phase(world, "a")), "starting");

    // The last rank reports, as with Megatron-LM.
    server.add_line("a-worker-0", "loading shards");
    server.add_line("a-worker-2", "step 5 loss 1.5");
    server
        .wait("it trains", |world| phase(world, "a") == "training")
        .await;
    server.see(|world| {
        assert_eq!(step(world, "a"), Some(5));
        assert_eq!(status(world, "a", "/progress/loss"), json!("1.5"));
        assert!(status(world, "a", "/progress/lastStepAt").is_string());
    });
    let learned = server.see(|world| reads(world).len());
    for number in 6..40 {
        server.add_line("a-worker-2", &format!("step {number} loss NaN"));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    server
        .wait("its last step", |world| step(world, "a") == Some(39))
        .await;
    server.see(|world| {
        assert_eq!(status(world, "a", "/progress/nanSince"), json!(6));
        let later = &reads(world)[learned..];
        assert!(
            later.iter().all(|(pod, _)| pod == "a-worker-2"),
            "{later:?}"
        );
        // Of 34 steps each was written at most every five seconds.
        let written = world.asked(Verb::Patch, "/status").count();
        assert!(written < 16, "{written} writes");
    });
    let text = operator.operator.metrics().text();
    let labels = r#"{kind="PyTorchJob",job_namespace="n",job_name="a"}"#;
    assert!(
        text.contains(&format!("trainyard_job_step{labels} 39.0")),
        "{text}"
    );
    assert!(text.contains(&format!("trainyard_job_loss{labels} NaN")));
    assert!(text.contains("trainyard_job_last_step_timestamp_seconds{"));
    assert!(text.contains(r#"trainyard_progress_reads_total{result="step"}"#));

    server.with(|world| drop(world.remove(&job_name(Kind::PyTorch, "a"), &json!({}))));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let text = operator.operator.metrics().text();
    assert!(
        !text.contains(r#"job_name="a""#),
        "gauges vanish with the job"
    );
    let before = server.see(|world| reads(world).len());
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(
        server.see(|world| reads(world).len()),
        before,
        "nobody reads on"
    );
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn steps_of_earlier_attempts_do_not_count() {
    let server = Server::new();
    let operator = server.operator(reading());
    server.add_job(restarts("a", 2));
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    server.add_line("a-worker-1", "step 100 loss 0.5");
    server
        .wait("its step", |world| step(world, "a") == Some(100))
        .await;
    server.with(|world| world.end_pod(&pod_name("a-worker-0"), 137));
    server.set_log("a-worker-1", "");
    server
        .wait("the next attempt runs", |world| {
            running(world) == 2 && status(world, "a", "/attempt") == json!(2)
        })
        .await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    server.see(|world| {
        assert_eq!(phase(world, "a"), "starting");
        assert_eq!(status(world, "a", "/progress/attempt"), json!(1));
        let after = reads(world).into_iter().rev().take(3);
        let pods: Vec<String> = after.map(|(pod, _)| pod).collect();
        assert!(
            pods.contains(&"a-worker-1".to_owned()),
            "it reported before: {pods:?}"
        );
    });
    server.add_line("a-worker-0", "step 90 loss 0.6");
    server
        .wait("it does steps again", |world| {
            phase(world, "a") == "redoing"
        })
        .await;
    server.see(|world| {
        assert_eq!(status(world, "a", "/progress/attempt"), json!(2));
        assert_eq!(step(world, "a"), Some(90));
    });
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_step_of_a_job_is_in_its_status() {
    for exit in [0, 1] {
        let server = Server::new();
        let operator = server.operator(reading());
        let mut object = job(Kind::PyTorch, "a", 2);
        object["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "Never".into();
        server.add_job(object);
        server
            .wait("two pods run", |world| running(world) == 2)
            .await;
        server.add_line("a-worker-0", "step 1 loss 3.0");
        server
            .wait("its step", |world| step(world, "a") == Some(1))
            .await;
        server.add_line("a-worker-0", "step 200 loss 0.25");
        server.with(|world| {
            world.end_pod(&pod_name("a-worker-0"), exit);
            world.end_pod(&pod_name("a-worker-1"), exit);
        });
        let name = job_name(Kind::PyTorch, "a");
        let ended = if exit == 0 { "Succeeded" } else { "Failed" };
        server
            .wait("the job ends", |world| has_condition(world, &name, ended))
            .await;
        server.see(|world| {
            assert_eq!(step(world, "a"), Some(200), "exit code {exit}");
            assert_eq!(status(world, "a", "/progress/loss"), json!("0.25"));
        });
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_ends_waits_little_for_its_last_line() {
    let server = Server::new();
    server.on(Rule::new(Verb::Log, "/log", Fault::Silent));
    let operator = server.operator(reading());
    server.add_job(job(Kind::PyTorch, "a", 2));
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    server.with(|world| {
        world.end_pod(&pod_name("a-worker-0"), 0);
        world.end_pod(&pod_name("a-worker-1"), 0);
    });
    let began = Instant::now();
    let name = job_name(Kind::PyTorch, "a");
    server
        .wait("the job succeeds", |world| {
            has_condition(world, &name, "Succeeded")
        })
        .await;
    let took = began.elapsed();
    assert!(took <= Duration::from_secs(7), "{took:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unreadable_logs_emit_one_event_and_block_nothing() {
    let cases = [
        ("403", Fault::status(403), 1, 12),
        ("404", Fault::status(404), 1, 110),
        ("500", Fault::status(500), 1, 20),
        ("silence", Fault::Silent, 1, 20),
        ("half of it", Fault::Unfinished, 1, 20),
        ("429", Fault::retry_after(2), 0, 320),
        ("429 without a time", Fault::status(429), 0, 40),
        (
            "no log",
            Fault::Garbage("unable to retrieve container logs".to_owned()),
            0,
            110,
        ),
    ];
    for (name, fault, want, most) in cases {
        let server = Server::new();
        server.set_log("a-worker-0", "step 1 loss 1.0\n");
        server.on(Rule::new(Verb::Log, "/log", fault));
        let operator = server.operator(reading());
        server.add_job(restarts("a", 2));
        server
            .wait("two pods run", |world| running(world) == 2)
            .await;
        tokio::time::sleep(Duration::from_mins(10)).await;
        server.see(|world| {
            assert_eq!(events(world, "ProgressUnknown"), want, "{name}");
            let reads = reads(world).len();
            assert!((1..=most).contains(&reads), "{name}: {reads} reads");
            assert_eq!(step(world, "a"), None, "{name}");
        });
        server.heal();
        server
            .wait("its step", |world| step(world, "a") == Some(1))
            .await;
        server.with(|world| {
            world.end_pod(&pod_name("a-worker-0"), 0);
            world.end_pod(&pod_name("a-worker-1"), 0);
        });
        let done = job_name(Kind::PyTorch, "a");
        server
            .wait("the job succeeds", |world| {
                has_condition(world, &done, "Succeeded")
            })
            .await;
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_kubelet_delays_no_job_elsewhere() {
    let server = Server::new();
    server.add_nodes(2);
    let operator = server.operator(reading());
    for index in 0..20 {
        let mut object = job(Kind::PyTorch, &format!("j{index:02}"), 1);
        let template = &mut object["spec"]["pytorchReplicaSpecs"]["Worker"]["template"];
        let node = if index < 10 { "node-0" } else { "node-1" };
        template["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        server.add_job(object);
    }
    for index in 0..10 {
        let log = format!("/j{index:02}-worker-0/log");
        server.on(Rule::new(Verb::Log, &log, Fault::Silent));
    }
    server.wait("all run", |world| running(world) == 20).await;
    let began = Instant::now();
    for second in 0..60 {
        for index in 0..20 {
            server.add_line(
                &format!("j{index:02}-worker-0"),
                &format!("step {second} loss 1.0"),
            );
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    server.see(|world| {
        let mut of_slow = 0;
        let mut last: BTreeMap<String, Instant> = BTreeMap::new();
        for (pod, at) in reads(world) {
            if pod.as_str() < "j10" {
                of_slow += 1;
                continue;
            }
            let before = last.insert(pod.clone(), at).unwrap_or(began);
            let gap = at.saturating_duration_since(before);
            assert!(gap <= Duration::from_secs(9), "{pod}: {gap:?}");
        }
        assert_eq!(last.len(), 10);
        assert!(
            of_slow < 12,
            "{of_slow} reads of a node that does not answer"
        );
    });
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_floods_its_log_is_read_within_bounds() {
    for (name, noise) in [("many lines", 80), ("long lines", 9_000)] {
        let server = Server::new();
        let operator = server.operator(reading());
        server.add_job(job(Kind::PyTorch, "a", 1));
        server.wait("it runs", |world| running(world) == 1).await;
        let noise = format!("{}\n", "x".repeat(noise));
        let mut log = noise.repeat(500);
        for number in 1..=20 {
            writeln!(log, "step {number} loss 1.0").unwrap();
            log.push_str(&noise.repeat(if noise.len() > 1_000 { 5 } else { 100 }));
            server.set_log("a-worker-0", &log);
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        server
            .wait("its step", |world| step(world, "a") == Some(20))
            .await;
        server.see(|world| {
            for call in world.asked(Verb::Log, "/log") {
                let number = |key: &str| call.query[key].parse::<usize>().unwrap();
                assert!(number("limitBytes") <= rota::BYTES, "{name}");
                assert!(number("tailLines") <= 1_024, "{name}");
            }
        });
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn twenty_logs_a_second_are_read_of_two_hundred_jobs() {
    const JOBS: usize = 200;
    let server = Server::new();
    let operator = server.operator(reading());
    for index in 0..JOBS {
        server.add_job(job(Kind::PyTorch, &format!("j{index:03}"), 1));
        server.add_line(
            &format!("j{index:03}-worker-0"),
            &format!("step {index} loss 1.0"),
        );
    }
    server.wait("all run", |world| running(world) == JOBS).await;
    let began = Instant::now();
    server
        .wait("all have a step", |world| {
            (0..JOBS).all(|index| step(world, &format!("j{index:03}")) == Some(index as u64))
        })
        .await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
    tokio::time::sleep(Duration::from_secs(40)).await;
    server.see(|world| {
        let reads = reads(world);
        let starts: Vec<Instant> = reads.iter().map(|(_, at)| *at).collect();
        let limit = rota::READS_A_SECOND as usize;
        for pair in starts.windows(limit + 1) {
            let took = pair[limit] - pair[0];
            assert!(took >= Duration::from_secs(1), "{took:?}");
        }
        let mut last: BTreeMap<&str, Instant> = BTreeMap::new();
        for (pod, at) in &reads {
            if let Some(before) = last.insert(pod, *at) {
                let gap = at.saturating_duration_since(before);
                assert!(gap < Duration::from_secs(13), "{pod}: {gap:?}");
            }
        }
        assert_eq!(last.len(), JOBS);
    });
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_line_changes_its_own_job_only() {
    let server = Server::new();
    let operator = server.operator(reading());
    for name in ["a", "b", "a-worker-0"] {
        server.add_job(job(Kind::PyTorch, name, 1));
    }
    server.wait("all run", |world| running(world) == 3).await;
    server.add_line("a-worker-0", "step 7 loss 1.0 job=b n/b pod=b-worker-0");
    server
        .wait("its step", |world| step(world, "a") == Some(7))
        .await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    server.see(|world| {
        for other in ["b", "a-worker-0"] {
            assert_eq!(step(world, other), None, "{other}");
            assert_eq!(phase(world, other), "starting", "{other}");
        }
    });

    // The job is made again while its log is being read: what comes is of the one before.
    let first = server.see(|world| reads(world).len());
    server.on(Rule::new(
        Verb::Log,
        "/a-worker-0/log",
        Fault::Hook(std::sync::Arc::new(|world| {
            let name = job_name(Kind::PyTorch, "a");
            drop(world.remove(&name, &json!({})));
        })),
    )
    .times(1));
    server
        .wait("the job is gone", |world| {
            !world.objects.contains_key(&job_name(Kind::PyTorch, "a"))
        })
        .await;
    assert!(server.see(|world| reads(world).len()) > first);
    server.set_log("a-worker-0", "");
    server.add_job(job(Kind::PyTorch, "a", 1));
    server
        .wait("it runs again", |world| {
            world.pods().any(|pod| {
                text(pod, "/metadata/name") == "a-worker-0"
                    && text(pod, "/status/phase") == "Running"
            })
        })
        .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(server.see(|world| step(world, "a")), None);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_where_it_is_off() {
    let server = Server::new();
    server.set_log("a-worker-0", "step 7 loss 1.0\n");
    let operator = server.operator(options());
    server.add_job(job(Kind::PyTorch, "a", 1));
    server.wait("it runs", |world| running(world) == 1).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    server.see(|world| {
        assert_eq!(reads(world).len(), 0);
        assert_eq!(step(world, "a"), None);
    });
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_no_longer_leads_reports_no_job() {
    let server = Server::new();
    let operator = server.operator(Options {
        lease: Some(lease("one")),
        ..reading()
    });
    server.add_job(job(Kind::PyTorch, "a", 2));
    server
        .wait("its pods run", |world| running(world) == 2)
        .await;
    server.add_line("a-worker-0", "step 5 loss 1.5");
    server
        .wait("its step", |world| step(world, "a") == Some(5))
        .await;
    let metrics = operator.operator.metrics();
    let has_job = || metrics.text().contains(r#"job_name="a""#);
    assert!(has_job());

    // The lease cannot be reached; everything else can.
    server.on(Rule::new(None, "/leases", Fault::Silent));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(!*operator.operator.leads().borrow());
    assert!(!has_job(), "what it knows is old");

    server.heal();
    server.add_line("a-worker-0", "step 6 loss 1.4");
    server
        .wait("its next step", |world| step(world, "a") == Some(6))
        .await;
    assert!(has_job());
    operator.stop().await;
}
