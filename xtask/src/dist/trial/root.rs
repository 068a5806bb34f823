//! A bare root file system: an empty folder, into which one artifact is installed, and a process that sees nothing else.
//!
//! What runs there has namespaces of its own for mounts, processes and the network, of which only the loopback device is up. All of them are gone
//! with it.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{Failure, cache::cannot, process::Process};

/// Makes `/proc` and a few devices, as everything that runs containers does, and a folder to work in; then becomes the program.
const ENTER: &str = r#"
set -eu
root=$1 user=$2 path=$3
shift 3
# The path in the root may not lead to it.
enter=$(command -v unshare)
ip link set lo up
mkdir -p "$root/proc" "$root/dev/shm" "$root/work"
# The engine puts other mounts in the place of this one.
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
for device in null zero urandom; do
  : >"dev/$device"
  mount --bind "/dev/$device" "dev/$device"
done
mount -t tmpfs -o mode=1777 tmpfs dev/shm
chown "$user" work
exec env --ignore-environment PATH="$path" HOME=/work "$enter" --root="$root" --wd=/work --setgid "$user" --setuid "$user" "$@"
"#;

/// How long a command in a root may take; the slowest took 15 s.
const LIMIT: Duration = Duration::from_mins(3);

/// Programs of the system that are called, and the package of Debian that has each.
const TOOLS: &[(&str, &str)] = &[
    ("unshare", "util-linux"),
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("tar", "tar"),
];

/// A root file system.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) folder: PathBuf,
    /// Where programs are looked for in it.
    pub(super) path: &'static str,
    /// Who runs them; groups have the same number.
    pub(super) user: u32,
}

/// What a command printed, and when.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) stdout: String,
    /// The time from the start to the first line that was looked for.
    pub(super) first: Option<Duration>,
}

/// Whether a root can be entered on this machine.
pub(super) fn possible() -> Result<(), Failure> {
    if !Process::own().is_some_and(|own| own.is_root()) {
        return Err(Failure::CouldNotRun(
            "only root can make a root file system and enter it; the artifacts are made\n\nhint: run `cargo xtask dist --test` as root".to_owned(),
        ));
    }
    for (program, package) in TOOLS {
        let found = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        // `ip` knows no such option, but starts.
        found.map_err(|error| {
            Failure::CouldNotRun(format!(
                "cannot start `{program}`: {error}\n\nhint: Debian has it in `{package}`"
            ))
        })?;
    }
    Ok(())
}

impl Root {
    /// An empty one.
    pub(super) fn new(folder: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(folder).map_err(cannot("make", folder))?;
        Ok(Self {
            folder: folder.to_owned(),
            path: "/usr/local/bin:/usr/bin:/bin",
            user: 0,
        })
    }

    /// Runs a command in it to its end, which must be a success.
    pub(super) fn run(&self, words: &[&str]) -> Result<String, Failure> {
        self.watch(words, "").map(|ran| ran.stdout)
    }

    /// The same, and when a line with `wanted` was printed first.
    pub(super) fn watch(&self, words: &[&str], wanted: &str) -> Result<Ran, Failure> {
        let shown = words.join(" ");
        let began = Instant::now();
        let mut child = Command::new("unshare")
            .args([
                "--mount",
                "--net",
                "--pid",
                "--fork",
                "--kill-child=KILL",
                "--propagation",
                "private",
            ])
            .args(["sh", "-c", ENTER, "sh"])
            .arg(&self.folder)
            .args([&self.user.to_string(), self.path])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::CouldNotRun(format!("cannot start `unshare`: {error}")))?;
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = child.stderr.take().expect("it is piped");
        let wanted = wanted.to_owned();
        // Both are read to their ends, so the program never waits for a reader.
        let printed = std::thread::spawn(move || {
            let (mut text, mut first) = (String::new(), None);
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if first.is_none() && !wanted.is_empty() && line.contains(&wanted) {
                    first = Some(began.elapsed());
                }
                text.push_str(&line);
                text.push('\n');
            }
            (text, first)
        });
        let complained = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            drop(BufReader::new(stderr).read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let ended = ended(&mut child, began)?;
        let (stdout, first) = printed.join().expect("the reader does not panic");
        let stderr = complained.join().expect("the reader does not panic");
        match ended {
            Some(true) => Ok(Ran { stdout, first }),
            Some(false) => Err(Failure::Failed(format!(
                "`{shown}` failed on the bare root file system\n{stdout}{stderr}"
            ))),
            None => Err(Failure::Failed(format!(
                "`{shown}` did not end in {} s on the bare root file system\n{stdout}{stderr}",
                LIMIT.as_secs()
            ))),
        }
    }
}

/// Whether the child succeeded; nothing if it was killed because it took too long.
fn ended(child: &mut Child, began: Instant) -> Result<Option<bool>, Failure> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(Some(status.success())),
            Ok(None) if began.elapsed() > LIMIT => {
                drop(child.kill());
                drop(child.wait());
                return Ok(None);
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => return Err(Failure::CouldNotRun(format!("lost `unshare`: {error}"))),
        }
    }
}
