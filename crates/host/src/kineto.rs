//! Answers Kineto's clients in the programs of a run, in the place of dynolog, so that a trace can be recorded without a change of
//! the script.
//!
//! Owns the socket, who may speak on it, and the files that programs write. What is answered is [`trainyard_profile::kineto`]'s. A
//! thread of its own answers, because a client waits 90 ms for an answer and takes a later one for that to its next question.
//!
//! Invariants: only the process of a rank, as the kernel identifies the sender, is ever given work, and only where a terminal asked for
//! it. One recording is in work at a time. Nothing but the files named here is looked at, and no link is followed.

mod torch;

use std::{
    fs::{self, DirBuilder},
    io::{self, IoSliceMut},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{
            fs::{DirBuilderExt as _, MetadataExt as _},
            net::UnixDatagram,
        },
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    cmsg_space,
    sys::socket::{
        ControlMessageOwned, MsgFlags, UnixAddr, UnixCredentials, recvmsg, setsockopt, sockopt,
    },
    sys::statvfs::statvfs,
    unistd::geteuid,
};
use trainyard_profile::kineto::{
    self, BASE_CONFIG, Capture, MOST_FOLDER, MOST_MESSAGE, Message, SOCKET,
};
use trainyard_stacks::ranks::{MOST_PROCESSES, Tree};

pub(crate) use self::torch::{forget_inherited, variables};
use crate::{
    channel,
    profile::{MissingTrace, Recorded, RecordedTrace, Recording},
    remote::Answer,
    stacks::PodToRead,
};

/// How long the thread waits for a message before it looks at files.
const TICK: Duration = Duration::from_millis(100);
/// Where the folders of sockets are: their path must be short.
const ROOT: &str = "/tmp";
const PREFIX: &str = "trainyard-kineto-";
/// Recordings whose files are kept.
const KEPT: u64 = 3;
/// How the sockets of clients are called.
const CLIENT: &str = "dynoconfigclient";
/// How long an answer may wait for a client that does not read: others wait meanwhile.
const SEND: Duration = Duration::from_millis(10);
/// How often sockets of clients that are gone are removed.
const SWEEP: Duration = Duration::from_mins(1);
/// A client asks every second, or every five. One that did not ask for so long is none.
const SILENCE: Duration = Duration::from_secs(15);
/// What a rank writes for a step, and for a second, as measured on a large GPU.
const STEP_BYTES: u64 = 3 << 20;
const SECOND_BYTES: u64 = 43 << 20;

/// A recording that a terminal asked for.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) recording: Recording,
    pub(crate) attempt: u32,
    /// The processes of ranks are found below the first of each pod.
    pub(crate) pods: Vec<PodToRead>,
    /// Processes of ranks that are known already.
    pub(crate) known: Vec<RankProcess>,
    /// Ranks that have no process, with the reason.
    pub(crate) missing: Vec<MissingTrace>,
    /// Who asked.
    pub(crate) socket: OwnedFd,
}

/// The process of a rank.
#[derive(Clone, Debug)]
pub(crate) struct RankProcess {
    pub(crate) rank: u32,
    pub(crate) pod: String,
    pub(crate) pid: u32,
}

/// The thread that answers. It ends with this value.
#[derive(Debug)]
pub(crate) struct Daemon {
    folders: Folders,
    orders: SyncSender<Order>,
    /// Whether a recording is in work.
    busy: Arc<AtomicBool>,
}

/// Where the sockets are, and where traces are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folders {
    pub(crate) sockets: PathBuf,
    pub(crate) traces: PathBuf,
}

impl Folders {
    /// The file that `KINETO_CONFIG` names.
    pub(crate) fn configuration(&self) -> PathBuf {
        self.sockets.join("kineto.conf")
    }
}

impl Daemon {
    /// Makes the folders and starts the thread; traces are written into `traces`.
    pub(crate) fn start(traces: PathBuf) -> io::Result<Self> {
        sweep(Path::new(ROOT));
        let sockets = Path::new(ROOT).join(format!("{PREFIX}{}", std::process::id()));
        Self::start_in(Folders { sockets, traces })
    }

    fn start_in(folders: Folders) -> io::Result<Self> {
        let length = folders.sockets.as_os_str().len();
        if length > MOST_FOLDER {
            return Err(io::Error::other(format!(
                "`{}` is too long for the sockets of clients: {length} bytes of at most {MOST_FOLDER}",
                folders.sockets.display()
            )));
        }
        // Its lines have no escapes: `#` begins a comment, and the process id is put before the first `.json`.
        let traces = folders.traces.to_str();
        if traces.is_none_or(|path| path.contains(['#', '\n', '\r']) || path.contains(".json")) {
            return Err(io::Error::other(format!(
                "the profiler cannot write into `{}`: its path holds `#`, `.json`, a line end or bytes that are not UTF-8",
                folders.traces.display()
            )));
        }
        let private = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        private(&folders.sockets)?;
        private(&folders.traces)?;
        fs::write(folders.configuration(), BASE_CONFIG)?;
        let socket = UnixDatagram::bind(folders.sockets.join(SOCKET))?;
        socket.set_read_timeout(Some(TICK))?;
        socket.set_write_timeout(Some(SEND))?;
        setsockopt(&socket, sockopt::PassCred, &true)?;
        let (orders, to_do) = sync_channel(1);
        let busy = Arc::default();
        let worker = Worker {
            socket,
            folders: folders.clone(),
            active: None,
            next: 1,
            busy: Arc::clone(&busy),
            swept: Instant::now(),
        };
        let thread = thread::Builder::new().name("kineto".to_owned());
        thread.spawn(move || worker.work(&to_do))?;
        Ok(Self {
            folders,
            orders,
            busy,
        })
    }

    pub(crate) fn folders(&self) -> &Folders {
        &self.folders
    }

    /// Records as ordered; the thread answers the terminal.
    pub(crate) fn order(&self, order: Order) -> Result<(), String> {
        check_room(&self.folders.traces, &order.recording)?;
        let refused = "a trace of this run is being recorded for another terminal; try again when it has ended";
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err(refused.to_owned());
        }
        self.orders.try_send(order).map_err(|error| {
            self.busy.store(false, Ordering::Release);
            match error {
                TrySendError::Full(_) => refused.to_owned(),
                TrySendError::Disconnected(_) => {
                    "the thread that records traces has ended; the log of the run says why"
                        .to_owned()
                }
            }
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // What is left of it is removed by the next run of this user.
        fs::remove_dir_all(&self.folders.sockets).ok();
    }
}

/// Removes the folders of engines that were killed.
fn sweep(root: &Path) {
    let entries = fs::read_dir(root)
        .into_iter()
        .flatten()
        .take(10_000)
        .flatten();
    for entry in entries {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else {
            continue;
        };
        // Links are not followed: this is about the entry itself.
        let about = entry.metadata().ok();
        let own = about.is_some_and(|it| it.is_dir() && it.uid() == geteuid().as_raw());
        let is_used = pid != std::process::id() && lives(pid);
        if own && !is_used {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

/// Whether the disk has twice the room that traces may take: a full one would end the job's own logs and checkpoints.
fn check_room(traces: &Path, recording: &Recording) -> Result<(), String> {
    let each = match recording.extent {
        kineto::Extent::Steps { count, .. } => {
            (u64::from(count).saturating_add(1)).saturating_mul(STEP_BYTES)
        }
        kineto::Extent::Seconds(seconds) => u64::from(seconds).saturating_mul(SECOND_BYTES),
    };
    let ranks = recording.ranks.len().max(1) as u64;
    let all = each.saturating_mul(ranks);
    // Where the disk does not say, nothing is refused.
    let Ok(found) = statvfs(traces) else {
        return Ok(());
    };
    let free = found
        .blocks_available()
        .saturating_mul(found.fragment_size());
    if free / 2 >= all {
        return Ok(());
    }
    Err(format!(
        "traces may take {} MiB, and `{}` has {} MiB free; twice as much is needed: record fewer ranks, steps or seconds",
        all >> 20,
        traces.display(),
        free >> 20
    ))
}

/// Removes the sockets of clients that are gone: a client never does, and a program that starts workers leaves one for each.
fn sweep_clients(folder: &Path) {
    let Ok(probe) = UnixDatagram::unbound() else {
        return;
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_client = entry.file_name().to_string_lossy().starts_with(CLIENT);
        if !is_client {
            continue;
        }
        // Sends nothing. Refused where no process has the socket open.
        let connected = probe.connect(entry.path());
        if connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            fs::remove_file(entry.path()).ok();
        }
    }
}

/// One rank that is recorded.
#[derive(Debug)]
struct Recorder {
    process: RankProcess,
    /// Whether its client asked for work since.
    asked: bool,
    capture: Capture,
    /// How its file begins; the client adds its process id.
    prefix: String,
    configuration: String,
}

/// The recording in work.
#[derive(Debug)]
struct Active {
    request: u64,
    order: Order,
    ranks: Vec<Recorder>,
    /// Until then a client may be silent.
    silent_until: Instant,
    until: Instant,
}

struct Worker {
    socket: UnixDatagram,
    folders: Folders,
    active: Option<Active>,
    next: u64,
    busy: Arc<AtomicBool>,
    /// When sockets of clients were looked at.
    swept: Instant,
}

impl Worker {
    fn work(mut self, orders: &Receiver<Order>) {
        loop {
            match orders.try_recv() {
                Ok(order) => self.begin(order),
                Err(std::sync::mpsc::TryRecvError::Empty) => {}
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            }
            // A client that is gone, or one beyond its bounds, costs nobody anything.
            self.receive().ok();
            self.look();
            if self.swept.elapsed() > SWEEP {
                sweep_clients(&self.folders.sockets);
                self.swept = Instant::now();
            }
        }
    }

    fn begin(&mut self, order: Order) {
        let request = self.next;
        self.next += 1;
        self.remove_older(request);
        let recording = &order.recording;
        let is_wanted = |rank: u32| recording.ranks.is_empty() || recording.ranks.contains(&rank);
        let mut ranks: Vec<Recorder> = Vec::new();
        for process in processes(&order) {
            if !is_wanted(process.rank) {
                continue;
            }
            let name = format!("request-{request}-rank-{}", process.rank);
            let file = self.folders.traces.join(format!("{name}.json"));
            ranks.push(Recorder {
                capture: Capture::default(),
                prefix: format!("{name}_"),
                configuration: kineto::configuration(
                    &file.display().to_string(),
                    recording.extent,
                    recording.detail,
                    request,
                ),
                asked: false,
                process,
            });
        }
        ranks.sort_by_key(|it| it.process.rank);
        ranks.dedup_by_key(|it| it.process.rank);
        let until = Instant::now() + Duration::from_secs(recording.timeout_seconds.into());
        self.active = Some(Active {
            request,
            order,
            ranks,
            silent_until: Instant::now() + SILENCE,
            until,
        });
    }

    /// Removes the traces of recordings that are too old to be kept.
    fn remove_older(&self, request: u64) {
        let Some(newest) = request.checked_sub(KEPT) else {
            return;
        };
        for entry in fs::read_dir(&self.folders.traces)
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("request-"));
            let number = number.and_then(|name| name.split('-').next()?.parse::<u64>().ok());
            if number.is_some_and(|number| number <= newest) {
                fs::remove_file(entry.path()).ok();
            }
        }
    }

    /// Takes one message, where there is one, and answers it.
    fn receive(&mut self) -> io::Result<()> {
        // One byte more than a message may have, so that a longer one is recognised.
        let mut bytes = [0; MOST_MESSAGE + 1];
        let mut space = cmsg_space!(UnixCredentials);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg::<UnixAddr>(
            self.socket.as_raw_fd(),
            &mut parts,
            Some(&mut space),
            MsgFlags::empty(),
        )?;
        let length = received.bytes;
        let sender = received.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmCredentials(sender) => Some(sender),
            _ => None,
        });
        let address = received
            .address
            .and_then(|it| it.path().map(Path::to_owned));
        let (Some(sender), Some(address)) = (sender, address) else {
            return Ok(());
        };
        let Ok(message) = Message::read(bytes.get(..length).unwrap_or_default()) else {
            return Ok(());
        };
        let answer = match message {
            Message::Context => kineto::context_answer(1),
            Message::Request { free, .. } => {
                let pid = u32::try_from(sender.pid()).unwrap_or(0);
                kineto::request_answer(&self.work_for(pid, free))
            }
        };
        // Always from this socket: a client ends its program over an answer from another folder.
        self.socket.send_to(&answer, address).map(drop)
    }

    /// The configuration for the process `pid`, which asks for work; empty where there is none for it.
    fn work_for(&mut self, pid: u32, free: bool) -> String {
        let ranks = self.active.iter_mut().flat_map(|active| &mut active.ranks);
        let mut own = ranks.filter(|it| it.process.pid == pid);
        let Some(rank) = own.next() else {
            return String::new();
        };
        rank.asked = true;
        if rank.capture.asked(free) {
            rank.configuration.clone()
        } else {
            String::new()
        }
    }

    /// Looks at the files of the recording in work, and answers the terminal where nothing more follows.
    fn look(&mut self) {
        let Some(active) = &mut self.active else {
            return;
        };
        let names = file_names(&self.folders.traces);
        for rank in &mut active.ranks {
            let mut own = names.iter().filter(|name| name.starts_with(&rank.prefix));
            let whole = own.clone().any(|name| is_trace(name));
            rank.capture
                .files(own.any(|name| name.strip_suffix(".tmp").is_some()), whole);
        }
        let is_late = Instant::now() >= active.silent_until;
        let settled = active.ranks.iter().all(|rank| {
            rank.capture.is_settled() || is_late && !rank.asked || !lives(rank.process.pid)
        });
        if !settled && Instant::now() < active.until {
            return;
        }
        if let Some(active) = self.active.take() {
            let recorded = self.recorded(&active, &names);
            let memory = channel::to_memory(&recorded);
            self.busy.store(false, Ordering::Release);
            let sent = memory.and_then(|memory| {
                channel::send(
                    &active.order.socket,
                    &Answer::Profile,
                    &[memory.as_raw_fd()],
                )
            });
            // The terminal may be gone.
            drop(sent);
        }
    }

    fn recorded(&self, active: &Active, names: &[String]) -> Recorded {
        let recording = &active.order.recording;
        let by_steps = matches!(recording.extent, kineto::Extent::Steps { .. });
        let mut recorded = Recorded {
            request: active.request,
            attempt: active.order.attempt,
            traces: Vec::new(),
            missing: active.order.missing.clone(),
        };
        for rank in &active.ranks {
            let is_own = |name: &&String| name.starts_with(&rank.prefix) && is_trace(name);
            match names.iter().find(is_own) {
                Some(name) => recorded.traces.push(RecordedTrace {
                    rank: rank.process.rank,
                    pod: rank.process.pod.clone(),
                    path: self.folders.traces.join(name),
                }),
                None => recorded.missing.push(MissingTrace {
                    rank: rank.process.rank,
                    reason: if lives(rank.process.pid) {
                        rank.capture.reason(by_steps).to_owned()
                    } else {
                        "its process ended before its trace was written".to_owned()
                    },
                }),
            }
        }
        let seen: Vec<u32> = active.ranks.iter().map(|it| it.process.rank).collect();
        for rank in &recording.ranks {
            let known = seen.contains(rank) || recorded.missing.iter().any(|it| it.rank == *rank);
            if !known {
                recorded.missing.push(MissingTrace {
                    rank: *rank,
                    reason: "no process of its pod is known to be this rank".to_owned(),
                });
            }
        }
        recorded.missing.sort_by_key(|it| it.rank);
        recorded
    }
}

/// The processes of the ranks of an order.
fn processes(order: &Order) -> Vec<RankProcess> {
    let mut found = order.known.clone();
    for pod in &order.pods {
        let tree = Tree::below(pod.first, MOST_PROCESSES);
        for (rank, at) in tree.ranks(pod.ranks.as_ref()) {
            if let Some(process) = tree.process(at) {
                found.push(RankProcess {
                    rank,
                    pod: pod.name.clone(),
                    pid: process.id,
                });
            }
        }
    }
    found
}

/// Whether a client has given a file its last name.
fn is_trace(name: &str) -> bool {
    name.strip_suffix(".json").is_some()
}

fn lives(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// The names of regular files in a folder.
fn file_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let mut names: Vec<String> = files
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests;
