//! Attacks an operator that it starts itself, and measures what honest callers see meanwhile.
//!
//! `cargo xtask bench attack` runs it inside the test cluster, once for each operator. It sends hostile reviews, holds idle TLS
//! connections and silent connections to the port of the probes, all at once; at the same time it sends reviews as the API server
//! does, probes as the kubelet does, and creates jobs. It prints one JSON object.
//!
//! Only addresses of this machine's loopback are attacked, for a stated number of seconds.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool of the benches that ends at the first surprise"
)]

mod assault;
mod confined;
mod honest;
mod wire;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::{Duration, Instant},
};

use serde_json::json;

use self::confined::Confined;

/// How long the operator may take to start.
const START: Duration = Duration::from_mins(2);
/// How long honest reviews are measured before the attack: what the machine's other load alone costs them.
const CALM: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
struct Plan {
    webhook: SocketAddr,
    health: SocketAddr,
    /// Where the operator finds its certificate, which is put there first.
    cert_dir: Option<PathBuf>,
    /// Hostile reviews at once, idle TLS connections, silent connections to the port of the probes.
    hostile: usize,
    idle: usize,
    silent: usize,
    duration: Duration,
    /// Jobs that are created during the attack; none where there is no cluster.
    jobs: u32,
    limit_bytes: u64,
    operator: Vec<String>,
}

/// What the attackers have done.
#[derive(Debug, Default)]
struct Done {
    stop: AtomicBool,
    hostile: AtomicU64,
    connections: AtomicU64,
    silent: AtomicU64,
}

fn main() {
    let plan = plan();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure(plan));
}

fn plan() -> Plan {
    let mut words = std::env::args().skip(1);
    let mut flags = BTreeMap::new();
    let mut operator = Vec::new();
    while let Some(word) = words.next() {
        if word == "--" {
            operator = words.by_ref().collect();
        } else {
            flags.insert(word.clone(), words.next().unwrap_or_default());
        }
    }
    let number = |flag: &str, default: u32| {
        flags
            .get(flag)
            .map_or(default, |text| text.parse().unwrap())
    };
    let address = |flag: &str, default: &str| {
        let text = flags.get(flag).map_or(default, String::as_str);
        let address: SocketAddr = text.parse().unwrap();
        assert!(address.ip().is_loopback(), "{address} is not this machine");
        address
    };
    Plan {
        webhook: address("--webhook", "127.0.0.1:9443"),
        health: address("--health", "127.0.0.1:8081"),
        cert_dir: flags.get("--cert-dir").map(PathBuf::from),
        hostile: number("--hostile", 1_000).try_into().unwrap(),
        idle: number("--idle", 1_000).try_into().unwrap(),
        silent: number("--silent", 64).try_into().unwrap(),
        duration: Duration::from_secs(number("--seconds", 30).into()),
        jobs: number("--jobs", 5),
        limit_bytes: u64::from(number("--limit-mebibytes", 1024)) << 20,
        operator,
    }
}

async fn measure(plan: Plan) {
    if let Some(folder) = &plan.cert_dir {
        wire::put_certificate(folder);
    }
    let mut operator = Confined::start(&plan.operator, plan.limit_bytes);
    let secure = wire::connector();
    let began = Instant::now();
    while honest::review(&plan, &secure, Duration::from_secs(1))
        .await
        .is_none()
    {
        assert!(operator.lives(), "the operator ended by itself");
        assert!(began.elapsed() < START, "no review was answered");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let jobs = match plan.jobs {
        0 => None,
        _ => Some(honest::Jobs::prepare().await),
    };
    let mut calm_job = 0.0;
    if let Some(jobs) = &jobs {
        // The first one waits for whatever else has just started, too.
        jobs.until_pods("first", START).await.unwrap();
        let before = jobs.until_pods("before", START).await.unwrap();
        calm_job = before.as_secs_f64();
    }
    let calm_reviews = honest::reviews(&plan, &secure, Instant::now() + CALM).await;
    let calm = operator.peak();
    eprintln!("attacking for {:?}", plan.duration);
    let done = Arc::new(Done::default());
    let attackers = assault::start(&plan, &done);
    let end = Instant::now() + plan.duration;
    let (reviews, probes, seconds, ()) = futures::join!(
        honest::reviews(&plan, &secure, end),
        honest::probes(&plan, end),
        honest::create(jobs.as_ref(), &plan, end),
        operator.watch(end),
    );
    done.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let survived = operator.lives();
    for attacker in attackers {
        attacker.join().unwrap();
    }
    println!(
        "{}",
        json!({
            "limit": operator.limit(),
            "survived": u8::from(survived),
            "calmRssBytes": calm,
            "calmReviewP99Seconds": calm_reviews.percentile(99),
            "calmJobSeconds": calm_job,
            "peakRssBytes": operator.peak(),
            "reviews": reviews.answered.len(),
            "reviewsFailed": reviews.failed,
            "reviewMedianSeconds": reviews.percentile(50),
            "reviewP99Seconds": reviews.percentile(99),
            "probes": probes.answered.len(),
            "probesFailed": probes.failed,
            "probeP99Seconds": probes.percentile(99),
            "jobs": seconds.answered.len(),
            "jobsFailed": seconds.failed,
            "jobMostSeconds": seconds.percentile(100),
            "hostileReviews": done.hostile.load(std::sync::atomic::Ordering::Relaxed),
            "hostileConnections": done.connections.load(std::sync::atomic::Ordering::Relaxed),
            "silentConnections": done.silent.load(std::sync::atomic::Ordering::Relaxed),
        })
    );
}
