//! One stream of ours and one of `iperf3` over the same pair of interfaces, in turns.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::{Figure, OF_IPERF};
use crate::{
    Failure,
    cache::{self, cannot},
    report, step,
    test::hosts,
};

/// Seconds of each stream.
const SECONDS: &str = "3";
/// Streams of each; the median counts.
const TURNS: usize = 5;
/// The far end of the pair.
const FAR: &str = "10.79.0.2";
/// The packages of Debian, unpacked into the cache and never installed.
const PACKAGES: &[&str] = &["iperf3", "libiperf0", "libsctp1"];

pub(super) fn figure() -> Result<Figure, Failure> {
    hosts::available()?;
    let iperf = Iperf::find()?;
    report::progress("building the stream of a preflight");
    let ours = step::released_tool("stream")?;
    let pair = Pair::make()?;
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        report::progress(&format!("one stream each, {} of {TURNS}", turn + 1));
        own.push(pair.stream(&ours)?);
        theirs.push(pair.iperf(&iperf)?);
    }
    let (own, theirs) = (median(own), median(theirs));
    let ratio = own / theirs;
    Ok(Figure {
        name: "one stream beside `iperf3`, the same pair of interfaces".to_owned(),
        measured: format!("{ratio:.2} ({:.1} and {:.1} Gb/s)", own / 1e9, theirs / 1e9),
        bound: format!("at least {OF_IPERF}"),
        met: ratio >= OF_IPERF,
    })
}

/// `iperf3`, and where its libraries are.
struct Iperf {
    program: PathBuf,
    libraries: Option<PathBuf>,
}

impl Iperf {
    fn find() -> Result<Self, Failure> {
        let installed = Path::new("/usr/bin/iperf3");
        if installed.is_file() {
            return Ok(Self {
                program: installed.to_owned(),
                libraries: None,
            });
        }
        let root = cache::folder()?.join("iperf3");
        if !root.exists() {
            report::progress("fetching `iperf3`, once");
            let unfinished = root.with_extension("unfinished");
            let packages = unfinished.join("packages");
            fs::create_dir_all(&packages).map_err(cannot("make", &packages))?;
            step::run(
                Command::new("apt-get")
                    .args(["--quiet=2", "download"])
                    .args(PACKAGES)
                    .current_dir(&packages),
            )?;
            for entry in fs::read_dir(&packages).map_err(cannot("list", &packages))? {
                let package = entry.map_err(cannot("list", &packages))?.path();
                step::run(
                    Command::new("dpkg-deb")
                        .arg("--extract")
                        .arg(package)
                        .arg(&unfinished),
                )?;
            }
            fs::rename(&unfinished, &root).map_err(cannot("make", &root))?;
        }
        Ok(Self {
            program: root.join("usr/bin/iperf3"),
            libraries: Some(root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH))),
        })
    }

    fn command(&self, namespace: &Namespace) -> Command {
        let mut command = namespace.command(&self.program);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }
}

/// A network namespace, held by a process that ends when its stdin does.
struct Namespace(Child);

impl Namespace {
    fn make() -> Result<Self, Failure> {
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo ready && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(lost)?;
        let output = holder.stdout.take().expect("stdout is piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(lost)?;
        Ok(Self(holder))
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.0.id()))
            .arg(program);
        command
    }

    fn ip(&self, line: &str) -> Result<(), Failure> {
        step::run(self.command(Path::new("ip")).args(line.split(' ')))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

/// Two namespaces with a pair of interfaces between them.
struct Pair {
    near: Namespace,
    far: Namespace,
}

impl Pair {
    fn make() -> Result<Self, Failure> {
        let (near, far) = (Namespace::make()?, Namespace::make()?);
        let other = far.0.id();
        near.ip(&format!(
            "link add net1 type veth peer name net1 netns {other}"
        ))?;
        for (namespace, address) in [(&near, "10.79.0.1"), (&far, FAR)] {
            namespace.ip(&format!("address add {address}/24 dev net1"))?;
            namespace.ip("link set net1 up")?;
        }
        Ok(Self { near, far })
    }

    /// Bits in a second of one of our streams.
    fn stream(&self, program: &Path) -> Result<f64, Failure> {
        let address = format!("{FAR}:5301");
        let mut receiver = self
            .far
            .command(program)
            .args(["receive", &address, SECONDS])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(lost)?;
        let mut output = BufReader::new(receiver.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        output.read_line(&mut line).map_err(lost)?;
        step::run(self.near.command(program).args(["send", &address, SECONDS]))?;
        let mut rate = String::new();
        output.read_to_string(&mut rate).map_err(lost)?;
        receiver.wait().map_err(lost)?;
        let number = rate.trim().parse();
        number.map_err(|_| Failure::Failed(format!("our stream printed `{}`", rate.trim())))
    }

    /// Bits in a second of one stream of `iperf3`, as its receiver counts them, after a second that
    /// does not count.
    fn iperf(&self, iperf: &Iperf) -> Result<f64, Failure> {
        let mut server = iperf
            .command(&self.far)
            .args(["--server", "--one-off", "--forceflush"])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(lost)?;
        let mut output = BufReader::new(server.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        while !line.contains("listening") {
            line.clear();
            if output.read_line(&mut line).map_err(lost)? == 0 {
                return Err(Failure::Failed("`iperf3` does not listen".to_owned()));
            }
        }
        let text = step::capture(iperf.command(&self.near).args([
            "--client", FAR, "--time", SECONDS, "--omit", "1", "--format", "k",
        ]))?;
        let mut rest = String::new();
        output.read_to_string(&mut rest).map_err(lost)?;
        server.wait().map_err(lost)?;
        received(&text).ok_or_else(|| Failure::Failed(format!("`iperf3` printed {text}")))
    }
}

/// The rate on the line of the receiver.
fn received(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.ends_with("receiver"))?;
    let mut words = line.split_whitespace().rev();
    words.find(|word| *word == "Kbits/sec")?;
    let kilobits: f64 = words.next()?.parse().ok()?;
    Some(kilobits * 1e3)
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the form that `map_err` takes"
)]
fn lost(error: std::io::Error) -> Failure {
    Failure::CouldNotRun(format!("lost a program while it ran: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_receiver_is_read() {
        let text = "[ ID] Interval           Transfer     Bitrate         Retr\n\
                    [  5]   0.00-3.00   sec  10.1 GBytes  28981000 Kbits/sec    0             sender\n\
                    [  5]   0.00-3.00   sec  10.1 GBytes  28980000 Kbits/sec                  receiver\n";
        assert_eq!(received(text), Some(28_980_000_000.0));
        assert_eq!(received("iperf3: error"), None);
    }
}
