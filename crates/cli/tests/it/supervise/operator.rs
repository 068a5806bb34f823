//! An operator that is played by the test: it accepts a leader, stores what [`Coordinator`] says, and sends its orders.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use trainyard_core::{
    barrier::{
        Barrier, Coordinator, Envelope, HangReport, Limits, PodHealth, SeenJob, SeenPod, SlotSet,
        StopHow, Stored, Summary, Wish,
    },
    launch::agent::file,
    spec::Slot,
};

use super::{JOB, TOKEN};

/// How long one read of the connection waits, so that steps are taken in between.
const READ: Duration = Duration::from_millis(10);

/// What the test sees of the operator.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) stored: Stored,
    pub(super) connections: u32,
    /// The newest hang of each attempt.
    pub(super) hangs: Vec<HangReport>,
    /// The newest summary.
    pub(super) summary: Summary,
    pub(super) bad_tokens: u32,
    /// The gang is to restart although nothing failed.
    pub(super) restart: bool,
    /// The gang is held for so long, and nothing restarts meanwhile.
    pub(super) hold: Option<Duration>,
}

impl Seen {
    /// How many members have reported.
    pub(super) fn reported(&self) -> u32 {
        let groups = self.summary.groups.iter();
        groups.map(|group| group.slots.len()).sum()
    }
}

/// The operator. It ends with this value.
pub(super) struct Operator {
    pub(super) seen: Arc<Mutex<Seen>>,
    pub(super) address: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Operator {
    /// Serves the gang of `slots`, whose pods have the uids `uid-INDEX`, with the certificate in `folder`.
    pub(super) fn start(folder: &Path, slots: &[Slot], how: StopHow) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Seen {
            stored: Stored {
                attempt: 1,
                barrier: None,
            },
            ..Seen::default()
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let mut world = World {
            seen: Arc::clone(&seen),
            slots: slots.iter().copied().collect(),
            leader: slots[0],
            pods: slots
                .iter()
                .map(|slot| {
                    let pod = SeenPod {
                        uid: format!("uid-{}", slot.index),
                        attempt: 1,
                        health: PodHealth::Well,
                    };
                    (*slot, pod)
                })
                .collect(),
            coordinator: Coordinator::new(JOB.to_owned(), patient()),
            origin: Instant::now(),
            how,
        };
        let config = config(folder);
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((socket, _)) => {
                        // A connection that ends is made again.
                        drop(world.serve(socket, &config, &stopped));
                        world.coordinator.leader_gone();
                    }
                    Err(_) => thread::sleep(READ),
                }
            }
        });
        Self {
            seen,
            address,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Beside other tests a member may take long, and is not lost for it.
fn patient() -> Limits {
    Limits {
        stop_within: Duration::from_mins(3),
        ready_within: Duration::from_mins(3),
        silent_after: Duration::from_mins(1),
        ..Limits::default()
    }
}

fn config(folder: &Path) -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(folder.join(file::CERTIFICATE)).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join(file::KEY)).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    Arc::new(config)
}

struct World {
    seen: Arc<Mutex<Seen>>,
    slots: BTreeSet<Slot>,
    leader: Slot,
    pods: BTreeMap<Slot, SeenPod>,
    coordinator: Coordinator,
    origin: Instant,
    how: StopHow,
}

impl World {
    fn serve(
        &mut self,
        socket: TcpStream,
        config: &Arc<ServerConfig>,
        stopped: &AtomicBool,
    ) -> io::Result<()> {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(READ))?;
        let tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, socket);
        let mut waiting = Vec::new();
        let mut accepted = false;
        while !stopped.load(Ordering::SeqCst) {
            let mut bytes = [0; 4096];
            match stream.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => waiting.extend(&bytes[..count]),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) => {}
                Err(error) => return Err(error),
            }
            while let Some((kind, content)) = take(&mut waiting) {
                let mut seen = self.seen.lock().unwrap();
                match kind {
                    b'T' if !accepted => {
                        accepted = content == TOKEN.as_bytes();
                        if !accepted {
                            seen.bad_tokens += 1;
                            return Ok(());
                        }
                        seen.connections += 1;
                    }
                    b'S' if accepted => {
                        let envelope = Envelope::<Summary>::decode(&content).unwrap();
                        self.coordinator.receive(&envelope);
                        seen.summary = envelope.message;
                    }
                    other => panic!("a frame of kind {other}"),
                }
            }
            if accepted && let Some(content) = self.step() {
                let length = u32::try_from(content.len() + 1).unwrap();
                stream.write_all(&length.to_be_bytes())?;
                stream.write_all(b"O")?;
                stream.write_all(&content)?;
                stream.flush()?;
            }
        }
        Ok(())
    }

    /// One pass: what is stored and labelled is done at once.
    fn step(&mut self) -> Option<Vec<u8>> {
        let mut seen = self.seen.lock().unwrap();
        let stored = seen.stored.clone();
        let job = SeenJob {
            stored: &stored,
            slots: &self.slots,
            leader: self.leader,
            pods: &self.pods,
            wish: Wish::Run,
            hold: seen.hold,
        };
        let step = self.coordinator.step(&job, self.origin.elapsed());
        for relabel in step.relabel {
            self.pods.get_mut(&relabel.slot).unwrap().attempt = relabel.attempt;
        }
        assert!(
            step.replace.is_empty(),
            "no member is lost: {:?}",
            step.replace
        );
        if let Some(store) = step.store {
            seen.stored = store;
        }
        if let Some(hang) = step.hang.filter(|hang| !seen.hangs.contains(hang)) {
            seen.hangs.push(hang);
        }
        let failed = step
            .ended
            .iter()
            .any(|ended| ended.exit.container_code() != 0);
        let hangs = seen.hangs.iter().any(|hang| hang.attempt == stored.attempt);
        let restart = failed || std::mem::take(&mut seen.restart);
        let free = stored.barrier.is_none() && seen.hold.is_none();
        if free && (restart || hangs) && step.outcome.is_none() {
            let how = if restart { self.how } else { StopHow::Hang };
            let barrier = Barrier::begin(stored.attempt, how, "a test", SlotSet::default());
            seen.stored.barrier = Some(barrier);
        }
        step.send.map(|envelope| envelope.encode().unwrap())
    }
}

fn take(bytes: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let head = *bytes.first_chunk::<4>()?;
    let length = u32::from_be_bytes(head) as usize;
    if bytes.len() < 4 + length {
        return None;
    }
    let frame: Vec<u8> = bytes.drain(..4 + length).skip(4).collect();
    Some((frame[0], frame[1..].to_vec()))
}

/// The token of the leader's pod, as the kubelet writes it.
pub(super) fn write_token(path: &Path, token: &str) {
    fs::write(path, format!("{token}\n")).unwrap();
}
