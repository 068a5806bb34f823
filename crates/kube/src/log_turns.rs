//! Turns of reads of logs, so that those of one namespace that do not come delay no other one's, and how many each reader has.
//!
//! Each reader of logs has turns of its own. One that had to wait for the connections of all of them would wait for logs of anybody's pods.
//!
//! Invariant: at most as many have a turn as there are, [`NAMESPACE_AT_ONCE`] of one namespace, and of each namespace no more wait for one of the
//! turns that all share: a namespace with one log waits behind a few of each other one, not behind all logs of a large job.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use trainyard_core::progress::rota;

/// Logs that are read at once, by all readers.
pub(crate) const AT_ONCE: usize = 64;
/// Logs of pods that failed first, for verdicts.
pub(crate) const VERDICTS_AT_ONCE: usize = 16;
/// Logs of the pods beside them.
const OTHERS_AT_ONCE: usize = 6;
/// Logs that are read for transports.
const TRANSPORTS_AT_ONCE: usize = 6;
/// Reports of preflights, which may take longest.
const REPORTS_AT_ONCE: usize = 8;
/// Of each of the last three, those of one namespace: what another team's pods wrote is not lost to logs that do not come.
pub(crate) const NAMESPACE_AT_ONCE: usize = 2;

const _: () = assert!(
    VERDICTS_AT_ONCE + OTHERS_AT_ONCE + TRANSPORTS_AT_ONCE + REPORTS_AT_ONCE + rota::AT_ONCE
        <= AT_ONCE
);

/// Turns of one reader of logs.

#[derive(Debug)]
pub(crate) struct Turns {
    all: Semaphore,
    /// Those of namespaces in which a log is read or waited for.
    namespaces: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    _all: SemaphorePermit<'a>,
    _own: OwnedSemaphorePermit,
}

impl Turns {
    /// Those of logs beside the one that failed first.
    pub(crate) fn of_others() -> Self {
        Self::new(OTHERS_AT_ONCE)
    }

    /// Those of logs that are read for transports.
    pub(crate) fn of_transports() -> Self {
        Self::new(TRANSPORTS_AT_ONCE)
    }

    /// Those of reports of preflights.
    pub(crate) fn of_reports() -> Self {
        Self::new(REPORTS_AT_ONCE)
    }

    fn new(at_once: usize) -> Self {
        Self {
            all: Semaphore::new(at_once),
            namespaces: Mutex::default(),
        }
    }

    /// Waits for a turn of `namespace`.
    pub(crate) async fn next(&self, namespace: &str) -> Option<Turn<'_>> {
        let own = self.of(namespace).acquire_owned().await.ok()?;
        let all = self.all.acquire().await.ok()?;
        Some(Turn {
            _all: all,
            _own: own,
        })
    }

    fn of(&self, namespace: &str) -> Arc<Semaphore> {
        let namespaces = self.namespaces.lock();
        let mut namespaces = namespaces.unwrap_or_else(PoisonError::into_inner);
        // Of the others nobody has a turn or waits for one.
        namespaces.retain(|_, turns| Arc::strong_count(turns) > 1);
        let own = namespaces.entry(namespace.to_owned());
        Arc::clone(own.or_insert_with(|| Arc::new(Semaphore::new(NAMESPACE_AT_ONCE))))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{task::JoinSet, time::Instant};

    use super::*;

    /// How long each log of the slow namespaces takes.
    const SLOW: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn slow_logs_of_two_namespaces_delay_no_other() {
        let turns = Arc::new(Turns::of_transports());
        let mut reads = JoinSet::new();
        for number in 0..200 {
            let turns = Arc::clone(&turns);
            reads.spawn(async move {
                let namespace = format!("slow-{}", number % 2);
                let _turn = turns.next(&namespace).await;
                tokio::time::sleep(SLOW).await;
            });
        }
        // All of them ask first.
        tokio::task::yield_now().await;
        let began = Instant::now();
        drop(turns.next("other").await);
        assert!(began.elapsed() < SLOW, "{:?}", began.elapsed());
        while reads.join_next().await.is_some() {}
        assert_eq!(began.elapsed().as_secs(), 100 / 2 * SLOW.as_secs());
        // Nothing is kept of namespaces without logs.
        drop(turns.next("other").await);
        let namespaces = turns.namespaces.lock().unwrap();
        assert_eq!(namespaces.keys().collect::<Vec<_>>(), ["other"]);
    }

    #[tokio::test(start_paused = true)]
    async fn many_slow_namespaces_delay_another_by_their_turns() {
        let turns = Arc::new(Turns::of_transports());
        let mut reads = JoinSet::new();
        for number in 0..600 {
            let turns = Arc::clone(&turns);
            reads.spawn(async move {
                let _turn = turns.next(&format!("slow-{}", number % 6)).await;
                tokio::time::sleep(SLOW).await;
            });
        }
        tokio::task::yield_now().await;
        let began = Instant::now();
        drop(turns.next("other").await);
        // Two of each of six namespaces are in front of it, and six are read at once.
        assert_eq!(began.elapsed(), 2 * SLOW);
        reads.abort_all();
    }
}
