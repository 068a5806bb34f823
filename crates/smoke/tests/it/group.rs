//! A group of trainer processes, watched through their output.

use std::{
    env,
    ffi::OsStr,
    fmt,
    io::{self, BufRead, BufReader, Read},
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread::{self, JoinHandle},
    time::Duration,
};

/// How long a line, or the end of a process, is waited for.
const LIMIT: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Kill,
    Terminate,
}

/// How a process ended.
pub(crate) struct Ended {
    /// None if it was killed.
    pub(crate) code: Option<i32>,
    pub(crate) lines: Vec<String>,
    pub(crate) errors: String,
}

impl fmt::Debug for Ended {
    /// With its last lines only, for a run has hundreds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = &self.lines[self.lines.len().saturating_sub(20)..];
        f.debug_struct("Ended")
            .field("code", &self.code)
            .field("last_lines", &last)
            .field("errors", &self.errors)
            .finish()
    }
}

/// The ranks that were started; those still running are killed when it goes.
pub(crate) struct Group {
    processes: Vec<Process>,
}

struct Process {
    rank: usize,
    child: Child,
    seen: Vec<String>,
    lines: Receiver<String>,
    errors: Option<JoinHandle<io::Result<String>>>,
}

impl Group {
    /// Starts all ranks of a world of `size`.
    pub(crate) fn start(size: usize, flags: &[&str]) -> io::Result<Self> {
        Self::start_some(size, &(0..size).collect::<Vec<_>>(), flags)
    }

    /// Starts only these ranks of a world of `size`.
    pub(crate) fn start_some(size: usize, ranks: &[usize], flags: &[&str]) -> io::Result<Self> {
        let port = free_port()?;
        let start = |rank: &usize| Process::start(*rank, size, port, flags);
        let processes = ranks.iter().map(start).collect::<io::Result<_>>()?;
        Ok(Self { processes })
    }

    /// Starts all ranks of a world of `size`, each with its own flags.
    pub(crate) fn start_each(
        size: usize,
        flags: impl Fn(usize) -> Vec<String>,
    ) -> io::Result<Self> {
        let port = free_port()?;
        let start = |rank| Process::start(rank, size, port, &flags(rank));
        let processes = (0..size).map(start).collect::<io::Result<_>>()?;
        Ok(Self { processes })
    }

    /// Waits until `rank` writes a line that begins with `beginning`.
    pub(crate) fn wait_for(&mut self, rank: usize, beginning: &str) -> io::Result<()> {
        let rank = self.rank(rank)?;
        loop {
            let line = rank.lines.recv_timeout(LIMIT).map_err(|error| {
                let seen = rank.seen.join("\n");
                io::Error::other(format!("no line `{beginning}…` ({error}) after:\n{seen}"))
            })?;
            let found = line.starts_with(beginning);
            rank.seen.push(line);
            if found {
                return Ok(());
            }
        }
    }

    pub(crate) fn signal(&mut self, rank: usize, signal: Signal) -> io::Result<()> {
        let child = &mut self.rank(rank)?.child;
        match signal {
            Signal::Kill => child.kill(),
            Signal::Terminate => {
                let kill = format!("kill -TERM {}", child.id());
                let status = Command::new("/bin/sh").args(["-c", &kill]).status()?;
                if status.success() {
                    Ok(())
                } else {
                    Err(io::Error::other(kill))
                }
            }
        }
    }

    /// Waits for the end of every rank.
    pub(crate) fn finish(mut self) -> io::Result<Vec<Ended>> {
        self.processes.iter_mut().map(Process::finish).collect()
    }

    fn rank(&mut self, rank: usize) -> io::Result<&mut Process> {
        let found = self
            .processes
            .iter_mut()
            .find(|started| started.rank == rank);
        found.ok_or_else(|| io::Error::other(format!("rank {rank} was not started")))
    }
}

impl Process {
    /// Starts one rank. A world of one gets no environment at all.
    fn start(rank: usize, size: usize, port: u16, flags: &[impl AsRef<OsStr>]) -> io::Result<Self> {
        let mut command = Command::new(trainer()?);
        command.args(flags).env_clear();
        if size > 1 {
            command
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", size.to_string())
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", port.to_string());
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (Some(out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::Error::other("the output is not piped"));
        };
        let (say, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            for line in lines {
                if say.send(line).is_err() {
                    break;
                }
            }
        });
        let errors = thread::spawn(move || {
            let mut text = String::new();
            err.read_to_string(&mut text).map(|_| text)
        });
        Ok(Self {
            rank,
            child,
            seen: Vec::new(),
            lines,
            errors: Some(errors),
        })
    }

    fn finish(&mut self) -> io::Result<Ended> {
        // The end of its output is the end of the process, near enough, and can be waited for with
        // a limit.
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) => self.seen.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(error) => return Err(io::Error::other(format!("{self}: {error}"))),
            }
        }
        let status = self.child.wait()?;
        let errors = self.errors.take().and_then(|thread| thread.join().ok());
        Ok(Ended {
            code: status.code(),
            lines: std::mem::take(&mut self.seen),
            errors: errors.ok_or_else(|| io::Error::other("no error output"))??,
        })
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} after:\n{}", self.rank, self.seen.join("\n"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // Only those that a failed test leaves behind are still there.
            if process.child.kill().is_ok() {
                process.child.wait().ok();
            }
        }
    }
}

/// A port that was free a moment ago.
fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// The example program, which `cargo test` builds beside this one.
fn trainer() -> io::Result<PathBuf> {
    let here = env::current_exe()?;
    let path = here
        .parent()
        .and_then(|deps| deps.parent())
        .map(|profile| profile.join("examples/smoke-trainer"));
    path.filter(|path| path.is_file()).ok_or_else(|| {
        let hint = "first run `cargo build -p trainyard-smoke --example smoke-trainer`";
        io::Error::new(io::ErrorKind::NotFound, hint)
    })
}
