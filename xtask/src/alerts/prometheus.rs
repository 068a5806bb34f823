//! The programs of Prometheus, unpacked beside the other caches, and one process that scrapes one page.
//!
//! Debian's package is unpacked and not installed: installing it would start its service.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use crate::{
    Failure,
    cache::{self, cannot},
    report,
};

/// Debian's package.
const PACKAGE: &str = "prometheus";
const HINT: &str = "hint: put `prometheus` and `promtool` 2.42 or later on the path; Debian has them in the package `prometheus`";
/// How long each step of Prometheus may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// A rate needs two scrapes; the others show that counters go on.
const SCRAPES: u32 = 3;
/// A request of Prometheus has a few hundred bytes.
const HEAD_MAX: u64 = 16 * 1024;
/// An answer about the page has some kilobytes.
const ANSWER_MAX: u64 = 4 * 1024 * 1024;

/// Where the programs are.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) prometheus: PathBuf,
    pub(super) promtool: PathBuf,
}

/// Those of the path, where it has both.
fn installed() -> Option<Programs> {
    let path = cache::variable("PATH")?;
    let find = |name: &str| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|program| program.is_file())
    };
    Some(Programs {
        prometheus: find("prometheus")?,
        promtool: find("promtool")?,
    })
}

/// Where the package is unpacked. It appears by a rename.
fn folder() -> Result<PathBuf, Failure> {
    Ok(cache::folder()?.join("prometheus"))
}

fn unpacked(folder: &Path) -> Programs {
    Programs {
        prometheus: folder.join("usr/bin/prometheus"),
        promtool: folder.join("usr/bin/promtool"),
    }
}

/// Whether nothing has to be downloaded.
pub(super) fn is_there() -> Result<bool, Failure> {
    Ok(installed().is_some() || folder()?.exists())
}

/// The programs, downloaded if they are not there.
pub(super) fn programs() -> Result<Programs, Failure> {
    if let Some(found) = installed() {
        return Ok(found);
    }
    let folder = folder()?;
    let parent = cache::folder()?;
    fs::create_dir_all(&parent).map_err(cannot("make", &parent))?;
    // The kernel releases it with the process, so two makers never meet.
    let lock_path = parent.join("prometheus.lock");
    let lock = File::create(&lock_path).map_err(cannot("make", &lock_path))?;
    lock.lock().map_err(cannot("lock", &lock_path))?;
    if !folder.exists() {
        download(&folder)?;
    }
    Ok(unpacked(&folder))
}

fn download(folder: &Path) -> Result<(), Failure> {
    report::progress("downloading Prometheus");
    let scratch = folder.with_extension("part");
    if scratch.exists() {
        fs::remove_dir_all(&scratch).map_err(cannot("clear", &scratch))?;
    }
    let tree = scratch.join("tree");
    fs::create_dir_all(&tree).map_err(cannot("make", &tree))?;
    let download = || {
        run(
            Command::new("apt-get").args(["download", PACKAGE]),
            &scratch,
        )
    };
    if download().is_err() {
        // A fresh machine has no list of packages yet.
        run(Command::new("apt-get").arg("update"), &scratch)?;
        download()?;
    }
    let entries = fs::read_dir(&scratch).map_err(cannot("list", &scratch))?;
    let package = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|it| it == "deb"))
        .ok_or_else(|| Failure::CouldNotRun(format!("`apt-get` left no package\n\n{HINT}")))?;
    run(
        Command::new("dpkg").arg("-x").arg(&package).arg(&tree),
        &scratch,
    )?;
    let programs = unpacked(&tree);
    for program in [&programs.prometheus, &programs.promtool] {
        run(Command::new(program).arg("--version"), &scratch)?;
    }
    fs::rename(&tree, folder).map_err(cannot("rename", &tree))?;
    fs::remove_dir_all(&scratch).map_err(cannot("remove", &scratch))
}

/// Runs a command of the download; its output goes to our stderr only where it failed.
fn run(command: &mut Command, folder: &Path) -> Result<(), Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let could_not = |why: &str| {
        Failure::CouldNotRun(format!(
            "Prometheus is not there: `{program}` {why}\n\n{HINT}"
        ))
    };
    let output = command
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| could_not(&format!("cannot be started: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let cause = String::from_utf8_lossy(&output.stderr);
    let cause = cause.lines().next_back().unwrap_or_default().trim();
    Err(could_not(&format!("ended with {}: {cause}", output.status)))
}

/// A Prometheus that has scraped the page; it ends with this value.
pub(super) struct Prometheus {
    child: Child,
    address: String,
    /// Dropped after the process has ended.
    _page: Page,
}

impl Prometheus {
    /// Starts it on a free port of the loopback address and waits until it has scraped `page`.
    pub(super) fn start(programs: &Programs, folder: &Path, page: String) -> Result<Self, Failure> {
        let (served, scrapes) = sync_channel(1);
        let page = Page::serve(page, served)?;
        let config = folder.join("prometheus.yaml");
        // The labels of the target are those that the ServiceMonitor gives it.
        let text = format!(
            "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\nscrape_configs:\n- job_name: trainyard\n  static_configs:\n  \
             - targets: ['{}']\n    labels: {{namespace: trainyard-system, pod: trainyard-0}}\n",
            page.address
        );
        fs::write(&config, text).map_err(cannot("write", &config))?;
        let log_path = folder.join("prometheus.log");
        let mut command = Command::new(&programs.prometheus);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("data").display()
            ))
            .args([
                "--web.listen-address=127.0.0.1:0",
                "--storage.tsdb.retention.time=1h",
                "--query.timeout=10s",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            Failure::CouldNotRun(format!("cannot start `prometheus`: {error}\n\n{HINT}"))
        })?;
        let log = child.stderr.take().expect("it was piped");
        let (found, address) = sync_channel(1);
        // It ends with the pipe, which ends with the process.
        let copy = log_path.clone();
        std::thread::spawn(move || follow(log, &copy, &found));
        let mut started = Self {
            child,
            address: String::new(),
            _page: page,
        };
        let late = |what: &str| {
            Failure::Failed(format!(
                "Prometheus {what} within {} s; its log is `{}`",
                PATIENCE.as_secs(),
                log_path.display()
            ))
        };
        started.address = address
            .recv_timeout(PATIENCE)
            .map_err(|_| late("did not listen"))?;
        wait_for(&scrapes).map_err(late)?;
        Ok(started)
    }

    /// How many samples an expression has now, or why Prometheus refuses it.
    pub(super) fn samples(&self, expression: &str) -> Result<usize, String> {
        let body = self.ask(expression);
        let body = body.map_err(|error| format!("no answer of Prometheus: {error}"))?;
        if body.contains("\"status\":\"success\"") {
            // Quotes inside of a label are escaped.
            return Ok(body.matches("\"metric\":{").count());
        }
        Err(format!("Prometheus refuses `{expression}`: {body}"))
    }

    /// The answer to an instant query.
    fn ask(&self, expression: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // Version 1.0, because its answers come in one piece and end with the connection.
        write!(
            stream,
            "GET /api/v1/query?query={} HTTP/1.0\r\n\r\n",
            escaped(expression)
        )?;
        let mut answer = String::new();
        stream.take(ANSWER_MAX).read_to_string(&mut answer)?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
        Ok(body.unwrap_or_default().to_owned())
    }
}

/// Text as a part of a URL.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a String cannot fail");
        }
    }
    out
}

/// Waits for scrapes. One is stored when the next begins: scrapes of one target do not overlap.
fn wait_for(scrapes: &Receiver<u32>) -> Result<(), &'static str> {
    let mut seen = 0;
    while seen <= SCRAPES {
        seen = scrapes
            .recv_timeout(PATIENCE)
            .map_err(|_| "did not scrape the page")?;
    }
    Ok(())
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Copies the log to a file, and reports the address once it is in it.
fn follow(log: impl std::io::Read, copy: &Path, found: &SyncSender<String>) {
    let Ok(mut copy) = File::create(copy) else {
        return;
    };
    for line in BufReader::new(log).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        if let Some((_, address)) = line.split_once("msg=\"Listening on\" address=") {
            drop(found.try_send(address.trim().to_owned()));
        }
        drop(writeln!(copy, "{line}"));
    }
}

/// A server of one page; it ends with this value.
struct Page {
    address: SocketAddr,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Page {
    fn serve(page: String, served: SyncSender<u32>) -> Result<Self, Failure> {
        let cannot =
            |error: std::io::Error| Failure::CouldNotRun(format!("cannot serve a page: {error}"));
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let stops = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stops);
        let thread = std::thread::spawn(move || {
            let mut scrape = 0_u32;
            let mut awaited = true;
            while let Ok((stream, _)) = listener.accept() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                if answer(&stream, &counted(&page, scrape)).is_ok() {
                    scrape = scrape.saturating_add(1);
                    // Whoever waits sees a later one where this one has no room.
                    let sent = awaited.then(|| served.try_send(scrape));
                    awaited &= !matches!(sent, Some(Err(TrySendError::Disconnected(_))));
                }
            }
        });
        Ok(Self {
            address,
            stops,
            thread: Some(thread),
        })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::SeqCst);
        // The thread waits for a connection.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Answers one request, whatever it asks for.
fn answer(mut stream: &TcpStream, page: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut head = BufReader::new(stream.take(HEAD_MAX));
    let mut line = String::new();
    while head.read_line(&mut line)? > 2 {
        line.clear();
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{page}",
        page.len()
    )
}

/// The page with each counter, and each step, increased by the number of scrapes before: rates and speeds are above zero.
fn counted(page: &str, scrapes: u32) -> String {
    let mut text = String::with_capacity(page.len());
    for line in page.lines() {
        let more = || {
            let (series, value) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
            let name = series.split_once('{').map_or(series, |(name, _)| name);
            let ends = ["_total", "_bucket", "_count", "_sum", "_step"];
            let is_counted = ends.iter().any(|end| name.ends_with(end));
            let value: f64 = value.parse().ok().filter(|_| is_counted)?;
            Some(format!("{series} {}", value + f64::from(scrapes)))
        };
        text.push_str(&more().unwrap_or_else(|| line.to_owned()));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counters_and_steps_are_increased() {
        let page = "# TYPE a counter\na_total{b=\"c d\"} 1\ne_bucket{le=\"+Inf\"} 2\nf_step 3\ng 4\n# EOF\n";
        let want = "# TYPE a counter\na_total{b=\"c d\"} 8\ne_bucket{le=\"+Inf\"} 9\nf_step 10\ng 4\n# EOF\n";
        assert_eq!(counted(page, 7), want);
    }

    #[test]
    fn expressions_are_escaped() {
        assert_eq!(escaped("a{b=\"c\"} > 1"), "a%7Bb%3D%22c%22%7D%20%3E%201");
    }

    #[test]
    fn page_is_served_until_dropped() {
        let (served, scrapes) = sync_channel(1);
        let page = Page::serve("a 1\n".to_owned(), served).unwrap();
        let mut stream = TcpStream::connect(page.address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.ends_with("\r\n\r\na 1\n"), "{reply}");
        assert_eq!(scrapes.recv_timeout(PATIENCE), Ok(1));
        let address = page.address;
        drop(page);
        assert!(TcpStream::connect(address).is_err());
    }
}
