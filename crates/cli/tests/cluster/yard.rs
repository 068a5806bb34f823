//! A namespace, an operator, and the commands that are tried on them.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Every wait ends after this, with what was seen last.
const PATIENCE: Duration = Duration::from_mins(2);
/// The program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_trainyard");

/// Runs `test` with a namespace of its own, if there is a cluster.
pub(crate) fn on_cluster(name: &str, test: impl FnOnce(&Yard)) {
    on(name, "TRAINYARD_CLUSTER", test);
}

/// Runs `test` with a namespace of its own, if there are real nodes.
pub(crate) fn on_real_nodes(name: &str, test: impl FnOnce(&Yard)) {
    on(name, "TRAINYARD_REAL_NODES", test);
}

fn on(name: &str, variable: &str, test: impl FnOnce(&Yard)) {
    #[expect(
        clippy::disallowed_methods,
        reason = "how the suite says what there is"
    )]
    let is_there = std::env::var_os(variable).is_some();
    if !is_there {
        eprintln!("skipped: `{variable}` is not set; `cargo xtask test --only cluster` sets it");
        return;
    }
    let yard = Yard {
        namespace: format!("cli-{name}-{}", std::process::id()),
        folder: tempfile::tempdir().unwrap(),
    };
    let made = Command::new("kubectl")
        .args(["create", "namespace", &yard.namespace])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    test(&yard);
    // Only a test that went well clears up: what is left of another tells why.
    yard.kubectl(&["delete", "namespace", &yard.namespace, "--wait=false"]);
}

/// One namespace of the cluster.
pub(crate) struct Yard {
    pub(crate) namespace: String,
    folder: tempfile::TempDir,
}

/// What came of a call.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// What it printed, as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// An operator that lives as long as this value.
pub(crate) struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Yard {
    /// Starts the operator of the namespace. Its log is kept where a failed test leaves it.
    pub(crate) fn operator(&self) -> Operator {
        let log = fs::File::create(self.folder.path().join("operator.log")).unwrap();
        let child = Command::new(PROGRAM)
            .args(["operator", "--no-leader-elect", "--namespace"])
            .arg(&self.namespace)
            .stderr(log)
            .spawn()
            .unwrap();
        Operator(child)
    }

    /// Makes an object.
    pub(crate) fn put(&self, object: &Value) {
        let mut child = Command::new("kubectl")
            .args(["create", "--filename", "-", "--namespace"])
            .arg(&self.namespace)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(object.to_string().as_bytes()).unwrap();
        drop(input);
        assert!(child.wait().unwrap().success(), "{object:#}");
    }

    /// Calls `kubectl` in the namespace; it must succeed.
    pub(crate) fn kubectl(&self, words: &[&str]) -> String {
        let outcome = call(
            Command::new("kubectl")
                .args(words)
                .args(["--namespace", &self.namespace]),
        );
        assert_eq!(outcome.code, Some(0), "{words:?}: {outcome:?}");
        outcome.stdout
    }

    /// Calls the program for the cluster, in the namespace.
    pub(crate) fn trainyard(&self, words: &[&str]) -> Outcome {
        call(
            Command::new(PROGRAM)
                .args(words)
                .args(["--cluster", "-n", &self.namespace]),
        )
    }

    /// Calls the program as `kubectl trainyard`.
    pub(crate) fn plugin(&self, words: &[&str]) -> Outcome {
        let link = self.folder.path().join("kubectl-trainyard");
        if !link.exists() {
            symlink(PROGRAM, &link).unwrap();
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "where kubectl looks for its plugins"
        )]
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.folder.path().display());
        call(
            Command::new("kubectl")
                .env("PATH", path)
                .arg("trainyard")
                .args(words)
                .args(["-n", &self.namespace]),
        )
    }

    /// Waits until the status of `job` is as `wanted`.
    pub(crate) fn until_status(&self, job: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until(&["status", job, "--format", "json"], wanted)
    }

    /// Waits until `job` is where it is because of `cause`.
    pub(crate) fn until_cause(&self, job: &str, cause: &str) -> Value {
        self.until(&["explain", job, "--format", "json"], |answer| {
            answer["cause"] == cause
        })
    }

    fn until(&self, words: &[&str], wanted: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let outcome = self.trainyard(words);
            let value = outcome.json();
            if wanted(&value) {
                return value;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{words:?} in {}: {value:#}",
                self.namespace
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn call(command: &mut Command) -> Outcome {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
