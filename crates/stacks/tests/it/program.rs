//! Python programs that stand still where a test wants to read them.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use trainyard_stacks::{Frame, Stacks, ThreadStack};

/// How long a test waits for a condition; a loaded machine needs seconds to start an interpreter.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The interpreters to test: `python3` of the search path, and `python3` of every folder of `TRAINYARD_PYTHONS`.
pub(crate) fn interpreters() -> Vec<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test has no cli that could pass it"
    )]
    let folders = std::env::var("TRAINYARD_PYTHONS").unwrap_or_default();
    let folders = folders.split(':').filter(|folder| !folder.is_empty());
    let mut found = vec![PathBuf::from("python3")];
    found.extend(folders.map(|folder| Path::new(folder).join("python3")));
    found
}

/// A running program.
pub(crate) struct Program {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    script: String,
    folder: tempfile::TempDir,
}

impl Program {
    /// Starts `script`, and waits until it has printed a line.
    ///
    /// The script may call `stop()`, which blocks until the standard input is closed.
    pub(crate) fn start(python: &Path, script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.py");
        std::fs::File::create(&path)
            .unwrap()
            .write_all(script.as_bytes())
            .unwrap();
        let mut child = Command::new(python)
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start `{}`: {error}", python.display()));
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line.trim(), "ready", "{} has not started", python.display());
        let stdin = child.stdin.take();
        Self {
            child,
            stdin,
            script: script.to_owned(),
            folder,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets `stop()` return.
    pub(crate) fn release(&mut self) {
        drop(self.stdin.take());
    }

    /// The line that ends in the comment `# name`.
    pub(crate) fn line(&self, name: &str) -> u32 {
        let mark = format!("# {name}");
        let position = self.script.lines().position(|line| line.ends_with(&mark));
        let position = position.unwrap_or_else(|| panic!("no line is marked {name}"));
        u32::try_from(position + 1).unwrap()
    }

    /// Whether `frame` is `function` at the marked line of the script.
    pub(crate) fn is_at(&self, frame: &Frame, function: &str, mark: &str) -> bool {
        let path = self.folder.path().join("train.py");
        short(frame) == function
            && frame.file == path.to_str().unwrap()
            && frame.line == Some(self.line(mark))
    }

    /// Reads the stacks until `wanted` is met by one of them, and returns that.
    pub(crate) fn until(&self, wanted: impl Fn(&ThreadStack) -> bool) -> ThreadStack {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stacks = Stacks::of(self.pid());
            if let Ok(stacks) = &stacks
                && let Some(found) = stacks.iter().find(|stack| wanted(stack))
            {
                return found.clone();
            }
            assert!(Instant::now() < deadline, "no such stack in {stacks:#?}");
            std::thread::yield_now();
        }
    }

    /// The stack whose innermost calls are these functions, each at its marked line.
    pub(crate) fn stack_of(&self, calls: &[(&str, &str)]) -> ThreadStack {
        self.until(|stack| {
            stack.frames.len() >= calls.len()
                && stack
                    .frames
                    .iter()
                    .zip(calls)
                    .all(|(frame, (function, mark))| self.is_at(frame, function, mark))
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The name of a function without what it is defined in.
pub(crate) fn short(frame: &Frame) -> &str {
    frame.function.rsplit('.').next().unwrap_or_default()
}
