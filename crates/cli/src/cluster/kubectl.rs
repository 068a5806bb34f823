//! Commands in pods of a cluster, by `kubectl exec`.
//!
//! The client of this program has no `WebSockets`: the crate that brings them needs a second version of `getrandom`. Whoever works on a cluster has
//! `kubectl`, which also has the credentials.

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _, Read},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, kill},
        termios::{SetArg, Termios, tcgetattr, tcsetattr},
    },
    unistd::Pid,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use trainyard_core::{
    job::PodPhase,
    spec::{Job, Replicas},
};
use trainyard_host::Ranks;
use trainyard_kube::look::{JobSeen, PodSeen};

use super::{Site, refused};
use crate::{clean, failure::Failure, words};

/// What is run.
const KUBECTL: &str = "kubectl";
/// How often a process is looked at that may have ended.
const LOOK: Duration = Duration::from_millis(20);
/// How long `kubectl` may take to print its own version.
const VERSION_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a message of `kubectl` that are kept.
const MESSAGE_BYTES: u64 = 4096;

/// The pods of a job, by rank.
#[derive(Debug)]
pub(crate) struct RankPods {
    pub(crate) job: Job,
    pub(crate) ranks: Ranks,
    pub(crate) replicas: Replicas,
    pub(crate) pods: Vec<PodSeen>,
}

impl RankPods {
    /// Looks them up.
    pub(crate) fn find(site: &Site<'_>, seen: &JobSeen) -> Result<Self, Failure> {
        let name = &seen.key.name;
        let job = seen.job.clone().ok_or_else(|| {
            Failure::new(format!("the spec of job `{name}` is not valid"))
                .hint(format!("`{}` says why", site.command("explain", name)))
        })?;
        let pods = site.look.pods(seen).map_err(refused)?;
        if pods.is_empty() {
            return Err(Failure::new(format!("job `{name}` has no pods now"))
                .hint(format!("`{}` says why", site.command("explain", name))));
        }
        if let Some(odd) = pods.iter().find(|pod| !is_pod_name(&pod.facts.name)) {
            let odd = clean::text(&odd.facts.name);
            return Err(Failure::new(format!(
                "the API server lists a pod `{odd}` of job `{name}`; no pod can have that name"
            )));
        }
        Ok(Self {
            ranks: Ranks::of(&job),
            replicas: job.replicas(),
            job,
            pods,
        })
    }

    /// How many ranks the job has.
    pub(crate) fn count(&self) -> u32 {
        self.ranks.count(&self.replicas)
    }

    /// The attempt that runs, as the operator labelled the pods.
    pub(crate) fn attempt(&self) -> u32 {
        let attempts = self.pods.iter().map(|pod| pod.facts.attempt);
        attempts.max().unwrap_or_default()
    }

    /// The pod of `rank`, which runs.
    pub(crate) fn running(&self, rank: u32) -> Result<&PodSeen, Failure> {
        let slot = self.ranks.pod_of(&self.replicas, rank).ok_or_else(|| {
            let count = words::counted(self.count().into(), "rank");
            Failure::new(format!("job `{}` has no rank {rank}", self.job.name))
                .hint(format!("it has {count}, counted from 0"))
        })?;
        let of_slot = self.pods.iter().filter(|pod| pod.slot == Some(slot));
        let newest = of_slot.max_by_key(|pod| (pod.facts.attempt, pod.facts.created_at));
        let name = self.job.pod_name(slot);
        let Some(pod) = newest else {
            return Err(Failure::new(format!("pod `{name}` does not exist")));
        };
        if pod.facts.phase != PodPhase::Running {
            return Err(Failure::new(format!(
                "pod `{name}` is not running: it is {:?}",
                pod.facts.phase
            )));
        }
        Ok(pod)
    }
}

/// Whether a name is one that Kubernetes gives to pods. `kubectl` takes others for options, or for other things than pods.
fn is_pod_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.bytes()
        .all(|byte| plain(byte) || b"-.".contains(&byte))
        && name.bytes().next().is_some_and(plain)
}

/// What a command in a pod printed.
pub(crate) type Answer = Result<Vec<u8>, String>;

impl Site<'_> {
    /// `kubectl exec` in a container, with the cluster and namespace of this site.
    fn kubectl(&self, pod: &str, container: &str, flags: &[&str], words: &[String]) -> Command {
        let mut command = Command::new(KUBECTL);
        let server = &self.place.server;
        if let Some(kubeconfig) = &server.kubeconfig {
            let mut flag = OsString::from("--kubeconfig=");
            flag.push(kubeconfig);
            command.arg(flag);
        }
        if let Some(context) = &server.context {
            command.arg(format!("--context={context}"));
        }
        command
            .arg(format!("--namespace={}", self.namespace))
            .args(["exec", pod])
            .arg(format!("--container={container}"))
            .args(flags)
            .arg("--")
            .args(words);
        command
    }

    /// Runs a command in a container with the streams of this process; returns its exit code.
    pub(crate) fn enter(
        &self,
        pod: &str,
        container: &str,
        words: &[String],
    ) -> Result<u8, Failure> {
        let mut flags = vec!["--stdin"];
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            flags.push("--tty");
        }
        let _terminal = Terminal::save();
        let mut child = self
            .kubectl(pod, container, &flags, words)
            .spawn()
            .map_err(|error| cannot_start(&error))?;
        let signals = Signals::register()?;
        loop {
            if let Some(status) = child.try_wait().map_err(anyhow::Error::new)? {
                let signal = std::os::unix::process::ExitStatusExt::signal(&status);
                let code = status.code().or(signal.map(|signal| 128 + signal));
                return Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
            }
            signals.pass_on(&child);
            thread::sleep(LOOK);
        }
    }

    /// Runs a command in many pods, at most `at_once` at a time and each for at most `limit`; what each printed, in the order of `pods`, or why
    /// it did not.
    pub(crate) fn ask(
        &self,
        pods: &[&PodSeen],
        command: impl Fn(&PodSeen) -> Vec<String> + Sync,
        (at_once, limit, most_bytes): (usize, Duration, u64),
    ) -> Result<Vec<Answer>, Failure> {
        // One clear sentence, instead of the same for each pod.
        let version = spawn(Command::new(KUBECTL).args(["version", "--client"]));
        let version = version.map_err(|error| cannot_start(&error))?;
        finish(version, VERSION_WITHIN, MESSAGE_BYTES)
            .map_err(|why| Failure::new(format!("`kubectl version --client` failed: {why}")))?;
        let next = AtomicUsize::new(0);
        let (done, answers) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..at_once.min(pods.len()) {
                let (done, next, command) = (done.clone(), &next, &command);
                scope.spawn(move || {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(pod) = pods.get(at) else {
                            return;
                        };
                        let facts = &pod.facts;
                        let words = command(pod);
                        let mut asked = self.kubectl(&facts.name, &facts.container, &[], &words);
                        // The receiver lives longer.
                        done.send((at, run(&mut asked, limit, most_bytes))).ok();
                    }
                });
            }
        });
        drop(done);
        let mut all: Vec<(usize, Answer)> = answers.into_iter().collect();
        all.sort_by_key(|(at, _)| *at);
        Ok(all.into_iter().map(|(_, answer)| answer).collect())
    }
}

/// Runs `command` for at most `limit`; what it printed, or why it did not.
fn run(command: &mut Command, limit: Duration, most_bytes: u64) -> Answer {
    let child = spawn(command).map_err(|error| error.to_string())?;
    finish(child, limit, most_bytes)
}

fn spawn(command: &mut Command) -> io::Result<Child> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Waits for at most `limit` until a child has ended and all that it printed has arrived; kills it where it has not.
fn finish(mut child: Child, limit: Duration, most_bytes: u64) -> Answer {
    let until = Instant::now() + limit;
    let late = || format!("no answer within {} s", limit.as_secs());
    let out = collect(child.stdout.take(), most_bytes);
    let err = collect(child.stderr.take(), MESSAGE_BYTES);
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() < until => thread::sleep(LOOK),
            Ok(None) => break Err(late()),
            Err(error) => break Err(error.to_string()),
        }
    };
    let status = ended.inspect_err(|_| {
        child.kill().ok();
        child.wait().ok();
    })?;
    // A process that `kubectl` left behind may hold the pipes.
    let take = |from: mpsc::Receiver<Vec<u8>>| {
        from.recv_timeout(until.saturating_duration_since(Instant::now()).max(LOOK))
    };
    if status.success() {
        return take(out).map_err(|_| late());
    }
    let err = take(err).unwrap_or_default();
    let said = String::from_utf8_lossy(&err);
    let line = said.lines().find(|line| !line.trim().is_empty());
    Err(clean::text(line.unwrap_or("`kubectl` failed")))
}

/// Reads at most so many bytes on a thread of its own, and what follows to nowhere.
fn collect(from: Option<impl Read + Send + 'static>, most: u64) -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            from.by_ref().take(most).read_to_end(&mut bytes).ok();
            io::copy(&mut from, &mut io::sink()).ok();
        }
        send.send(bytes).ok();
    });
    receive
}

fn cannot_start(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::NotFound {
        return Failure::new("`kubectl` is not on the search path; commands in pods of a cluster are run by `kubectl exec`")
            .hint("install kubectl: https://kubernetes.io/docs/tasks/tools");
    }
    Failure::new(format!("cannot start `kubectl`: {error}"))
}

/// The terminal as it was; it is set back when this is dropped, however `kubectl` ended.
struct Terminal(Option<Termios>);

impl Terminal {
    fn save() -> Self {
        Self(tcgetattr(io::stdin()).ok())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            tcsetattr(io::stdin(), SetArg::TCSANOW, before).ok();
        }
    }
}

/// Signals that end this process are passed on instead: the end of `kubectl` is the end of this command.
struct Signals(Vec<(Signal, Arc<AtomicUsize>)>);

impl Signals {
    fn register() -> Result<Self, Failure> {
        let mut all = Vec::new();
        for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            let seen = Arc::new(AtomicUsize::new(0));
            signal_hook::flag::register_usize(number, Arc::clone(&seen), 1)
                .map_err(anyhow::Error::new)?;
            let signal = Signal::try_from(number).map_err(anyhow::Error::new)?;
            all.push((signal, seen));
        }
        Ok(Self(all))
    }

    fn pass_on(&self, child: &Child) {
        let Ok(pid) = i32::try_from(child.id()) else {
            return;
        };
        for (signal, seen) in &self.0 {
            if seen.swap(0, Ordering::Relaxed) > 0 {
                kill(Pid::from_raw(pid), *signal).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any of the scripts takes on a busy machine.
    const MINUTE: Duration = Duration::from_mins(1);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn options_are_no_names_of_pods() {
        for (name, want) in [
            ("mnist-worker-0", true),
            ("0.a", true),
            ("--kubeconfig=evil", false),
            ("-it", false),
            ("deploy/mnist", false),
            ("a b", false),
            ("", false),
        ] {
            assert_eq!(is_pod_name(name), want, "{name}");
        }
    }

    #[test]
    fn answers_are_bounded() {
        let second = Duration::from_secs(1);
        let cases: [(&str, Duration, Result<&str, &str>); 7] = [
            ("echo yes; echo no >&2", MINUTE, Ok("yes\n")),
            ("yes | head -c 100000", MINUTE, Ok("y\ny\ny\ny\n")),
            (
                "echo; echo 'no such pod' >&2; exit 1",
                MINUTE,
                Err("no such pod"),
            ),
            ("exit 3", MINUTE, Err("`kubectl` failed")),
            ("sleep 1000", second / 10, Err("no answer within 0 s")),
            // What arrives after the end is waited for, as long as there is time.
            ("(sleep 1.2; echo late) &", MINUTE, Ok("late\n")),
            (
                "sleep 20 & echo half",
                3 * second / 2,
                Err("no answer within 1 s"),
            ),
        ];
        for (script, limit, want) in cases {
            let found = run(&mut shell(script), limit, 8);
            let want = want
                .map(|text| text.as_bytes().to_vec())
                .map_err(str::to_owned);
            let want = want.map(|mut text| {
                text.truncate(8);
                text
            });
            assert_eq!(found, want, "{script}");
        }
    }
}
