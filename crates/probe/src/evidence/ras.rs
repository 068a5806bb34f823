//! A client of NCCL's monitor (RAS): asks the process that listens for a report.
//!
//! The protocol is lines of text over TCP; facts are from NCCL's `src/ras`. Reports as JSON are there from 2.28.7 on; before, the server refuses the
//! format and reports text.
//!
//! Invariant: one question is under way, on a thread of its own that ends within [`CONNECT`] and [`WITHIN`], however slowly the other side sends; of
//! a report no more than [`MAX_REPORT`] bytes are read.

use std::{
    io::{self, BufRead as _, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::mpsc::{Receiver, TryRecvError, sync_channel},
    thread,
    time::{Duration, Instant},
};

/// Where NCCL listens if `NCCL_RAS_ADDR` does not say otherwise.
const PORT: u16 = 28_028;
/// How long a connection on the same machine may take.
const CONNECT: Duration = Duration::from_millis(200);
/// How long the whole conversation may take.
const WITHIN: Duration = Duration::from_secs(10);
/// How long NCCL waits for ranks that do not answer, in seconds.
const COLLECT: u32 = 2;
/// Bytes of a report: some 600 for each rank.
const MAX_REPORT: u64 = 16 << 20;
/// Bytes of a line of the handshake.
const MAX_LINE: u64 = 256;
const STACK: usize = 256 * 1024;

/// The variable with the address.
pub const ADDRESS: &str = "NCCL_RAS_ADDR";

/// The monitor of one job.
#[derive(Debug)]
pub struct Ras {
    address: SocketAddr,
    answer: Option<Receiver<Vec<u8>>>,
}

impl Ras {
    /// The one at `address`, as `NCCL_RAS_ADDR` has it; without, where NCCL listens by default. `None` where that is a name that would
    /// have to be resolved.
    pub fn new(address: Option<&str>) -> Option<Self> {
        let address = match address {
            None => SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
            Some(text) => match text.strip_prefix("localhost:") {
                Some(port) => SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?)),
                None => text.parse().ok()?,
            },
        };
        Some(Self {
            address,
            answer: None,
        })
    }

    /// Asks for a report, where none is under way.
    pub fn ask(&mut self) {
        if self.answer.is_some() {
            return;
        }
        let (done, answer) = sync_channel(1);
        let address = self.address;
        let thread = thread::Builder::new().name("ras".to_owned());
        let work = move || {
            // Nobody listens where ranks do not use NCCL, or an old one.
            if let Ok(report) = report(address, WITHIN) {
                done.send(report).ok();
            }
        };
        if thread.stack_size(STACK).spawn(work).is_ok() {
            self.answer = Some(answer);
        }
    }

    /// The report, once, where one has arrived.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        match self.answer.as_ref()?.try_recv() {
            Ok(report) => {
                self.answer = None;
                Some(report)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.answer = None;
                None
            }
        }
    }
}

/// A connection that is over at a moment, however often something arrives.
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left)
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn report(address: SocketAddr, within: Duration) -> io::Result<Vec<u8>> {
    let stream = TcpStream::connect_timeout(&address, CONNECT)?;
    let until = Instant::now() + within;
    let mut reader = BufReader::new(Timed { stream, until });
    let mut say = |words: &str| -> io::Result<String> {
        reader
            .get_mut()
            .write_all(format!("{words}\n").as_bytes())?;
        let mut line = String::new();
        reader.by_ref().take(MAX_LINE).read_line(&mut line)?;
        Ok(line)
    };
    if !say("client protocol 2")?.starts_with("SERVER PROTOCOL") {
        return Err(io::ErrorKind::InvalidData.into());
    }
    say(&format!("timeout {COLLECT}"))?;
    let is_json = say("set format json")?.starts_with("OK");
    let words: &[u8] = if is_json {
        b"verbose status\n"
    } else {
        b"status\n"
    };
    reader.get_mut().write_all(words)?;
    let mut report = Vec::new();
    reader.take(MAX_REPORT).read_to_end(&mut report)?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server that accepts the format, or refuses it; returns what it was asked.
    fn serve(listener: &TcpListener, json: bool) -> Vec<String> {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut asked = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let line = line.trim().to_owned();
            let answer = match line.as_str() {
                "client protocol 2" => "SERVER PROTOCOL 2\n",
                "set format json" if !json => "ERROR: unknown command\n",
                "status" => "text",
                "verbose status" => "{}",
                _ => "OK\n",
            };
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            let over = line.ends_with("status");
            asked.push(line);
            if over {
                return asked;
            }
        }
    }

    #[test]
    fn reports_are_asked_for() {
        for (json, want) in [(true, &b"{}"[..]), (false, b"text")] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let mut ras = Ras::new(Some(&address)).unwrap();
            ras.ask();
            let asked = serve(&listener, json);
            assert_eq!(asked[..2], ["client protocol 2", "timeout 2"]);
            let until = Instant::now() + Duration::from_secs(20);
            let report = loop {
                if let Some(report) = ras.take() {
                    break report;
                }
                assert!(Instant::now() < until, "no report");
                thread::yield_now();
            };
            assert_eq!(report, want);
        }
    }

    /// A report that arrives byte by byte and has no end.
    #[test]
    fn slow_report_is_given_up() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            stream.write_all(b"SERVER PROTOCOL 2\nOK\nOK\n").unwrap();
            while stream.write_all(b"x").is_ok() {}
        });
        let error = report(address, Duration::from_millis(300)).unwrap_err();
        let kinds = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
        assert!(kinds.contains(&error.kind()), "{error}");
        server.join().unwrap();
    }

    #[test]
    fn addresses() {
        let address = |text| Ras::new(text).map(|ras| ras.address.to_string());
        assert_eq!(address(None).as_deref(), Some("127.0.0.1:28028"));
        assert_eq!(address(Some("localhost:9")).as_deref(), Some("127.0.0.1:9"));
        assert_eq!(address(Some("[::1]:9")).as_deref(), Some("[::1]:9"));
        assert_eq!(address(Some("node-1:9")), None);
    }
}
