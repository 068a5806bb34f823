//! The real operator restarts a gang in place; the test plays the leader and its members.

use trainyard_core::{
    barrier::{Command, EndedMember, Group, Order, ProgramExit, SlotSet, StateName},
    spec::{Role, Slot},
};

use super::*;
use crate::operator::gangs::trust::Trust;
use crate::scripted::{
    Running, job, job_name, make::has_condition, pod_name, running, text, world::World,
};

fn slot(index: u32) -> Slot {
    Slot::new(Role::Worker, index)
}

fn slots() -> SlotSet {
    [slot(0), slot(1)].into_iter().collect()
}

/// An operator with a port for leaders.
fn operator_of(server: &Server) -> Operator {
    let mut options = options();
    options.cluster.agent_image = Some("trainyard:test".to_owned());
    let operator = Operator::new(server.client(), options);
    let certificate = Arc::new(Certificate::default());
    certificate.take_for_test(issue_for_test(&["trainyard.test.svc".to_owned()]));
    operator.gangs.begin(certificate, "test");
    operator
}

/// An operator with a port for leaders, and a job of two workers that run.
async fn supervised() -> (Server, Running) {
    supervised_job(job(Kind::PyTorch, "a", 2)).await
}

async fn supervised_job(job: serde_json::Value) -> (Server, Running) {
    let server = Server::new();
    let running_operator = server.run(operator_of(&server));
    server.add_job(job);
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    (server, running_operator)
}

fn uids(world: &World) -> Vec<String> {
    let uid = |name| text(&world.objects[&pod_name(name)], "/metadata/uid").to_owned();
    vec![uid("a-worker-0"), uid("a-worker-1")]
}

fn labels(world: &World) -> Vec<String> {
    let label = |name| {
        let path = "/metadata/labels/trainyard.dev~1attempt";
        text(&world.objects[&pod_name(name)], path).to_owned()
    };
    vec![label("a-worker-0"), label("a-worker-1")]
}

fn record(world: &World, field: &str) -> serde_json::Value {
    let job = &world.objects[&job_name(Kind::PyTorch, "a")];
    let found = job.pointer(&format!("/status/trainyard/{field}"));
    found.cloned().unwrap_or_default()
}

/// The other side of a connection.
struct Played {
    stream: DuplexStream,
    job: String,
    order: Option<Order>,
    task: JoinHandle<End>,
}

impl Played {
    async fn connect(server: &Server, operator: &Operator) -> Self {
        let (job, leader) = server.see(|world| {
            let job = &world.objects[&job_name(Kind::PyTorch, "a")];
            (
                text(job, "/metadata/uid").to_owned(),
                uids(world)[0].clone(),
            )
        });
        answer_reviews(server, &leader, "a");
        // A pass has seen the pod that leads.
        until("the leader is known", || {
            operator.gangs.registry().leads(&key(), &leader)
        })
        .await;
        let (mut stream, task) = connected(operator).await;
        put(&mut stream, frame::TOKEN, token_of(&leader, "a").as_bytes()).await;
        Self {
            stream,
            job,
            order: None,
            task,
        }
    }

    /// Reports that both members are in `state` of `attempt`.
    async fn report(&mut self, attempt: u32, state: StateName, ended: Vec<EndedMember>) {
        let order = self.order.as_ref();
        let message = Summary {
            fence: order.map(|order| order.command.fence()),
            roster: order.map_or(0, |order| order.roster.digest()),
            groups: vec![Group {
                attempt,
                state,
                slots: slots(),
            }],
            ended,
            hang: None,
            store: None,
        };
        let job = self.job.clone();
        let content = Envelope { job, message }.encode().unwrap();
        put(&mut self.stream, frame::SUMMARY, &content).await;
    }

    /// The program of worker 1 is killed, and all members stop.
    async fn stop(&mut self, server: &Server) {
        let ended = vec![server.see(killed)];
        self.report(1, StateName::Running, ended.clone()).await;
        let stop = self.next_order().await;
        assert!(matches!(stop, Command::Stop { attempt: 1, .. }), "{stop:?}");
        self.report(1, StateName::Stopped, ended).await;
    }

    /// From there to programs that run as attempt 2, in the same pods.
    async fn prepare_and_go(&mut self, server: &Server) {
        assert_eq!(self.next_order().await, Command::Prepare { attempt: 2 });
        server
            .wait("the labels", |world| labels(world) == ["2", "2"])
            .await;
        self.report(2, StateName::Ready, Vec::new()).await;
        assert_eq!(self.next_order().await, Command::Go { attempt: 2 });
        self.report(2, StateName::Running, Vec::new()).await;
    }

    /// The next order that is not the one it has.
    async fn next_order(&mut self) -> Command {
        loop {
            let message = take(&mut self.stream).await.unwrap().message;
            if let OperatorMessage::Order(order) = message
                && self.order.as_ref() != Some(&order)
            {
                let command = order.command;
                self.order = Some(order);
                return command;
            }
        }
    }
}

fn killed(world: &World) -> EndedMember {
    EndedMember {
        slot: slot(1),
        uid: uids(world)[1].clone(),
        attempt: 1,
        exit: ProgramExit {
            code: 0,
            signal: Some(9),
        },
    }
}

#[tokio::test(start_paused = true)]
async fn a_killed_program_restarts_in_its_pod() {
    let (server, running_operator) = supervised().await;
    let operator = &running_operator.operator;
    let before = server.see(uids);
    let pod = server.see(|world| world.objects[&pod_name("a-worker-0")].to_string());
    assert!(pod.contains("trainyard.test.svc:10444"), "{pod}");
    let mut leader = Played::connect(&server, operator).await;
    leader.report(1, StateName::Running, Vec::new()).await;
    assert_eq!(leader.next_order().await, Command::Go { attempt: 1 });
    leader.report(1, StateName::Running, Vec::new()).await;
    assert!(take(&mut leader.stream).await.is_some(), "acknowledged");

    let failed_at = Instant::now();
    leader.stop(&server).await;
    leader.prepare_and_go(&server).await;
    let took = failed_at.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    server
        .wait("the barrier ends", |world| {
            record(world, "barrier").is_null()
        })
        .await;
    // Events are written beside the passes.
    let in_place = |world: &World| {
        let events = world.asked(Verb::Create, "/events");
        let in_place = events.filter(|call| text(&call.body, "/message").contains("in place"));
        in_place.count()
    };
    server
        .wait("that it begins, and that it is done", |world| {
            in_place(world) >= 2
        })
        .await;
    server.see(|world| {
        assert_eq!(uids(world), before, "the same pods");
        assert_eq!(record(world, "attempt"), 2);
        let spent = record(world, "spent").to_string();
        assert_eq!(spent.matches('1').count(), 1, "{spent}");
        assert_eq!(in_place(world), 2);
        assert_eq!(world.asked(Verb::Create, "/pods").count(), 2);
    });
    running_operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_operator_continues_the_restart() {
    let (server, first) = supervised().await;
    let before = server.see(uids);
    let mut leader = Played::connect(&server, &first.operator).await;
    leader.report(1, StateName::Running, Vec::new()).await;
    assert_eq!(leader.next_order().await, Command::Go { attempt: 1 });
    leader.stop(&server).await;
    server
        .wait("the attempt is stored", |world| {
            record(world, "attempt") == 2
        })
        .await;
    first.kill();
    leader.task.abort();

    let second = server.run(operator_of(&server));
    let order = leader.order.take();
    let mut leader = Played::connect(&server, &second.operator).await;
    leader.order = order;
    leader.report(1, StateName::Stopped, Vec::new()).await;
    assert_eq!(leader.next_order().await, Command::Prepare { attempt: 2 });
    leader.report(2, StateName::Ready, Vec::new()).await;
    assert_eq!(leader.next_order().await, Command::Go { attempt: 2 });
    leader.report(2, StateName::Running, Vec::new()).await;
    server
        .wait("the barrier ends", |world| {
            record(world, "barrier").is_null()
        })
        .await;
    server.see(|world| {
        assert_eq!(uids(world), before, "the same pods");
        assert_eq!(
            (labels(world), record(world, "attempt")),
            (vec!["2".to_owned(); 2], 2.into())
        );
    });
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_gang_without_a_leader_gets_new_pods() {
    let (server, running_operator) = supervised().await;
    let before = server.see(uids);
    server.with(|world| world.end_pod(&pod_name("a-worker-1"), 137));
    server
        .wait("two other pods run", |world| {
            running(world) == 2 && uids(world).iter().all(|uid| !before.contains(uid))
        })
        .await;
    server
        .wait("the event that says why", |world| {
            let mut events = world.asked(Verb::Create, "/events");
            events.any(|call| text(&call.body, "/message").contains("with new pods, because"))
        })
        .await;
    running_operator.stop().await;
}

/// What a rank of two writes about its transport.
fn channels(rank: u32, transport: &str) -> String {
    let (host, other) = (format!("a-worker-{rank}"), 1 - rank);
    format!(
        "{host}:9:9 [0] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x2 - Init START\n\
         {host}:9:9 [0] NCCL INFO Channel 00/0 : {rank}[0] -> {other}[0] [send] via {transport}\n"
    )
}

/// Adds what both ranks write now to their logs, with its time.
fn write_channels(server: &Server, transport: &str) {
    server.with(|world| {
        for rank in 0..2 {
            let lines = channels(rank, transport);
            let pod = format!("n/a-worker-{rank}");
            let times = world.kubelet.log_times.entry(pod.clone()).or_default();
            times.extend(lines.lines().map(|_| crate::clock::now()));
            world.kubelet.logs.entry(pod).or_default().push_str(&lines);
        }
    });
}

fn transport_message(world: &World) -> String {
    let job = &world.objects[&job_name(Kind::PyTorch, "a")];
    let conditions = job["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let verified = conditions.find(|it| it["type"] == "TransportVerified");
    verified.map_or_else(String::new, |it| {
        format!("{} {}", text(it, "/status"), text(it, "/message"))
    })
}

/// The log of a kept pod begins with the lines of the attempt before: they say nothing about the transport of this one, also after another operator
/// has taken over.
#[tokio::test(start_paused = true)]
async fn transports_of_the_attempt_before_are_not_read() {
    let mut object = job(Kind::PyTorch, "a", 2);
    let container =
        &mut object["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
    container["env"] = json!([{"name": "NCCL_DEBUG", "value": "INFO"}]);
    let (server, first) = supervised_job(object).await;
    write_channels(&server, "NET/Socket/0");
    server
        .wait("the transport of attempt 1", |world| {
            transport_message(world).starts_with("True 2 of 2 ranks use NET/Socket")
        })
        .await;
    let mut leader = Played::connect(&server, &first.operator).await;
    leader.report(1, StateName::Running, Vec::new()).await;
    assert_eq!(leader.next_order().await, Command::Go { attempt: 1 });
    leader.stop(&server).await;
    leader.prepare_and_go(&server).await;
    server
        .wait("it runs again", |world| {
            record(world, "barrier").is_null()
                && has_condition(world, &job_name(Kind::PyTorch, "a"), "Running")
        })
        .await;
    // Only transports are read from so many bytes.
    let reads = |world: &World| {
        let logs = world.asked(Verb::Log, "/log");
        let whole = logs.filter(|call| {
            call.query
                .get("limitBytes")
                .is_some_and(|it| it == "1048576")
        });
        whole.count()
    };
    let before = server.see(reads);
    server
        .wait("logs are read", |world| reads(world) >= before + 4)
        .await;
    let message = server.see(transport_message);
    assert!(message.starts_with("Unknown"), "{message}");

    // The condition `Restarting` is gone, and with it all that another operator could guess the time from.
    first.kill();
    leader.task.abort();
    let second = server.run(operator_of(&server));
    let before = server.see(reads);
    server
        .wait("logs are read", |world| reads(world) >= before + 4)
        .await;
    let message = server.see(transport_message);
    assert!(message.starts_with("Unknown"), "{message}");
    write_channels(&server, "NET/IB/0/GDRDMA");
    server
        .wait("the transport of attempt 2", |world| {
            transport_message(world).starts_with("True 2 of 2 ranks use NET/IB")
        })
        .await;
    second.stop().await;
}

/// Pods that run get the authority of a renewed certificate: at once from the operator that serves it, and from any that starts later.
#[tokio::test(start_paused = true)]
async fn renewed_authority_reaches_the_leader() {
    let (server, running_operator) = supervised().await;
    let operator = &running_operator.operator;
    let authority = |world: &World, name| {
        let path = "/metadata/annotations/trainyard.dev~1gang-ca";
        let found = world.objects[&pod_name(name)].pointer(path);
        found.and_then(|text| text.as_str()).map(str::to_owned)
    };
    let before = server.see(uids);
    let mut trust = Trust::new(operator);
    let renewed = issue_for_test(&["trainyard.test.svc".to_owned()]);
    let wanted = Some(renewed.authority.clone());
    assert_ne!(server.see(|world| authority(world, "a-worker-0")), wanted);
    let shown = operator.gangs.served.get().unwrap();
    shown.certificate.take_for_test(renewed);
    // The first writes fail, and nothing else happens to the job.
    let patches = |world: &World| world.asked(Verb::Patch, "/pods/a-worker-0").count();
    let before_failures = server.see(patches);
    server.on(Rule::new(
        Verb::Patch,
        "/pods/a-worker-0",
        Fault::status(500),
    ));
    trust.announce(operator);
    server
        .wait("it was tried", |world| patches(world) > before_failures)
        .await;
    assert_ne!(server.see(|world| authority(world, "a-worker-0")), wanted);
    // Passes that were due anyway are over by then.
    sleep(Duration::from_secs(10)).await;
    server.heal();
    let healed_at = Instant::now();
    server
        .wait("the pod has it", |world| {
            authority(world, "a-worker-0") == wanted
        })
        .await;
    let took = healed_at.elapsed();
    assert!(took <= Duration::from_secs(31), "{took:?}");
    server.see(|world| {
        assert_eq!(authority(world, "a-worker-1"), None, "it does not lead");
        assert_eq!(uids(world), before, "the same pods");
    });
    running_operator.stop().await;
}
