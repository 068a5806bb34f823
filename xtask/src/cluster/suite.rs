//! The suite `cluster`: tests against a real cluster, and that a cluster leaves nothing behind.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    Cluster, Nodes, binaries, cgroups, fabric, image,
    namespace::{Namespaces, is_helper},
    others, piece,
    state::State,
    upstream, wait,
};
use crate::{
    Failure,
    cache::{self, cannot},
    process::Process,
    report, step,
};

/// The tests that want a cluster: a target of `crates/kube` and one of `crates/cli`.
const TESTS: &str = "cluster";
/// Simulated nodes beside the two real ones.
const SIMULATED: usize = 30;
/// The limit on a pod of the suite to run.
const POD_LIMIT: Duration = Duration::from_mins(3);
/// The limit on `up` to come to a place. Seen: 40 s on two idle cores, and over a minute where the
/// host took more than half of them.
const UP_LIMIT: Duration = Duration::from_mins(5);
/// A pod on each real node, each with a mount that the kubelet makes.
const PODS: &str = include_str!("suite.yaml");

/// A cluster for as long as this value lives. One that ran before is used, and left alone.
#[derive(Debug)]
pub(crate) struct Fixture {
    name: String,
    cluster: Cluster,
    /// Whether it is ours to end.
    own: bool,
}

impl Fixture {
    /// The cluster of this checkout's tests, with two real nodes and `simulated` others.
    pub(crate) fn start(simulated: usize) -> Result<Self, Failure> {
        Self::named(&suite_name("test"), simulated)
    }

    /// A cluster without real nodes that has done nothing yet.
    pub(crate) fn fresh(name: &str, simulated: usize) -> Result<Self, Failure> {
        super::down(name)?;
        super::up(name, Nodes::None, simulated)?;
        Ok(Self {
            name: name.to_owned(),
            cluster: Cluster::find(State::of(name)?)?,
            own: true,
        })
    }

    fn named(name: &str, simulated: usize) -> Result<Self, Failure> {
        let own = Namespaces::find(&State::of(name)?).is_none();
        let started =
            super::up(name, Nodes::Real, simulated).and_then(|()| Cluster::find(State::of(name)?));
        match started {
            Ok(cluster) => Ok(Self {
                name: name.to_owned(),
                cluster,
                own,
            }),
            Err(failure) => {
                if own {
                    super::down(name)?;
                }
                Err(failure)
            }
        }
    }

    /// `program` where it reaches the cluster, with `KUBECONFIG` set, in the root of the repository.
    pub(crate) fn command(&self, program: &str) -> Command {
        self.cluster.command_in(&step::root(), program)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !self.own {
            return;
        }
        if let Err(Failure::Failed(message) | Failure::CouldNotRun(message)) =
            super::down(&self.name)
        {
            report::error(&message);
        }
    }
}

/// One check: its name and its work.
type Check = (&'static str, fn(&str) -> Result<(), Failure>);

const CHECKS: &[Check] = &[
    ("a cluster in use leaves nothing", leaves_nothing_in_use),
    (
        "pieces that were killed come back, and leave nothing",
        leaves_nothing_of_killed_pieces,
    ),
    (
        "a cluster whose first process was killed leaves nothing",
        leaves_nothing_of_killed_first,
    ),
    (
        "`up` cut short anywhere leaves nothing",
        leaves_nothing_of_cut_up,
    ),
];

/// Runs every check, then the tests that want a cluster.
pub(crate) fn suite() -> Result<String, Failure> {
    super::need_machine()?;
    // The checks mostly wait. What the tests need is built meanwhile; a build that fails is reported where the tests want it.
    let builds = thread::spawn(|| {
        drop(build_tests());
        drop(image::static_binary());
    });
    let checked = checks();
    drop(builds.join());
    let checked = checked?;
    Ok(match tests(&[])? {
        Some(words) => format!("{checked}, {words}"),
        None => checked,
    })
}

/// Runs every check, also after one failed.
fn checks() -> Result<String, Failure> {
    let name = suite_name("check");
    let mut failed = Vec::new();
    for (what, check) in CHECKS {
        let began = Instant::now();
        let outcome = check(&name);
        // Also after a failure, so that the next check starts from nothing.
        super::down(&name)?;
        let time = report::seconds(began.elapsed());
        match outcome {
            Ok(()) => println!("{what}: passed in {time}"),
            Err(Failure::Failed(message)) => {
                report::error(&format!("{what}: {message}"));
                failed.push(*what);
            }
            Err(other) => return Err(other),
        }
    }
    if !failed.is_empty() {
        return Err(Failure::Failed(format!("failed: {}", failed.join("; "))));
    }
    Ok(format!("{} checks", CHECKS.len()))
}

/// Builds the tests that want a cluster: with what all suites share, which the tests of the workspace have built.
fn build_tests() -> Result<(), Failure> {
    step::run(step::shared("test").args(["--quiet", "--test", TESTS, "--no-run"]))
}

/// Runs the tests that want a cluster and have one of `names` in their name.
pub(super) fn some(names: &[&str]) -> Result<String, Failure> {
    super::need_machine()?;
    Ok(tests(names)?.unwrap_or_else(|| "0 tests".to_owned()))
}

/// Runs the tests that want a cluster, if there are any: those with one of `names` in their name, all without a name.
fn tests(names: &[&str]) -> Result<Option<String>, Failure> {
    let folder = step::root().join("crates/kube/tests");
    let is_there = [format!("{TESTS}.rs"), format!("{TESTS}/main.rs")]
        .iter()
        .any(|file| folder.join(file).is_file());
    if !is_there {
        return Ok(None);
    }
    // Built outside, where a package that is missing can be fetched.
    build_tests()?;
    let fixture = Fixture::start(SIMULATED)?;
    install(&fixture)?;
    let mut command = fixture.command("cargo");
    step::without_package(&mut command);
    command.env("TRAINYARD_REAL_NODES", "1");
    command.args(step::shared("test").get_args());
    command.args(["--test", TESTS, "--no-fail-fast", "--"]);
    command.args(names);
    step::harness::counted(&mut command).map(Some)
}

/// Teaches the cluster the kinds, and gives its real nodes the images, as this checkout has them; and
/// gives the tests what installs charts, what other schedulers define, Kueue, and upstream's own tests.
fn install(fixture: &Fixture) -> Result<(), Failure> {
    fabric::provide(&fixture.cluster)?;
    image::project(&fixture.cluster)?;
    binaries::provide(binaries::HELM, &fixture.cluster.state.file("bin"))?;
    others::provide(&fixture.cluster.state)?;
    upstream::provide(&fixture.cluster)?;
    let mut command = fixture.command("kubectl");
    command
        .args(["apply", "--server-side", "--force-conflicts", "--kustomize"])
        .arg("deploy/crds")
        .stdout(Stdio::null());
    step::run(&mut command)
}

fn leaves_nothing_in_use(name: &str) -> Result<(), Failure> {
    let before = Machine::snapshot()?;
    let cluster = used(name)?;
    let during = Machine::snapshot()?;
    if during.devices != before.devices {
        return Err(Failure::Failed(format!(
            "devices of the network beside those that were there: {}",
            during.added_since(&before)
        )));
    }
    let trace = Trace::of(&cluster.state);
    super::down(name)?;
    trace.must_be_gone(&before)
}

fn leaves_nothing_of_killed_pieces(name: &str) -> Result<(), Failure> {
    let before = Machine::snapshot()?;
    let cluster = used(name)?;
    let victims = ["etcd", "kube-apiserver", "kubelet-a", "containerd-b", "dns"];
    for victim in victims {
        piece::stop(&cluster, victim, "KILL")?;
    }
    super::up(name, Nodes::Real, 0)?;
    wait_for_pods(&cluster)?;
    for victim in victims {
        piece::stop(&cluster, victim, "KILL")?;
    }
    let trace = Trace::of(&cluster.state);
    super::down(name)?;
    trace.must_be_gone(&before)
}

fn leaves_nothing_of_killed_first(name: &str) -> Result<(), Failure> {
    let before = Machine::snapshot()?;
    let cluster = used(name)?;
    let trace = Trace::of(&cluster.state);
    cluster.namespaces.kill_first();
    super::down(name)?;
    trace.must_be_gone(&before)
}

/// Ends `up` as soon as it has made each of these, the last of which is there before it is done.
fn leaves_nothing_of_cut_up(name: &str) -> Result<(), Failure> {
    for made in [
        "bin",
        "logs/namespaces",
        "pids/etcd",
        "keys/apiserver.key",
        "pids/containerd-a",
        "images/tools.list",
    ] {
        cut_up(name, made, None)?;
    }
    // What works for it outside of its namespaces outlives it, and so do the children of that.
    let state = State::of(name)?;
    let started = "images/tar-started";
    let stand_in = format!(
        "#!/bin/sh\n: >'{}'\nwhile :; do sleep 1; done\n",
        state.text(started)
    );
    let folder = std::env::temp_dir().join(format!("trainyard-{name}"));
    let tar = folder.join("tar");
    fs::create_dir_all(&folder).map_err(cannot("make", &folder))?;
    fs::write(&tar, stand_in).map_err(cannot("write", &tar))?;
    fs::set_permissions(&tar, fs::Permissions::from_mode(0o755)).map_err(cannot("change", &tar))?;
    let outcome = cut_up(name, started, Some(&folder));
    fs::remove_dir_all(&folder).map_err(cannot("remove", &folder))?;
    outcome
}

/// Ends `up` as soon as it has made `made`, and then the cluster. Programs in `first` come before
/// those of the machine.
fn cut_up(name: &str, made: &str, first: Option<&Path>) -> Result<(), Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::CouldNotRun(format!("cannot find this program: {error}")))?;
    let mut path = first.map(Path::as_os_str).unwrap_or_default().to_owned();
    if let Some(rest) = cache::variable("PATH") {
        if !path.is_empty() {
            path.push(":");
        }
        path.push(rest);
    }
    let before = Machine::snapshot()?;
    let state = State::of(name)?;
    // Outside of the cluster's folder, which is compared later.
    let log = std::env::temp_dir().join(format!("trainyard-{name}-up.log"));
    let errors = fs::File::create(&log).map_err(cannot("write", &log))?;
    let mut up = Command::new(own)
        .args(["cluster", "up", "--name", name])
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(|error| Failure::CouldNotRun(format!("cannot start `up`: {error}")))?;
    let waited = wait::until(&format!("`up` to make `{made}`"), UP_LIMIT, || {
        if state.file(made).exists() {
            return Ok(true);
        }
        match up.try_wait() {
            Ok(Some(status)) => Err(Failure::Failed(format!(
                "`up` ended before it made `{made}` ({status}): {}",
                fs::read_to_string(&log).unwrap_or_default().trim()
            ))),
            _ => Ok(false),
        }
    });
    drop(up.kill());
    drop(up.wait());
    drop(fs::remove_file(&log));
    waited?;
    let trace = Trace::of(&state);
    super::down(name)?;
    trace
        .must_be_gone(&before)
        .map_err(|failure| match failure {
            Failure::Failed(message) => Failure::Failed(format!("cut at `{made}`: {message}")),
            other => other,
        })
}

/// A cluster whose real nodes run pods.
fn used(name: &str) -> Result<Cluster, Failure> {
    super::up(name, Nodes::Real, 0)?;
    let cluster = Cluster::find(State::of(name)?)?;
    let pods = cluster.state.write("config/suite.yaml", PODS)?;
    cluster.kubectl(&["apply", &format!("--filename={}", pods.display())])?;
    wait_for_pods(&cluster)?;
    Ok(cluster)
}

/// Waits until the pods of the suite are ready.
fn wait_for_pods(cluster: &Cluster) -> Result<(), Failure> {
    cluster
        .kubectl(&[
            "wait",
            "--for=condition=Ready",
            &format!("--timeout={}s", POD_LIMIT.as_secs()),
            "pod",
            "on-a",
            "on-b",
        ])
        .map(drop)
}

/// A name that no other checkout uses.
fn suite_name(kind: &str) -> String {
    let root = step::root().display().to_string();
    format!("{kind}-{:08x}", cache::fnv(root.as_bytes()) >> 32)
}

/// What a cluster consists of, in the words of the machine.
#[derive(Debug)]
struct Trace {
    name: String,
    folder: PathBuf,
    /// Every process in its namespaces. The kernel reuses the names of namespaces, so only
    /// processes show later whether they are gone.
    processes: BTreeSet<(u32, Option<u64>)>,
}

impl Trace {
    /// Of a cluster that may have no namespaces yet.
    fn of(state: &State) -> Self {
        let mut namespaces = BTreeSet::new();
        let processes = Namespaces::find(state).map(|found| found.everything());
        for process in processes.unwrap_or_default() {
            namespaces.extend(KINDS.iter().filter_map(|kind| process.namespace_of(kind)));
        }
        for kind in KINDS {
            if let Ok(own) = fs::read_link(format!("/proc/self/ns/{kind}")) {
                namespaces.remove(&own);
            }
        }
        let processes = Process::all()
            .into_iter()
            .filter(|process| {
                KINDS
                    .iter()
                    .filter_map(|kind| process.namespace_of(kind))
                    .any(|namespace| namespaces.contains(&namespace))
            })
            .map(|process| (process.pid, process.started()))
            .collect();
        Self {
            name: state.name().to_owned(),
            folder: state.folder().to_owned(),
            processes,
        }
    }

    /// Fails with everything that is left.
    fn must_be_gone(&self, before: &Machine) -> Result<(), Failure> {
        let after = Machine::snapshot()?;
        let state = State::of(&self.name)?;
        let mut left = Vec::new();
        for process in Process::all() {
            let was_there = self.processes.contains(&(process.pid, process.started()));
            let names_it = process
                .arguments
                .iter()
                .any(|word| word.contains(&*self.folder.to_string_lossy()));
            if was_there || names_it || is_helper(&state, &process) {
                left.push(format!("process {}: {:?}", process.pid, process.arguments));
            }
        }
        if after != *before {
            left.push(after.added_since(before));
        }
        let groups = cgroups::leftover_groups(&state);
        left.extend(groups.iter().map(|group| group.display().to_string()));
        if self.folder.exists() {
            left.push(self.folder.display().to_string());
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(Failure::Failed(format!("left: {}", left.join("\n"))))
        }
    }
}

const KINDS: [&str; 5] = ["pid", "mnt", "net", "ipc", "uts"];

/// What anyone on the machine sees, whoever made it.
#[derive(Debug, PartialEq, Eq)]
struct Machine {
    mounts: BTreeSet<String>,
    devices: BTreeSet<String>,
}

impl Machine {
    fn snapshot() -> Result<Self, Failure> {
        let read = |path: &str| {
            fs::read_to_string(path)
                .map_err(|error| Failure::CouldNotRun(format!("cannot read `{path}`: {error}")))
        };
        let mounts = read("/proc/self/mounts")?;
        let devices = read("/proc/self/net/dev")?;
        Ok(Self {
            mounts: mounts.lines().map(str::to_owned).collect(),
            devices: devices
                .lines()
                .filter_map(|line| line.split_once(':'))
                .map(|(name, _)| name.trim().to_owned())
                .collect(),
        })
    }

    /// What is there and was not before.
    fn added_since(&self, before: &Self) -> String {
        let mounts = self.mounts.difference(&before.mounts);
        let devices = self.devices.difference(&before.devices);
        mounts
            .chain(devices)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ")
    }
}
