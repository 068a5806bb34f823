//! A namespace for one test, and the commands that run in it.

use std::{
    cell::Cell,
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value;
use trainyard_core::spec;

/// Timeout of every wait; the failure shows the last value.
const PATIENCE: Duration = Duration::from_mins(5);
/// Poll interval.
const LOOK: Duration = Duration::from_millis(100);
/// The program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_trainyard");

/// Every test holds it shared; a test whose operator manages the whole cluster holds it exclusively.
static CLUSTER: RwLock<()> = RwLock::new(());

/// Runs `test` with a namespace of its own, if there is a cluster.
pub(crate) fn on_cluster(name: &str, test: impl FnOnce(&TestNamespace)) {
    let _shared = CLUSTER.read().unwrap_or_else(PoisonError::into_inner);
    on(name, "TRAINYARD_CLUSTER", test);
}

/// Runs `test` with a namespace of its own, if there are real nodes.
pub(crate) fn on_real_nodes(name: &str, test: impl FnOnce(&TestNamespace)) {
    let _shared = CLUSTER.read().unwrap_or_else(PoisonError::into_inner);
    on(name, "TRAINYARD_REAL_NODES", test);
}

/// Runs `test` as [`on_real_nodes`] does, while no other test runs.
pub(crate) fn alone_on_real_nodes(name: &str, test: impl FnOnce(&TestNamespace)) {
    let _alone = CLUSTER.write().unwrap_or_else(PoisonError::into_inner);
    on(name, "TRAINYARD_REAL_NODES", test);
}

fn on(name: &str, variable: &str, test: impl FnOnce(&TestNamespace)) {
    #[expect(
        clippy::disallowed_methods,
        reason = "how the suite says what there is"
    )]
    let is_there = std::env::var_os(variable).is_some();
    if !is_there {
        eprintln!("skipped: `{variable}` is not set; `cargo xtask cluster test` sets it");
        return;
    }
    let namespace = TestNamespace::new(format!("cli-{name}-{}", std::process::id()));
    test(&namespace);
    // A test that failed leaves its objects for inspection.
    namespace.clear();
}

/// Where the suite keeps what it gives the tests of a cluster.
pub(crate) fn suite_folder() -> PathBuf {
    #[expect(
        clippy::disallowed_methods,
        reason = "how the suite says what there is"
    )]
    let folder = std::env::var_os("TRAINYARD_CLUSTER");
    PathBuf::from(folder.unwrap())
}

/// The job of an example.
pub(crate) fn example(file: &str) -> Value {
    let path = format!("{}/../../examples/{file}", env!("CARGO_MANIFEST_DIR"));
    let file = spec::read(&fs::read(path).unwrap()).unwrap();
    let mut documents = file.documents.iter();
    let job = documents.find(|document| document.job_kind().is_some());
    job.unwrap().tree.to_json()
}

/// One namespace of the cluster.
pub(crate) struct TestNamespace {
    pub(crate) namespace: String,
    folder: tempfile::TempDir,
    /// How many files of the folder were named.
    files: AtomicU32,
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

impl TestNamespace {
    fn new(namespace: String) -> Self {
        let made = call(Command::new("kubectl").args(["create", "namespace", &namespace]));
        assert_eq!(made.code, Some(0), "{made:?}");
        let fixture = Self {
            namespace,
            folder: tempfile::tempdir().unwrap(),
            files: AtomicU32::new(0),
        };
        // Pods are admitted only once the namespace has its account.
        fixture.wait("the namespace has its account", || {
            let account = ["get", "serviceaccount", "default", "--ignore-not-found"];
            (!fixture.kubectl(&account).is_empty()).then_some(())
        });
        fixture
    }

    /// Another namespace for the same test.
    pub(crate) fn beside(&self, name: &str) -> Self {
        Self::new(format!("{}-{name}", self.namespace))
    }

    /// Asks for the end of the namespace.
    pub(crate) fn clear(&self) {
        self.kubectl(&["delete", "namespace", &self.namespace, "--wait=false"]);
    }

    /// A path of the test's own folder at which nothing is yet.
    pub(crate) fn new_file(&self, name: &str) -> PathBuf {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        self.folder.path().join(format!("{number}-{name}"))
    }

    /// Makes an object.
    pub(crate) fn put(&self, object: &Value) {
        let made = self.try_put(object, &[]);
        assert_eq!(made.code, Some(0), "{made:?}: {object:#}");
    }

    /// Asks for an object to be made, with further `words` to `kubectl`.
    pub(crate) fn try_put(&self, object: &Value, words: &[&str]) -> Outcome {
        let path = self.file_of(object);
        let within = ["create", "--namespace", &self.namespace, "--filename"];
        call(Command::new("kubectl").args(within).arg(path).args(words))
    }

    /// Makes objects be so, each where it says that it belongs.
    pub(crate) fn apply(&self, objects: &Value) {
        let made = self.try_apply(objects, &[]);
        assert_eq!(made.code, Some(0), "{made:?}: {objects:#}");
    }

    /// Asks for objects to be so, with further `more` to `kubectl`.
    pub(crate) fn try_apply(&self, objects: &Value, more: &[&str]) -> Outcome {
        let path = self.file_of(objects);
        let words = ["apply", "--server-side", "--force-conflicts", "--filename"];
        call(Command::new("kubectl").args(words).arg(path).args(more))
    }

    /// Changes an object by a merge patch, if that is allowed.
    pub(crate) fn try_patch(&self, object: &str, change: &Value) -> Outcome {
        let words = ["patch", object, "--type=merge", "--namespace"];
        let change = format!("--patch={change}");
        call(
            Command::new("kubectl")
                .args(words)
                .args([&self.namespace, &change]),
        )
    }

    fn file_of(&self, object: &Value) -> PathBuf {
        let path = self.new_file("object.json");
        fs::write(&path, object.to_string()).unwrap();
        path
    }

    /// Calls `kubectl` in the namespace; it must succeed.
    pub(crate) fn kubectl(&self, words: &[&str]) -> String {
        kubectl_in(&self.namespace, words)
    }

    /// Calls `helm` in the namespace; it must succeed.
    pub(crate) fn helm(&self, words: &[&str]) -> String {
        let outcome = call(
            Command::new("helm")
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
        self.until_answer(job, |answer| answer["cause"] == cause)
    }

    /// Waits until what is explained of `job` is as `wanted`.
    pub(crate) fn until_answer(&self, job: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until(&["explain", job, "--format", "json"], wanted)
    }

    fn until(&self, words: &[&str], wanted: impl Fn(&Value) -> bool) -> Value {
        let last = Cell::new(Value::Null);
        self.wait_or(
            || {
                let value = self.trainyard(words).json();
                if wanted(&value) {
                    return Some(value);
                }
                last.set(value);
                None
            },
            || format!("{words:?} prints {:#}", last.take()),
        )
    }

    /// Polls until `look` returns a value; `what` names what is expected.
    pub(crate) fn wait<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> T {
        self.wait_or(look, || what.to_owned())
    }

    /// Polls until `look` returns a value; `what` describes what is expected.
    pub(crate) fn wait_or<T>(
        &self,
        mut look: impl FnMut() -> Option<T>,
        what: impl Fn() -> String,
    ) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "timed out in {}: {}",
                self.namespace,
                what()
            );
            std::thread::sleep(LOOK);
        }
    }
}

/// Calls `kubectl` in a namespace that belongs to no test; it must succeed.
pub(crate) fn kubectl_in(namespace: &str, words: &[&str]) -> String {
    kubectl(&[words, &["--namespace", namespace]].concat())
}

/// Calls `kubectl`; it must succeed.
pub(crate) fn kubectl(words: &[&str]) -> String {
    let outcome = call(Command::new("kubectl").args(words));
    assert_eq!(outcome.code, Some(0), "{words:?}: {outcome:?}");
    outcome.stdout
}

fn call(command: &mut Command) -> Outcome {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
