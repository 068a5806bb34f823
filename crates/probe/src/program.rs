//! External programs: found on a search path, run without a shell, and ended.
//!
//! Invariant: a program ends within its time, with everything that it started, and is reaped; of what it prints no more
//! than [`KEPT`] bytes of each stream are held, and the rest is read and dropped, so that it never waits for a reader.

use std::{
    io::{self, Read},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};
use trainyard_core::probe::tools::{Ending, Ran};

/// Bytes of one stream that are kept: errors come first, and results last.
const KEPT: usize = 64 << 10;
/// Those of them that are the first of the stream.
const FIRST: usize = KEPT / 4;
/// How often it is looked whether a program has ended.
const SLICE: Duration = Duration::from_millis(10);
/// How long is waited for what cannot be waited for by itself: a killed process that hangs in the kernel, a stream that
/// another process holds open.
const PATIENCE: Duration = Duration::from_secs(1);
/// The variable that no external program is to see.
const SECRET: &str = trainyard_core::launch::preflight::variable_name::TOKEN;

/// The first file called `name` in these folders that may be executed.
pub(crate) fn find(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        let meta = path.metadata().ok();
        meta.is_some_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let mut paths = folders.iter().map(|folder| folder.join(name));
    paths.find(is_program)
}

/// Runs a program to its end, for at most `within`.
pub(crate) fn run(path: &Path, words: &[String], within: Duration) -> Ran {
    match Running::start(path, words) {
        Ok(running) => running.finish(within, || false),
        Err(error) => not_started(&error),
    }
}

/// The result of a program that did not start.
pub(crate) fn not_started(error: &io::Error) -> Ran {
    Ran {
        ending: Ending::NotStarted(error.to_string()),
        output: String::new(),
        errors: String::new(),
    }
}

/// A program under way, in a process group of its own.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    group: Pid,
    output: Receiver<String>,
    errors: Receiver<String>,
    begun: Instant,
}

impl Running {
    pub(crate) fn start(path: &Path, words: &[String]) -> io::Result<Self> {
        let mut child = Command::new(path)
            .args(words)
            .env_remove(SECRET)
            // It logs errors at this level, and an image that sets more would bury the result.
            .env("NCCL_DEBUG", "WARN")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let group = Pid::from_raw(child.id().try_into().map_err(io::Error::other)?);
        Ok(Self {
            output: gather(child.stdout.take()),
            errors: gather(child.stderr.take()),
            child,
            group,
            begun: Instant::now(),
        })
    }

    /// Waits until it ends, for at most `within`. Once `is_over` it has only [`PATIENCE`] left.
    pub(crate) fn finish(mut self, within: Duration, mut is_over: impl FnMut() -> bool) -> Ran {
        let mut until = self.begun + within;
        let mut dismissed = false;
        let ended = loop {
            if let Some(ending) = self.ended() {
                break Some(ending);
            }
            let now = Instant::now();
            if now >= until {
                break None;
            }
            if !dismissed && is_over() {
                dismissed = true;
                until = until.min(now + PATIENCE);
            }
            thread::sleep(SLICE);
        };
        // Also what it has left behind: the group is there as long as its first process is not reaped.
        killpg(self.group, Signal::SIGKILL).ok();
        self.reap();
        let ending = match ended {
            Some(ending) => ending,
            None if dismissed => Ending::Dismissed,
            None => Ending::Hung(u64::try_from(within.as_millis()).unwrap_or(u64::MAX)),
        };
        let read = |stream: &Receiver<String>| stream.recv_timeout(PATIENCE).unwrap_or_default();
        Ran {
            ending,
            output: read(&self.output),
            errors: read(&self.errors),
        }
    }

    /// How it ended, where it has. It is not reaped by that.
    fn ended(&self) -> Option<Ending> {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.group), look) {
            Ok(WaitStatus::Exited(_, code)) => Some(Ending::Exited(Some(code))),
            Ok(WaitStatus::Signaled(..)) | Err(Errno::ECHILD) => Some(Ending::Exited(None)),
            _ => None,
        }
    }

    /// A process that hangs in the kernel cannot even be killed, and is not waited for.
    fn reap(&mut self) {
        let until = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(SLICE);
        }
    }
}

/// Reads a stream to its end, on a thread of its own, and keeps its beginning and its end.
fn gather(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let kept = stream.map(keep).unwrap_or_default();
        // The receiver may have stopped waiting.
        drop(sender.send(kept));
    });
    receiver
}

fn keep(mut stream: impl Read) -> String {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let mut is_cut = false;
    let mut block = [0; 8 << 10];
    loop {
        let count = match stream.read(&mut block) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let (head, tail) = block[..count].split_at(count.min(FIRST - first.len()));
        first.extend_from_slice(head);
        last.extend_from_slice(tail);
        if let Some(over) = last
            .len()
            .checked_sub(KEPT - FIRST)
            .filter(|over| *over > 0)
        {
            last.drain(..over);
            is_cut = true;
        }
    }
    let mut text = String::from_utf8_lossy(&first).into_owned();
    if is_cut {
        text.push_str("\n…\n");
    }
    text.push_str(&String::from_utf8_lossy(&last));
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write as _;

    use super::*;

    /// Writes a script that stands in for a program.
    ///
    /// Another process writes it: a thread of this one that starts a program at the same time would hand it the open
    /// file, and nothing that is open for writing can be executed.
    pub(crate) fn stand_in(folder: &Path, name: &str, body: &str) {
        let mut writer = Command::new("/bin/sh")
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(folder.join(name))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = writer.stdin.take().unwrap();
        write!(input, "#!/bin/sh\n{body}\n").unwrap();
        drop(input);
        assert!(writer.wait().unwrap().success());
    }

    fn ran(body: &str, within: Duration) -> Ran {
        let folder = tempfile::tempdir().unwrap();
        stand_in(folder.path(), "tool", body);
        run(&folder.path().join("tool"), &["one".to_owned()], within)
    }

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn programs_end_as_they_end() {
        let cases = [
            (
                "echo $1; echo bad >&2",
                Ending::Exited(Some(0)),
                "one\n",
                "bad\n",
            ),
            ("echo no; exit 3", Ending::Exited(Some(3)), "no\n", ""),
            ("kill -9 $$", Ending::Exited(None), "", ""),
        ];
        for (body, ending, output, errors) in cases {
            let ran = ran(body, LONG);
            assert_eq!(
                (ran.ending, ran.output.as_str(), ran.errors.as_str()),
                (ending, output, errors),
                "{body}"
            );
        }
        let missing = run(Path::new("/nowhere/tool"), &[], LONG);
        assert!(
            matches!(missing.ending, Ending::NotStarted(_)),
            "{missing:?}"
        );
    }

    #[test]
    fn hanging_program_is_killed_with_children() {
        let folder = tempfile::tempdir().unwrap();
        let child = folder.path().join("child");
        // The one that it leaves behind would hold its streams open.
        let body = format!(
            "sleep 1000 & echo $! > {}\necho begun\nwait",
            child.display()
        );
        stand_in(folder.path(), "tool", &body);
        let running = Running::start(&folder.path().join("tool"), &[]).unwrap();
        let begun = Instant::now();
        let written = || std::fs::read_to_string(&child).is_ok_and(|text| text.ends_with('\n'));
        while !written() {
            assert!(begun.elapsed() < LONG, "it never began");
            thread::sleep(SLICE);
        }
        let ran = running.finish(Duration::from_millis(1), || false);
        assert_eq!(ran.ending, Ending::Hung(1));
        assert_eq!(ran.output, "begun\n");
        let left: i32 = std::fs::read_to_string(&child)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{left}/stat")).ok()?;
            stat.rsplit(')').next()?.trim().chars().next()
        };
        let begun = Instant::now();
        // It is gone, or waits to be reaped by its new parent.
        while !matches!(state(), None | Some('Z')) {
            assert!(begun.elapsed() < LONG, "{left} is still there");
            thread::sleep(SLICE);
        }
    }

    #[test]
    fn dismissed_program_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        stand_in(folder.path(), "tool", "exec sleep 1000");
        let running = Running::start(&folder.path().join("tool"), &[]).unwrap();
        assert_eq!(running.finish(LONG, || true).ending, Ending::Dismissed);
    }

    #[test]
    fn output_without_end_is_dropped_and_not_held() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let body = format!("echo first\n: > {}\nexec yes endless", mark.display());
        stand_in(folder.path(), "tool", &body);
        let running = Running::start(&folder.path().join("tool"), &[]).unwrap();
        let ran = running.finish(LONG, || mark.exists());
        assert_eq!(ran.ending, Ending::Dismissed);
        assert!(ran.output.starts_with("first\n"), "{}", ran.output.len());
        assert!(ran.output.len() <= KEPT + 16, "{}", ran.output.len());
        let long = format!("begin{}end", "-".repeat(1 << 20));
        let kept = keep(long.as_bytes());
        assert!(kept.starts_with("begin--") && kept.ends_with("--end"));
        assert!(kept.len() <= KEPT + 16);
        assert_eq!(keep(&b"short"[..]), "short");
    }

    #[test]
    fn programs_are_found_in_the_order_of_the_folders() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folders = [one.path().to_owned(), two.path().to_owned()];
        assert_eq!(find("tool", &folders), None);
        stand_in(two.path(), "tool", "");
        // A file that is not executable, and a folder of that name, are skipped.
        std::fs::write(one.path().join("tool"), "").unwrap();
        std::fs::create_dir(one.path().join("other")).unwrap();
        assert_eq!(find("tool", &folders), Some(two.path().join("tool")));
        assert_eq!(find("other", &folders), None);
    }
}
