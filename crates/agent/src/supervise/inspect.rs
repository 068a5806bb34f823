//! What people ask a supervisor for: what its ranks do right now, over a socket in its folder.
//!
//! A command that is run in the container is no ancestor of the program, so under Yama only the supervisor may read its stacks. The command
//! is this program itself ([`ask`]); it asks, prints the answer and ends.
//!
//! Invariants: only the user of the supervisor, and root, get an answer; one at a time; a request has [`REQUEST_BYTES`] at most, and every
//! read and write a limit. Nothing but stacks can be asked for, and no answer changes anything.

use std::{
    fs::{self, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::socket::{getsockopt, sockopt::PeerCredentials},
    unistd::geteuid,
};
use serde::{Deserialize, Serialize};
use trainyard_core::launch::supervise::{
    SOCKET, SuperviseSettings, SupervisedRanks, variable_name,
};
use trainyard_stacks::report::{PodToRead, ToRead, read};

use crate::log_message;

/// Bytes of a request, at most: so many name a thousand ranks.
const REQUEST_BYTES: usize = 8 * 1024;
/// Bytes of an answer, at most: what a pod with many ranks and threads has is far below it.
const ANSWER_BYTES: u64 = 64 << 20;
/// How long a request may take to arrive.
const REQUEST_WITHIN: Duration = Duration::from_secs(2);
/// How long an answer may take, to be written or to come.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// After a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(500);
/// Reading the stacks of large programs recurses a little.
const STACK: usize = 512 * 1024;

/// What is asked for.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    /// Also threads without a Python stack.
    native: bool,
    /// The name of the pod, as whoever asks knows it; it is repeated in the answer.
    pod: String,
    /// Only these ranks; all of the pod where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ranks: Vec<u32>,
}

/// The socket, and the thread that answers. The socket is removed with this value.
#[derive(Debug)]
pub(crate) struct Inspect {
    path: PathBuf,
    attempt: Arc<AtomicU32>,
}

impl Inspect {
    /// Listens in `folder` for a pod with these ranks.
    pub(crate) fn start(folder: &Path, held: SupervisedRanks) -> io::Result<Self> {
        let path = folder.join(SOCKET);
        // One that a supervisor before this one left in the volume.
        if fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket()) {
            fs::remove_file(&path)?;
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let attempt = Arc::new(AtomicU32::new(0));
        let running = Arc::clone(&attempt);
        let thread = thread::Builder::new().name("inspect".to_owned());
        thread.stack_size(STACK).spawn(move || {
            for stream in listener.incoming() {
                let answered = stream.and_then(|stream| answer(stream, held, &running));
                if let Err(error) = answered {
                    log_message(&format!("a request for stacks was not answered: {error}"));
                    thread::sleep(PAUSE);
                }
            }
        })?;
        Ok(Self { path, attempt })
    }

    /// The program of `attempt` is started.
    pub(crate) fn set_attempt(&self, attempt: u32) {
        self.attempt.store(attempt, Ordering::Relaxed);
    }
}

impl Drop for Inspect {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}

fn answer(mut stream: UnixStream, held: SupervisedRanks, attempt: &AtomicU32) -> io::Result<()> {
    let peer = getsockopt(&stream, PeerCredentials)?;
    if peer.uid() != geteuid().as_raw() && peer.uid() != 0 {
        return Err(io::Error::other(format!(
            "user {} is not the user of this container",
            peer.uid()
        )));
    }
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    let request = read_request(&mut stream)?;
    let last = held.first.saturating_add(held.count.saturating_sub(1));
    let stacks = read(ToRead {
        attempt: attempt.load(Ordering::Relaxed),
        rank_count: held.all,
        pods: vec![PodToRead {
            name: request.pod,
            first: std::process::id(),
            ranks: (held.count > 0).then_some(held.first..=last),
        }],
        missing: Vec::new(),
        only: request.ranks,
        native: request.native,
    });
    let text = serde_json::to_vec(&stacks)?;
    stream.write_all(&text)
}

/// One line of JSON.
fn read_request(stream: &mut UnixStream) -> io::Result<Request> {
    let until = Instant::now() + REQUEST_WITHIN;
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || bytes.len() >= REQUEST_BYTES {
            return Err(io::Error::other("it is no request"));
        }
        stream.set_read_timeout(Some(left))?;
        let mut piece = [0; REQUEST_BYTES];
        let count = stream.read(&mut piece)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    serde_json::from_slice(&bytes).map_err(io::Error::from)
}

/// Asks the supervisor of this container for the stacks of `ranks`, of all its ranks where there are none, and prints them as JSON; returns the
/// exit code. `lookup` returns variables of the environment.
pub fn ask_for_stacks(
    pod: &str,
    ranks: &[u32],
    native: bool,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> i32 {
    match ask(pod, ranks, native, lookup) {
        Ok(answer) => i32::from(io::stdout().write_all(&answer).is_err()),
        Err(why) => {
            log_message(&why);
            1
        }
    }
}

fn ask(
    pod: &str,
    ranks: &[u32],
    native: bool,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<u8>, String> {
    let settings = lookup(variable_name::SETTINGS)
        .and_then(|text| serde_json::from_str::<SuperviseSettings>(&text).ok());
    let folder = settings.and_then(|settings| settings.run);
    let folder = folder.ok_or("this container has no supervisor that can be asked")?;
    let path = Path::new(&folder).join(SOCKET);
    let request = Request {
        native,
        pod: pod.to_owned(),
        ranks: ranks.to_vec(),
    };
    let mut request = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
    request.push(b'\n');
    if request.len() > REQUEST_BYTES {
        return Err(format!(
            "a request for {} ranks has {} bytes, at most {REQUEST_BYTES} are allowed",
            ranks.len(),
            request.len()
        ));
    }
    let asked = || -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&path)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(REQUEST_WITHIN))?;
        stream.write_all(&request)?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES).read_to_end(&mut answer)?;
        if answer.is_empty() {
            return Err(io::Error::other("it refused to answer"));
        }
        Ok(answer)
    };
    asked().map_err(|error| format!("the supervisor of this container does not answer: {error}"))
}

#[cfg(test)]
mod tests {
    use trainyard_stacks::report::RunStacks;

    use super::*;

    const RANKS: SupervisedRanks = SupervisedRanks {
        first: 4,
        count: 2,
        all: 8,
    };

    fn settings(folder: &Path) -> impl Fn(&str) -> Option<String> {
        let text = format!(
            r#"{{"job":"j","slot":{{"role":"Worker","index":3}},"exitsOnSuccess":true,"identity":"/id","leader":"a:1",
            "startWithinMs":7000,"ranks":{{"first":4,"count":2,"all":8}},"run":"{}",
            "watch":{{"mode":"act","hangAfterMs":1,"hangFloorMs":2,"firstStepWithinMs":3}}}}"#,
            folder.display()
        );
        move |name| (name == variable_name::SETTINGS).then(|| text.clone())
    }

    #[test]
    fn ranks_without_a_process_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let inspect = Inspect::start(folder.path(), RANKS).unwrap();
        inspect.set_attempt(3);
        let socket = folder.path().join(SOCKET);
        let mode = fs::metadata(&socket).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let cases: [(&[u32], &[u32]); 4] =
            [(&[], &[4, 5]), (&[], &[4, 5]), (&[5], &[5]), (&[6], &[])];
        for (ranks, want) in cases {
            let answer = ask("p", ranks, false, &settings(folder.path())).unwrap();
            let stacks: RunStacks = serde_json::from_slice(&answer).unwrap();
            assert_eq!((stacks.attempt, stacks.rank_count), (3, 8));
            let missing: Vec<u32> = stacks.missing.iter().map(|it| it.rank).collect();
            assert_eq!(missing, want, "{ranks:?}");
        }
        let error = ask("p", &[1_000_000; 2000], false, &settings(folder.path())).unwrap_err();
        assert!(
            error.starts_with("a request for 2000 ranks has 16"),
            "{error}"
        );
        drop(inspect);
        assert!(!socket.exists());
        let error = ask("p", &[], false, &settings(folder.path())).unwrap_err();
        assert!(error.contains("does not answer"), "{error}");
    }

    #[test]
    fn what_is_no_request_gets_no_answer() {
        let folder = tempfile::tempdir().unwrap();
        let _inspect = Inspect::start(folder.path(), RANKS).unwrap();
        let long = [b'x'; 2 * REQUEST_BYTES];
        for bad in [&b"{}\n"[..], b"stacks\n", &long] {
            let mut stream = UnixStream::connect(folder.path().join(SOCKET)).unwrap();
            // It may be closed before all is written.
            stream.write_all(bad).ok();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).ok();
            assert!(answer.is_empty(), "{answer:?}");
        }
        // The next one is answered all the same.
        assert!(ask("p", &[], true, &settings(folder.path())).is_ok());
    }

    #[test]
    fn left_over_socket_is_replaced_and_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join(SOCKET);
        drop(UnixListener::bind(&socket).unwrap());
        drop(Inspect::start(folder.path(), RANKS).unwrap());
        fs::write(&socket, "mine").unwrap();
        assert!(Inspect::start(folder.path(), RANKS).is_err());
        assert_eq!(fs::read_to_string(&socket).unwrap(), "mine");
    }

    #[test]
    fn container_without_a_supervisor_says_so() {
        let error = ask("p", &[], false, &|_| None).unwrap_err();
        assert_eq!(error, "this container has no supervisor that can be asked");
    }
}
