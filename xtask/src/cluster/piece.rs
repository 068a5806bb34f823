//! Pieces: the long-running programs of a cluster.
//!
//! A piece is a script in the folder of its cluster, so a test inside the namespaces can stop one
//! and start it again with nothing but a shell. It is a child of process 1, which outlives the call
//! that started it.

use std::{fmt::Write as _, fs, path::Path, process::Stdio, time::Duration};

use super::{Cluster, wait};
use crate::{Failure, cache::cannot, process::Process};

/// The limit on a piece's start: until its script has written its pid. A moment on an idle machine.
const START_LIMIT: Duration = Duration::from_mins(1);

/// How often a piece that is not to be seen is looked for again, and after which pause.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// One long-running program.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) name: String,
    /// The name of a program of the cluster.
    program: &'static str,
    arguments: Vec<String>,
}

impl Piece {
    pub(super) fn new(name: &str, program: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            program,
            arguments: Vec::new(),
        }
    }

    /// Adds an argument.
    pub(super) fn with(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Starts the piece, unless it runs.
    pub(super) fn start(&self, cluster: &Cluster) -> Result<(), Failure> {
        if running(cluster, &self.name).is_some() {
            return Ok(());
        }
        let state = &cluster.state;
        let mut line = quoted(&state.program(self.program).display().to_string());
        for argument in &self.arguments {
            line.push_str(" \\\n  ");
            line.push_str(&quoted(argument));
        }
        let mut script = String::new();
        let path = state.file("pieces").join(&self.name);
        write!(
            script,
            "# Run by `setsid --fork sh {}` inside the namespaces.\n\
             echo $$ >{}\n\
             PATH={}:$PATH\n\
             export PATH\n\
             exec {line} \\\n  >>{} 2>&1 </dev/null\n",
            path.display(),
            quoted(&state.file("pids").join(&self.name).display().to_string()),
            quoted(&state.text("bin")),
            quoted(&state.log(&self.name).display().to_string()),
        )
        .expect("a string takes whatever is written");
        state.write(&format!("pieces/{}", self.name), &script)?;
        start(cluster, &self.name)
    }
}

/// Starts a piece that has been started before.
pub(super) fn start(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let script = cluster.state.file("pieces").join(name);
    if !script.is_file() {
        return Err(unknown(cluster, name));
    }
    let pid = cluster.state.file("pids").join(name);
    drop(fs::remove_file(&pid));
    let status = cluster
        .namespaces
        .command(Path::new("/"), "setsid")
        .args(["--fork", "sh"])
        .arg(&script)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => {
            return Err(Failure::CouldNotRun(format!(
                "cannot start `{name}`: {status}"
            )));
        }
        Err(error) => return Err(cannot("run", &script)(error)),
    }
    wait::until(&format!("`{name}` to start"), START_LIMIT, || {
        Ok(fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')))
    })
}

/// Ends a piece with `signal` and waits for its end.
pub(super) fn stop(cluster: &Cluster, name: &str, signal: &str) -> Result<(), Failure> {
    if !cluster.state.file("pieces").join(name).is_file() {
        return Err(unknown(cluster, name));
    }
    if let Some(process) = running(cluster, name) {
        process.kill(signal);
    }
    // The API server lets its clients go first, for which it takes up to a minute.
    wait::until(&format!("`{name}` to end"), Duration::from_mins(2), || {
        Ok(running(cluster, name).is_none())
    })
}

/// The process of a piece, if it runs.
pub(super) fn running(cluster: &Cluster, name: &str) -> Option<Process> {
    find(cluster, name, cluster.namespaces.processes())
}

/// Every piece that was started, by name, with its process if it runs.
pub(super) fn all(cluster: &Cluster) -> Vec<(String, Option<Process>)> {
    let processes = cluster.namespaces.processes();
    names(cluster)
        .into_iter()
        .map(|name| {
            let process = find(cluster, &name, processes.clone());
            (name, process)
        })
        .collect()
}

/// Fails with its last words if the piece does not run.
pub(super) fn must_run(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    // A process that is just becoming another program shows no arguments for a moment.
    for _ in 0..LOOKS {
        if running(cluster, name).is_some() {
            return Ok(());
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Err(Failure::Failed(format!(
        "`{name}` ended; the last lines of `{}`:{}",
        cluster.state.log(name).display(),
        cluster.state.log_tail(name)
    )))
}

fn find(cluster: &Cluster, name: &str, processes: Vec<Process>) -> Option<Process> {
    let text = fs::read_to_string(cluster.state.file("pids").join(name)).ok()?;
    let pid: u32 = text.trim().parse().ok()?;
    let programs = cluster.state.file("bin");
    processes.into_iter().find(|process| {
        // Between its two lines the script is still a shell; later a reused pid is not a piece.
        let program = process.arguments.first().map_or("", String::as_str);
        let is_script = process
            .arguments
            .iter()
            .any(|word| Path::new(word) == cluster.state.file("pieces").join(name));
        process.inner_pid() == Some(pid) && (is_script || Path::new(program).starts_with(&programs))
    })
}

fn names(cluster: &Cluster) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(cluster.state.file("pieces"))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn unknown(cluster: &Cluster, name: &str) -> Failure {
    Failure::CouldNotRun(format!(
        "the cluster `{}` has no piece `{name}`; it has {}",
        cluster.state.name(),
        names(cluster).join(", ")
    ))
}

/// `text` as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_is_read_back_by_a_shell() {
        for word in ["plain", "two words", "it's", "$HOME `x` \\"] {
            let script = format!("printf %s {}", quoted(word));
            let output = std::process::Command::new("sh")
                .args(["-c", &script])
                .output()
                .expect("a shell starts");
            assert_eq!(String::from_utf8_lossy(&output.stdout), word);
        }
    }
}
