//! Random jobs against random failures, by seed: the real operator, and what must hold of what was stored.

mod dice;
mod invariants;
mod nodes;

use std::time::Duration;

use serde_json::{Value, json};
use trainyard_core::spec::Kind;

use self::dice::Dice;
use crate::{
    Options, ProgressSource,
    scripted::{
        Fault, Running, Server, Verb, depose, job, job_name,
        make::{NAMESPACE, lease},
        options,
        rule::Rule,
        text,
        world::{Name, World},
    },
};

/// Seeds of the test command.
const FEW: u64 = 40;
/// Seeds of the test that is run where there is time.
const MANY: u64 = 2_000;

#[test]
fn whatever_fails_jobs_end_and_nothing_is_left() {
    run(0..FEW);
}

#[test]
#[ignore = "a suite of its own: `cargo test -p trainyard-kube --lib storm -- --ignored`"]
fn two_thousand_seeds() {
    run(0..MANY);
}

/// `TRAINYARD_SEED=17 cargo test -p trainyard-kube --lib storm::one_seed -- --nocapture`
#[test]
fn one_seed() {
    #[expect(
        clippy::disallowed_methods,
        reason = "a person names the seed to replay"
    )]
    let seed = std::env::var("TRAINYARD_SEED");
    if let Some(seed) = seed.ok().and_then(|seed| seed.parse().ok()) {
        run(seed..seed + 1);
    }
}

/// Runs `seeds` on all processors; fails with the first that broke something.
fn run(seeds: std::ops::Range<u64>) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let broken = std::sync::Mutex::new(Vec::<(u64, String)>::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if let Err(why) = storm(seed) {
                        broken.lock().unwrap().push((seed, why));
                    }
                }
            });
        }
    });
    let mut broken = broken.into_inner().unwrap();
    broken.sort();
    if let Some((seed, why)) = broken.first() {
        let others = broken.len() - 1;
        panic!(
            "seed {seed} (and {others} others): {why}\nreplay: TRAINYARD_SEED={seed} cargo test -p trainyard-kube --lib \
             storm::one_seed -- --nocapture"
        );
    }
}

fn storm(seed: u64) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut storm = Storm::new(seed);
        storm.inject_faults().await;
        storm.wait_until_settled().await?;
        let found = storm.server.see(invariants::check);
        found.map_err(|why| format!("{why}\n{}", storm.history.join("\n")))
    })
}

/// One seed.
struct Storm {
    dice: Dice,
    server: Server,
    operators: Vec<Running>,
    options: Vec<Options>,
    jobs: Vec<(Kind, String)>,
    /// How many nodes gangs are placed on; without any, pods run wherever they are made.
    nodes: u32,
    /// What happened, for whoever reads of a failure.
    history: Vec<String>,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let server = Server::new();
        let leads = dice.one_in(3);
        let nodes = if dice.one_in(2) { 2 } else { 0 };
        server.add_nodes(nodes);
        let progress = if dice.one_in(2) {
            ProgressSource::Logs
        } else {
            ProgressSource::Off
        };
        let options = Options {
            nodes: nodes > 0,
            placement: nodes > 0,
            progress,
            ..options()
        };
        let options = if leads {
            ["one", "two"]
                .map(|identity| Options {
                    lease: Some(lease(identity)),
                    ..options.clone()
                })
                .to_vec()
        } else {
            vec![options]
        };
        let mut storm = Self {
            dice,
            server,
            operators: Vec::new(),
            options,
            jobs: Vec::new(),
            nodes,
            history: Vec::new(),
        };
        for _ in 0..storm.dice.below(6) {
            storm.trouble();
        }
        for options in storm.options.clone() {
            storm.operators.push(storm.server.operator(options));
        }
        for index in 0..=storm.dice.below(2) {
            storm.begin(&format!("j{index}"));
        }
        storm
    }

    fn begin(&mut self, name: &str) {
        let kind = Kind::ALL[self.dice.index(Kind::ALL.len())];
        let mut object = job(kind, name, if self.dice.one_in(2) { 1 } else { 2 });
        let clean = ["None", "Running", "All"][self.dice.index(3)];
        let limit = 1 + self.dice.below(3);
        object["spec"]["runPolicy"] = json!({"backoffLimit": limit, "cleanPodPolicy": clean});
        let policy = ["OnFailure", "Never", "ExitCode"][self.dice.index(3)];
        if !kind.is_mpi() {
            object["spec"][kind.replica_map()]["Worker"]["restartPolicy"] = policy.into();
        }
        if self.nodes > 0 {
            // From a part of a node to all of it: two jobs fit at the same time, or do not.
            let gpus = ["1", "4", "8"][self.dice.index(3)];
            nodes::ask_for(&mut object["spec"][kind.replica_map()]["Worker"], gpus);
        }
        self.history
            .push(format!("{} {name}, {policy}", kind.name()));
        self.server.add_job(object);
        self.jobs.push((kind, name.to_owned()));
    }

    /// Adds something that will fail.
    fn trouble(&mut self) {
        let verbs = [
            (Verb::Watch, ["", "/pods", "jobs"]),
            (Verb::List, ["", "/pods", "jobs"]),
            (Verb::Create, ["/pods", "/services", ""]),
            (Verb::Patch, ["/status", "/configmaps", ""]),
            (Verb::Delete, ["/pods", "", ""]),
            (Verb::Update, ["/leases", "", ""]),
            (Verb::Get, ["/leases", "", ""]),
            (Verb::Log, ["", "", ""]),
        ];
        let (verb, paths) = verbs[self.dice.index(verbs.len())];
        let path = paths[self.dice.index(paths.len())];
        let bad = json!({"metadata": {"name": "bad", "labels": 5, "resourceVersion": "1"}});
        let fault = match (verb, self.dice.below(9)) {
            (Verb::Watch, 0) => Fault::HeadOnly,
            (Verb::Watch, 1) => Fault::expired_event(),
            (Verb::Watch, 2) => Fault::status(410),
            (Verb::List, 0) => Fault::Items(vec![bad]),
            (Verb::List, 1) => Fault::Endless,
            (_, 0) => Fault::depose("nobody"),
            (_, 1) => Fault::Lost,
            (_, 2) => Fault::status(409),
            (_, 3) => Fault::status(500),
            (_, 4) => Fault::version_too_large(),
            (_, 5) => Fault::retry_after(2),
            (_, 6) => Fault::Silent,
            (_, 7) => Fault::Torn,
            _ => Fault::Cut,
        };
        let rule = Rule::new(verb, path, fault)
            .skip(self.dice.below(12))
            .times(1 + self.dice.below(3));
        self.history.push(format!("{rule:?}"));
        self.server.on(rule);
    }

    /// Things happen.
    async fn inject_faults(&mut self) {
        for _ in 0..4 + self.dice.below(8) {
            let wait = Duration::from_millis(self.dice.below(8_000));
            tokio::time::sleep(wait).await;
            match self.dice.below(if self.nodes > 0 { 15 } else { 12 }) {
                0 => self.trouble(),
                1 => self.kill(),
                2 => self.server.close_watches(),
                3 => self.server.compact(),
                4 => self.server.with(|world| depose(world, "nobody")),
                5 => self.delete_job(),
                6 => self.delete_pod(),
                12..=14 => self.trouble_node(),
                _ => self.end_pod(),
            }
        }
    }

    fn kill(&mut self) {
        let at = self.dice.index(self.operators.len());
        self.history.push(format!("operator {at} is killed"));
        self.operators.swap_remove(at).kill();
        let options = self.options.swap_remove(at);
        self.options.push(options.clone());
        self.operators.push(self.server.operator(options));
    }

    fn delete_job(&mut self) {
        let at = self.dice.index(self.jobs.len());
        let (kind, name) = self.jobs[at].clone();
        self.history.push(format!("job {name} is deleted"));
        self.server
            .with(|world| drop(world.remove(&job_name(kind, &name), &json!({}))));
        if self.dice.one_in(2) {
            self.jobs.swap_remove(at);
            self.begin(&name);
        }
    }

    fn pod(&mut self, phase: &str) -> Option<Name> {
        let pods = self.server.see(|world| pods(world, phase));
        (!pods.is_empty()).then(|| pods[self.dice.index(pods.len())].clone())
    }

    fn delete_pod(&mut self) {
        if let Some(pod) = self.pod("Running") {
            self.history.push(format!("pod {} is deleted", pod.2));
            self.server
                .with(|world| drop(world.remove(&pod, &json!({}))));
        }
    }

    fn end_pod(&mut self) {
        if let Some(pod) = self.pod("Running") {
            let exit = [0, 1, 137, 139][self.dice.index(4)];
            self.history.push(format!("pod {} ends with {exit}", pod.2));
            self.server.with(|world| world.end_pod(&pod, exit));
        }
    }

    /// Nothing fails any more: every job ends, and what is deleted is gone.
    async fn wait_until_settled(&mut self) -> Result<(), String> {
        self.server.heal();
        self.heal_nodes();
        let mut rounds = 0;
        while !self.server.see(invariants::all_ended) {
            rounds += 1;
            if rounds > 120 {
                let left = self.server.see(super::super::describe);
                return Err(format!(
                    "a job never ends\n{}\n{left}",
                    self.history.join("\n")
                ));
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
            self.server.with(|world| {
                for pod in pods(world, "Running") {
                    world.end_pod(&pod, 0);
                }
            });
        }
        for (kind, name) in std::mem::take(&mut self.jobs) {
            self.server
                .with(|world| drop(world.remove(&job_name(kind, &name), &json!({}))));
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        for operator in std::mem::take(&mut self.operators) {
            operator.stop().await;
        }
        Ok(())
    }
}

fn pods(world: &World, phase: &str) -> Vec<Name> {
    let pods = world
        .pods()
        .filter(|pod| text(pod, "/status/phase") == phase);
    let name = |pod: &Value| text(pod, "/metadata/name").to_owned();
    pods.map(|pod| ("/api/v1/pods".to_owned(), NAMESPACE.to_owned(), name(pod)))
        .collect()
}
