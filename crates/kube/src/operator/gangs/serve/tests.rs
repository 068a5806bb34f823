//! Leaders that connect: over TLS on loopback, and without a socket where time has to pass.

mod in_place;

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use trainyard_core::{
    barrier::{Fence, OperatorMessage, Stage},
    spec::Kind,
};

use super::*;
use crate::{
    certificate::{Bundle, Certificate, issue_for_test},
    operator::gangs::registry::{Decided, Seen},
    scripted::{Fault, Server, Verb, options, rule::Rule},
    token,
};

const JOB: &str = "job-uid";
const LEADER: &str = "pod-uid";
/// Tests on sockets run on the real clock, beside others: only a fault takes this long.
const PATIENCE: Duration = Duration::from_mins(2);

fn key() -> JobKey {
    JobKey {
        kind: Kind::PyTorch,
        namespace: "n".into(),
        name: "a".into(),
    }
}

/// An operator that makes no passes and has listed everything, and a gang whose leader is [`LEADER`].
fn gang() -> (Server, Operator) {
    let server = Server::new();
    let operator = Operator::new(server.client(), options());
    operator.feeds.review();
    assert!(operator.sees());
    drop(see(&operator));
    (server, operator)
}

fn see(operator: &Operator) -> Seen {
    let limits = Limits::default();
    operator
        .gangs
        .registry()
        .see(&key(), JOB, Some(LEADER), limits)
}

fn token_of(pod: &str, job: &str) -> String {
    let claims = json!({"exp": 4_000_000_000_i64, "aud": [format!("trainyard.dev/gangs/n/pytorchjob/{job}")],
        "kubernetes.io": {"namespace": "n", "pod": {"uid": pod}}});
    token::unsigned(&claims.to_string())
}

/// Another token with the same claims: only its signature differs.
fn signed(signature: &str) -> Vec<u8> {
    format!("{}{signature}", token_of(LEADER, "a")).into_bytes()
}

/// What the API server says about every token from now on: it is that of `pod`, for job `job`.
fn answer_reviews(server: &Server, pod: &str, job: &str) {
    let audience = format!("trainyard.dev/gangs/n/pytorchjob/{job}");
    let status = json!({"authenticated": true, "audiences": [audience], "user": {
        "username": "system:serviceaccount:n:default",
        "extra": {"authentication.kubernetes.io/pod-uid": [pod]}}});
    answer_reviews_with(server, &status);
}

fn answer_reviews_with(server: &Server, status: &serde_json::Value) {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {},
        "spec": {"token": ""}, "status": status});
    server.heal();
    let answer = Fault::Garbage(review.to_string());
    server.on(Rule::new(Verb::Create, "/tokenreviews", answer));
}

fn summary(job: &str, attempt: u32) -> Vec<u8> {
    let message = Summary {
        fence: Some(Fence::new(attempt, Stage::Go)),
        ..Summary::default()
    };
    let job = job.to_owned();
    Envelope { job, message }.encode().unwrap()
}

fn refused(operator: &Operator, reason: &'static str) -> u64 {
    operator.metrics().traffic().refused_so_far(NAME, reason)
}

fn closed(operator: &Operator, reason: &'static str) -> u64 {
    operator.metrics().traffic().closed_so_far(NAME, reason)
}

/// A port with a certificate, as the operator opens it.
async fn port(operator: &Operator) -> (std::net::SocketAddr, Bundle, JoinHandle<()>) {
    port_of(SIZE, operator).await
}

async fn port_of(
    size: Size,
    operator: &Operator,
) -> (std::net::SocketAddr, Bundle, JoinHandle<()>) {
    let certificate = Arc::new(Certificate::default());
    let bundle = issue_for_test(&["trainyard.test.svc".to_owned()]);
    certificate.take_for_test(bundle.clone());
    let config = certificate.own_clients_config().unwrap();
    operator.gangs.begin(certificate, "test");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = TlsAcceptor::from(Arc::new(config));
    // Leaders that say nothing stay for as long as a test takes: on a busy machine that may be long.
    let bounds = Bounds {
        size,
        silent_after: PATIENCE,
    };
    let serving = tokio::spawn(serve_in(bounds, listener, tls, operator.clone()));
    (address, bundle, serving)
}

async fn dial(address: std::net::SocketAddr, trusted: &Bundle) -> TlsStream<TcpStream> {
    try_dial(address, trusted).await.unwrap()
}

async fn try_dial(
    address: std::net::SocketAddr,
    trusted: &Bundle,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(trusted.authority.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("trainyard.test.svc").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

async fn put(stream: &mut (impl AsyncWrite + Unpin), kind: u8, content: &[u8]) {
    frame::write(stream, kind, content).await.unwrap();
}

/// The next message of the operator; nothing once the connection is closed.
async fn take(stream: &mut (impl AsyncRead + Unpin)) -> Option<Envelope<OperatorMessage>> {
    let mut head = [0; 5];
    timeout(PATIENCE, stream.read_exact(&mut head))
        .await
        .unwrap()
        .ok()?;
    let [a, b, c, d, kind] = head;
    assert_eq!(kind, frame::ORDER);
    let length = u32::from_be_bytes([a, b, c, d]);
    let mut content = vec![0; usize::try_from(length).unwrap() - 1];
    stream.read_exact(&mut content).await.unwrap();
    Some(Envelope::decode(&content).unwrap())
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let met = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, met).await.is_ok(), "never: {what}");
}

/// A pass over the gang that acknowledges what came.
fn acknowledge(operator: &Operator) {
    let seen = see(operator);
    let ack = Envelope {
        job: JOB.to_owned(),
        message: OperatorMessage::Ack,
    };
    let decided = Decided {
        coordinator: seen.coordinator,
        send: Some(ack),
        in_barrier: false,
    };
    operator.gangs.registry().keep(&key(), JOB, decided);
}

fn is_connected(operator: &Operator) -> bool {
    operator.gangs.registry().is_connected(&key())
}

#[tokio::test]
async fn the_leader_of_a_gang_is_served() {
    let (server, operator) = gang();
    let operator = &operator;
    let (address, bundle, serving) = port(operator).await;
    answer_reviews(&server, LEADER, "a");
    let mut first = dial(address, &bundle).await;
    put(&mut first, frame::TOKEN, token_of(LEADER, "a").as_bytes()).await;
    put(&mut first, frame::SUMMARY, &summary(JOB, 1)).await;
    until("it is connected", || is_connected(operator)).await;
    let arrived = || operator.gangs.registry().has_summary(&key());
    until("its summary", arrived).await;
    acknowledge(operator);
    let received = take(&mut first).await.unwrap();
    assert_eq!(received.message, OperatorMessage::Ack);
    // The same summary again is acknowledged at once.
    put(&mut first, frame::SUMMARY, &summary(JOB, 1)).await;
    assert!(take(&mut first).await.is_some());

    // A second connection of the same pod replaces the first.
    let mut second = dial(address, &bundle).await;
    put(&mut second, frame::TOKEN, token_of(LEADER, "a").as_bytes()).await;
    assert_eq!(take(&mut first).await, None);
    put(&mut second, frame::SUMMARY, &summary(JOB, 2)).await;
    until("its summary", arrived).await;
    let reviews = server.see(|world| world.asked(Verb::Create, "/tokenreviews").count());
    assert_eq!(reviews, 1, "a good token is believed for 5 minutes");
    assert_eq!(closed(operator, "replaced"), 1);

    // A summary of another job ends the connection.
    put(&mut second, frame::SUMMARY, &summary("other", 2)).await;
    assert_eq!(take(&mut second).await, None);
    assert_eq!(closed(operator, "other_job"), 1);
    until("it is not connected", || !is_connected(operator)).await;
    serving.abort();
}

#[tokio::test]
async fn nobody_else_is_served() {
    let (server, operator) = gang();
    let operator = &operator;
    let (address, bundle, serving) = port(operator).await;
    let connect = |token: Vec<u8>| {
        let bundle = &bundle;
        async move {
            let mut stream = dial(address, bundle).await;
            put(&mut stream, frame::TOKEN, &token).await;
            assert_eq!(take(&mut stream).await, None);
        }
    };
    answer_reviews(&server, LEADER, "a");
    connect(b"opaque".to_vec()).await;
    connect(vec![0xff; 9]).await;
    assert_eq!(refused(operator, "no_token"), 2);
    // A pod that does not lead, a job that is not known, another form of audience.
    connect(token_of("other-pod", "a").into_bytes()).await;
    connect(token_of(LEADER, "b").into_bytes()).await;
    connect(token_of(LEADER, "a/b").into_bytes()).await;
    assert_eq!(refused(operator, "forbidden"), 3);
    let reviews = || server.see(|world| world.asked(Verb::Create, "/tokenreviews").count());
    assert_eq!(reviews(), 0, "nothing of this needs the API server");
    // A token of another pod that lies.
    answer_reviews(&server, "other-pod", "a");
    connect(token_of(LEADER, "a").into_bytes()).await;
    assert_eq!((refused(operator, "forbidden"), reviews()), (4, 1));
    // It is not checked again at once.
    connect(token_of(LEADER, "a").into_bytes()).await;
    assert_eq!((refused(operator, "too_often"), reviews()), (1, 1));
    // Reviews of other tokens that name the same pod: good for another job, and not good at all.
    answer_reviews(&server, LEADER, "b");
    connect(signed("of-another-job")).await;
    assert_eq!((refused(operator, "forbidden"), reviews()), (5, 2));
    answer_reviews_with(&server, &json!({"authenticated": false}));
    connect(signed("not-good")).await;
    assert_eq!((refused(operator, "forbidden"), reviews()), (6, 3));
    assert!(!is_connected(operator));
    // What is not a token is not read.
    let mut stream = dial(address, &bundle).await;
    put(&mut stream, frame::SUMMARY, &summary(JOB, 1)).await;
    assert_eq!(take(&mut stream).await, None);
    let mut stream = dial(address, &bundle).await;
    drop(stream.write_all(&[0, 1, 0, 0, frame::TOKEN]).await);
    assert_eq!(take(&mut stream).await, None);
    assert_eq!(
        (closed(operator, "broken"), closed(operator, "too_large")),
        (1, 1)
    );
    serving.abort();
}

#[tokio::test]
async fn a_slow_review_blocks_nobody() {
    let (server, operator) = gang();
    let operator = &operator;
    let (address, bundle, serving) = port(operator).await;
    answer_reviews(&server, LEADER, "a");
    let mut good = dial(address, &bundle).await;
    put(&mut good, frame::TOKEN, token_of(LEADER, "a").as_bytes()).await;
    until("it is connected", || is_connected(operator)).await;
    // From now on no review is answered, and connections that send nothing wait as well.
    server.heal();
    server.on(Rule::new(Verb::Create, "/tokenreviews", Fault::Silent));
    let mut waiting = Vec::new();
    for number in 0..8 {
        let mut stream = dial(address, &bundle).await;
        if number % 2 == 0 {
            let mut token = token_of(LEADER, "a");
            token.push_str(&number.to_string());
            put(&mut stream, frame::TOKEN, token.as_bytes()).await;
        }
        waiting.push(stream);
    }
    put(&mut good, frame::SUMMARY, &summary(JOB, 1)).await;
    until("its summary", || {
        operator.gangs.registry().has_summary(&key())
    })
    .await;
    acknowledge(operator);
    assert!(take(&mut good).await.is_some());
    // The token that is believed opens another connection.
    let mut again = dial(address, &bundle).await;
    put(&mut again, frame::TOKEN, token_of(LEADER, "a").as_bytes()).await;
    assert_eq!(take(&mut good).await, None, "it is replaced");
    serving.abort();
}

/// A connection without a socket.
async fn connected(operator: &Operator) -> (DuplexStream, JoinHandle<End>) {
    let traffic = operator.metrics().traffic();
    let room = Room::new(SIZE, NAME, traffic.clone());
    let address = std::net::Ipv4Addr::LOCALHOST.into();
    let connection = Connection {
        operator: operator.clone(),
        traffic,
        place: room.enter(address).await,
        silent_after: Limits::default().silent_after,
    };
    let (ours, theirs) = duplex(64 * 1024);
    let task = tokio::spawn(async move {
        match connection.talk(theirs).await {
            Ok(end) | Err(end) => end,
        }
    });
    (ours, task)
}

#[tokio::test(start_paused = true)]
async fn silent_leaders_are_closed() {
    let (server, operator) = gang();
    let operator = &operator;
    answer_reviews(&server, LEADER, "a");
    let began = Instant::now();
    let (stream, task) = connected(operator).await;
    assert_eq!(task.await.unwrap(), End::Closed("silent"));
    assert_eq!(began.elapsed(), TOKEN, "without a token");
    drop(stream);

    // Half-open: it sends for a while, and then nothing more, nor does it close.
    let (mut stream, task) = connected(operator).await;
    put(&mut stream, frame::TOKEN, token_of(LEADER, "a").as_bytes()).await;
    for _ in 0..4 {
        sleep(Duration::from_secs(5)).await;
        put(&mut stream, frame::SUMMARY, &summary(JOB, 1)).await;
    }
    let last = Instant::now();
    // The beginning of a frame is not a frame.
    stream
        .write_all(&[0, 0, 1, 0, frame::SUMMARY])
        .await
        .unwrap();
    assert_eq!(task.await.unwrap(), End::Closed("silent"));
    assert_eq!(last.elapsed(), Limits::default().silent_after);
    assert!(!is_connected(operator));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_does_not_read_is_closed() {
    let (server, operator) = gang();
    let operator = &operator;
    answer_reviews(&server, LEADER, "a");
    let (mut stream, task) = connected(operator).await;
    put(&mut stream, frame::TOKEN, token_of(LEADER, "a").as_bytes()).await;
    let mut attempt = 0;
    while !task.is_finished() {
        attempt += 1;
        // The stream takes 64 KiB, and nobody reads it.
        put(&mut stream, frame::SUMMARY, &summary(JOB, attempt)).await;
        sleep(Duration::from_millis(100)).await;
        acknowledge(operator);
        assert!(attempt < 5_000, "it is never closed");
    }
    assert_eq!(task.await.unwrap(), End::Closed("slow_reader"));
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_summaries_is_slowed_down() {
    let (server, operator) = gang();
    let operator = &operator;
    answer_reviews(&server, LEADER, "a");
    let (mut stream, task) = connected(operator).await;
    put(&mut stream, frame::TOKEN, token_of(LEADER, "a").as_bytes()).await;
    let began = Instant::now();
    // More than the stream holds, so that some were read.
    for attempt in 0..2_000 {
        put(&mut stream, frame::SUMMARY, &summary(JOB, attempt)).await;
    }
    let buffered = u32::try_from(64 * 1024 / summary(JOB, 1).len()).unwrap();
    let read = 2_000 - buffered - BURST;
    assert!(
        began.elapsed() > EVERY * read.saturating_sub(BURST),
        "{:?}",
        began.elapsed()
    );
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_no_longer_leads_closes() {
    let (server, operator) = gang();
    let operator = &operator;
    answer_reviews(&server, LEADER, "a");
    operator.leading.send_replace(false);
    let (mut stream, task) = connected(operator).await;
    put(&mut stream, frame::TOKEN, token_of(LEADER, "a").as_bytes()).await;
    assert_eq!(task.await.unwrap(), End::Refused("not_leading"), "not yet");
    operator.leading.send_replace(true);
    let (mut stream, task) = connected(operator).await;
    put(&mut stream, frame::TOKEN, token_of(LEADER, "a").as_bytes()).await;
    until("it is connected", || is_connected(operator)).await;
    operator.leading.send_replace(false);
    assert_eq!(task.await.unwrap(), End::Closed("not_leading"));
    assert!(!is_connected(operator));
    // What it knew is forgotten, and so is who leads.
    operator.forget_what_leaders_know();
    assert!(!operator.gangs.registry().leads(&key(), LEADER));
}

#[tokio::test]
async fn silent_connections_keep_no_leader_out() {
    let (server, operator) = gang();
    let operator = &operator;
    let (address, bundle, serving) = port_of(of_eight(), operator).await;
    answer_reviews(&server, LEADER, "a");
    let mut good = dial(address, &bundle).await;
    put(&mut good, frame::TOKEN, token_of(LEADER, "a").as_bytes()).await;
    until("it is connected", || is_connected(operator)).await;
    // Two more than fit beside the leader; the oldest silent ones are closed, never the leader.
    let mut silent = Vec::new();
    for _ in 0..9 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    // On a busy machine the first have been silent for too long before the last one comes.
    let left = || closed(operator, "room") + closed(operator, "silent");
    until("room is made", || left() >= 2).await;
    put(&mut good, frame::SUMMARY, &summary(JOB, 1)).await;
    until("its summary", || {
        operator.gangs.registry().has_summary(&key())
    })
    .await;
    serving.abort();
}

/// Room for eight connections.
fn of_eight() -> Size {
    Size {
        connections: 8,
        ..SIZE
    }
}

/// Eight gangs are connected: the ninth is closed at once, and the port is still served.
#[tokio::test]
async fn a_full_port_closes_new_connections() {
    let (server, operator) = gang();
    let operator = &operator;
    let size = of_eight();
    let (address, bundle, serving) = port_of(size, operator).await;
    let mut leaders = Vec::new();
    for number in 0..size.connections {
        let (job, pod) = (format!("job-{number}"), format!("pod-{number}"));
        let key = JobKey {
            name: job.as_str().into(),
            ..key()
        };
        let limits = Limits::default();
        let uid = format!("uid-{number}");
        drop(
            operator
                .gangs
                .registry()
                .see(&key, &uid, Some(&pod), limits),
        );
        answer_reviews(&server, &pod, &job);
        let mut stream = dial(address, &bundle).await;
        put(&mut stream, frame::TOKEN, token_of(&pod, &job).as_bytes()).await;
        let connected = || operator.gangs.registry().is_connected(&key);
        until("it is connected", connected).await;
        leaders.push(stream);
    }
    for count in 1..=2 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut byte = [0];
        let read = timeout(PATIENCE, stream.read(&mut byte)).await.unwrap();
        assert!(!matches!(read, Ok(1..)), "nothing is sent to it");
        until("it is counted", || refused(operator, "full") == count).await;
    }
    // Once one ends, there is room again.
    drop(leaders.pop());
    let last = JobKey {
        name: "job-7".into(),
        ..key()
    };
    until("it is gone", || {
        !operator.gangs.registry().is_connected(&last)
    })
    .await;
    answer_reviews(&server, LEADER, "a");
    until_connected(operator, address, &bundle).await;
    serving.abort();
}

/// Dials until there is a place: a connection gives its own back a moment after it has ended.
async fn until_connected(operator: &Operator, address: std::net::SocketAddr, trusted: &Bundle) {
    let connected = async {
        while !is_connected(operator) {
            let Ok(mut stream) = try_dial(address, trusted).await else {
                continue;
            };
            let token = token_of(LEADER, "a");
            if frame::write(&mut stream, frame::TOKEN, token.as_bytes())
                .await
                .is_err()
            {
                continue;
            }
            // A stream that ends, or brings an order, is dialed again unless it is connected.
            let mut byte = [0];
            tokio::select! {
                () = until("it is connected", || is_connected(operator)) => {}
                _ = stream.read(&mut byte) => {}
            }
        }
    };
    assert!(
        timeout(PATIENCE, connected).await.is_ok(),
        "never connected"
    );
}

/// A leader that dials again and again, with a token that is believed.
#[tokio::test(start_paused = true)]
async fn a_leader_connects_at_a_rate() {
    let (server, operator) = gang();
    let operator = &operator;
    answer_reviews(&server, LEADER, "a");
    let mut open = Vec::new();
    for attempt in 1..=5 {
        let (mut stream, task) = connected(operator).await;
        put(&mut stream, frame::TOKEN, token_of(LEADER, "a").as_bytes()).await;
        put(&mut stream, frame::SUMMARY, &summary(JOB, attempt)).await;
        until("its summary", || {
            operator.gangs.registry().has_summary(&key())
        })
        .await;
        acknowledge(operator);
        assert!(take(&mut stream).await.is_some());
        open.push((stream, task));
    }
    let (mut stream, task) = connected(operator).await;
    put(&mut stream, frame::TOKEN, token_of(LEADER, "a").as_bytes()).await;
    assert_eq!(task.await.unwrap(), End::Refused("too_often"));
    assert!(is_connected(operator), "the last good one stays");
    sleep(Duration::from_secs(2)).await;
    let (mut stream, _task) = connected(operator).await;
    put(&mut stream, frame::TOKEN, token_of(LEADER, "a").as_bytes()).await;
    let (mut last, _) = open.pop().unwrap();
    assert_eq!(take(&mut last).await, None, "it is replaced");
}
