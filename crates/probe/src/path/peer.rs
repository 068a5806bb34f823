//! A member of the preflight: joins the leader and does what it asks for.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use thiserror::Error;
use trainyard_core::probe::tools::{nccl, perftest};

use super::{
    Settings, frame,
    limit::Limit,
    message::{Answer, Hello, Measure, Part, Request, VERSION, VolumeAction, VolumeStep},
    ring,
    socket::{Binding, SocketError},
    stream::Session,
    tools, volume,
};
use crate::program::find;

/// The prefix of our files; a leader may have only such files written or removed.
pub(super) const FILES: &str = ".trainyard-preflight-";

/// Between two tries to reach a leader that may not listen yet.
const PAUSE: Duration = Duration::from_millis(200);

/// Why a peer ended before the goodbye.
#[derive(Debug, Error)]
pub enum PeerError {
    /// The leader did not listen in time.
    #[error("cannot reach the leader at `{leader}` within {seconds} s")]
    Reach {
        /// Its address.
        leader: SocketAddr,
        /// The limit.
        seconds: u64,
        /// What the last try said.
        #[source]
        source: io::Error,
    },
    /// The leader is gone, or sent something else than a request.
    #[error("lost the connection to the leader at `{leader}`")]
    Lost {
        /// Its address.
        leader: SocketAddr,
        /// How.
        #[source]
        source: io::Error,
    },
    /// The leader refused this peer.
    #[error("the leader at `{leader}` refused this pod: {why}")]
    Refused {
        /// Its address.
        leader: SocketAddr,
        /// The message of the leader.
        why: String,
    },
    /// It cannot open a port to be measured at.
    #[error("cannot open a port for measurements")]
    Listen(#[source] SocketError),
}

/// Joins the leader and answers until its goodbye.
pub fn join(settings: &Settings, leader: SocketAddr) -> Result<(), PeerError> {
    let limit = Limit::after(settings.timeout);
    let (binding, trouble) = match Binding::to(settings.needs.interface.as_deref()) {
        Ok(binding) => (binding, None),
        Err(error) => (Binding::default(), Some(error.to_string())),
    };
    let listener = binding.listen(0).map_err(PeerError::Listen)?;
    let port = listener.local_addr().map_or(0, |address| address.port());
    let stream = reach(leader, settings, limit)?;
    let lost = |source| PeerError::Lost { leader, source };
    let hello = Hello {
        version: VERSION,
        token: settings.token.clone(),
        node: settings.node.clone(),
        address: binding.address(),
        port,
        trouble,
    };
    frame::write(&stream, &hello, limit).map_err(lost)?;
    let peer = Peer {
        settings,
        binding,
        listener,
    };
    loop {
        let request: Request = frame::read(&stream, frame::LARGEST, limit).map_err(lost)?;
        if let Request::Refused(why) = request {
            return Err(PeerError::Refused { leader, why });
        }
        let is_last = matches!(request, Request::Goodbye);
        let answer = peer.answer(request);
        frame::write(&stream, &answer, limit).map_err(lost)?;
        if is_last {
            return Ok(());
        }
    }
}

fn reach(leader: SocketAddr, settings: &Settings, limit: Limit) -> Result<TcpStream, PeerError> {
    loop {
        let try_until = limit.within(settings.patience());
        match Binding::default().connect(leader, try_until) {
            Ok(stream) => return Ok(stream),
            Err(source) if limit.within(PAUSE) == limit || limit.is_over() => {
                let seconds = settings.timeout.as_secs();
                return Err(PeerError::Reach {
                    leader,
                    seconds,
                    source,
                });
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

struct Peer<'a> {
    settings: &'a Settings,
    binding: Binding,
    listener: TcpListener,
}

impl Peer<'_> {
    fn answer(&self, request: Request) -> Answer {
        match request {
            Request::Read => {
                let reading = crate::read(&self.settings.root, &self.settings.needs);
                Answer::Read(Box::new(reading))
            }
            Request::Clock => Answer::Clock(now_micros()),
            Request::Measure(part) => self.measure(&part),
            Request::Volume(step) => Answer::Volume(self.volume(&step)),
            Request::Programs => {
                let known = [perftest::PROGRAM, nccl::PROGRAM].into_iter();
                let here = known.filter(|name| find(name, &self.settings.programs).is_some());
                Answer::Programs(here.map(str::to_owned).collect())
            }
            Request::Goodbye | Request::Refused(_) => Answer::Goodbye,
        }
    }

    fn measure(&self, part: &Part) -> Answer {
        let session = Session {
            binding: &self.binding,
            listener: &self.listener,
            token: &self.settings.token,
            measure: self.settings.measure,
            patience: self.settings.patience(),
        };
        let programs = &self.settings.programs;
        match &part.measure {
            Measure::Streams => Answer::Pair(session.pair(part.to, part.id)),
            Measure::Rdma(own) => Answer::Pair(tools::rdma(&session, programs, part, own)),
            Measure::Ring(own) => Answer::Ring(ring::take_part(&session, part, own)),
            Measure::Collective(gpus) => {
                Answer::Collective(tools::collective(programs, *gpus, part.limit))
            }
        }
    }

    /// Only on volumes that this pod was given, and only files of ours.
    fn volume(&self, step: &VolumeStep) -> Vec<(String, String)> {
        let mut volumes = self.settings.needs.volumes.iter().flatten();
        let is_known = volumes.any(|volume| volume.path.as_ref() == Some(&step.path));
        let is_ours = |name: &str| name.starts_with(FILES) && !name.contains('/');
        let ours = match &step.action {
            VolumeAction::Write { name, .. } | VolumeAction::Remove { name } => is_ours(name),
            VolumeAction::Look { files } => files.iter().all(|(name, _)| is_ours(name)),
        };
        if !is_known || !ours {
            return vec![(
                step.path.clone(),
                "it is not a volume of this node".to_owned(),
            )];
        }
        volume::step(step, self.settings.patience())
    }
}

/// Microseconds since 1970.
pub(super) fn now_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.map_or(0, |since| since.as_micros());
    i64::try_from(micros).unwrap_or(i64::MAX)
}
