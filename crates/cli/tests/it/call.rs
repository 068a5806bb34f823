//! One call of the binary, and what came of it.

use std::{
    ffi::OsString,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    rc::Rc,
    thread,
};

/// Address space that a call may take, in KiB: 350 MB, of which the program without optimization is 94 MB. Stricter than a bound on resident memory.
const MEMORY_KIB: u32 = 350_000;
/// Processor seconds that a call may take. A call waits for nothing, so this is its wall time on
/// an idle machine, and unlike wall time it does not depend on what else runs. Without
/// optimization it takes ten times as long; `cargo xtask bench core` holds the release build to
/// the second.
const SECONDS: u32 = if cfg!(debug_assertions) { 10 } else { 1 };

/// A call to be made, in a folder of its own.
pub(crate) struct Call {
    folder: Rc<tempfile::TempDir>,
    words: Vec<OsString>,
    variables: Vec<(&'static str, &'static str)>,
    is_clean: bool,
    stdin: Vec<u8>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) line: String,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Call {
    /// A call with `words` after the name of the program.
    pub(crate) fn new(words: &[&str]) -> Self {
        Self {
            folder: Rc::new(tempfile::tempdir().expect("a temporary folder can be made")),
            words: words.iter().map(OsString::from).collect(),
            variables: Vec::new(),
            is_clean: false,
            stdin: Vec::new(),
        }
    }

    /// Another call in the same folder.
    pub(crate) fn again(&self, words: &[&str]) -> Self {
        Self {
            folder: Rc::clone(&self.folder),
            ..Self::new(words)
        }
    }

    /// Puts a file into the folder of the call.
    pub(crate) fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        fs::write(self.folder.path().join(name), content).expect("the folder takes files");
        self
    }

    /// Sets a variable; all others that the program reads are unset.
    pub(crate) fn variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    /// Passes on nothing of the environment of the tests but the search path.
    pub(crate) fn clean(mut self) -> Self {
        self.is_clean = true;
        self
    }

    /// Gives the call something to read.
    pub(crate) fn stdin(mut self, content: impl Into<Vec<u8>>) -> Self {
        self.stdin = content.into();
        self
    }

    /// The folder of the call.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes the call.
    pub(crate) fn run(&self) -> Outcome {
        let mut child = self
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sh can be started");
        let mut input = child.stdin.take().expect("stdin is piped");
        let content = self.stdin.clone();
        // In a thread of its own, since a program that writes before it has read all would
        // otherwise wait for us while we wait for it. One that stops reading early is not an error.
        let feeder = thread::spawn(move || drop(input.write_all(&content)));
        let output = child.wait_with_output().expect("the call ends");
        feeder.join().expect("the feeder does not panic");
        let words: Vec<_> = self
            .words
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        Outcome {
            line: format!("trainyard {}", words.join(" ")),
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        }
    }

    /// The call as a command whose streams are not set yet, under the limits.
    pub(crate) fn command(&self) -> Command {
        let script = format!("ulimit -v {MEMORY_KIB} && ulimit -t {SECONDS} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        if self.is_clean {
            command
                .env_clear()
                .env("PATH", "/usr/local/bin:/usr/bin:/bin");
        }
        command
            .arg("-c")
            .arg(script)
            .arg(env!("CARGO_BIN_EXE_trainyard"))
            .args(&self.words)
            .current_dir(self.folder.path())
            .env_remove("NO_COLOR")
            .env_remove("TERM")
            .env_remove("CUSTOM_CLUSTER_DOMAIN")
            .envs(self.variables.iter().copied());
        command
    }
}
