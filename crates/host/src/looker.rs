//! Evidence from outside about ranks that are silent: what the kernel and the memory of their processes show.
//!
//! Owns when they are looked at; which process of a pod is which rank, and how it is read, is [`ranks`]'. What follows from it is
//! [`trainyard_core::watch`]'s. A thread of its own reads, because a machine under load may take longer for it than output can
//! wait.
//!
//! Invariants: one request is in work at a time, and one more waits; what the watch asks for once is asked for with the next one where one is
//! left out. What is read of a pod is bounded.

use std::{
    collections::BTreeMap,
    io,
    ops::RangeInclusive,
    os::fd::{AsFd as _, BorrowedFd},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel},
    },
    thread,
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use trainyard_core::{
    launch::evidence,
    watch::{self, Ask, ProcessState, Signal, Stack, Usage},
};
use trainyard_probe::evidence::{FlightRecorder, Ras};
use trainyard_stacks::ranks::{self, RankState};

use crate::HostError;

/// A pod whose ranks are to be looked at.
#[derive(Clone, Debug)]
pub(crate) struct PodProcesses {
    /// The engine's own number of it.
    pub(crate) key: u64,
    /// Its first process, as this machine numbers it.
    pub(crate) first: u32,
    /// The ranks that it holds, where that is known.
    pub(crate) ranks: Option<RangeInclusive<u32>>,
    /// How the paths of the files of their Flight Recorders begin.
    pub(crate) flight: Option<String>,
}

/// What was seen of one rank.
#[derive(Debug)]
pub(crate) struct RankEvidence {
    pub(crate) rank: u32,
    /// The pod that it is in.
    pub(crate) key: u64,
    pub(crate) signals: Vec<Signal>,
}

/// What was seen of all ranks of an attempt.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) attempt: u32,
    pub(crate) ranks: Vec<RankEvidence>,
}

#[derive(Debug)]
struct Request {
    attempt: u32,
    /// How many ranks the job has.
    rank_count: u32,
    pods: Vec<PodProcesses>,
    stacks: bool,
    /// Whether NCCL's monitor is asked.
    collectives: bool,
    /// Whether Flight Recorders are asked for dumps.
    dumps: bool,
}

/// The thread that looks. It ends with this value.
#[derive(Debug)]
pub(crate) struct Looker {
    requests: SyncSender<Request>,
    evidence: Receiver<Evidence>,
    /// Readable when there is evidence.
    bell: Arc<EventFd>,
    /// The last request, where it was left out.
    unasked: Option<Request>,
}

impl Looker {
    /// Starts the thread; `ras` is NCCL's monitor of the run.
    pub(crate) fn start(ras: Option<Ras>) -> Result<Self, HostError> {
        let failed = HostError::system("start a thread that looks at ranks");
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(io::Error::from);
        let bell = match bell {
            Ok(bell) => Arc::new(bell),
            Err(error) => return Err(failed(error)),
        };
        let (requests, to_do) = sync_channel(1);
        let (done, evidence) = channel();
        let ring = Arc::clone(&bell);
        let thread = thread::Builder::new().name("looker".to_owned());
        let started = thread.spawn(move || work(&to_do, &done, &ring, ras));
        match started {
            Ok(_) => Ok(Self {
                requests,
                evidence,
                bell,
                unasked: None,
            }),
            Err(error) => Err(failed(error)),
        }
    }

    /// What is watched: readable when there is evidence.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Asks for evidence of all ranks of `pods`. Where a look is still in work, and another waits, this one is left out: the
    /// watch asks again, and for what it asks once of an attempt the next request asks.
    pub(crate) fn ask(
        &mut self,
        attempt: u32,
        rank_count: u32,
        pods: Vec<PodProcesses>,
        asks: &[Ask],
    ) {
        let before = self.unasked.take().filter(|it| it.attempt == attempt);
        let (collectives, dumps) = before.map_or((false, false), |it| (it.collectives, it.dumps));
        let request = Request {
            attempt,
            rank_count,
            pods,
            stacks: asks.contains(&Ask::Stacks),
            collectives: collectives || asks.contains(&Ask::Collectives),
            dumps: dumps || asks.contains(&Ask::Dumps),
        };
        if let Err(TrySendError::Full(left_out)) = self.requests.try_send(request) {
            self.unasked = Some(left_out);
        }
    }

    /// The next evidence, where there is any.
    pub(crate) fn next(&self) -> Option<Evidence> {
        // One that was not rung is not readable, which is no error here.
        self.bell.read().ok();
        self.evidence.try_recv().ok()
    }
}

fn work(to_do: &Receiver<Request>, done: &Sender<Evidence>, bell: &EventFd, mut ras: Option<Ras>) {
    let mut recorders = BTreeMap::new();
    while let Ok(request) = to_do.recv() {
        let pods = request.pods.iter();
        let mut ranks: Vec<RankEvidence> = pods.flat_map(|pod| look(pod, request.stacks)).collect();
        // Dumps that were asked for arrive seconds later, with another look.
        ranks.extend(read_dumps(&mut recorders, &request));
        ranks.extend(ras.iter_mut().flat_map(|ras| read_ras(ras, &request)));
        let evidence = Evidence {
            attempt: request.attempt,
            ranks,
        };
        if done.send(evidence).is_err() {
            return;
        }
        // A counter that is full rings as well.
        bell.write(1).ok();
    }
}

/// Asks NCCL's monitor where that is due; returns what it reported.
fn read_ras(ras: &mut Ras, request: &Request) -> Vec<RankEvidence> {
    if request.collectives {
        ras.ask();
    }
    let report = ras.take().unwrap_or_default();
    let began = watch::ras::collectives(&report, request.rank_count);
    let found = began.into_iter().filter_map(|(rank, began)| {
        let holds = |pod: &&PodProcesses| {
            let ranks = pod.ranks.as_ref();
            ranks.is_some_and(|ranks| ranks.contains(&rank))
        };
        Some(RankEvidence {
            rank,
            key: request.pods.iter().find(holds)?.key,
            signals: vec![Signal::Collective(began)],
        })
    });
    found.collect()
}

/// Asks Flight Recorders for dumps where that is due; returns what arrived.
fn read_dumps(
    recorders: &mut BTreeMap<u64, FlightRecorder>,
    request: &Request,
) -> Vec<RankEvidence> {
    recorders.retain(|key, _| request.pods.iter().any(|pod| pod.key == *key));
    let mut found = Vec::new();
    for pod in &request.pods {
        let (Some(prefix), Some(ranks)) = (&pod.flight, &pod.ranks) else {
            continue;
        };
        let recorder = recorders.entry(pod.key).or_insert_with(|| {
            FlightRecorder::new(evidence::dump_prefix(prefix), evidence::pipe_prefix(prefix))
        });
        if request.dumps {
            recorder.ask(ranks.clone());
        }
        let read = recorder.read().into_iter();
        found.extend(read.map(|(rank, began)| RankEvidence {
            rank,
            key: pod.key,
            signals: began.into_iter().map(Signal::Collective).collect(),
        }));
    }
    found
}

/// What is seen of the ranks of one pod.
fn look(pod: &PodProcesses, stacks: bool) -> Vec<RankEvidence> {
    let looks = ranks::look(pod.first, pod.ranks.as_ref(), stacks).into_iter();
    let seen = looks.map(|look| {
        let stack = look.stack.map(|stack| {
            Signal::Stack(Stack {
                digest: stack.digest,
                place: stack.place,
                in_collective: stack.in_collective,
            })
        });
        let usage = Signal::Usage(Usage {
            cpu: look.cpu,
            io_bytes: look.io_bytes,
            // The pods of one machine share its interfaces.
            network_bytes: None,
            state: match look.state {
                RankState::Running => ProcessState::Running,
                RankState::Sleeping => ProcessState::Sleeping,
                RankState::DiskWait => ProcessState::DiskWait,
                RankState::Stopped => ProcessState::Stopped,
            },
            wait_channel: look.wait_channel,
        });
        RankEvidence {
            rank: look.rank,
            key: pod.key,
            signals: [usage].into_iter().chain(stack).collect(),
        }
    });
    seen.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asked_once_survives_a_request_that_is_left_out() {
        let (requests, to_do) = sync_channel(1);
        let mut looker = Looker {
            requests,
            evidence: channel().1,
            bell: Arc::new(EventFd::new().unwrap()),
            unasked: None,
        };
        let once = [Ask::Usage, Ask::Collectives, Ask::Dumps];
        let asked = |to_do: &Receiver<Request>| {
            let request = to_do.try_recv().unwrap();
            (request.attempt, request.collectives, request.dumps)
        };
        // The second and the third are left out: the first was not taken yet.
        for asks in [&[Ask::Usage][..], &once, &[Ask::Stacks]] {
            looker.ask(1, 1, Vec::new(), asks);
        }
        assert_eq!(asked(&to_do), (1, false, false));
        looker.ask(1, 1, Vec::new(), &[Ask::Usage]);
        assert_eq!(asked(&to_do), (1, true, true));
        looker.ask(1, 1, Vec::new(), &[Ask::Usage]);
        looker.ask(1, 1, Vec::new(), &once);
        assert_eq!(asked(&to_do), (1, false, false), "once");
        looker.ask(2, 1, Vec::new(), &[Ask::Usage]);
        assert_eq!(asked(&to_do), (2, false, false), "another attempt");
    }
}
