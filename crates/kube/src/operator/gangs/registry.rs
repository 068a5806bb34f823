//! The gangs whose pods have supervisors: their coordinators, the newest summary of each leader, and the connection to it.
//!
//! Owns memory only. A pass takes what there is ([`Registry::see`]), decides, and hands back what is to be kept
//! ([`Registry::keep`]); connections bring summaries and take orders. All of it may be lost: leaders dial and report again.
//!
//! Invariants: a gang has one connection, of the pod that leads now; summaries of any other connection change nothing. A summary is
//! forgotten once a coordinator that received it was kept. There is no gang without a job of the store: passes make them and forget them.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{Notify, watch};
use trainyard_core::barrier::{Coordinator, Envelope, Limits, OperatorMessage, Summary};

use crate::key::JobKey;

/// The gangs of an operator.
#[derive(Debug, Default)]
pub(super) struct Registry {
    gangs: BTreeMap<JobKey, Gang>,
    next_link: u64,
}

#[derive(Debug)]
struct Gang {
    /// The uid of the job.
    job: String,
    limits: Limits,
    /// The uid of the pod that leads.
    leader: Option<String>,
    coordinator: Coordinator,
    link: Option<Link>,
    /// Counts what came in, so that a pass forgets only what it has seen.
    news: u64,
    /// What had come in when a pass saw the gang last.
    seen: u64,
    /// Whether a restart in place is under way, by the status that was written last.
    in_barrier: bool,
    /// The connection ended.
    gone: Option<u64>,
    /// The newest summary that no kept coordinator has received.
    summary: Option<(u64, Arc<Envelope<Summary>>)>,
    /// A summary to which the response is an acknowledgement, as long as nothing else changes.
    settled: Option<Arc<Envelope<Summary>>>,
}

/// The connection of a leader. Dropping it closes the connection.
#[derive(Debug)]
struct Link {
    id: u64,
    pod: String,
    outbox: Arc<Outbox>,
    _keeps_open: watch::Sender<()>,
}

/// The end of a [`Link`] that the connection holds.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) id: u64,
    /// The uid of the job.
    pub(super) job: String,
    pub(super) outbox: Arc<Outbox>,
    closed: watch::Receiver<()>,
}

impl Connected {
    /// Waits until the connection is to be closed.
    pub(super) async fn closed(&mut self) {
        while self.closed.changed().await.is_ok() {}
    }
}

/// What is to be sent next. A newer message takes the place of an older one that was not sent yet: each is a whole state.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    next: Mutex<Option<Envelope<OperatorMessage>>>,
    filled: Notify,
}

impl Outbox {
    fn put(&self, message: Envelope<OperatorMessage>) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        // An order that waits is a response, too.
        if next.is_none() || matches!(message.message, OperatorMessage::Order(_)) {
            *next = Some(message);
        }
        drop(next);
        self.filled.notify_one();
    }

    /// Waits for what is to be sent.
    pub(super) async fn next(&self) -> Envelope<OperatorMessage> {
        loop {
            match self.take() {
                Some(message) => return message,
                None => self.filled.notified().await,
            }
        }
    }

    fn take(&self) -> Option<Envelope<OperatorMessage>> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        next.take()
    }
}

/// What a pass sees of a gang.
#[derive(Debug)]
pub(super) struct Seen {
    /// With everything received that came in.
    pub(super) coordinator: Coordinator,
    pub(super) leader_connected: bool,
}

/// What a pass has decided about a gang.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) coordinator: Coordinator,
    pub(super) send: Option<Envelope<OperatorMessage>>,
    /// Whether a restart in place is under way.
    pub(super) in_barrier: bool,
}

/// What follows from a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The job gets a pass.
    Pass,
    /// It was acknowledged: nothing has changed since the one before.
    Acknowledged,
    /// The connection is not that of the gang any more.
    Closed,
}

impl Registry {
    /// What there is of the gang of `key`, whose leader is the pod `leader`.
    pub(super) fn see(
        &mut self,
        key: &JobKey,
        job: &str,
        leader: Option<&str>,
        limits: Limits,
    ) -> Seen {
        let gang = match self.gangs.entry(key.clone()) {
            Entry::Vacant(entry) => entry.insert(Gang::new(job, limits)),
            Entry::Occupied(entry) => {
                let gang = entry.into_mut();
                if gang.job != job || gang.limits != limits {
                    *gang = Gang::new(job, limits);
                }
                gang
            }
        };
        gang.leader = leader.map(str::to_owned);
        if let Some(link) = &gang.link
            && leader != Some(link.pod.as_str())
        {
            gang.end_link();
        }
        let mut coordinator = gang.coordinator.clone();
        if gang.gone.is_some() {
            coordinator.leader_gone();
        }
        if let Some((_, summary)) = &gang.summary {
            coordinator.receive(summary);
        }
        gang.seen = gang.news;
        Seen {
            coordinator,
            leader_connected: gang.link.is_some(),
        }
    }

    /// Keeps what the pass that saw the gang last has decided, after its status was written, and sends what there is to send.
    pub(super) fn keep(&mut self, key: &JobKey, job: &str, decided: Decided) {
        let Some(gang) = self.gangs.get_mut(key).filter(|gang| gang.job == job) else {
            return;
        };
        let Decided {
            coordinator,
            send,
            in_barrier,
        } = decided;
        gang.coordinator = coordinator;
        let seen = gang.seen;
        gang.gone.take_if(|at| *at <= seen);
        let received = gang.summary.take_if(|(at, _)| *at <= seen);
        if in_barrier || gang.in_barrier {
            gang.settled = None;
        }
        gang.in_barrier = in_barrier;
        let Some(send) = send else {
            return;
        };
        let acknowledges = matches!(send.message, OperatorMessage::Ack);
        gang.settled = received
            .filter(|_| acknowledges && !in_barrier)
            .map(|(_, summary)| summary);
        if let Some(link) = &gang.link {
            link.outbox.put(send);
        } else if !acknowledges {
            // Nobody has got it: the next connection does.
            gang.came(|gang, at| gang.gone = Some(at));
        }
    }

    /// Whether a restart in place of the gang is under way.
    pub(super) fn is_in_barrier(&self, key: &JobKey) -> bool {
        self.gangs.get(key).is_some_and(|gang| gang.in_barrier)
    }

    /// Whether the pod leads the gang of `key`.
    pub(super) fn leads(&self, key: &JobKey, pod: &str) -> bool {
        let gang = self.gangs.get(key);
        gang.is_some_and(|gang| gang.leader.as_deref() == Some(pod))
    }

    /// Connects the pod that leads the gang of `key`. The connection before is closed.
    pub(super) fn connect(&mut self, key: &JobKey, pod: &str) -> Option<Connected> {
        let gang = self.gangs.get_mut(key)?;
        if gang.leader.as_deref() != Some(pod) {
            return None;
        }
        gang.end_link();
        let (keeps_open, closed) = watch::channel(());
        let outbox: Arc<Outbox> = Arc::default();
        let id = self.next_link;
        self.next_link += 1;
        gang.link = Some(Link {
            id,
            pod: pod.to_owned(),
            outbox: Arc::clone(&outbox),
            _keeps_open: keeps_open,
        });
        Some(Connected {
            id,
            job: gang.job.clone(),
            outbox,
            closed,
        })
    }

    /// A summary came in on the connection `link`.
    pub(super) fn receive(
        &mut self,
        key: &JobKey,
        link: u64,
        summary: Envelope<Summary>,
    ) -> Arrival {
        let Some((gang, link)) = self.linked(key, link) else {
            return Arrival::Closed;
        };
        let settled = gang.settled.as_deref() == Some(&summary);
        if settled && gang.summary.is_none() && gang.gone.is_none() {
            link.put(Envelope {
                job: summary.job,
                message: OperatorMessage::Ack,
            });
            return Arrival::Acknowledged;
        }
        gang.came(|gang, at| gang.summary = Some((at, Arc::new(summary))));
        Arrival::Pass
    }

    /// The connection `link` has ended; whether it was that of the gang.
    pub(super) fn disconnect(&mut self, key: &JobKey, link: u64) -> bool {
        let Some((gang, _)) = self.linked(key, link) else {
            return false;
        };
        gang.end_link();
        true
    }

    /// The jobs whose gangs are known.
    pub(super) fn keys(&self) -> Vec<JobKey> {
        self.gangs.keys().cloned().collect()
    }

    pub(super) fn forget(&mut self, key: &JobKey) {
        self.gangs.remove(key);
    }

    pub(super) fn forget_all(&mut self) {
        self.gangs.clear();
    }

    #[cfg(test)]
    pub(super) fn is_connected(&self, key: &JobKey) -> bool {
        self.gangs.get(key).is_some_and(|gang| gang.link.is_some())
    }

    #[cfg(test)]
    pub(super) fn has_summary(&self, key: &JobKey) -> bool {
        self.gangs
            .get(key)
            .is_some_and(|gang| gang.summary.is_some())
    }

    fn linked(&mut self, key: &JobKey, id: u64) -> Option<(&mut Gang, Arc<Outbox>)> {
        let gang = self.gangs.get_mut(key)?;
        let link = gang.link.as_ref().filter(|link| link.id == id)?;
        let outbox = Arc::clone(&link.outbox);
        Some((gang, outbox))
    }
}

impl Gang {
    fn new(job: &str, limits: Limits) -> Self {
        Self {
            job: job.to_owned(),
            limits,
            leader: None,
            coordinator: Coordinator::new(job.to_owned(), limits),
            link: None,
            news: 0,
            seen: 0,
            in_barrier: false,
            gone: None,
            summary: None,
            settled: None,
        }
    }

    fn came(&mut self, put: impl FnOnce(&mut Self, u64)) {
        self.news += 1;
        self.settled = None;
        let news = self.news;
        put(self, news);
    }

    fn end_link(&mut self) {
        if self.link.take().is_some() {
            self.came(|gang, at| gang.gone = Some(at));
        }
    }
}

#[cfg(test)]
mod tests;
