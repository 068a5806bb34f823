//! Measures how old the progress of jobs is that an operator knows from their logs, and what that costs it.
//!
//! `cargo xtask bench progress` runs it. It serves an API in memory on a loopback port, in which every pod runs at once and prints ten lines a
//! second, one of them a step each; starts the operator as a process of its own against it; asks `/metrics` every second; and
//! prints one JSON object. No cluster is needed.
//!
//! ```text
//! progress --jobs 1000 --warm-up 90 --seconds 120 -- trainyard operator --no-leader-elect …
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a tool of the benches that ends at the first surprise"
)]

mod api;

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;

use self::api::Api;

/// How long the operator may take until it has read every job once.
const START: Duration = Duration::from_mins(5);

struct Plan {
    jobs: usize,
    warm_up: Duration,
    seconds: u64,
    operator: Vec<String>,
}

/// An operator that ends with this program.
struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn main() {
    let plan = plan();
    let api = Arc::new(Api::new());
    let address = serve(&api);
    for index in 0..plan.jobs {
        api.add_job(&format!("j{index:04}"));
    }
    let folder = std::env::temp_dir().join(format!("trainyard-progress-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let kubeconfig = folder.join("kubeconfig");
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "bench", "user": {}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}]});
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let metrics = free_port();
    let mut command = Command::new(&plan.operator[0]);
    command
        .args(&plan.operator[1..])
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .arg(format!("--metrics-bind={metrics}"))
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(folder.join("operator.log")).unwrap());
    let operator = Operator(command.spawn().unwrap());
    measure(&plan, &api, &operator, metrics);
    drop(operator);
    drop(std::fs::remove_dir_all(&folder));
}

fn measure(plan: &Plan, api: &Api, operator: &Operator, metrics: SocketAddr) {
    let began = Instant::now();
    loop {
        let known = ages(api, metrics).len();
        if known == plan.jobs {
            break;
        }
        assert!(began.elapsed() < START, "only {known} jobs have a step");
        std::thread::sleep(Duration::from_secs(1));
    }
    let start = began.elapsed();
    std::thread::sleep(plan.warm_up);
    api.forget_reads();
    let patches = api.patches();
    let (cpu, from) = (cpu_seconds(operator.0.id()), Instant::now());
    let mut all = Vec::new();
    for _ in 0..plan.seconds {
        std::thread::sleep(Duration::from_secs(1));
        all.extend(ages(api, metrics));
    }
    let wall = from.elapsed().as_secs_f64();
    let cpu = cpu_seconds(operator.0.id()) - cpu;
    all.sort_by(f64::total_cmp);
    let at = |share: f64| all[((all.len() - 1) as f64 * share).round() as usize];
    let (reads, busiest) = api.reads();
    let answer = json!({
        "jobs": plan.jobs,
        "startSeconds": start.as_secs_f64(),
        "ageP50Seconds": at(0.5),
        "ageP99Seconds": at(0.99),
        "ageMostSeconds": at(1.0),
        "readsPerSecond": reads as f64 / wall,
        "busiestSecondReads": busiest,
        "statusWritesPerSecond": (api.patches() - patches) as f64 / wall,
        "cpuShare": cpu / wall,
        "rssBytes": rss(operator.0.id()),
    });
    println!("{answer}");
}

/// How old the step of each job is that the operator knows.
fn ages(api: &Api, metrics: SocketAddr) -> Vec<f64> {
    let Some(text) = get(metrics, "/metrics") else {
        return Vec::new();
    };
    let steps = text
        .lines()
        .filter_map(|line| line.strip_prefix("trainyard_job_step{")?.rsplit(' ').next());
    let steps = steps.filter_map(|step| step.parse::<f64>().ok());
    steps.map(|step| api.age_of_step(step)).collect()
}

fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    // The kernel counts in hundredths for every program.
    ticks / 100.0
}

fn rss(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.unwrap().trim().trim_end_matches(" kB");
    kibibytes.parse::<f64>().unwrap() * 1_024.0
}

fn free_port() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Serves the API on a thread of its own.
fn serve(api: &Arc<Api>) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let api = Arc::clone(api);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(api.serve(listener));
    });
    address
}

fn plan() -> Plan {
    let mut words = std::env::args().skip(1);
    let mut flags = BTreeMap::new();
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        }
        flags.insert(word, words.next().unwrap());
    }
    let number = |flag: &str| flags[flag].parse::<u64>().unwrap();
    let operator: Vec<String> = words.collect();
    assert!(!operator.is_empty(), "no operator behind `--`");
    Plan {
        jobs: usize::try_from(number("--jobs")).unwrap(),
        warm_up: Duration::from_secs(number("--warm-up")),
        seconds: number("--seconds"),
        operator,
    }
}
