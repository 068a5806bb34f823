//! What the program prints: passed on as it is, and read for signs of progress.
//!
//! The program writes to pipes. A thread for each stream copies them to this process's own streams and does nothing else, so that reading
//! never holds the program up; what is read is a copy that may be dropped.
//!
//! Invariants: at most [`PIECES`] pieces of [`PIECE`] bytes wait to be read, and at most [`MAX_STEPS`] steps to be reported.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use nix::fcntl::{FcntlArg, fcntl};
use trainyard_core::{progress::Reader, watch::Signal};

use super::wake::{self, Waker, Woken};

/// Bytes that are copied at once.
const PIECE: usize = 64 * 1024;
/// Pieces that wait to be read.
const PIECES: usize = 16;
/// What a pipe holds while this process is not on a processor; the kernel may grant less.
const PIPE: i32 = 1024 * 1024;
/// Between two pieces of a stream in which one follows the other: a program that writes line by line would wake the copy for each. The pipe
/// holds what comes meanwhile.
const PACE: Duration = Duration::from_millis(10);
/// The same where the kernel did not grant a large pipe.
const SHORT_PACE: Duration = Duration::from_millis(1);
/// Steps that are kept until they are reported: the last ones.
const MAX_STEPS: usize = 8;
/// The same for phases that began or ended.
const MAX_PHASES: usize = 8;
/// Bytes that are kept of the end of each stream.
const END: usize = 2048;
/// The threads only copy and read lines.
const STACK: usize = 256 * 1024;

/// Signs of progress of one attempt that have not been reported.
#[derive(Debug, Default)]
struct Unreported {
    attempt: u32,
    steps: VecDeque<Signal>,
    phases: VecDeque<Signal>,
    output: bool,
}

impl Unreported {
    fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.phases.is_empty() && !self.output
    }

    fn keep(&mut self, signal: Signal) {
        let (all, most) = match signal {
            Signal::Step(_) => (&mut self.steps, MAX_STEPS),
            _ => (&mut self.phases, MAX_PHASES),
        };
        all.push_back(signal);
        if all.len() > most {
            all.pop_front();
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    unreported: Mutex<Unreported>,
    /// Streams that are still copied.
    open: Mutex<usize>,
    /// The end of what each stream of the newest attempt was given.
    ends: Mutex<(u32, [Vec<u8>; 2])>,
    closed: Condvar,
}

struct Piece {
    attempt: u32,
    stream: usize,
    bytes: Vec<u8>,
}

/// The streams of the program.
#[derive(Debug)]
pub(crate) struct Lines {
    shared: Arc<Shared>,
    pieces: SyncSender<Piece>,
    woken: Woken,
}

impl Lines {
    /// Starts the thread that reads.
    pub(crate) fn start() -> io::Result<Self> {
        let (woken, waker) = wake::pair()?;
        let shared = Arc::new(Shared::default());
        let (pieces, to_read) = sync_channel(PIECES);
        let into = Arc::clone(&shared);
        spawn("lines", move || read(&to_read, &into, &waker))?;
        Ok(Self {
            shared,
            pieces,
            woken,
        })
    }

    /// The pipes that the program of `attempt` writes to, stdout and stderr, with the threads that copy them.
    pub(crate) fn open(&self, attempt: u32) -> io::Result<[PipeWriter; 2]> {
        let own = [
            io::stdout().as_fd().try_clone_to_owned()?,
            io::stderr().as_fd().try_clone_to_owned()?,
        ];
        let mut writers = Vec::new();
        for (stream, to) in own.into_iter().enumerate() {
            let (from, writer) = io::pipe()?;
            // A smaller pipe works as well.
            let large = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(PIPE)).is_ok();
            let pace = if large { PACE } else { SHORT_PACE };
            let (shared, pieces) = (Arc::clone(&self.shared), self.pieces.clone());
            let open = Open::new(&shared);
            spawn("copy", move || {
                let _open = open;
                let into = Arc::clone(&shared);
                copy(from, to, pace, |bytes| {
                    keep_end(&into, attempt, stream, bytes);
                    let bytes = bytes.to_vec();
                    // A full queue drops it.
                    pieces
                        .try_send(Piece {
                            attempt,
                            stream,
                            bytes,
                        })
                        .ok();
                });
            })?;
            writers.push(writer);
        }
        writers
            .try_into()
            .map_err(|_| io::Error::other("two pipes are needed"))
    }

    /// Whether everything that was written has been copied: no process holds a pipe any more.
    pub(crate) fn is_drained(&self) -> bool {
        *lock(&self.shared.open) == 0
    }

    /// Waits until it has, for at most `limit`.
    pub(crate) fn drain(&self, limit: Duration) {
        let open = lock(&self.shared.open);
        let waited = self
            .shared
            .closed
            .wait_timeout_while(open, limit, |open| *open > 0);
        drop(waited);
    }

    /// The last line that is not empty of stderr, or else of stdout.
    pub(crate) fn last_line(&self) -> Option<String> {
        let ends = lock(&self.shared.ends);
        let (_, [stdout, stderr]) = &*ends;
        [stderr, stdout].into_iter().find_map(|end| {
            let mut lines = end.split(|byte| *byte == b'\n').rev();
            let line = lines.find(|line| !line.trim_ascii().is_empty())?;
            Some(String::from_utf8_lossy(line.trim_ascii()).into_owned())
        })
    }

    /// Whether a program has shown something that was not taken yet.
    pub(crate) fn has_news(&self) -> bool {
        self.woken.clear();
        !lock(&self.shared.unreported).is_empty()
    }

    /// What the program of `attempt` has shown since the last report.
    pub(crate) fn take(&self, attempt: u32) -> Vec<Signal> {
        let mut unreported = lock(&self.shared.unreported);
        let taken = std::mem::take(&mut *unreported);
        if taken.attempt != attempt {
            return Vec::new();
        }
        let output = taken.output.then_some(Signal::Output);
        let signals = taken.steps.into_iter().chain(taken.phases);
        output.into_iter().chain(signals).collect()
    }
}

impl AsFd for Lines {
    /// Readable when there is something to report.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}

/// A stream that is copied, until this is dropped.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: &Arc<Shared>) -> Self {
        *lock(&shared.open) += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        *lock(&self.0.open) -= 1;
        self.0.closed.notify_all();
    }
}

/// Copies until nobody writes any more, or nobody reads: then the program gets the same error as without a supervisor.
fn copy(mut from: PipeReader, to: OwnedFd, pace: Duration, mut each: impl FnMut(&[u8])) {
    let mut to = File::from(to);
    let mut piece = vec![0; PIECE];
    let mut last: Option<Instant> = None;
    loop {
        match from.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => {
                let bytes = piece.get(..count).unwrap_or_default();
                if to.write_all(bytes).is_err() {
                    return;
                }
                each(bytes);
                let now = Instant::now();
                let busy = last.is_some_and(|last| now.duration_since(last) < 2 * pace);
                last = Some(now);
                // A full piece means that more waits.
                if busy && count < PIECE {
                    thread::sleep(pace);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn keep_end(shared: &Shared, attempt: u32, stream: usize, bytes: &[u8]) {
    let mut ends = lock(&shared.ends);
    if ends.0 != attempt {
        *ends = (attempt, [Vec::new(), Vec::new()]);
    }
    if let Some(end) = ends.1.get_mut(stream) {
        let from = bytes.len().saturating_sub(END);
        end.extend_from_slice(bytes.get(from..).unwrap_or_default());
        let over = end.len().saturating_sub(END);
        end.drain(..over);
    }
}

fn read(pieces: &Receiver<Piece>, shared: &Shared, waker: &Waker) {
    let mut readers: BTreeMap<usize, (u32, Reader)> = BTreeMap::new();
    let mut output_at: Option<Instant> = None;
    while let Ok(piece) = pieces.recv() {
        let (of, reader) = readers.entry(piece.stream).or_default();
        if *of != piece.attempt {
            (*of, *reader) = (piece.attempt, Reader::new());
        }
        let mut signals = Vec::new();
        reader.bytes(&piece.bytes, |reading| {
            signals.extend(Signal::from_reading(&reading));
        });
        // That it prints is a weak sign, and once a second is enough.
        let now = Instant::now();
        let prints = signals.is_empty()
            && output_at.is_none_or(|at| now.duration_since(at) >= Duration::from_secs(1));
        if prints {
            output_at = Some(now);
        }
        if signals.is_empty() && !prints {
            continue;
        }
        let mut unreported = lock(&shared.unreported);
        if unreported.attempt != piece.attempt {
            *unreported = Unreported {
                attempt: piece.attempt,
                ..Unreported::default()
            };
        }
        let wake = unreported.is_empty();
        unreported.output |= prints;
        for signal in signals {
            unreported.keep(signal);
        }
        drop(unreported);
        if wake {
            waker.wake();
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.stack_size(STACK).spawn(work)?;
    Ok(())
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
