//! Starting the engine and waiting for what it says.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// Nothing here takes a tenth of this on an idle machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A job in a folder of its own.
pub(crate) struct Harness {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) file: Value,
    user: Option<&'static str>,
    open_files: Option<u32>,
    without_umask: bool,
}

/// A container `pytorch` that runs `script`.
pub(crate) fn sh(script: &str) -> Value {
    json!({"spec": {"containers": [container(script)]}})
}

pub(crate) fn container(script: &str) -> Value {
    json!({
        "name": "pytorch", "command": ["sh", "-c", script],
        "ports": [{"name": "pytorchjob-port", "containerPort": 23456}],
        "env": [{"name": "ATTEMPT", "valueFrom": {"fieldRef": {
            "fieldPath": "metadata.labels['trainyard.dev/attempt']"}}}],
    })
}

impl Harness {
    /// A `PyTorchJob` with `workers` workers and no master: worker 0 decides.
    pub(crate) fn new(workers: u32, template: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = json!({
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j",
            "stateDir": folder.path().join(".trainyard"), "workingDir": folder.path(),
            "roles": {"Worker": {"replicas": workers, "restartPolicy": "OnFailure", "template": template}},
        });
        Self {
            folder,
            file,
            user: None,
            open_files: None,
            without_umask: false,
        }
    }

    pub(crate) fn set(mut self, key: &str, value: Value) -> Self {
        self.file[key] = value;
        self
    }

    pub(crate) fn policy(mut self, policy: &str) -> Self {
        self.file["roles"]["Worker"]["restartPolicy"] = json!(policy);
        self
    }

    /// Runs as an ordinary user where the test runs as root.
    pub(crate) fn for_ordinary_user(mut self) -> Self {
        self.user = nix::unistd::geteuid().is_root().then_some("65534");
        self
    }

    /// Lets the engine have this many descriptors at most.
    pub(crate) fn open_files(mut self, most: u32) -> Self {
        self.open_files = Some(most);
        self
    }

    /// Lets the engine run with umask 0.
    pub(crate) fn without_umask(mut self) -> Self {
        self.without_umask = true;
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    pub(crate) fn start(&self) -> Run {
        let request = self.path().join("request.json");
        std::fs::write(&request, self.file.to_string()).unwrap();
        let mut words: Vec<OsString> = Vec::new();
        if self.without_umask {
            words.extend(["sh", "-c", "umask 0; exec \"$@\"", "sh"].map(OsString::from));
        }
        if let Some(most) = self.open_files {
            words.extend(["prlimit".into(), format!("--nofile={most}:{most}").into()]);
        }
        let program = match self.user {
            Some(_) => self.reachable_engine(),
            None => engine(),
        };
        if let Some(user) = self.user {
            give(self.path(), user);
            let who = [
                "setpriv",
                "--reuid",
                user,
                "--regid",
                user,
                "--clear-groups",
            ];
            words.extend(who.map(OsString::from));
        }
        words.extend([program.into(), "run".into(), request.into()]);
        let (program, arguments) = words.split_first().unwrap();
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap();
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        Run {
            child,
            lines,
            seen: Vec::new(),
        }
    }

    pub(crate) fn run(&self) -> Ended {
        self.start().finish()
    }

    /// The engine in the folder of the job: what cargo built may lie in a home that an ordinary user cannot enter.
    fn reachable_engine(&self) -> PathBuf {
        let copy = self.path().join("engine");
        if !copy.exists() {
            // By another process: what this one writes itself, a child that another test starts just then holds open, and no file that is
            // open for writing can be executed.
            let done = Command::new("cp").arg(engine()).arg(&copy).status();
            assert!(done.unwrap().success());
        }
        copy
    }
}

/// Gives `folder` and what is in it to `user`.
fn give(folder: &Path, user: &str) {
    let owner = format!("{user}:{user}");
    let done = Command::new("chown")
        .args(["-R", &owner])
        .arg(folder)
        .status();
    assert!(done.unwrap().success());
}

/// The example program. Cargo builds it beside the tests, but not where only these tests are asked
/// for (`cargo test --test it`); one that is missing or older than its sources is built here.
pub(crate) fn engine() -> PathBuf {
    static ENGINE: OnceLock<PathBuf> = OnceLock::new();
    let found = ENGINE.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let target = test.parent().and_then(Path::parent).unwrap();
        let engine = target.join("examples").join("engine");
        if !is_fresh(&engine) {
            let profile = match target.file_name().and_then(|name| name.to_str()).unwrap() {
                "debug" => "dev",
                name => name,
            };
            let built = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--package", env!("CARGO_PKG_NAME")])
                .args(["--example", "engine", "--profile", profile, "--target-dir"])
                .arg(target.parent().unwrap())
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status();
            assert!(built.unwrap().success(), "`engine` cannot be built");
        }
        engine
    });
    found.clone()
}

/// Whether `program` is as new as every source that cargo lists beside it.
fn is_fresh(program: &Path) -> bool {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified());
    let (Ok(built), Ok(sources)) = (
        changed(program),
        std::fs::read_to_string(program.with_extension("d")),
    ) else {
        return false;
    };
    let mut sources = sources.split_whitespace().skip(1).map(Path::new);
    sources.all(|source| changed(source).is_ok_and(|changed| changed <= built))
}

/// A run that goes on.
pub(crate) struct Run {
    pub(crate) child: Child,
    lines: Receiver<Value>,
    pub(crate) seen: Vec<Value>,
}

impl Run {
    /// Waits until a line to come is as `wanted`.
    pub(crate) fn wait_for(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{what} was never said, only {:#?}", self.seen)
                }
            }
        }
    }

    /// Waits for `text`, should it not be there yet, in the output of `pod`, such as `Worker 0`.
    pub(crate) fn wait_for_output(&mut self, pod: &str, text: &str) {
        let said =
            |line: &Value| line["output"] == pod && line["text"].as_str().unwrap().contains(text);
        if !self.seen.iter().any(said) {
            self.wait_for(text, said);
        }
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    pub(crate) fn finish(mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("no end, only {:#?}", self.seen),
            }
        }
        let code = self.child.wait().unwrap().code();
        Ended {
            code,
            seen: std::mem::take(&mut self.seen),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // A test that failed leaves nothing running.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A run that is over.
pub(crate) struct Ended {
    /// Its exit code.
    pub(crate) code: Option<i32>,
    pub(crate) seen: Vec<Value>,
}

impl Ended {
    /// What each pod of `attempt` wrote, both streams, by pod.
    pub(crate) fn output(&self, attempt: u32) -> BTreeMap<String, String> {
        let mut output = BTreeMap::new();
        for line in &self.seen {
            if let Some(pod) = line["output"].as_str()
                && line["attempt"] == attempt
            {
                let text = line["text"].as_str().unwrap();
                *output.entry(pod.to_owned()).or_insert_with(String::new) += text;
            }
        }
        output
    }

    pub(crate) fn report(&self) -> &Value {
        let finished = self.seen.iter().find(|line| !line["finished"].is_null());
        match finished {
            Some(line) => &line["finished"],
            None => panic!("no report in {:#?}", self.seen),
        }
    }

    pub(crate) fn error(&self) -> &str {
        let error = self.seen.iter().find_map(|line| line["error"].as_str());
        error.unwrap_or_else(|| panic!("no error in {:#?}", self.seen))
    }

    pub(crate) fn notes(&self) -> Vec<&str> {
        self.seen
            .iter()
            .filter_map(|line| line["note"].as_str())
            .collect()
    }
}

/// Waits until `holds`; for what happens outside of the engine, which cannot report it.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: never");
        std::thread::yield_now();
    }
}
